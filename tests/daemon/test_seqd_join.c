/* test_seqd_join: tests nodes that join over TLS, with the real store and real links. Checks
 * tokens, for which names, how often and how long they are valid, the state after a restart,
 * renewal and revocation. The test sets the time that seqd reads. */
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/rpc.h"
#include "daemon/access/join.h"
#include "tests/lib/test.h"

static char dir[] = "/tmp/seqd-join-XXXXXX";
static struct err e;

static struct {
    struct loop *loop;
    struct store *store;
    struct pki *ca;
    struct joins *joins;
    struct links *links;
    char address[64];
    int n_up, n_down;
    char down_why[128];
} w;
static const struct join_key *key; /* --join-key; NULL for a seqd without one */
static int64_t later_s;            /* seconds by which seqd's clock is ahead */

static int64_t utc_ms(void)
{
    return (time(NULL) + later_s) * 1000;
}

static void on_up(void *arg, const char *node, const struct msg *hello)
{
    w.n_up++;
}

static void on_down(void *arg, const char *node, const char *why, int64_t silent_ms)
{
    w.n_down++;
    snprintf(w.down_why, sizeof w.down_why, "%s", why);
}

static void on_node_message(void *arg, const char *node, const struct msg *m)
{
}

static const struct link_calls link_calls = {on_up, on_down, on_node_message, NULL};

static void answer(void *arg, int64_t session, const struct msg *m)
{
    link_answer(w.links, session, m);
}

static void close_node(void *arg, const char *node, const char *why)
{
    link_close(w.links, node, why);
}

/* Starts seqd on this port. After a restart, the port is the same as before. */
static void start(int port)
{
    char path[64], address[64];
    memset(&w, 0, sizeof w);
    snprintf(path, sizeof path, "%s/pki", dir);
    w.loop = loop_create(NULL, NULL, &e);
    w.store = store_open(w.loop, dir, &e);
    CHECK_MSG(w.store, "%s", e.text);
    w.ca = pki_open(path, time(NULL), &e);
    const struct joins_options o = {w.store, w.ca, 3600, utc_ms, answer, close_node, NULL, key, 2};
    w.joins = joins_create(&o, &e);
    CHECK_MSG(w.ca && w.joins, "%s", e.text);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    const struct link_options l = {address, w.ca, &joins_gate, w.joins};
    w.links = link_create(w.loop, &l, &link_calls, NULL, &e);
    CHECK_MSG(w.links, "%s", e.text);
    snprintf(w.address, sizeof w.address, "127.0.0.1:%d", link_port(w.links));
}

static void stop(void)
{
    store_close(w.store);
    link_destroy(w.links);
    joins_destroy(w.joins);
    pki_close(w.ca);
    loop_destroy(w.loop);
}

static void restart(void)
{
    const int port = link_port(w.links);
    stop();
    start(port);
}

static void give_up(void *arg)
{
    printf("gave up waiting\n");
    abort();
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        struct loop_timer *limit_ = loop_timer_create(w.loop, give_up, NULL);                      \
        loop_timer_set(limit_, 60000);                                                             \
        while (!(cond)) loop_turn(w.loop, 1000);                                                   \
        loop_timer_destroy(limit_);                                                                \
    } while (0)

/* ---- orders ---------------------------------------------------------------------------------- */

static struct {
    bool done, failed;
    struct err e;
    char id[16], text[256];
} order;

static void on_made(void *arg, const char *id, const char *text, const struct err *why)
{
    order.done = true;
    order.failed = why != NULL;
    if (why) order.e = *why;
    snprintf(order.id, sizeof order.id, "%s", id);
    snprintf(order.text, sizeof order.text, "%s", text ? text : "");
}

static void on_done(void *arg, const struct err *why)
{
    order.done = true;
    order.failed = why != NULL;
    if (why) order.e = *why;
}

/* Makes a token. Returns it without the fingerprint, which is checked here. */
static const char *make_token(const char *names, int64_t uses, int64_t ttl_s)
{
    static char text[8][256];
    static int n;
    memset(&order, 0, sizeof order);
    joins_token_make(w.joins, &(struct joins_token){names, uses, ttl_s}, on_made, NULL);
    UNTIL(order.done);
    if (order.failed) return NULL;
    char *out = text[n++ % 8], *dot = strrchr(order.text, '.');
    CHECK(dot && !strcmp(dot + 1, pki_fingerprint(w.ca)));
    snprintf(out, sizeof text[0], "%.*s", (int)(dot - order.text), order.text);
    return out;
}

static void revoke_node(const char *node)
{
    memset(&order, 0, sizeof order);
    joins_revoke(w.joins, node, on_done, NULL);
    UNTIL(order.done);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

struct node {
    char name[NODE_NAME], key[PKI_PEM_SIZE], csr[PKI_PEM_SIZE], cert[PKI_PEM_SIZE];
    const struct msg *first;
    struct rpc_client *client;
    struct rpc_stream *stream;
    int n_closed;
    enum msg_type got; /* the last message, or 0 */
    char reason[512], refused[512];
};

static void node_send(struct node *n, const struct msg *m)
{
    struct arena a;
    size_t size;
    arena_init(&a, 16 << 20);
    void *data = wire_pack(m, &a, &size);
    assert(data);
    rpc_send(n->stream, data, size);
    arena_fini(&a);
}

static void node_opened(void *arg, struct rpc_stream *s)
{
    struct node *n = arg;
    n->stream = s;
    if (n->first) node_send(n, n->first);
}

static void node_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct node *n = arg;
    struct arena a;
    struct msg m;
    arena_init(&a, 16 << 20);
    CHECK(!wire_unpack(data, size, &a, &m, &e));
    n->got = m.type;
    if (m.type == MSG_REFUSED) snprintf(n->reason, sizeof n->reason, "%s", m.reason);
    if (m.type == MSG_JOINED) snprintf(n->cert, sizeof n->cert, "%s", m.pem);
    if (m.type == MSG_PROOF) snprintf(n->cert, sizeof n->cert, "%s", m.token);
    arena_fini(&a);
}

static void node_closed(void *arg, struct rpc_stream *s, const char *why)
{
    struct node *n = arg;
    n->stream = NULL;
    n->n_closed++;
}

static void node_refused(void *arg, const char *why)
{
    struct node *n = arg;
    snprintf(n->refused, sizeof n->refused, "%s", why);
}

static const struct rpc_calls node_calls = {node_opened, node_message, node_closed, node_refused};

static void node_key(struct node *n, const char *name)
{
    memset(n, 0, sizeof *n);
    snprintf(n->name, sizeof n->name, "%s", name);
    CHECK(!pki_key_make(n->key, &e) && !pki_request(n->key, name, n->csr, &e));
}

/* Joins. Returns true if the node has a certificate now. */
static bool join(struct node *n, const char *token)
{
    const struct rpc_identity id = {pki_ca(w.ca), NULL, NULL};
    struct msg m = {.type = MSG_JOIN, .token = token, .pem = n->csr};
    snprintf(m.node, sizeof m.node, "%s", n->name);
    n->first = &m;
    n->got = 0;
    n->client = rpc_dial_tls(w.loop, w.address, &id, &node_calls, n, &e);
    UNTIL(n->got);
    rpc_client_destroy(n->client);
    n->client = NULL;
    return n->got == MSG_JOINED;
}

static void refused(struct node *n, const char *token, const char *why)
{
    CHECK(!join(n, token));
    CHECK_MSG(strstr(n->reason, why), "\"%s\" says nothing of \"%s\"", n->reason, why);
}

static struct msg hello_of(const char *name)
{
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 1};
    snprintf(m.node, sizeof m.node, "%s", name);
    return m;
}

/* Opens a session as `name`, which remains open if it is accepted. */
static bool session(struct node *n, const struct msg *hello)
{
    const struct rpc_identity id = {pki_ca(w.ca), n->cert, n->key};
    n->first = hello;
    n->got = 0;
    n->refused[0] = n->reason[0] = 0;
    n->client = rpc_dial_tls(w.loop, w.address, &id, &node_calls, n, &e);
    UNTIL(n->got || n->refused[0]);
    return n->got == MSG_WELCOME;
}

static void leave(struct node *n)
{
    rpc_client_destroy(n->client);
    n->client = NULL;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_joins(void)
{
    struct node n, m;
    struct pki_node got;
    const struct msg hello = hello_of("gpu-1"), other = hello_of("gpu-2");
    start(0);
    const char *t = make_token("gpu-*", 1, 60);
    node_key(&n, "gpu-1");
    CHECK_MSG(join(&n, t), "%s", n.reason);
    CHECK(!pki_verify(w.ca, n.cert, time(NULL), &got, &e) && !strcmp(got.name, "gpu-1"));
    CHECK(got.until_s - time(NULL) > 3500 && got.until_s - time(NULL) <= 3600);
    CHECK(session(&n, &hello) && w.n_up == 1);
    /* The answer was lost, so the node joins again with its key. The second join must not count as
     * a second use of the token. */
    m = n;
    CHECK_MSG(join(&m, t), "%s", m.reason);
    node_key(&m, "gpu-2");
    refused(&m, t, "is used up: 1 of 1 uses");
    /* The certificate is for a different name. */
    m = n;
    CHECK(!session(&m, &other) && m.got == MSG_REFUSED);
    CHECK_MSG(strstr(m.reason, "of node gpu-1, and the session is said to be of gpu-2"), "%s",
              m.reason);
    CHECK(w.n_up == 1);
    leave(&m);
    leave(&n);
    UNTIL(w.n_down == 1);
    stop();
}

/* ---- the join key ---------------------------------------------------------------------------- */

static struct join_key key_of(const char *secret)
{
    struct join_key k = {{0}};
    char path[64];
    snprintf(path, sizeof path, "%s/key", dir);
    CHECK(!file_write_private(path, secret, strlen(secret), &e) && !join_key_read(path, &k, &e));
    return k;
}

/* Asks for a proof. Returns the text of the answer: the proof, or the reason of a refusal. */
static const char *prove(struct node *n, const char *nonce)
{
    const struct rpc_identity id = {pki_ca(w.ca), NULL, NULL};
    const struct msg m = {.type = MSG_PROVE, .token = nonce};
    n->first = &m;
    n->got = 0;
    n->client = rpc_dial_tls(w.loop, w.address, &id, &node_calls, n, &e);
    UNTIL(n->got);
    return n->got == MSG_PROOF ? n->cert : n->reason;
}

static void test_key(void)
{
    struct node n, m;
    char nonce[JOIN_NONCE_HEX], want[JOIN_NONCE_HEX];
    struct join_key a = key_of("0123456789abcdef0123456789abcdef"),
                    b = key_of("0123456789abcdef0123456789abcdeg");
    start(0);
    node_key(&n, "rank-1");
    join_key_nonce(nonce);
    CHECK(strstr(prove(&n, nonce), "has no join key"));
    leave(&n);
    refused(&n, a.token, "knows no such join token");
    key = &a;
    restart();
    join_key_prove(&a, nonce, pki_fingerprint(w.ca), want);
    CHECK_STR(prove(&n, nonce), want);
    /* A stream has one proof, and no other message before a join. */
    const struct msg again = {.type = MSG_PROVE, .token = nonce};
    node_send(&n, &again);
    UNTIL(n.n_closed);
    leave(&n);
    CHECK(strstr(prove(&n, "00"), "a nonce has 64"));
    leave(&n);
    join_key_prove(&b, nonce, pki_fingerprint(w.ca), want);
    CHECK_MSG(strcmp(prove(&n, nonce), want) != 0, "the proof of one key is that of another");
    leave(&n);
    refused(&n, b.token, "knows no such join token");
    CHECK_MSG(join(&n, a.token), "%s", n.reason);
    node_key(&m, "node-1");
    refused(&m, a.token, "is for nodes named rank-[1-9]*, not for node-1");
    node_key(&m, "rank-0");
    refused(&m, a.token, "is for nodes named rank-[1-9]*, not for rank-0");
    stop();
    start(0);
    /* The key is used for two names, of which the store still knows one. A node that comes again
     * with a new state directory takes its name, and the old certificate ends. */
    const struct msg hello = hello_of("rank-1");
    m = n;
    node_key(&n, "rank-1");
    CHECK_MSG(join(&n, a.token), "%s", n.reason);
    CHECK(!session(&m, &hello) && strstr(m.reason, "is not known here any more"));
    leave(&m);
    CHECK(session(&n, &hello));
    leave(&n);
    node_key(&m, "rank-2");
    CHECK_MSG(join(&m, a.token), "%s", m.reason);
    node_key(&m, "rank-3");
    CHECK_MSG(join(&m, a.token), "%s", m.reason);
    node_key(&m, "rank-4");
    refused(&m, a.token, "is used up: 2 of 2 uses");
    /* Another key ends the certificates of the first. */
    key = &b;
    restart();
    CHECK(!session(&n, &hello) && strstr(n.reason, "is not known here any more"));
    leave(&n);
    node_key(&m, "rank-1");
    refused(&m, a.token, "knows no such join token");
    CHECK_MSG(join(&m, b.token), "%s", m.reason);
    stop();
    key = NULL;
}

static void test_refusals(void)
{
    struct node n;
    start(0);
    node_key(&n, "cpu-1");
    const char *t = make_token("gpu-*", 5, 60);
    refused(&n, t, "is for nodes named gpu-*, not for cpu-1");
    refused(&n, "", "knows no such join token");
    refused(&n, "seqj_000000000000_00", "knows no such join token");
    char wrong[160];
    snprintf(wrong, sizeof wrong, "%s", t);
    wrong[strlen(wrong) - 1] ^= 1;
    refused(&n, wrong, "knows no such join token");
    node_key(&n, "gpu-1");
    memset(n.csr, 'a', 100);
    refused(&n, t, "not a certificate signing request");
    node_key(&n, "gpu-1");
    later_s = 61;
    refused(&n, t, "expired at");
    later_s = 0;
    memset(&order, 0, sizeof order);
    joins_token_revoke(w.joins, order.id, on_done, NULL);
    CHECK(order.failed && order.e.code == ERR_NOT_FOUND);
    t = make_token("*", 1, 60);
    char id[16];
    snprintf(id, sizeof id, "%s", order.id);
    memset(&order, 0, sizeof order);
    joins_token_revoke(w.joins, id, on_done, NULL);
    UNTIL(order.done);
    CHECK(!order.failed);
    refused(&n, t, "knows no such join token");
    CHECK(!make_token("", 1, 1) && !strcmp(order.e.field, "names"));
    CHECK(!make_token("a b", 1, 1) && !strcmp(order.e.field, "names"));
    CHECK(!make_token("*", 0, 1) && !strcmp(order.e.field, "uses"));
    CHECK(!make_token("*", JOIN_USES + 1, 1) && !strcmp(order.e.field, "uses"));
    CHECK(!make_token("*", 1, 0) && !strcmp(order.e.field, "ttl_s"));
    CHECK(!make_token("*", 1, JOIN_TOKEN_S + 1) && !strcmp(order.e.field, "ttl_s"));
    stop();
}

/* Checks that a name belongs to the key that joined with it. */
static void test_name_is_taken(void)
{
    struct node n, thief;
    const struct msg hello = hello_of("taken");
    start(0);
    const char *t = make_token("*", 5, 600);
    node_key(&n, "taken");
    CHECK(join(&n, t));
    node_key(&thief, "taken");
    refused(&thief, t, "the name taken belongs to another key until");
    revoke_node("taken");
    CHECK(!order.failed);
    refused(&thief, t, "node taken was revoked at");
    t = make_token("*", 5, 600);
    CHECK(join(&thief, t));
    CHECK(session(&thief, &hello));
    CHECK(!session(&n, &hello) && strstr(n.reason, "was revoked"));
    leave(&n);
    leave(&thief);
    /* Even after the certificate has expired, the same token must not give the name to a different
     * key. */
    t = make_token("*", 5, 7200);
    later_s = 3601;
    CHECK(join(&n, t));
    refused(&thief, t, "belongs to another key");
    later_s = 0;
    stop();
}

static void test_revoked(void)
{
    struct node n, m;
    const struct msg hello = hello_of("r1");
    start(0);
    const char *t = make_token("r*", 5, 600);
    node_key(&n, "r1");
    CHECK(join(&n, t) && session(&n, &hello));
    revoke_node("r1");
    CHECK(!order.failed);
    UNTIL(n.n_closed == 1);
    CHECK(w.n_down == 1);
    CHECK_STR(w.down_why, "its certificate was revoked");
    leave(&n);
    CHECK(!session(&n, &hello) && strstr(n.reason, "was revoked"));
    leave(&n);
    restart();
    CHECK(!session(&n, &hello));
    CHECK_MSG(strstr(n.reason, "was revoked"), "%s", n.reason);
    CHECK(w.n_up == 0);
    leave(&n);
    revoke_node("r1");
    CHECK(order.failed && order.e.code == ERR_NOT_FOUND);
    /* A token that was made before the revocation must be refused for the revoked name, even if it
     * has uses left. For other names the token must still be accepted. */
    refused(&n, t, "and the join token");
    restart();
    refused(&n, t, "was made before that");
    node_key(&m, "r2");
    CHECK(join(&m, t));
    /* A new token is accepted. */
    t = make_token("r*", 5, 600);
    CHECK(join(&n, t) && session(&n, &hello));
    leave(&n);
    stop();
}

static int n_rows(const char *table)
{
    char path[64], sql[96];
    sqlite3 *db;
    sqlite3_stmt *st;
    snprintf(path, sizeof path, "%s/seqd.db", dir);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table);
    CHECK(!sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL));
    CHECK(!sqlite3_prepare_v2(db, sql, -1, &st, NULL) && sqlite3_step(st) == SQLITE_ROW);
    const int n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

/* Checks that a token that was made before a revocation is never accepted for the revoked name,
 * whatever the clocks do. When all tokens from before the revocation have been deleted, the row of
 * the revocation must be deleted, too. */
static void test_revoked_and_clocks(void)
{
    static const int64_t hours[] = {0, -700, 2, -2, 3000 * 24, 0};
    struct node n, m;
    start(0);
    const char *t = make_token("k*", 100, 3600);
    node_key(&n, "k1");
    CHECK(join(&n, t));
    /* by this clock, the node's certificate has expired, but it is nevertheless revoked */
    later_s = 4 * 3600;
    revoke_node("k1");
    CHECK(!order.failed);
    for (size_t i = 0; i < sizeof hours / sizeof *hours; i++) {
        later_s = hours[i] * 3600;
        CHECK_MSG(!join(&n, t), "%lld hours later", (long long)hours[i]);
        if (i == 2) restart();
    }
    CHECK(n_rows("revocations") >= 1);
    /* A token that is made after the revocation counts as newer, even if the clock was set
     * back. */
    later_s = -3600 * 24;
    const char *next = make_token("k*", 100, 3600);
    CHECK(join(&n, next));
    /* When the next token is made, everything that can expire has expired. */
    later_s = 3600 * 24 * 4000;
    node_key(&m, "k2");
    CHECK(join(&m, make_token("k*", 1, 3600)));
    CHECK(n_rows("join_tokens") == 1 && n_rows("revocations") == 0);
    later_s = 0;
    stop();
}

/* Checks a database of the previous version. Its tokens are numbered in the order in which they
 * were made. */
static void test_without_numbers(void)
{
    struct node n;
    char path[64];
    sqlite3 *db;
    start(0);
    const char *a = make_token("p*", 9, 3600), *b = make_token("p*", 9, 3600);
    stop();
    snprintf(path, sizeof path, "%s/seqd.db", dir);
    CHECK(!sqlite3_open(path, &db));
    CHECK(!sqlite3_exec(db, "DROP TABLE revocations; ALTER TABLE join_tokens DROP COLUMN number",
                        NULL, NULL, NULL));
    sqlite3_close(db);
    start(0);
    node_key(&n, "p1");
    CHECK(join(&n, a));
    revoke_node("p1");
    refused(&n, a, "was made before that");
    refused(&n, b, "was made before that");
    stop();
    /* A token that is made after the revocation is newer, too. */
    CHECK(!sqlite3_open(path, &db));
    char sql[128];
    snprintf(sql, sizeof sql, "UPDATE join_tokens SET number = NULL WHERE id = '%.12s'", b + 5);
    CHECK(!sqlite3_exec(db, sql, NULL, NULL, NULL) && sqlite3_changes(db) == 1);
    sqlite3_close(db);
    start(0);
    refused(&n, a, "was made before that");
    CHECK(join(&n, b));
    stop();
}

/* Checks that every answer is on disk before it is sent. */
static void test_restart(void)
{
    struct node n, m;
    const struct msg hello = hello_of("s1");
    start(0);
    const char *t = make_token("s*", 1, 600);
    node_key(&n, "s1");
    CHECK(join(&n, t));
    restart();
    CHECK(session(&n, &hello));
    node_key(&m, "s2");
    refused(&m, t, "is used up");
    leave(&n);
    stop();
}

/* Checks a certificate that this authority has signed but that is not in the table, as after a
 * restore of an older backup. */
static void test_unknown_serial(void)
{
    struct node n;
    const struct msg hello = hello_of("u1");
    struct pki_node as = {"u1", 4711, time(NULL) - 60, time(NULL) + 60, ""};
    start(0);
    node_key(&n, "u1");
    CHECK(!pki_sign(w.ca, n.csr, &as, n.cert, &e));
    CHECK(!session(&n, &hello));
    CHECK_MSG(strstr(n.reason, "serial 1267) is not known here"), "%s", n.reason);
    leave(&n);
    stop();
}

static void test_renewal(void)
{
    struct node n, m, first;
    struct pki_node was, is;
    const struct msg hello = hello_of("v1");
    start(0);
    const char *t = make_token("v*", 2, 600);
    node_key(&n, "v1");
    CHECK(join(&n, t));
    first = n;
    CHECK(session(&n, &hello));
    CHECK(!pki_read(n.cert, &was, &e));
    struct msg ask = {.type = MSG_JOIN, .node = "v1", .token = "", .pem = n.csr};
    n.got = 0;
    node_send(&n, &ask);
    UNTIL(n.got);
    CHECK(n.got == MSG_JOINED && !pki_read(n.cert, &is, &e));
    CHECK(is.serial != was.serial && !strcmp(is.key, was.key) && !strcmp(is.name, "v1"));
    /* A request for a different name or with a different key is refused. */
    node_key(&m, "v2");
    const struct msg bad[] = {{.type = MSG_JOIN, .node = "v2", .token = "", .pem = n.csr},
                              {.type = MSG_JOIN, .node = "v1", .token = "", .pem = m.csr}};
    for (int i = 0; i < 2; i++) {
        n.got = 0;
        node_send(&n, &bad[i]);
        UNTIL(n.got);
        CHECK_MSG(n.got == MSG_REFUSED && strstr(n.reason, "another name or key"), "%s", n.reason);
    }
    CHECK(w.n_up == 1 && w.n_down == 0 && n.stream);
    leave(&n);
    /* The first certificate goes when its successor is used, and not before. */
    CHECK(session(&first, &hello));
    leave(&first);
    CHECK(session(&n, &hello));
    CHECK(!session(&first, &hello) && strstr(first.reason, "is not known here any more"));
    leave(&first);
    leave(&n);
    restart();
    CHECK(!session(&first, &hello) && strstr(first.reason, "is not known here any more"));
    leave(&first);
    CHECK(session(&n, &hello));
    /* All certificates of the node are revoked. */
    revoke_node("v1");
    UNTIL(!n.stream);
    leave(&n);
    CHECK(!session(&n, &hello) && strstr(n.reason, "was revoked"));
    leave(&n);
    stop();
}

/* Checks that a node has at most JOIN_PER_NODE valid certificates. If there would be more, the
 * oldest certificates must become invalid, and the newest must be valid. */
static void test_many_renewals(void)
{
    struct node n, first;
    const struct msg hello = hello_of("w1");
    start(0);
    const char *t = make_token("w*", 1, 600);
    node_key(&n, "w1");
    CHECK(join(&n, t));
    first = n;
    CHECK(session(&n, &hello));
    for (int i = 0; i < JOIN_PER_NODE; i++) {
        const struct msg ask = {.type = MSG_JOIN, .node = "w1", .token = "", .pem = n.csr};
        n.got = 0;
        node_send(&n, &ask);
        UNTIL(n.got);
        CHECK(n.got == MSG_JOINED);
    }
    leave(&n);
    restart();
    CHECK(!session(&first, &hello) && strstr(first.reason, "not known here any more"));
    leave(&first);
    CHECK(session(&n, &hello));
    leave(&n);
    stop();
}

/* Checks that the method Join accepts a single JOIN message and nothing else. */
static void test_strangers(void)
{
    const struct msg hello = hello_of("x1"), beat = {.type = MSG_HEARTBEAT};
    const struct msg *const bad[] = {&hello, &beat};
    struct node n;
    start(0);
    const struct rpc_identity none = {pki_ca(w.ca), NULL, NULL};
    for (int i = 0; i < 2; i++) {
        node_key(&n, "x1");
        n.first = bad[i];
        n.client = rpc_dial_tls(w.loop, w.address, &none, &node_calls, &n, &e);
        UNTIL(n.n_closed > 0);
        CHECK(!n.got && w.n_up == 0);
        leave(&n);
    }
    /* The message is valid but too large for a JOIN, because it has an unknown field of 20,000
     * bytes. */
    static unsigned char big[32 << 10];
    const unsigned char unknown[] = {0xa2, 0x06, 0xa0, 0x9c, 0x01};
    const struct msg good = {.type = MSG_JOIN, .node = "x1", .token = "", .pem = ""};
    struct arena a;
    size_t size;
    arena_init(&a, 1 << 20);
    const void *data = wire_pack(&good, &a, &size);
    assert(data);
    memcpy(big, data, size);
    arena_fini(&a);
    memcpy(big + size, unknown, sizeof unknown);
    for (int wide = 0; wide < 2; wide++) {
        node_key(&n, "x1");
        n.client = rpc_dial_tls(w.loop, w.address, &none, &node_calls, &n, &e);
        UNTIL(n.stream);
        rpc_send(n.stream, big, wide ? size + sizeof unknown + 20000 : size);
        UNTIL(n.got || n.n_closed > 0);
        CHECK_MSG(wide ? !n.got : n.got == MSG_REFUSED, "wide %d got %d closed %d", wide,
                  (int)n.got, n.n_closed);
        leave(&n);
    }
    /* A second JOIN is refused, whatever the answer to the first JOIN was. */
    struct msg ask = {.type = MSG_JOIN, .node = "x1", .token = "", .pem = n.csr};
    node_key(&n, "x1");
    n.first = &ask;
    n.client = rpc_dial_tls(w.loop, w.address, &none, &node_calls, &n, &e);
    UNTIL(n.got == MSG_REFUSED);
    node_send(&n, &ask);
    UNTIL(n.n_closed > 0);
    leave(&n);
    stop();
}

/* Checks that as many nodes as a rack has can join at one time: none is turned away. */
static void test_at_one_time(void)
{
    enum { MANY = 40 };
    static struct node n[MANY];
    static struct msg ask[MANY];
    start(0);
    const char *t = make_token("z*", MANY, 600);
    const struct rpc_identity none = {pki_ca(w.ca), NULL, NULL};
    node_key(&n[0], "z0");
    for (int i = 0; i < MANY; i++) {
        n[i] = n[0]; /* a key is dear, and may have several names */
        snprintf(n[i].name, sizeof n[i].name, "z%d", i);
        CHECK(!pki_request(n[i].key, n[i].name, n[i].csr, &e));
        ask[i] = (struct msg){.type = MSG_JOIN, .token = t, .pem = n[i].csr};
        memcpy(ask[i].node, n[i].name, sizeof ask[i].node);
        n[i].first = &ask[i];
        n[i].client = rpc_dial_tls(w.loop, w.address, &none, &node_calls, &n[i], &e);
    }
    for (int i = 0; i < MANY; i++) UNTIL(n[i].got || n[i].n_closed);
    for (int i = 0; i < MANY; i++) {
        CHECK_MSG(n[i].got == MSG_JOINED && !n[i].n_closed, "%s: %s", n[i].name, n[i].reason);
        leave(&n[i]);
    }
    stop();
}

/* Opens a session of a node whose certificate is valid for life_s from now on. */
static bool short_session(struct node *n, const char *name, const char *token, int life_s)
{
    const struct msg hello = hello_of(name);
    later_s = life_s - 3600; /* the certificate is then signed nearly an hour in the past */
    node_key(n, name);
    CHECK(join(n, token));
    later_s = 0;
    const bool up = session(n, &hello);
    if (!up) leave(n);
    return up;
}

static bool beaten(struct node *n)
{
    const struct msg beat = {.type = MSG_HEARTBEAT};
    if (n->stream) node_send(n, &beat);
    return w.n_down > 0;
}

/* Checks that a session does not outlive its certificate. If the machine is too busy to open a
 * session in time, the next certificate is valid for longer. */
static void test_expires(void)
{
    struct node n;
    char name[16], want[64];
    int life_s = 2;
    start(0);
    const char *t = make_token("y*", 8, 600);
    link_set_heartbeat(w.links, 100);
    for (snprintf(name, sizeof name, "y%d", life_s); !short_session(&n, name, t, life_s);
         snprintf(name, sizeof name, "y%d", life_s *= 2))
        CHECK(life_s < 256);
    UNTIL(beaten(&n));
    CHECK_STR(w.down_why, "its certificate expired");
    UNTIL(n.refused[0]);
    snprintf(want, sizeof want, "node %s expired at", name);
    CHECK_MSG(strstr(n.refused, want), "%s", n.refused);
    leave(&n);
    stop();
}

int main(void)
{
    if (!mkdtemp(dir)) abort();
    RUN(test_joins);
    RUN(test_key);
    RUN(test_refusals);
    RUN(test_name_is_taken);
    RUN(test_revoked);
    RUN(test_revoked_and_clocks);
    RUN(test_without_numbers);
    RUN(test_restart);
    RUN(test_unknown_serial);
    RUN(test_renewal);
    RUN(test_many_renewals);
    RUN(test_strangers);
    RUN(test_at_one_time);
    RUN(test_expires);
    file_remove(dir, &e);
    return test_done("join");
}
