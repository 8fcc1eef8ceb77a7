/* test_agent_member: tests the certificate of a node. Checks how the node joins, which state it
 * keeps over restarts, how it renews the certificate, and that it refuses false coordinators. The
 * test plays the coordinator, which signs the node's requests or refuses them. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/join_key.h"
#include "tests/lib/test.h"
#include "worker/agent/member.h"

static char dir[] = "/tmp/seqd-member-XXXXXX";
static struct err e;
static struct loop *loop;
static struct pki *ours, *other;

/* ---- the coordinator ------------------------------------------------------------------------- */

static struct {
    struct rpc_server *server;
    char address[64], token[WIRE_TOKEN_SIZE]; /* the token that was received last */
    /* the reason for which every node is refused, or NULL */
    const char *refuse;
    /* life_s is how long certificates are valid; behind_s is by how many seconds the coordinator's
     * clock is slow */
    int64_t serial, life_s, behind_s;
    int n_joins, n_proofs;
    struct join_key key; /* the coordinator's key; its id is "" without one */
} d;
static int64_t ahead_ms; /* how far the loop's clock is ahead */

static void reply(struct rpc_stream *s, const struct msg *m)
{
    struct arena a;
    size_t size;
    arena_init(&a, 1 << 20);
    void *data = wire_pack(m, &a, &size);
    assert(data && !rpc_send(s, data, size));
    arena_fini(&a);
}

/* Signs m's request. */
static void sign(const struct msg *m, char cert[PKI_PEM_SIZE])
{
    const int64_t now_s = time(NULL) - d.behind_s;
    struct pki_node as = {
        .serial = ++d.serial, .from_s = now_s - PKI_SKEW_S, .until_s = now_s + d.life_s};
    snprintf(as.name, sizeof as.name, "%s", m->node);
    CHECK_MSG(!pki_sign(ours, m->pem, &as, cert, &e), "%s", e.text);
}

static void on_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct arena a;
    struct msg m, out = {.type = MSG_JOINED};
    char cert[PKI_PEM_SIZE];
    arena_init(&a, 1 << 20);
    CHECK(!wire_unpack(data, size, &a, &m, &e) && rpc_stream_joins(s));
    if (m.type == MSG_PROVE) {
        char proof[JOIN_NONCE_HEX];
        join_key_prove(&d.key, m.token, pki_fingerprint(*d.key.id ? ours : other), proof);
        d.n_proofs++;
        out = (struct msg){.type = MSG_PROOF, .token = proof};
        reply(s, &out);
        arena_fini(&a);
        return;
    }
    CHECK(m.type == MSG_JOIN);
    d.n_joins++;
    snprintf(d.token, sizeof d.token, "%s", m.token);
    if (d.refuse) {
        out.type = MSG_REFUSED;
        snprintf(out.reason, sizeof out.reason, "%s", d.refuse);
    } else {
        sign(&m, cert);
        out.pem = cert;
    }
    reply(s, &out);
    arena_fini(&a);
}

static void on_stream(void *arg, struct rpc_stream *s)
{
}

static const struct rpc_calls server_calls = {on_stream, on_message, NULL, NULL};

static int64_t loop_ms(void *arg)
{
    return clock_ms() + ahead_ms;
}

static void start(const struct pki *ca)
{
    const struct rpc_authority a = {ca, RPC_LIFE_S};
    memset(&d, 0, sizeof d);
    d.life_s = 3600;
    loop = loop_create(loop_ms, NULL, NULL);
    d.server = rpc_serve_tls(loop, "127.0.0.1:0", &a, &server_calls, NULL, &e);
    assert(d.server);
    snprintf(d.address, sizeof d.address, "127.0.0.1:%d", rpc_server_port(d.server));
}

static void stop(void)
{
    rpc_server_destroy(d.server);
    loop_destroy(loop);
}

/* ---- the node -------------------------------------------------------------------------------- */

static struct {
    char state[96], token_file[96];
    bool keyed; /* the file has a join key */
    struct member *m;
    int n_ready, n_sent;
    struct msg sent; /* the last message, without the targets of its pointers */
    char csr[PKI_PEM_SIZE];
} n;

static void on_ready(void *arg)
{
    n.n_ready++;
}

static int on_send(void *arg, const struct msg *m)
{
    n.n_sent++;
    n.sent = *m;
    snprintf(n.csr, sizeof n.csr, "%s", m->pem);
    return 0;
}

static void fresh(const char *name)
{
    memset(&n, 0, sizeof n);
    snprintf(n.state, sizeof n.state, "%s/%s", dir, name);
    snprintf(n.token_file, sizeof n.token_file, "%s/%s.token", dir, name);
    CHECK(!mkdir(n.state, 0700));
}

static void token(const char *text, const struct pki *ca)
{
    char line[512];
    snprintf(line, sizeof line, "%s.%s\n", text, pki_fingerprint(ca));
    CHECK(!file_write(n.token_file, line, strlen(line), &e));
}

static bool open_member(const char *name, bool with_file)
{
    static const struct member_calls calls = {on_ready, on_send};
    const char *file = with_file ? n.token_file : NULL;
    const struct member_options o = {d.address, name, n.state, n.keyed ? NULL : file,
                                     n.keyed ? file : NULL};
    n.n_ready = n.n_sent = 0;
    n.m = member_open(loop, &o, &calls, NULL, &e);
    return n.m != NULL;
}

static void give_up(void *arg)
{
    printf("gave up waiting\n");
    abort();
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        struct loop_timer *limit_ = loop_timer_create(loop, give_up, NULL);                        \
        loop_timer_set(limit_, 60000);                                                             \
        while (!(cond)) loop_turn(loop, 1000);                                                     \
        loop_timer_destroy(limit_);                                                                \
    } while (0)

static int64_t serial_now(void)
{
    struct pki_node got;
    CHECK(!pki_verify(ours, member_identity(n.m)->cert, time(NULL), &got, &e));
    return got.serial;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_joins_once(void)
{
    struct stat st;
    char path[128], key[PKI_PEM_SIZE];
    start(ours);
    fresh("once");
    token("seqj_1", ours);
    CHECK_MSG(open_member("n1", true), "%s", e.text);
    CHECK(!member_identity(n.m));
    UNTIL(n.n_ready == 1);
    CHECK_STR(d.token, "seqj_1"); /* without the fingerprint */
    CHECK(serial_now() == 1);
    snprintf(key, sizeof key, "%s", member_identity(n.m)->key);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/pki/%s", n.state, i ? "node.pem" : "node.key");
        CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600);
    }
    member_close(n.m);
    /* After a restart the certificate is unchanged, whether or not the file with the token
     * exists. */
    for (int i = 0; i < 2; i++) {
        CHECK(open_member("n1", i) && member_identity(n.m) && serial_now() == 1);
        member_refused(n.m); /* the file has no new token */
        loop_turn(loop, 50);
        CHECK(d.n_joins == 1 && !n.n_ready);
        member_close(n.m);
    }
    /* If the file gets a new token, the node uses it with its old key. */
    token("seqj_2", ours);
    CHECK(open_member("n1", true));
    UNTIL(n.n_ready == 1);
    CHECK(serial_now() == 2 && !strcmp(member_identity(n.m)->key, key));
    /* If a token is put into the file while seqd refuses the certificate, it is used, too. */
    token("seqj_3", ours);
    member_refused(n.m);
    UNTIL(n.n_ready == 2);
    CHECK(serial_now() == 3);
    member_close(n.m);
    /* The certificate belongs to n1. */
    CHECK(!open_member("n2", false) && strstr(e.text, "node n2 has no certificate"));
    stop();
}

static void test_refused_and_tried_again(void)
{
    start(ours);
    fresh("again");
    token("seqj_1", ours);
    d.refuse = "not today";
    CHECK(open_member("n1", true));
    UNTIL(d.n_joins == 1);
    d.refuse = NULL;
    UNTIL(n.n_ready == 1);
    CHECK(d.n_joins == 2 && serial_now() == 1);
    member_close(n.m);
    stop();
}

/* Checks that the node sends nothing to a coordinator whose fingerprint is not the token's. */
static void test_false_coordinator(void)
{
    start(other);
    fresh("false");
    token("seqj_1", ours);
    CHECK(open_member("n1", true));
    struct loop_timer *t = loop_timer_create(loop, on_ready, NULL);
    loop_timer_set(t, 1500); /* more than one attempt */
    UNTIL(n.n_ready == 1);
    CHECK(d.n_joins == 0 && !member_identity(n.m));
    loop_timer_destroy(t);
    member_close(n.m);
    stop();
}

static struct join_key key_file(const char *secret)
{
    struct join_key k = {{0}};
    n.keyed = true;
    CHECK(!file_write_private(n.token_file, secret, strlen(secret), &e));
    CHECK(!join_key_read(n.token_file, &k, &e));
    return k;
}

/* Checks that the token of a key is sent only after a proof by that key over the authority that
 * the session has shown. */
static void test_key(void)
{
    static const char *const secret = "0123456789abcdef0123456789abcdef";
    start(ours);
    fresh("keyed");
    d.key = key_file(secret);
    CHECK_MSG(open_member("rank-1", true), "%s", e.text);
    UNTIL(n.n_ready == 1);
    CHECK_STR(d.token, d.key.token);
    CHECK(d.n_proofs == 1 && d.n_joins == 1 && serial_now() == 1);
    member_close(n.m);
    /* Another key, and a proof of the right key that is over another authority, as of a program
     * between the two that passes messages on. */
    for (int i = 0; i < 2; i++) {
        fresh(i ? "relayed" : "other-key");
        const struct join_key mine = key_file(secret);
        d.key = i ? mine : key_file("0123456789abcdef0123456789abcdeg");
        if (i) *d.key.id = 0;
        key_file(secret);
        d.n_proofs = d.n_joins = 0;
        CHECK(open_member("rank-1", true));
        UNTIL(d.n_proofs == 2);
        CHECK(d.n_joins == 0 && !member_identity(n.m));
        member_close(n.m);
    }
    CHECK(!chmod(n.token_file, 0644) && !open_member("rank-1", true));
    CHECK_MSG(strstr(e.text, "can be read by others"), "%s", e.text);
    stop();
}

/* Checks that the member can be closed while its thread looks for a file, and that the loop
 * continues. */
static void test_closed_early(void)
{
    start(ours);
    fresh("early");
    token("seqj_1", ours);
    for (int i = 0; i < 3; i++) {
        CHECK(open_member("n1", true));
        member_close(n.m);
        loop_turn(loop, 100);
        CHECK(!n.n_ready && !d.n_joins);
    }
    stop();
}

static void test_files(void)
{
    static const char *const bad[] = {"", "seqj_1", "seqj_1.", ".", "seqj_1.00", "\n\n"};
    char path[128], long_token[400];
    start(ours);
    fresh("files");
    CHECK(!open_member("n1", true) && e.code == ERR_NOT_FOUND);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!file_write(n.token_file, bad[i], strlen(bad[i]), &e));
        CHECK(!open_member("n1", true) && e.code == ERR_INVALID);
        CHECK_MSG(strstr(e.text, "no join token") && strstr(e.text, n.token_file), "%s", e.text);
    }
    memset(long_token, 'a', WIRE_TOKEN_SIZE);
    long_token[WIRE_TOKEN_SIZE] = 0;
    token(long_token, ours);
    CHECK(!open_member("n1", true) && e.code == ERR_INVALID);
    token("seqj_1", ours);
    CHECK(open_member("n1", true));
    UNTIL(n.n_ready == 1);
    member_close(n.m);
    snprintf(path, sizeof path, "%s/pki/node.pem", n.state);
    CHECK(!file_write_private(path, "token 00\nnonsense", 17, &e));
    CHECK(!open_member("n1", true) && e.code == ERR_CORRUPT && strstr(e.text, path));
    /* The key does not belong to the certificate. */
    CHECK(!file_remove(path, &e) && open_member("n1", true));
    UNTIL(n.n_ready == 1);
    member_close(n.m);
    char key[PKI_PEM_SIZE];
    snprintf(path, sizeof path, "%s/pki/node.key", n.state);
    CHECK(!pki_key_make(key, &e) && !file_write_private(path, key, strlen(key), &e));
    CHECK(!open_member("n1", true) && e.code == ERR_CORRUPT && strstr(e.text, "another key"));
    stop();
}

static void test_renews(void)
{
    char cert[PKI_PEM_SIZE];
    start(ours);
    fresh("renews");
    token("seqj_1", ours);
    d.life_s = 4;
    CHECK(open_member("n1", true));
    UNTIL(n.n_ready == 1);
    const struct msg early = {.type = MSG_JOINED, .pem = ""};
    CHECK(!member_answer(n.m, &early)); /* no request was made for it */
    UNTIL(n.n_sent == 1);               /* at half its life */
    CHECK(n.sent.type == MSG_JOIN && !strcmp(n.sent.node, "n1"));
    d.life_s = 3600;
    n.sent.pem = n.csr;
    /* If the answer is a refusal, or a certificate for a different name, the old certificate is
     * kept. */
    const struct msg no = {.type = MSG_REFUSED, .reason = "no"};
    CHECK(member_answer(n.m, &no) && n.n_ready == 1);
    member_welcome(n.m);
    CHECK(n.n_sent == 2);
    snprintf(n.sent.node, sizeof n.sent.node, "n2");
    n.sent.pem = n.csr;
    sign(&n.sent, cert);
    const struct msg wrong = {.type = MSG_JOINED, .pem = cert};
    CHECK(member_answer(n.m, &wrong) && n.n_ready == 1);
    member_welcome(n.m);
    CHECK(n.n_sent == 3);
    snprintf(n.sent.node, sizeof n.sent.node, "n1");
    n.sent.pem = n.csr;
    sign(&n.sent, cert);
    const struct msg right = {.type = MSG_JOINED, .pem = cert};
    CHECK(member_answer(n.m, &right) && n.n_ready == 2);
    CHECK(serial_now() == d.serial);
    member_welcome(n.m);
    CHECK(n.n_sent == 3); /* nothing is due */
    member_close(n.m);
    CHECK(open_member("n1", false) && serial_now() == d.serial);
    member_close(n.m);
    stop();
}

/* Checks that a node that has joined does not join again for some minutes. If it gets a new token,
 * it tries this token at once. */
static void test_joins_no_more(void)
{
    start(ours);
    fresh("no-more");
    token("seqj_1", ours);
    CHECK(open_member("n1", true));
    UNTIL(n.n_ready == 1);
    for (int i = 0; i < 3; i++) {
        ahead_ms += 61000;
        loop_turn(loop, 0);
    }
    token("seqj_2", ours);
    member_refused(n.m);
    UNTIL(n.n_ready == 2);
    CHECK_STR(d.token, "seqj_2");
    CHECK(d.n_joins == 2 && serial_now() == 2 && !n.n_sent);
    member_close(n.m);
    stop();
}

/* Checks that a certificate that has just been received counts as new, even if its dates are in
 * the past or in the future by this node's wall clock. */
static void test_renews_by_its_own_time(void)
{
    start(ours);
    fresh("own-time");
    token("seqj_1", ours);
    d.behind_s = 3000; /* of 3600 */
    CHECK(open_member("n1", true));
    UNTIL(n.n_ready == 1);
    for (int i = 0; i < 3; i++) member_welcome(n.m);
    CHECK(!n.n_sent);
    ahead_ms += 1799000;
    loop_turn(loop, 0);
    CHECK(!n.n_sent);
    ahead_ms += 1000;
    UNTIL(n.n_sent == 1);
    member_close(n.m);
    stop();
}

int main(void)
{
    if (!mkdtemp(dir)) abort();
    char path[2][64];
    snprintf(path[0], sizeof path[0], "%s/ours", dir);
    snprintf(path[1], sizeof path[1], "%s/other", dir);
    ours = pki_open(path[0], time(NULL), &e);
    other = pki_open(path[1], time(NULL), &e);
    assert(ours && other);
    RUN(test_joins_once);
    RUN(test_refused_and_tried_again);
    RUN(test_false_coordinator);
    RUN(test_key);
    RUN(test_closed_early);
    RUN(test_files);
    RUN(test_renews);
    RUN(test_joins_no_more);
    RUN(test_renews_by_its_own_time);
    pki_close(ours);
    pki_close(other);
    file_remove(dir, &e);
    return test_done("member");
}
