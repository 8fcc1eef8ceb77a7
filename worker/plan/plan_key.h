/* plan_key.h: a digest of everything that a plan and its choice depend on. Jobs with the same key
 * have the same plan, choice and advice, to the byte. A key leaves out the values that only the
 * run of a job reads: the job's name, labels, priority and seeds, and the texts of paths and
 * prompts. For a path it tells whether there is one, and for a prompt its length.
 * tested: tests/engine/test_plan_key.c */
#ifndef SEQD_PLAN_PLAN_KEY_H
#define SEQD_PLAN_PLAN_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/plan/machine.h"
#include "worker/plan/place.h"

#define PLAN_KEY_SIZE 32

/* The arguments of choice_make and plan_asked. */
struct plan_question {
    const struct job_spec *asked, *spec; /* spec is not yet changed by choice_apply */
    const struct machine *machine;
    const struct plan_limits *limits;
    bool shown;     /* choice_how.limits */
    bool ungrouped; /* choice_how.ungrouped */
};

void plan_key(const struct plan_question *q, uint8_t key[PLAN_KEY_SIZE]);

#endif
