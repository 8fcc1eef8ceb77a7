/* session.h: keeps this node's session with seqd, either over TLS with the node's certificate
 * (member.h), or without TLS. After a session has broken, it opens a new session. A session
 * begins with HELLO, and is up once seqd sends WELCOME. seqd may be one version older. It then
 * refuses the ABI of HELLO and names the previous ABI, which the next session uses. api/wire.h
 * has the rules. The functions are called on the loop thread. tested:
 * tests/agent/test_agent_life.c, tests/agent/test_agent_member.c */
#ifndef SEQD_AGENT_SESSION_H
#define SEQD_AGENT_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/wire.h"

struct session_options {    /* options, whose members are borrowed until session_destroy */
    const char *connect;    /* seqd's address, in the form that rpc_dial or rpc_dial_tls accepts */
    const char *node;       /* name of this node */
    const char *state;      /* state directory, which must exist when session_dial is called */
    const char *token_file; /* file with a token to join over TLS; NULL if the options name no
                             * such file */
    const char *key_file;   /* file of --join-key; NULL if the options name none */
};
struct session_calls {
    void (*opened)(void *arg); /* called to send HELLO now, with session_abi */
    void (*up)(void *arg, const struct msg *welcome);
    /* Called with each message except WELCOME, REFUSED and JOINED. m is borrowed for the call.
     * Returns false if seqd never sends such a message; then the session is closed. */
    bool (*message)(void *arg, const struct msg *m);
    void (*down)(void *arg); /* called after each `opened`, even if `up` was not called */
};

struct agent_session;
/* Creates a session that does not connect yet; no message can be sent before session_dial. calls
 * is borrowed. */
struct agent_session *session_create(struct loop *l, const struct session_options *o,
                                     const struct session_calls *calls, void *arg);
/* Begins to connect, with TLS as soon as the node has a certificate. Fails with ERR_INVALID if
 * the options name a token file although the address is one for which no certificate is used.
 * Also fails as rpc_dial and member_open do. */
int session_dial(struct agent_session *s, struct err *e);
/* Destroys the session. No callback is called afterwards. Do not call it in a callback. NULL is
 * allowed. */
void session_destroy(struct agent_session *s);

/* Queues a copy of m. Returns -1 if no session is up, if the ABI of the session has no such
 * message, or if the session's queue is full. If the queue is full, it also closes the
 * session. Data that must not be lost are on disk, and are sent again in the next session. */
int session_send(struct agent_session *s, const struct msg *m);
/* Returns true if the session is up and has few bytes queued. */
bool session_can_send(const struct agent_session *s);
bool session_is_open(const struct agent_session *s); /* returns true if a session is open, even
                                                      * if seqd has not answered HELLO yet */
bool session_is_up(const struct agent_session *s);   /* returns true if WELCOME was received in
                                                      * this session */
/* returns the ABI of this session's HELLO; if no session is open, that of the next HELLO */
uint32_t session_abi(const struct agent_session *s);
int64_t session_number(const struct agent_session *s); /* returns the number of sessions that
                                                        * were opened so far */

#endif
