/* conns.h: the open connections of the HTTP front and the deadline each one has to meet. A timeout
 * of inactivity does not stop a client that drips a byte a second; an absolute deadline does.
 * Any thread. */
#ifndef SEQD_DAEMON_CONNS_H
#define SEQD_DAEMON_CONNS_H

#include <stdbool.h>
#include <stdint.h>
#include "daemon/target.h"

struct conn { /* from accept to close; target and target_too_long are the HTTP thread's */
    struct conn *next, **at;
    int fd;
    int64_t deadline_ms; /* when the client must have finished what it is doing; 0: not its turn */
    char target[TARGET_SIZE];
    bool target_too_long;
};

struct conns;
struct conns *conns_create(void);
void conns_destroy(struct conns *t); /* of connections that are still there, too */
struct conn *conns_add(struct conns *t, int fd, int64_t in_ms); /* NULL: out of memory */
void conns_remove(struct conns *t, struct conn *c);
void conns_deadline(struct conns *t, struct conn *c, int64_t in_ms); /* 0: none */
/* Shuts down all whose deadline has passed. */
void conns_sweep(struct conns *t);

#endif
