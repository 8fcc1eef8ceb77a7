/* Keeps the attempts of this node, and applies each message of seqd to them. All of it happens on
 * the loop thread. No data are lost with the agent: the data for seqd are in spools and logs on
 * disk, read by offset and sent until acknowledged (relay.h). So a session that breaks, and an
 * agent that is killed, only make the same bytes go again.
 *
 * An attempt begins only if its epoch is newer than all that began here of its job
 * (state_dir_epoch); the older attempts of that job are told to stop first. */
#include "worker/agent/agent.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/address.h"
#include "api/core/cgroup.h"
#include "api/core/log.h"
#include "api/core/version.h"
#include "api/wire.h"
#include "worker/agent/attempt.h"
#include "worker/agent/capture.h"
#include "worker/agent/cores.h"
#include "worker/agent/disk.h"
#include "worker/agent/fetches.h"
#include "worker/agent/gpus.h"
#include "worker/agent/launch.h"
#include "worker/agent/probe.h"
#include "worker/agent/questions.h"
#include "worker/agent/relay.h"
#include "worker/agent/removal.h"
#include "worker/agent/session.h"
#include "worker/agent/state_dir.h"

enum {
    TICK_MS = 50,
    CONNECT_MS = 5, /* wait between looks while a gang is starting or dying */
    QUIT_MS = 2000, /* time for seqd to hear the last reports */
    PROFILE_MS = 30000,
    PROFILE_SIZE = 8192
};

struct agent {
    struct loop *loop;
    struct agent_options o;
    struct state_dir state_dir;
    char address[RANK_ADDRESS_SIZE]; /* ranks listen here */
    char gang_program[FILE_PATH_SIZE], rank_program[FILE_PATH_SIZE];
    struct gpus *gpus; /* NULL: there are none */
    struct pins *pins; /* NULL: ranks are not bound to cores */
    struct trees *trees;
    struct node_removals *removals;
    struct disk_watch *disk;
    struct agent_session *session;
    struct prepared *prepared; /* NULL: the watch over prepared data could not begin */
    bool told_end;             /* seqd was told of the end in this session */
    int64_t leave_s;           /* UTC seconds of this agent's end; jobs leave now; 0: it stays */
    struct attempt *attempts;
    struct loop_timer *tick, *heartbeat, *orphan, *quit;
    int64_t heartbeat_ms; /* ms between heartbeats; seqd sets it */
    bool up;              /* set by WELCOME: a refused session is never up */
    bool quitting;
    struct questions *questions; /* questions of seqd, which programs answer */
    struct fetches *fetches;     /* reads of files for seqd */
    struct capture *profiling;   /* seqrank --profile, once after the start */
    struct profile profile;      /* result of seqrank --profile; zeros: none yet */
    char buf[SPOOL_RECORD_SIZE]; /* the record or chunk being sent */
};

/* ---- attempts -------------------------------------------------------------------------------- */

static struct attempt *find(struct agent *a, int64_t job, int64_t epoch)
{
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->job == job && t->epoch == epoch) return t;
    return NULL;
}

static int n_attempts(const struct agent *a)
{
    int n = 0;
    for (const struct attempt *t = a->attempts; t; t = t->next) n++;
    return n;
}

static void add(struct agent *a, struct attempt *t, void (*nudge)(void *, struct attempt *))
{
    t->nudge = nudge;
    t->owner = a;
    t->next = a->attempts;
    a->attempts = t;
}

static bool has_attempt(const struct agent *a, int64_t job)
{
    for (const struct attempt *t = a->attempts; t; t = t->next)
        if (t->job == job) return true;
    return false;
}

static void forget(struct agent *a, struct attempt *t)
{
    struct err e;
    struct attempt **p = &a->attempts;
    if (t->state != ATTEMPT_OVER) { /* forgotten when it is over */
        t->forget_wanted = true;
        attempt_stop(t);
        return;
    }
    while (*p != t) p = &(*p)->next;
    *p = t->next;
    cgroup_remove(t->dir);
    if (file_remove(t->dir, &e) < 0) log_error("attempt.remove", "why=\"%s\"", e.text);
    if (t->stale) relay_end(a->session, t->job, t->epoch, GANG_UNKNOWN);
    if (!has_attempt(a, t->job)) removals_over(a->removals, t->job);
    attempt_free(t);
}

/* Stops the loop when no attempt is left; when quitting, also when all are over and no session is
 * open. An open session gets QUIT_MS (quit_late), for seqd to receive the ends and send FORGET.
 * While jobs save, before quitting, attempts stay for all of the grace: a session may come back. */
static void quit_check(struct agent *a)
{
    if (!a->quitting && !a->leave_s) return;
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (!a->quitting || t->state != ATTEMPT_OVER || session_is_open(a->session)) return;
    loop_stop(a->loop);
}

static void stop_all(struct agent *a, const char *why)
{
    if (a->quitting) return;
    log_info("agent.quit", "why=\"%s\"", why);
    a->quitting = true;
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->state != ATTEMPT_OVER) attempt_stop(t);
    loop_timer_set(a->quit, QUIT_MS);
    quit_check(a);
}

/* Tells whether an attempt is not over, but all its processes are gone and its end cannot be
 * written. The next agent with this state directory writes it, when there is room. */
static bool is_cut_short(const struct attempt *t)
{
    return t->state != ATTEMPT_OVER && t->finish_failed;
}

static void say_cut_short(const struct agent *a)
{
    for (const struct attempt *t = a->attempts; t; t = t->next)
        if (is_cut_short(t))
            log_warn("agent.quit",
                     "job=%lld epoch=%lld text=\"its end cannot be written, as on a full disk: the "
                     "next agent here writes it\"",
                     (long long)t->job, (long long)t->epoch);
}

static void quit_late(void *arg)
{
    struct agent *a = arg;
    bool over = true;
    if (!a->quitting) {
        stop_all(a, "the grace is over");
        return;
    }
    for (struct attempt *t = a->attempts; t; t = t->next)
        over = over && (t->state == ATTEMPT_OVER || is_cut_short(t));
    if (!over) {
        loop_timer_set(a->quit, QUIT_MS);
        return;
    }
    say_cut_short(a);
    loop_stop(a->loop);
}

static void tick(void *arg)
{
    struct agent *a = arg;
    bool soon = false;
    for (struct attempt *t = a->attempts, *next; t; t = next) {
        next = t->next;
        soon = attempt_check(t) || soon;
        relay_records(a->session, t, a->buf);
        if (t->state == ATTEMPT_OVER && t->forget_wanted) forget(a, t);
    }
    relay_logs(a->session, a->attempts, a->buf);
    quit_check(a);
    if (a->attempts) loop_timer_set(a->tick, soon ? CONNECT_MS : TICK_MS);
}

/* Sends seqd new records: the spool of an attempt grew, or its gang is gone. */
static void nudged(void *arg, struct attempt *t)
{
    struct agent *a = arg;
    relay_records(a->session, t, a->buf);
    if (t->sock < 0) loop_timer_set(a->tick, 0);
}

void agent_reap(struct agent *a)
{
    for (struct attempt *t = a->attempts; t; t = t->next) {
        int status = 0;
        if (t->gang_pid <= 0 || waitpid(t->gang_pid, &status, WNOHANG) != t->gang_pid) continue;
        t->gang_pid = 0;
        t->gang_status = status;
    }
    loop_timer_set(a->tick, 0);
}

static void adopt(void *arg, int64_t job, int64_t epoch, const char *dir)
{
    struct agent *a = arg;
    struct attempt *t = attempt_adopt(a->loop, dir, job, epoch);
    if (!t) {
        file_remove(dir, NULL); /* its start record was never complete: no gang began */
        return;
    }
    add(a, t, nudged);
    attempt_check(t);
    log_info("attempt.adopt", "job=%lld epoch=%lld state=%s", (long long)job, (long long)epoch,
             t->state == ATTEMPT_OVER ? "over"
             : t->sock >= 0           ? "alive"
                                      : "unknown");
}

/* Tells whether an attempt uses the data or may use them. A preparation may use any data, since
 * its own are not known yet. */
static bool uses(void *arg, const char *id)
{
    const struct agent *a = arg;
    for (const struct attempt *t = a->attempts; t; t = t->next)
        if (t->state != ATTEMPT_OVER && (!*t->prepared_id || !strcmp(t->prepared_id, id)))
            return true;
    return false;
}

static void keep_prepared(struct agent *a)
{
    static const struct prepared_calls calls = {uses, NULL};
    char dir[FILE_PATH_SIZE];
    if (file_join(dir, NULL, "%s/prepared", a->state_dir.dir) < 0) return;
    a->prepared = prepared_create(a->loop, a->trees, dir, &a->o.keep, &calls, a);
}

/* ---- messages of seqd ------------------------------------------------------------------------ */

/* Begins an attempt. out: *rank is the rank that cannot be started, or -1 if the gang cannot. */
static int begin(struct agent *a, const struct msg *m, int *rank, struct err *e)
{
    const struct launch l = {.loop = a->loop,
                             .state_dir = &a->state_dir,
                             .attempts = a->attempts,
                             .gpus = a->gpus,
                             .pins = a->pins,
                             .node = a->o.name,
                             .address = a->address,
                             .gang_program = a->gang_program,
                             .rank_program = a->rank_program,
                             .orphan_ms = a->o.orphan_ms};
    struct attempt *t;
    if ((*rank = launch_unfit_rank(&l, m, e)) >= 0) return -1;
    if (!(t = launch_attempt(&l, m, e))) return -1;
    add(a, t, nudged);
    prepared_use(a->prepared, m->prepared_id);
    loop_timer_set(a->tick, 0);
    return 0;
}

static void on_assign(struct agent *a, const struct msg *m)
{
    struct err e = {0};
    if (find(a, m->job, m->epoch)) return;            /* a repeated message */
    const bool full = n_attempts(a) >= WIRE_ATTEMPTS; /* HELLO could not name them all */
    const bool ends = a->quitting || a->leave_s;
    if (ends || full || m->epoch <= state_dir_epoch(&a->state_dir, m->job)) {
        log_warn("attempt.refuse", "job=%lld epoch=%lld why=\"%s\"", (long long)m->job,
                 (long long)m->epoch,
                 full   ? "too many attempts are here"
                 : ends ? "the agent is stopping"
                        : "the epoch is not new");
        relay_end(a->session, m->job, m->epoch, GANG_UNKNOWN);
        return;
    }
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->job == m->job) attempt_stop(t); /* a newer epoch fences off the older ones */
    int rank = -1;
    if (begin(a, m, &rank, &e) == 0) return;
    log_error("attempt.begin", "job=%lld why=\"%s\"", (long long)m->job, e.text);
    relay_failure(a->session, m->job, m->epoch, rank < 0 ? RANK_GANG : rank, &e);
    relay_end(a->session, m->job, m->epoch, GANG_LOST);
}

static bool listed(const struct msg *m, int64_t job, int64_t epoch)
{
    for (int i = 0; i < m->n_attempts; i++)
        if (m->attempts[i].job == job && m->attempts[i].epoch == epoch) return true;
    return false;
}

/* Ends the attempts that no message of EXPECT named. */
static void end_unexpected(struct agent *a)
{
    for (struct attempt *t = a->attempts, *next; t; t = next) {
        const bool expected = t->expected;
        next = t->next;
        t->expected = false;
        if (expected) continue;
        t->stale = true;
        forget(a, t);
    }
}

static void on_expect(struct agent *a, const struct msg *m)
{
    for (struct attempt *t = a->attempts; t; t = t->next)
        t->expected = t->expected || listed(m, t->job, t->epoch);
    if (!m->more) end_unexpected(a);
    for (int i = 0; i < m->n_attempts; i++)
        if (!find(a, m->attempts[i].job, m->attempts[i].epoch))
            relay_end(a->session, m->attempts[i].job, m->attempts[i].epoch, GANG_UNKNOWN);
}

static void send_profile(struct agent *a)
{
    const struct msg m = {.type = MSG_PROFILE, .profile = a->profile};
    if (session_is_up(a->session) && a->profile.hop > 0) session_send(a->session, &m);
}

/* Takes the profile. Jobs run without one, too: seqd then does not tell how long a step takes. */
static void profiled(void *arg, int64_t request, const char *text, size_t size,
                     const struct err *why)
{
    struct agent *a = arg;
    struct err e = *why;
    a->profiling = NULL;
    if (e.code || profile_read(text, size, &a->profile, &e)) {
        a->profile = (struct profile){0};
        log_warn("agent.profile", "why=\"%s\"", e.text);
        return;
    }
    send_profile(a);
}

static void profile_start(struct agent *a)
{
    char *argv[] = {"seqrank", "--profile", NULL};
    const struct capture_options o = {a->loop,    a->rank_program, argv,     0,
                                      PROFILE_MS, PROFILE_SIZE,    profiled, a};
    struct err e = {0};
    if (!(a->profiling = capture_start(&o, &e))) profiled(a, 0, "", 0, &e);
}

/* Sends no answer for a read of an earlier session: a seqd that was restarted counts from 1 again,
 * and would take it for the answer about another file. */
static void fetched(void *arg, const struct fetch_op *op)
{
    struct agent *a = arg;
    struct msg m = {.type = MSG_FETCHED, .request = op->request, .offset = op->file.offset};
    m.err = op->err;
    m.data = op->buf;
    m.size = op->n > 0 ? (size_t)op->n : 0;
    m.total = op->file.total;
    m.stamp = op->file.stamp;
    if (op->session == session_number(a->session)) session_send(a->session, &m);
}

static void on_fetch(struct agent *a, const struct msg *m)
{
    struct msg no = {.type = MSG_FETCHED, .request = m->request, .offset = m->offset};
    if (fetches_add(a->fetches, session_number(a->session), m, &no.err))
        session_send(a->session, &no);
}

/* Sends the answer to a question or a removal; without a session seqd asks again. */
static void answered(void *arg, const struct msg *m)
{
    struct agent *a = arg;
    session_send(a->session, m);
}

/* Applies SAVE, STOP, BLOBS, ACK or FORGET to an attempt that may not be here. */
static void on_attempt(struct agent *a, const struct msg *m)
{
    struct attempt *t = find(a, m->job, m->epoch);
    if (!t) {
        if (m->type == MSG_STOP || m->type == MSG_SAVE)
            relay_end(a->session, m->job, m->epoch, GANG_UNKNOWN);
        return;
    }
    if (m->type == MSG_STOP || m->type == MSG_SAVE) {
        const bool save = m->type == MSG_SAVE;
        log_info(save ? "attempt.save" : "attempt.stop", "job=%lld epoch=%lld why=\"%s\"",
                 (long long)m->job, (long long)m->epoch, m->reason);
        (save ? attempt_save : attempt_stop)(t);
    }
    if (m->type == MSG_BLOBS) attempt_blobs(t, m->blobs, m->n_blobs);
    if (m->type == MSG_ACK) attempt_ack(t, m);
    if (m->type == MSG_FORGET) forget(a, t);
    quit_check(a);
}

/* Tells seqd when this node ends. Sends nothing if no end is known, unless seqd was told of an end
 * in this session. */
static void send_leaving(struct agent *a)
{
    struct msg m = {.type = MSG_LEAVING, .end_s = a->o.end_s, .margin_s = a->o.margin_s};
    if (a->leave_s) m.end_s = a->leave_s, m.margin_s = WIRE_MAX_TIME_S;
    if (!session_is_up(a->session) || !wire_knows(session_abi(a->session), MSG_LEAVING)) return;
    if (!m.end_s && !a->told_end) return;
    if (!session_send(a->session, &m)) a->told_end = true;
}

static bool on_message(void *arg, const struct msg *m)
{
    struct agent *a = arg;
    switch (m->type) {
    case MSG_ASSIGN: on_assign(a, m); break;
    case MSG_EXPECT: on_expect(a, m); break;
    case MSG_DESCRIBE: questions_describe(a->questions, m); break;
    case MSG_TRACE: questions_trace(a->questions, m); break;
    case MSG_FETCH: on_fetch(a, m); break;
    case MSG_REMOVE: removals_take(a->removals, m, has_attempt(a, m->job)); break;
    case MSG_SAVE:
    case MSG_STOP:
    case MSG_BLOBS:
    case MSG_ACK:
    case MSG_FORGET: on_attempt(a, m); break;
    case MSG_QUIT: stop_all(a, m->reason); break;
    case MSG_WELCOME: /* handled by the session */
    case MSG_REFUSED:
    case MSG_JOINED:
    case MSG_HELLO: /* seqw sends these, and seqd never does */
    case MSG_HEARTBEAT:
    case MSG_REPORT:
    case MSG_LOG:
    case MSG_DESCRIBED:
    case MSG_FETCHED:
    case MSG_REMOVED:
    case MSG_PROFILE:
    case MSG_LEAVING:
    case MSG_JOIN:
    case MSG_TYPE_N: return false;
    }
    return true;
}

/* ---- the session ----------------------------------------------------------------------------- */

static void on_opened(void *arg)
{
    struct agent *a = arg;
    const struct allocation *given = a->o.allocation;
    struct msg m = {.type = MSG_HELLO,
                    .abi = session_abi(a->session),
                    .n_slots = a->o.n_slots,
                    .n_cores = given ? (int)given->cores.n : probe_cores(),
                    .memory_size = given ? given->memory.n : probe_memory_size(),
                    .emulated = a->o.emulated};
    struct gpu gpus[GPU_MAX];
    struct wire_attempt *list;
    list = calloc((size_t)n_attempts(a) + 1, sizeof *list);
    assert(list);
    for (struct attempt *t = a->attempts; t; t = t->next) {
        const bool over = t->state == ATTEMPT_OVER;
        list[m.n_attempts++] = (struct wire_attempt){t->job, t->epoch, over ? 0 : t->n_running,
                                                     over ? 0 : t->n_gpus};
        attempt_rewind(t);
        t->expected = false; /* may be set by a list that the last session's end cut off */
    }
    m.attempts = list;
    m.gpus = gpus;
    m.n_gpus = gpus_get(a->gpus, gpus);
    memcpy(m.instance, a->state_dir.instance, sizeof m.instance);
    snprintf(m.node, sizeof m.node, "%s", a->o.name);
    snprintf(m.version, sizeof m.version, "%s", version_text());
    memcpy(m.address, a->address, sizeof m.address);
    session_send(a->session, &m);
    free(list);
}

/* Tells whether seqd understands LEAVING, or may: it has not answered yet. */
static bool can_leave(const struct agent *a)
{
    return !session_is_up(a->session) || wire_knows(session_abi(a->session), MSG_LEAVING);
}

static void on_up(void *arg, const struct msg *welcome)
{
    struct agent *a = arg;
    a->heartbeat_ms = welcome->heartbeat_ms;
    a->up = true;
    loop_timer_set(a->orphan, -1);
    loop_timer_set(a->heartbeat, a->heartbeat_ms);
    loop_timer_set(a->tick, 0);
    send_profile(a);
    a->told_end = false;
    send_leaving(a);
    if (a->leave_s && !can_leave(a)) stop_all(a, "this seqd cannot let jobs save");
}

static void on_down(void *arg)
{
    struct agent *a = arg;
    removals_drop(a->removals);
    questions_drop(a->questions);
    loop_timer_set(a->heartbeat, -1);
    if (a->up && a->o.orphan_ms > 0) loop_timer_set(a->orphan, a->o.orphan_ms);
    a->up = false;
    quit_check(a);
}

static void heartbeat(void *arg)
{
    struct agent *a = arg;
    struct gpu list[GPU_MAX];
    const int n = gpus_get(a->gpus, list);
    const struct msg m = {
        .type = MSG_HEARTBEAT, .gpus = list, .n_gpus = n, .disk = disk_watch_use(a->disk)};
    session_send(a->session, &m);
    loop_timer_set(a->heartbeat, a->heartbeat_ms);
}

static void orphaned(void *arg)
{
    stop_all(arg, "no session for too long");
}

static const struct session_calls session_calls = {on_opened, on_up, on_message, on_down};

/* ---- life ------------------------------------------------------------------------------------ */

static int64_t utc_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec;
}

void agent_leave(struct agent *a, int64_t grace_ms, const char *why)
{
    if (grace_ms <= 0 || a->leave_s || !can_leave(a)) {
        agent_quit(a, why);
        return;
    }
    log_info("agent.leave", "why=%s grace_s=%lld attempts=%d", why, (long long)grace_ms / 1000,
             n_attempts(a));
    a->leave_s = utc_s() + (grace_ms + 999) / 1000;
    loop_timer_set(a->quit, grace_ms);
    send_leaving(a);
    quit_check(a);
}

/* Tells seqd first, so that it places no job here again, and stops all gangs. */
void agent_quit(struct agent *a, const char *why)
{
    if (a->quitting) return;
    a->leave_s = utc_s();
    send_leaving(a);
    stop_all(a, why);
}

bool agent_connected(const struct agent *a, int *n)
{
    *n = n_attempts(a);
    return session_is_up(a->session);
}

void agent_set_orphan(struct agent *a, int64_t orphan_ms)
{
    if (a->o.orphan_ms == orphan_ms) return;
    a->o.orphan_ms = orphan_ms;
    if (!session_is_up(a->session)) loop_timer_set(a->orphan, orphan_ms > 0 ? orphan_ms : -1);
}

void agent_set_end(struct agent *a, int64_t end_s, int64_t margin_s)
{
    if (a->o.end_s == end_s && a->o.margin_s == margin_s) return;
    a->o.end_s = end_s;
    a->o.margin_s = margin_s;
    send_leaving(a);
}

/* Takes, with --auto, the GPUs that the engine gave, and sets the number of slots by them. */
static int take_allocation(struct agent *a, struct err *e)
{
    const struct allocation *given = a->o.allocation;
    struct gpu list[GPU_MAX];
    struct allocation_value slots = {a->o.n_slots, "--slots"};
    if (!given) return 0;
    if (gpus_choose(a->gpus, given, e) < 0) return -1;
    const int n = gpus_get(a->gpus, list);
    if (a->o.n_slots < 0) slots = allocation_slots(given, list, n, WIRE_ATTEMPTS);
    a->o.n_slots = (int)slots.n;
    allocation_say(given, a->gpus != NULL, n, &slots, a->o.name);
    return 0;
}

static int agent_open(struct agent *a, struct err *e)
{
    if (!wire_name_good(a->o.name))
        return err_set(e, ERR_INVALID,
                       "--name '%s': want 1 to %d characters, letters, digits, '.', '_', '-', ':'",
                       a->o.name, NODE_NAME - 1);
    if (probe_address(a->o.address, a->o.connect, a->address, e) < 0) return -1;
    char bin[PATH_MAX]; /* absolute: seqgang may run elsewhere */
    if (!realpath(a->o.bin, bin)) return err_errno(e, "--bin %s", a->o.bin);
    if (file_join(a->gang_program, e, "%s/seqgang", bin) < 0) return -1;
    if (file_join(a->rank_program, e, "%s/seqrank", bin) < 0) return -1;
    if (access(a->gang_program, X_OK) < 0) return err_errno(e, "%s", a->gang_program);
    if (state_dir_open(&a->state_dir, a->o.state, a->o.roots, a->o.n_roots, e) < 0 ||
        state_dir_writable(&a->state_dir, a->o.writable, a->o.n_writable, e) < 0)
        return -1;
    if (state_dir_scan(&a->state_dir, adopt, a, e) < 0) return -1;
    if (n_attempts(a) > WIRE_ATTEMPTS)
        return err_set(e, ERR_TOO_LARGE,
                       "%s/gangs has %d attempts, at most %d are possible: remove the directories "
                       "of attempts that are over",
                       a->state_dir.dir, n_attempts(a), WIRE_ATTEMPTS);
    const struct questions_options q = {a->loop,   &a->state_dir, a->rank_program,
                                        a->o.name, answered,      a};
    a->questions = questions_create(&q);
    a->fetches = fetches_create(a->loop, &a->state_dir, fetched, a);
    keep_prepared(a);
    a->disk = disk_watch_create(a->loop, a->trees, a->state_dir.dir);
    if (a->attempts) loop_timer_set(a->tick, 0);
    if (a->o.orphan_ms > 0) loop_timer_set(a->orphan, a->o.orphan_ms);
    if (a->o.nvml) a->gpus = gpus_open(a->o.nvml, bin, a->o.state, a->o.look_ms);
    if (a->o.pins) a->pins = pins_open(a->o.pins);
    if (take_allocation(a, e) < 0) return -1;
    if (address_check(a->o.connect, e) < 0) return err_prefix(e, "--connect");
    if (session_dial(a->session, e) < 0) return -1;
    profile_start(a);
    return 0;
}

struct agent *agent_create(struct loop *l, const struct agent_options *o, struct err *e)
{
    struct agent *a = calloc(1, sizeof *a);
    assert(a);
    a->loop = l;
    a->o = *o;
    a->state_dir.lock_fd = -1;
    a->tick = loop_timer_create(l, tick, a);
    a->heartbeat = loop_timer_create(l, heartbeat, a);
    a->orphan = loop_timer_create(l, orphaned, a);
    a->quit = loop_timer_create(l, quit_late, a);
    const struct session_options s = {o->connect, o->name, o->state, o->token_file};
    a->session = session_create(l, &s, &session_calls, a);
    a->trees = trees_create(l);
    a->removals = removals_create(a->trees, &a->state_dir, answered, a);
    if (agent_open(a, e) == 0) return a;
    agent_destroy(a);
    return NULL;
}

void agent_destroy(struct agent *a)
{
    if (!a) return;
    session_destroy(a->session);
    trees_destroy(a->trees);
    removals_destroy(a->removals);
    fetches_destroy(a->fetches);
    disk_watch_destroy(a->disk);
    prepared_destroy(a->prepared);
    questions_destroy(a->questions);
    capture_cancel(a->profiling);
    while (a->attempts) {
        struct attempt *t = a->attempts;
        a->attempts = t->next;
        attempt_free(t);
    }
    loop_timer_destroy(a->tick);
    loop_timer_destroy(a->heartbeat);
    loop_timer_destroy(a->orphan);
    loop_timer_destroy(a->quit);
    gpus_close(a->gpus);
    pins_close(a->pins);
    state_dir_close(&a->state_dir);
    free(a);
}
