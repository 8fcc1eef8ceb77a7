/* Drives real seqrank processes the way seqgang does: a socket pair each, one memfd, blobs gathered
 * and handed round, the abort flag raised when a rank dies. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/futex.h>
#include <unistd.h>

#include "api/core/jread.h"
#include "api/core/rank.h"
#include "api/core/sha256.h"
#include "tests/test.h"

#define MAX_RANKS 4
#define MAX_STEPS 64

static char program[1024]; /* build/MODE/seqrank */
static char scratch[64];   /* everything of this test lies beneath it */

/* ---- a gang, as small as it can be ------------------------------------------------------------ */

struct order {
    struct rank_args args;
    struct job_spec spec;
};

struct gang {
    int n;
    pid_t pid[MAX_RANKS];
    int fd[MAX_RANKS]; /* -1 once closed */
    int status[MAX_RANKS];
    struct shm_head *head;
    int memfd;
    struct rank_blob blob[MAX_RANKS];
    int n_blobs, n_ready, n_steps, n_checkpoints, n_artifacts, n_fails;
    struct rank_step step[MAX_STEPS];
    char checkpoint[4096], artifact[4096]; /* JSON of the last event */
    char result[RANK_RESULT_SIZE + 1];
    struct rank_fail fail; /* the first */
    int fail_rank;
    bool silent_blobs; /* never answer with BLOBS */
    int kill_rank;     /* SIGKILL this one at the first checkpoint event; -1: nobody */
    int stop_at_step;  /* send STOP to all when this step is reported; 0: never */
};

static void gang_abort(struct gang *g, int rank)
{
    g->head->abort_rank = rank;
    __atomic_store_n(&g->head->abort, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < g->n; i++) {
        __atomic_add_fetch(&g->head->door[i], 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &g->head->door[i], FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    }
}

static void send_packet(struct gang *g, int r, enum rank_msg_type type, const void *data, size_t size)
{
    struct rank_msg h = {RANK_ABI, (uint32_t)type, r, (uint32_t)size};
    struct iovec iov[2] = {{&h, sizeof h}, {(void *)data, size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    if (g->fd[r] >= 0) sendmsg(g->fd[r], &m, MSG_NOSIGNAL);
}

static void spawn(struct gang *g, int r, int pair[2])
{
    g->pid[r] = fork();
    if (g->pid[r]) return;
    /* The pair's ends may be 3 or 4 themselves: lift both out of the way first. */
    int sock = fcntl(pair[1], F_DUPFD_CLOEXEC, 10), mem = fcntl(g->memfd, F_DUPFD_CLOEXEC, 10);
    if (dup2(sock, RANK_SOCKET_FD) < 0 || dup2(mem, RANK_MEMFD) < 0) _exit(127);
    execl(program, "seqrank", (char *)NULL);
    _exit(127);
}

static void gang_start(struct gang *g, int n, struct order *o)
{
    *g = (struct gang){.n = n, .kill_rank = -1, .fail_rank = -1};
    g->memfd = memfd_create("ring", MFD_CLOEXEC);
    if (ftruncate(g->memfd, 4096 > sizeof *g->head ? 4096 : (off_t)sizeof *g->head)) abort();
    g->head = mmap(NULL, sizeof *g->head, PROT_READ | PROT_WRITE, MAP_SHARED, g->memfd, 0);
    g->head->magic = SHM_MAGIC;
    g->head->n_ranks = (uint32_t)n;
    g->head->abort_rank = -1;
    for (int r = 0; r < n; r++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) abort();
        spawn(g, r, pair);
        close(pair[1]);
        g->fd[r] = pair[0];
        o->args.rank = r;
        o->args.n_ranks = n;
        send_packet(g, r, RANK_ARGS, o, sizeof *o);
    }
}

static void take_event(struct gang *g, const struct rank_event *ev, const char *json, size_t size)
{
    char *out = ev->type == EV_CHECKPOINT ? g->checkpoint : g->artifact;
    size_t n = size < sizeof g->checkpoint - 1 ? size : sizeof g->checkpoint - 1;
    memcpy(out, json, n);
    out[n] = 0;
    if (ev->type == EV_ARTIFACT) g->n_artifacts++;
    if (ev->type != EV_CHECKPOINT) return;
    g->n_checkpoints++;
    if (g->kill_rank >= 0) kill(g->pid[g->kill_rank], SIGKILL);
}

static void take_message(struct gang *g, int r, const struct rank_msg *h, const char *body)
{
    switch (h->type) {
    case RANK_BLOB:
        g->blob[r].rank = r;
        g->blob[r].size = (int32_t)h->size;
        memcpy(g->blob[r].data, body, h->size);
        if (++g->n_blobs == g->n && !g->silent_blobs)
            for (int i = 0; i < g->n; i++)
                send_packet(g, i, RANK_BLOBS, g->blob, sizeof g->blob[0] * (size_t)g->n);
        break;
    case RANK_READY: g->n_ready++; break;
    case RANK_STEP:
        if (g->n_steps < MAX_STEPS) memcpy(&g->step[g->n_steps++], body, sizeof g->step[0]);
        if (g->stop_at_step && g->step[g->n_steps - 1].step == g->stop_at_step)
            for (int i = 0; i < g->n; i++) send_packet(g, i, RANK_STOP, NULL, 0);
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
        if (g->n_fails++ == 0) memcpy(&g->fail, body, sizeof g->fail), g->fail_rank = r;
        break;
    default: CHECK_MSG(0, "message %u", h->type);
    }
}

/* Reads until every rank has closed its socket, then reaps. */
static void gang_run(struct gang *g)
{
    static char packet[sizeof(struct rank_msg) + RANK_RESULT_SIZE + 4096];
    for (int open = g->n; open > 0;) {
        struct pollfd p[MAX_RANKS];
        for (int i = 0; i < g->n; i++) p[i] = (struct pollfd){.fd = g->fd[i], .events = POLLIN};
        poll(p, (nfds_t)g->n, -1);
        for (int i = 0; i < g->n; i++) {
            if (!p[i].revents) continue;
            ssize_t got = recv(g->fd[i], packet, sizeof packet, 0);
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
            if (g->status[i] != 0) gang_abort(g, i);
        }
    }
    munmap(g->head, sizeof *g->head);
    close(g->memfd);
}

static bool all_ok(const struct gang *g)
{
    bool ok = true;
    for (int i = 0; i < g->n; i++) ok = ok && g->status[i] == 0;
    if (!ok && g->n_fails) printf("  rank %d: %s: %s\n", g->fail_rank, g->fail.field, g->fail.text);
    return ok;
}
