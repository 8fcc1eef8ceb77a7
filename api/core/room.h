/* room.h: a room is a buffer on the heap. It is for a table that every step needs and that is too
 * large for a stack frame (64 KiB). A thread keeps up to ROOM_KEPT of the rooms that it gives
 * back, until the thread ends. A later room_take of the same size returns a kept room. So a
 * function that is called in every step allocates memory only in its first call. */
#ifndef SEQD_CORE_ROOM_H
#define SEQD_CORE_ROOM_H

#include <stddef.h>

#define ROOM_KEPT 16

/* Returns an uninitialized room of `size` bytes, 16-byte aligned. Aborts if memory is out. */
void *room_take(size_t size);
/* Gives a room back, in any thread. NULL is allowed. */
void room_give(void *room);

#endif
