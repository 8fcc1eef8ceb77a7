/* seqgang: owns the ranks that one attempt has on this node. It continues to run if the agent that
 * started it ends.
 *   start    Takes the lock, reads DIR/start, makes the shared segment, listens on DIR/sock,
 *            starts the ranks and sends each of them its ARGS.
 *   run      Every packet of a rank becomes a spool record, and the agent, if one is connected, is
 *            sent a byte. BLOBS, SAVE and STOP of the agent are sent to the ranks.
 *   end      Begins when a rank has failed, died or hung; at STOP; when rank 0 has saved and
 *            exited after SAVE; or after orphan_ms without an agent. The abort flag is raised in
 *            the shared segment, so that ranks that wait for each other exit. A rank that still
 *            runs after the grace period is killed.
 *   over     When every rank is reaped, the final record and DIR/exit are written.
 * The order of records matters, because the first record of a failure is the cause of the end, and
 * later records are consequences (rank.h). So a rank's socket is read to its end before its death
 * is recorded, and its death is recorded before the other ranks are told.
 *
 * If this process is killed, the kernel kills its ranks (PDEATHSIG), and the agent writes the
 * final record in its place. */
#include "worker/gang/gang.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/log.h"
#include "api/core/process.h"
#include "api/core/spool.h"
#include "worker/gang/asked.h"
#include "worker/gang/confine.h"
#include "worker/gang/lock.h"
#include "worker/gang/packet.h"
#include "worker/gang/proc.h"
#include "worker/gang/segment.h"
#include "worker/gang/start.h"
#include "worker/gang/watch.h"

enum {
    STOP_GRACE_MS = 5000,  /* time for ranks to exit after STOP */
    ABORT_GRACE_MS = 2000, /* time for which other ranks can still report after a rank has
                            * failed */
    WATCH_MS = 1000,
    /* time without progress after which requests to a serve job are lost (stand_ms); an idle ring
     * makes progress every 5 s, and clients should get an answer within 10 s. A rank that computes
     * makes progress; on a GPU its time counts a tenth. */
    STAND_MS = 7000,
    HANG_GRACE_MS = 5000, /* time for which the gang waits for a decision of seqd after a hang;
                           * it waits only if other nodes also have ranks */
    STEP_TIMEOUT_MIN_MS = 30000,
    STEP_TIMEOUT_FACTOR = 10
};

struct gang {
    struct loop *loop;
    char dir[FILE_PATH_SIZE];
    struct gang_start *start;
    int lock_fd, listen_fd, agent_fd;
    struct gang_segment shared;
    struct spool spool;
    struct asked asked;
    bool spool_broken;
    bool spool_full; /* set if the spool has reached the limit on file sizes; after that only
                      * failures and ends are written */
    struct loop_fd *on_listen, *on_agent;
    struct loop_timer *kill_timer, *watch_timer, *orphan_timer;
    struct proc proc[JOB_MAX_RANKS];
    int n_started, n_gone, n_clean; /* n_clean counts ranks that exited with 0 */
    bool blobs_sent, saving, ending, killed;
    enum gang_end how;
    struct watch watch;
    int64_t watched_ms, slowest_step_us;
    int hung; /* the slowest rank of a hang that was reported but has not ended the gang yet; -1 if
               * there is no such hang */
    char packet[SPOOL_RECORD_SIZE]; /* the packet that is being handled */
};

/* ---- records --------------------------------------------------------------------------------- */

static void gang_end(struct gang *g, enum gang_end how, int blame, int64_t grace_ms);
static void record_fail(struct gang *g, int rank, const struct err *e);

static void agent_close(struct gang *g)
{
    if (g->agent_fd < 0) return;
    asked_agent_gone(&g->asked);
    loop_fd_remove(g->on_agent);
    close(g->agent_fd);
    g->on_agent = NULL;
    g->agent_fd = -1;
    if (g->start->orphan_ms > 0) loop_timer_set(g->orphan_timer, g->start->orphan_ms);
}

static void agent_nudge(struct gang *g)
{
    if (g->agent_fd >= 0) send(g->agent_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void record(struct gang *g, enum rank_msg_type type, int rank, const void *payload,
                   size_t size)
{
    struct err e;
    bool durable = type == RANK_EVENT || type == RANK_RESULT || type == RANK_FAIL ||
                   type == RANK_EXIT;
    if (g->spool_broken || (g->spool_full && type != RANK_FAIL && type != RANK_EXIT)) return;
    if (spool_add(&g->spool, (struct rank_msg){.type = type, .rank = rank}, payload, size, durable,
                  &e) < 0) {
        if (e.code == ERR_TOO_LARGE && !g->spool_full) {
            g->spool_full = true;
            record_fail(g, rank < 0 ? g->start->first_rank : rank, &e);
            gang_end(g, GANG_FAILED, -1, ABORT_GRACE_MS);
            return;
        }
        /* No further record can be written, so stop the gang. The agent will treat the attempt
         * as lost. */
        log_error("gang.spool", "dir=%s why=\"%s\"", g->dir, e.text);
        g->spool_broken = true;
        gang_end(g, GANG_FAILED, -1, 0);
        return;
    }
    agent_nudge(g);
}

static void record_failure(struct gang *g, int rank, const struct err *e, int64_t reached)
{
    struct rank_fail f = {.code = (int32_t)e->code, .reached = reached};
    memcpy(f.field, e->field, sizeof f.field);
    memcpy(f.text, e->text, sizeof f.text);
    log_warn("gang.fail", "job=%lld epoch=%lld rank=%d why=\"%s\"", (long long)g->start->job,
             (long long)g->start->epoch, rank, e->text);
    record(g, RANK_FAIL, rank, &f, sizeof f);
}

static void record_fail(struct gang *g, int rank, const struct err *e)
{
    record_failure(g, rank, e, 0);
}

/* Writes the final record, and then DIR/exit, so that a program that waits for DIR/exit does
 * not have to read the spool. */
static void record_end(struct gang *g)
{
    char path[FILE_PATH_SIZE];
    struct err e;
    struct rank_exit x = {.rank = RANK_GANG, .pid = getpid(), .exit_status = g->how};
    if (g->n_clean > 0 && g->n_clean == g->start->n_local) x.exit_status = GANG_DONE;
    record(g, RANK_EXIT, RANK_GANG, &x, sizeof x);
    log_info("gang.over", "job=%lld epoch=%lld how=%d", (long long)g->start->job,
             (long long)g->start->epoch, x.exit_status);
    if (g->spool_broken) return;
    if (file_join(path, &e, "%s/exit", g->dir) < 0 || file_write(path, &x, sizeof x, &e) < 0 ||
        file_sync_dir(g->dir, &e) < 0)
        log_error("gang.exit", "dir=%s why=\"%s\"", g->dir, e.text);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void gang_over(struct gang *g)
{
    proc_kill_strays();
    asked_finish(&g->asked); /* before the final record, which the agent would send first */
    record_end(g);
    loop_stop(g->loop);
}

static void ranks_kill(void *arg)
{
    struct gang *g = arg;
    g->killed = true;
    for (int i = 0; i < g->n_started; i++) proc_kill(&g->proc[i]);
}

static void gang_end(struct gang *g, enum gang_end how, int blame, int64_t grace_ms)
{
    if (g->ending) return;
    g->ending = true;
    g->how = how;
    loop_timer_set(g->watch_timer, -1);
    segment_abort(&g->shared, blame);
    loop_timer_set(g->kill_timer, grace_ms);
}

void gang_stop(struct gang *g, enum gang_end how)
{
    if (g->ending) return;
    log_info("gang.stop", "job=%lld epoch=%lld how=%d", (long long)g->start->job,
             (long long)g->start->epoch, (int)how);
    /* The message is sent before the flag is set, because a rank that sees the flag but has no
     * message reports that a peer is dead. */
    for (int i = 0; i < g->n_started; i++)
        if (g->proc[i].rank) proc_send(&g->proc[i], RANK_STOP, NULL, 0);
    asked_tell(&g->asked, RANK_STOP, NULL, 0); /* its socket may be full of requests */
    gang_end(g, how, -1, STOP_GRACE_MS);
}

/* Passes SAVE on. Rank 0 gets its reason [size]. */
static void gang_save(struct gang *g, const char *why, size_t size)
{
    if (g->ending || g->saving) return;
    g->saving = true;
    log_info("gang.save", "job=%lld epoch=%lld", (long long)g->start->job,
             (long long)g->start->epoch);
    for (int i = 0; i < g->n_started; i++)
        if (g->proc[i].rank) proc_send(&g->proc[i], RANK_SAVE, NULL, 0);
    asked_tell(&g->asked, RANK_SAVE, why, size <= RANK_WHY_SIZE ? size : 0);
}

/* Records that a rank has exited after SAVE. When rank 0 has exited, everything is saved, and the
 * gang stops, because ranks may still wait for rank 0. */
static void rank_saved(struct gang *g, int rank)
{
    if (rank == 0)
        gang_stop(g, GANG_SAVED);
    else if (!g->ending)
        g->how = GANG_SAVED;
}

static void orphan_stop(void *arg)
{
    gang_stop(arg, GANG_ORPHANED);
}

/* ---- packets of ranks ------------------------------------------------------------------------ */

static void packet_bad(struct gang *g, struct proc *p, int64_t size)
{
    struct err e;
    struct rank_msg head = {0};
    if (size >= (int64_t)sizeof head) memcpy(&head, g->packet, sizeof head);
    err_set(&e, ERR_PEER,
            "rank %d sent a packet of %lld bytes, abi %u, type %u, that means nothing", p->rank,
            (long long)size, head.abi, head.type);
    record_fail(g, p->rank, &e);
    p->failed = true;
    gang_end(g, GANG_FAILED, p->rank, ABORT_GRACE_MS);
    proc_kill(p);
}

static void packet_take(struct gang *g, struct proc *p, int64_t size)
{
    struct rank_msg head;
    memcpy(&head, g->packet, sizeof head);
    const char *payload = g->packet + sizeof head;
    if (head.type == RANK_ANSWER) { /* never recorded */
        if (asked_answer(&g->asked, &head, payload)) agent_close(g);
        return;
    }
    if (head.type == RANK_BLOB) p->published = true;
    if (head.type == RANK_READY) p->ready = true;
    if (head.type == RANK_STEP) {
        struct rank_step step;
        memcpy(&step, payload, sizeof step);
        if (step.step_us > g->slowest_step_us) g->slowest_step_us = step.step_us;
    }
    record(g, (enum rank_msg_type)head.type, p->rank, payload, head.size);
    if (head.type == RANK_FAIL) {
        p->failed = true;
        gang_end(g, GANG_FAILED, p->rank, ABORT_GRACE_MS);
    }
}

static void rank_drain(struct gang *g, struct proc *p)
{
    int64_t n;
    while ((n = proc_receive(p, g->packet, sizeof g->packet)) > 0) {
        struct rank_msg head = {0};
        if (n >= (int64_t)sizeof head) memcpy(&head, g->packet, sizeof head);
        const bool own = head.type != RANK_ANSWER || !p->rank;
        if (own && packet_good(&head, g->packet + sizeof head, n))
            packet_take(g, p, n);
        else
            packet_bad(g, p, n);
    }
    /* The rank has closed its end of the socket. Its pidfd will report its exit. Remove the socket
     * from the loop, because it would remain readable. */
    if (n == 0) {
        loop_fd_remove(p->on_message);
        p->on_message = NULL;
        if (!p->rank) asked_rank_gone(&g->asked);
        close(p->sock);
        p->sock = -1;
    }
}

static void rank_message(void *arg, uint32_t events)
{
    struct proc *p = arg;
    rank_drain(p->owner, p);
}

static void rank_exited(void *arg, uint32_t events)
{
    struct proc *p = arg;
    struct gang *g = p->owner;
    /* Reads the rank's last messages before its death is recorded. */
    if (p->sock >= 0) rank_drain(g, p);
    struct rank_exit x = proc_reap(p);
    if (!p->rank) asked_rank_gone(&g->asked);
    proc_close(p);
    record(g, RANK_EXIT, p->rank, &x, sizeof x);
    g->n_gone++;
    bool clean = x.exit_status == 0 && x.signal == 0;
    if (clean)
        g->n_clean++;
    else if (g->saving && x.exit_status == RANK_EXIT_SAVED && !x.signal)
        rank_saved(g, p->rank);
    else
        gang_end(g, GANG_FAILED, p->rank, ABORT_GRACE_MS);
    if (g->n_gone == g->n_started) gang_over(g);
}

/* ---- packets of the agent -------------------------------------------------------------------- */

/* Forwards all blobs, in rank order, to the ranks. Only the first set of blobs is forwarded,
 * because seqd sends this set again after a reconnect. */
static void blobs_forward(struct gang *g, const struct rank_blob *in, size_t n)
{
    struct rank_blob *out = calloc((size_t)g->start->n_ranks, sizeof *out);
    int n_set = 0;
    assert(out);
    for (size_t i = 0; i < n && !g->blobs_sent; i++) {
        int rank = in[i].rank;
        if (rank < 0 || rank >= g->start->n_ranks || in[i].size < 0 || in[i].size > BLOB_SIZE)
            break;
        if (out[rank].size == 0) n_set++;
        out[rank] = in[i];
    }
    if (n_set == g->start->n_ranks) {
        g->blobs_sent = true;
        for (int i = 0; i < g->n_started; i++)
            proc_send(&g->proc[i], RANK_BLOBS, out, (size_t)g->start->n_ranks * sizeof *out);
    } else if (!g->blobs_sent) {
        log_warn("gang.blobs", "job=%lld have=%d want=%d", (long long)g->start->job, n_set,
                 g->start->n_ranks);
    }
    free(out);
}

static void agent_message(void *arg, uint32_t events)
{
    struct gang *g = arg;
    struct rank_msg head;
    ssize_t n;
    while ((n = recv(g->agent_fd, g->packet, sizeof g->packet, MSG_DONTWAIT)) > 0) {
        if (n < (ssize_t)sizeof head) continue;
        memcpy(&head, g->packet, sizeof head);
        if (head.abi != RANK_ABI || head.size != (size_t)n - sizeof head) continue;
        if (head.type == RANK_STOP) gang_stop(g, GANG_STOPPED);
        if (head.type == RANK_SAVE) gang_save(g, g->packet + sizeof head, head.size);
        if (head.type == RANK_ASK || head.type == RANK_DROP)
            asked_take(&g->asked, &head, g->packet + sizeof head);
        if (head.type == RANK_BLOBS)
            blobs_forward(g, (const void *)(g->packet + sizeof head),
                          head.size / sizeof(struct rank_blob));
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) agent_close(g);
}

static void agent_accept(void *arg, uint32_t events)
{
    struct gang *g = arg;
    int fd = accept4(g->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    agent_close(g); /* only the newest connection is treated as the agent */
    if (asked_agent(&g->asked, g->loop, fd) == 0)
        g->on_agent = loop_fd_add(g->loop, fd, EPOLLIN, agent_message, g, NULL);
    if (!g->on_agent) {
        asked_agent_gone(&g->asked);
        close(fd);
        return;
    }
    g->agent_fd = fd;
    loop_timer_set(g->orphan_timer, -1);
    agent_nudge(g); /* the spool may have records that were written before the agent connected */
}

/* ---- the hang watchdog ----------------------------------------------------------------------- */

/* Returns true if a flag is set for all ranks. The parameter `flag` is the offset of a bool in
 * struct proc. */
static bool all_ranks(const struct gang *g, size_t flag)
{
    for (int i = 0; i < g->n_started; i++)
        if (!*((const char *)&g->proc[i] + flag)) return false;
    return true;
}

static int64_t watch_limit_ms(const struct gang *g)
{
    bool is_ready = g->start->task == TASK_PREPARE || all_ranks(g, offsetof(struct proc, ready));
    int64_t limit_ms = g->start->spec.limits.step_timeout_s * 1000;
    if (!is_ready) return g->start->spec.limits.init_timeout_s * 1000;
    if (limit_ms > 0) return limit_ms;
    limit_ms = g->slowest_step_us / 1000 * STEP_TIMEOUT_FACTOR;
    return limit_ms > STEP_TIMEOUT_MIN_MS ? limit_ms : STEP_TIMEOUT_MIN_MS;
}

/* Returns the time without progress after which requests are lost. A job whose steps may take long
 * gives its passes half of limits.step_timeout_s, if that is more. */
static int64_t stand_ms(const struct gang *g)
{
    const int64_t half_ms = g->start->spec.limits.step_timeout_s * 500;
    return half_ms > STAND_MS ? half_ms : STAND_MS;
}

static void watch_sample(struct gang *g, struct watch_sample *s)
{
    struct process_stat stat;
    for (int i = 0; i < g->n_started; i++) {
        struct proc *p = &g->proc[i];
        s[i] = (struct watch_sample){
            .op = g->shared.head->lastop[p->rank], .state = 'Z', .on_gpu = *g->start->gpus[i] != 0};
        if (p->gone || process_stat(p->pid, &stat) < 0) continue;
        s[i].cpu_ms = stat.cpu_ms;
        s[i].state = stat.state;
        s[i].runnable = process_runnable(p->pid);
        s[i].moved = process_moved(p->pid);
    }
}

/* Writes each rank's last operation to the log of that rank, because users read these logs. */
static void watch_dump(const struct gang *g, const struct watch_sample *s)
{
    char path[FILE_PATH_SIZE], where[160];
    for (int i = 0; i < g->n_started; i++) {
        if (file_join(path, NULL, "%s/rank-%d.log", g->dir, g->proc[i].rank) < 0) continue;
        int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (fd < 0) continue;
        watch_where(&s[i].op, where, sizeof where);
        dprintf(fd, "seqgang: hang: rank %d (%c): %s, %lld operations, %lld ms of CPU\n",
                g->proc[i].rank, s[i].state, where, (long long)s[i].op.n_ops,
                (long long)s[i].cpu_ms);
        close(fd);
    }
}

static void watch_hang(struct gang *g, const struct watch_sample *s)
{
    struct err e = {.code = ERR_TIMEOUT};
    int i = watch_slowest(s, g->n_started), slowest = g->start->first_rank + i;
    watch_dump(g, s);
    watch_sentence(&g->watch, s, g->n_started, g->start->first_rank, e.text, sizeof e.text);
    record_failure(g, slowest, &e, watch_reached(&s[i]));
    if (g->start->n_local == g->start->n_ranks) {
        gang_end(g, GANG_FAILED, slowest, ABORT_GRACE_MS);
        return;
    }
    g->hung = slowest;
    loop_timer_set(g->watch_timer, HANG_GRACE_MS);
}

static void watch_run(void *arg)
{
    struct gang *g = arg;
    struct watch_sample s[JOB_MAX_RANKS];
    int64_t now_ms = loop_now_ms(g->loop), dt_ms = now_ms - g->watched_ms;
    if (g->hung >= 0) {
        gang_end(g, GANG_FAILED, g->hung, ABORT_GRACE_MS);
        return;
    }
    g->watched_ms = now_ms;
    /* Time in which the machine was suspended, or this process was stopped, is not counted as
     * time without progress. */
    if (dt_ms > 2 * WATCH_MS) dt_ms = 2 * WATCH_MS;
    loop_timer_set(g->watch_timer, WATCH_MS);
    /* While ranks wait for the blobs, they wait for seqd, which may be down. Such a wait is
     * not a hang. */
    if (g->start->task == TASK_RUN && !g->blobs_sent &&
        all_ranks(g, offsetof(struct proc, published)))
        return;
    watch_sample(g, s);
    watch_tick(&g->watch, s, g->n_started, dt_ms);
    asked_stand(&g->asked, g->watch.quiet_ms >= stand_ms(g));
    if (g->watch.quiet_ms < watch_limit_ms(g)) return;
    watch_hang(g, s);
}

/* ---- the start ------------------------------------------------------------------------------- */

static int gang_listen(struct gang *g, struct err *e)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    /* Bind the socket through /proc, because a state directory's path may be too long for an
     * address. */
    int dir_fd = open(g->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) return err_errno(e, "open %s", g->dir);
    snprintf(sun.sun_path, sizeof sun.sun_path, "/proc/self/fd/%d/sock", dir_fd);
    g->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = g->listen_fd < 0 ? -1 : bind(g->listen_fd, (struct sockaddr *)&sun, sizeof sun);
    if (rc == 0) rc = listen(g->listen_fd, 4);
    if (rc < 0) err_errno(e, "listen on %s/sock", g->dir);
    close(dir_fd);
    if (rc < 0) return -1;
    g->on_listen = loop_fd_add(g->loop, g->listen_fd, EPOLLIN, agent_accept, g, e);
    return g->on_listen ? 0 : -1;
}

static int ranks_fork(struct gang *g, const struct confine *confine, struct err *e)
{
    const struct proc_start s = {g->start, g->dir, g->shared.fd, confine};
    for (int i = 0; i < g->start->n_local; i++) {
        struct proc *p = &g->proc[i];
        int rc = proc_start(p, g->start->first_rank + i, &s, e);
        if (p->pid <= 0) return -1;
        p->owner = g;
        g->n_started++;
        if (rc < 0) return -1;
        p->on_exit = loop_fd_add(g->loop, p->pidfd, EPOLLIN, rank_exited, p, e);
        p->on_message = loop_fd_add(g->loop, p->sock, EPOLLIN, rank_message, p, e);
        if (!p->on_exit || !p->on_message) return -1;
        if (!p->rank && asked_rank(&g->asked, g->loop, p->sock) < 0)
            return err_errno(e, "fcntl the socket of rank 0");
    }
    return 0;
}

static int ranks_start(struct gang *g, struct err *e)
{
    struct confine confine = CONFINE_NONE;
    int rc = confine_open(&confine, g->start, e);
    if (!rc) rc = ranks_fork(g, &confine, e);
    for (int i = 0; i < g->n_started && !rc; i++)
        rc = proc_send_args(&g->proc[i], g->start, confine.ports, e);
    confine_close(&confine);
    return rc;
}

/* Undoes a start that has failed after some ranks were started. Afterwards no rank is left, and
 * the spool has the reason. */
static void start_undo(struct gang *g, const struct err *e)
{
    g->ending = true; /* set `ending` here and do not raise the abort flag, because there may
                       * be no segment that has the flag */
    g->how = GANG_FAILED;
    /* the failure is not recorded for a single rank, because it means that this node cannot
     * start ranks */
    record_fail(g, RANK_GANG, e);
    for (int i = 0; i < g->n_started; i++) {
        struct proc *p = &g->proc[i];
        proc_kill(p);
        struct rank_exit x = proc_reap(p);
        proc_close(p);
        record(g, RANK_EXIT, p->rank, &x, sizeof x);
        g->n_gone++;
    }
    record_end(g);
}

static int gang_begin(struct gang *g, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if ((g->lock_fd = lock_take(g->dir, e)) < 0) return -1;
    if (file_join(path, e, "%s/spool", g->dir) < 0) return -1;
    if (spool_open(&g->spool, path, NULL, e) < 0) return -1;
    if (start_read(g->dir, g->start, e) < 0) {
        start_undo(g, e);
        return -1;
    }
    if (g->start->spec.kind == JOB_SERVE) process_hide(); /* and the ranks */
    if (segment_open(&g->shared, g->start->n_ranks, e) < 0 || gang_listen(g, e) < 0 ||
        ranks_start(g, e) < 0) {
        start_undo(g, e);
        return -1;
    }
    log_info("gang.start", "job=%lld epoch=%lld ranks=%d-%d/%d", (long long)g->start->job,
             (long long)g->start->epoch, g->start->first_rank,
             g->start->first_rank + g->start->n_local - 1, g->start->n_ranks);
    g->watched_ms = loop_now_ms(g->loop);
    loop_timer_set(g->watch_timer, WATCH_MS);
    if (g->start->orphan_ms > 0) loop_timer_set(g->orphan_timer, g->start->orphan_ms);
    return 0;
}

struct gang *gang_create(struct loop *l, const char *dir, struct err *e)
{
    struct gang *g = calloc(1, sizeof *g);
    struct gang_start *start = calloc(1, sizeof *start);
    assert(g && start);
    g->loop = l;
    g->start = start;
    g->lock_fd = g->listen_fd = g->agent_fd = -1;
    g->shared = SEGMENT_NONE;
    g->hung = -1;
    asked_init(&g->asked);
    g->kill_timer = loop_timer_create(l, ranks_kill, g);
    g->watch_timer = loop_timer_create(l, watch_run, g);
    g->orphan_timer = loop_timer_create(l, orphan_stop, g);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (file_join(g->dir, e, "%s", dir) == 0 && gang_begin(g, e) == 0) return g;
    gang_destroy(g);
    return NULL;
}

void gang_destroy(struct gang *g)
{
    if (!g) return;
    for (int i = 0; i < g->n_started; i++) {
        if (!g->proc[i].gone) {
            proc_kill(&g->proc[i]);
            proc_reap(&g->proc[i]);
        }
        proc_close(&g->proc[i]);
    }
    asked_fini(&g->asked);
    loop_fd_remove(g->on_agent);
    loop_fd_remove(g->on_listen);
    int fds[] = {g->agent_fd, g->listen_fd, g->lock_fd};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0) close(fds[i]);
    segment_close(&g->shared);
    spool_close(&g->spool);
    loop_timer_destroy(g->kill_timer);
    loop_timer_destroy(g->watch_timer);
    loop_timer_destroy(g->orphan_timer);
    free(g->start);
    free(g);
}
