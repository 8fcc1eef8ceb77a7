/* seqw's heart. Everything here happens on the loop thread, and nothing here is lost with it: what
 * seqd must learn is in spools and logs on disk, read by offset and sent until acknowledged. So a
 * session that breaks, and an agent that is killed, only make the same bytes go again.
 *
 * Order on the stream: records as they come; logs within LOG_BUDGET_SIZE per tick, so that a
 * talkative rank delays no other; the final record of an attempt follows the last byte of
 * its logs. */
#include "worker/agent/agent.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/gang_start.h"
#include "api/core/cgroup.h"
#include "api/core/log.h"
#include "api/core/version.h"
#include "api/rpc.h"
#include "api/wire.h"
#include "worker/agent/attempt.h"
#include "worker/agent/capture.h"
#include "worker/agent/cores.h"
#include "worker/agent/disk.h"
#include "worker/agent/gpus.h"
#include "worker/agent/grants.h"
#include "worker/agent/member.h"
#include "worker/agent/probe.h"
#include "worker/agent/questions.h"
#include "worker/agent/fetches.h"
#include "worker/agent/removal.h"
#include "worker/agent/spawn.h"
#include "worker/agent/state_dir.h"

enum {
    TICK_MS = 50,
    CONNECT_MS = 5, /* while a gang is starting or dying: its socket is not there yet */
    LOG_BUDGET_SIZE = WIRE_CHUNK,
    QUEUE_SIZE = 1 << 20, /* not more than this into the transport ahead of an acknowledgement */
    QUIT_MS = 2000,       /* for seqd to hear the last reports */
    PROFILE_MS = 30000,
    PROFILE_SIZE = 8192,
    UNKNOWN_MS = 5000, /* between two attempts with a certificate that seqd does not take */
    ARENA_SIZE = 16 << 20
};

struct agent {
    struct loop *loop;
    struct agent_options o;
    struct state_dir state_dir;
    char address[RANK_ADDRESS_SIZE]; /* where ranks listen */
    char gang_program[FILE_PATH_SIZE], rank_program[FILE_PATH_SIZE];
    struct gpus *gpus; /* NULL: there are none */
    struct pins *pins; /* NULL: ranks are not bound to cores */
    struct trees *trees;
    struct node_removals *removals;
    struct disk_watch *disk;
    struct member *member;     /* NULL: sessions are plain */
    struct rpc_client *client; /* NULL: not joined yet */
    struct prepared *prepared; /* NULL: it could not begin */
    struct rpc_stream *stream; /* NULL: no session */
    bool accepted;             /* WELCOME came */
    bool refused;              /* REFUSED came instead */
    uint32_t abi;              /* what its HELLO said, or the next one will say */
    bool told_end;             /* in this session */
    int64_t session;           /* how many there were */
    struct attempt *attempts;
    struct loop_timer *tick, *heartbeat, *orphan, *quit;
    int64_t heartbeat_ms; /* as seqd wants them */
    bool quitting;
    struct questions *questions; /* of seqd, that programs answer */
    struct fetches *fetches;     /* of files that seqd fetches */
    struct capture *profiling;   /* seqrank --profile, once after the start */
    struct profile profile;      /* what it found; zeros: nothing yet */
    struct arena arena;          /* of the message being handled */
    char buf[SPOOL_RECORD_SIZE]; /* of the record or chunk being sent */
};

/* ---- sending --------------------------------------------------------------------------------- */

static int send_msg(struct agent *a, const struct msg *m)
{
    struct arena arena;
    size_t size;
    if (!a->stream || !wire_knows(a->abi, m->type)) return -1;
    arena_init(&arena, ARENA_SIZE);
    void *data = wire_pack_for(m, a->abi, &arena, &size);
    int rc = data ? rpc_send(a->stream, data, size) : -1;
    arena_fini(&arena);
    /* What does not go out now goes again from disk in a new session. */
    if (rc < 0) rpc_stream_close(a->stream);
    return rc;
}

static void send_record(struct agent *a, int64_t job, int64_t epoch, enum rank_msg_type type,
                        int rank, const void *payload, size_t size)
{
    struct rank_msg head = {RANK_ABI, (uint32_t)type, rank, (uint32_t)size};
    char record[sizeof head + sizeof(struct rank_fail)];
    assert(size <= sizeof(struct rank_fail));
    memcpy(record, &head, sizeof head);
    memcpy(record + sizeof head, payload, size);
    send_msg(a, &(struct msg){.type = MSG_REPORT,
                              .job = job,
                              .epoch = epoch,
                              .rank = rank,
                              .data = record,
                              .size = sizeof head + size});
}

/* A final record out of no spool: this node has no such attempt, or never began it. */
static void send_end(struct agent *a, int64_t job, int64_t epoch, enum gang_end how)
{
    struct rank_exit x = {.rank = RANK_GANG, .exit_status = how};
    send_record(a, job, epoch, RANK_EXIT, RANK_GANG, &x, sizeof x);
}

static bool can_send(const struct agent *a)
{
    return a->stream && a->accepted && rpc_stream_queued(a->stream) < QUEUE_SIZE;
}

static void pump_records(struct agent *a, struct attempt *t)
{
    bool final = false;
    int64_t n;
    while (!final && can_send(a) && (n = attempt_record(t, a->buf, &final)) > 0)
        send_msg(a, &(struct msg){.type = MSG_REPORT,
                                  .job = t->job,
                                  .epoch = t->epoch,
                                  .seq = t->spool.seq,
                                  .data = a->buf,
                                  .size = (size_t)n});
}

static void pump_logs(struct agent *a)
{
    int64_t budget = LOG_BUDGET_SIZE, n;
    for (struct attempt *t = a->attempts; t && budget > 0; t = t->next) {
        struct msg m = {.type = MSG_LOG, .job = t->job, .epoch = t->epoch, .data = a->buf};
        while (budget > 0 && can_send(a) &&
               (n = attempt_log_bytes(t, a->buf, (size_t)budget, &m.rank, &m.offset)) > 0) {
            m.size = (size_t)n;
            budget -= n;
            send_msg(a, &m);
        }
    }
}

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
    if (t->state != ATTEMPT_OVER) { /* when it is over */
        t->forget_wanted = true;
        attempt_stop(t);
        return;
    }
    while (*p != t) p = &(*p)->next;
    *p = t->next;
    cgroup_remove(t->dir);
    if (file_remove(t->dir, &e) < 0) log_error("attempt.remove", "why=\"%s\"", e.text);
    if (t->stale) send_end(a, t->job, t->epoch, GANG_UNKNOWN);
    if (!has_attempt(a, t->job)) removals_over(a->removals, t->job);
    attempt_free(t);
}

/* While seqd listens it gets QUIT_MS to hear the ends and say FORGET. */
static void quit_check(struct agent *a)
{
    if (!a->quitting) return;
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->state != ATTEMPT_OVER || a->stream) return;
    loop_stop(a->loop);
}

static void quit_late(void *arg)
{
    struct agent *a = arg;
    bool over = true;
    for (struct attempt *t = a->attempts; t; t = t->next) over = over && t->state == ATTEMPT_OVER;
    if (over)
        loop_stop(a->loop);
    else
        loop_timer_set(a->quit, QUIT_MS);
}

static void tick(void *arg)
{
    struct agent *a = arg;
    bool soon = false;
    for (struct attempt *t = a->attempts, *next; t; t = next) {
        next = t->next;
        soon = attempt_check(t) || soon;
        pump_records(a, t);
        if (t->state == ATTEMPT_OVER && t->forget_wanted) forget(a, t);
    }
    pump_logs(a);
    quit_check(a);
    if (a->attempts) loop_timer_set(a->tick, soon ? CONNECT_MS : TICK_MS);
}

/* The spool of an attempt grew, or its gang is gone. */
static void nudged(void *arg, struct attempt *t)
{
    struct agent *a = arg;
    pump_records(a, t);
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
        file_remove(dir, NULL); /* its start record was never complete: nothing began */
        return;
    }
    add(a, t, nudged);
    attempt_check(t);
    log_info("attempt.adopt", "job=%lld epoch=%lld state=%s", (long long)job, (long long)epoch,
             t->state == ATTEMPT_OVER ? "over"
             : t->sock >= 0           ? "alive"
                                      : "unknown");
}

/* ---- what seqd says -------------------------------------------------------------------------- */

static int grant(struct agent *a, const struct msg *m, struct gang_start *s, struct err *e)
{
    struct grants g = {0};
    grants_take(&g, &a->state_dir, m->grants, m->n_grants);
    if (grants_spec(&g, &a->state_dir, &s->spec, e) < 0) return -1;
    s->n_grants = g.n;
    memcpy(s->grants, g.dir, sizeof s->grants);
    return 0;
}

static int start_fill(struct agent *a, const struct msg *m, struct gang_start *s, struct err *e)
{
    *s = (struct gang_start){.abi = RANK_ABI,
                             .task = m->task,
                             .job = m->job,
                             .epoch = m->epoch,
                             .n_ranks = m->n_ranks,
                             .first_rank = m->first_rank,
                             .n_local = m->n_local,
                             .n_roots = a->state_dir.n_roots,
                             .memory_limit = m->memory_limit,
                             .submitted_s = m->submitted_s,
                             .orphan_ms = a->o.orphan_ms};
    memcpy(s->address, a->address, sizeof s->address);
    memcpy(s->key, m->key, sizeof s->key);
    memcpy(s->roots, a->state_dir.roots, sizeof s->roots);
    memcpy(s->writable, a->state_dir.writable, sizeof s->writable);
    s->n_writable = a->state_dir.n_writable;
    for (int i = 0; i < m->n_uuids; i++) memcpy(s->gpus[i], m->uuids[i], sizeof s->gpus[i]);
    memcpy(s->prepared_id, m->prepared_id, sizeof s->prepared_id);
    snprintf(s->prepared_dir, sizeof s->prepared_dir, "%s/prepared", a->state_dir.dir);
    snprintf(s->job_dir, sizeof s->job_dir, "%s/jobs/%lld", a->state_dir.dir, (long long)m->job);
    s->spec = *m->spec;
    if (grant(a, m, s, e) < 0) return -1;
    if (file_make_dir(s->job_dir, e) < 0) return -1;
    if (strlen(a->rank_program) >= sizeof s->seqrank)
        return err_set(e, ERR_TOO_LARGE, "the path %s is too long", a->rank_program);
    memcpy(s->seqrank, a->rank_program, strlen(a->rank_program) + 1);
    return 0;
}

/* A preparation finds out which data it makes, and takes those that are here. */
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

/* Ranks that compute with the CPU are bound to cores that no other attempt has: one whose end seqd
 * has been told of has none, though its gang may be there for a moment. A rank whose peers are on
 * other nodes has a thread more, which moves bytes. */
static bool bind(struct agent *a, const struct gang_start *s, cpu_set_t cpus[JOB_MAX_RANKS])
{
    cpu_set_t used;
    CPU_ZERO(&used);
    for (const struct attempt *t = a->attempts; t; t = t->next)
        if (t->state != ATTEMPT_OVER && !t->final_sent) CPU_OR(&used, &used, &t->cpus);
    return s->task == TASK_RUN && !*s->gpus[0] &&
           pins_choose(a->pins, &used, s->n_local,
                       s->spec.resources.threads + (s->n_local < s->n_ranks), cpus);
}

static int begin(struct agent *a, const struct msg *m, struct err *e)
{
    cpu_set_t cpus[JOB_MAX_RANKS];
    char on[128];
    char dir[FILE_PATH_SIZE];
    struct gang_start *start = calloc(1, sizeof *start);
    struct attempt *t = NULL;
    assert(start);
    if (state_dir_gang_dir(&a->state_dir, m->job, m->epoch, dir) == 0 &&
        start_fill(a, m, start, e) == 0 &&
        state_dir_epoch_set(&a->state_dir, m->job, m->epoch, e) == 0)
        t = attempt_begin(a->loop, dir, start, bind(a, start, cpus) ? cpus : NULL, a->gang_program,
                          e);
    explicit_bzero(start->key, sizeof start->key);
    free(start);
    if (!t) {
        file_remove(dir, NULL);
        return -1;
    }
    add(a, t, nudged);
    prepared_use(a->prepared, m->prepared_id);
    loop_timer_set(a->tick, 0);
    cores_print(&t->cpus, on, sizeof on);
    log_info("attempt.begin", "job=%lld epoch=%lld ranks=%d cpus=%s", (long long)m->job,
             (long long)m->epoch, m->n_local, *on ? on : "any");
    return 0;
}

/* A last look before a rank is started: seqd's is some seconds old. The rank whose GPU will not do,
 * or -1. */
static int unfit_rank(struct agent *a, const struct msg *m, struct err *e)
{
    struct gpu list[GPU_MAX];
    const int n = gpus_get(a->gpus, list);
    for (int i = 0; i < m->n_uuids; i++) {
        char why[160] = "this node does not have it";
        const int k = gpu_find(list, n, m->uuids[i]);
        if (k >= 0 && list[k].health == GPU_OK) continue;
        if (k >= 0) gpu_complaint(&list[k], why, sizeof why);
        err_set(e, ERR_DEVICE, "GPU %s of rank %d on node %s: %s", m->uuids[i], m->first_rank + i,
                a->o.name, why);
        return m->first_rank + i;
    }
    return -1;
}

static void on_assign(struct agent *a, const struct msg *m)
{
    struct err e = {0};
    if (find(a, m->job, m->epoch)) return;            /* again */
    const bool full = n_attempts(a) >= WIRE_ATTEMPTS; /* HELLO could not name them all */
    if (a->quitting || full || m->epoch <= state_dir_epoch(&a->state_dir, m->job)) {
        log_warn("attempt.refuse", "job=%lld epoch=%lld why=\"%s\"", (long long)m->job,
                 (long long)m->epoch,
                 full          ? "too many attempts are here"
                 : a->quitting ? "the agent is stopping"
                               : "the epoch is not new");
        send_end(a, m->job, m->epoch, GANG_UNKNOWN);
        return;
    }
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->job == m->job) attempt_stop(t); /* a newer epoch fences off the older ones */
    int rank = unfit_rank(a, m, &e);
    if (rank < 0 && begin(a, m, &e) == 0) return;
    struct rank_fail f = {.code = (int32_t)e.code};
    memcpy(f.field, e.field, sizeof f.field);
    memcpy(f.text, e.text, sizeof f.text);
    log_error("attempt.begin", "job=%lld why=\"%s\"", (long long)m->job, e.text);
    send_record(a, m->job, m->epoch, RANK_FAIL, rank < 0 ? RANK_GANG : rank, &f, sizeof f);
    send_end(a, m->job, m->epoch, GANG_LOST);
}

static bool listed(const struct msg *m, int64_t job, int64_t epoch)
{
    for (int i = 0; i < m->n_attempts; i++)
        if (m->attempts[i].job == job && m->attempts[i].epoch == epoch) return true;
    return false;
}

/* What no message of the list named. */
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
            send_end(a, m->attempts[i].job, m->attempts[i].epoch, GANG_UNKNOWN);
}

static void send_profile(struct agent *a)
{
    const struct msg m = {.type = MSG_PROFILE, .profile = a->profile};
    if (a->accepted && a->profile.hop > 0) send_msg(a, &m);
}

/* Without one jobs run all the same: seqd then does not say what a step would take. */
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

/* Of a session before this one it is no answer: a seqd that was restarted counts from 1 again, and
 * would take it for that of another file. */
static void fetched(void *arg, const struct fetch_op *op)
{
    struct agent *a = arg;
    struct msg m = {.type = MSG_FETCHED, .request = op->request, .offset = op->file.offset};
    m.err = op->err;
    m.data = op->buf;
    m.size = op->n > 0 ? (size_t)op->n : 0;
    m.total = op->file.total;
    m.stamp = op->file.stamp;
    if (op->session == a->session) send_msg(a, &m);
}

static void on_fetch(struct agent *a, const struct msg *m)
{
    struct msg no = {.type = MSG_FETCHED, .request = m->request, .offset = m->offset};
    if (fetches_add(a->fetches, a->session, m, &no.err)) send_msg(a, &no);
}

/* Of a question or a removal: without a session it is asked again. */
static void answered(void *arg, const struct msg *m)
{
    send_msg(arg, m);
}

/* SAVE, STOP, BLOBS, ACK, FORGET: about an attempt that may not be here. */
static void on_attempt(struct agent *a, const struct msg *m)
{
    struct attempt *t = find(a, m->job, m->epoch);
    if (!t) {
        if (m->type == MSG_STOP || m->type == MSG_SAVE) send_end(a, m->job, m->epoch, GANG_UNKNOWN);
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

/* Of a node that is not known to end seqd need not hear, but where it has heard otherwise. */
static void send_leaving(struct agent *a)
{
    const struct msg m = {.type = MSG_LEAVING, .end_s = a->o.end_s, .margin_s = a->o.margin_s};
    if (!a->accepted || !wire_knows(a->abi, MSG_LEAVING)) return;
    if (!a->o.end_s && !a->told_end) return;
    if (!send_msg(a, &m)) a->told_end = true;
}

static void on_welcome(struct agent *a, const struct msg *m)
{
    const uint32_t abi = wire_choose(m->abi);
    if (abi > a->abi) { /* seqd has been upgraded since it refused that */
        rpc_stream_close(a->stream);
        return;
    }
    if (a->abi < WIRE_ABI)
        log_warn("session.before",
                 "address=%s abi=%u text=\"this seqd is of an older version: what it does not know "
                 "waits until it is upgraded\"",
                 a->o.connect, a->abi);
    a->accepted = true;
    a->heartbeat_ms = m->heartbeat_ms;
    loop_timer_set(a->orphan, -1);
    log_info("session.up", "address=%s node=%s", a->o.connect, a->o.name);
    loop_timer_set(a->heartbeat, a->heartbeat_ms);
    loop_timer_set(a->tick, 0);
    send_profile(a);
    a->told_end = false;
    send_leaving(a);
    if (a->member) member_welcome(a->member);
}

/* seqd says how long it is no use to dial again; but it may be of use with the ABI before. */
static void on_refused(struct agent *a, const struct msg *m)
{
    if (a->member && a->accepted && member_answer(a->member, m)) return;
    const uint32_t said = a->abi;
    a->abi = wire_choose(m->abi);
    a->refused = true;
    if (a->abi < said) {
        log_warn("session.before", "address=%s abi=%u next=%u why=\"%s\"", a->o.connect, said,
                 a->abi, m->reason);
        rpc_stream_close(a->stream);
        return;
    }
    log_error("session.refused", "address=%s node=%s retry_ms=%lld why=\"%s\"", a->o.connect,
              a->o.name, (long long)m->retry_ms, m->reason);
    rpc_client_wait(a->client, m->retry_ms);
    rpc_stream_close(a->stream);
    if (a->member) member_refused(a->member);
}

static void on_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct agent *a = arg;
    struct msg m;
    struct err e;
    if (wire_unpack(data, size, &a->arena, &m, &e) < 0) {
        log_error("session.message", "why=\"%s\"", e.text);
        rpc_stream_close(s);
        arena_reset(&a->arena);
        return;
    }
    switch (m.type) {
    case MSG_WELCOME: on_welcome(a, &m); break;
    case MSG_REFUSED: on_refused(a, &m); break;
    case MSG_ASSIGN: on_assign(a, &m); break;
    case MSG_EXPECT: on_expect(a, &m); break;
    case MSG_DESCRIBE: questions_describe(a->questions, &m); break;
    case MSG_TRACE: questions_trace(a->questions, &m); break;
    case MSG_FETCH: on_fetch(a, &m); break;
    case MSG_REMOVE: removals_take(a->removals, &m, has_attempt(a, m.job)); break;
    case MSG_SAVE:
    case MSG_STOP:
    case MSG_BLOBS:
    case MSG_ACK:
    case MSG_FORGET: on_attempt(a, &m); break;
    case MSG_HELLO:
    case MSG_HEARTBEAT:
    case MSG_REPORT:
    case MSG_LOG:
    case MSG_DESCRIBED:
    case MSG_FETCHED:
    case MSG_REMOVED:
    case MSG_PROFILE:
    case MSG_LEAVING:
    case MSG_TYPE_N:
    case MSG_JOIN: rpc_stream_close(s); break; /* these only go the other way */
    case MSG_JOINED:
        if (!a->member || !member_answer(a->member, &m)) rpc_stream_close(s);
        break;
    }
    arena_reset(&a->arena);
}

/* ---- the session ----------------------------------------------------------------------------- */

static void on_opened(void *arg, struct rpc_stream *s)
{
    struct agent *a = arg;
    const struct allocation *given = a->o.allocation;
    struct msg m = {.type = MSG_HELLO,
                    .abi = a->abi,
                    .n_slots = a->o.n_slots,
                    .n_cores = given ? (int)given->cores.n : probe_cores(),
                    .memory_size = given ? given->memory.n : probe_memory_size(),
                    .emulated = a->o.emulated};
    struct gpu gpus[GPU_MAX];
    struct wire_attempt *list;
    a->stream = s;
    a->session++;
    a->accepted = false;
    a->refused = false;
    list = calloc((size_t)n_attempts(a) + 1, sizeof *list);
    assert(list);
    for (struct attempt *t = a->attempts; t; t = t->next) {
        int slots = t->state == ATTEMPT_OVER ? 0 : t->n_running;
        list[m.n_attempts++] = (struct wire_attempt){t->job, t->epoch, slots};
        attempt_rewind(t);
        t->expected = false; /* a list that the last session broke off */
    }
    m.attempts = list;
    m.gpus = gpus;
    m.n_gpus = gpus_get(a->gpus, gpus);
    memcpy(m.instance, a->state_dir.instance, sizeof m.instance);
    snprintf(m.node, sizeof m.node, "%s", a->o.name);
    snprintf(m.version, sizeof m.version, "%s", version_text());
    memcpy(m.address, a->address, sizeof m.address);
    send_msg(a, &m);
    free(list);
}

static void on_closed(void *arg, struct rpc_stream *s, const char *why)
{
    struct agent *a = arg;
    log_warn("session.down", "address=%s why=\"%s\"", a->o.connect, why);
    a->stream = NULL;
    a->accepted = false;
    removals_drop(a->removals);
    if (!a->refused) a->abi = WIRE_ABI; /* seqd may be another one now */
    loop_timer_set(a->heartbeat, -1);
    if (a->o.orphan_ms > 0) loop_timer_set(a->orphan, a->o.orphan_ms);
    quit_check(a);
}

static void heartbeat(void *arg)
{
    struct agent *a = arg;
    struct gpu list[GPU_MAX];
    const int n = gpus_get(a->gpus, list);
    send_msg(
        a, &(struct msg){
               .type = MSG_HEARTBEAT, .gpus = list, .n_gpus = n, .disk = disk_watch_use(a->disk)});
    loop_timer_set(a->heartbeat, a->heartbeat_ms);
}

static void orphaned(void *arg)
{
    agent_quit(arg, "no session for too long");
}

/* ---- life ------------------------------------------------------------------------------------ */

void agent_quit(struct agent *a, const char *why)
{
    if (a->quitting) return;
    log_info("agent.quit", "why=\"%s\"", why);
    a->quitting = true;
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->state != ATTEMPT_OVER) attempt_stop(t);
    loop_timer_set(a->quit, QUIT_MS);
    quit_check(a);
}

bool agent_connected(const struct agent *a, int *n)
{
    *n = n_attempts(a);
    return a->accepted;
}

void agent_set_orphan(struct agent *a, int64_t orphan_ms)
{
    if (a->o.orphan_ms == orphan_ms) return;
    a->o.orphan_ms = orphan_ms;
    if (!a->accepted) loop_timer_set(a->orphan, orphan_ms > 0 ? orphan_ms : -1);
}

void agent_set_end(struct agent *a, int64_t end_s, int64_t margin_s)
{
    if (a->o.end_s == end_s && a->o.margin_s == margin_s) return;
    a->o.end_s = end_s;
    a->o.margin_s = margin_s;
    send_leaving(a);
}

/* seqd opens no session for this certificate. */
static void on_unknown(void *arg, const char *why)
{
    struct agent *a = arg;
    rpc_client_wait(a->client, UNKNOWN_MS);
    member_refused(a->member);
}

static const struct rpc_calls session_calls = {on_opened, on_message, on_closed, on_unknown};

/* There is a certificate, or another one: sessions begin with it. */
static void on_identity(void *arg)
{
    struct agent *a = arg;
    struct err e;
    const struct rpc_identity *id = member_identity(a->member);
    if (a->client) {
        rpc_client_renew(a->client, id);
        if (a->stream) rpc_stream_close(a->stream);
        return;
    }
    a->client = rpc_dial_tls(a->loop, a->o.connect, id, &session_calls, a, &e);
    if (!a->client) log_error("session.dial", "why=\"%s\"", e.text);
}

static int member_send(void *arg, const struct msg *m)
{
    struct agent *a = arg;
    return a->accepted ? send_msg(a, m) : -1;
}

static int dial(struct agent *a, struct err *e)
{
    static const struct member_calls calls = {on_identity, member_send};
    const struct member_options o = {a->o.connect, a->o.name, a->o.state, a->o.token_file};
    if (!address_is_plain(a->o.connect)) {
        a->member = member_open(a->loop, &o, &calls, a, e);
        if (a->member && member_identity(a->member)) on_identity(a);
        return a->member ? 0 : -1;
    }
    if (a->o.token_file)
        return err_set(
            e, ERR_INVALID,
            "--join-token-file is for --connect HOST:port: at %s no certificate is asked for",
            a->o.connect);
    if (address_target(a->o.connect) != a->o.connect)
        log_warn(
            "session.insecure",
            "address=%s text=\"sessions there are neither encrypted nor authenticated: a machine "
            "between can start programs here\"",
            a->o.connect);
    a->client = rpc_dial(a->loop, a->o.connect, &session_calls, a, e);
    return a->client ? 0 : -1;
}

/* With --auto: the GPUs that are ours, and the slots that follow. */
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
    if (dial(a, e) < 0) return -1;
    profile_start(a);
    return 0;
}

struct agent *agent_create(struct loop *l, const struct agent_options *o, struct err *e)
{
    struct agent *a = calloc(1, sizeof *a);
    assert(a);
    a->loop = l;
    a->o = *o;
    a->abi = WIRE_ABI;
    a->state_dir.lock_fd = -1;
    arena_init(&a->arena, ARENA_SIZE);
    a->tick = loop_timer_create(l, tick, a);
    a->heartbeat = loop_timer_create(l, heartbeat, a);
    a->orphan = loop_timer_create(l, orphaned, a);
    a->quit = loop_timer_create(l, quit_late, a);
    a->trees = trees_create(l);
    a->removals = removals_create(a->trees, &a->state_dir, answered, a);
    if (agent_open(a, e) == 0) return a;
    agent_destroy(a);
    return NULL;
}

void agent_destroy(struct agent *a)
{
    if (!a) return;
    member_close(a->member);
    rpc_client_destroy(a->client);
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
    arena_fini(&a->arena);
    free(a);
}
