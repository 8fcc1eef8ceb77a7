/* report.h: lists the values that are in a plan's records and workspace. It is private to
 * worker/plan. */
#ifndef SEQD_PLAN_REPORT_H
#define SEQD_PLAN_REPORT_H

#include "api/core/jwrite.h"
#include "worker/plan/plan.h"

/* Writes elements of the array memory.by_tensor, which the caller has opened. They are the values
 * that sections keep, by name, with their bytes in all layers. The largest values in the workspace
 * follow. */
void report_sections(struct jwrite *w, const struct model_shape *m, const struct plan *p);

#endif
