/* room.h: rooms for tables that are larger than a frame may be (64 KiB), which each step needs. A
 * thread keeps the rooms that it has given back, by size, until it ends: a call that is made in
 * every step allocates in the first one alone. At most ROOM_KEPT of them are kept. */
#ifndef SEQD_CORE_ROOM_H
#define SEQD_CORE_ROOM_H

#include <stddef.h>

#define ROOM_KEPT 16

/* Returns a room of any contents, 16-byte aligned. Aborts if memory is out. */
void *room_take(size_t size);
/* Gives a room back, in the thread that took it or another. NULL is allowed. */
void room_give(void *room);

#endif
