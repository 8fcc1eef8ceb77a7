/* test_client_sse: tests the parser of event streams. It must find the same events, in whatever
 * pieces the bytes arrive. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/sse.h"
#include "tests/lib/test.h"

static char got[1 << 16];

static void note(void *arg, const struct sse_event *ev)
{
    (void)arg;
    size_t n = strlen(got);
    snprintf(got + n, sizeof got - n, "[%s|%s|%s|%zu]", ev->name, ev->id, ev->data, ev->size);
}

static const struct {
    const char *stream, *want;
} cases[] = {
    {"data: a\n\n", "[message||a|1]"},
    {"id: 7\nevent: end\ndata: {\"state\":\"x\"}\n\n", "[end|7|{\"state\":\"x\"}|13]"},
    {"data: a\r\ndata: b\r\n\r\n", "[message||a\nb|3]"},
    {"data: a\rdata:b\r\r", "[message||a\nb|3]"},
    {": heartbeat\n\ndata: a\n\n", "[message||a|1]"},
    {"data\n\ndata:\n\n", "[message|||0][message|||0]"},
    {"data:  two spaces\n\n", "[message|| two spaces|11]"},
    {"id: 1\ndata: a\n\ndata: b\n\n", "[message|1|a|1][message|1|b|1]"},
    {"id: 1\n\ndata: b\n\n", "[message|1|b|1]"},
    /* a name without data is no event, and is forgotten */
    {"event: x\n\ndata: b\n\n", "[message||b|1]"},
    {"\xef\xbb\xbf"
     "data: bom\n\n",
     "[message||bom|3]"},
    {"foo: x\nfoo\ndata: a:b\n\n", "[message||a:b|3]"},
    {"data: unfinished\n", ""},
    {"id: 3\nid\ndata: a\n\n", "[message||a|1]"}, /* an empty id resets the last id */
    {"data: \xe2\x82\xac\n\n", "[message||\xe2\x82\xac|3]"},
};

static void feed(struct sse *s, const char *p, size_t n)
{
    /* uses a heap copy of exactly n bytes, so that a read past the end is detected */
    char *copy = malloc(n ? n : 1);
    memcpy(copy, p, n);
    sse_feed(s, copy, n);
    free(copy);
}

/* Checks a stream that is passed in two parts, divided at every position. Also checks a stream
 * that is passed byte by byte. */
static void test_every_cut(void)
{
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        size_t n = strlen(cases[k].stream);
        for (size_t cut = 0; cut <= n + 1; cut++) {
            struct sse s;
            got[0] = 0;
            sse_init(&s, note, NULL);
            if (cut == n + 1)
                for (size_t i = 0; i < n; i++) feed(&s, cases[k].stream + i, 1);
            else
                feed(&s, cases[k].stream, cut), feed(&s, cases[k].stream + cut, n - cut);
            CHECK_MSG(!strcmp(got, cases[k].want), "case %zu cut %zu: %s", k, cut, got);
            sse_fini(&s);
        }
    }
}

/* Checks an event of which only the first part arrives before the connection is lost. This part
 * must not be joined with data of the next connection. */
static void test_restart(void)
{
    struct sse s;
    got[0] = 0;
    sse_init(&s, note, NULL);
    feed(&s, "id: 4\ndata: a\n\nid: 5\nevent: e\ndata: hal", 40);
    sse_restart(&s);
    feed(&s, "data: whole\n\n", 13);
    CHECK_STR(got, "[message|4|a|1][message|4|whole|5]");
    sse_fini(&s);
}

/* Checks that the id of an incomplete event does not count as the last id. If it did, the event
 * would be lost. */
static void test_id_of_a_half_event(void)
{
    struct sse s;
    got[0] = 0;
    sse_init(&s, note, NULL);
    feed(&s, "id: 4\ndata: a\n\nid: 5\ndata: hal", 31);
    sse_restart(&s);
    CHECK_STR(s.last_id, "4");
    sse_fini(&s);
}

static void test_retry(void)
{
    struct sse s;
    sse_init(&s, note, NULL);
    feed(&s, "retry: 3000\nretry: x\n\n", 22);
    CHECK(s.retry_ms == 3000);
    sse_fini(&s);
}

static void test_too_long(void)
{
    struct sse s;
    char chunk[4096];
    got[0] = 0;
    memset(chunk, 'x', sizeof chunk);
    sse_init(&s, note, NULL);
    feed(&s, "data: ", 6);
    for (int i = 0; i < 2 * SSE_DATA_SIZE / 4096; i++) feed(&s, chunk, sizeof chunk);
    feed(&s, "\n\ndata: after\n\n", 15);
    CHECK_STR(got, "[message||after|5]");
    CHECK(s.n_dropped == 1);
    sse_fini(&s);
}

int main(void)
{
    RUN(test_every_cut);
    RUN(test_restart);
    RUN(test_id_of_a_half_event);
    RUN(test_retry);
    RUN(test_too_long);
    return test_done("client_sse");
}
