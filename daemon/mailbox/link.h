/* link.h: seqd's end of the sessions with nodes: binds a stream to a node name, packs and unpacks.
 * Nodes and the meaning of reports are node.c's and jobs.c's business. Loop thread only. */
#ifndef SEQD_DAEMON_MAILBOX_LINK_H
#define SEQD_DAEMON_MAILBOX_LINK_H

#include "api/core/loop.h"
#include "api/wire.h"

struct links;

struct link_calls {
    /* A node said HELLO (m->node, slots, attempts). A second session of the same instance replaces
     * the first, whose down is called before. m is borrowed for the call. */
    void (*up)(void *arg, const char *node, const struct msg *hello);
    /* silent_ms: since its last message. */
    void (*down)(void *arg, const char *node, const char *why, int64_t silent_ms);
    /* Any later message of that node. */
    void (*message)(void *arg, const char *node, const struct msg *m);
    /* Before WELCOME: NULL, or why this node cannot join now. No callback: all can. */
    const char *(*admit)(void *arg, const struct msg *hello);
};

/* Decides which nodes may come over a network. */
struct link_gate {
    /* Whether the holder of this certificate, which is this seqd's and whose time is now, may have
     * a session. */
    int (*holder)(void *arg, const struct pki_node *n, struct err *e);
    /* A JOIN: link_answer follows, in the call or later. holder NULL: a stranger with a token. */
    void (*join)(void *arg, int64_t session, const struct pki_node *holder, const struct msg *m);
};

struct link_options {
    const char *address;  /* "unix:/dir/sock", "insecure:10.0.0.1:port"; over TLS "10.0.0.1:port" */
    const struct pki *ca; /* NULL: sessions are plain */
    const struct link_gate *gate; /* with ca */
    void *gate_arg;
};

/* WELCOME is sent before up is called; link_send works inside every call but down. link_destroy
 * calls nothing; not inside a call.
 *
 * Over TLS the name in HELLO is the certificate's. The session ends when the certificate expires,
 * and a node renews it long before (worker/agent/member.h).
 *
 * A name that is up is replaced by its own instance alone: another one is refused until the name is
 * down. A node of which three heartbeats are missing is down: gRPC answers for a process whose loop
 * has stopped. Silence is counted in turns of this loop, so that a loop that is late does not take
 * its own delay for silence of the nodes. */
struct links *link_create(struct loop *l, const struct link_options *o,
                          const struct link_calls *calls, void *arg, struct err *e);
void link_destroy(struct links *k);
/* Sets how often nodes are told to send a heartbeat; WIRE_HEARTBEAT_MS unless a test says
 * otherwise. */
void link_set_heartbeat(struct links *k, int64_t ms);
/* -1 when the node has no session, one that does not drain (it is closed then), or one that speaks
 * a version of the protocol without such messages (it stays; node.h, abi): the caller keeps the
 * truth in its tables and sends again at up. */
int link_send(struct links *k, const char *node, const struct msg *m);
/* The ABI of that node's session; 0: it has none. */
uint32_t link_abi(struct links *k, const char *node);
/* Answers a JOIN with JOINED, or REFUSED for the node m->node. The session may be gone. */
void link_answer(struct links *k, int64_t session, const struct msg *m);
void link_close(struct links *k, const char *node,
                const char *why);     /* its session, if it has one */
int link_port(const struct links *k); /* the one chosen for port 0 */

#endif
