/* attempt.c: starts or adopts a gang, exchanges messages with it over its Unix socket, completes
 * the spool of a dead gang, and reads records and logs for seqd. */
#include "worker/agent/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/gang_start.h"
#include "api/core/log.h"
#include "api/core/process.h"
#include "worker/agent/probe.h"
#include "worker/agent/spawn.h"

enum {
    RECEIVED_SIZE = sizeof(struct rank_msg) + sizeof(struct rank_answer) + RANK_PIECE_SIZE,
    ASKED_SIZE = RANK_BODIES_SIZE
};

/* ---- life ------------------------------------------------------------------------------------ */

static struct attempt *attempt_new(struct loop *l, const char *dir, int64_t job, int64_t epoch)
{
    struct attempt *a = calloc(1, sizeof *a);
    assert(a);
    *a = (struct attempt){.loop = l, .job = job, .epoch = epoch, .sock = -1, .out = OUTFLOW_NONE};
    snprintf(a->dir, sizeof a->dir, "%s", dir);
    for (int i = 0; i < JOB_MAX_RANKS; i++) a->log[i].fd = -1;
    return a;
}

static void sock_close(struct attempt *a)
{
    if (a->sock < 0) return;
    loop_fd_remove(a->on_sock);
    outflow_close(&a->out);
    close(a->sock);
    free(a->received);
    a->received = NULL;
    a->on_sock = NULL;
    a->sock = -1;
}

void attempt_free(struct attempt *a)
{
    if (!a) return;
    sock_close(a);
    spool_close(&a->spool);
    for (int i = 0; i < JOB_MAX_RANKS; i++)
        if (a->log[i].fd >= 0) close(a->log[i].fd);
    free(a->blobs);
    free(a);
}

static int path_of(const struct attempt *a, const char *name, char out[FILE_PATH_SIZE],
                   struct err *e)
{
    return file_join(out, e, "%s/%s", a->dir, name);
}

/* Takes the lock, which is free only if no gang runs here or is about to start. Returns the
 * descriptor of the lock, or -1 if the lock is not free. A caller that starts a gang holds the
 * lock until the gang has inherited it. A caller that finishes the work of a dead gang holds the
 * lock during this work. A caller that only asks whether a gang is alive releases the lock
 * immediately. */
static int lock_take(const struct attempt *a)
{
    char path[FILE_PATH_SIZE];
    if (path_of(a, "lock", path, NULL) < 0) return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static int start_write(struct attempt *a, struct gang_start *start, const cpu_set_t *cpus,
                       struct err *e)
{
    char path[FILE_PATH_SIZE], parent[FILE_PATH_SIZE];
    if (path_of(a, "start", path, e) < 0 || file_join(parent, e, "%s/..", a->dir) < 0) return -1;
    if (file_make_dir(a->dir, e) < 0) return -1;
    if ((a->oom_kills = probe_oom_kills()) >= 0 && gang_kills_write(a->dir, a->oom_kills, e) < 0)
        return -1;
    if (cpus && gang_cpus_write(a->dir, cpus, start->n_local, e) < 0) return -1;
    if (gang_start_write(path, start, e) < 0) return -1;
    if (file_sync_dir(a->dir, e) < 0) return -1;
    return file_sync_dir(parent, e);
}

static void start_take(struct attempt *a, const struct gang_start *start)
{
    cpu_set_t cpus[JOB_MAX_RANKS];
    const bool bound = gang_cpus_read(a->dir, cpus, start->n_local);
    for (int i = 0; bound && i < start->n_local; i++) CPU_OR(&a->cpus, &a->cpus, &cpus[i]);
    memcpy(a->prepared_id, start->prepared_id, sizeof a->prepared_id);
    a->prepared_id[sizeof a->prepared_id - 1] = 0;
    a->oom_kills = gang_kills_read(a->dir);
    a->n_logs = start->n_local;
    a->first_rank = start->first_rank;
    a->n_running = start->task == TASK_RUN ? start->n_local : 0;
    for (int i = 0; i < a->n_running; i++) a->n_gpus += *start->gpus[i] != 0;
}

/* Takes the lock, and then starts seqgang, which inherits it. If this agent dies before
 * seqgang has begun its work, the lock is still held, and the next agent sees this. */
static int gang_spawn(const struct attempt *a, const char *program, struct err *e)
{
    const int lock = lock_take(a);
    if (lock < 0) return err_errno(e, "lock %s/lock", a->dir);
    const int pid = spawn_gang(program, a->dir, lock, e);
    close(lock);
    return pid;
}

struct attempt *attempt_begin(struct loop *l, const char *dir, struct gang_start *start,
                              const struct attempt_options *o, struct err *e)
{
    struct attempt *a = attempt_new(l, dir, start->job, start->epoch);
    /* The record is written before the process starts. For that reason no other attempt can
     * have this epoch, even if this agent or the gang dies. */
    if (start_write(a, start, o->cpus, e) == 0) {
        start_take(a, start);
        cgroup_make(dir, start->job, start->epoch); /* seqgang joins it before it starts a rank */
        cgroup_limit(dir, start->job, start->epoch, &o->limits);
        a->gang_pid = gang_spawn(a, o->program, e);
    }
    if (a->gang_pid > 0) return a;
    cgroup_remove(dir); /* do this before the caller removes dir, because a file in dir has the
                         * path of the group */
    attempt_free(a);
    return NULL;
}

struct attempt *attempt_adopt(struct loop *l, const char *dir, int64_t job, int64_t epoch)
{
    struct attempt *a = attempt_new(l, dir, job, epoch);
    char path[FILE_PATH_SIZE];
    struct err e = {0};
    struct gang_start *start = NULL;
    bool whole = false; /* its value is not used, because a start record of the previous
                         * version is accepted, too */
    if (path_of(a, "start", path, &e) == 0) start = gang_start_read(path, &whole, &e);
    const bool good = start && start->job == job && start->epoch == epoch && start->n_local >= 1 &&
                      start->n_local <= JOB_MAX_RANKS;
    if (good) {
        start_take(a, start);
    } else if (!start && e.code == ERR_NOT_FOUND) {
        attempt_free(a);
        return NULL;
    } else {
        log_warn("attempt.start", "dir=%s why=\"%s\"", dir,
                 start ? "the start record is of another attempt" : e.text);
    }
    if (start) explicit_bzero(start->key, sizeof start->key);
    free(start);
    return a;
}

/* ---- the gang: its socket, and the work after its death -------------------------------------- */

static int sock_send(struct attempt *a, enum rank_msg_type type, const void *payload, size_t size)
{
    struct rank_msg head = {RANK_ABI, (uint32_t)type, RANK_GANG, (uint32_t)size};
    struct iovec iov[2] = {{&head, sizeof head}, {(void *)payload, size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    if (a->sock < 0) return -1;
    return sendmsg(a->sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

static void sock_flush(struct attempt *a)
{
    if (a->blobs &&
        sock_send(a, RANK_BLOBS, a->blobs, (size_t)a->n_blobs * sizeof *a->blobs) == 0) {
        free(a->blobs);
        a->blobs = NULL;
    }
    if (a->save_wanted) sock_send(a, RANK_SAVE, a->save_why, strlen(a->save_why) + 1);
    if (a->stop_wanted) attempt_stop(a);
}

static void sock_event(void *arg, uint32_t events)
{
    struct attempt *a = arg;
    bool nudged = false;
    ssize_t n;
    while ((n = recv(a->sock, a->received, RECEIVED_SIZE, MSG_DONTWAIT)) > 0) {
        if (n > 1) a->packet(a->owner, a, a->received, (size_t)n);
        nudged = nudged || n == 1;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) sock_close(a);
    if (nudged || a->sock < 0) a->nudge(a->owner, a);
}

static void sock_connect(struct attempt *a)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    int dir_fd = open(a->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) return;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(sun.sun_path, sizeof sun.sun_path, "/proc/self/fd/%d/sock", dir_fd);
    int rc = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&sun, sizeof sun);
    close(dir_fd);
    if (rc == 0) rc = outflow_open(&a->out, a->loop, fd, ASKED_SIZE);
    if (rc == 0) a->on_sock = loop_fd_add(a->loop, fd, EPOLLIN, sock_event, a, NULL);
    if (rc == 0 && a->on_sock) {
        a->received = malloc(RECEIVED_SIZE);
        assert(a->received);
        a->sock = fd;
        sock_flush(a);
    } else if (fd >= 0) {
        outflow_close(&a->out);
        close(fd);
    }
}

/* Kills the ranks of a dead gang that are still running. The kernel should have killed them when
 * their gang died. Returns true if no rank was running. */
static bool ranks_gone(const struct attempt *a)
{
    char path[FILE_PATH_SIZE];
    int rank, pid;
    long long start_time;
    bool gone = true;
    if (path_of(a, "pids", path, NULL) < 0) return false;
    cgroup_kill(a->dir); /* kills ranks and the processes that they have forked */
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT;
    while (fscanf(f, "%d %d %lld", &rank, &pid, &start_time) == 3) {
        if (!process_alive(pid, start_time)) continue;
        kill(pid, SIGKILL);
        gone = false;
    }
    fclose(f);
    return gone;
}

/* Describes how seqgang itself failed. Returns false if seqgang did not fail. */
static bool gang_failure(int status, char out[80])
{
    const int signo = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (WIFEXITED(status) && WEXITSTATUS(status))
        return snprintf(out, 80, "exited with status %d", WEXITSTATUS(status)) > 0;
    return rank_signal_own(signo) &&
           snprintf(out, 80, "was ended by signal %d (%s)", signo, strsignal(signo)) > 0;
}

/* If seqgang stood still, or failed before it wrote its first record, adds a record of this
 * failure. The reason may be, for instance, that a library is missing or that the program was
 * built for another kind of processor. */
static int spool_failure(const struct attempt *a, struct spool *s, struct err *e)
{
    struct rank_fail f = {.code = a->stood ? ERR_TIMEOUT : ERR_INTERNAL};
    char how[80];
    if (a->stood)
        snprintf(f.text, sizeof f.text,
                 "seqgang stood still for %lld s, as a process that SIGSTOP has stopped, and the "
                 "agent has ended it",
                 (long long)a->still_ms / 1000);
    else if (s->seq > 0 || !gang_failure(a->gang_status, how))
        return 0;
    else
        snprintf(f.text, sizeof f.text, "seqgang %s before it began: see %.300s/gang.log", how,
                 a->dir);
    return spool_add(s, (struct rank_msg){.type = RANK_FAIL, .rank = RANK_GANG}, &f, sizeof f, true,
                     e);
}

/* Adds the final record to the spool if the gang has not added it. */
static int spool_finish(struct attempt *a, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct rank_msg last;
    struct spool s;
    struct rank_exit x = {.rank = RANK_GANG, .exit_status = GANG_LOST};
    int rc = 0;
    if (path_of(a, "spool", path, e) < 0 || spool_open(&s, path, &last, e) < 0) return -1;
    bool ended = last.type == RANK_EXIT && last.rank == RANK_GANG;
    if (!ended) {
        if (!a->finish_failed)
            log_warn("attempt.lost", "job=%lld epoch=%lld records=%lld", (long long)a->job,
                     (long long)a->epoch, (long long)s.seq);
        rc = spool_failure(a, &s, e);
        if (rc >= 0)
            rc = spool_add(&s, (struct rank_msg){.type = RANK_EXIT, .rank = RANK_GANG}, &x,
                           sizeof x, true, e);
    }
    spool_close(&s);
    if (rc < 0 || path_of(a, "exit", path, e) < 0) return -1;
    return file_exists(path) ? 0 : file_write(path, &x, sizeof x, e);
}

static void gang_gone(struct attempt *a)
{
    struct err e;
    a->state = ATTEMPT_DYING;
    int lock = lock_take(a);
    if (lock < 0) return;
    if (!ranks_gone(a)) {
        log_debug("attempt.dying", "job=%lld epoch=%lld", (long long)a->job, (long long)a->epoch);
    } else if (spool_finish(a, &e) < 0) {
        if (!a->finish_failed) log_error("attempt.finish", "dir=%s why=\"%s\"", a->dir, e.text);
        a->finish_failed = true;
    } else {
        a->state = ATTEMPT_OVER;
    }
    close(lock);
}

bool attempt_check(struct attempt *a)
{
    if (a->state == ATTEMPT_OVER) return false;
    if (a->state == ATTEMPT_ALIVE && a->sock < 0) sock_connect(a);
    if (a->sock >= 0) return false; /* the loop will report the end of the connection */
    /* If the gang is a child of this agent, it is treated as gone only after it was reaped.
     * Before that, a free lock does not prove that the gang is gone, because the child may not
     * have taken the lock yet. */
    if (a->gang_pid > 0) return true;
    if (a->state == ATTEMPT_ALIVE) {
        int lock = lock_take(a);
        if (lock < 0) return true;
        close(lock);
    }
    gang_gone(a);
    return a->state != ATTEMPT_OVER && !a->finish_failed;
}

/* Returns the pid of the gang, or 0 if it is not known. The kernel tells which process listens on
 * the socket of an adopted gang. */
static int gang_pid(const struct attempt *a)
{
    struct ucred u = {.pid = 0};
    socklen_t size = sizeof u;
    if (a->gang_pid > 0) return a->gang_pid;
    return getsockopt(a->sock, SOL_SOCKET, SO_PEERCRED, &u, &size) ? 0 : u.pid;
}

void attempt_watch(struct attempt *a, int64_t dt_ms, int64_t most_ms)
{
    if (a->state != ATTEMPT_ALIVE || a->sock < 0 || a->stood) return;
    const int pid = gang_pid(a);
    const int64_t n = pid > 0 ? process_switches(pid) : 0;
    struct process_stat is;
    /* a gang that waits for a disk, or for the end of its ranks, does not run either */
    const bool moved = !n || n != a->switches || process_stat(pid, &is) || is.state != 'T';
    a->switches = n;
    a->still_ms = moved ? 0 : a->still_ms + dt_ms;
    if (!most_ms || a->still_ms < most_ms) return;
    a->stood = true;
    log_error("attempt.still", "job=%lld epoch=%lld pid=%d s=%lld text=\"seqgang is ended\"",
              (long long)a->job, (long long)a->epoch, pid, (long long)a->still_ms / 1000);
    kill(pid, SIGKILL);
}

void attempt_save(struct attempt *a, const char *why)
{
    a->save_wanted = true;
    snprintf(a->save_why, sizeof a->save_why, "%s", why);
    outflow_send(&a->out, (struct rank_msg){.type = RANK_SAVE, .rank = RANK_GANG}, a->save_why,
                 strlen(a->save_why) + 1);
}

int attempt_ask(struct attempt *a, enum rank_msg_type type, const void *payload, size_t size)
{
    return outflow_send(&a->out, (struct rank_msg){.type = type, .rank = RANK_GANG}, payload, size);
}

void attempt_stop(struct attempt *a)
{
    a->stop_wanted = true;
    outflow_send(&a->out, (struct rank_msg){.type = RANK_STOP, .rank = RANK_GANG}, NULL, 0);
}

void attempt_blobs(struct attempt *a, const struct rank_blob *blobs, int n)
{
    free(a->blobs);
    a->blobs = calloc((size_t)n, sizeof *blobs);
    assert(a->blobs);
    memcpy(a->blobs, blobs, (size_t)n * sizeof *blobs);
    a->n_blobs = n;
    if (a->sock >= 0) sock_flush(a);
}

/* ---- records and logs for seqd --------------------------------------------------------------- */

void attempt_rewind(struct attempt *a)
{
    a->spool.offset = 0;
    a->spool.seq = 0;
    a->final_sent = false;
    for (int i = 0; i < a->n_logs; i++) a->log[i].sent = a->log[i].acked;
}

void attempt_ack(struct attempt *a, const struct msg *m)
{
    if (m->seq > a->acked_seq) a->acked_seq = m->seq;
    int i = m->rank - a->first_rank;
    if (m->rank < 0 || i < 0 || i >= a->n_logs) return;
    struct attempt_log *log = &a->log[i];
    /* If seqd acknowledges an offset twice, it could not store the bytes after this offset, so
     * they are sent again. */
    if (m->offset == log->acked) log->sent = log->acked;
    if (m->offset > log->acked) log->acked = m->offset;
    if (log->acked > log->sent) log->sent = log->acked;
}

static bool logs_sent(struct attempt *a)
{
    char byte;
    int rank;
    int64_t offset;
    bool more = attempt_log_bytes(a, &byte, 0, &rank, &offset) > 0;
    return !more;
}

/* Tells whether no client needs more of an answer, because seqd ends the requests of an attempt at
 * its final record. */
static bool answers_sent(const struct attempt *a)
{
    return !a->n_answered || a->stop_wanted;
}

int64_t attempt_record(struct attempt *a, void *buf, bool *final)
{
    char path[FILE_PATH_SIZE];
    struct rank_msg head;
    struct err e;
    *final = false;
    if (a->final_sent) return 0;
    if (!a->spool_open) {
        if (path_of(a, "spool", path, NULL) < 0 || spool_open_read(&a->spool, path, &e) < 0)
            return 0;
        a->spool_open = true;
    }
    for (;;) {
        struct spool before = a->spool;
        int64_t n = spool_next(&a->spool, buf, &e);
        if (n < 0) log_error("attempt.spool", "dir=%s why=\"%s\"", a->dir, e.text);
        if (n <= 0) return 0;
        memcpy(&head, buf, sizeof head);
        *final = head.type == RANK_EXIT && head.rank == RANK_GANG;
        if (*final && (!logs_sent(a) || !answers_sent(a))) {
            a->spool = before;
            return 0;
        }
        /* The final record is sent again, even if it was acknowledged, until seqd sends FORGET. */
        if (a->spool.seq > a->acked_seq || *final) {
            a->final_sent = *final;
            return n;
        }
    }
}

bool attempt_oom(struct attempt *a, const void *record, int64_t size)
{
    struct rank_msg head;
    struct rank_exit x;
    if (size < (int64_t)(sizeof head + sizeof x)) return false;
    memcpy(&head, record, sizeof head);
    memcpy(&x, (const char *)record + sizeof head, sizeof x);
    if (head.type != RANK_EXIT) return false;
    if (head.rank == RANK_GANG ? x.exit_status != GANG_LOST : !x.signal) return false;
    if (!a->judged) {
        a->judged = true;
        const int64_t own = cgroup_kills(a->dir);
        a->oom = own >= 0 ? own > 0 : a->oom_kills >= 0 && probe_oom_kills() > a->oom_kills;
    }
    return a->oom;
}

/* Reads log bytes that have not been sent. If size is 0, reads nothing, but returns whether
 * there are bytes that have not been sent. */
static int64_t log_read(struct attempt *a, int i, void *buf, size_t size)
{
    struct attempt_log *log = &a->log[i];
    char path[FILE_PATH_SIZE], one;
    if (log->fd < 0 && file_join(path, NULL, "%s/rank-%d.log", a->dir, a->first_rank + i) == 0)
        log->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (log->fd < 0) return 0;
    ssize_t n = pread(log->fd, size ? buf : &one, size ? size : 1, log->sent);
    return n > 0 ? n : 0;
}

int64_t attempt_log_bytes(struct attempt *a, void *buf, size_t size, int *rank, int64_t *offset)
{
    for (int i = 0; i < a->n_logs; i++) {
        int64_t n = log_read(a, i, buf, size);
        if (n == 0) continue;
        *rank = a->first_rank + i;
        *offset = a->log[i].sent;
        if (size) a->log[i].sent += n;
        return n;
    }
    return 0;
}
