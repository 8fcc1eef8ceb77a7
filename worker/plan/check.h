/* check.h: whether a job may run, its model included. */
#ifndef SEQD_PLAN_CHECK_H
#define SEQD_PLAN_CHECK_H

#include "api/core/err.h"

struct job_spec;

/* Checks as job_check() does, then every rule that depends on the model's family: strategies,
 * layouts, forms, objectives, formats, lengths. Sets the fields that are "auto" and that the
 * family decides, completes the shape and keeps it as text in model.config. If no node has
 * described model.path yet, only rules that hold for every family are checked, and "auto" stays.
 * fails: ERR_INVALID, ERR_UNSUPPORTED, ERR_TOO_LARGE with the field and the way out.
 * Idempotent. */
int family_check(struct job_spec *s, struct err *e);

#endif
