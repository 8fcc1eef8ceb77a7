/* test_seqd_serve_counts: checks the counts of a job that serves: the waits of clients, the sums
 * over attempts, and their JSON. */
#include <stdlib.h>
#include <string.h>
#include "daemon/state/serve_counts.h"
#include "tests/lib/test.h"

static const struct rank_serving first = {.requests = 3,
                                          .refused = 1,
                                          .prompt_tokens = 100,
                                          .tokens = 40,
                                          .passes = 10,
                                          .rows = 25,
                                          .pass_us = 500,
                                          .elapsed_us = 2000000,
                                          .at_work = 2,
                                          .queued = 4,
                                          .pages = 8,
                                          .pages_used = 5};

static int64_t sum(const struct serve_counts *c, const char *name)
{
    const char *is;
    int64_t n;
    for (int i = 0; (n = serve_counts_sum(c, i, &is)) >= 0; i++)
        if (!strcmp(is, name)) return n;
    return -1;
}

static void test_reports(void)
{
    struct serve_counts c = {0};
    struct rank_serving r = first;
    CHECK(serve_counts_good(&r));
    serve_counts_report(&c, &r);
    CHECK(c.tokens_s == 20 && c.prompt_tokens_s == 50 && c.rows == 2.5);
    r.tokens += 30;
    r.passes += 10;
    r.rows += 10;
    r.elapsed_us += 500000;
    serve_counts_report(&c, &r);
    CHECK(c.tokens_s == 60 && c.prompt_tokens_s == 0 && c.rows == 1);
    serve_counts_report(&c, &r); /* nothing happens */
    CHECK(c.tokens_s == 0 && c.rows == 0 && sum(&c, "tokens") == 70);
    serve_counts_attempt(&c);
    CHECK(sum(&c, "tokens") == 70 && !c.now.at_work);
    serve_counts_report(&c, &first);
    CHECK(sum(&c, "tokens") == 110 && sum(&c, "requests") == 6 && sum(&c, "refused") == 2);
    CHECK(sum(&c, "pages") == -1);
    serve_counts_report(NULL, &first);
    serve_counts_attempt(NULL);
}

/* Checks that a report out of range is refused. */
static void test_range(void)
{
    for (size_t at = 0; at < sizeof first; at += sizeof(int64_t)) {
        struct rank_serving r = {0};
        CHECK(serve_counts_good(&r));
        *(int64_t *)(void *)((char *)&r + at) = -1;
        CHECK(!serve_counts_good(&r));
        *(int64_t *)(void *)((char *)&r + at) = INT64_MAX;
        CHECK(!serve_counts_good(&r));
    }
    struct rank_serving r = {.pages = 1, .pages_used = 2};
    CHECK(!serve_counts_good(&r));
}

static void piece(struct serve_counts *c, struct serve_watch *w, int status, bool more, int64_t us)
{
    const struct msg m = {.status = status, .stream = true, .more = more, .size = 5};
    serve_counts_piece(c, w, &m, us);
}

static void test_waits(void)
{
    struct serve_counts c = {0};
    struct serve_watch w[2];
    serve_counts_open(&c, &w[0], 1000000);
    serve_counts_open(&c, &w[1], 1000000);
    CHECK(c.open == 2);
    piece(&c, &w[0], 200, true, 1200000);  /* the first after 0.2 s */
    piece(&c, &w[0], 0, true, 1202000);    /* the next after 2 ms */
    piece(&c, &w[1], 429, false, 9000000); /* an error is no answer */
    piece(&c, &w[0], 0, false, 41202000);  /* the last after 40 s, longer than every bound */
    const struct serve_histogram *h = c.wait;
    CHECK(c.open == 0 && serve_counts_waits(&h[SERVE_WAIT_FIRST]) == 1 &&
          serve_counts_waits(&h[SERVE_WAIT_TOKEN]) == 2 &&
          serve_counts_waits(&h[SERVE_WAIT_ANSWER]) == 1);
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        CHECK(h[SERVE_WAIT_FIRST].n[i] == (serve_counts_bound(i) == 0.25));
        CHECK(h[SERVE_WAIT_TOKEN].n[i] == (serve_counts_bound(i) == 0.0025));
    }
    CHECK(h[SERVE_WAIT_TOKEN].n[SERVE_BUCKETS] == 1 && h[SERVE_WAIT_FIRST].sum_s == 0.2);
    serve_counts_open(&c, &w[0], 1);
    serve_counts_open(&c, &w[1], 1);
    serve_counts_lost(&c);
    CHECK(c.open == 1 && c.lost == 1);
    serve_counts_closed(&c);
    CHECK(c.open == 0 && c.lost == 1);
    serve_counts_open(NULL, &w[0], 1);
    piece(NULL, &w[0], 200, false, 2);
    serve_counts_lost(NULL);
    serve_counts_closed(NULL);
}

static char *json_of(const struct serve_counts *c, bool placed, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    serve_counts_write(c, placed, &w);
    jwrite_end(&w);
    CHECK(jwrite_finish(&w) > 0);
    out[strlen(out) - 1] = 0;
    return out + strlen("{\"serving\":");
}

/* Checks that the counts continue from their JSON, and that damaged JSON does no harm. */
static void test_json(void)
{
    struct serve_counts c = {0}, d;
    struct serve_watch w;
    char text[2][4096];
    serve_counts_report(&c, &first);
    serve_counts_attempt(&c);
    serve_counts_report(&c, &first);
    serve_counts_open(&c, &w, 0);
    piece(&c, &w, 200, true, 50000);
    piece(&c, &w, 0, false, 60000);
    serve_counts_open(&c, &w, 0);
    serve_counts_lost(&c);
    serve_counts_open(&c, &w, 0);
    const char *json = json_of(&c, true, text[0], sizeof text[0]);
    CHECK_MSG(strstr(json, "\"open\":1,\"at_work\":2,\"queued\":4,") &&
                  strstr(json, "\"tokens_s\":20,") && strstr(json, "\"pages_used\":5,") &&
                  strstr(json, "\"requests\":6,\"refused\":2,") && strstr(json, "\"lost\":1,") &&
                  strstr(json, "\"first_token\":{\"count\":1,\"sum_s\":0.05,\"mean_s\":0.05,"
                               "\"p50_s\":0.0375"),
              "%s", json);
    serve_counts_read(&d, json);
    CHECK(!memcmp(d.wait, c.wait, sizeof c.wait) && d.lost == 1 && !d.open);
    CHECK(sum(&d, "tokens") == 80 && d.before.tokens == 40 && d.now.rows == 25);
    CHECK_STR(json_of(&d, false, text[1], sizeof text[1]),
              json_of(&c, false, text[0], sizeof text[0]));
    json = json_of(&c, true, text[0], sizeof text[0]);
    for (size_t n = strlen(json); n--;) {
        text[1][n] = 0;
        memcpy(text[1], json, n);
        serve_counts_read(&d, text[1]);
    }
    serve_counts_read(&d, "{\"tokens\":-1,\"rows\":[1],\"lost\":{},\"earlier\":{\"tokens\":7},"
                          "\"other\":{\"tokens\":1},\"waits\":{\"token\":{\"buckets\":[-1,2]}}}");
    CHECK(sum(&d, "tokens") == 7 && !d.lost && !sum(&d, "rows"));
    CHECK(serve_counts_waits(&d.wait[SERVE_WAIT_TOKEN]) == 2);
}

/* Checks the result of the last attempt, to which the counts of earlier ones are added. */
/* Checks results that no rank of ours writes: a member that comes often, a count beyond the range,
 * and members of other types. */
static void test_hostile(const struct serve_counts *c)
{
    enum { N = 2000 };
    char *many = malloc(N * 16 + 64), *at = many + sprintf(many, "{\"refused\":0");
    for (int i = 0; i < N; i++) at += sprintf(at, ",\"refused\":0");
    strcpy(at, "}");
    char *out = serve_counts_result(c, many);
    CHECK(!strncmp(out, "{\"refused\":1,\"refused\":0,", 25) && strlen(out) == strlen(many));
    free(out);
    free(many);
    static const char *const same[] = {"{\"refused\":9223372036854775807}",
                                       "{\"refused\":-1}",
                                       "{\"refused\":1.5}",
                                       "{\"refused\":{\"requests\":1}}",
                                       "{\"refused\":[1]}",
                                       "{\"refused\":",
                                       "[]",
                                       ""};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        out = serve_counts_result(c, same[i]);
        CHECK_STR(out, same[i]);
        free(out);
    }
}

static void test_result(void)
{
    static const char result[] = "{\"requests\":5,\"other\":{\"requests\":5},\"refused\": 2 ,"
                                 "\"n_prompt_tokens\":9007199254740992,\"n_tokens\":\"7\"}";
    struct serve_counts c = {0};
    char *out = serve_counts_result(&c, result);
    CHECK_STR(out, result);
    free(out);
    serve_counts_report(&c, &first);
    serve_counts_attempt(&c);
    out = serve_counts_result(&c, result);
    CHECK_STR(out, "{\"requests\":8,\"other\":{\"requests\":5},\"refused\": 3 ,"
                   "\"n_prompt_tokens\":9007199254740992,\"n_tokens\":\"7\"}");
    free(out);
    /* a result counts kept tokens among those of prompts, and reports count them apart */
    c.before.kept_tokens = 20;
    out = serve_counts_result(&c, "{\"n_prompt_tokens\":300,\"n_kept_tokens\":50}");
    CHECK_STR(out, "{\"n_prompt_tokens\":420,\"n_kept_tokens\":70}");
    free(out);
    c.before.kept_tokens = 0;
    test_hostile(&c);
}

int main(void)
{
    RUN(test_reports);
    RUN(test_range);
    RUN(test_waits);
    RUN(test_json);
    RUN(test_result);
    return test_done("seqd_serve_counts");
}
