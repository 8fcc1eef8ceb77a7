/* rest.h: runs seqd's REST interface in this process, with a client on raw sockets. The test runs
 * the server's loop, one iteration at a time. There can be only one server at a time. begin starts
 * it, and finish stops it. */
#ifndef SEQD_TESTS_REST_H
#define SEQD_TESTS_REST_H

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "daemon/access/auth.h"
#include "daemon/http/batch.h"
#include "daemon/http/follow.h"
#include "daemon/http/openai.h"
#include "daemon/http/routes.h"
#include "daemon/http/trail.h"
#include "daemon/http/transfer.h"
#include "daemon/loop/orders.h"
#include "daemon/loop/plan_cache.h"
#include "daemon/loop/planner.h"
#include "tests/lib/seqd.h"
#include "tests/lib/test.h"

/* The token of an admin. Requests contain this token unless a test chooses a different one. */
#define REST_TOKEN                                                                                 \
    "seqd_1_0123456789abcdef0123456789abcdef"                                                      \
    "0123456789abcdef0123456789abcdef0cfd72fc"
#define REST_HASH "e23d360425515ff74f177db951acd189dc1b608fd7a9327da943add377c01260"
#define BEARER    "Authorization: Bearer " REST_TOKEN "\r\n"

/* ---- the server ------------------------------------------------------------------------------ */

static struct {
    char dir[64];
    struct loop *loop;
    struct store *store;
    struct auth *auth;
    struct logs *logs;
    struct control *control;
    struct routes routes;
    struct http_server *http;
    int port;
    struct msg fetch;      /* the last FETCH or DESCRIBE message that was sent to a node */
    char asked[NODE_NAME]; /* the node to which `fetch` was sent */
} w;

/* the largest number of connections at the same time; 0 means the default of seqd */
static int rest_connections;
static size_t rest_bodies;     /* max_bodies of the server */
static loop_clock *rest_clock; /* the clock; NULL means the clock of the machine */
static int rest_handled;       /* the number of requests that were handed to the routes so far */
static int rest_fetches;       /* the number of FETCH messages that were sent to nodes so far */
static bool rest_away;         /* nodes have no sessions */
/* A function that answers, in place of a node, whether the node has files of data. It returns 0 if
 * the node has the files, -1 with the reason in *e if it does not have them, and 1 if the node
 * never answers. NULL means that the question cannot be sent because the node has no session. */
static int (*rest_look)(const char *node, const struct msg *m, struct err *e);

/* The way in which clients connect to the server, if it is not plain TCP. */
static struct {
    bool by_unix;
    bool proxy; /* clients connect as a proxy in front of the server, as with --tls-by-proxy */
    const char *cert, *key; /* for TLS, in which the functions below transfer the bytes */
    void (*dialed)(int fd);
    ssize_t (*send)(int fd, const void *bytes, size_t n); /* send and recv must not wait */
    ssize_t (*recv)(int fd, void *bytes, size_t n);
    void (*shut)(int fd); /* tells the server that no more bytes will be sent */
} rest_by;

struct rest_looked {
    char node[NODE_NAME];
    struct msg m;
};

static inline void rest_tell_looked(void *arg)
{
    struct rest_looked *a = arg;
    control_link_calls.message(w.control, a->node, &a->m);
    free(a);
}

/* Calls rest_look, and delivers its answer in a later iteration of the loop. */
static inline int rest_ask_look(const char *node, const struct msg *m)
{
    struct rest_looked *a = calloc(1, sizeof *a);
    if (!a) abort();
    snprintf(a->node, sizeof a->node, "%s", node);
    a->m = (struct msg){.type = MSG_DESCRIBED, .request = m->request};
    if (rest_look(node, m, &a->m.err) > 0)
        free(a);
    else
        loop_post(w.loop, rest_tell_looked, a);
    return 0;
}

/* A function that is called with each message about an attempt that is sent to a node. */
static void (*rest_told)(const char *node, const struct msg *m);

/* The bytes that wait in every node's session. If it is negative, a node takes one more message
 * and is full then. */
static int64_t rest_queued;

static inline size_t rest_on_queued(void *arg, const char *node)
{
    const int64_t n = rest_queued;
    if (n < 0) rest_queued = (int64_t)1 << 30;
    return n < 0 ? 0 : (size_t)n;
}

static inline int rest_on_send(void *arg, const char *node, const struct msg *m)
{
    const bool asked = m->type == MSG_DESCRIBE || m->type == MSG_FETCH;
    if (rest_told && !asked) rest_told(node, m);
    if (m->type == MSG_DESCRIBE && m->n_files) return rest_look ? rest_ask_look(node, m) : -1;
    if (m->type == MSG_FETCH || m->type == MSG_DESCRIBE) {
        w.fetch = *m;
        snprintf(w.asked, sizeof w.asked, "%s", node);
    }
    rest_fetches += m->type == MSG_FETCH;
    if (rest_away) return -1;
    return 0;
}

static inline void note_done(void *arg, const struct err *e)
{
    *(bool *)arg = true;
}

/* Commits the transaction t, and returns when it is on disk. */
static inline void commit(struct store_txn *t)
{
    bool done = false;
    store_commit(w.store, t, note_done, &done);
    while (!done) loop_turn(w.loop, 5);
}

/* Makes a token for a user, and stores its text in `text`. Returns the token's id. If expires_ms
 * is 0, the token never expires. */
static inline int64_t rest_token(const char *user, enum role role, int64_t expires_ms,
                                 char text[AUTH_TOKEN_SIZE])
{
    struct auth_token k = {.role = role, .expires_ms = expires_ms};
    struct err e;
    bool done = false;
    snprintf(k.user, sizeof k.user, "%s", user);
    CHECK(!auth_make(w.auth, &k, text, note_done, &done, &e));
    while (!done) loop_turn(w.loop, 5);
    return k.id;
}

static inline void rest_handle(void *routes, struct http_req *r)
{
    rest_handled++;
    routes_handle(routes, r);
}

static inline void begin_in(bool fresh, int64_t deadline_ms)
{
    struct err e = {0};
    static char path[96]; /* static because the server keeps a pointer to it */
    if (fresh) {
        memset(&w, 0, sizeof w);
        snprintf(w.dir, sizeof w.dir, "/tmp/seqd-rest-XXXXXX");
        CHECK(mkdtemp(w.dir) != NULL);
    }
    w.loop = loop_create(rest_clock, NULL, &e);
    w.store = store_open(w.loop, w.dir, &e);
    w.logs = logs_open(w.dir, &e);
    if (fresh) {
        const struct store_token admin = {
            .id = 1, .role = ROLE_ADMIN, .user = "tester", .hash = REST_HASH, .label = "test"};
        struct store_txn *t = store_begin();
        store_token_add(t, &admin);
        commit(t);
    }
    w.auth = auth_create(w.store, NULL, &e);
    w.routes = (struct routes){.auth = w.auth};
    w.routes.follows = follows_create(w.loop);
    openai_open(&w.routes, w.loop);
    w.routes.trail = trail_create(w.loop, w.store);
    w.routes.planner = planner_create(w.loop);
    w.routes.plans = plan_cache_create();
    struct control_options o = {.loop = w.loop,
                                .store = w.store,
                                .logs = w.logs,
                                .secret = (const unsigned char *)"a secret of the test, 32 bytes.",
                                .send = rest_on_send,
                                .queued = rest_on_queued,
                                .changed = follows_changed,
                                .logged = follows_logged,
                                .changed_arg = w.routes.follows};
    w.control = control_create(&o, &e);
    w.routes.control = w.control;
    w.routes.orders = orders_create(control_commits(w.control));
    snprintf(path, sizeof path, "%s/seqd.sock", w.dir);
    struct http_options h = {.listen = "127.0.0.1:0",
                             .socket = path,
                             .tls_cert = rest_by.cert,
                             .tls_key = rest_by.key,
                             .local_only = true,
                             .by_proxy = rest_by.proxy,
                             .header_ms = deadline_ms,
                             .body_ms = deadline_ms,
                             .idle_ms = deadline_ms,
                             .max_connections = rest_connections,
                             .max_bodies = rest_bodies};
    w.http = http_create(w.loop, &h, rest_handle, &w.routes, &e);
    CHECK_MSG(w.http != NULL, "%s", e.text);
    w.port = atoi(strrchr(http_url(w.http), ':') + 1);
}

static inline void begin(void)
{
    begin_in(true, 0);
}

static inline void close_server(void)
{
    trail_stop(w.routes.trail);
    errands_end(w.routes.planner, false);
    store_close(w.store);
    http_destroy(w.http);
    orders_destroy(w.routes.orders);
    control_destroy(w.control);
    auth_destroy(w.auth);
    transfers_drop(&w.routes);
    openai_drop(&w.routes);
    batches_drop(&w.routes);
    errands_destroy(w.routes.planner);
    plan_cache_destroy(w.routes.plans);
    follows_destroy(w.routes.follows);
    trail_destroy(w.routes.trail);
    logs_close(w.logs);
    loop_destroy(w.loop);
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    return remove(path);
}

static inline void finish(void)
{
    close_server();
    nftw(w.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- the client ------------------------------------------------------------------------------ */

static char reply[1 << 20];
static size_t reply_len;

static inline int dial_unix(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(un.sun_path, sizeof un.sun_path, "%s/seqd.sock", w.dir);
    CHECK(!connect(fd, (struct sockaddr *)&un, sizeof un));
    return fd;
}

static inline int dial_tcp(int last)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0), later = 1;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (uint32_t)last);
    /* With this option, connect chooses the port, and not bind. connect may also choose a port
     * that a connection to a different server uses. */
    CHECK(!setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later));
    CHECK(!bind(fd, (struct sockaddr *)&sa, sizeof sa));
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa.sin_port = htons((uint16_t)w.port);
    CHECK(!connect(fd, (struct sockaddr *)&sa, sizeof sa));
    return fd;
}

/* Connects from the address 127.0.0.LAST. */
static inline int dial_from(int last)
{
    const int fd = rest_by.by_unix ? dial_unix() : dial_tcp(last);
    if (rest_by.dialed) rest_by.dialed(fd);
    return fd;
}

static inline ssize_t rest_send(int fd, const void *bytes, size_t n)
{
    return rest_by.send ? rest_by.send(fd, bytes, n)
                        : send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Returns 0 if the server has closed the connection. Returns -1 and sets errno to EAGAIN if no
 * byte has arrived yet. */
static inline ssize_t rest_recv(int fd, void *bytes, size_t n)
{
    return rest_by.recv ? rest_by.recv(fd, bytes, n) : recv(fd, bytes, n, MSG_DONTWAIT);
}

static inline void rest_shut(int fd)
{
    if (rest_by.shut)
        rest_by.shut(fd);
    else
        CHECK(!shutdown(fd, SHUT_WR));
}

static inline int dial(void)
{
    return dial_from(1);
}

static inline void send_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t sent = rest_send(fd, bytes, n);
        loop_turn(w.loop, sent > 0 ? 0 : 5);
        if (sent <= 0) {
            /* the server has closed the connection; the reason is in its reply */
            if (errno != EAGAIN) return;
            continue;
        }
        bytes += sent;
        n -= (size_t)sent;
    }
}

/* Reads until the text `until` has arrived. Returns false if the peer closes the connection before
 * the text has arrived. */
static inline bool receive(int fd, const char *until)
{
    for (;;) {
        if (until && strstr(reply, until)) return true;
        loop_turn(w.loop, 2);
        ssize_t n = rest_recv(fd, reply + reply_len, sizeof reply - 1 - reply_len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {fd, POLLIN, 0};
            poll(&p, 1, 1);
            continue;
        }
        if (n <= 0) return false;
        reply_len += (size_t)n;
        reply[reply_len] = 0;
    }
}

static inline int status_of(void)
{
    return reply_len > 12 ? atoi(reply + 9) : 0;
}

static inline void clear(void)
{
    reply_len = 0;
    reply[0] = 0;
}

/* Reads the answer until the server closes the connection. Returns the answer's status, or 0 if
 * the connection was closed without an answer. */
static inline int answer_of(int fd)
{
    clear();
    receive(fd, NULL);
    close(fd);
    return status_of();
}

/* Sends a request on a new connection, and reads the answer. The request must have the header
 * "Connection: close", because the answer is read until the connection ends. Returns the
 * status. */
static inline int talk_n(const char *bytes, size_t n)
{
    int fd = dial();
    send_all(fd, bytes, n);
    return answer_of(fd);
}

static inline int talk(const char *bytes)
{
    return talk_n(bytes, strlen(bytes));
}

#define HEAD "Host: localhost\r\nConnection: close\r\n" BEARER

/* Sends a GET request. Call answer_of to wait for the answer. */
static inline int get_begin(const char *path)
{
    static char out[8192];
    const int fd = dial();
    snprintf(out, sizeof out, "GET %s HTTP/1.1\r\n" HEAD "\r\n", path);
    send_all(fd, out, strlen(out));
    return fd;
}

static inline int get(const char *path)
{
    return answer_of(get_begin(path));
}

/* Sends a POST request. Call answer_of to wait for the answer. */
static inline int post_begin(const char *path, const char *headers, const char *body)
{
    static char out[16384];
    int fd = dial();
    snprintf(out, sizeof out,
             "POST %s HTTP/1.1\r\n" HEAD "Content-Type: application/json\r\nContent-Length: "
             "%zu\r\n%s\r\n%s",
             path, strlen(body), headers, body);
    send_all(fd, out, strlen(out));
    return fd;
}

static inline int post_with(const char *path, const char *headers, const char *body)
{
    return answer_of(post_begin(path, headers, body));
}

static inline int post(const char *path, const char *body)
{
    return post_with(path, "", body);
}

static const char job_json[] =
    "{\"kind\":\"train\",\"name\":\"t\",\"model\":{\"config\":{\"hidden_size\":64,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{"
    "\"train\":[{\"path\":\"/x\"}],\"seq_len\":100},\"train\":{\"steps\":5},\"labels\":{\"node\":"
    "\"evil\",\"state\":\"fake\"}}";

/* ---- streams --------------------------------------------------------------------------------- */

static inline int open_stream(const char *path, const char *last)
{
    char out[512];
    int fd = dial();
    clear();
    snprintf(out, sizeof out,
             "GET %s HTTP/1.1\r\nHost: localhost\r\n" BEARER
             "Accept: text/event-stream\r\n%s%s%s\r\n",
             path, last ? "Last-Event-ID: " : "", last ? last : "", last ? "\r\n" : "");
    send_all(fd, out, strlen(out));
    return fd;
}

/* ---- a node ---------------------------------------------------------------------------------- */

static inline void node_joins_as(const char *name, int n_slots)
{
    struct msg m = {
        .type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = n_slots, .memory_size = (int64_t)1 << 33};
    snprintf(m.node, sizeof m.node, "%s", name);
    control_link_calls.up(w.control, name, &m);
}

static inline void node_joins(void)
{
    node_joins_as("n1", 0);
}

/* Waits until job 1 is placed on node n1. The job is placed even if the node has no free slot,
 * because preparing data needs none. */
static inline void wait_placed(void)
{
    while (get("/v1/jobs/1") == 200 && !strstr(reply, "\"node\":\"n1\"")) loop_turn(w.loop, 10);
    CHECK(status_of() == 200);
}

static inline void wait_question(void)
{
    while (!w.fetch.type) loop_turn(w.loop, 5);
}

/* Makes the message by which a node answers MSG_DESCRIBE. */
static inline struct msg described(const char *tokenizer)
{
    struct msg m = {.type = MSG_DESCRIBED, .request = w.fetch.request};
    snprintf(m.config, sizeof m.config,
             "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,"
             "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
             "\"intermediate_size\":128,\"vocab_size\":258,\"max_position_embeddings\":99,"
             "\"rms_norm_eps\":1e-5,\"rope_theta\":1e4,\"tokenizer\":\"%s\"}",
             tokenizer);
    return m;
}

#endif
