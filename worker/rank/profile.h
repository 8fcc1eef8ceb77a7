/* profile.h: `seqrank --profile` measures the speed of this machine in a few hundred milliseconds.
 *
 * It times matrix products, attention and linear attention at several sizes, and operations on
 * single elements. All these operations run on one thread, and the processor time of this
 * thread is measured. It also times messages between two threads, which act as two ranks and
 * use the transport between processes of one node. Each operation is repeated until a slice of
 * time is over. The result is the rate of the fastest run, because other work on the machine
 * can only slow a run down. */
#ifndef SEQD_RANK_PROFILE_H
#define SEQD_RANK_PROFILE_H

#include "api/core/profile.h"

/* Time in ms for each rate. With this value, 28 rates and 2 figures of the link take 0.25 s. */
#define PROFILE_SLICE_MS 5

/* Measures all rates. slice_ms is the time for each rate. Each of the two figures of the link
 * between two threads takes four times as long. Fails as be_open, comm_listen, comm_connect and
 * profile_check do, or with ERR_IO. */
int profile_measure(int64_t slice_ms, struct profile *out, struct err *e);
int profile_main(void); /* prints one line of JSON; returns the exit status */

#endif
