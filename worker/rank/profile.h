/* profile.h: `seqrank --profile`: how fast this machine is, in a few hundred milliseconds.
 *
 * Matrix products and attention in fp32 and bf16 on one thread, and two ranks (threads) on the
 * transport between processes of one node. Every figure is the best of what fits in a slice of
 * time: other work only ever adds. */
#ifndef SEQD_RANK_PROFILE_H
#define SEQD_RANK_PROFILE_H

#include "api/core/profile.h"

/* slice_ms: for each figure. fails: as be_open and comm_listen. */
int profile_measure(int64_t slice_ms, struct profile *out, struct err *e);
int profile_main(void); /* prints one line of JSON; exit status */

#endif
