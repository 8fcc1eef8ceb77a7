/* report.h: reports the values inside a plan's records and workspace. It is private to
 * worker/plan. */
#ifndef SEQD_PLAN_REPORT_H
#define SEQD_PLAN_REPORT_H

#include "api/core/jwrite.h"
#include "worker/plan/plan.h"

/* Writes elements of the array memory.by_tensor, which the caller has opened. They are the values
 * that a family's sections keep, by name, with their bytes over all layers, and the largest of the
 * values that share the workspace. */
void report_sections(struct jwrite *w, const struct model_shape *m, const struct plan *p);

#endif
