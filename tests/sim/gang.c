/* gang.c: seqgang and its ranks, by the rules of api/core/gang_start.h and rank.h. The directory,
 * the lock, the socket and the spool are real, but there are no processes. Every act of a gang is
 * recorded, and the checker compares seqd's state with these records. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/job_state.h"
#include "tests/sim/gang.h"
#include "worker/agent/spawn.h"

struct gang gangs[SIM_GANGS];
int n_gangs, active[SIM_GANGS], n_active;

void gangs_reset(void)
{
    n_gangs = n_active = 0;
    truth_reset();
}

/* ---- the spool ------------------------------------------------------------------------------- */

static void record(struct gang *g, int type, int rank, const void *data, size_t size,
                   const char *text)
{
    char out[sizeof(struct rank_step) + sizeof(struct rank_fail) + 512];
    const size_t n = text ? strlen(text) : 0;
    struct err e;
    if (size) memcpy(out, data, size);
    if (n) memcpy(out + size, text, n);
    const struct rank_msg head = {.type = (uint32_t)type, .rank = rank};
    if (spool_add(&g->spool, head, out, size + n, type == RANK_EXIT, &e)) abort();
    if (g->sock_fd >= 0) send(g->sock_fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void rank_exits(struct gang *g, int rank, int status, int signo)
{
    const struct rank_exit x = {.rank = rank, .pid = 99, .exit_status = status, .signal = signo};
    record(g, RANK_EXIT, rank, &x, sizeof x, NULL);
}

static void rank_fails(struct gang *g, int rank, enum err_code code, const char *text)
{
    struct rank_fail f = {.code = (int32_t)code};
    snprintf(f.text, sizeof f.text, "%s", text);
    record(g, RANK_FAIL, rank, &f, sizeof f, NULL);
    if (code != ERR_TIMEOUT) rank_exits(g, rank, 1, 0);
}

static void logs_line(struct gang *g, const char *what)
{
    char path[256], line[96];
    for (int r = g->first; r < g->first + g->n_local; r++) {
        snprintf(path, sizeof path, "%s/rank-%d.log", g->dir, r);
        const int n = snprintf(line, sizeof line, "job %lld epoch %lld rank %d %s %d\n",
                               (long long)g->job, (long long)g->epoch, r, what, g->steps);
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0) continue;
        if (write(fd, line, (size_t)n) == n) g->log_size[r] += n;
        close(fd);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void shut(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Ends the gang's process. Its ranks end a little later. */
static void leave(struct gang *g, bool killed)
{
    if (killed && g->stage < ENDED && g->stage > BORN)
        g->linger_ms = sim_now + sim_below(LINGER_MS);
    g->alive = false;
    spool_close(&g->spool);
    shut(&g->sock_fd);
    shut(&g->listen_fd);
    shut(&g->lock_fd);
    node_reap(g->node);
}

static void finish(struct gang *g, enum gang_end how)
{
    char path[256];
    const struct rank_exit x = {.rank = RANK_GANG, .exit_status = how};
    sim_note(g->job, "gang %lld-e%lld on %s ends: %d", (long long)g->job, (long long)g->epoch,
             node_name(g->node), how);
    g->done = how == GANG_DONE;
    g->saved = how == GANG_SAVED;
    record(g, RANK_EXIT, RANK_GANG, &x, sizeof x, NULL);
    g->stage = ENDED;
    snprintf(path, sizeof path, "%s/exit", g->dir);
    file_write(path, &x, sizeof x, NULL);
    leave(g, false);
}

static void die(struct gang *g)
{
    sim_note(g->job, "gang %lld-e%lld on %s: kill -9", (long long)g->job, (long long)g->epoch,
             node_name(g->node));
    leave(g, true);
}

/* Carries out the end that was chosen for the gang, when it is due. */
static void fall(struct gang *g)
{
    const int r = g->first + sim_below(g->n_local);
    if (g->fate != DIES && g->fate != KILLED && g->job <= SIM_JOBS) truth[g->job].faults++;
    sim_note(g->job, "gang %lld-e%lld on %s meets fate %d", (long long)g->job, (long long)g->epoch,
             node_name(g->node), g->fate);
    switch (g->fate) {
    case EXITS: rank_exits(g, r, 1, 0); break;
    case SEGV: rank_exits(g, r, 0, SIGSEGV); break;
    case KILLED: rank_exits(g, r, 0, SIGKILL); break;
    case INTERNAL: rank_fails(g, r, ERR_INTERNAL, "something is wrong here"); break;
    case INVALID: rank_fails(g, r, ERR_INVALID, "the data are wrong"); break;
    case NO_SPACE: rank_fails(g, r, ERR_NO_SPACE, "write: No space left on device"); break;
    case HANGS: rank_fails(g, r, ERR_TIMEOUT, "rank waits at step 3"); break;
    default: die(g); return;
    }
    finish(g, GANG_FAILED);
}

/* ---- the life of one ------------------------------------------------------------------------- */

static bool listen_at(struct gang *g)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    char path[256];
    snprintf(path, sizeof path, "%s/exit", g->dir);
    if (file_exists(path)) return false;
    int dir_fd = open(g->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    g->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(sun.sun_path, sizeof sun.sun_path, "/proc/self/fd/%d/sock", dir_fd);
    bool good = dir_fd >= 0 && !bind(g->listen_fd, (struct sockaddr *)&sun, sizeof sun) &&
                !listen(g->listen_fd, 4);
    close(dir_fd);
    struct err e;
    snprintf(path, sizeof path, "%s/spool", g->dir);
    return good && spool_open(&g->spool, path, NULL, &e) == 0;
}

static void write_pids(const struct gang *g)
{
    char path[256];
    snprintf(path, sizeof path, "%s/pids", g->dir);
    FILE *f = fopen(path, "we");
    if (!f) return;
    for (int i = 0; i < g->n_local; i++)
        fprintf(f, "%d %d 1\n", g->first + i, FIRST_PID + 100 * (int)(g - gangs) + 1 + i);
    fclose(f);
}

static void begin(struct gang *g)
{
    static const int weights[N_FATES] = {70, 5, 3, 3, 3, 1, 2, 3, 2, 4};
    int n = sim_below(96);
    if (!listen_at(g)) {
        leave(g, false);
        return;
    }
    for (int i = 0; i < N_FATES && !sim_calm; n -= weights[i++])
        if (n < weights[i]) {
            g->fate = (enum fate)i;
            break;
        }
    g->fate_step = sim_below(STEPS) - 2;
    write_pids(g);
    g->stage = STARTED;
    g->next_ms = sim_now + 20 + sim_below(500);
}

static void prepare(struct gang *g)
{
    if (g->fate && g->fate != NEVER_READY && g->fate_step < 2) {
        fall(g);
        return;
    }
    record(g, RANK_RESULT, 0, NULL, 0, "{\"prepared_id\":\"abc\",\"n_tokens\":1000}");
    rank_exits(g, 0, 0, 0);
    finish(g, GANG_DONE);
}

static struct gang *part(const struct gang *g, int i)
{
    for (; i < n_gangs; i++)
        if (gangs[i].job == g->job && gangs[i].epoch == g->epoch) return &gangs[i];
    return NULL;
}

/* Returns 1 if every rank of the attempt runs or has completed its work, 0 if some ranks have not
 * started yet, and -1 if a rank was lost. */
static int ring(const struct gang *g)
{
    int ready = 0, lost = 0;
    for (struct gang *p = part(g, 0); p; p = part(g, (int)(p - gangs) + 1)) {
        const bool gone = !p->done && !p->saved && (p->stage == ENDED || !p->alive);
        if (gone && p->stage >= WAITS_BLOBS) lost = 1;
        if (p->done || p->saved || (p->alive && p->stage == RUNS)) ready += p->n_local;
    }
    return lost ? -1 : ready == g->n_ranks;
}

static bool first_is_done(const struct gang *g)
{
    for (struct gang *p = part(g, 0); p; p = part(g, (int)(p - gangs) + 1))
        if (!p->first) return p->done;
    return false;
}

static void all_exit(struct gang *g)
{
    for (int i = 0; i < g->n_local; i++) rank_exits(g, g->first + i, 0, 0);
    finish(g, GANG_DONE);
}

static bool first_is_saved(const struct gang *g)
{
    for (struct gang *p = part(g, 0); p; p = part(g, (int)(p - gangs) + 1))
        if (!p->first) return p->saved;
    return false;
}

static void save_exit(struct gang *g)
{
    for (int i = 0; i < g->n_local; i++) rank_exits(g, g->first + i, RANK_EXIT_SAVED, 0);
    finish(g, GANG_SAVED);
}

static void tell_checkpoint(struct gang *g, int *checkpoint)
{
    char json[96];
    const struct rank_event ev = {.type = EV_CHECKPOINT, .step = g->steps};
    snprintf(json, sizeof json, "{\"path\":\"/x/step-%d\",\"nonce\":%lld}", g->steps,
             (long long)truth_say(g, EV_CHECKPOINT));
    record(g, RANK_EVENT, 0, &ev, sizeof ev, json);
    *checkpoint = g->steps;
}

static void step(struct gang *g)
{
    int *checkpoint = &truth[g->job].checkpoint[g->node];
    if (!g->steps) g->steps = *checkpoint;
    if (g->steps < STEPS) {
        const struct rank_step s = {.step = ++g->steps,
                                    .loss = (double)truth_say(g, EV_STEP),
                                    .tokens = 10,
                                    .step_us = 1000,
                                    .ledger_ok = 1};
        record(g, RANK_STEP, 0, &s, sizeof s, NULL);
        logs_line(g, "step");
    }
    if (g->steps % 3 == 0 && *checkpoint < g->steps) tell_checkpoint(g, checkpoint);
    if (g->steps < STEPS && g->save && sim_below(4)) { /* some ranks are late, or never save */
        if (*checkpoint < g->steps) tell_checkpoint(g, checkpoint);
        save_exit(g);
        return;
    }
    if (g->steps < STEPS) return;
    logs_line(g, "is done at step");
    record(g, RANK_RESULT, 0, NULL, 0, "{\"loss\":1.5}");
    all_exit(g);
}

static void run(struct gang *g)
{
    const int is = ring(g);
    if (is < 0) {
        rank_fails(g, g->first, ERR_PEER, "a peer is gone");
        finish(g, GANG_FAILED);
    } else if (is > 0 && g->fate && g->fate != NEVER_READY && g->steps >= g->fate_step) {
        fall(g);
    } else if (is > 0 && !g->first) {
        step(g);
    } else if (is > 0 && first_is_done(g)) {
        all_exit(g);
    } else if (is > 0 && first_is_saved(g)) {
        save_exit(g);
    }
}

static void act(struct gang *g)
{
    g->next_ms = sim_now + 20 + sim_below(sim_below(8) ? 300 : 3000);
    switch (g->stage) {
    case BORN: begin(g); return;
    case STARTED:
        if (g->task == TASK_PREPARE) {
            prepare(g);
            return;
        }
        if (g->fate && g->fate_step < 0) {
            if (g->fate != NEVER_READY) fall(g);
            return;
        }
        logs_line(g, "begins at step");
        for (int i = 0; i < g->n_local; i++) record(g, RANK_BLOB, g->first + i, "blob", 4, NULL);
        g->stage = WAITS_BLOBS;
        return;
    case WAITS_BLOBS:
        if (!g->blobs || g->fate == NEVER_READY) return;
        for (int i = 0; i < g->n_local; i++) record(g, RANK_READY, g->first + i, NULL, 0, NULL);
        g->stage = RUNS;
        return;
    case RUNS: run(g); return;
    case ENDED: return;
    }
}

static void hear(struct gang *g)
{
    static char buf[sizeof(struct rank_msg) + JOB_MAX_RANKS * sizeof(struct rank_blob)];
    struct rank_msg head;
    int fd = accept4(g->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        shut(&g->sock_fd);
        g->sock_fd = fd;
        send(fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (ssize_t n; g->sock_fd >= 0 && (n = recv(g->sock_fd, buf, sizeof buf, MSG_DONTWAIT));) {
        if (n < (ssize_t)sizeof head) break;
        memcpy(&head, buf, sizeof head);
        g->stop = g->stop || head.type == RANK_STOP;
        g->save = g->save || head.type == RANK_SAVE;
        g->blobs = g->blobs || head.type == RANK_BLOBS;
    }
}

static void turn(struct gang *g)
{
    if (g->stage > BORN) hear(g);
    if (g->stop && !g->stop_ms) g->stop_ms = sim_now + sim_below(sim_below(4) ? 300 : 15000);
    if (g->stop && g->stage > BORN && sim_now >= g->stop_ms) {
        if (sim_below(2)) rank_fails(g, g->first, ERR_ABORTED, "told to stop");
        finish(g, GANG_STOPPED);
    } else if (sim_now >= g->next_ms) {
        act(g);
    }
}

void gangs_turn(void)
{
    for (int i = 0; i < n_active; i++) {
        struct gang *g = &gangs[active[i]];
        if (sim_calm && g->fate) g->fate = GOOD;
        if (g->alive && g->paused_ms <= sim_now) turn(g);
        if (!g->alive && g->linger_ms <= sim_now) active[i--] = active[--n_active];
    }
}

void gangs_end(void)
{
    for (int i = 0; i < n_active; i++)
        if (gangs[active[i]].alive) leave(&gangs[active[i]], false);
    n_active = 0;
}

static struct gang *any(int node)
{
    int n = 0;
    struct gang *found = NULL;
    for (int i = 0; i < n_active; i++) {
        struct gang *g = &gangs[active[i]];
        if (g->alive && g->node == node && !sim_below(++n)) found = g;
    }
    return found;
}

void gang_kill_any(int node)
{
    struct gang *g = any(node);
    if (g) die(g);
}

void gang_kill_all(int node)
{
    for (int i = 0; i < n_active; i++) {
        struct gang *g = &gangs[active[i]];
        if (g->alive && g->node == node) leave(g, true), g->linger_ms = 0;
    }
}

void gang_pause_any(int node, int64_t until_ms)
{
    struct gang *g = any(node);
    if (!g) return;
    sim_note(g->job, "gang %lld-e%lld is stopped for a while", (long long)g->job,
             (long long)g->epoch);
    g->paused_ms = until_ms;
}

/* ---- spawn ----------------------------------------------------------------------------------- */

static void check_first(const struct gang *g)
{
    for (int i = 0; i < n_gangs - 1; i++) {
        const struct gang *o = &gangs[i];
        if (o->job != g->job || o->epoch != g->epoch) continue;
        if (o->node == g->node || o->first == g->first)
            sim_broken("twice", g->job, "epoch %lld of job %lld is started twice: on %s and on %s",
                       (long long)g->epoch, (long long)g->job, node_name(o->node),
                       node_name(g->node));
    }
}

static void check_gpus(const struct gang *g)
{
    for (int k = 0; k < g->n_local && *g->gpu[0]; k++)
        if (gang_uses_gpu(g->node, g->gpu[k]))
            sim_broken("gpu", g->job, "GPU %s is given to job %lld and in use", g->gpu[k],
                       (long long)g->job);
}

int spawn_gang(const char *program, const char *dir, int lock_fd, struct err *e)
{
    char path[FILE_PATH_SIZE];
    bool whole;
    if (n_gangs == SIM_GANGS) return err_set(e, ERR_INTERNAL, "too many gangs");
    snprintf(path, sizeof path, "%s/start", dir);
    struct gang_start *s = gang_start_read(path, &whole, e);
    if (!s) return -1;
    struct gang *g = &gangs[n_gangs];
    *g = (struct gang){.node = node_now(),
                       .pid = FIRST_PID + 100 * n_gangs,
                       .alive = true,
                       .job = s->job,
                       .epoch = s->epoch,
                       .task = s->task,
                       .n_ranks = s->n_ranks,
                       .first = s->first_rank,
                       .n_local = s->n_local,
                       .lock_fd = fcntl(lock_fd, F_DUPFD_CLOEXEC, 0),
                       .listen_fd = -1,
                       .sock_fd = -1};
    snprintf(g->dir, sizeof g->dir, "%s", dir);
    for (int k = 0; k < s->n_local && k < SIM_GPUS; k++)
        memcpy(g->gpu[k], s->gpus[k], GPU_UUID_SIZE);
    g->next_ms = sim_now + 1 + sim_below(100);
    free(s);
    n_gangs++;
    sim_note(g->job, "gang %lld-e%lld task %d starts on %s, ranks %d..%d", (long long)g->job,
             (long long)g->epoch, g->task, node_name(g->node), g->first, g->first + g->n_local - 1);
    check_first(g);
    check_gpus(g);
    active[n_active++] = n_gangs - 1;
    if (gang_ranks(g->node) > node_slots(g->node))
        sim_broken("slots", g->job, "%d ranks run on %s, which has %d slots", gang_ranks(g->node),
                   node_name(g->node), node_slots(g->node));
    return g->pid;
}
