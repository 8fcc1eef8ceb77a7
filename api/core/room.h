/* room.h: a room is a buffer on the heap for a table that every step needs and that is larger than
 * a stack frame may be (64 KiB). A thread keeps at most ROOM_KEPT of the rooms that were given
 * back in it, until the thread ends. A later room_take of the same size gets a kept room. So a
 * function that is called in every step allocates memory only in its first call. */
#ifndef SEQD_CORE_ROOM_H
#define SEQD_CORE_ROOM_H

#include <stddef.h>

#define ROOM_KEPT 16

/* Returns an uninitialized room of `size` bytes, 16-byte aligned. Aborts if memory is out. */
void *room_take(size_t size);
/* Gives a room back, in the thread that took it or in another one. NULL is allowed. */
void room_give(void *room);

#endif
