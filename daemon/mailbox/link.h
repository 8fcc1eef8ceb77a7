/* link.h: seqd's end of the sessions with nodes. It binds a stream to the name of a node, and
 * packs and unpacks messages. control_link.c acts on the messages, and session.c writes the
 * messages about attempts. api/wire.h defines each message and its versions. The node's end is
 * session.c and agent.c of worker/agent. All functions are called on the loop thread.
 *
 * A session never holds the only copy of anything. seqd sends messages that are derived from
 * committed events. The node sends records and log bytes from its disk, and repeats them until
 * they are acknowledged. A session may therefore break between any two messages.
 *
 * STARTUP (1) seqw dials, and dials again whenever there is no session. Over TLS it needs a
 * certificate. To get one, it opens a separate stream with the method Join and sends one JOIN with
 * a token, which is answered by JOINED or REFUSED; the node closes that stream
 * (worker/agent/member.h, join.h). Before JOIN, a node with a join key sends one PROVE, which is
 * answered by PROOF or REFUSED.
 *
 * (2) seqw sends HELLO, which names every attempt in its state directory. Any message before HELLO
 * closes the session.
 *
 * (3) seqd makes these checks in this order: the certificate names the node of HELLO and is in
 * seqd's tables (link_gate.holder); the node speaks the ABI; a session of that name is of the same
 * instance; control_link.c has room for the node (admit). If a check fails, seqd answers REFUSED.
 * The node should then close the session. If it does not, seqd closes the session at the next
 * message or after silence. The node dials again after retry_ms. If REFUSED names an older ABI
 * that the node also speaks, the node dials at once.
 *
 * (4) seqd ends an older session of the same instance and calls down for it. It then sends WELCOME
 * and calls up. A node may speak a newer ABI than its HELLO said. If WELCOME shows that seqd
 * speaks that newer ABI too, the node closes the session and begins again at (1) with the newer
 * ABI.
 *
 * (5) Inside up, control_link.c gives up the parts of another instance of that name. For each
 * attempt of the node it sends ACK for the records and log bytes that seqd has on disk. It also
 * sends ASSIGN if the job is starting and HELLO does not name the attempt, because the first
 * ASSIGN may be lost. EXPECT follows with the list of all the node's attempts. The node stops an
 * attempt that is not in the list. If the list has an attempt that the node does not have, the
 * node sends a final REPORT (GANG_UNKNOWN) for it. BLOBS, and SAVE or STOP, are sent again if they
 * still apply. REMOVE follows once the store has been read.
 *
 * (6) At WELCOME the node starts its heartbeat, and relays the records and logs that follow the
 * last ACK. It sends PROFILE if it has measured itself, LEAVING if it knows when it ends, and JOIN
 * if half of its certificate's life is over.
 *
 * OPERATION For an attempt, seqd sends ASSIGN to the node of every part once the event is
 * committed. The node makes its start record durable and starts seqgang. If that fails, it sends
 * the failure and a final REPORT (GANG_LOST). Each rank publishes a blob in a REPORT. When seqd
 * has the blobs of all ranks, it sends all of them to every part in BLOBS. REPORT and LOG come
 * while the gang runs. seqd sends ACK for a record when the record's event is committed, and for
 * log bytes when their file is synced. seqd sends SAVE or STOP to end the gang. The final REPORT
 * is the last message about the attempt and follows all its log bytes. seqd commits the end of all
 * parts, then sends FORGET, and the node removes the attempt's directory.
 *
 * The node sends HEARTBEAT every heartbeat_ms with its GPUs and its disk. seqd sends EXPECT every
 * 30 s, which corrects any difference that a lost message has caused.
 *
 * A question (DESCRIBE, FETCH, TRACE) has one answer, which carries the question's number. REMOVE
 * is answered by REMOVED. Over TLS, JOIN without a token is answered by JOINED, and the node then
 * closes the session and begins again at (1) with the new certificate.
 *
 * seqd drops and counts a message about an attempt or a question that was never the node's. Such a
 * message does not close the session. A message closes the session if it cannot be unpacked, if
 * only seqd may send it, or if the session's ABI does not have it.
 *
 * TEARDOWN A session ends when the stream breaks; when the node has been silent for three
 * heartbeats and a half; when its certificate expires or is revoked (link_close); when a newer
 * session replaces it; or when its queue is full because the peer does not read. No message
 * announces the end.
 *
 * seqd calls down. control_link.c answers the open questions of that node with an error, leaves it
 * out of placement, and keeps its attempts. After --node-lost (10 s, counted from the node's last
 * message) the attempts that run there are away, and a part that was to stop counts as lost. When
 * a HELLO names an attempt again, the attempt is no longer away.
 *
 * The gangs continue to run on the node. seqw dials again, and the next session begins at (1). If
 * seqw has no session for --orphan-ms, it stops the gangs and exits.
 *
 * Two messages announce that an agent ends. The agent sends LEAVING at SIGTERM. seqd then sends
 * SAVE for the node's jobs and places no job there. The agent exits when seqd has sent FORGET for
 * every attempt, or stops the attempts at the end of its grace period. A LEAVING that has a time,
 * such as the end of an allocation, asks seqd to do the same before that time. A seqd --dev that
 * ends sends QUIT. The agent then stops every gang, and exits when all gangs are over. It gives
 * seqd 2 s to send FORGET. Any other seqd ends without a message (link_destroy), and its nodes
 * dial until a seqd answers again. */
#ifndef SEQD_DAEMON_MAILBOX_LINK_H
#define SEQD_DAEMON_MAILBOX_LINK_H

#include "api/core/loop.h"
#include "api/join_key.h"
#include "api/wire.h"

struct links;

struct link_calls {
    /* Called when a node has sent HELLO. `hello` has the node, its slots and its attempts, and is
     * borrowed for the call. A second session of the same instance replaces the first session. In
     * that case down is called first, for the first session. */
    void (*up)(void *arg, const char *node, const struct msg *hello);
    /* Called when a session has ended. silent_ms is the time since its last message. */
    void (*down)(void *arg, const char *node, const char *why, int64_t silent_ms);
    /* Called for each message after HELLO, except for JOIN. */
    void (*message)(void *arg, const char *node, const struct msg *m);
    /* Called before WELCOME. Returns NULL, or the reason for which this node cannot join now. If
     * this callback is NULL, every node can join. */
    const char *(*admit)(void *arg, const struct msg *hello);
};

/* Decides which nodes may connect over a network. */
struct link_gate {
    /* Returns 0 if the holder of this certificate may have a session. Otherwise returns -1 and
     * sets *e. The caller has checked that seqd's own CA signed the certificate and that the
     * certificate is valid now. It is called at each HELLO. */
    int (*holder)(void *arg, const struct pki_node *n, struct err *e);
    /* Called for each JOIN. link_answer must be called for it, inside this call or later. `holder`
     * is NULL if the sender has only a token. */
    void (*join)(void *arg, int64_t session, const struct pki_node *holder, const struct msg *m);
    /* Writes the proof for the nonce of a PROVE. Returns -1 with *e if seqd has no join key. */
    int (*prove)(void *arg, const char *nonce, char proof[JOIN_NONCE_HEX], struct err *e);
};

struct link_options {
    /* "unix:/dir/sock" or "insecure:10.0.0.1:port"; over TLS "10.0.0.1:port" */
    const char *address;
    const struct pki *ca;         /* NULL if sessions are plain */
    const struct link_gate *gate; /* set together with ca */
    void *gate_arg;
};

/* link_send works inside every callback but down. link_destroy calls no callback, and must not be
 * called inside a callback.
 *
 * Silence is measured in turns of this loop. For that reason a loop that is late does not mistake
 * its own delay for the silence of a node. Heartbeats are needed in addition to the keepalive of
 * gRPC, which answers even for a process whose loop has stopped. */
struct links *link_create(struct loop *l, const struct link_options *o,
                          const struct link_calls *calls, void *arg, struct err *e);
void link_destroy(struct links *k);
/* Sets the interval at which nodes are told to send heartbeats. Without this call it is
 * WIRE_HEARTBEAT_MS. Only tests set a different interval. */
void link_set_heartbeat(struct links *k, int64_t ms);
/* Sends m. Returns -1 if the node has no session. If the node does not read its session, closes
 * the session and returns -1. If the node's version of the protocol (abi of node.h) lacks this
 * kind of message, or a field of the job in an ASSIGN, returns -1 and leaves the session open. The
 * caller keeps the state in its own tables and sends it again at up. */
int link_send(struct links *k, const char *node, const struct msg *m);
/* Returns the bytes that wait in the node's session, or 0 if the node has no session. */
size_t link_queued(struct links *k, const char *node);
/* Returns the ABI of the node's session, or 0 if the node has no session. */
uint32_t link_abi(struct links *k, const char *node);
/* Answers a JOIN with JOINED, or with REFUSED for the node m->node. The session may have ended
 * already. */
void link_answer(struct links *k, int64_t session, const struct msg *m);
void link_close(struct links *k, const char *node,
                const char *why);     /* closes the node's session, if it has one */
int link_port(const struct links *k); /* port in use, even if the address has port 0 */

#endif
