/* profile.h: `seqrank --profile`: measures how fast this machine is, in a few hundred
 * milliseconds.
 *
 * It times matrix products, attention and linear attention at several sizes, and operations
 * element by element, all on one thread and by its own processor time; and two ranks (threads) on
 * the transport between processes of one node. Every figure is the best of the runs that fit in a
 * slice of time, since other work on the machine can only slow a run. */
#ifndef SEQD_RANK_PROFILE_H
#define SEQD_RANK_PROFILE_H

#include "api/core/profile.h"

#define PROFILE_SLICE_MS 5 /* 28 rates and 2 figures of a link: a quarter of a second */

/* Measures everything. slice_ms: time for each rate; each figure of the link, between two threads,
 * gets four times as much. fails: as be_open, comm_listen, comm_connect and profile_check;
 * ERR_IO. */
int profile_measure(int64_t slice_ms, struct profile *out, struct err *e);
int profile_main(void); /* prints one line of JSON; exit status */

#endif
