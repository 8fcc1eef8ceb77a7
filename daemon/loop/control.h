/* control.h: the part of seqd that acts. It joins jobs, nodes and the store on the loop thread.
 *
 *   event -> job_fold (memory) -> row joins the open group -> COMMIT -> messages to nodes, replies
 *
 * No message or reply leaves seqd before the commit that causes it. A message is derived only from
 * committed events, is idempotent at the node, and is sent again after a reconnect. For that
 * reason a crash between a commit and its messages loses nothing. A restarted seqd replays the
 * store, waits for its nodes' HELLO and adopts the attempts that run there (control_link.c). An
 * attempt is away if its node has not come back after lost_ms.
 *
 * Only control.c and control_link.c act, and they act on attempts through attempts.c. They call
 * the functions of the following files, which do not call back:
 *   job_fold.c attempt.c spooled.c prepared.c
 *                              fold the events of a job, and judge its attempt and its reports
 *   cluster.c node.c quarantine.c gpus.c
 *                              tell the state of nodes and GPUs, and which jobs they suit
 *   pass.c blame.c             choose the nodes of a job, and whom to blame for a failure
 *   hold.c wall.c cordon.c     find attempts that must save and stop for a time limit or a drain
 *   commit.c replay.c          write events to the store, and read them after a restart
 *   afters.c                   asks for the ends of jobs for which others wait
 *   images.c                   stores images of jobs that wait, for a fast restart
 *   order.c                    carries out clients' orders about existing jobs and nodes
 *   retain.c removal.c sweep.c choose the data to keep, and remove other data
 *   session.c ask.c serving.c  send messages, questions and clients' requests to nodes */
#ifndef SEQD_DAEMON_LOOP_CONTROL_H
#define SEQD_DAEMON_LOOP_CONTROL_H

#include "api/core/loop.h"
#include "daemon/loop/ask.h"
#include "daemon/loop/commit.h"
#include "daemon/loop/removal.h"
#include "daemon/loop/serving.h"
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
        *secret; /* SECRET_SIZE bytes, borrowed; the keys of attempts are derived from them */
    /* Sends m to a node. Returns -1 if m cannot be sent, for example if the node has no session.
     * In seqd the function is link_send; in tests it is a function that records its arguments. */
    int (*send)(void *arg, const char *node, const struct msg *m);
    /* Returns the bytes that wait in a node's session. May be NULL, which stands for none. */
    size_t (*queued)(void *arg, const char *node);
    void *send_arg; /* arg of send and of queued */
    /* Returns UTC milliseconds. NULL stands for the machine's clock. */
    int64_t (*utc_ms)(void);
    /* Called when a commit has changed the job, so that its followers may read it again. */
    void (*changed)(void *arg, int64_t job);
    /* Called when bytes of the job's log have arrived. May be NULL. */
    void (*logged)(void *arg, int64_t job);
    void *changed_arg;
    /* directory of complete uploads, which nodes read at the same path; NULL if seqd takes no
     * uploads */
    const char *uploads;
    const struct retain_policy *policy; /* copied; NULL if no data has a time to live */
    /* time for which an attempt may save after it was asked to; 0 stands for
     * CONTROL_SAVE_GRACE_MS */
    int64_t save_grace_ms;
    /* for backfill, the time limit of jobs that have none; 0 means no limit */
    int64_t backfill_ms;
    /* silence after which a node is lost; 0 stands for NODE_LOST_MS */
    int64_t lost_ms;
};

/* Replays the store, and fails as replay does (replay.h). */
struct control *control_create(const struct control_options *o, struct err *e);
void control_destroy(struct control *c);
/* Sets the reason for which no node is up. The reason is kept until a node is up. */
void control_no_node(struct control *c, const char *why);
void control_pause(struct control *c); /* starts no more attempts, because seqd is stopping */

/* The callbacks of link.h, which control_link.c implements. Pass them to link_create, with the
 * control as their arg. */
extern const struct link_calls control_link_calls;

const struct cluster *control_cluster(const struct control *c);
/* Returns the job as folded from its events. It is for decisions only, because clients are shown
 * the state in the store. Returns NULL if there is no such job or its end is committed. */
const struct job *control_job(const struct control *c, int64_t id);
const struct nodes *control_nodes(const struct control *c);
struct users *control_users(struct control *c);
const struct disk_tally *control_tally(const struct control *c);
/* Returns the number of slots that are held on a node. Jobs hold slots, and so do ranks that still
 * run on the node although seqd counts their attempt as ended. */
int32_t control_reserved(const struct control *c, const char *node);
int control_n_live(const struct control *c);
/* Returns the id of the i-th job of the last pass, in scheduling order, or 0 after the last. It may
 * not wait any more. */
int64_t control_queued(const struct control *c, int i);
/* Returns the time in UTC at which a job that is first in line starts at the latest, or 0 if it is
 * not known. */
int64_t control_predicted_ms(const struct control *c, int64_t id);
int64_t control_passes(const struct control *c); /* scheduling passes so far */
/* milliseconds for which the loop has been busy since the start */
int64_t control_busy_ms(const struct control *c);
struct commits *control_commits(struct control *c);
struct store *control_store(struct control *c);
struct logs *control_logs(struct control *c);
struct removals *control_removals(struct control *c);
struct servings *control_servings(struct control *c);
int64_t control_now_ms(const struct control *c); /* the loop's clock */

/* Asks a node a question (ask.h). If `node` is NULL, asks any node. */
void control_ask(struct control *c, const char *node, const struct msg *m, ask_answer *answer,
                 void *arg);

#endif
