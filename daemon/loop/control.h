/* control.h: the part of seqd that acts. It joins jobs, nodes and the store on the loop thread.
 *
 *   event -> job_fold (memory) -> row joins the open group -> COMMIT -> messages to nodes, replies
 *
 * No message or reply leaves seqd before the commit from which it follows. A message is derived
 * only from committed events, is idempotent at the node, and is sent again after a reconnect,
 * so a crash between commit and message loses nothing. A restarted seqd replays the store,
 * waits for its nodes' HELLO and adopts the attempts that run there (control_link.c). An
 * attempt is away if its node has not come back after lost_ms.
 *
 * Only control.c and control_link.c act, and they act on attempts through attempts.c. They call
 * the following files, none of which calls them:
 *   job_fold.c attempt.c spooled.c prepared.c
 *                              fold the events of a job, and judge its attempt and its reports
 *   cluster.c node.c quarantine.c gpus.c
 *                              tell the state of nodes and GPUs, and the jobs they are fit for
 *   pass.c blame.c             choose the nodes of a job, and the blame for a failure
 *   hold.c wall.c cordon.c     find attempts that must save and stop, by a time limit or a drain
 *   commit.c replay.c          write events to the store, and read them after a restart
 *   order.c                    carries out clients' orders about existing jobs and nodes
 *   retain.c removal.c sweep.c choose the data to keep, and remove other data
 *   session.c ask.c            send messages and questions to nodes */
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
        *secret; /* SECRET_SIZE bytes, borrowed, from which the keys of attempts are derived */
    /* Sends m to a node. Returns -1 if it cannot, for example if the node has no session. It is
     * link_send in seqd, and a recorder in tests. */
    int (*send)(void *arg, const char *node, const struct msg *m);
    void *send_arg;
    /* Returns UTC milliseconds. NULL stands for the machine's clock. */
    int64_t (*utc_ms)(void);
    /* This job has a new commit, so its followers may read it again. */
    void (*changed)(void *arg, int64_t job);
    /* Bytes of the job's log have arrived. May be NULL. */
    void (*logged)(void *arg, int64_t job);
    void *changed_arg;
    /* directory of complete uploads, on nodes too; NULL if seqd takes no uploads */
    const char *uploads;
    const struct retain_policy *policy; /* copied; NULL if no data has a time to live */
    /* time that an attempt has for saving on request; 0 stands for CONTROL_SAVE_GRACE_MS */
    int64_t save_grace_ms;
    /* silence after which a node is lost; 0 stands for NODE_LOST_MS */
    int64_t lost_ms;
};

/* Replays the store, and fails as replay does (replay.h). */
struct control *control_create(const struct control_options *o, struct err *e);
void control_destroy(struct control *c);
/* Sets the reason for which no node is up. The reason is kept until a node is up. */
void control_no_node(struct control *c, const char *why);
void control_pause(struct control *c); /* starts no more attempts, because seqd is stopping */

/* The functions that link.h calls (control_link.c). Pass them to link_create with the control as
 * arg. */
extern const struct link_calls control_link_calls;

const struct cluster *control_cluster(const struct control *c);
/* Returns the fold of a job, which is for decisions; clients are shown the store's state instead.
 * Returns NULL if there is no such job or its end is committed. */
const struct job *control_job(const struct control *c, int64_t id);
const struct nodes *control_nodes(const struct control *c);
struct users *control_users(struct control *c);
const struct disk_tally *control_tally(const struct control *c);
/* Returns the slots that are held on a node, by jobs and by ranks of attempts that are over for
 * seqd but still run on the node. */
int32_t control_reserved(const struct control *c, const char *node);
int control_n_live(const struct control *c);
int64_t control_passes(const struct control *c); /* scheduling passes so far */
/* time that the loop has been busy since the start */
int64_t control_busy_ms(const struct control *c);
struct commits *control_commits(struct control *c);
struct store *control_store(struct control *c);
struct logs *control_logs(struct control *c);
struct removals *control_removals(struct control *c);
int64_t control_now_ms(const struct control *c); /* the loop's clock */

/* Asks a node a question, or any node if node is NULL (ask.h). */
void control_ask(struct control *c, const char *node, const struct msg *m, ask_answer *answer,
                 void *arg);

#endif
