/* orders.c: applies the messages of seqd. There is one function for each message, or for each
 * group of messages about one subject. An attempt begins only if its epoch is newer than the
 * epoch of every attempt of its job that has begun on this node (state_dir_epoch). Older
 * attempts of the job are told to stop first. */
#include "worker/agent/orders.h"

#include "api/core/log.h"
#include "worker/agent/agent_state.h"
#include "worker/agent/launch.h"
#include "worker/agent/relay.h"
#include "worker/agent/shared.h"

enum { PROFILE_MS = 30000, PROFILE_SIZE = 8192 };

/* Begins an attempt. After a failure *rank is the rank that cannot be started, or -1 if the whole
 * gang cannot be started. */
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
                             .orphan_ms = a->o.orphan_ms,
                             .sandbox = a->o.sandbox};
    struct attempt *t;
    if ((*rank = launch_unfit_rank(&l, m, e)) >= 0) return -1;
    if (!(t = launch_attempt(&l, m, e))) return -1;
    agent_add(a, t);
    prepared_use(a->prepared, m->prepared_id);
    loop_timer_set(a->tick, 0);
    return 0;
}

/* Tells seqd that an attempt cannot begin on this node. rank is the rank that cannot be started,
 * or RANK_GANG. */
static void cannot_begin(struct agent *a, const struct msg *m, int rank, const struct err *e)
{
    log_error("attempt.begin", "job=%lld why=\"%s\"", (long long)m->job, e->text);
    relay_failure(a->session, m->job, m->epoch, rank, e);
    relay_end(a->session, m->job, m->epoch, GANG_LOST);
}

static void on_assign(struct agent *a, const struct msg *m)
{
    struct err e = {0};
    int64_t newest;
    /* If the attempt exists already, the message was sent before. */
    if (agent_find(a, m->job, m->epoch)) return;
    const bool full = agent_n_attempts(a) >= WIRE_ATTEMPTS; /* HELLO can name no more attempts */
    const bool ends = a->quitting || a->leave_s;
    if (state_dir_epoch(&a->state_dir, m->job, &newest, &e)) {
        cannot_begin(a, m, RANK_GANG, &e);
        return;
    }
    if (ends || full || m->epoch <= newest) {
        log_warn("attempt.refuse", "job=%lld epoch=%lld why=\"%s\"", (long long)m->job,
                 (long long)m->epoch,
                 full   ? "too many attempts are here"
                 : ends ? "the agent is stopping"
                        : "the epoch is not new");
        relay_end(a->session, m->job, m->epoch, GANG_UNKNOWN);
        return;
    }
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->job == m->job) attempt_stop(t); /* only the attempt of the newest epoch may run */
    int rank = -1;
    if (begin(a, m, &rank, &e)) cannot_begin(a, m, rank < 0 ? RANK_GANG : rank, &e);
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
        agent_forget(a, t);
    }
}

static void on_expect(struct agent *a, const struct msg *m)
{
    for (struct attempt *t = a->attempts; t; t = t->next)
        t->expected = t->expected || listed(m, t->job, t->epoch);
    if (!m->more) end_unexpected(a);
    for (int i = 0; i < m->n_attempts; i++)
        if (!agent_find(a, m->attempts[i].job, m->attempts[i].epoch))
            relay_end(a->session, m->attempts[i].job, m->attempts[i].epoch, GANG_UNKNOWN);
}

void orders_send_profile(struct agent *a)
{
    const struct msg m = {.type = MSG_PROFILE, .profile = a->profile};
    if (session_is_up(a->session) && a->profile.hop > 0) session_send(a->session, &m);
}

/* Stores the profile. Jobs run without a profile, too, but seqd then cannot estimate the duration
 * of a step. */
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
    orders_send_profile(a);
}

void orders_profile(struct agent *a)
{
    char *argv[] = {"seqrank", "--profile", NULL};
    const struct capture_options o = {a->loop,    a->rank_program, argv,     0,
                                      PROFILE_MS, PROFILE_SIZE,    profiled, a};
    struct err e = {0};
    if (!(a->profiling = capture_start(&o, &e))) profiled(a, 0, "", 0, &e);
}

void orders_fetched(void *arg, const struct fetch_op *op)
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

void orders_answered(void *arg, const struct msg *m)
{
    struct agent *a = arg;
    session_send(a->session, m);
}

/* Applies SAVE, STOP, BLOBS, ACK or FORGET to an attempt. The attempt may be unknown to this
 * node. */
static void on_attempt(struct agent *a, const struct msg *m)
{
    struct attempt *t = agent_find(a, m->job, m->epoch);
    if (!t) {
        if (m->type == MSG_STOP || m->type == MSG_SAVE)
            relay_end(a->session, m->job, m->epoch, GANG_UNKNOWN);
        return;
    }
    if (m->type == MSG_STOP || m->type == MSG_SAVE) {
        const bool save = m->type == MSG_SAVE;
        log_info(save ? "attempt.save" : "attempt.stop", "job=%lld epoch=%lld why=\"%s\"",
                 (long long)m->job, (long long)m->epoch, m->reason);
        if (save)
            attempt_save(t, m->reason);
        else
            attempt_stop(t);
    }
    if (m->type == MSG_BLOBS) attempt_blobs(t, m->blobs, m->n_blobs);
    if (m->type == MSG_ACK) attempt_ack(t, m);
    if (m->type == MSG_FORGET) agent_forget(a, t);
    agent_quit_check(a);
}

void orders_send_leaving(struct agent *a)
{
    struct msg m = {.type = MSG_LEAVING, .end_s = a->o.end_s, .margin_s = a->o.margin_s};
    if (a->leave_s) m.end_s = a->leave_s, m.margin_s = WIRE_MAX_TIME_S;
    if (!session_is_up(a->session) || !wire_knows(session_abi(a->session), MSG_LEAVING)) return;
    if (!m.end_s && !a->told_end) return;
    if (!session_send(a->session, &m)) a->told_end = true;
}

bool orders_take(void *arg, const struct msg *m)
{
    struct agent *a = arg;
    switch (m->type) {
    case MSG_ASSIGN: on_assign(a, m); break;
    case MSG_EXPECT: on_expect(a, m); break;
    case MSG_DESCRIBE: questions_describe(a->questions, m); break;
    case MSG_TRACE: questions_trace(a->questions, m); break;
    case MSG_FETCH: on_fetch(a, m); break;
    case MSG_REMOVE:
        removals_take(a->removals, m, agent_has_attempt(a, m->job), !shared_watch_good(a->shared));
        break;
    case MSG_SAVE:
    case MSG_STOP:
    case MSG_BLOBS:
    case MSG_ACK:
    case MSG_FORGET: on_attempt(a, m); break;
    case MSG_QUIT:
        a->code = m->code;
        agent_stop_all(a, m->reason);
        break;
    case MSG_ASK:
    case MSG_CREDIT:
    case MSG_DROP: answers_take(a->answers, agent_find(a, m->job, m->epoch), m); break;
    case MSG_WELCOME: /* session.c handles these messages */
    case MSG_REFUSED:
    case MSG_JOINED:
    case MSG_PROOF:
    case MSG_HELLO: /* seqw sends these messages, and seqd never does */
    case MSG_HEARTBEAT:
    case MSG_REPORT:
    case MSG_LOG:
    case MSG_DESCRIBED:
    case MSG_FETCHED:
    case MSG_REMOVED:
    case MSG_PROFILE:
    case MSG_LEAVING:
    case MSG_ANSWER:
    case MSG_JOIN:
    case MSG_PROVE:
    case MSG_TYPE_N: return false;
    }
    return true;
}
