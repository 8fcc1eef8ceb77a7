/* ring.h: picks the GPUs of a node that form a ring, and orders them so that neighbours in the
 * ring are close together. */
#ifndef SEQD_DAEMON_SCHED_RING_H
#define SEQD_DAEMON_SCHED_RING_H

#include "daemon/sched/sched.h"

/* Picks `want` of the n GPUs, all of them marked by `may`, and writes their indices to out in rank
 * order. One walk begins at each marked GPU, and always continues to the nearest GPU that it has
 * not visited. The shortest closed walk is chosen. The choice is the same in every run. Compares
 * at most GPU_MAX^3 distances. Returns false if `may` marks fewer GPUs than `want`. */
bool ring_pick(const struct sched_gpu *gpus, const bool *may, int n, int want, uint8_t *out);

#endif
