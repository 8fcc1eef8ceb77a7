/* ring.h: picks the GPUs of a node that make a ring, and their order: neighbours near each
 * other. */
#ifndef SEQD_DAEMON_SCHED_RING_H
#define SEQD_DAEMON_SCHED_RING_H

#include "daemon/sched/sched.h"

/* Picks `want` of the n GPUs, among those that `may` marks, into out, in rank order. A walk begins
 * at each GPU and always continues to the nearest one. The shortest closed walk is taken, the same
 * in every run. Compares at most GPU_MAX^3 distances. Returns false if fewer are marked. */
bool ring_pick(const struct sched_gpu *gpus, const bool *may, int n, int want, uint8_t *out);

#endif
