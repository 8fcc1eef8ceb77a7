/* need.h: the memory of their nodes that a job's ranks take, according to its plan. The functions
 * are pure. */
#ifndef SEQD_DAEMON_SCHED_NEED_H
#define SEQD_DAEMON_SCHED_NEED_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"

/* Bytes of a node's memory for one process that prepares data or describes a model. The largest
 * tokenizer.json of the Hub, of 49 MB, needs 85 MB of it. */
#define NEED_ERRAND ((int64_t)128 << 20)

struct need {
    /* bytes of the rank that needs most, as "memory" of the plan states them */
    int64_t device, host;
    /* bytes of its node's memory that this rank takes; 0 means none, or unknown */
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
/* Returns how many ranks, beginning with `first` and at most `most`, fit into size bytes. */
int32_t need_fits(const struct need *n, int32_t first, int32_t most, int64_t size);

#endif
