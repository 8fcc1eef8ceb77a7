/* test_seqd_peer: tests how seqd finds the sender of a request. For TCP over IPv4 and IPv6, the
 * sender is an address. For the Unix socket, it is the user whom the kernel names. Also tests
 * files that exist in place of that socket. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/log.h"
#include "daemon/http/budget.h"
#include "daemon/http/door.h"
#include "daemon/http/http.h"
#include "daemon/http/listen.h"
#include "tests/lib/test.h"

static struct {
    char dir[64], path[96];
    struct loop *loop;
    struct http_server *http;
    int port;
    bool v6;
    struct http_peer peer; /* peer of the last request */
    int n_held;            /* requests of /hold, which wait for let_go() */
    struct http_req *held[128];
    int order[8], n_order; /* tokens of requests that were held, in their order */
} s;

static char reply[65536];

/* Answers a request. A token is a number in these tests. */
static void on_request(void *arg, struct http_req *r)
{
    const char *token = http_header(r, "authorization");
    s.peer = *http_peer(r);
    if (token) http_known(r, atoi(token));
    const bool held = !strcmp(http_path(r), "/hold");
    if (held && token && s.n_order < 8) s.order[s.n_order++] = atoi(token);
    if (held)
        s.held[s.n_held++] = r;
    else
        http_reply(r, 200, "text/plain", "ok\n", 3);
}

static bool by_proxy;
static int most_served; /* max_served */

static void begin(const char *listen, int max_connections)
{
    struct err e = {0};
    snprintf(s.dir, sizeof s.dir, "/tmp/seqd-peer-XXXXXX");
    CHECK(mkdtemp(s.dir) && !chmod(s.dir, 0755));
    snprintf(s.path, sizeof s.path, "%s/seqd.sock", s.dir);
    s.v6 = *listen == '[';
    s.loop = loop_create(NULL, NULL, &e);
    struct http_options o = {.listen = listen,
                             .socket = s.path,
                             .local_only = true,
                             .by_proxy = by_proxy,
                             .max_connections = max_connections,
                             .max_served = most_served};
    s.http = http_create(s.loop, &o, on_request, NULL, &e);
    CHECK_MSG(s.http != NULL, "%s", e.text);
    s.port = atoi(strrchr(http_url(s.http), ':') + 1);
}

static void finish(void)
{
    struct stat st;
    http_destroy(s.http);
    loop_destroy(s.loop);
    CHECK(lstat(s.path, &st) && errno == ENOENT);
    CHECK(!rmdir(s.dir));
}

static int dial_unix(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    if (!connect(fd, (struct sockaddr *)&un, sizeof un)) return fd;
    close(fd);
    return -1;
}

static int dial_tcp(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)s.port)};
    const int fd = socket(s.v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in6.sin6_addr = in6addr_loopback;
    CHECK(!connect(fd, s.v6 ? (struct sockaddr *)&in6 : (struct sockaddr *)&in,
                   s.v6 ? sizeof in6 : sizeof in));
    return fd;
}

/* Sends one request on fd, which stays open. */
static void tell(int fd, const char *path, const char *headers)
{
    char out[512];
    CHECK(fd >= 0);
    snprintf(out, sizeof out, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, headers);
    CHECK(send(fd, out, strlen(out), MSG_NOSIGNAL) == (ssize_t)strlen(out));
}

/* Sends a request whose answer waits for let_go(). */
static void hold(int fd, const char *headers)
{
    const int n = s.n_held;
    tell(fd, "/hold", headers);
    while (s.n_held == n) loop_turn(s.loop, 1);
}

static void let_go(void)
{
    while (s.n_held) http_reply(s.held[--s.n_held], 200, "text/plain", "ok\n", 3);
}

/* Waits until fd has bytes or its end. Returns the number of bytes, which is 0 at the end. */
static ssize_t next_bytes(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    while (poll(&p, 1, 1) <= 0) loop_turn(s.loop, 1);
    const ssize_t n = recv(fd, reply, sizeof reply - 1, 0);
    reply[n > 0 ? n : 0] = 0;
    return n > 0 ? n : 0;
}

static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Sends one request on fd, and closes fd after the answer. Returns the status of the answer. */
static int ask(int fd, const char *first, const char *headers)
{
    char out[512];
    size_t n = 0;
    CHECK(fd >= 0);
    snprintf(out, sizeof out, "%s HTTP/1.1\r\nConnection: close\r\n%s\r\n", first, headers);
    CHECK(send(fd, out, strlen(out), MSG_NOSIGNAL) == (ssize_t)strlen(out));
    for (ssize_t got = 1; got > 0;) {
        struct pollfd p = {fd, POLLIN, 0};
        loop_turn(s.loop, 1);
        if (poll(&p, 1, 1) <= 0) continue;
        got = recv(fd, reply + n, sizeof reply - 1 - n, 0);
        if (got > 0) n += (size_t)got;
        reply[n] = 0;
    }
    close(fd);
    return n > 12 ? atoi(reply + 9) : 0;
}

static void test_tcp(void)
{
    static const unsigned char v4[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1}, v6[16] = {[15] = 1};
    const char *const listens[] = {"127.0.0.1:0", "[::1]:0"};
    for (int i = 0; i < 2; i++) {
        begin(listens[i], 0);
        CHECK(ask(dial_tcp(), "GET /a", "Host: localhost\r\n") == 200);
        CHECK(s.peer.kind == HTTP_PEER_TCP && !s.peer.tls && s.peer.uid == UINT32_MAX);
        CHECK(!memcmp(s.peer.address, i ? v6 : v4, 16));
        finish();
    }
}

static void test_unix(void)
{
    static const unsigned char none[16];
    struct stat st;
    begin("127.0.0.1:0", 0);
    CHECK(!lstat(s.path, &st) && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0666);
    CHECK(ask(dial_unix(s.path), "GET /a", "Host: localhost\r\n") == 200);
    CHECK(s.peer.kind == HTTP_PEER_UNIX && s.peer.uid == getuid() && !s.peer.tls);
    CHECK(!memcmp(s.peer.address, none, 16));
    finish();
}

/* Checks the Host header of a request. DNS may rebind a host name to a TCP address, but not to a
 * file. A request from a web page must be refused on both sockets. */
static void test_hosts(void)
{
    static const char page[] = "Host: a.example\r\nOrigin: http://b.example\r\n";
    begin("127.0.0.1:0", 0);
    CHECK(ask(dial_tcp(), "GET /a", "Host: a.example\r\n") == 403);
    CHECK(ask(dial_unix(s.path), "GET /a", "Host: a.example\r\n") == 200);
    CHECK(ask(dial_unix(s.path), "POST /a", page) == 403);
    CHECK(ask(dial_unix(s.path), "GET /a", "") == 400);
    finish();
}

/* Sends a request as the user `uid`, if the test may become this user. Returns 0, or the number of
 * the check that failed. */
static int as_user(uid_t uid)
{
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        static const char get[] = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        if (setuid(uid)) _exit(9);
        const int fd = dial_unix(s.path);
        if (fd < 0 || send(fd, get, sizeof get - 1, 0) < 0) _exit(7);
        _exit(recv(fd, reply, sizeof reply, 0) < 12 ? 6 : atoi(reply + 9) == 200 ? 0 : 1);
    }
    int status;
    while (waitpid(pid, &status, WNOHANG) != pid) loop_turn(s.loop, 5);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Checks the places of the Unix socket. One user may have three quarters of them and a quarter of
 * the others. The kernel names the user. */
static void test_users(void)
{
    enum { N = HTTP_UNIX_CONNECTIONS * 3 / 4 + 4 };
    int fd[N], idle[2 * N];
    begin("127.0.0.1:0", 16);
    for (int i = 0; i < 2 * N; i++) CHECK((idle[i] = dial_unix(s.path)) >= 0);
    CHECK(ask(dial_unix(s.path), "GET /a", "Host: x\r\n") == 200);
    CHECK(!next_bytes(idle[0])); /* it was replaced */
    for (int i = 0; i < N; i++) hold(fd[i] = dial_unix(s.path), "");
    CHECK(ask(dial_unix(s.path), "GET /a", "Host: x\r\n") == 429);
    CHECK(ask(dial_tcp(), "GET /a", "Host: localhost\r\n") == 200);
    if (!getuid()) CHECK(as_user(1234) == 0 && s.peer.uid == 1234);
    let_go();
    for (int i = 0; i < N; i++) CHECK(next_bytes(fd[i]) && !strncmp(reply, "HTTP/1.1 200", 12));
    for (int i = 0; i < N; i++) close(fd[i]);
    for (int i = 0; i < 2 * N; i++) close(idle[i]);
    finish();
}

/* Checks that idle connections give their places to new clients, the longest idle first. A
 * connection that has shown a token gives its place last. Through a proxy, clients have no address
 * by which they are counted. */
static void test_replaced(void)
{
    int fd[16];
    for (int i = 0; i < 2; i++) {
        by_proxy = i;
        begin("127.0.0.1:0", 16);
        const int n = by_proxy ? 16 : 4; /* places of one address */
        tell(fd[0] = dial_tcp(), "/a", "Authorization: 7\r\n");
        CHECK(next_bytes(fd[0]));
        for (int k = 1; k < n; k++) fd[k] = dial_tcp();
        CHECK(ask(dial_tcp(), "GET /a", "Host: localhost\r\n") == 200);
        CHECK(!next_bytes(fd[1]));
        for (int k = 0; k < n; k++) CHECK(k == 1 || is_open(fd[k]));
        for (int k = 0; k < 3 * n; k++)
            CHECK(ask(dial_tcp(), "GET /a", "Host: localhost\r\n") == 200);
        CHECK(is_open(fd[0]));
        tell(fd[0], "/a", ""); /* the library takes the connection back */
        CHECK(next_bytes(fd[0]));
        for (int k = 0; k < n; k++) close(fd[k]);
        finish();
    }
    by_proxy = false;
}

/* Checks the answers if no connection is idle. A proxy may have all connections, and not only a
 * quarter of them, because many clients connect through it. */
static void test_busy(void)
{
    int fd[16];
    for (int i = 0; i < 2; i++) {
        by_proxy = i;
        begin("127.0.0.1:0", 16);
        const int n = by_proxy ? 16 : 4, busy = by_proxy ? 503 : 429;
        for (int k = 0; k < n; k++) hold(fd[k] = dial_tcp(), "");
        CHECK(ask(dial_tcp(), "GET /a", "Host: localhost\r\n") == busy);
        CHECK(ask(dial_tcp(), "GET /livez", "Host: localhost\r\n") == 200);
        CHECK(ask(dial_unix(s.path), "GET /a", "Host: x\r\n") == 200);
        /* a connection that came when all were taken is told so, even if one has closed since; it
         * has a second to ask, so it may have been closed, too */
        const int late = dial_tcp(); /* it is accepted before the next one */
        CHECK(ask(dial_tcp(), "GET /a", "Host: localhost\r\n") == busy);
        let_go();
        for (int k = 0; k < n; k++) CHECK(next_bytes(fd[k]));
        /* the places are free when the answers have gone, which may be a turn later */
        int after = busy;
        for (int k = 0; k < 1000 && after == busy; k++)
            after = ask(dial_tcp(), "GET /a", "Host: localhost\r\n");
        CHECK_MSG(after == 200, "%d", after);
        const int status = ask(late, "GET /a", "Host: localhost\r\n");
        CHECK_MSG(!status || status == busy, "%d", status);
        for (int k = 0; k < n; k++) close(fd[k]);
        finish();
    }
    by_proxy = false;
}

/* Checks that connections through a proxy are counted by token. */
static void test_tokens(void)
{
    int fd[6];
    by_proxy = true;
    begin("127.0.0.1:0", 16);
    for (int k = 0; k < 6; k++) {
        tell(fd[k] = dial_tcp(), "/a", k ? "Authorization: 7\r\n" : "Authorization: 8\r\n");
        CHECK(next_bytes(fd[k]));
    }
    CHECK(!next_bytes(fd[1]));
    for (int k = 0; k < 6; k++) CHECK(k == 1 || is_open(fd[k]));
    for (int k = 2; k < 6; k++) hold(fd[k], "Authorization: 7\r\n");
    /* with all of its connections busy, a further one ends with its answer */
    close(fd[1]);
    tell(fd[1] = dial_tcp(), "/a", "Authorization: 7\r\n");
    CHECK(next_bytes(fd[1]) && !next_bytes(fd[1]));
    let_go();
    for (int k = 2; k < 6; k++) CHECK(next_bytes(fd[k]));
    for (int k = 0; k < 6; k++) close(fd[k]);
    finish();
    by_proxy = false;
}

/* Checks the requests that find no place in the library. */
static void test_served(void)
{
    int fd[4];
    most_served = 4;
    begin("127.0.0.1:0", 64);
    for (int k = 0; k < 4; k++) hold(fd[k] = dial_tcp(), "");
    CHECK(ask(dial_tcp(), "GET /a", "Host: localhost\r\n") == 503 && strstr(reply, "under way"));
    CHECK(strstr(reply, "Retry-After: 1\r\n") && strstr(reply, "problem+json"));
    CHECK(ask(dial_unix(s.path), "GET /a", "Host: x\r\n") == 200);
    let_go();
    for (int k = 0; k < 4; k++) CHECK(next_bytes(fd[k]));
    /* idle connections give their places in the library to requests, and come back */
    for (int k = 0; k < 40; k++) CHECK(ask(dial_tcp(), "GET /a", "Host: localhost\r\n") == 200);
    for (int k = 0; k < 4; k++) {
        tell(fd[k], "/a", "");
        CHECK(next_bytes(fd[k]) && !strncmp(reply, "HTTP/1.1 200", 12));
        close(fd[k]);
    }
    finish();
    most_served = 0;
}

/* Checks that requests which wait for a place in the library get it in the order in which they
 * came. A slow machine may refuse some. */
static void test_crowd_order(void)
{
    int fd[6];
    char header[32];
    most_served = 1;
    s.n_order = 0;
    begin("127.0.0.1:0", 64);
    hold(fd[0] = dial_tcp(), "");
    for (int k = 1; k < 6; k++) {
        snprintf(header, sizeof header, "Authorization: %d\r\n", k);
        tell(fd[k] = dial_tcp(), "/hold", header);
    }
    for (int k = 1; k < 6; k++)
        for (struct pollfd p = {fd[k], POLLIN, 0}; poll(&p, 1, 0) <= 0; loop_turn(s.loop, 1))
            let_go();
    CHECK(s.n_order > 0);
    for (int k = 1; k < s.n_order; k++)
        CHECK_MSG(s.order[k - 1] < s.order[k], "%d before %d", s.order[k - 1], s.order[k]);
    for (int k = 0; k < 6; k++) close(fd[k]);
    finish();
    most_served = 0;
}

/* Checks the division of descriptors. A process with few of them serves few clients. */
static void test_divide(void)
{
    static const struct {
        int64_t descriptors;
        int connections, requests;
    } rows[] = {{256, 48, 96},       {1024, 432, 96},      {4608, 4016, 96},
                {16384, 9920, 2936}, {65536, 9920, 10000}, {INT32_MAX, 9920, 10000}};
    int connections, requests;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        budget_divide(rows[i].descriptors, &connections, &requests);
        CHECK_MSG(connections == rows[i].connections && requests == rows[i].requests,
                  "%lld: %d, %d", (long long)rows[i].descriptors, connections, requests);
    }
}

static struct http_peer at(const char *address)
{
    struct http_peer p = {.kind = HTTP_PEER_TCP};
    CHECK(inet_pton(AF_INET6, address, p.address) == 1);
    return p;
}

static bool same_client(const struct http_peer *a, const struct http_peer *b)
{
    const struct budget_key x = door_client(a), y = door_client(b);
    return !memcmp(&x, &y, sizeof x);
}

static void test_same_client(void)
{
    static const struct {
        const char *a, *b;
        bool same;
    } pairs[] = {{"::ffff:10.0.0.1", "::ffff:10.0.0.1", true},
                 {"::ffff:10.0.0.1", "::ffff:10.0.0.2", false},
                 {"2001:db8::1", "2001:db8::ffff:1", true},
                 {"2001:db8::1", "2001:db8:0:1::1", false},
                 {"::1", "::ffff:127.0.0.1", false}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct http_peer a = at(pairs[i].a), b = at(pairs[i].b);
        CHECK_MSG(same_client(&a, &b) == pairs[i].same, "%s %s", pairs[i].a, pairs[i].b);
    }
    const struct http_peer none = at("::"), user = {.kind = HTTP_PEER_UNIX, .uid = 0};
    CHECK(!same_client(&none, &user));
}

/* Checks that only the last address in the header is used. The proxy wrote it, and the client may
 * have written the earlier addresses. */
static void test_forwarded(void)
{
    static const struct {
        const char *value, *want;
    } rows[] = {{"203.0.113.7", "::ffff:203.0.113.7"},
                {"10.0.0.1, 203.0.113.7", "::ffff:203.0.113.7"},
                {"10.0.0.1,\t2001:db8::7 ", "2001:db8::7"},
                {"", "::1"},
                {"10.0.0.1,", "::1"},
                {"unknown", "::1"},
                {"203.0.113.7:443", "::1"},
                {"203.0.113.7 x", "::1"},
                {"::ffff:ffff:ffff:ffff:ffff:255.255.255.255:::::", "::1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct http_peer want = at(rows[i].want);
        struct http_peer p = at("::1");
        /* a client that is not a proxy cannot choose its address */
        door_forwarded(&p, rows[i].value);
        CHECK(!memcmp(p.address, at("::1").address, sizeof p.address));
        p.by_proxy = true;
        door_forwarded(&p, rows[i].value);
        CHECK_MSG(!memcmp(p.address, want.address, sizeof p.address), "%s", rows[i].value);
    }
    for (int on = 0; on < 2; on++) {
        by_proxy = on;
        begin("127.0.0.1:0", 0);
        const struct http_peer want = at(on ? "2001:db8::9" : "::ffff:127.0.0.1");
        CHECK(ask(dial_tcp(), "GET /a",
                  "Host: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n"
                  "X-Forwarded-For: 192.0.2.2, 2001:db8::9\r\n") == 200);
        CHECK(!memcmp(s.peer.address, want.address, sizeof want.address));
        finish();
    }
    by_proxy = false;
}

static int try_path(const char *path, struct err *e)
{
    *e = (struct err){0};
    const int fd = listen_open_unix(path, e);
    if (fd >= 0) listen_close_unix(fd, path);
    return fd;
}

/* Checks that the socket of a dead server is replaced. No other file may be replaced. */
static void test_left_over(void)
{
    char file[128], other[128], longer[200];
    struct err e;
    struct stat st;
    begin("127.0.0.1:0", 0);
    CHECK(try_path(s.path, &e) < 0 && e.code == ERR_CONFLICT && strstr(e.text, "another seqd"));
    CHECK(ask(dial_unix(s.path), "GET /a", "Host: x\r\n") == 200); /* the server is still there */

    snprintf(other, sizeof other, "%s/other.sock", s.dir);
    const int fd = listen_open_unix(other, &e);
    CHECK(fd >= 0 && !close(fd)); /* like a socket that kill -9 leaves */
    CHECK(dial_unix(other) < 0 && errno == ECONNREFUSED);
    CHECK_MSG(try_path(other, &e) >= 0, "%s", e.text);

    snprintf(file, sizeof file, "%s/file", s.dir);
    FILE *f = fopen(file, "w");
    CHECK(f && !fclose(f));
    CHECK(try_path(file, &e) < 0 && e.code == ERR_CONFLICT && !lstat(file, &st));
    CHECK(!symlink(s.path, other));
    CHECK(try_path(other, &e) < 0 && e.code == ERR_CONFLICT && !lstat(other, &st));
    CHECK(!unlink(other) && !unlink(file));

    memset(longer, 'a', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = 0;
    CHECK(try_path(longer, &e) < 0 && e.code == ERR_INVALID);
    CHECK(try_path("/nowhere/seqd.sock", &e) < 0 && strstr(e.text, "/nowhere/seqd.sock"));
    finish();
}

int main(void)
{
    log_init("test");
    RUN(test_tcp);
    RUN(test_unix);
    RUN(test_hosts);
    RUN(test_users);
    RUN(test_replaced);
    RUN(test_busy);
    RUN(test_tokens);
    RUN(test_served);
    RUN(test_crowd_order);
    RUN(test_divide);
    RUN(test_same_client);
    RUN(test_forwarded);
    RUN(test_left_over);
    return test_done("seqd_peer");
}
