/* ring.h: which of a node's GPUs make a ring, and in which order: neighbours near each other. */
#ifndef SEQD_DAEMON_SCHED_RING_H
#define SEQD_DAEMON_SCHED_RING_H

#include "daemon/sched/sched.h"

/* Picks `want` of the n GPUs that `may` marks, in rank order, into out: of the walks that always
 * continue to the nearest GPU, from every GPU there is, the one that is shortest with its way back;
 * the same in every run. At most GPU_MAX^3 looks at a distance. False: fewer are marked. */
bool ring_pick(const struct sched_gpu *gpus, const bool *may, int n, int want, uint8_t *out);

#endif
