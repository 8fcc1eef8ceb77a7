/* link.h: seqd's end of the sessions with nodes: binds a stream to a node name, packs and unpacks.
 * control_link.c acts on the messages, and session.c writes those about attempts. api/wire.h
 * defines each message and its versions. The node's end is session.c and agent.c of worker/agent.
 * Loop thread only.
 *
 * A session never holds the only copy of anything. seqd sends what follows from committed events,
 * and the node sends records and log bytes from its disk, again until they are acknowledged. A
 * session may therefore break between any two messages.
 *
 * STARTUP
 * (1) seqw dials, and dials again whenever there is no session. Over TLS it needs a certificate:
 * one JOIN with a token over the method Join, answered by JOINED or REFUSED, is a stream of its
 * own, and the node closes it (worker/agent/member.h, join.h).
 *
 * (2) seqw sends HELLO. It names every attempt in its state directory. Any message before it
 * closes the session.
 *
 * (3) seqd checks, in this order: the certificate names the node of HELLO and is in seqd's tables
 * (link_gate.holder); the node speaks the ABI; a session of that name is of the same instance;
 * control_link.c has room for the node (admit). It answers REFUSED to a node that fails one of
 * them. The node is to close the session; else seqd closes it at the next message, or after
 * silence. The node dials again after retry_ms, or at once where REFUSED names an older ABI that
 * both speak.
 *
 * (4) seqd ends an older session of the same instance (its down is called), sends WELCOME, and
 * calls up. A node that could speak a newer ABI than its HELLO said closes the session at WELCOME,
 * and begins again at (1) with that ABI.
 *
 * (5) Inside up, control_link.c gives up the parts of another instance of that name, and sends for
 * each attempt of the node: ACK for the records and log bytes that seqd has on disk; ASSIGN, if
 * the job is starting and HELLO does not name the attempt, because the first ASSIGN may be lost.
 * EXPECT follows with the list of all its attempts: the node stops an attempt that is not in it,
 * and answers a listed one that it does not have with a final REPORT (GANG_UNKNOWN). BLOBS, and
 * SAVE or STOP, are sent again if they still apply. REMOVE follows once the store has been read.
 *
 * (6) At WELCOME the node starts its heartbeat, relays records and logs from the last ACK on, and
 * sends PROFILE if it has measured itself, LEAVING if it knows when it ends, and JOIN if half of
 * its certificate's life is over.
 *
 * OPERATION
 * An attempt: once its event is committed seqd sends ASSIGN to the node of every part. The node
 * makes its start record durable and starts seqgang. If that fails, it sends the failure and a
 * final REPORT (GANG_LOST). Each rank publishes a blob in a REPORT; when seqd has all of them,
 * every part gets all in BLOBS. REPORT and LOG come while the gang runs. seqd sends ACK for a
 * record when its event is committed, and for log bytes when their file is synced. SAVE or STOP
 * asks for the end. The final REPORT is the last of the attempt, after all its log bytes. seqd
 * commits the end of all parts, then sends FORGET, and the node removes the attempt's directory.
 *
 * The node sends HEARTBEAT every heartbeat_ms with its GPUs and its disk. seqd sends EXPECT every
 * 30 s, which mends whatever a lost message left.
 *
 * A question (DESCRIBE, FETCH, TRACE) has one answer, which carries its number. REMOVE is answered
 * by REMOVED. Over TLS, JOIN without a token is answered by JOINED: the node then closes the
 * session and begins again at (1) with the new certificate.
 *
 * seqd drops and counts a message about an attempt or a question that was never the node's. A
 * message that cannot be unpacked, that only seqd sends, or that the session's ABI does not have
 * closes the session.
 *
 * TEARDOWN
 * A session ends when the stream breaks; when the node has been silent for three heartbeats and a
 * half; when its certificate expires or is revoked (link_close); when a newer session replaces it;
 * or when its queue is full, as of a peer that does not read. No message announces it.
 *
 * seqd calls down. control_link.c answers the open questions of that node with an error, leaves it
 * out of placement, and keeps its attempts. After --node-lost (10 s, counted from its last
 * message) those that run are away, and a part that was to stop counts as lost. When a HELLO names
 * the attempt again, it is back.
 *
 * The gangs run on at the node. seqw dials again, and the next session begins at (1). With no
 * session for --orphan-ms it stops them and ends.
 *
 * Two messages announce that an agent ends. LEAVING at SIGTERM: seqd sends SAVE for the node's
 * jobs and places nothing there; the agent ends when seqd has let go of every attempt (FORGET), or
 * stops them at the end of its grace. LEAVING with a time, as of an allocation, asks for the same
 * before that time. QUIT, of a seqd --dev that ends: the agent stops every gang and ends when all
 * are over; it gives seqd 2 s to send FORGET. Any other seqd ends without a message
 * (link_destroy), and its nodes dial until there is one again. */
#ifndef SEQD_DAEMON_MAILBOX_LINK_H
#define SEQD_DAEMON_MAILBOX_LINK_H

#include "api/core/loop.h"
#include "api/wire.h"

struct links;

struct link_calls {
    /* Called when a node has said HELLO (hello->node, slots, attempts). A second session of the
     * same instance replaces the first, whose down is called before. hello is borrowed for the
     * call. */
    void (*up)(void *arg, const char *node, const struct msg *hello);
    /* Called when a session has ended. silent_ms: time since its last message. */
    void (*down)(void *arg, const char *node, const char *why, int64_t silent_ms);
    /* Called for each message after HELLO, but not for JOIN. */
    void (*message)(void *arg, const char *node, const struct msg *m);
    /* Called before WELCOME: returns NULL, or why this node cannot join now. Without this callback
     * all can. */
    const char *(*admit)(void *arg, const struct msg *hello);
};

/* Decides which nodes may come over a network. */
struct link_gate {
    /* Returns 0 if the holder of this certificate may have a session, or -1 with e. seqd's own CA
     * made the certificate, and the certificate is valid now. */
    int (*holder)(void *arg, const struct pki_node *n, struct err *e);
    /* Called for each JOIN; link_answer follows, in the call or later. holder NULL: a stranger
     * with a token. */
    void (*join)(void *arg, int64_t session, const struct pki_node *holder, const struct msg *m);
};

struct link_options {
    const char *address;  /* "unix:/dir/sock", "insecure:10.0.0.1:port"; over TLS "10.0.0.1:port" */
    const struct pki *ca; /* NULL: sessions are plain */
    const struct link_gate *gate; /* set together with ca */
    void *gate_arg;
};

/* link_send works inside every callback but down. link_destroy calls none, and must not be called
 * inside one.
 *
 * Silence is counted in turns of this loop, so that a loop that is late does not take its own delay
 * for silence of the nodes. Heartbeats are needed beside the keepalive of gRPC, which answers for a
 * process whose loop has stopped. */
struct links *link_create(struct loop *l, const struct link_options *o,
                          const struct link_calls *calls, void *arg, struct err *e);
void link_destroy(struct links *k);
/* Sets how often nodes are told to send a heartbeat; WIRE_HEARTBEAT_MS unless a test says
 * otherwise. */
void link_set_heartbeat(struct links *k, int64_t ms);
/* Sends m. -1: the node has no session; or its session does not drain, and is closed; or its
 * version of the protocol lacks such messages or a field of an ASSIGN's job, and the session stays
 * (node.h, abi). The caller keeps the truth in its tables and sends again at up. */
int link_send(struct links *k, const char *node, const struct msg *m);
/* Returns the ABI of the node's session; 0: it has none. */
uint32_t link_abi(struct links *k, const char *node);
/* Answers a JOIN with JOINED, or REFUSED for the node m->node. The session may be gone. */
void link_answer(struct links *k, int64_t session, const struct msg *m);
void link_close(struct links *k, const char *node,
                const char *why);     /* closes the node's session, if any */
int link_port(const struct links *k); /* port in use, also for an address with port 0 */

#endif
