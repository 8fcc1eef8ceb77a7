/* Keeps the attempts of this node, and the node's session with seqd. orders.c applies seqd's
 * messages. All code here runs on the loop thread. No data are lost if the agent ends, because
 * the data for seqd are in spools and logs on disk. relay.c reads these data by offset and
 * sends them until seqd acknowledges them. If a session breaks or the agent is killed, bytes
 * without an acknowledgement are sent again. */
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
#include "api/core/sandbox.h"
#include "api/core/seccomp.h"
#include "api/core/version.h"
#include "worker/agent/agent_state.h"
#include "worker/agent/orders.h"
#include "worker/agent/probe.h"
#include "worker/agent/relay.h"

enum {
    TICK_MS = 50,
    WATCH_MS = 1000, /* time after which gangs are looked at again */
    CONNECT_MS = 5,  /* time between two checks of a gang that is starting or dying */
    QUIT_MS = 2000   /* time for seqd to receive the last reports */
};

/* ---- attempts -------------------------------------------------------------------------------- */

struct attempt *agent_find(struct agent *a, int64_t job, int64_t epoch)
{
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->job == job && t->epoch == epoch) return t;
    return NULL;
}

int agent_n_attempts(const struct agent *a)
{
    int n = 0;
    for (const struct attempt *t = a->attempts; t; t = t->next) n++;
    return n;
}

bool agent_has_attempt(const struct agent *a, int64_t job)
{
    for (const struct attempt *t = a->attempts; t; t = t->next)
        if (t->job == job) return true;
    return false;
}

void agent_forget(struct agent *a, struct attempt *t)
{
    struct err e;
    struct attempt **p = &a->attempts;
    if (t->state != ATTEMPT_OVER) { /* the work of agent_forget is completed later, when the
                                     * attempt is over */
        t->forget_wanted = true;
        attempt_stop(t);
        return;
    }
    while (*p != t) p = &(*p)->next;
    *p = t->next;
    answers_forget(a->answers, t);
    cgroup_remove(t->dir);
    if (file_remove(t->dir, &e) < 0) log_error("attempt.remove", "why=\"%s\"", e.text);
    if (t->stale) relay_end(a->session, t->job, t->epoch, GANG_UNKNOWN);
    if (!agent_has_attempt(a, t->job)) removals_over(a->removals, t->job);
    attempt_free(t);
}

void agent_quit_check(struct agent *a)
{
    if (!a->quitting && !a->leave_s) return;
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (!a->quitting || t->state != ATTEMPT_OVER || session_is_open(a->session)) return;
    loop_stop(a->loop);
}

void agent_stop_all(struct agent *a, const char *why)
{
    if (a->quitting) return;
    log_info("agent.quit", "why=\"%s\"", why);
    a->quitting = true;
    for (struct attempt *t = a->attempts; t; t = t->next)
        if (t->state != ATTEMPT_OVER) attempt_stop(t);
    loop_timer_set(a->quit, QUIT_MS);
    agent_quit_check(a);
}

/* Returns true if all processes of an attempt are gone although its final record could not be
 * written. The next agent with this state directory writes the record when the disk has room. */
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
        agent_stop_all(a, "the grace is over");
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

/* Watches the gangs once a second. Time in which the machine was suspended, or this process was
 * stopped, does not count. */
static void watch_gangs(struct agent *a)
{
    const int64_t now_ms = loop_now_ms(a->loop), dt_ms = now_ms - a->watched_ms;
    if (dt_ms < WATCH_MS) return;
    a->watched_ms = now_ms;
    for (struct attempt *t = a->attempts; t; t = t->next)
        attempt_watch(t, dt_ms < 2 * WATCH_MS ? dt_ms : 2 * WATCH_MS, a->o.still_ms);
}

static void tick(void *arg)
{
    struct agent *a = arg;
    bool soon = false;
    watch_gangs(a);
    for (struct attempt *t = a->attempts, *next; t; t = next) {
        next = t->next;
        soon = attempt_check(t) || soon;
        relay_records(a->session, t, a->buf);
        if (t->state == ATTEMPT_OVER && t->forget_wanted) agent_forget(a, t);
    }
    answers_flush(a->answers);
    relay_logs(a->session, a->attempts, a->buf);
    agent_quit_check(a);
    if (a->attempts) loop_timer_set(a->tick, soon ? CONNECT_MS : TICK_MS);
}

/* Sends new records to seqd. Called when the spool of an attempt has grown, or when its gang is
 * gone. */
static void nudged(void *arg, struct attempt *t)
{
    struct agent *a = arg;
    relay_records(a->session, t, a->buf);
    if (t->sock >= 0) return;
    answers_gang_gone(a->answers, t);
    loop_timer_set(a->tick, 0);
}

static void received(void *arg, struct attempt *t, const void *packet, size_t size)
{
    answers_packet(((struct agent *)arg)->answers, t, packet, size);
}

void agent_add(struct agent *a, struct attempt *t)
{
    t->nudge = nudged;
    t->packet = received;
    t->owner = a;
    t->next = a->attempts;
    a->attempts = t;
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
        file_remove(dir, NULL); /* remove the directory: its start record is not complete, so
                                 * no gang was started from it */
        return;
    }
    agent_add(a, t);
    attempt_check(t);
    log_info("attempt.adopt", "job=%lld epoch=%lld state=%s", (long long)job, (long long)epoch,
             t->state == ATTEMPT_OVER ? "over"
             : t->sock >= 0           ? "alive"
                                      : "unknown");
}

/* Returns true if an attempt uses the data or may use them. A preparation may use any data,
 * because the id of its data is not known yet. */
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
    if (file_join(dir, NULL, "%s/prepared", a->state_dir.files) < 0) return;
    a->prepared = prepared_create(a->loop, a->trees, dir, &a->o.keep, a->state_dir.shared != 0,
                                  &calls, a);
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
                    .shared = a->state_dir.shared,
                    .emulated = a->o.emulated};
    struct gpu gpus[GPU_MAX];
    struct wire_attempt *list;
    list = calloc((size_t)agent_n_attempts(a) + 1, sizeof *list);
    assert(list);
    for (struct attempt *t = a->attempts; t; t = t->next) {
        const bool over = t->state == ATTEMPT_OVER;
        list[m.n_attempts++] = (struct wire_attempt){t->job, t->epoch, over ? 0 : t->n_running,
                                                     over ? 0 : t->n_gpus};
        attempt_rewind(t);
        t->expected = false; /* the last session may have set this by an EXPECT whose last message
                              * was not received */
    }
    m.attempts = list;
    m.gpus = gpus;
    m.n_gpus = gpus_get(a->gpus, gpus);
    memcpy(m.instance, a->state_dir.instance, sizeof m.instance);
    snprintf(m.node, sizeof m.node, "%s", a->o.name);
    snprintf(m.version, sizeof m.version, "%s", version_text());
    memcpy(m.sandbox, a->sandbox, sizeof m.sandbox);
    memcpy(m.address, a->address, sizeof m.address);
    session_send(a->session, &m);
    free(list);
}

/* Returns true if seqd understands LEAVING. Also returns true if no session is up, because the
 * version of seqd is then not known. */
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
    orders_send_profile(a);
    a->told_end = false;
    orders_send_leaving(a);
    if (a->leave_s && !can_leave(a)) agent_stop_all(a, "this seqd cannot let jobs save");
}

static void on_down(void *arg)
{
    struct agent *a = arg;
    removals_drop(a->removals);
    questions_drop(a->questions);
    answers_session_down(a->answers);
    loop_timer_set(a->heartbeat, -1);
    if (a->up && a->o.orphan_ms > 0) loop_timer_set(a->orphan, a->o.orphan_ms);
    a->up = false;
    agent_quit_check(a);
}

static void heartbeat(void *arg)
{
    struct agent *a = arg;
    struct gpu list[GPU_MAX];
    const int n = gpus_get(a->gpus, list);
    const struct msg m = {.type = MSG_HEARTBEAT,
                          .gpus = list,
                          .n_gpus = n,
                          .disk = disk_watch_use(a->disk),
                          .shared = shared_watch_good(a->shared) ? a->state_dir.shared : 0};
    session_send(a->session, &m);
    loop_timer_set(a->heartbeat, a->heartbeat_ms);
}

static void orphaned(void *arg)
{
    struct agent *a = arg;
    if (a->o.key_file) a->code = 1;
    agent_stop_all(a, "no session for too long");
}

static const struct session_calls session_calls = {on_opened, on_up, orders_take, on_down};

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
             agent_n_attempts(a));
    a->leave_s = utc_s() + (grace_ms + 999) / 1000;
    loop_timer_set(a->quit, grace_ms);
    orders_send_leaving(a);
    agent_quit_check(a);
}

/* Sends seqd the message that this node ends. After this message seqd places no more jobs
 * here. Then stops all gangs. */
void agent_quit(struct agent *a, const char *why)
{
    if (a->quitting) return;
    a->leave_s = utc_s();
    orders_send_leaving(a);
    agent_stop_all(a, why);
}

bool agent_connected(const struct agent *a, int *n)
{
    *n = agent_n_attempts(a);
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
    orders_send_leaving(a);
}

/* With --auto, keeps only the GPUs that the engine allocated, and computes the number of slots. */
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

/* Prepares the control groups, and says once which parts the sandbox of this node's ranks lacks. */
static int sandbox_begin(struct agent *a, struct err *e)
{
    char kernel[SANDBOX_TEXT] = "", groups[SANDBOX_TEXT] = "";
    snprintf(a->sandbox, sizeof a->sandbox, "off");
    if (a->o.sandbox == SANDBOX_OFF) {
        log_info("agent.sandbox", "mode=off text=\"ranks reach all that seqw reaches\"");
        return 0;
    }
    const int can = cgroup_begin(groups, sizeof groups);
    const bool limits = can == (CGROUP_MEMORY | CGROUP_PIDS);
    const bool lacks = sandbox_lacks(kernel, sizeof kernel);
    if (a->o.sandbox == SANDBOX_REQUIRE && (lacks || !limits))
        return err_set(e, ERR_UNSUPPORTED, "--sandbox require: %s", lacks ? kernel : groups);
    snprintf(a->sandbox, sizeof a->sandbox, "%s: landlock %d%s%s%s", sandbox_modes[a->o.sandbox],
             landlock_abi(), seccomp_works() ? ", seccomp" : "",
             can & CGROUP_MEMORY ? ", memory" : "", can & CGROUP_PIDS ? ", pids" : "");
    log_info("agent.sandbox", "has=\"%s\"", a->sandbox);
    if (lacks) log_warn("agent.sandbox", "text=\"%s\"", kernel);
    if (!limits)
        log_warn("agent.sandbox", "text=\"no limit of memory or processes for attempts: %s\"",
                 groups);
    return 0;
}

static int agent_open(struct agent *a, struct err *e)
{
    if (!wire_name_good(a->o.name))
        return err_set(e, ERR_INVALID,
                       "--name '%s': want 1 to %d characters, letters, digits, '.', '_', '-', ':'",
                       a->o.name, NODE_NAME - 1);
    if (probe_address(a->o.address, a->o.connect, a->address, e) < 0) return -1;
    char bin[PATH_MAX]; /* made absolute, because the working directory of seqgang may differ
                         * from that of seqw */
    if (!realpath(a->o.bin, bin)) return err_errno(e, "--bin %s", a->o.bin);
    if (file_join(a->gang_program, e, "%s/seqgang", bin) < 0) return -1;
    if (file_join(a->rank_program, e, "%s/seqrank", bin) < 0) return -1;
    if (access(a->gang_program, X_OK) < 0) return err_errno(e, "%s", a->gang_program);
    if (state_dir_open(&a->state_dir, a->o.state, a->o.roots, a->o.n_roots, e) < 0 ||
        state_dir_writable(&a->state_dir, a->o.writable, a->o.n_writable, e) < 0)
        return -1;
    if (a->o.shared && state_dir_share(&a->state_dir, a->o.shared, e)) return -1;
    if (state_dir_scan(&a->state_dir, adopt, a, e) < 0) return -1;
    if (agent_n_attempts(a) > WIRE_ATTEMPTS)
        return err_set(e, ERR_TOO_LARGE,
                       "%s/gangs has %d attempts, at most %d are possible: remove the directories "
                       "of attempts that are over",
                       a->state_dir.dir, agent_n_attempts(a), WIRE_ATTEMPTS);
    if (sandbox_begin(a, e) < 0) return -1;
    const struct questions_options q = {.loop = a->loop,
                                        .state_dir = &a->state_dir,
                                        .rank_program = a->rank_program,
                                        .sandbox = a->o.sandbox,
                                        .node = a->o.name,
                                        .send = orders_answered,
                                        .arg = a};
    a->questions = questions_create(&q);
    a->fetches = fetches_create(a->loop, &a->state_dir, orders_fetched, a);
    keep_prepared(a);
    if (a->state_dir.shared)
        a->shared = shared_watch_create(a->state_dir.files, a->state_dir.shared);
    a->disk = disk_watch_create(a->loop, a->trees, a->state_dir.files);
    if (a->attempts) loop_timer_set(a->tick, 0);
    if (a->o.orphan_ms > 0) loop_timer_set(a->orphan, a->o.orphan_ms);
    if (a->o.nvml) a->gpus = gpus_open(a->o.nvml, bin, a->o.state, a->o.look_ms);
    if (a->o.pins) a->pins = pins_open(a->o.pins);
    if (take_allocation(a, e) < 0) return -1;
    if (address_is_plain(a->o.connect) ? address_dial_plain_check(a->o.connect, e)
                                       : address_dial_tls_check(a->o.connect, e))
        return err_prefix(e, "--connect");
    if (session_dial(a->session, e) < 0) return -1;
    orders_profile(a);
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
    const struct session_options s = {o->connect, o->name, o->state, o->token_file, o->key_file};
    a->session = session_create(l, &s, &session_calls, a);
    a->answers = answers_create(a->session);
    a->trees = trees_create(l);
    a->removals = removals_create(a->trees, &a->state_dir, orders_answered, a);
    if (agent_open(a, e) == 0) return a;
    agent_destroy(a);
    return NULL;
}

int agent_code(const struct agent *a)
{
    return a->code;
}

void agent_destroy(struct agent *a)
{
    if (!a) return;
    session_destroy(a->session);
    answers_destroy(a->answers);
    trees_destroy(a->trees);
    removals_destroy(a->removals);
    fetches_destroy(a->fetches);
    disk_watch_destroy(a->disk);
    shared_watch_destroy(a->shared);
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
