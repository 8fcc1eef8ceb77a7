/* test_seqd_plan_cache: checks that plans are kept by their keys, in a bounded amount of memory,
 * and that jobs of one shape are planned once. */
#include "tests/lib/rest.h"

/* ---- the table ------------------------------------------------------------------------------- */

static void keep(struct plan_cache *c, int i, char *text)
{
    uint8_t key[PLAN_KEY_SIZE] = {(uint8_t)i, (uint8_t)(i >> 8)};
    plan_cache_keep(c, key, &(struct plan_made){.batch = i, .text = text});
}

static bool has(struct plan_cache *c, int i, const char *text)
{
    uint8_t key[PLAN_KEY_SIZE] = {(uint8_t)i, (uint8_t)(i >> 8)};
    struct plan_made m;
    if (!plan_cache_find(c, key, &m)) return false;
    CHECK(m.batch == i && !strcmp(m.text, text));
    free(m.text);
    return true;
}

static void test_table(void)
{
    struct plan_cache *c = plan_cache_create();
    CHECK(!has(c, 0, ""));
    for (int i = 0; i < PLAN_CACHE_PLANS; i++) keep(c, i, "text");
    keep(c, 1, "another"); /* the first plan stays */
    CHECK(has(c, 0, "text") && has(c, 1, "text"));
    keep(c, PLAN_CACHE_PLANS, "one more");
    CHECK(has(c, PLAN_CACHE_PLANS, "one more") && has(c, 0, "text") && !has(c, 2, "text"));
    const struct plan_cache_counts n = plan_cache_counts(c);
    CHECK(n.found == 4 && n.missed == 2);
    plan_cache_destroy(c);
    plan_cache_destroy(NULL);
}

/* Checks that long texts drop the oldest plans, and that a text of more than all the room is not
 * kept. */
static void test_size(void)
{
    struct plan_cache *c = plan_cache_create();
    const size_t size = PLAN_CACHE_SIZE / 2;
    char *text = malloc(2 * size + 2);
    if (!text) abort();
    memset(text, 'a', 2 * size + 1);
    text[2 * size + 1] = 0;
    keep(c, 9, text);
    CHECK(!has(c, 9, text));
    text[size] = 0;
    for (int i = 0; i < 3; i++) keep(c, i, text);
    CHECK(!has(c, 0, text) && has(c, 1, text) && has(c, 2, text));
    free(text);
    plan_cache_destroy(c);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void spec_of(char out[1024], int i, int seq_len, int memory_mib)
{
    snprintf(
        out, 1024,
        "{\"kind\":\"train\",\"name\":\"n%d\",\"seed\":%d,\"model\":{\"config\":{"
        "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":\"/x%d\"}],\"seq_len\":%d},"
        "\"train\":{\"steps\":5},\"resources\":{\"memory_mib\":%d}}",
        i, i, i, seq_len, memory_mib);
}

static struct plan_cache_counts asked(void)
{
    return plan_cache_counts(w.routes.plans);
}

/* Returns the part of the answer from the plan on, up to the spec, in which names differ. */
static char *plan_shown(void)
{
    const char *plan = strstr(reply, "\"plan\":"), *end = strstr(reply, "\"spec_effective\"");
    char *copy = plan && end ? strndup(plan, (size_t)(end - plan)) : strdup("");
    if (!copy) abort();
    return copy;
}

/* Checks that jobs of one shape are planned once, and that all of them have their own names, seeds
 * and paths, with the choices of the plan. */
static void test_once(void)
{
    char text[1024], mark[64];
    begin();
    for (int i = 0; i < 5; i++) {
        spec_of(text, i, 256, 64);
        CHECK(post("/v1/jobs?dry_run=true", text) == 200);
        char *plan = plan_shown();
        static char *first;
        if (!i) first = strdup(plan);
        CHECK(first && strlen(first) > 500 && !strcmp(plan, first));
        snprintf(mark, sizeof mark, "\"name\":\"n%d\"", i);
        CHECK(strstr(reply, mark));
        snprintf(mark, sizeof mark, "\"path\":\"/x%d\"", i);
        CHECK(strstr(reply, mark));
        snprintf(mark, sizeof mark, "\"seed\":%d", i);
        CHECK(strstr(reply, mark) && strstr(reply, "\"strategy\":\"local\""));
        free(plan);
        if (i == 4) free(first);
    }
    CHECK(asked().missed == 1 && asked().found == 4);
    CHECK(post("/v1/jobs", text) == 201); /* fewer alternatives */
    CHECK(asked().missed == 2);
    spec_of(text, 4, 512, 64);
    CHECK(post("/v1/jobs", text) == 201);
    CHECK(asked().missed == 3);
    CHECK(get("/metrics") == 200 && strstr(reply, "seqd_plans_total{source=\"kept\"} 4\n") &&
          strstr(reply, "seqd_plans_total{source=\"made\"} 3\n"));
    finish();
}

/* Checks that a refusal is kept as well, with its advice and its plan. */
static void test_refusal(void)
{
    char text[1024];
    static char first[1 << 20];
    begin();
    spec_of(text, 1, 65536, 1);
    CHECK(post("/v1/jobs", text) == 400 && strstr(reply, "does_not_fit"));
    snprintf(first, sizeof first, "%s", strstr(reply, "\"detail\""));
    spec_of(text, 2, 65536, 1);
    CHECK(post("/v1/jobs", text) == 400);
    CHECK(strstr(first, "needs") && strstr(first, "\"plan\":{"));
    CHECK(asked().missed == 1 && asked().found == 1);
    char *a = strstr(first, "\"plan\""), *b = strstr(reply, "\"plan\"");
    CHECK(a && b && !strcmp(a, b));
    finish();
}

static int post_batch(const char *body)
{
    char head[512];
    const int fd = dial();
    snprintf(head, sizeof head,
             "POST /v1/jobs:batch HTTP/1.1\r\n" HEAD "Content-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             strlen(body));
    send_all(fd, head, strlen(head));
    send_all(fd, body, strlen(body));
    return answer_of(fd);
}

/* Checks that a batch of jobs of one shape is planned once. */
static void test_batch(void)
{
    enum { N = 100 };
    char *body = malloc(N * 1024), text[1024];
    if (!body) abort();
    begin();
    size_t n = (size_t)sprintf(body, "{\"jobs\":[");
    for (int i = 0; i < N; i++) {
        spec_of(text, i, 256, 64);
        n += (size_t)sprintf(body + n, "%s%s", i ? "," : "", text);
    }
    sprintf(body + n, "]}");
    CHECK(post_batch(body) == 201);
    CHECK(asked().missed == 1 && asked().found == N - 1);
    finish();
    free(body);
}

int main(void)
{
    RUN(test_table);
    RUN(test_size);
    RUN(test_once);
    RUN(test_refusal);
    RUN(test_batch);
    return test_done("seqd_plan_cache");
}
