/* packet.h: checks a rank's packet before the gang uses it. Pure. */
#ifndef SEQD_GANG_PACKET_H
#define SEQD_GANG_PACKET_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/rank.h"

/* Tells whether a rank may send a packet of `size` bytes with this head. */
bool packet_good(const struct rank_msg *head, int64_t size);

#endif
