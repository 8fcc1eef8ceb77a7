/* room.h: rooms for tables that every step needs and that are larger than a stack frame may be (64
 * KiB). A thread keeps the rooms that it has given back, by size, until it ends: a call that is
 * made in every step allocates only the first time. A thread keeps at most ROOM_KEPT rooms. */
#ifndef SEQD_CORE_ROOM_H
#define SEQD_CORE_ROOM_H

#include <stddef.h>

#define ROOM_KEPT 16

/* Returns a room of any contents, 16-byte aligned. Aborts if memory is out. */
void *room_take(size_t size);
/* Gives a room back, in the thread that took it or another. NULL is allowed. */
void room_give(void *room);

#endif
