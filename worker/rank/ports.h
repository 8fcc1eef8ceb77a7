/* ports.h: restricts a rank in a sandbox to the ports on which the ranks of its attempt listen.
 * seqgang cannot do it, because the ports are known only when every rank listens. */
#ifndef SEQD_RANK_PORTS_H
#define SEQD_RANK_PORTS_H

#include "api/core/err.h"
#include "api/core/rank.h"

/* Lets no thread of this process connect to another port of TCP than those of the n blobs. Does
 * nothing if the kernel cannot restrict ports. Call it while no thread is started or ends. Fails as
 * landlock_open and landlock_enter_all do. */
int ports_confine(const struct rank_blob *blobs, int n, struct err *e);

#endif
