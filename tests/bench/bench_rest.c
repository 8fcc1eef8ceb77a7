/* bench_rest: measures the cost of TLS. In one run it measures submit, list and follow on kept
 * connections, with TLS and as plain HTTP; handshakes; and the server's memory for an idle
 * connection and for a follower.
 *
 * The server is this process and the client is a child process, so the figures include both, on
 * loopback. Rounds of plain HTTP and of TLS alternate, and the smallest time of each is used,
 * because other load can only add time. The processor time is the sum for both processes. If other
 * programs use the processors, the processor time is more reliable than the wall time. */
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "daemon/state/attempt.h"
#include "tests/lib/rest.h"
#include "tests/lib/tls_client.h"

enum { ROUNDS = 12, SUBMITS = 60, LISTS = 80, LINES = 200, REPLAYS = 6, SHAKES = 300 };
enum { IDLE = 5000, FOLLOWERS = 1000, SILENT = 1000 };

enum figure { SUBMIT, LIST, LINE, REPLAY, FIGURES };

struct cost { /* of one, in microseconds */
    double wall, cpu;
};

static const char *const names[FIGURES] = {"submit a job", "list 100 jobs",
                                           "a line to a follower, one after the other",
                                           "follow 1 MiB of log"};

static struct cost best[2][FIGURES]; /* plain, TLS */
static char dir[] = "/tmp/seqd-bench-XXXXXX", cert[64], key[64];

/* A child must not continue after a failure, because the server would wait for it. */
#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            fprintf(stderr, "bench_rest:%d: %s: %s\n", __LINE__, #x, strerror(errno)), _exit(1);   \
    } while (0)

static double read_clock(clockid_t id)
{
    struct timespec t;
    MUST(!clock_gettime(id, &t));
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Returns the cost since the client began. Called in the client. */
static struct cost spent(void)
{
    clockid_t server;
    MUST(!clock_getcpuclockid(getppid(), &server));
    return (struct cost){read_clock(CLOCK_MONOTONIC),
                         read_clock(CLOCK_PROCESS_CPUTIME_ID) + read_clock(server)};
}

static struct cost since(struct cost from, int n)
{
    const struct cost now = spent();
    return (struct cost){(now.wall - from.wall) / n, (now.cpu - from.cpu) / n};
}

/* ---- the client's process -------------------------------------------------------------------- */

struct client {
    int to_server; /* a pipe for its reports and requests */
    bool tls;
    int fd;
    struct cost us[FIGURES];
};

static char got[1 << 16];
static size_t n_got;

static int dial_kept(struct client *c)
{
    int one = 1;
    const int fd = dial_tcp(1);
    MUST(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    if (!c->tls) return fd;
    tls_client(fd, TLS_PLAN, "http/1.1");
    MUST(!tls_connect(fd));
    return fd;
}

static void say(struct client *c, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t sent = c->tls ? tls_put(c->fd, bytes, n) : send(c->fd, bytes, n, 0);
        MUST(sent > 0);
        bytes += sent;
        n -= (size_t)sent;
    }
}

/* Reads until `until` has been received. Drops all bytes before it except for the last ones. */
static void hear(struct client *c, const char *until)
{
    const size_t keep = strlen(until);
    n_got = 0;
    for (;;) {
        if (n_got > sizeof got / 2) {
            memmove(got, got + n_got - keep, keep);
            n_got = keep;
        }
        char *to = got + n_got;
        const size_t room = sizeof got - 1 - n_got;
        const ssize_t n = c->tls ? tls_get(c->fd, to, room) : recv(c->fd, to, room, 0);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {c->fd, POLLIN, 0};
            poll(&p, 1, -1);
            continue;
        }
        MUST(n > 0);
        n_got += (size_t)n;
        got[n_got] = 0;
        if (strstr(got, until)) return;
    }
}

static void do_submits(struct client *c)
{
    char ask[1024];
    const int n = snprintf(ask, sizeof ask,
                           "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n" BEARER
                           "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                           sizeof job_json - 1, job_json);
    const struct cost from = spent();
    for (int i = 0; i < SUBMITS; i++) {
        say(c, ask, (size_t)n);
        hear(c, "\"id\":");
    }
    c->us[SUBMIT] = since(from, SUBMITS);
}

static void do_lists(struct client *c)
{
    static const char ask[] = "GET /v1/jobs?limit=100 HTTP/1.1\r\nHost: localhost\r\n" BEARER
                              "\r\n";
    const struct cost from = spent();
    for (int i = 0; i < LISTS; i++) {
        say(c, ask, sizeof ask - 1);
        hear(c, "\"next_cursor\"");
    }
    c->us[LIST] = since(from, LISTS);
}

static const char follow[] = "GET /v1/jobs/%d/logs?rank=0 HTTP/1.1\r\nHost: localhost\r\n" BEARER
                             "Accept: text/event-stream\r\n\r\n";

static void ask_server(struct client *c, char what)
{
    MUST(write(c->to_server, &what, 1) == 1);
}

/* Writes lines. Each line is written after the previous line has been read. */
static void do_lines(struct client *c)
{
    char ask[512];
    say(c, ask, (size_t)snprintf(ask, sizeof ask, follow, 1));
    hear(c, "retry: 3000");
    const struct cost from = spent();
    for (int i = 0; i < LINES; i++) {
        ask_server(c, 'l');
        hear(c, "\"text\":\"line");
    }
    c->us[LINE] = since(from, LINES);
    close(c->fd);
    c->fd = dial_kept(c);
}

/* Reads the complete log of job 2, which has ended. */
static void do_replays(struct client *c)
{
    char ask[512];
    const int n = snprintf(ask, sizeof ask, follow, 2);
    const struct cost from = spent();
    for (int i = 0; i < REPLAYS; i++) {
        say(c, ask, (size_t)n);
        hear(c, "\n\n\r\n0\r\n\r\n"); /* the last chunk */
    }
    c->us[REPLAY] = since(from, REPLAYS);
}

static void run_client(struct client *c)
{
    c->fd = dial_kept(c);
    do_submits(c);
    do_lists(c);
    ask_server(c, 'r');
    do_lines(c);
    do_replays(c);
    ask_server(c, 'f');
    MUST(write(c->to_server, c->us, sizeof c->us) == sizeof c->us);
}

static struct cost shakes(struct client *c, bool resumed)
{
    gnutls_datum_t ticket = {0};
    struct cost from = spent();
    for (int i = 0; i < SHAKES; i++) {
        const int fd = dial_tcp(1);
        tls_client(fd, TLS_PLAN, "http/1.1");
        if (ticket.data) gnutls_session_set_data(tls_of[fd], ticket.data, ticket.size);
        MUST(!tls_connect(fd));
        MUST(!resumed || !i || gnutls_session_is_resumed(tls_of[fd]));
        c->fd = fd;
        if (resumed && !i) {
            say(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 42);
            hear(c, "\"ok\"");
            MUST(!gnutls_session_get_data2(tls_of[fd], &ticket));
            from = spent();
        }
        close(fd);
    }
    gnutls_free(ticket.data);
    return since(from, SHAKES);
}

static void run_shakes(struct client *c)
{
    const struct cost us[2] = {shakes(c, false), shakes(c, true)};
    ask_server(c, 'f');
    MUST(write(c->to_server, us, sizeof us) == sizeof us);
}

/* Makes n clients. Each keeps a connection or a stream open while the server measures its
 * memory. */
static void hold(struct client *c, int n, const char *ask, const char *until)
{
    int *fd = calloc((size_t)n, sizeof *fd);
    for (int i = 0; i < n; i++) {
        c->fd = fd[i] = *until ? dial_kept(c) : dial_tcp(1);
        if (*until) say(c, ask, strlen(ask));
        if (*until) hear(c, until);
    }
    ask_server(c, 'm');
    char done;
    MUST(read(STDIN_FILENO, &done, 1) >= 0);
    free(fd);
}

/* ---- the server's process -------------------------------------------------------------------- */

static struct {
    int pipe;
    bool finished, look;
    size_t log_size;
} server;

static int64_t resident(void)
{
    long all, rss;
    FILE *f = fopen("/proc/self/statm", "r");
    MUST(f && fscanf(f, "%ld %ld", &all, &rss) == 2 && !fclose(f));
    return (int64_t)rss * sysconf(_SC_PAGESIZE);
}

static void append(int64_t job, size_t at, const char *text, size_t n)
{
    struct err e;
    MUST(logs_append(w.logs, job, 1, 0, (int64_t)at, text, n, &e) >= 0);
    follows_logged(w.routes.follows, job);
}

static void prepare_replay(void)
{
    static char text[1 << 20];
    for (size_t i = 0; i < sizeof text; i++) text[i] = i % 80 == 79 ? '\n' : 'x';
    for (size_t at = 0; at < sizeof text; at += 65536) append(2, at, text + at, 65536);
    MUST(post("/v1/jobs/2:cancel", "") == 202);
}

static void on_pipe(void *arg, uint32_t events)
{
    char what;
    MUST(read(server.pipe, &what, 1) == 1);
    if (what == 'l') {
        append(1, server.log_size, "line\n", 5);
        server.log_size += 5;
    }
    if (what == 'm') server.look = true;
    if (what == 'f') server.finished = true;
}

struct child {
    pid_t pid;
    int from, to; /* pipes */
};

static struct child start(bool tls, void (*run)(struct client *c))
{
    int up[2], down[2];
    MUST(!pipe(up) && !pipe(down));
    const pid_t pid = fork();
    MUST(pid >= 0);
    if (!pid) {
        struct client c = {.to_server = up[1], .tls = tls, .fd = -1};
        dup2(down[0], STDIN_FILENO);
        close(down[1]);
        run(&c);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    server.finished = server.look = false;
    server.pipe = up[0];
    return (struct child){pid, up[0], down[1]};
}

static void begin_bench(bool tls, int connections)
{
    rest_by.cert = tls ? cert : NULL;
    rest_by.key = tls ? key : NULL;
    rest_connections = connections;
    server.log_size = 0;
    begin_in(true, 0);
}

/* Runs the loop until the child reports that it has finished, or asks for a measurement. */
static void serve(const struct child *k)
{
    struct err e;
    struct loop_fd *f = loop_fd_add(w.loop, k->from, EPOLLIN, on_pipe, NULL, &e);
    MUST(f != NULL);
    while (!server.finished && !server.look) loop_turn(w.loop, 5);
    loop_fd_remove(f);
}

static void end(const struct child *k)
{
    int status;
    close(k->to);
    close(k->from);
    MUST(waitpid(k->pid, &status, 0) == k->pid && !status);
}

static double least(double a, double b)
{
    return a && a < b ? a : b;
}

/* Measures all figures. The client of rest.h speaks only plain TCP, so its requests use the Unix
 * socket. */
static void measure(bool tls)
{
    struct cost us[FIGURES];
    begin_bench(tls, 0);
    rest_by.by_unix = true;
    MUST(post("/v1/jobs", job_json) == 201 && post("/v1/jobs", job_json) == 201);
    prepare_replay();
    rest_by.by_unix = false;
    const struct child k = start(tls, run_client);
    serve(&k);
    MUST(server.finished && read(k.from, us, sizeof us) == sizeof us);
    end(&k);
    for (int i = 0; i < FIGURES; i++)
        best[tls][i] = (struct cost){least(best[tls][i].wall, us[i].wall),
                                     least(best[tls][i].cpu, us[i].cpu)};
    finish();
}

static void compare(void)
{
    for (int i = 0; i < 2 * ROUNDS; i++) measure(i % 2);
    printf("%-45s %10s %10s %6s\n", "microseconds", "plain", "TLS", "ratio");
    for (int i = 0; i < FIGURES; i++) {
        const struct cost p = best[0][i], t = best[1][i];
        printf("%-45s %10.1f %10.1f %6.2f\n", names[i], p.wall, t.wall, t.wall / p.wall);
        printf("%-45s %10.1f %10.1f %6.2f\n", "  of processors", p.cpu, t.cpu, t.cpu / p.cpu);
        printf("{\"bench\":\"rest\",\"name\":\"%s\",\"plain_us\":%.1f,\"tls_us\":%.1f,"
               "\"plain_cpu_us\":%.1f,\"tls_cpu_us\":%.1f}\n",
               names[i], p.wall, t.wall, p.cpu, t.cpu);
    }
}

static void count_shakes(void)
{
    struct cost us[2];
    begin_bench(true, 0);
    const struct child k = start(true, run_shakes);
    serve(&k);
    MUST(server.finished && read(k.from, us, sizeof us) == sizeof us);
    end(&k);
    finish();
    printf("handshakes, ECDSA P-256, client and server    %8.0f/s, resumed %.0f/s; of one "
           "processor %.0f/s, %.0f/s\n",
           1e6 / us[0].wall, 1e6 / us[1].wall, 1e6 / us[0].cpu, 1e6 / us[1].cpu);
    printf("{\"bench\":\"rest\",\"handshake_us\":%.0f,\"resumed_us\":%.0f,"
           "\"handshake_cpu_us\":%.0f,\"resumed_cpu_us\":%.0f}\n",
           us[0].wall, us[1].wall, us[0].cpu, us[1].cpu);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static const char ask_once[] = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

static void hold_silent(struct client *c)
{
    hold(c, SILENT, "", "");
}

static void hold_idle(struct client *c)
{
    hold(c, IDLE, ask_once, "\"ok\"");
}

static void hold_followers(struct client *c)
{
    char ask[512];
    snprintf(ask, sizeof ask, follow, 1);
    hold(c, FOLLOWERS, ask, "retry: 3000");
}

/* Returns the memory in KiB that the server needs for each of n clients. */
static double held(bool tls, int n, void (*run)(struct client *c))
{
    begin_bench(tls, 4 * n + 8);
    rest_by.by_unix = true;
    MUST(post("/v1/jobs", job_json) == 201);
    rest_by.by_unix = false;
    const int64_t before = resident();
    const struct child k = start(tls, run);
    serve(&k);
    MUST(server.look);
    /* the last client must be accepted, too */
    for (int i = 0; i < 100; i++) loop_turn(w.loop, 2);
    const double kib = (double)(resident() - before) / 1024 / n;
    end(&k);
    finish();
    return kib;
}

/* Measures in a separate process. In one process, the server would use memory again that it had
 * freed after earlier measurements. */
static double held_alone(bool tls, int n, void (*run)(struct client *c))
{
    int up[2], status;
    double kib = 0;
    fflush(stdout);
    MUST(!pipe(up));
    const pid_t pid = fork();
    MUST(pid >= 0);
    if (!pid) {
        kib = held(tls, n, run);
        _exit(write(up[1], &kib, sizeof kib) != sizeof kib);
    }
    MUST(read(up[0], &kib, sizeof kib) == sizeof kib);
    MUST(waitpid(pid, &status, 0) == pid && !status);
    close(up[0]);
    close(up[1]);
    return kib;
}

static void weigh(const char *name, int n, void (*run)(struct client *c))
{
    const double plain = held_alone(false, n, run), tls = held_alone(true, n, run);
    printf("%-45s %10.1f %10.1f\n", name, plain, tls);
    printf("{\"bench\":\"rest\",\"name\":\"%s\",\"n\":%d,\"plain_kib\":%.1f,\"tls_kib\":%.1f}\n",
           name, n, plain, tls);
}

int main(void)
{
    struct rlimit r;
    seqd_test_init();
    MUST(!getrlimit(RLIMIT_NOFILE, &r));
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    MUST(mkdtemp(dir) != NULL);
    snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    snprintf(key, sizeof key, "%s/key.pem", dir);
    tls_fresh_cert(cert, key, 1);
    printf("%-45s %10s %10s\n", "KiB of the server for each", "plain", "TLS");
    weigh("connection that says nothing", SILENT, hold_silent);
    weigh("idle connection, after one request", IDLE, hold_idle);
    weigh("follower that waits", FOLLOWERS, hold_followers);
    compare();
    count_shakes();
    nftw(dir, remove_one, 4, FTW_DEPTH | FTW_PHYS);
    return 0;
}
