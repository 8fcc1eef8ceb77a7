/* session.h: sends messages to nodes. They are about attempts that begin and stop, about the
 * attempts that a node should have when it connects, and about data that seqd has on disk. Every
 * message is idempotent at the node and is derived from committed events. All functions are called
 * on the loop thread. */
#ifndef SEQD_DAEMON_LOOP_SESSION_H
#define SEQD_DAEMON_LOOP_SESSION_H

#include "daemon/mailbox/outbox.h"
#include "daemon/state/attempt.h"
#include "daemon/state/cluster.h"
#include "daemon/store/logs.h"

struct session { /* one struct for the sessions of all nodes */
    struct cluster *cluster;
    struct logs *logs;
    /* SECRET_SIZE bytes; the keys of attempts are derived from them */
    const unsigned char *secret;
    const char *uploads; /* see struct control_options */
    struct outbox out;
};

/* ---- of one attempt -------------------------------------------------------------------------- */

void session_assign(const struct session *s, const struct job *j); /* sends ASSIGN to every part */
/* Sends STOP to every part that has not ended. */
void session_stop(const struct session *s, const struct job *j, int64_t now_ms);
/* Ends the attempt of a stopping job. Sends SAVE if the job must save and the agents of its nodes
 * know that message. Otherwise sends STOP. */
void session_end(const struct session *s, struct job *j, int64_t now_ms);
/* Sends all blobs to part p, or to every part if p is NULL. Does nothing if a blob has not
 * arrived, or if all ranks have joined the ring already. */
void session_blobs(const struct session *s, const struct job *j, const struct attempt_part *p);
/* Acknowledges that the records up to seq are on disk. */
void session_ack(const struct session *s, const char *node, int64_t job, int64_t epoch,
                 int64_t seq);
/* Acknowledges log bytes of an attempt that does not run on that node, so that the node stops
 * sending them. */
void session_ack_stale_log(const struct session *s, const char *node, const struct msg *m);
/* Tells the node that it may remove the attempt's spool. */
void session_forget(const struct session *s, const char *node, int64_t job, int64_t epoch);

/* ---- of all ---------------------------------------------------------------------------------- */

void session_expect(const struct session *s, const char *node); /* sends EXPECT */
void session_expect_all(const struct session *s);
/* Calls for a node that connects. session_attach is called before the node's EXPECT and
 * session_resume after it. Both tell the node the state of its attempts. session_note_stale notes
 * the attempts that still run on the node although seqd counts them as ended. */
/* Notes the attempts in the node's HELLO that ended while the node was away or seqd was down. */
void session_note_past(const struct session *s, struct node *n, const struct msg *hello);
void session_note_stale(const struct session *s, struct node *n, const struct msg *hello);
/* Tells whether hello lists that attempt. */
bool session_listed(const struct msg *hello, int64_t job, int64_t epoch);
void session_attach(const struct session *s, const char *node, const struct msg *hello);
void session_resume(const struct session *s, const char *node, int64_t now_ms);

logs_durable session_ack_log;                   /* arg is a struct session */
void session_ask_logs(const struct session *s); /* asks again for log bytes that were not kept */

#endif
