/* profile.h: `seqrank --profile` measures the speed of this machine in a few hundred milliseconds.
 *
 * It times matrix products, attention and linear attention at several sizes, and operations
 * element by element, all of them on one thread and by the thread's own processor time. It also
 * times two ranks (threads) that use the transport between processes of one node. Every figure is
 * the best of the runs that fit in a slice of time, because other work on the machine can only
 * slow a run down. */
#ifndef SEQD_RANK_PROFILE_H
#define SEQD_RANK_PROFILE_H

#include "api/core/profile.h"

#define PROFILE_SLICE_MS 5 /* time for each rate; 28 rates and 2 figures of a link take 0.25 s */

/* Measures everything. slice_ms is the time for each rate; each figure of the link, between two
 * threads, gets four times as much. Fails as be_open, comm_listen, comm_connect and profile_check
 * do, or with ERR_IO. */
int profile_measure(int64_t slice_ms, struct profile *out, struct err *e);
int profile_main(void); /* prints one line of JSON; returns the exit status */

#endif
