/* nccl_use.h: decides whether the ranks may use NCCL. It is private to nccl.c. */
#ifndef SEQD_COMM_NCCL_USE_H
#define SEQD_COMM_NCCL_USE_H

#include <stdbool.h>
#include "worker/comm/endpoint.h"

/* Tells whether this rank opens NCCL. It is not known yet whether all ranks have NCCL. */
bool nccl_offered(const struct comm *c);
/* Implements comm_ops.usable. NCCL moves only tensors. Either all peers use it, or none does. */
bool nccl_usable(const struct comm *me, int peer, enum comm_memory memory, struct err *why);
int nccl_refuse_host(struct err *e); /* sets e, which says that there is no GPU */

#endif
