/* check.h: tells whether a job may run, including its model. */
#ifndef SEQD_PLAN_CHECK_H
#define SEQD_PLAN_CHECK_H

#include "api/core/err.h"

struct job_spec;

/* Makes the checks of job_check(), and then checks every rule that depends on the model's family:
 * strategies, layouts, forms, objectives, formats, lengths. Sets the fields that are "auto" and
 * that the family decides. Completes the shape and stores it as text in model.config. If no node
 * has described model.path yet, it checks only the rules that hold for every family, and does not
 * replace "auto". Fails with ERR_INVALID, ERR_UNSUPPORTED or ERR_TOO_LARGE. The error names the
 * field and the remedy. A second call with the same job changes nothing. */
int family_check(struct job_spec *s, struct err *e);

#endif
