/* report.h: reports the values inside a plan's records and workspace. Inside worker/plan. */
#ifndef SEQD_PLAN_REPORT_H
#define SEQD_PLAN_REPORT_H

#include "api/core/jwrite.h"
#include "worker/plan/plan.h"

/* Writes members of the open array memory.by_tensor: the values that a family's sections keep, by
 * name, with the bytes of all layers, and the largest of those that share the workspace. */
void report_sections(struct jwrite *w, const struct model_shape *m, const struct plan *p);

#endif
