/* session.h: keeps this node's session with seqd, over TLS with the node's certificate (member.h),
 * or plain. A session that breaks is dialled again. It begins with HELLO, and is up once seqd
 * sends WELCOME. seqd may be one version older: if it refuses the ABI of HELLO and names the
 * previous ABI, the next session uses that one. api/wire.h has the rules. Loop thread.
 * tested: tests/agent/test_agent_life.c, tests/agent/test_agent_member.c */
#ifndef SEQD_AGENT_SESSION_H
#define SEQD_AGENT_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/wire.h"

struct session_options {    /* members are borrowed until session_destroy */
    const char *connect;    /* seqd's address, as for rpc_dial or rpc_dial_tls */
    const char *node;       /* name of this node */
    const char *state;      /* directory, which exists when session_dial is called */
    const char *token_file; /* file of a token to join over TLS; NULL: none */
};
struct session_calls {
    void (*opened)(void *arg); /* the callee sends HELLO now, with session_abi */
    void (*up)(void *arg, const struct msg *welcome);
    /* Takes a message, except WELCOME, REFUSED and JOINED; m is borrowed for the call. Returns
     * false if seqd never sends such a message: then the session is closed. */
    bool (*message)(void *arg, const struct msg *m);
    void (*down)(void *arg); /* called after each `opened`, even if `up` was not called */
};

struct agent_session;
/* Creates a session that does not dial yet: until session_dial no message can be sent. calls:
 * borrowed. */
struct agent_session *session_create(struct loop *l, const struct session_options *o,
                                     const struct session_calls *calls, void *arg);
/* Begins sessions, over TLS as soon as the node has a certificate. fails: as rpc_dial and
 * member_open; ERR_INVALID for a token file with an address that needs no certificate. */
int session_dial(struct agent_session *s, struct err *e);
/* Destroys the session. No callback follows. Do not call it in a callback; NULL allowed. */
void session_destroy(struct agent_session *s);

/* Queues a copy. -1: there is no session, its ABI has no such message, or its queue is full. A
 * full queue closes the session. Data that must arrive are on disk, and are sent again in the next
 * session. */
int session_send(struct agent_session *s, const struct msg *m);
/* Tells whether the session is up and has little queued. */
bool session_can_send(const struct agent_session *s);
bool session_is_open(const struct agent_session *s);   /* seqd may not have answered HELLO yet */
bool session_is_up(const struct agent_session *s);     /* WELCOME was received */
uint32_t session_abi(const struct agent_session *s);   /* ABI of its HELLO, or of the next */
int64_t session_number(const struct agent_session *s); /* sessions opened so far */

#endif
