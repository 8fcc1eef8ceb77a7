/* oom.h: allocations that fail (oom.c); the simulator's own do not. */
#ifndef SEQD_TESTS_SIM_OOM_H
#define SEQD_TESTS_SIM_OOM_H

#include <stddef.h>
#include <stdint.h>

struct oom_told {   /* in memory shared with the parent */
    int64_t caller; /* caller of the failed allocation: an offset in the program; 0: none */
    int status;     /* status of the answer; 0: no answer */
};

extern struct oom {
    int64_t at, n; /* at: number of the allocation that fails, 0: none; n: counted so far */
    int aside;     /* above 0: the simulator itself allocates */
    struct oom_told *told;
} oom;

void *sim_malloc(size_t size); /* the simulator's own: they do not fail */
void *sim_calloc(size_t n, size_t size);
void *sim_realloc(void *p, size_t size);

int oom_walk(void); /* `sim --oom`: a table; 1 when a request crashed */

#endif
