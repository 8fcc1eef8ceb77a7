/* ring.h: picks the GPUs of a node that make a ring, and their order: neighbours near each
 * other. */
#ifndef SEQD_DAEMON_SCHED_RING_H
#define SEQD_DAEMON_SCHED_RING_H

#include "daemon/sched/sched.h"

/* Picks `want` of the n GPUs that `may` marks, in rank order, into out. A walk begins at each GPU
 * and always continues to the nearest; the shortest walk, with its way back, is taken, the same in
 * every run. At most GPU_MAX^3 looks at a distance. False: fewer are marked. */
bool ring_pick(const struct sched_gpu *gpus, const bool *may, int n, int want, uint8_t *out);

#endif
