/* outflow.h: packets that wait for the peer of a SOCK_SEQPACKET socket to read. A packet is sent
 * at once if the socket has room and no packet waits. Otherwise its copy waits, and is sent when
 * the socket has room. So the sender never blocks, and no packet is lost while the socket is
 * open. */
#ifndef SEQD_CORE_OUTFLOW_H
#define SEQD_CORE_OUTFLOW_H

#include <stddef.h>
#include "api/core/loop.h"
#include "api/core/rank.h"

struct outflow {
    struct loop *loop;
    int fd; /* a duplicate of the socket's descriptor, which can be watched beside the socket; -1 if
             * the outflow is closed */
    struct loop_fd *on_room;
    struct outflow_packet *first, *last;
    size_t size, limit; /* bytes of the packets that wait, and their largest number */
};

#define OUTFLOW_NONE ((struct outflow){.fd = -1})

/* Opens the outflow of a socket, which the caller keeps. Returns -1 with errno if no descriptor is
 * left. */
int outflow_open(struct outflow *o, struct loop *l, int sock, size_t limit);
/* Drops the packets that wait. A closed outflow is allowed. */
void outflow_close(struct outflow *o);
/* Sends head and payload as one packet, now or later. Sets head.abi and head.size. Returns -1 if
 * the outflow is closed, if the peer has gone, or if more than `limit` bytes would wait. */
int outflow_send(struct outflow *o, struct rank_msg head, const void *payload, size_t size);
/* Sends the packets that wait, for a process that will end. Blocks until they are sent, the peer
 * has gone, or `wait_ms` are over. */
void outflow_finish(struct outflow *o, int64_t wait_ms);

#endif
