/* control_state.h: what control.c, pass.c, session.c, gpus.c and replay.c share. Private to
 * them. */
#ifndef SEQD_DAEMON_CONTROL_STATE_H
#define SEQD_DAEMON_CONTROL_STATE_H

#include "daemon/cluster.h"
#include "daemon/control.h"
#include "daemon/doc.h"
#include "daemon/json.h"

struct control {
    struct control_options o;
    struct cluster cluster;
    struct asks *asks;
    int64_t last_job, last_event;
    int64_t next_expect_ms, next_forget_ms;
    bool paused;
    int64_t n_passes;
    bool pass_wanted;
    int64_t next_pass_ms;         /* not before: a pass takes at most a fifth of the time */
    int64_t tick_due_ms, busy_ms; /* of the next tick; loop_busy_ms at the last one */
    bool logs_behind; /* bytes of a log were not kept: their nodes are asked for them again */
    struct loop_timer *tick, *sched;
    char doc[DOC_JOB_SIZE]; /* scratch of the loop thread */
    char spec_json[JSON_SPEC_SIZE];
    struct pass *pass;
};

void control_want_sched(struct control *c); /* a scheduling pass, soon */
void control_add_event(struct store_txn *t, const struct event *ev);
void control_forget(struct control *c, const char *node, int64_t job, int64_t epoch);
/* Its parts that have not ended are fenced: reports of them count no more. */
void control_lose_node(struct control *c, const char *node, const char *why);

/* session.c: what nodes say, and what they are told when they come back */
void session_expect_all(struct control *c);
logs_durable session_ack_log;             /* arg: struct control */
void session_ask_logs(struct control *c); /* for what was not kept */

/* replay.c: jobs from the store, before anything else happens */
int replay(struct control *c, struct err *e);

#endif
