/* gang.h: drives real seqrank processes in the same way as seqgang. Each process has a socket
 * pair, and all processes share one memfd. Their blobs are gathered and sent to all of them. The
 * abort flag is set when a rank dies. The messages that the ranks send are kept.
 *
 *     gang_program(argv[0]);
 *     gang_start(&g, n, &order);
 *     gang_run(&g);              reads until all ranks have exited */
#ifndef SEQD_TESTS_GANG_H
#define SEQD_TESTS_GANG_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/core/gang_start.h"
#include "api/core/job_state.h"
#include "api/core/jread.h"
#include "api/core/library.h"
#include "api/core/rank.h"
#include "tests/lib/small.h"
#include "worker/plan/check.h"
#include "worker/family/shape.h"

#define MAX_RANKS  8
#define MAX_STEPS  64
#define MAX_EVENTS 64

static char program[1024]; /* the path of build/MODE/seqrank */

/* ---- a gang, as small as it can be ----------------------------------------------------------- */

struct order {
    struct rank_args args;
    struct job_spec spec;
};

/* Makes a job of the small model. The model's files, the prepared data and the job's directory are
 * beneath scratch. The caller sets the data, the length and the ranks. gang_start keeps a pointer
 * to the order, and the caller frees the order. */
static inline struct order *order_new(enum job_kind kind, const char *scratch,
                                      const char *prepared_id, const char *job_dir)
{
    struct order *o = calloc(1, sizeof *o);
    struct job_spec *s = &o->spec;
    struct rank_args *a = &o->args;
    a->job = 7;
    a->epoch = 1;
    a->task = TASK_RUN;
    a->n_roots = 1;
    snprintf(a->roots[0], sizeof a->roots[0], "%s", scratch);
    snprintf(a->prepared_dir, sizeof a->prepared_dir, "%s/prepared", scratch);
    snprintf(a->prepared_id, sizeof a->prepared_id, "%s", prepared_id);
    snprintf(a->job_dir, sizeof a->job_dir, "%s/%s", scratch, job_dir);
    mkdir(a->prepared_dir, 0700);
    mkdir(a->job_dir, 0700);
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = kind;
    s->model.shape = tiny_shape;
    s->seed = 11;
    s->optim.lr = 3e-3;
    s->schedule.warmup_steps = 2;
    return o;
}

struct gang_event {
    int type; /* enum job_event */
    int64_t step;
    char json[1536];
};

struct gang {
    int n;
    pid_t pid[MAX_RANKS];
    int fd[MAX_RANKS]; /* -1 once closed */
    int status[MAX_RANKS];
    struct shm_head *head;
    int memfd;
    struct rank_blob blob[MAX_RANKS];
    int n_blobs, n_ready, n_steps, n_checkpoints, n_artifacts, n_notes, n_events, n_fails;
    struct rank_step step[MAX_STEPS];
    char checkpoint[4096], artifact[4096]; /* the JSON of the last event of each kind */
    struct gang_event event[MAX_EVENTS];   /* all events, in order */
    struct rank_progress told[2];          /* the first progress report and the last one */
    int n_told;
    char result[RANK_RESULT_SIZE + 1];
    struct rank_fail fail; /* the first failure */
    int fail_rank;
    bool silent_blobs; /* BLOBS is never sent */
    bool short_blobs;  /* the blobs are sent one byte too short */
    /* the rank that is killed by SIGKILL at the first checkpoint event; -1 means no rank */
    int kill_rank;
    /* numbers from the records of last operations, read when the run is over */
    int64_t n_ops[MAX_RANKS], n_tasks[MAX_RANKS];
    /* a function that is called at each step that a rank reports, or NULL */
    void (*on_step)(struct gang *g, const struct rank_step *s);
    int stop_at_step; /* the step at which STOP is sent to all ranks; 0 means never */
    int save_at_step; /* the step at which SAVE is sent to all ranks; 0 means never */
    /* SAVE is sent to all ranks together with BLOBS; the first rank that saves ends the gang */
    bool save_at_once;
    /* the rank that is stopped by SIGSTOP, and is killed after all other ranks have exited; -1
     * means no rank */
    int stopped;
    struct rank_fail said[MAX_RANKS]; /* the failure of each rank */
    int64_t left_ms[MAX_RANKS];       /* the time, by gang_now_ms, at which each rank had exited */
};

static inline int64_t gang_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void gang_abort(struct gang *g, int rank)
{
    g->head->abort_rank = rank;
    __atomic_store_n(&g->head->abort, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < g->n; i++) {
        __atomic_add_fetch(&g->head->door[i], 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &g->head->door[i], FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    }
}

static inline void send_packet(struct gang *g, int r, enum rank_msg_type type, const void *data,
                               size_t size)
{
    struct rank_msg h = {RANK_ABI, (uint32_t)type, r, (uint32_t)size};
    struct iovec iov[2] = {{&h, sizeof h}, {(void *)data, size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    if (g->fd[r] >= 0) sendmsg(g->fd[r], &m, MSG_NOSIGNAL);
}

/* A function that is called in the process of each of the n ranks to set environment variables, or
 * NULL. */
static void (*gang_env)(int rank, int n);

/* Sets variables for NCCL. If there are enough GPUs, each rank gets one of its own. If there are
 * fewer GPUs than ranks, all ranks share one GPU. In this case the variables make NCCL treat each
 * rank as if it were on a host of its own, so that NCCL uses sockets. */
static inline void gang_nccl_env(int rank, int n)
{
    char number[16], host[32];
    snprintf(host, sizeof host, "/dev/nvidia%d", n - 1);
    snprintf(number, sizeof number, "%d", rank);
    if (access(host, F_OK) == 0) {
        setenv("CUDA_VISIBLE_DEVICES", number, 1);
        return;
    }
    snprintf(host, sizeof host, "rank-%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    setenv("NCCL_MAX_CTAS", "1", 1);
}

/* Tells whether NCCL and a GPU that it can use are available. Prints the name of the library, or
 * the reason why they are not available. */
static inline bool gang_has_nccl(const char *device)
{
    struct library l;
    struct err e = {.text = "there is no GPU"};
    if (!strcmp(device, "cuda") && !library_open(&l, LIBRARY_NCCL, &e)) {
        printf("  over %s\n", l.text);
        return true;
    }
    printf("  not over NCCL: %s\n", e.text);
    return false;
}

static inline void spawn(struct gang *g, int r, int pair[2])
{
    pid_t pid = fork();
    if (pid) {
        g->pid[r] = pid;
        return;
    }
    /* One of the two descriptors may be 3 or 4 already, so both are first duplicated to higher
     * numbers. */
    int sock = fcntl(pair[1], F_DUPFD_CLOEXEC, 10), mem = fcntl(g->memfd, F_DUPFD_CLOEXEC, 10);
    if (dup2(sock, RANK_SOCKET_FD) < 0 || dup2(mem, RANK_MEMFD) < 0) _exit(127);
    if (gang_env) gang_env(r, g->n);
    execl(program, "seqrank", (char *)NULL);
    _exit(127);
}

static inline void gang_start(struct gang *g, int n, struct order *o)
{
    *g = (struct gang){.n = n, .kill_rank = -1, .fail_rank = -1, .stopped = -1};
    g->memfd = memfd_create("ring", MFD_CLOEXEC);
    if (ftruncate(g->memfd, 4096 > sizeof *g->head ? 4096 : (off_t)sizeof *g->head)) abort();
    g->head = mmap(NULL, sizeof *g->head, PROT_READ | PROT_WRITE, MAP_SHARED, g->memfd, 0);
    g->head->magic = SHM_MAGIC;
    g->head->n_ranks = (uint32_t)n;
    g->head->abort_rank = -1;
    for (int r = 0; r < n; r++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) abort();
        /* With a small buffer, a rank can send only a few reports before the test reads them. A
         * test that reacts to the report of a step therefore reacts only a few steps later,
         * however fast the steps are. */
        int few = 4096;
        if (setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &few, sizeof few)) abort();
        spawn(g, r, pair);
        close(pair[1]);
        g->fd[r] = pair[0];
        o->args.rank = r;
        o->args.n_ranks = n;
        send_packet(g, r, RANK_ARGS, o, sizeof *o);
    }
}

static inline void take_event(struct gang *g, const struct rank_event *ev, const char *json,
                              size_t size)
{
    if (g->n_events < MAX_EVENTS) {
        struct gang_event *k = &g->event[g->n_events++];
        k->type = ev->type;
        k->step = ev->step;
        snprintf(k->json, sizeof k->json, "%.*s", (int)size, json);
    }
    g->n_notes += ev->type == EV_NOTE;
    g->n_artifacts += ev->type == EV_ARTIFACT;
    if (ev->type != EV_CHECKPOINT && ev->type != EV_ARTIFACT) return;
    char *out = ev->type == EV_CHECKPOINT ? g->checkpoint : g->artifact;
    size_t n = size < sizeof g->checkpoint - 1 ? size : sizeof g->checkpoint - 1;
    memcpy(out, json, n);
    out[n] = 0;
    if (ev->type != EV_CHECKPOINT) return;
    g->n_checkpoints++;
    if (g->kill_rank >= 0) kill(g->pid[g->kill_rank], SIGKILL);
}

static inline void take_message(struct gang *g, int r, const struct rank_msg *h, const char *body)
{
    switch (h->type) {
    case RANK_BLOB:
        g->blob[r].rank = r;
        g->blob[r].size = (int32_t)h->size - g->short_blobs;
        memcpy(g->blob[r].data, body, h->size);
        if (++g->n_blobs == g->n && !g->silent_blobs)
            for (int i = 0; i < g->n; i++)
                send_packet(g, i, RANK_BLOBS, g->blob, sizeof g->blob[0] * (size_t)g->n);
        for (int i = 0; g->save_at_once && g->n_blobs == g->n && i < g->n; i++)
            send_packet(g, i, RANK_SAVE, NULL, 0);
        break;
    case RANK_READY: g->n_ready++; break;
    case RANK_STEP:
        if (g->n_steps < MAX_STEPS) memcpy(&g->step[g->n_steps++], body, sizeof g->step[0]);
        if (g->on_step) g->on_step(g, (const struct rank_step *)body);
        if (g->stop_at_step && g->step[g->n_steps - 1].step == g->stop_at_step)
            for (int i = 0; i < g->n; i++) send_packet(g, i, RANK_STOP, NULL, 0);
        if (g->save_at_step && g->step[g->n_steps - 1].step == g->save_at_step)
            for (int i = 0; i < g->n; i++) send_packet(g, i, RANK_SAVE, NULL, 0);
        break;
    case RANK_PROGRESS:
        CHECK(h->rank == 0 && h->size == sizeof g->told[0]);
        memcpy(&g->told[g->n_told > 0], body, sizeof g->told[0]);
        if (!g->n_told++) g->told[1] = g->told[0];
        break;
    case RANK_EVENT: {
        struct rank_event ev;
        memcpy(&ev, body, sizeof ev);
        take_event(g, &ev, body + sizeof ev, h->size - sizeof ev);
        break;
    }
    case RANK_RESULT:
        memcpy(g->result, body, h->size);
        g->result[h->size] = 0;
        break;
    case RANK_FAIL:
        memcpy(&g->said[r], body, sizeof g->said[r]);
        if (g->n_fails++ == 0) memcpy(&g->fail, body, sizeof g->fail), g->fail_rank = r;
        break;
    default: CHECK_MSG(0, "message %u", h->type);
    }
}

/* Reads until every rank has closed its socket, and then reaps the processes. */
static inline void gang_run(struct gang *g)
{
    static char packet[sizeof(struct rank_msg) + RANK_RESULT_SIZE + 4096];
    for (int open = g->n; open > 0;) {
        struct pollfd p[MAX_RANKS];
        for (int i = 0; i < g->n; i++) p[i] = (struct pollfd){.fd = g->fd[i], .events = POLLIN};
        poll(p, (nfds_t)g->n, -1);
        for (int i = 0; i < g->n; i++) {
            if (!p[i].revents) continue;
            ssize_t got;
            /* If a rank exits without having read our last message, the connection is reset. The
             * messages that the rank had sent can still be read. */
            do got = recv(g->fd[i], packet, sizeof packet, 0);
            while (got < 0 && (errno == EINTR || errno == ECONNRESET));
            struct rank_msg h;
            if (got >= (ssize_t)sizeof h) {
                memcpy(&h, packet, sizeof h);
                CHECK(h.abi == RANK_ABI && h.rank <= i && (size_t)got == sizeof h + h.size);
                take_message(g, i, &h, packet + sizeof h);
                continue;
            }
            close(g->fd[i]);
            g->fd[i] = -1;
            open--;
            waitpid(g->pid[i], &g->status[i], 0);
            g->left_ms[i] = gang_now_ms();
            const bool saved = WIFEXITED(g->status[i]) &&
                               WEXITSTATUS(g->status[i]) == RANK_EXIT_SAVED;
            if (g->status[i] != 0 && (!saved || g->save_at_once)) gang_abort(g, i);
            if (g->stopped >= 0 && open == 1) kill(g->pid[g->stopped], SIGKILL);
        }
    }
    for (int i = 0; i < g->n; i++) {
        g->n_ops[i] = g->head->lastop[i].n_ops;
        g->n_tasks[i] = g->head->lastop[i].n_tasks;
    }
    munmap(g->head, sizeof *g->head);
    close(g->memfd);
}

static inline bool all_ok(const struct gang *g)
{
    bool ok = true;
    for (int i = 0; i < g->n; i++) ok = ok && g->status[i] == 0;
    if (!ok && g->n_fails) printf("  rank %d: %s: %s\n", g->fail_rank, g->fail.field, g->fail.text);
    return ok;
}

/* Runs a job and returns whether it succeeded. The job's spec must be valid. */
static inline bool gang_runs(struct gang *g, struct order *o)
{
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(g, o->spec.resources.ranks, o);
    gang_run(g);
    const bool ok = all_ok(g);
    CHECK(ok);
    return ok;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Finds the member `key` of a JSON object, but not of objects inside it. Sets *t to the first
 * token of the member's value. */
static inline bool member(const char *json, const char *key, struct jread *j, enum jtok *t)
{
    jread_init(j, json, strlen(json));
    if (jread_next(j) != J_OBJECT) return false;
    while (jread_next(j) == J_KEY) {
        if (!jread_is(j, key)) {
            if (jread_skip(j)) return false;
            continue;
        }
        *t = jread_next(j);
        return true;
    }
    return false;
}

static inline double number(const char *json, const char *key)
{
    struct jread j;
    enum jtok t;
    double v = 0;
    bool ok = member(json, key, &j, &t) && t == J_NUMBER && !jread_double(&j, &v);
    CHECK_MSG(ok, "no number \"%s\" in %s", key, json);
    return v;
}

static inline const char *text(const char *json, const char *key, char *out, size_t size)
{
    struct jread j;
    enum jtok t;
    bool ok = member(json, key, &j, &t) && t == J_STRING && !jread_copy(&j, out, size);
    CHECK_MSG(ok, "no string \"%s\" in %s", key, json);
    if (!ok) out[0] = 0;
    return out;
}

static inline bool flag(const char *json, const char *key)
{
    struct jread j;
    enum jtok t;
    return member(json, key, &j, &t) && t == J_TRUE;
}

/* Returns the n-th event of a type, counted from 0, or NULL if there are fewer. */
static inline const struct gang_event *gang_event(const struct gang *g, int type, int n)
{
    for (int i = 0; i < g->n_events; i++)
        if (g->event[i].type == type && n-- == 0) return &g->event[i];
    return NULL;
}

/* Finds the program seqrank. The test's program is in build/MODE/tests, and seqrank is in
 * build/MODE. */
static inline void gang_program(const char *argv0)
{
    const char *slash = strrchr(argv0, '/');
    snprintf(program, sizeof program, "%.*s/../seqrank", slash ? (int)(slash - argv0) : 1,
             slash ? argv0 : ".");
}

#endif
