/* bench_nodes.c: measures how fast nodes come up. Simulated agents in a process of their own, each
 * with a connection of its own over gRPC, send HELLO and then heartbeats to seqd's links, control
 * and store. In each round other names take the place of those of the round before, until the table
 * of nodes has overflowed.
 *
 *   bench_nodes            1,000 nodes, six rounds
 *   bench_nodes N ROUNDS */
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/rpc.h"
#include "daemon/loop/control.h"
#include "daemon/mailbox/link.h"
#include "tests/lib/seqd.h"
#include "tests/lib/test.h"

enum { LIMIT_MS = 10000 };

static char dir[] = "/tmp/seqd-nodes-XXXXXX";
static struct loop *loop;

static double clock_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void give_up(void *arg)
{
    fprintf(stderr, "bench_nodes: a round took more than %d s, and %d nodes are up\n",
            LIMIT_MS / 1000, *(int *)arg);
    exit(1);
}

/* ---- agents ---------------------------------------------------------------------------------- */

struct agent {
    struct rpc_client *client;
    struct rpc_stream *stream;
    char name[NODE_NAME];
};

static void agent_send(struct agent *a, const struct msg *m)
{
    struct arena mem;
    size_t size;
    arena_init(&mem, 1 << 20);
    void *data = wire_pack(m, &mem, &size);
    if (data && a->stream) rpc_send(a->stream, data, size);
    arena_fini(&mem);
}

static void agent_opened(void *arg, struct rpc_stream *s)
{
    struct agent *a = arg;
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 8, .n_cores = 8};
    a->stream = s;
    snprintf(m.node, sizeof m.node, "%s", a->name);
    memcpy(m.instance, a->name, sizeof m.instance);
    agent_send(a, &m);
}

static void agent_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
}

static void agent_closed(void *arg, struct rpc_stream *s, const char *why)
{
    struct agent *a = arg;
    a->stream = NULL;
}

static const struct rpc_calls agent_calls = {agent_opened, agent_message, agent_closed, NULL};

/* Dials by a name of its own for the socket, because gRPC would share a connection. */
static void agent_dial(struct agent *a, int round, int i)
{
    char path[64], address[80];
    struct err e;
    snprintf(a->name, sizeof a->name, "rack-%d-node-%d", round, i);
    snprintf(path, sizeof path, "%s/s%d", dir, i);
    if (!round && symlink("sock", path)) abort();
    snprintf(address, sizeof address, "unix:%s", path);
    if (!(a->client = rpc_dial(loop, address, &agent_calls, a, &e))) abort();
}

static void agent_end(struct agent *a)
{
    rpc_client_destroy(a->client);
    *a = (struct agent){NULL};
}

struct agents {
    int n;
    struct agent *of;
    struct loop_timer *timer;
};

static void beat(void *arg)
{
    struct agents *all = arg;
    for (int i = 0; i < all->n; i++)
        if (all->of[i].stream) agent_send(&all->of[i], &(struct msg){.type = MSG_HEARTBEAT});
    loop_timer_set(all->timer, WIRE_HEARTBEAT_MS);
}

/* Replaces all agents when a byte arrives on the pipe, and ends with the pipe. */
static int run_agents(int n, int commands)
{
    struct agents all = {n, calloc((size_t)n, sizeof(struct agent)), NULL};
    char byte;
    ssize_t got;
    loop = loop_create(NULL, NULL, NULL);
    if (!all.of || !loop) abort();
    all.timer = loop_timer_create(loop, beat, &all);
    loop_timer_set(all.timer, WIRE_HEARTBEAT_MS);
    fcntl(commands, F_SETFL, O_NONBLOCK);
    for (int round = 0; (got = read(commands, &byte, 1));) {
        for (int i = 0; got > 0 && round && i < n; i++) agent_end(&all.of[i]);
        for (int i = 0; got > 0 && i < n; i++) agent_dial(&all.of[i], round, i);
        round += got > 0;
        loop_turn(loop, 10);
    }
    _exit(0);
}

/* ---- seqd ------------------------------------------------------------------------------------ */

static struct {
    struct control *control;
    struct links *links;
    int n_up, n_refused;
} w;

static void on_up(void *arg, const char *node, const struct msg *hello)
{
    control_link_calls.up(arg, node, hello);
    w.n_up++;
}

static const char *on_admit(void *arg, const struct msg *hello)
{
    const char *why = control_link_calls.admit(arg, hello);
    w.n_refused += why != NULL;
    return why;
}

static void on_changed(void *arg, int64_t job)
{
}

static int send_to(void *arg, const char *node, const struct msg *m)
{
    return link_send(w.links, node, m);
}

static void bench(int n, int rounds, int commands)
{
    struct err e;
    char address[64];
    struct store *store = store_open(loop, dir, &e);
    struct logs *logs = logs_open(dir, &e);
    const struct control_options o = {
        .loop = loop,
        .store = store,
        .logs = logs,
        .secret = (const unsigned char *)"a secret of the test, 32 bytes.",
        .send = send_to,
        .changed = on_changed};
    w.control = control_create(&o, &e);
    struct link_calls calls = control_link_calls;
    calls.up = on_up;
    calls.admit = on_admit;
    snprintf(address, sizeof address, "unix:%s/sock", dir);
    w.links = link_create(loop, &(struct link_options){.address = address}, &calls, w.control, &e);
    CHECK_MSG(w.control && w.links, "%s", e.text);
    for (int round = 0; round < rounds && w.links; round++) {
        struct loop_timer *limit = loop_timer_create(loop, give_up, &w.n_up);
        const double from = clock_ms(CLOCK_MONOTONIC), cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
        loop_timer_set(limit, LIMIT_MS);
        w.n_up = w.n_refused = 0;
        CHECK(write(commands, "r", 1) == 1);
        while (w.n_up < n) loop_turn(loop, 100);
        printf(
            "round %d: %d names up in %.2f s, %.3f s of seqd's processor, %d refused, %d known\n",
            round + 1, n, (clock_ms(CLOCK_MONOTONIC) - from) / 1e3,
            (clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu) / 1e3, w.n_refused,
            control_nodes(w.control)->n);
        loop_timer_destroy(limit);
    }
    close(commands);
    link_destroy(w.links);
    store_close(store);
    control_destroy(w.control);
    logs_close(logs);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    return remove(path);
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 1000, rounds = argc > 2 ? atoi(argv[2]) : 6;
    struct rlimit r;
    int commands[2];
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    seqd_test_init();
    if (!mkdtemp(dir) || pipe(commands) || n < 1 || rounds < 1) return 2;
    const pid_t pid = fork();
    if (!pid) {
        close(commands[1]);
        return run_agents(n, commands[0]);
    }
    close(commands[0]);
    loop = loop_create(NULL, NULL, NULL);
    bench(n, rounds, commands[1]);
    waitpid(pid, NULL, 0);
    loop_destroy(loop);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return test_failures_now != 0;
}
