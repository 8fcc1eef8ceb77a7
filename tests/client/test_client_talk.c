/* test_client_talk: tests the conversation of seqctl chat: the bodies of its requests, and answers
 * that arrive as events. */
#include "client/sse.h"
#include "client/talk.h"
#include "tests/lib/test.h"

static void on_event(void *arg, const struct sse_event *ev)
{
    talk_take(arg, ev->data, ev->size);
}

/* Asks, and compares the request. Then passes the stream of the answer, byte by byte. */
static void ask(struct talk *t, const char *question, const char *want_body, const char *stream)
{
    struct sse s;
    char *body = talk_ask(t, question);
    CHECK(body != NULL);
    if (body) CHECK_STR(body, want_body);
    free(body);
    sse_init(&s, on_event, t);
    for (; *stream; stream++) sse_feed(&s, stream, 1);
    sse_fini(&s);
}

#define DELTA(text) "data: {\"choices\": [{\"index\": 0, \"delta\": {" text "}}]}\n\n"
#define LAST(why)                                                                                  \
    "data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"" why "\"}]}\n\n"
#define DONE                "data: [DONE]\n\n"
#define MESSAGE(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define ASK                 "{\"model\": \"m\", \"messages\": ["
#define SYS                 MESSAGE("system", "Be brief.") ", "
#define TURNS               MESSAGE("user", "a") ", " MESSAGE("assistant", "b\xe2\x82\xac") ", "

/* Checks that each request has all turns before it, and that /reset keeps the system message. */
static void test_turns(void)
{
    struct talk t = {.model = "m", .system = "Be brief.", .max_tokens = 8, .temperature = "0.5"};
    static const char end[] = "], \"max_tokens\": 8, \"temperature\": 0.5, \"stream\": true}";
    char want[512];
    snprintf(want, sizeof want, ASK SYS MESSAGE("user", "a") "%s", end);
    ask(&t, "a", want,
        DELTA("\"role\": \"assistant\", \"content\": null") DELTA("\"content\": \"b\"")
            DELTA("\"content\": \"\xe2\x82\xac\"") LAST("length") DONE);
    CHECK(t.done && !t.error);
    CHECK_STR(t.answer, "b\xe2\x82\xac");
    CHECK_STR(t.finish, "length");
    talk_end(&t);
    snprintf(want, sizeof want, ASK SYS TURNS MESSAGE("user", "c") "%s", end);
    ask(&t, "c", want, "");
    CHECK(!t.done && !t.size && !*t.finish);
    talk_end(&t);
    ask(&t, "c", want, ""); /* a question without an answer was forgotten */
    talk_reset(&t);
    snprintf(want, sizeof want, ASK SYS MESSAGE("user", "d") "%s", end);
    ask(&t, "d", want, "");
    talk_fini(&t);
}

/* Checks a text that is continued: it has no turns. */
static void test_raw(void)
{
    struct talk t = {.model = "m:a", .max_tokens = -1, .raw = true};
    for (int i = 0; i < 2; i++) {
        ask(&t, "Once \"", "{\"model\": \"m:a\", \"prompt\": \"Once \\\"\", \"stream\": true}",
            "data: {\"choices\": [{\"text\": \" upon\", \"finish_reason\": \"stop\"}]}\n\n" DONE);
        CHECK(t.done);
        CHECK_STR(t.answer, " upon");
        CHECK_STR(t.finish, "stop");
        talk_end(&t);
    }
    CHECK_STR(talk_path(&t), "/openai/v1/completions");
    talk_fini(&t);
}

#define FIRST ASK MESSAGE("user", "a") "], \"stream\": true}"

/* Checks answers that are no whole answers. The text that has come is kept as a turn. */
static void test_errors(void)
{
    static const struct {
        const char *stream, *error, *code, *answer;
    } cases[] = {
        {DELTA("\"content\": \"b\"") "data: {\"error\": {\"message\": \"the job lost it\", "
                                     "\"code\": \"unavailable\"}}\n\n" DONE,
         "the job lost it", "unavailable", "b"},
        {"data: {\"error\": {\"type\": \"server_error\"}}\n\n", "the job has failed to answer",
         "server_error", ""},
        {"data: hello\n\n", "the answer has an event that is not a JSON object: is this seqd?",
         "invalid", ""},
        {"data: [1]\n\ndata: {\"error\": {\"message\": \"late\"}}\n\n",
         "the answer has an event that is not a JSON object: is this seqd?", "invalid", ""},
        {"data: {\"choices\": []}\n\ndata: {\"usage\": {}}\n\n", "", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct talk t = {.model = "m", .max_tokens = -1};
        ask(&t, "a", FIRST, cases[i].stream);
        CHECK_STR(t.error ? t.error : "", cases[i].error);
        CHECK_STR(t.error_code, cases[i].code);
        CHECK_STR(t.size ? t.answer : "", cases[i].answer);
        talk_end(&t);
        CHECK_MSG(t.n_turns == (*cases[i].answer ? 2 : 0), "case %zu: %zu turns", i, t.n_turns);
        talk_fini(&t);
    }
}

/* Checks that a text that is not UTF-8 is refused and does not stay. */
static void test_not_utf8(void)
{
    struct talk t = {.model = "m", .max_tokens = -1};
    CHECK(!talk_ask(&t, "\xff"));
    CHECK(t.n_turns == 0);
    ask(&t, "a", FIRST, "");
    talk_fini(&t);
    t = (struct talk){.model = "m", .max_tokens = -1, .system = "\xc3"};
    CHECK(!talk_ask(&t, "a"));
    talk_fini(&t);
}

int main(void)
{
    RUN(test_turns);
    RUN(test_raw);
    RUN(test_errors);
    RUN(test_not_utf8);
    return test_done("client_talk");
}
