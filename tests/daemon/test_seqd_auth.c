/* test_seqd_auth: tests the rights of users, over raw sockets. Every route is requested without a
 * token, and with a wrong, an expired, a revoked and a weaker token. Also tests the owners of
 * jobs, the audit log, and a database of the previous version. */
#include <sqlite3.h>
#include "api/core/sha256.h"
#include <sqlite3.h>
#include "tests/lib/rest.h"

static char user_a[AUTH_TOKEN_SIZE], user_b[AUTH_TOKEN_SIZE], operator_o[AUTH_TOKEN_SIZE];

/* Sends a request with this token. If `token` is NULL, the request has no token. */
static int ask_as(const char *token, const char *method, const char *path, const char *body)
{
    static char out[16384];
    snprintf(out, sizeof out,
             "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s%s"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             method, path, token ? "Authorization: Bearer " : "", token ? token : "",
             token ? "\r\n" : "", strlen(body), body);
    return talk(out);
}

static int get_as(const char *token, const char *path)
{
    return ask_as(token, "GET", path, "");
}

static int post_as(const char *token, const char *path, const char *body)
{
    return ask_as(token, "POST", path, body);
}

static void begin_users(void)
{
    begin();
    rest_token("ann", ROLE_USER, 0, user_a);
    rest_token("bob", ROLE_USER, 0, user_b);
    rest_token("olga", ROLE_OPERATOR, 0, operator_o);
}

/* Writes a path of the route, in which values replace the parameters. */
static void path_of(const struct route *t, char *out, size_t size)
{
    size_t n = 0;
    for (const char *p = t->path; *p && n + 8 < size; p++) {
        if (*p != '{') {
            out[n++] = *p;
            continue;
        }
        const bool word = p[1] == 'n' && p[2] != '}';
        n += (size_t)snprintf(out + n, size - n, word ? "x" : "1");
        p = strchr(p, '}');
    }
    out[n] = 0;
}

/* Checks every route of the table with every kind of caller. */
static void test_every_route(void)
{
    char path[256];
    begin_users();
    CHECK(post("/v1/jobs", job_json) == 201); /* job 1 belongs to the admin */
    for (const struct route *t = route_table; t->method; t++) {
        path_of(t, path, sizeof path);
        const int bare = ask_as(NULL, t->method, path, "");
        if (t->needs == ROLE_NONE) {
            CHECK_MSG(bare == 200, "%s: %d", path, bare);
            continue;
        }
        CHECK_MSG(bare == 401, "%s %s without a token: %d", t->method, path, bare);
        CHECK(strstr(reply, "WWW-Authenticate: Bearer") != NULL);
        if (t->needs == ROLE_USER) continue;
        const int weak = ask_as(user_a, t->method, path, "");
        CHECK_MSG(weak == 403, "%s %s by a user: %d", t->method, path, weak);
        if (t->needs == ROLE_OPERATOR) continue;
        CHECK_MSG(ask_as(operator_o, t->method, path, "") == 403, "%s by an operator", path);
    }
    finish();
}

/* Checks an unknown caller. The answer must say only that the caller is unknown, and must name no
 * other fault of the request. */
static void test_unknown_first(void)
{
    static const char *const wrong[][3] = {
        {"", "text/plain", "{}"},
        {"", "", "{}"},
        {"", "application/json", "{"},
        {"", "application/json", "{\"nonsense\": 1}"},
        {"?nonsense=1", "application/json", ""},
        {"?dry_run=perhaps&limit=x&rank=-1&wait=x&file=..&state=x&epoch=x", "application/json", ""},
    };
    char path[256], text[1024];
    begin_users();
    for (const struct route *t = route_table; t->method; t++) {
        path_of(t, path, sizeof path);
        for (size_t i = 0; t->needs != ROLE_NONE && i < sizeof wrong / sizeof *wrong; i++) {
            const char *type = wrong[i][1], *body = wrong[i][2];
            snprintf(text, sizeof text,
                     "%s %s%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s%s"
                     "Content-Length: %zu\r\n\r\n%s",
                     t->method, path, wrong[i][0], *type ? "Content-Type: " : "", type,
                     *type ? "\r\n" : "", strlen(body), body);
            const int status = talk(text);
            CHECK_MSG(status == 401, "%s %s%s, \"%s\" of type \"%s\": %d", t->method, path,
                      wrong[i][0], body, type, status);
        }
    }
    CHECK(ask_as(user_a, "GET", "/v1/me?nonsense=1", "") == 400);
    finish();
}

/* Checks every route of a job, both if the job is live and if it has ended. It must refuse a user
 * who does not own the job, and must reveal nothing about the job. */
static void test_owner_of_every_route(void)
{
    char path[256];
    begin_users();
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(strstr(reply, "\"owner\":\"ann\""));
    for (int ended = 0; ended < 2; ended++) {
        for (const struct route *t = route_table; t->method; t++) {
            if (strncmp(t->path, "/v1/jobs/{id}", 13)) continue;
            path_of(t, path, sizeof path);
            const int status = ask_as(user_b, t->method, path, "");
            CHECK_MSG(status == 404, "%s %s by another user: %d", t->method, path, status);
            CHECK(strstr(reply, "there is no job 1\"") && !strstr(reply, "ann"));
            /* the same answer as for a job that there is not, even to a wrong request */
            path[strlen("/v1/jobs/")] = '9';
            CHECK(ask_as(user_b, t->method, path, "") == 404);
            CHECK_MSG(strstr(reply, "there is no job 9\""), "%s %s: %s", t->method, path, reply);
            strcat(path, "?nonsense=1");
            CHECK(ask_as(user_b, t->method, path, "") == 404);
        }
        CHECK(get_as(user_a, "/v1/jobs/1") == 200 && get_as(operator_o, "/v1/jobs/1") == 200);
        CHECK(get_as(user_b, "/v1/jobs/2") == 404);
        if (!ended) CHECK(post_as(user_a, "/v1/jobs/1:cancel", "") == 202);
    }
    finish();
}

/* Asks for the queue until a pass has looked at all three jobs. */
static int get_queue(const char *token, const char *path)
{
    int status = 0;
    for (int i = 0; i < 1000; i++) {
        status = get_as(token, path);
        if (status != 200 || strstr(reply, "\"waiting\":3")) break;
    }
    return status;
}

/* Users see their own jobs, with positions among all. They take turns: ann, bob, ann. */
static void test_queue(void)
{
    begin_users();
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_b, "/v1/jobs", job_json) == 201);
    CHECK(get_queue(user_a, "/v1/queue") == 200);
    CHECK(strstr(reply, "\"position\":1,\"id\":1,") && strstr(reply, "\"position\":3,\"id\":2,"));
    CHECK(!strstr(reply, "bob") && !strstr(reply, "\"id\":3,") && strstr(reply, "\"waiting\":3"));
    CHECK(strstr(reply, "\"reason\":{\"code\":\"no_node\"") &&
          strstr(reply, "\"predicted_start\":null"));
    CHECK(get_as(user_b, "/v1/queue") == 200 && strstr(reply, "\"position\":2,\"id\":3,"));
    CHECK(!strstr(reply, "ann") && strstr(reply, "\"next_cursor\":null"));
    CHECK(get_as(operator_o, "/v1/queue?limit=2") == 200 && strstr(reply, "\"next_cursor\":\"2\""));
    CHECK(strstr(reply, "\"id\":1,") && strstr(reply, "\"id\":3,") && !strstr(reply, "\"id\":2,"));
    CHECK(get_as(operator_o, "/v1/queue?limit=2&cursor=2") == 200 && strstr(reply, "\"id\":2,"));
    CHECK(strstr(reply, "\"has_more\":false") && !strstr(reply, "\"id\":3,"));
    CHECK(get_as(operator_o, "/v1/queue?limit=0") == 400);
    CHECK(post_as(user_a, "/v1/jobs/1:cancel", "") == 202);
    CHECK(get_as(user_a, "/v1/queue") == 200 && !strstr(reply, "\"id\":1,"));
    finish();
}

static void test_lists(void)
{
    begin_users();
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_b, "/v1/jobs", job_json) == 201);
    CHECK(get_as(user_a, "/v1/jobs") == 200);
    CHECK(strstr(reply, "\"id\":1,") && strstr(reply, "\"id\":2,") && !strstr(reply, "\"id\":3,"));
    CHECK(strstr(
        reply,
        "\"others\":{\"queued\":1,\"starting\":0,\"running\":0,\"stopping\":0,\"suspended\":0}"));
    CHECK(get_as(user_b, "/v1/jobs?state=queued") == 200);
    CHECK(strstr(reply, "\"id\":3,") && !strstr(reply, "\"id\":1,"));
    CHECK(strstr(reply, "\"others\":{\"queued\":2,"));
    CHECK(get_as(user_a, "/v1/jobs?limit=1") == 200 && strstr(reply, "\"next_cursor\":\"2\""));
    CHECK(get_as(user_a, "/v1/jobs?limit=1&cursor=2") == 200 && strstr(reply, "\"id\":1,"));
    CHECK(strstr(reply, "\"has_more\":false"));
    CHECK(get_as(user_a, "/v1/jobs?owner=bob") == 403);
    CHECK(get_as(user_a, "/v1/jobs?owner=ann") == 200 && strstr(reply, "\"id\":2,"));
    CHECK(get_as(operator_o, "/v1/jobs") == 200 && !strstr(reply, "\"others\""));
    CHECK(strstr(reply, "\"id\":1,") && strstr(reply, "\"id\":3,"));
    CHECK(get_as(operator_o, "/v1/jobs?owner=bob") == 200);
    CHECK(strstr(reply, "\"id\":3,") && !strstr(reply, "\"id\":1,"));
    CHECK(get_as(operator_o, "/v1/jobs?owner=%27%3B--") == 400);
    finish();
}

/* A user's key tells nothing about the keys of other users. */
/* Checks that a user who selects jobs by name and label finds and cancels only the user's own
 * jobs. An operator's filter must select jobs of all users. */
static void test_filters(void)
{
    static const char *const by[] = {"name=t", "label.node=evil", "name=t&label.state=fake",
                                     "name=t&state=queued"};
    begin_users();
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_b, "/v1/jobs", job_json) == 201);
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        char path[128];
        snprintf(path, sizeof path, "/v1/jobs?%s", by[i]);
        CHECK(get_as(user_a, path) == 200);
        CHECK_MSG(strstr(reply, "{\"id\":1,") && !strstr(reply, "{\"id\":2,"), "%s", reply);
        CHECK(get_as(user_b, path) == 200);
        CHECK_MSG(strstr(reply, "{\"id\":2,") && !strstr(reply, "{\"id\":1,"), "%s", reply);
        CHECK(get_as(operator_o, path) == 200);
        CHECK(strstr(reply, "{\"id\":2,") && strstr(reply, "{\"id\":1,"));
        snprintf(path, sizeof path, "/v1/jobs?owner=ann&%s", by[i]);
        CHECK(get_as(user_b, path) == 403);
        CHECK(get_as(operator_o, path) == 200);
        CHECK(strstr(reply, "{\"id\":1,") && !strstr(reply, "{\"id\":2,"));
    }
    CHECK(post_as(user_a, "/v1/jobs:cancel", "{\"name\":\"t\"}") == 200);
    CHECK_MSG(strstr(reply, "{\"matched\":1,\"cancelled\":1}"), "%s", reply);
    CHECK(get_as(user_b, "/v1/jobs/2") == 200 && strstr(reply, "\"state\":\"queued\""));
    CHECK(get_as(user_a, "/v1/jobs/1") == 200 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(post_as(operator_o, "/v1/jobs:cancel", "{\"name\":\"t\"}") == 200);
    CHECK_MSG(strstr(reply, "{\"matched\":1,\"cancelled\":1}"), "%s", reply);
    CHECK(ask_as(NULL, "POST", "/v1/jobs:cancel", "{\"name\":\"t\"}") == 401);
    finish();
}

static void test_keys_are_a_users(void)
{
    static const char with[] = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "Idempotency-Key: k\r\nContent-Type: application/json\r\n"
                               "Authorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n%s";
    char out[4096];
    begin_users();
    for (int i = 0; i < 2; i++) {
        snprintf(out, sizeof out, with, user_a, strlen(job_json), job_json);
        CHECK(talk(out) == 201 && strstr(reply, "\"id\":1,"));
        snprintf(out, sizeof out, with, user_b, strlen(job_json), job_json);
        CHECK(talk(out) == 201 && strstr(reply, "\"id\":2,"));
    }
    finish();
}

static char *flip(char *text, size_t at)
{
    text[at] = text[at] == 'a' ? 'b' : 'a';
    return text;
}

static void test_wrong_tokens(void)
{
    char text[AUTH_TOKEN_SIZE + 80], wrong[AUTH_TOKEN_SIZE];
    begin_users();
    static const char *const never[] = {
        "Authorization: Bearer\r\n", "Authorization: Basic YTpi\r\n", "Authorization: Bearer x\r\n",
        "Authorization: Bearer seqd_1_\r\n", "Authorization: Bearer seqd__\r\n"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        snprintf(text, sizeof text,
                 "GET /v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 "%s\r\n",
                 never[i]);
        CHECK_MSG(talk(text) == 401, "%s", never[i]);
    }
    const size_t n = strlen(user_a);
    /* changes a character of the id, of the secret and of the check digits */
    for (size_t at = 5; at < n; at += n / 4) {
        snprintf(wrong, sizeof wrong, "%s", user_a);
        CHECK_MSG(get_as(flip(wrong, at), "/v1/me") == 401, "byte %zu", at);
    }
    CHECK(get_as(wrong, "/v1/me") == 429 || get_as(wrong, "/v1/me") == 429);
    CHECK(strstr(reply, "wrong tokens from this address") && strstr(reply, "Retry-After"));
    CHECK(get_as(user_a, "/v1/me") == 200); /* a valid token must still be accepted */
    CHECK(strstr(reply, "\"user\":\"ann\",\"role\":\"user\""));
    finish();
}

/* Checks the limit on wrong tokens from a network, also through a proxy. All addresses with the
 * same first 64 bits are one network, because they usually have one owner. */
static void test_wrong_tokens_of_a_network(void)
{
    static const char get[] = "GET /v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                              "Authorization: Bearer x\r\nX-Forwarded-For: %s%d\r\n\r\n";
    char text[256];
    rest_by.proxy = true;
    begin_users();
    for (int i = 1; i <= AUTH_FAILURES + 1; i++) {
        snprintf(text, sizeof text, get, "2001:db8::", i);
        CHECK_MSG(talk(text) == (i <= AUTH_FAILURES ? 401 : 429), "failure %d", i);
    }
    snprintf(text, sizeof text, get, "2001:db8:0:1::", 1);
    CHECK(talk(text) == 401);
    finish();
    rest_by.proxy = false;
}

static int64_t utc = 1700000000000;

static int64_t fake_utc(void)
{
    return utc;
}

static void test_expiry(void)
{
    char late[AUTH_TOKEN_SIZE];
    struct err e;
    begin();
    auth_destroy(w.auth);
    w.routes.auth = w.auth = auth_create(w.store, &(struct auth_clock){fake_utc}, &e);
    rest_token("ann", ROLE_USER, utc + 5000, late);
    CHECK(get_as(late, "/v1/me") == 200);
    utc += 4999;
    CHECK(get_as(late, "/v1/me") == 200);
    utc += 1;
    CHECK(get_as(late, "/v1/me") == 401 && strstr(reply, "expired"));
    finish();
}

/* Checks that a user's token, which may be stolen, cannot make a token that is valid longer than
 * itself. An admin's token can do this. */
static void test_made_ends_with_maker(void)
{
    char late[AUTH_TOKEN_SIZE], boss[AUTH_TOKEN_SIZE];
    struct err e;
    begin();
    auth_destroy(w.auth);
    utc = 1700000000000;
    w.routes.auth = w.auth = auth_create(w.store, &(struct auth_clock){fake_utc}, &e);
    rest_token("ann", ROLE_OPERATOR, utc + 3600000, late);
    rest_token("root", ROLE_ADMIN, utc + 3600000, boss);
    CHECK(post_as(late, "/v1/tokens", "{}") == 201);
    CHECK_MSG(strstr(reply, "\"expires_at\":\"2023-11-14T23:13:20.000Z\""), "%s", reply);
    CHECK(post_as(late, "/v1/tokens", "{\"ttl_s\":60}") == 201);
    CHECK(strstr(reply, "\"expires_at\":\"2023-11-14T22:14:20.000Z\""));
    CHECK(post_as(late, "/v1/tokens", "{\"ttl_s\":3601}") == 403);
    CHECK(strstr(reply, "\"pointer\":\"/ttl_s\"") && strstr(reply, "at most 3600"));
    CHECK(post_as(boss, "/v1/tokens", "{\"user\":\"bob\",\"ttl_s\":7200}") == 201);
    finish();
}

/* Checks that all tokens of a user can be revoked in one request, by the user or by an admin. */
static void test_revoking_a_user(void)
{
    char more[AUTH_TOKEN_SIZE];
    begin_users();
    rest_token("ann", ROLE_OPERATOR, 0, more);
    CHECK(post_as(user_b, "/v1/tokens:revoke", "{\"user\":\"ann\"}") == 403);
    CHECK(strstr(reply, "\"pointer\":\"/user\"") && get_as(user_a, "/v1/me") == 200);
    CHECK(post("/v1/tokens:revoke", "{}") == 400 && strstr(reply, "\"pointer\":\"/user\""));
    CHECK(post("/v1/tokens:revoke", "{\"user\":\"ann\"}") == 200);
    CHECK_MSG(strstr(reply, "{\"user\":\"ann\",\"revoked\":2}"), "%s", reply);
    CHECK(get_as(user_a, "/v1/me") == 401 && get_as(more, "/v1/me") == 401);
    CHECK(get_as(user_b, "/v1/me") == 200);
    CHECK(post("/v1/tokens:revoke", "{\"user\":\"ann\"}") == 200 && strstr(reply, "\"revoked\":0"));
    close_server();
    begin_in(false, 0);
    CHECK(get_as(user_a, "/v1/me") == 401 && get_as(more, "/v1/me") == 401);
    CHECK(post_as(user_b, "/v1/tokens:revoke", "{\"user\":\"bob\"}") == 200);
    CHECK(get_as(user_b, "/v1/me") == 401);
    finish();
}

/* Checks that revoked tokens are refused at once and after a restart, and that tokens that were
 * not revoked remain valid. */
static void test_revocation(void)
{
    char path[64];
    begin_users();
    const int id = (int)rest_token("ann", ROLE_USER, 0, user_a);
    snprintf(path, sizeof path, "/v1/tokens/%d:revoke", id);
    /* a token of a different user must seem not to exist */
    CHECK(post_as(user_b, path, "") == 404);
    CHECK(get_as(user_a, "/v1/me") == 200);
    CHECK(post_as(user_a, path, "") == 200 && strstr(reply, "\"revoked_at\":\"2"));
    CHECK(get_as(user_a, "/v1/me") == 401 && strstr(reply, "revoked"));
    CHECK(post(path, "") == 200); /* an admin makes the same request */
    close_server();
    begin_in(false, 0);
    CHECK(get_as(user_a, "/v1/me") == 401 && strstr(reply, "revoked"));
    CHECK(get_as(user_b, "/v1/me") == 200 && get("/v1/me") == 200);
    finish();
}

/* Checks that the text of a new token works, and that no part of it is in the database. */
static void test_making(void)
{
    char text[AUTH_TOKEN_SIZE], path[128], body[256];
    static char file[1 << 20];
    begin_users();
    CHECK(post_as(user_a, "/v1/tokens", "{\"label\":\"laptop\"}") == 201);
    CHECK(strstr(reply, "\"user\":\"ann\",\"role\":\"user\",\"label\":\"laptop\""));
    const char *at = strstr(reply, "\"token\":\"");
    CHECK(at && sscanf(at + 9, "%111[^\"]", text) == 1);
    CHECK(get_as(text, "/v1/me") == 200 && strstr(reply, "\"label\":\"laptop\""));
    CHECK(!strstr(reply, text));
    CHECK(get_as(user_a, "/v1/tokens") == 200 && strstr(reply, "laptop"));
    CHECK(!strstr(reply, "\"user\":\"bob\"") && !strstr(reply, "\"token\":"));
    CHECK(get("/v1/tokens?limit=2") == 200 && strstr(reply, "\"next_cursor\":\"2\""));
    CHECK(get("/v1/tokens?limit=2&cursor=2") == 200 && strstr(reply, "\"user\":\"bob\""));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/seqd.db%s", w.dir, i ? "-wal" : "");
        FILE *f = fopen(path, "r");
        const size_t n = f ? fread(file, 1, sizeof file, f) : 0;
        if (f) fclose(f);
        CHECK(n && !memmem(file, n, text + 8, 32));
    }
    static const struct {
        const char *body, *says;
    } bad[] = {{"{\"user\":\"bob\"}", "of ann alone"},
               {"{\"role\":\"admin\"}", "role admin"},
               {"{\"ttl_s\":0}", "never expires"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(post_as(user_a, "/v1/tokens", bad[i].body) == 403 && strstr(reply, bad[i].says));
    static const struct {
        const char *body, *says;
    } wrong[] = {{"{\"role\":\"king\"}", "want user, operator or admin"},
                 {"{\"user\":\"a b\"}", "letters, digits"},
                 {"{\"user\":\"\"}", "letters, digits"},
                 {"{\"user\":7}", "user must be a string"},
                 {"{\"ttl_s\":-1}", "ttl_s must be an integer from 0"},
                 {"{\"uesr\":\"x\"}", "unknown field \\\"uesr\\\""},
                 {"{\"label\":\"a\",\"label\":\"b\"}", "more than once"},
                 {"{\"label\":\"a\\u0007\"}", "label has a control character: leave it out"},
                 {"{\"label\":\"a\\u009b\"}", "label has a control character: leave it out"},
                 {"[1]", "must be a JSON object"},
                 {"{", "not JSON"},
                 {"{}{}", "not JSON"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_MSG(post("/v1/tokens", wrong[i].body) == 400 && strstr(reply, wrong[i].says), "%s",
                  reply);
    snprintf(body, sizeof body, "{\"user\":\"%064d\",\"role\":\"operator\",\"ttl_s\":0}", 7);
    CHECK(post("/v1/tokens", body) == 201 && strstr(reply, "\"expires_at\":null"));
    finish();
}

static int try_token(const char *user, struct err *e)
{
    struct auth_token k = {.role = ROLE_USER, .expires_ms = fake_utc() + 1000};
    char text[AUTH_TOKEN_SIZE];
    snprintf(k.user, sizeof k.user, "%s", user);
    return auth_make(w.auth, &k, text, NULL, NULL, e);
}

/* Checks that a user has at most 100 valid tokens, and that tokens that have expired or are
 * revoked leave room for new tokens of any user. */
static void test_most_tokens(void)
{
    char user[16], body[64];
    struct err e;
    begin_users();
    auth_destroy(w.auth);
    w.routes.auth = w.auth = auth_create(w.store, &(struct auth_clock){fake_utc}, &e);
    for (int i = 1; i < AUTH_USER_TOKENS; i++) CHECK(!try_token("ann", &e));
    CHECK(post_as(user_a, "/v1/tokens", "{}") == 413 && strstr(reply, "ann has 100 valid tokens"));
    CHECK(post_as(user_b, "/v1/tokens", "{}") == 201);
    for (int i = 0; !i || !try_token(user, &e); i++) snprintf(user, sizeof user, "u%d", i / 90);
    CHECK(strstr(e.text, "10000 tokens, the most"));
    CHECK(post("/v1/tokens", "{}") == 413);
    utc += 1001;
    CHECK(post("/v1/tokens", "{}") == 201);
    const char *at = strstr(reply, "\"id\":");
    const int id = at ? atoi(at + 5) : 0;
    CHECK(id == AUTH_TOKENS + 1 && get_as(user_a, "/v1/me") == 200);
    close_server();
    begin_in(false, 0);
    CHECK(get("/v1/tokens?limit=1000") == 200);
    int n = 0;
    for (at = reply; (at = strstr(at, "\"id\":")); at++) n++;
    CHECK_MSG(n < 10, "%d tokens", n);
    snprintf(body, sizeof body, "\"id\":%d", id);
    CHECK(strstr(reply, body) && get_as(user_b, "/v1/me") == 200);
    finish();
}

static int answered_rows(void)
{
    char path[128];
    int n = -1;
    sqlite3 *db;
    sqlite3_stmt *st;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK);
    CHECK(!sqlite3_prepare_v2(db, "SELECT count(*) FROM audit WHERE status BETWEEN 200 AND 299", -1,
                              &st, NULL));
    if (sqlite3_step(st) == SQLITE_ROW) n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

static void test_audit(void)
{
    begin_users();
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(get_as(user_a, "/v1/jobs/1") == 200); /* a read of one's own job makes no row */
    /* the job belongs to a different user, and the audit must show this */
    CHECK(get_as(operator_o, "/v1/jobs/1") == 200);
    CHECK(get_as(operator_o, "/v1/jobs") == 200);
    CHECK(get_as(user_b, "/v1/jobs/1") == 404);
    CHECK(post_as(user_a, "/v1/jobs/1:cancel", "") == 202);
    CHECK(get("/v1/audit") == 200);
    const char *row[4];
    row[0] = strstr(reply, "\"user\":\"ann\",\"role\":\"user\",\"token\":2,\"address\":"
                           "\"127.0.0.1\"");
    CHECK(row[0] && strstr(row[0], "\"action\":\"POST /v1/jobs/1:cancel\",\"status\":202}"));
    row[1] = strstr(reply, "\"user\":\"bob\"");
    CHECK(row[1] && strstr(row[1], "\"action\":\"GET /v1/jobs/1\",\"status\":404}"));
    row[2] = strstr(reply, "\"user\":\"olga\"");
    CHECK(row[2] && strstr(row[2], "\"action\":\"GET /v1/jobs/1\",\"status\":200}"));
    row[3] = strstr(reply, "\"action\":\"POST /v1/jobs\",\"status\":201,\"made\":\"/v1/jobs/1\"}");
    CHECK(row[0] < row[1] && row[1] < row[2] && row[2] < row[3]); /* newest first */
    int n = 0;
    for (const char *p = reply; (p = strstr(p, "\"action\"")); p++) n++;
    CHECK_MSG(n == 4, "%d rows", n);
    CHECK(get("/v1/audit?user=bob") == 200 && !strstr(reply, "olga") && strstr(reply, "bob"));
    CHECK(get("/v1/audit?limit=1") == 200 && strstr(reply, "\"has_more\":true"));
    CHECK(post_as(user_a, "/v1/jobs", "{}") == 400); /* a request that was refused */
    CHECK(get("/v1/audit?limit=1") == 200 && strstr(reply, "\"status\":400}"));
    /* If seqd ends immediately after an answer, the changes that the answer confirms are not
     * lost. */
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    close_server();
    begin_in(false, 0);
    CHECK(get("/v1/audit?limit=1") == 200 &&
          strstr(reply, "\"status\":201,\"made\":\"/v1/jobs/2\"}"));
    /* The audit row of this answer is written within a second, even if no event of a job causes a
     * commit. */
    CHECK(post_as(user_a, "/v1/jobs/2:cancel", "") == 202);
    for (int i = 0; i < 3000 && answered_rows() < 5; i++) loop_turn(w.loop, 10);
    CHECK_MSG(answered_rows() == 5, "%d", answered_rows());
    finish();
}

/* Checks that events name the user who caused them, and that jobs keep their owners after a
 * restart. */
static void test_event_says_who(void)
{
    begin_users();
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(operator_o, "/v1/jobs/1:cancel", "") == 202);
    CHECK(get("/v1/jobs/1/events") == 200);
    const char *submit = strstr(reply, "\"by\":\"ann\""),
               *cancel = strstr(reply, "\"by\":\"olga\"");
    CHECK(submit && cancel && submit < cancel);
    close_server();
    begin_in(false, 0);
    CHECK(get_as(user_a, "/v1/jobs/1") == 200 && get_as(user_b, "/v1/jobs/1") == 404);
    finish();
}

static void test_limits(void)
{
    begin_users();
    struct users *users = control_users(w.control);
    users->limits = (struct users_limits){.jobs = 2};
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 429 &&
          strstr(reply, "the limit of a user is 2"));
    CHECK(post_as(user_b, "/v1/jobs", job_json) == 201);
    for (int i = 0; i < 3; i++) CHECK(post_as(operator_o, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_a, "/v1/jobs/1:cancel", "") == 202);
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201); /* job 7 */
    CHECK(users_of(users, "ann")->n_live == 2);
    close_server();
    begin_in(false, 0);
    users = control_users(w.control);
    users->limits = (struct users_limits){.jobs = 2, .submits = 3};
    CHECK(users_of(users, "ann")->n_live == 2 && users_of(users, "bob")->n_live == 1);
    /* a request that was refused counts, too */
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 429);
    CHECK(post_as(user_a, "/v1/plan", job_json) == 200 && post_as(user_a, "/v1/plan", "{") == 400);
    CHECK(post_as(user_a, "/v1/plan", job_json) == 429 && strstr(reply, "within a minute"));
    CHECK(post_as(user_b, "/v1/plan", job_json) == 200);
    for (int i = 0; i < 4; i++) CHECK(post_as(operator_o, "/v1/plan", job_json) == 200);
    finish();
}

static void wrote(int64_t seq, int64_t job, const char *checkpoint)
{
    struct store_txn *t = store_begin();
    store_event_add(t, &(struct store_event){seq, job, 1, 5, EV_CHECKPOINT, checkpoint});
    commit(t);
}

static bool counted(const char *who)
{
    for (int i = 0; i < 400; i++) {
        CHECK(get_as(who, "/v1/usage/users") == 200);
        if (!strstr(reply, "\"counted_at\":null")) return true;
        loop_turn(w.loop, 5);
    }
    return false;
}

/* Checks the limit on the disk space of a user's jobs. Ended jobs count, too. A live job must get
 * a note. */
static void test_disk_limit(void)
{
    begin_users();
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_b, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_a, "/v1/jobs/1:cancel", "") == 202);
    wrote(1000, 1, "{\"step\":1,\"detail\":{\"path\":\"/x\",\"size\":5242880}}");
    wrote(1001, 1, "{\"step\":2,\"detail\":{\"path\":\"/y\",\"size\":1048576}}");
    close_server();
    begin_in(false, 0); /* seqd counts the disk space when it starts */
    struct users *users = control_users(w.control);
    users->limits = (struct users_limits){.disk = 6 << 20};
    /* sets the owner's disk limit after the job was submitted */
    users_of(users, "ann")->limited = true;
    struct job *runs = jobs_find(&control_commits(w.control)->cluster->jobs, 2);
    struct event assign = {
        .type = EV_ASSIGN, .node = "n", .epoch = 1, .task = TASK_RUN, .at_ms = 1};
    CHECK(!job_fold(runs, &assign, NULL) &&
          !job_fold(runs, &(struct event){.type = EV_READY}, NULL));
    CHECK(counted(operator_o));
    CHECK(strstr(reply, "\"user\":\"ann\",\"jobs\":2,") &&
          strstr(reply, "\"checkpoints\":6291456,") &&
          strstr(reply, "\"user\":\"bob\",\"jobs\":1,"));
    CHECK(strstr(reply, "\"limit_bytes\":6291456"));
    /* the user with the largest number of bytes is first */
    CHECK(strstr(reply, "\"ann\"") < strstr(reply, "\"bob\""));
    CHECK(get_as(user_b, "/v1/usage/users") == 200 && strstr(reply, "bob") &&
          !strstr(reply, "ann"));
    CHECK(get_as(user_a, "/v1/usage") == 200 && strstr(reply, "\"job\":1,") &&
          strstr(reply, "\"job\":2,") && !strstr(reply, "\"job\":3,") &&
          !strstr(reply, "database"));
    CHECK(get_as(user_b, "/v1/usage") == 200 && strstr(reply, "{\"data\":[{\"job\":3,"));
    CHECK(get_as(operator_o, "/v1/usage") == 200 && strstr(reply, "\"job\":1,") &&
          strstr(reply, "\"job\":3,") && strstr(reply, "database"));
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 429);
    CHECK_MSG(strstr(reply, "take 6 MiB") && strstr(reply, "a user is 6 MiB") &&
                  strstr(reply, "seqctl rm"),
              "%s", reply);
    CHECK(post_as(user_b, "/v1/jobs", job_json) == 201);
    CHECK(post_as(operator_o, "/v1/jobs", job_json) == 201);
    for (int i = 0; i < 400 && get_as(user_a, "/v1/jobs/2/events") == 200; i++) {
        if (strstr(reply, "disk_limit")) break;
        loop_turn(w.loop, 5);
    }
    CHECK_MSG(strstr(reply, "\"code\":\"disk_limit\"") &&
                  strstr(reply, "\"limit_bytes\":6291456") && strstr(reply, "runs on"),
              "%s", reply);
    CHECK(get_as(user_a, "/v1/jobs/1/events") == 200 && !strstr(reply, "disk_limit"));
    users->limits.disk = 0;
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    runs->state = JOB_QUEUED;
    finish();
}

/* ---- a database of the version before -------------------------------------------------------- */

static void run(const char *sql)
{
    char path[128];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK_MSG(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

/* Checks a database of the previous version. Its jobs have no owner, so only operators may see
 * them. The previous version must still be able to read and write a database that this version has
 * opened. The test executes that version's statements. */
static void test_version_before(void)
{
    begin();
    rest_token("ann", ROLE_USER, 0, user_a);
    rest_token("olga", ROLE_OPERATOR, 0, operator_o);
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201);
    CHECK(post_as(user_a, "/v1/jobs/1:cancel", "") == 202);
    close_server();
    run("DROP INDEX jobs_by_owner; ALTER TABLE jobs DROP COLUMN owner; DROP TABLE audit");
    begin_in(false, 0);
    CHECK(get_as(user_a, "/v1/jobs/1") == 404 && get_as(operator_o, "/v1/jobs/1") == 200);
    CHECK(get_as(user_a, "/v1/jobs") == 200 && strstr(reply, "\"data\":[]"));
    close_server();
    run("INSERT INTO jobs (id, state, created_at, spec, plan, doc) SELECT 2, state, created_at, "
        "spec, plan, doc FROM jobs");
    begin_in(false, 0);
    CHECK(get_as(operator_o, "/v1/jobs/2") == 200 && get_as(user_a, "/v1/jobs/2") == 404);
    CHECK(post_as(user_a, "/v1/jobs", job_json) == 201 && strstr(reply, "\"owner\":\"ann\""));
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_every_route);
    RUN(test_unknown_first);
    RUN(test_owner_of_every_route);
    RUN(test_lists);
    RUN(test_queue);
    RUN(test_filters);
    RUN(test_keys_are_a_users);
    RUN(test_wrong_tokens);
    RUN(test_wrong_tokens_of_a_network);
    RUN(test_expiry);
    RUN(test_revocation);
    RUN(test_revoking_a_user);
    RUN(test_made_ends_with_maker);
    RUN(test_making);
    RUN(test_most_tokens);
    RUN(test_audit);
    RUN(test_event_says_who);
    RUN(test_limits);
    RUN(test_disk_limit);
    RUN(test_version_before);
    return test_done("seqd_auth");
}
