/* room.h: rooms are buffers on the heap for tables that every step needs and that are larger than
 * a stack frame may be (64 KiB). A thread keeps the rooms that it has given back, at most
 * ROOM_KEPT, until it ends. A later room_take of the same size gets one of them, so that a call
 * that is made in every step allocates only the first time. */
#ifndef SEQD_CORE_ROOM_H
#define SEQD_CORE_ROOM_H

#include <stddef.h>

#define ROOM_KEPT 16

/* Returns an uninitialized room of `size` bytes, 16-byte aligned. Aborts if memory is out. */
void *room_take(size_t size);
/* Gives a room back, in the thread that took it or another. NULL is allowed. */
void room_give(void *room);

#endif
