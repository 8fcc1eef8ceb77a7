/* nccl_use.h: decides whether the ranks may use NCCL. For nccl.c. */
#ifndef SEQD_COMM_NCCL_USE_H
#define SEQD_COMM_NCCL_USE_H

#include <stdbool.h>
#include "worker/comm/endpoint.h"

/* Tells whether this rank opens NCCL, before it is known whether all ranks have it. */
bool nccl_offered(const struct comm *c);
/* comm_ops.usable: NCCL moves tensors alone, to all peers or to none. */
bool nccl_usable(const struct comm *me, int peer, enum comm_memory memory, struct err *why);
int nccl_refuse_host(struct err *e); /* sets e: there is no GPU */

#endif
