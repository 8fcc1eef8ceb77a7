/* packet.h: what a packet of a rank has to be before the gang takes it. Pure. */
#ifndef SEQD_GANG_PACKET_H
#define SEQD_GANG_PACKET_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/rank.h"

/* Whether a packet of size bytes with this head is one that a rank may send. */
bool packet_good(const struct rank_msg *head, int64_t size);

#endif
