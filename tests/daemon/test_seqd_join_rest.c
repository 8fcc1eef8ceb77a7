/* test_seqd_join_rest: tests join tokens and revocation over REST. Checks secrets, which are shown
 * once or never, and refused requests. */
#include <time.h>
#include "daemon/access/join.h"
#include "tests/lib/rest.h"

static struct pki *ca;
static char closed[NODE_NAME];

static int64_t utc_ms(void)
{
    return (int64_t)time(NULL) * 1000;
}

static struct msg answered;
static char cert[PKI_PEM_SIZE];

static void answer(void *arg, int64_t session, const struct msg *m)
{
    answered = *m;
    if (m->type == MSG_JOINED) snprintf(cert, sizeof cert, "%s", m->pem);
}

static void close_node(void *arg, const char *node, const char *why)
{
    snprintf(closed, sizeof closed, "%s", node);
}

static void begin_with_joins(void)
{
    struct err e;
    char path[96];
    begin();
    snprintf(path, sizeof path, "%s/pki", w.dir);
    ca = pki_open(path, time(NULL), &e);
    const struct joins_options o = {w.store, ca, 3600, utc_ms, answer, close_node, NULL, NULL, 0};
    w.routes.joins = joins_create(&o, &e);
    CHECK(ca && w.routes.joins);
}

static void finish_with_joins(void)
{
    struct joins *j = w.routes.joins;
    finish();
    joins_destroy(j);
    pki_close(ca);
}

/* Reads a member of the last reply. */
static void member(const char *name, char *out, size_t size)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":\"", name);
    const char *at = strstr(reply, key);
    CHECK_MSG(at, "no %s in %s", name, reply);
    if (at) snprintf(out, size, "%.*s", (int)strcspn(at + strlen(key), "\""), at + strlen(key));
}

static void test_token(void)
{
    char token[256], id[32], path[96];
    begin_with_joins();
    CHECK(post("/v1/nodes/tokens", "{\"names\":\"gpu-*\",\"uses\":2,\"ttl_s\":60}") == 201);
    CHECK(strstr(reply, "Cache-Control: no-store") && strstr(reply, "\"uses\":2,\"used\":0"));
    member("token", token, sizeof token);
    member("id", id, sizeof id);
    CHECK(strlen(token) == 5 + 12 + 1 + 64 + 1 + 64 && strstr(token, pki_fingerprint(ca)));
    CHECK(!strncmp(token, "seqj_", 5) && !strncmp(token + 5, id, 12));
    /* No other answer shows the token. */
    CHECK(get("/v1/nodes/tokens") == 200 && strstr(reply, id) && strstr(reply, "gpu-*"));
    CHECK(!strstr(reply, token + 18) && !strstr(reply, "hash"));
    snprintf(path, sizeof path, "/v1/nodes/tokens/%s:revoke", id);
    CHECK(post(path, "") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(post(path, "") == 404 && strstr(reply, "there is no join token"));
    CHECK(get("/v1/nodes/tokens") == 200 && !strstr(reply, id));
    finish_with_joins();
}

static void test_bodies(void)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"names\":\"a\",\"uses\":1}",
        "{\"names\":\"a\",\"ttl_s\":1}",
        "{\"uses\":1,\"ttl_s\":1}",
        "{\"names\":1,\"uses\":1,\"ttl_s\":1}",
        "{\"names\":\"a\",\"uses\":\"1\",\"ttl_s\":1}",
        "{\"names\":\"a\",\"uses\":1.5,\"ttl_s\":1}",
        "{\"names\":\"a\",\"uses\":-1,\"ttl_s\":1}",
        "{\"names\":\"a\",\"uses\":0,\"ttl_s\":1}",
        "{\"names\":\"a\",\"uses\":10001,\"ttl_s\":1}",
        "{\"names\":\"a\",\"uses\":1,\"ttl_s\":99999999}",
        "{\"names\":\"a\",\"uses\":1,\"ttl_s\":1,\"ttl_s\":2}",
        "{\"names\":\"a\",\"names\":\"b\",\"uses\":1,\"ttl_s\":1}",
        "{\"names\":\"a\",\"uses\":1,\"ttl_s\":1,\"more\":1}",
        "{\"names\":\"a\",\"uses\":1,\"ttl_s\":1}x",
        "{\"names\":\"a\",\"uses\":1,\"ttl_s\":1",
        "{\"names\":\"a b\",\"uses\":1,\"ttl_s\":1}",
        "{\"names\":\"\",\"uses\":1,\"ttl_s\":1}",
        "{\"names\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\","
        "\"uses\":1,"
        "\"ttl_s\":1}",
    };
    begin_with_joins();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_MSG(post("/v1/nodes/tokens", bad[i]) == 400, "%s: %s", bad[i], reply);
    CHECK(get("/v1/nodes/tokens") == 200 && strstr(reply, "\"data\":[]"));
    finish_with_joins();
}

static void test_node_revoked(void)
{
    struct err e;
    char token[256], key[PKI_PEM_SIZE], csr[PKI_PEM_SIZE];
    begin_with_joins();
    CHECK(post("/v1/nodes/n1:revoke", "") == 404 && strstr(reply, "n1 has no certificate"));
    CHECK(post("/v1/nodes/tokens", "{\"names\":\"n1\",\"uses\":1,\"ttl_s\":60}") == 201);
    member("token", token, sizeof token);
    *strrchr(token, '.') = 0;
    CHECK(!pki_key_make(key, &e) && !pki_request(key, "n1", csr, &e));
    const struct msg m = {.type = MSG_JOIN, .node = "n1", .token = token, .pem = csr};
    answered.type = 0;
    joins_gate.join(w.routes.joins, 1, NULL, &m);
    while (!answered.type) loop_turn(w.loop, 10);
    CHECK(answered.type == MSG_JOINED);
    struct pki_node n;
    CHECK(!pki_verify(ca, cert, time(NULL), &n, &e));
    CHECK(!joins_gate.holder(w.routes.joins, &n, &e));
    CHECK(get("/v1/nodes/tokens") == 200 && strstr(reply, "\"used\":1"));
    node_joins();
    CHECK(get("/v1/nodes") == 200 && strstr(reply, "\"revoked_at\":null"));
    CHECK(post("/v1/nodes/n1:revoke", "") == 200);
    CHECK_STR(closed, "n1");
    CHECK_MSG(get("/v1/nodes") == 200 && strstr(reply, "\"revoked_at\":\"2"), "%s", reply);
    CHECK(joins_gate.holder(w.routes.joins, &n, &e) && strstr(e.text, "was revoked"));
    CHECK(post("/v1/nodes/n1:revoke", "") == 404);
    finish_with_joins();
}

/* Checks that a seqd with plain sessions refuses join tokens and revocation. */
static void test_plain(void)
{
    begin();
    CHECK(post("/v1/nodes/tokens", "{\"names\":\"a\",\"uses\":1,\"ttl_s\":1}") == 409);
    CHECK_MSG(strstr(reply, "need no certificates"), "%s", reply);
    CHECK(get("/v1/nodes/tokens") == 409 && post("/v1/nodes/n1:revoke", "") == 409);
    CHECK(post("/v1/nodes/tokens/1:revoke", "") == 409);
    CHECK(get("/v1/nodes/n1:revoke") == 405);
    finish();
}

int main(void)
{
    json_init();
    RUN(test_token);
    RUN(test_bodies);
    RUN(test_node_revoked);
    RUN(test_plain);
    return test_done("join_rest");
}
