/* test_request.c: checks that each member of OpenAI's bodies is read or refused with a reason, that
 * conversations with tools are rendered as transformers renders them, and that calls are found in
 * texts that come whole or byte by byte.
 * tests: needs golden/tokenizers/llama2.json golden/tools.jsonl golden/qwen_tools.jinja */
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "tests/lib/test.h"
#include "worker/family/shape.h"
#include "worker/infer/calls.h"
#include "worker/infer/reply_calls.h"
#include "worker/infer/requests.h"
#include "worker/infer/serve_stream.h"
#include "worker/infer/vocabulary.h"
#include "worker/text/buffer.h"

static struct job_spec spec;
static struct tokenizer *tokenizer;
static struct chat_model model;
static struct vocabulary words;
static struct request r;

static struct chat_model open_template(const char *source, size_t size)
{
    struct chat_model m = {0};
    struct err e = {0};
    CHECK(!text_add(&m.source, source, (int64_t)size) && !chat_model_compile(&m, &e));
    return m;
}

/* Reads the body of a served request. */
static const struct request *served(bool chat, const char *text, const struct chat_model *m)
{
    const struct request_call call = {.id = 1, .chat = chat, .adapter = ADAPTER_BASE};
    struct err e = {0};
    request_fini(&r);
    CHECK(!request_init(&r, (int64_t)strlen(text), &e));
    r.tokenizer = tokenizer;
    r.chat = (struct request_chat){.model = m};
    r.vocabulary = &words;
    request_of_body(&r, &spec, &call, text, (int64_t)strlen(text));
    return &r;
}

/* ---- members --------------------------------------------------------------------------------- */

#define TOOL                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}"

/* clang-format off */
/* All members that the reference of the API has for chat/completions (1) and completions (2), and
 * some of other servers. */
static const struct {
    int api;
    const char *member, *says; /* says: part of the refusal; NULL for a member that is read */
} members[] = {
    {1, "\"audio\":{\"voice\":\"x\"}", "audio: an answer is text"},
    {3, "\"frequency_penalty\":0.5", NULL},
    {1, "\"function_call\":\"auto\"", NULL},
    {1, "\"function_call\":{\"name\":\"f\"}", "give tool_choice"},
    {1, "\"functions\":[{\"name\":\"f\"}]", "give tools"},
    {3, "\"logit_bias\":{\"50\":-100}", NULL},
    {1, "\"logprobs\":true", NULL},
    {2, "\"logprobs\":2", NULL},
    {1, "\"max_completion_tokens\":5", NULL},
    {2, "\"max_completion_tokens\":5", "give max_tokens"},
    {3, "\"max_tokens\":5", NULL},
    {3, "\"metadata\":{\"a\":\"b\"}", NULL},
    {1, "\"modalities\":[\"text\"]", NULL},
    {1, "\"modalities\":[\"text\",\"audio\"]", "an answer is text"},
    {3, "\"n\":2", NULL},
    {1, "\"parallel_tool_calls\":false", NULL},
    {1, "\"prediction\":{\"type\":\"content\",\"content\":\"x\"}", "no text is predicted"},
    {3, "\"presence_penalty\":-1", NULL},
    {1, "\"prompt_cache_key\":\"x\"", NULL},
    {1, "\"prompt_cache_retention\":\"24h\"", NULL},
    {1, "\"reasoning_effort\":\"low\"", "chat_template_kwargs"},
    {3, "\"response_format\":{\"type\":\"json_object\"}", NULL},
    {3, "\"response_format\":{\"type\":\"text\"}", NULL},
    {3, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"schema\":{\"type\":\"null\"}}}", NULL},
    {3, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"pattern\":\"a\"}}}", "\"pattern\" is not supported"},
    {3, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}", "needs name and schema"},
    {3, "\"response_format\":{\"type\":\"json_object\",\"schema\":{}}", "type and json_schema alone"},
    {3, "\"response_format\":{\"type\":\"json_object\"},\"min_tokens\":2", "give the request min_tokens 0"},
    {3, "\"response_format\":{\"type\":\"json_object\"},\"ignore_eos\":true", "give the request ignore_eos false"},
    {1, "\"safety_identifier\":\"x\"", NULL},
    {3, "\"seed\":7", NULL},
    {1, "\"service_tier\":\"auto\"", NULL},
    {1, "\"service_tier\":\"flex\"", "every request has the same service"},
    {3, "\"stop\":[\"a\"]", NULL},
    {1, "\"store\":false", NULL},
    {1, "\"store\":true", "no answer is stored"},
    {3, "\"stream\":true,\"stream_options\":{\"include_usage\":true}", NULL},
    {3, "\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}", "include_usage alone"},
    {3, "\"temperature\":1", NULL},
    {1, "\"tools\":[" TOOL "]", NULL},
    {1, "\"tools\":[" TOOL "],\"tool_choice\":\"required\"", NULL},
    {1, "\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", NULL},
    {1, "\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", "none of tools"},
    {1, "\"tools\":[" TOOL "],\"tool_choice\":\"any\"", "none, auto, required"},
    {1, "\"tools\":[" TOOL "],\"response_format\":{\"type\":\"json_object\"}", "does not go with tools"},
    {1, "\"tools\":[" TOOL "],\"tool_choice\":\"none\",\"response_format\":{\"type\":\"json_object\"}", NULL},
    {1, "\"tools\":[" TOOL "," TOOL "]", "two functions have one name"},
    {1, "\"tools\":[{\"type\":\"custom\"}]", "must be \\\"function\\\""},
    {1, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "letters, digits"},
    {1, "\"tool_choice\":\"required\"", "there are no tools"},
    {2, "\"tools\":[" TOOL "]", "tools belong to /v1/chat/completions"},
    {1, "\"logprobs\":true,\"top_logprobs\":3", NULL},
    {2, "\"top_logprobs\":3", "give logprobs a number"},
    {3, "\"top_p\":0.5", NULL},
    {3, "\"user\":\"x\"", NULL},
    {1, "\"verbosity\":\"low\"", "no model is told of it"},
    {1, "\"web_search_options\":{\"a\":1}", "nothing is searched"},
    {2, "\"best_of\":1", NULL},
    {2, "\"best_of\":2", "best_of must be n"},
    {1, "\"best_of\":2", "give n"},
    {2, "\"echo\":true", NULL},
    {2, "\"suffix\":\"x\"", "before a suffix"},
    {1, "\"chat_template_kwargs\":{\"enable_thinking\":false}", NULL},
    {1, "\"chat_template_kwargs\":{\"messages\":[]}", "are no members of it"},
    {1, "\"chat_template_kwargs\":[]", "must be an object"},
    {1, "\"enable_thinking\":false", "chat_template_kwargs"},
    {3, "\"min_p\":0.1,\"top_k\":5,\"repetition_penalty\":1.1,\"min_tokens\":1,\"ignore_eos\":true", NULL},
    {3, "\"tempratur\":1", "did you mean \"temperature\""},
    {1, "\"max_completion_token\":1", "did you mean \"max_completion_tokens\""},
    {3, "\"future\":1", "unknown member \"future\": leave it out"},
};
/* clang-format on */

static void test_members(void)
{
    char text[1024];
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        for (int api = 1; api <= 2; api++) {
            const char *says = members[i].says;
            if (!(members[i].api & api)) continue;
            snprintf(text, sizeof text, "{%s,%s}",
                     api == 1 ? "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
                              : "\"prompt\":\"a\"",
                     members[i].member);
            const struct err *why = &served(api == 1, text, &model)->refused;
            CHECK_MSG((why->code != ERR_NONE) == (says != NULL), "%s: %s", text, why->text);
            if (says && strchr(says, '\\')) says = "must be";
            CHECK_MSG(!says || strstr(why->text, says), "%s: %s", text, why->text);
        }
}

/* ---- templates ------------------------------------------------------------------------------- */

static void test_rendered(void)
{
    size_t size;
    struct err e = {0};
    char *lines = file_read("tests/golden/tools.jsonl", 1 << 20, &size, &e), *rest = NULL;
    static char body[4096], want[8192];
    int n = 0;
    CHECK_MSG(lines, "%s", e.text);
    for (char *at = lines; at && (at = strtok_r(n ? NULL : lines, "\n", &rest)); n++) {
        struct jread j;
        jread_init(&j, at, strlen(at));
        jread_next(&j);
        CHECK(jread_next(&j) == J_KEY && jread_next(&j) == J_STRING &&
              !jread_copy(&j, body, sizeof body));
        CHECK(jread_next(&j) == J_KEY && jread_next(&j) == J_STRING &&
              !jread_copy(&j, want, sizeof want));
        const struct request *q = served(true, body, &model);
        CHECK_MSG(q->refused.code == ERR_NONE, "%s: %s", body, q->refused.text);
        CHECK_MSG(q->written.size == (int64_t)strlen(want) &&
                      !memcmp(q->written.text, want, strlen(want)),
                  "%s: %.*s", body, (int)q->written.size, q->written.text);
        CHECK(q->calls == (strstr(body, "\"tools\"") && !strstr(body, "\"none\"")));
    }
    CHECK(n == 7);
    free(lines);
}

static void test_forms(void)
{
    static const char other[] = "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}";
    static const char ask[] = "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]";
    struct chat_model m = open_template(other, sizeof other - 1);
    char text[512];
    snprintf(text, sizeof text, "{%s,\"tools\":[" TOOL "]}", ask);
    CHECK(strstr(served(true, text, &m)->refused.text,
                 "tools of this template's form are not parsed"));
    CHECK_STR(r.refused.field, "tools");
    snprintf(text, sizeof text, "{%s,\"tools\":[" TOOL "],\"tool_choice\":\"none\"}", ask);
    CHECK_MSG(served(true, text, &m)->refused.code == ERR_NONE && !r.calls, "%s", r.refused.text);
    chat_model_close(&m);
    served(true,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"tool_"
           "calls\":[{"
           "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"function\":{\"name\":\"f\","
           "\"arguments\":\"[1]\"}}]}]}",
           &model);
    CHECK_STR(r.refused.field, "messages[1].tool_calls[1].function.arguments");
}

/* ---- calls ----------------------------------------------------------------------------------- */

#define CALL(name, arguments)                                                                      \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"
static const struct {
    const char *text, *pieces; /* texts in brackets, calls as NAME(ARGUMENTS) */
} answers[] = {
    {"", ""},
    {"hello", "[hello]"},
    {CALL("f", "{\"a\": [1]}"), "f({\"a\": [1]})"},
    {"see:\n" CALL("f", "{}") "\n" CALL("g", "{\"x\":1}") "\n", "[see:\n]f({})g({\"x\":1})"},
    {CALL("f", "{}") " then", "f({})[then]"},
    {"<tool_call>{\"arguments\":{},\"name\":\"f\"}", "f({})"},
    {"<tool_call>{\"arguments\":{},\"name\":\"f\"",
     "[<tool_call>{\"arguments\":{},\"name\":\"f\"]"},
    {"<tool_call>nonsense</tool_call>x", "[<tool_call>nonsense</tool_call>][x]"},
    {CALL("f", "[1]"), "[" CALL("f", "[1]") "]"},
    {"a <tool_cal l>", "[a <tool_cal l>]"},
    {"a <tool_c", "[a <tool_c]"},
};

/* Appends a piece. Texts that follow each other in a stream are one. */
static void note(char *out, const struct calls_piece *p, bool joins)
{
    size_t n = strlen(out);
    if (p->kind == CALLS_CALL)
        sprintf(out + n, "%.*s(%.*s)", (int)p->name_size, p->name, (int)p->arguments_size,
                p->arguments);
    if (p->kind == CALLS_TEXT && joins) out[--n] = 0;
    if (p->kind == CALLS_TEXT) sprintf(out + n, "%s%.*s]", joins ? "" : "[", (int)p->size, p->text);
}

static void test_calls(void)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const char *text = answers[i].text;
        const int64_t size = (int64_t)strlen(text);
        char whole[512] = "", parts[512] = "", joined[512] = "";
        struct calls_piece p = {.next = 0};
        for (bool after = false;; after = p.kind == CALLS_CALL) {
            calls_next(text, p.next, size, after, true, &p);
            if (p.kind == CALLS_NONE) break;
            note(whole, &p, false);
        }
        CHECK_STR(whole, answers[i].pieces);
        p = (struct calls_piece){.next = 0};
        bool after = false, text_before = false;
        for (int64_t n = 0; n <= size + 1; n++)
            for (;;) { /* the last round has the whole text */
                calls_next(text, p.next, n < size ? n : size, after, n > size, &p);
                if (p.kind == CALLS_NONE) break;
                note(parts, &p, text_before);
                text_before = p.kind == CALLS_TEXT;
                after = p.kind == CALLS_CALL;
            }
        for (const char *c = whole; *c; c++) /* texts that follow each other */
            if (c[0] == ']' && c[1] == '[' && strstr(text, "nonsense"))
                c++;
            else
                strncat(joined, c, 1);
        CHECK_STR(parts, joined);
    }
}

static void test_finish(void)
{
    const char *text = CALL("f", "{}");
    const struct request with = {.calls = true}, without = {.calls = false};
    const int64_t n = (int64_t)strlen(text);
    CHECK_STR(reply_calls_finish(&with, "stop", text, n), "tool_calls");
    CHECK_STR(reply_calls_finish(&with, "length", text, n), "length");
    CHECK_STR(reply_calls_finish(&with, "stop", "x", 1), "stop");
    CHECK_STR(reply_calls_finish(&without, "stop", text, n), "stop");
}

/* Returns the text of a reply, which has no NUL. */
static const char *line_of(const struct reply *p)
{
    static char text[4096];
    snprintf(text, sizeof text, "%.*s", (int)p->size, p->line);
    return text;
}

/* Checks the parts of a stream and the whole message, of an answer that is complete. */
static void test_answer(void)
{
    char text[] = "see:\n" CALL("f", "{}") "\n" CALL("g", "{\"x\":1}") "\n";
    static const char *const parts[] = {
        "\"delta\":{\"role\":\"assistant\",\"content\":\"see:\\n\"}",
        "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_7_9_0_0\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}",
        "\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"call_7_9_0_1\",\"type\":\"function\","
        "\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"x\\\":1}\"}}]}",
        "\"delta\":{},\"token_ids\":[],\"finish_reason\":\"tool_calls\""};
    int64_t end = 0;
    struct infer_choice c = {.text = text, .size = (int64_t)strlen(text), .token_end = &end};
    struct infer_answer a = {.choice = &c, .n = 1};
    struct infer in = {.spec = &spec, .tokenizer = tokenizer};
    static struct infer_work w;
    struct text scratch = {0};
    struct err e = {0};
    w = (struct infer_work){.done = true,
                            .request = {.is_chat = true, .serves = true, .calls = true}};
    for (int one = 0; one < 2; one++) {
        struct serve_cursor cursor = {.stream = true};
        struct reply p = {.ids = true, .tokenizer = tokenizer, .created = 7};
        struct reply_chunk k;
        int n = 0;
        w.request.one_call = one;
        while (n < 8 && serve_stream_next(&cursor, &in, &w, &a, &scratch, &k) > 0) {
            CHECK(!reply_chunk(&p, &w.request, 9, "m", &k, &e));
            n += one && n == 2; /* the second call is left out */
            CHECK_MSG(n < 4 && strstr(line_of(&p), parts[n]), "%d: %s", n, line_of(&p));
            n++;
        }
        CHECK(n == 4 && !reply_body(&p, &w.request, 9, "m", &a, &e));
        CHECK_MSG(strstr(line_of(&p),
                         "\"content\":\"see:\\n\",\"tool_calls\":[{\"id\":\"call_7_9_0_0\"") &&
                      strstr(line_of(&p), "\"finish_reason\":\"tool_calls\"") &&
                      (strstr(line_of(&p), "call_7_9_0_1") == NULL) == (one == 1),
                  "%s", line_of(&p));
        reply_fini(&p);
    }
    text_fini(&scratch);
}

/* Checks the texts of a call that a request asks for. */
static void test_required(void)
{
    static const char b[] = "{\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]}";
    struct grammar_tool t[] = {{"bb", b, 2, (int64_t)sizeof b - 1}, {"b", NULL, 1, 0}};
    static const struct {
        const char *text;
        bool whole;
    } rows[] = {{CALL("b", "{}"), true},          {CALL("bb", "{\"x\": 5}"), true},
                {CALL("b", "{\"x\": 5}"), false}, {CALL("bb", "{}"), false},
                {CALL("c", "{}"), false},         {"x", false}};
    static struct grammar_state s, next;
    struct err e = {0};
    struct grammar *g = grammar_of_calls(t, 2, &e);
    CHECK_MSG(g, "%s", e.text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool good = true;
        grammar_begin(g, &s);
        for (const char *c = rows[i].text; *c && good; c++) {
            good = grammar_step(g, &s, (unsigned char)*c, &next);
            if (good) s = next;
        }
        CHECK_MSG((good && grammar_ended(&s)) == rows[i].whole, "%s", rows[i].text);
    }
    grammar_destroy(g);
}

/* Checks that a grammar is refused if the vocabulary cannot write it. The first 200 tokens have the
 * bytes up to 0xc4. */
static void test_unwritten(void)
{
    static const struct {
        bool chat;
        const char *text, *field;
    } rows[] = {
        {false,
         "{\"prompt\":[70],\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
         "{\"name\":\"x\",\"schema\":{\"enum\":[1,\"\\ud83d\\ude00\"]}}}}",
         "response_format"},
        {false,
         "{\"prompt\":[70],\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
         "{\"name\":\"x\",\"schema\":{\"enum\":[1,\"\\u00e9\"]}}}}",
         ""},
        {true,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"required\","
         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"
         "{\"type\":\"object\",\"properties\":{\"\xf0\x9f\x98\x80\":{}}}}}]}",
         "tools"},
    };
    const int64_t whole = spec.model.shape.vocab;
    vocabulary_fini(&words);
    spec.model.shape.vocab = 200;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct err *e = &served(rows[i].chat, rows[i].text, &model)->refused;
        CHECK_MSG(!strcmp(e->field, rows[i].field), "%s: %s", rows[i].text, e->text);
        CHECK_MSG(!*rows[i].field ||
                      (e->code == ERR_UNSUPPORTED && strstr(e->text, "no token for the byte 0xf0")),
                  "%s", e->text);
    }
    vocabulary_fini(&words);
    spec.model.shape.vocab = whole;
}

/* The random numbers of a request without a seed are those of its attempt and its id. */
static int64_t key_of(int64_t epoch, const char *text)
{
    const struct request_call call = {.id = 1, .adapter = ADAPTER_BASE, .epoch = epoch};
    struct err e = {0};
    request_fini(&r);
    CHECK(!request_init(&r, 64, &e));
    r.tokenizer = tokenizer;
    request_of_body(&r, &spec, &call, text, (int64_t)strlen(text));
    CHECK_MSG(r.refused.code == ERR_NONE, "%s", r.refused.text);
    return r.key.request;
}

static void test_keys(void)
{
    static const char plain[] = "{\"prompt\":\"a\"}", seeded[] = "{\"prompt\":\"a\",\"seed\":3}";
    CHECK(key_of(5, plain) == key_of(5, plain) && key_of(5, plain) != key_of(6, plain));
    CHECK(key_of(0, plain) == request_key("1") && key_of(5, plain) == request_key("5-1"));
    CHECK(key_of(5, seeded) == 0 && key_of(6, seeded) == 0);
}

int main(void)
{
    size_t size;
    struct err e = {0};
    char *json = file_read("tests/golden/tokenizers/llama2.json", 1 << 20, &size, &e);
    CHECK_MSG(json && (tokenizer = tokenizer_open_text(json, size, &e)), "%s", e.text);
    free(json);
    char *jinja = file_read("tests/golden/qwen_tools.jinja", 1 << 20, &size, &e);
    CHECK_MSG(jinja, "%s", e.text);
    model = open_template(jinja, size);
    free(jinja);
    spec_defaults(&spec);
    spec.kind = JOB_SERVE;
    spec.model.shape.vocab = 512;
    spec.model.shape.tokenizer = TOKENIZER_OWN;
    spec.data.seq_len = 8192;
    spec.sampling.max_tokens = 64;
    RUN(test_members);
    RUN(test_rendered);
    RUN(test_forms);
    RUN(test_calls);
    RUN(test_finish);
    RUN(test_answer);
    RUN(test_required);
    RUN(test_unwritten);
    RUN(test_keys);
    request_fini(&r);
    vocabulary_fini(&words);
    chat_model_close(&model);
    tokenizer_destroy(tokenizer);
    return test_done("request");
}
