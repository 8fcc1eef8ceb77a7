/* outbox.h: the function with which modules send messages to a node. */
#ifndef SEQD_DAEMON_MAILBOX_OUTBOX_H
#define SEQD_DAEMON_MAILBOX_OUTBOX_H

#include "api/wire.h"

struct outbox {
    /* Returns -1 if m is not sent, for example if the node has no session. In seqd it is
     * link_send; in tests it is a function that records its arguments. */
    int (*send)(void *arg, const char *node, const struct msg *m);
    void *arg;
};

static inline int outbox_send(const struct outbox *o, const char *node, const struct msg *m)
{
    return o->send(o->arg, node, m);
}

#endif
