/* need.h: the memory that a job's ranks take of their nodes, by its plan. Pure. */
#ifndef SEQD_DAEMON_SCHED_NEED_H
#define SEQD_DAEMON_SCHED_NEED_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"

/* Bytes of a node's memory for one process that prepares data or describes a model. The largest
 * tokenizer.json of the Hub, 49 MB, takes 85 MB of it. */
#define NEED_ERRAND ((int64_t)128 << 20)

struct need {
    int64_t device, host; /* bytes of the rank that needs most, as "memory" of the plan has them */
    int64_t rank;         /* bytes that this rank takes of its node's memory; 0: none or unknown */
    int32_t n_stages;     /* number of stages if their needs differ, else 1 */
    int32_t per_stage;    /* successive ranks that belong to one stage */
    int64_t stage[JOB_MAX_RANKS]; /* if there are several stages: bytes of a rank of each */
};

struct need_of {
    bool own_memory; /* the device has memory of its own, apart from its node's */
    int32_t stages, per_stage;
};
/* Reads the need from a plan in JSON. The value of an absent member counts as unknown. */
void need_read(struct need *n, const char *plan, const struct need_of *of);
/* Returns the bytes that ranks [first, first + count) take together. */
int64_t need_of(const struct need *n, int32_t first, int32_t count);
/* Returns how many ranks from `first` on, at most `most`, fit into size bytes. */
int32_t need_fits(const struct need *n, int32_t first, int32_t most, int64_t size);

#endif
