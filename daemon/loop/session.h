/* session.h: messages to nodes: about attempts that begin and stop, about attempts that nodes
 * should have when they come (back), and about data that seqd has on disk. Every message is
 * idempotent at the node and follows from committed events. Loop thread. */
#ifndef SEQD_DAEMON_LOOP_SESSION_H
#define SEQD_DAEMON_LOOP_SESSION_H

#include "daemon/mailbox/outbox.h"
#include "daemon/state/attempt.h"
#include "daemon/state/cluster.h"
#include "daemon/store/logs.h"

struct session { /* one for all nodes */
    struct cluster *cluster;
    struct logs *logs;
    const unsigned char *secret; /* SECRET_SIZE bytes: the keys of attempts follow from it */
    const char *uploads;         /* see struct control_options */
    struct outbox out;
};

/* ---- of one attempt -------------------------------------------------------------------------- */

void session_assign(const struct session *s, const struct job *j); /* sends ASSIGN to every part */
/* Sends STOP to every part that has not ended. */
void session_stop(const struct session *s, const struct job *j, int64_t now_ms);
/* Sends SAVE for a stopping job that is to save, if the agents of its nodes know how; else
 * STOP. */
void session_end(const struct session *s, struct job *j, int64_t now_ms);
/* Sends all blobs to part p, or to every part if p is NULL. Sends only if all blobs are here and
 * the ring is not open yet. */
void session_blobs(const struct session *s, const struct job *j, const struct attempt_part *p);
/* Acknowledges that records up to seq are on disk. */
void session_ack(const struct session *s, const char *node, int64_t job, int64_t epoch,
                 int64_t seq);
/* Acknowledges log bytes of an attempt that does not run there: they are not wanted. */
void session_ack_stale_log(const struct session *s, const char *node, const struct msg *m);
/* Tells the node that it may let go of the attempt's spool. */
void session_forget(const struct session *s, const char *node, int64_t job, int64_t epoch);

/* ---- of all ---------------------------------------------------------------------------------- */

void session_expect(const struct session *s, const char *node); /* sends EXPECT */
void session_expect_all(const struct session *s);
/* Calls for a node that comes up: `attach` before its EXPECT, and `resume` after it, tell it the
 * state of its attempts. `note_stale` notes attempts that run there although they are over for
 * seqd. */
/* Notes the attempts of its HELLO that are over: it was away when they ended, or seqd was. */
void session_note_past(const struct session *s, struct node *n, const struct msg *hello);
void session_note_stale(const struct session *s, struct node *n, const struct msg *hello);
/* Tells whether a HELLO lists that attempt. */
bool session_listed(const struct msg *hello, int64_t job, int64_t epoch);
void session_attach(const struct session *s, const char *node, const struct msg *hello);
void session_resume(const struct session *s, const char *node, int64_t now_ms);

logs_durable session_ack_log;                   /* arg: struct session */
void session_ask_logs(const struct session *s); /* asks again for bytes that were not kept */

#endif
