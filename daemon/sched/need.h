/* need.h: computes from a job's plan how much memory of the nodes its ranks take. The functions
 * are pure. */
#ifndef SEQD_DAEMON_SCHED_NEED_H
#define SEQD_DAEMON_SCHED_NEED_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"

/* Bytes of a node's memory for one process that prepares data or describes a model. A tokenizer
 * takes up to 85 MB of them, as measured with the largest tokenizer.json of the Hub, a file of 49
 * MB. */
#define NEED_ERRAND ((int64_t)128 << 20)

struct need {
    /* "memory" of the plan: the bytes of the largest rank, on its device and on its host */
    int64_t device, host;
    /* bytes of its node's memory that the largest rank takes; 0 means that it takes none, or that
     * the number is not known */
    int64_t rank;
    int32_t n_stages;  /* number of stages if the needs of stages differ, otherwise 1 */
    int32_t per_stage; /* successive ranks that belong to one stage */
    /* if there are several stages, the bytes of a rank of each stage */
    int64_t stage[JOB_MAX_RANKS];
};

struct need_of {
    bool own_memory; /* the device has its own memory, apart from its node's */
    int32_t stages, per_stage;
};
/* Reads the need from a plan in JSON. A member that the plan lacks counts as unknown. */
void need_read(struct need *n, const char *plan, const struct need_of *of);
/* Returns the bytes that the ranks [first, first + count) take together. */
int64_t need_of(const struct need *n, int32_t first, int32_t count);
/* Returns how many successive ranks, beginning with rank `first`, fit into size bytes. The result
 * is at most the parameter `most`. */
int32_t need_fits(const struct need *n, int32_t first, int32_t most, int64_t size);

#endif
