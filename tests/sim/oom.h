/* oom.h: allocations that fail (oom.c), except for the simulator's own. */
#ifndef SEQD_TESTS_SIM_OOM_H
#define SEQD_TESTS_SIM_OOM_H

#include <stddef.h>
#include <stdint.h>

struct oom_told {   /* this struct is in memory that is shared with the parent */
    int64_t caller; /* the caller of the allocation that failed, as an offset in the program, or
                     * 0 */
    int status;     /* status of the answer, or 0 if there was none */
};

extern struct oom {
    /* `at` is the index of the allocation that fails, counted from 1; 0 means that none fails. `n`
     * is the number of allocations so far */
    int64_t at, n;
    int aside; /* above 0 while the simulator itself allocates */
    struct oom_told *told;
} oom;

void *sim_malloc(size_t size); /* the simulator's own allocations, which do not fail */
void *sim_calloc(size_t n, size_t size);
void *sim_realloc(void *p, size_t size);

int oom_walk(void); /* `sim --oom`, which prints a table; returns 1 if a request crashed */

#endif
