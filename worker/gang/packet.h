/* packet.h: checks a rank's packet before the gang uses it. Pure. */
#ifndef SEQD_GANG_PACKET_H
#define SEQD_GANG_PACKET_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/rank.h"

/* Returns true if a rank may send a packet that has the header `head`, this payload, and `size`
 * bytes in all. */
bool packet_good(const struct rank_msg *head, const void *payload, int64_t size);

#endif
