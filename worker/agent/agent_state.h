/* agent_state.h: the state of an agent, which agent.c and orders.c share. Only files of
 * worker/agent include this header. */
#ifndef SEQD_AGENT_AGENT_STATE_H
#define SEQD_AGENT_AGENT_STATE_H

#include "api/wire.h"
#include "worker/agent/agent.h"
#include "worker/agent/answers.h"
#include "worker/agent/attempt.h"
#include "worker/agent/capture.h"
#include "worker/agent/cores.h"
#include "worker/agent/disk.h"
#include "worker/agent/fetches.h"
#include "worker/agent/gpus.h"
#include "worker/agent/questions.h"
#include "worker/agent/removal.h"
#include "worker/agent/session.h"
#include "worker/agent/shared.h"
#include "worker/agent/state_dir.h"

struct agent {
    struct loop *loop;
    struct agent_options o;
    struct state_dir state_dir;
    char sandbox[WIRE_SANDBOX];      /* the parts of its ranks' sandbox, for HELLO */
    char address[RANK_ADDRESS_SIZE]; /* address at which the ranks of this node listen */
    char gang_program[FILE_PATH_SIZE], rank_program[FILE_PATH_SIZE];
    struct gpus *gpus; /* NULL if this node has no GPUs */
    struct pins *pins; /* NULL if ranks are not bound to cores */
    struct trees *trees;
    struct node_removals *removals;
    struct disk_watch *disk;
    struct shared_watch *shared; /* NULL without a shared directory */
    struct agent_session *session;
    struct prepared *prepared; /* NULL if the watch of the prepared data could not be started */
    bool told_end;             /* whether seqd was told of the node's end in this session */
    int64_t leave_s;           /* if the jobs of this node have to leave now, the UTC time in
                                * seconds at which the agent ends; otherwise 0 */
    struct attempt *attempts;
    struct loop_timer *tick, *heartbeat, *orphan, *quit;
    int64_t watched_ms;   /* time at which the gangs were last watched */
    int64_t heartbeat_ms; /* ms between heartbeats; seqd sets it */
    bool up;              /* whether WELCOME was received; it never becomes true in a session
                           * that seqd refused */
    bool quitting;
    int code;                      /* the exit status */
    struct questions *questions;   /* questions of seqd that programs on this node answer */
    struct agent_answers *answers; /* requests to jobs that serve here */
    struct fetches *fetches;       /* reads of files for seqd */
    struct capture *profiling;     /* seqrank --profile, which runs once after the start */
    struct profile profile;        /* result of seqrank --profile; all members are 0 while there
                                  * is no result */
    char buf[SPOOL_RECORD_SIZE];   /* the record or chunk being sent */
};

/* Returns the attempt, or NULL if this node does not have it. */
struct attempt *agent_find(struct agent *a, int64_t job, int64_t epoch);
int agent_n_attempts(const struct agent *a);
bool agent_has_attempt(const struct agent *a, int64_t job);
/* Adds the attempt t and takes ownership of it. From then on the records of t are sent to seqd. */
void agent_add(struct agent *a, struct attempt *t);
/* Removes an attempt and its directory. If the attempt is over, this is done immediately.
 * Otherwise the attempt is stopped first. */
void agent_forget(struct agent *a, struct attempt *t);
void agent_stop_all(struct agent *a, const char *why);
/* Stops the loop when no attempt is left. After agent_quit it also stops the loop when all
 * attempts are over and no session is open. If a session is open, the loop runs for QUIT_MS
 * more (quit_late), so that seqd receives the final records and sends FORGET. After
 * agent_leave, attempts that are over are kept for the whole grace period, because a session
 * may be opened again. */
void agent_quit_check(struct agent *a);

#endif
