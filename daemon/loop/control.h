/* control.h: the acting half of seqd: jobs, nodes and the store joined on the loop thread.
 *
 *   event -> job_fold (memory) -> row joins the open group -> COMMIT -> messages to nodes, replies
 *
 * Nothing leaves seqd before the commit it follows from. A message follows from the committed
 * event alone, is idempotent at the node, and is sent again after a reconnect: so a crash between
 * commit and message loses nothing. A restarted seqd replays, waits for its nodes' HELLO and
 * adopts what runs there (control_link.c). An attempt whose node is not back after lost_ms is away.
 *
 * control.c and control_link.c alone act, on attempts by attempts.c. They ask the others, and none
 * of these calls them:
 *   job_fold.c attempt.c spooled.c prepared.c   folds and verdicts: a job, its attempt, a report
 *   cluster.c node.c quarantine.c gpus.c   the nodes and GPUs, and the jobs they are fit for
 *   pass.c blame.c                         which job begins where; the blame for a failure
 *   hold.c wall.c cordon.c                 attempts that must save and stop: time limits, drains
 *   commit.c replay.c                      events into the store, and out of it after a restart
 *   order.c                                clients' orders about jobs and nodes that exist
 *   retain.c removal.c sweep.c             data that must stay; data that goes, how and when
 *   session.c ask.c                        messages to nodes, and questions to them */
#ifndef SEQD_DAEMON_LOOP_CONTROL_H
#define SEQD_DAEMON_LOOP_CONTROL_H

#include "api/core/loop.h"
#include "daemon/loop/ask.h"
#include "daemon/loop/commit.h"
#include "daemon/loop/removal.h"
#include "daemon/mailbox/link.h"
#include "daemon/state/retain.h"
#include "daemon/store/logs.h"
#include "daemon/store/store.h"

#define CONTROL_SAVE_GRACE_MS ((int64_t)600 * 1000)

struct control;

struct control_options {
    struct loop *loop;
    struct store *store;
    struct logs *logs;
    const unsigned char
        *secret; /* SECRET_SIZE bytes, borrowed: the keys of attempts follow from it */
    /* Sends to a node; -1 when it cannot, as without a session. It is link_send in seqd, a
     * recorder in tests. */
    int (*send)(void *arg, const char *node, const struct msg *m);
    void *send_arg;
    /* UTC milliseconds; NULL: the machine's clock. */
    int64_t (*utc_ms)(void);
    /* This job has a new commit: a cue for its followers. */
    void (*changed)(void *arg, int64_t job);
    /* Bytes of the job's log have come; may be NULL. */
    void (*logged)(void *arg, int64_t job);
    void *changed_arg;
    const char *uploads; /* directory of complete uploads, for nodes too; NULL: none are taken */
    const struct retain_policy *policy; /* NULL: no data has a time to live; copied */
    int64_t save_grace_ms;              /* time to save on request; 0: CONTROL_SAVE_GRACE_MS */
    int64_t lost_ms;                    /* silence until a node is lost; 0: NODE_LOST_MS */
};

/* Replays the store. It fails as replay does (replay.h). */
struct control *control_create(const struct control_options *o, struct err *e);
void control_destroy(struct control *c);
/* Sets the reason that no node is up. It holds until a node is up. */
void control_no_node(struct control *c, const char *why);
void control_pause(struct control *c); /* starts no more attempts: seqd is stopping */

/* The functions that link.h calls (control_link.c): pass these with the control as arg. */
extern const struct link_calls control_link_calls;

const struct cluster *control_cluster(const struct control *c);
/* Returns the fold of a job, to act on. Clients are shown the store's state instead. NULL: there
 * is no such job, or its end is committed. */
const struct job *control_job(const struct control *c, int64_t id);
const struct nodes *control_nodes(const struct control *c);
struct users *control_users(struct control *c);
const struct disk_tally *control_tally(const struct control *c);
/* Returns the slots held on a node: by jobs, and by ranks of attempts that are over for seqd but
 * not yet at the node. */
int32_t control_reserved(const struct control *c, const char *node);
int control_n_live(const struct control *c);
int64_t control_passes(const struct control *c);  /* scheduling passes so far */
int64_t control_busy_ms(const struct control *c); /* time that the loop was busy, since the start */
struct commits *control_commits(struct control *c);
struct store *control_store(struct control *c);
struct logs *control_logs(struct control *c);
struct removals *control_removals(struct control *c);
int64_t control_now_ms(const struct control *c); /* the loop's clock */

/* Asks a node, or any (ask.h). */
void control_ask(struct control *c, const char *node, const struct msg *m, ask_answer *answer,
                 void *arg);

#endif
