/* link.h: seqd's end of the sessions with nodes: binds a stream to a node name, packs and unpacks.
 * What a node is and what a report means is node.c's and jobs.c's business. Loop thread only. */
#ifndef SEQD_DAEMON_LINK_H
#define SEQD_DAEMON_LINK_H

#include "api/core/loop.h"
#include "api/wire.h"

struct link;

struct link_calls {
    /* A node said HELLO (m->node, slots, attempts). A second session of the same name replaces the
     * first, whose down is called before. m is borrowed for the call. */
    void (*up)(void *arg, const char *node, const struct msg *hello);
    void (*down)(void *arg, const char *node, const char *why);
    /* Any later message of that node. */
    void (*message)(void *arg, const char *node, const struct msg *m);
};

/* address: "unix:/dir/sock" or "127.0.0.1:port". WELCOME is sent before up is called; link_send
 * works inside every call but down. link_destroy calls nothing; not inside a call. */
struct link *link_create(struct loop *l, const char *address, const struct link_calls *calls,
                         void *arg, struct err *e);
void link_destroy(struct link *k);
/* -1 when the node has no session, or one that does not drain (it is closed then): the caller keeps
 * the truth in its tables and sends again at up. */
int link_send(struct link *k, const char *node, const struct msg *m);

#endif
