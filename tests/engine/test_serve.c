/* test_serve.c: checks that a serve job answers each request with the bits that a batch of the same
 * requests gives it, in any order of requests, pieces, drops and sends, on one rank and on two.
 * Checks the counts of messages and the memory, and the errors of requests that are not
 * answered.
 * tests: needs golden/tokenizers/llama2.json */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/core/file.h"
#include "api/core/job_paths.h"
#include "api/core/jread.h"
#include "api/core/log.h"
#include "tests/lib/served.h"
#include "tests/lib/tiny.h"
#include "tests/lib/told.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/serve.h"
#include "worker/infer/serve_read.h"
#include "worker/infer/vocabulary.h"
#include "worker/model/host_copy.h"
#include "worker/plan/adapter_facts.h"
#include "worker/plan/check.h"
#include "worker/rank/link.h"
#include "worker/text/buffer.h"

#define TEMPLATE                                                                                   \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"                             \
    "{% if add_generation_prompt %}<assistant>{% endif %}"

static char scratch[64];
static char *tokenizer_json; /* tokenizer of the last model */
static size_t json_size;

/* clang-format off */
static const struct model_shape shapes[] = {
    {.family = FAMILY_LLAMA, .n_kv_heads = 2},
    {.family = FAMILY_QWEN3_NEXT, .n_kv_heads = 2, .layer_mask = {1}, .dense_mask = {1},
     .delta_heads = 4, .delta_key_heads = 2, .delta_key_dim = 6, .delta_value_dim = 5,
     .conv_width = 3, .n_experts = 3, .experts_per_token = 2, .expert_width = 12,
     .shared_width = 10},
    {.family = FAMILY_LLAMA, .n_kv_heads = 4, .vocab = 512, .tokenizer = TOKENIZER_OWN},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };
static const struct {
    const char *name, *facts;
} adapters[] = {
    {"wide", "{\"rank\":5,\"alpha\":9,\"rslora\":true,\"dropout\":0,\"layers\":2,\"targets\":[\"all-linear\"]}"},
    {"mlp", "{\"rank\":1,\"alpha\":4,\"rslora\":false,\"dropout\":0,\"layers\":0,\"targets\":[\"mlp\"]}"},
};
#define FORMAT(type) "\"response_format\":{\"type\":\"" type
#define TEN "9,8,7,6,5,4,3,2,1,7,"
/* Requests, whose ids are their indexes. The last ones are chats, which only the last model has. */
static const struct {
    int adapter;
    bool stream;
    const char *members;
    bool chat;
    const char *list[3]; /* the prompts of a list */
} asked[] = {
    {ADAPTER_BASE, false, "\"prompt\":\"int main(int argc, char **argv)\",\"ignore_eos\":true,\"max_tokens\":20"},
    {0, true, "\"prompt\":\"int main(int argc, char **argv)\",\"ignore_eos\":true,\"max_tokens\":20,\"logprobs\":2"},
    {1, true, "\"prompt\":\"a\",\"max_tokens\":2"},
    {1, false, "\"prompt\":\"echo\",\"echo\":true,\"max_tokens\":3,\"logprobs\":1"},
    {ADAPTER_BASE, true, "\"prompt\":[104,105],\"top_k\":5,\"n\":3,\"max_tokens\":9"},
    {0, true, "\"prompt\":\"s\",\"stop\":[\"atx\",\"u):R\",\"tta\"],\"temperature\":2.5,\"max_tokens\":20,\"logprobs\":0"},
    {ADAPTER_BASE, true, "\"prompt\":\"one two\",\"seed\":4,\"ignore_eos\":true,\"max_tokens\":17"},
    {1, true, "\"prompt\":\"aaaa\",\"repetition_penalty\":1.5,\"presence_penalty\":0.2,\"max_tokens\":20,\"stop\":\"zz\""},
    {0, false, "\"prompt\":\"last\",\"temperature\":0,\"max_tokens\":1"},
    {ADAPTER_BASE, true, "\"prompt\":\"j\"," FORMAT("json_object\"}") ",\"n\":2,\"max_tokens\":20,\"logprobs\":1,\"temperature\":1.5"},
    {0, false, "\"prompt\":\"k\"," FORMAT("json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"properties\":{\"a\":{\"enum\":[1,22,\"b\"]}},\"required\":[\"a\"]}}}")
     ",\"max_tokens\":20,\"temperature\":0,\"frequency_penalty\":0.5,\"logit_bias\":{\"32\":-100,\"10\":-50}"},
    {1, true, "\"prompt\":\"l\",\"logit_bias\":{\"97\":90,\"98\":90,\"256\":-100},\"max_tokens\":7," FORMAT("text\"}")},
    {ADAPTER_BASE, true, "\"prompt\":[" TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "1],\"max_tokens\":9,\"ignore_eos\":true"},
    {1, true, "\"prompt\":[9," TEN TEN TEN TEN TEN TEN TEN TEN "2],\"max_tokens\":5,\"n\":2,\"ignore_eos\":true"},
    {1, true, "\"prompt\":\"echo\",\"echo\":true,\"max_tokens\":3,\"logprobs\":1"},
    {0, true, "\"prompt\":[99,195],\"echo\":true,\"max_tokens\":9,\"ignore_eos\":true,\"n\":2,\"logprobs\":0"},
    {ADAPTER_BASE, true, "\"prompt\":\"echo alone\",\"echo\":true,\"max_tokens\":0"},
    {0, false, "\"seed\":5,\"max_tokens\":5,\"n\":2,\"ignore_eos\":true", false, {"[1]", "[ 116, 119 ]"}},
    {1, true, "\"seed\":6,\"max_tokens\":7,\"logprobs\":1,\"echo\":true", false, {"\"a\\\"[]\"", "\"bb\"", "\"c\""}},
    {ADAPTER_BASE, true, "\"seed\":7,\"max_tokens\":4", false, {"\"x\"", "\"y\"", "\"x\""}},
    {0, true, "\"prompt\":\"m\"," FORMAT("json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"const\":{\"a\":\"b\\u007f\"}}}}") ",\"max_tokens\":20"},
    {ADAPTER_BASE, false, "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":9,\"stop\":[\"a\",\"st\"]", true},
    {1, true, "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"n\":2,\"max_completion_tokens\":12,\"ignore_eos\":true", true},
};
/* clang-format on */
/* The tokens that end a text. One of them is a byte that a grammar needs, and its text cannot
 * continue. */
static const struct token_ends ends = {2, {TOKEN_EOD, 0x7f}};
/* Further requests are dropped. */
enum {
    N_ASKED = sizeof asked / sizeof *asked,
    N_CHATS = 2,
    N_ALL = N_ASKED + 3,
    N_TOLD = 48,
    N_CHOICES = 4
};
#define HUGE_SIZE (INT64_MAX / 4) /* for which there is no memory */

/* realloc returns NULL for HUGE_SIZE, as without sanitizers. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

struct told_answer {
    char *text;
    size_t size;
    int status, n_pieces;
    bool stream, closed, dropped;
};

struct job {
    struct job_spec spec;
    struct prompts p;
    char dir[128];
    bool serves, drains, own;
    bool ordered; /* set when the order to drain was given, or the last case */
    int n;        /* number of requests that are not dropped */
    bool cases;   /* the requests are those of test_cases */
    bool alone;   /* each request comes when the one before has ended, from a user of its own */
    uint64_t rng;
    /* rank 0's door */
    struct serve_asks *asks;
    int64_t now_us;
    int order[N_ALL], n_asked;
    size_t n_put[N_ALL]; /* bytes that were delivered of each request */
    struct told_answer told[N_TOLD];
    struct serve_result out;
    struct rank_serving reported; /* the last report of the counts */
    int n_reports;
};

static uint32_t draw(struct job *j, uint32_t n)
{
    j->rng = j->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(j->rng >> 33) % n;
}

/* ---- the weights of adapters ----------------------------------------------------------------- */

static float element(int k, const char *name, int64_t i)
{
    uint32_t x = 2166136261u + (uint32_t)k;
    for (const char *c = name; *c; c++) x = (x ^ (unsigned char)*c) * 16777619u;
    x = (x ^ (uint32_t)i) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ((float)(x & 0xffff) / 65536 - 0.5f) * 0.6f;
}

static int fill(struct model *m, struct err *e)
{
    struct device_array there = {m->be, m->dtype, m->params};
    int rc = 0;
    for (int i = 0; i < param_tensors(&m->shape) && !rc; i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        if (!p.adapter) continue;
        float *x = malloc((size_t)p.count * sizeof *x);
        for (int64_t c = 0; c < p.count; c++) x[c] = element(p.of_adapter, p.name, c);
        rc = device_array_write(&there, p.offset, p.count, x, e);
        free(x);
    }
    return rc;
}

/* ---- the door -------------------------------------------------------------------------------- */

static int n_list(int i)
{
    int n = 0;
    while (n < 3 && asked[i].list[n]) n++;
    return n;
}

/* Writes the list of prompts of a request, if it has one, with a comma at the end. */
static const char *list_of(int i, char out[128])
{
    *out = 0;
    for (int k = 0; k < n_list(i); k++)
        snprintf(out + strlen(out), 128 - strlen(out), "%s%s", k ? " , " : "\"prompt\": [",
                 asked[i].list[k]);
    if (*out) strcat(out, "],");
    return out;
}

/* Writes the body of a request. Requests that are dropped ask for as much as the job allows. */
static void body_of(const struct job *j, int i, char out[512])
{
    char list[128];
    if (i < j->n)
        snprintf(out, 512, "{\"model\":\"any\",%s%s%s}", list_of(i, list), asked[i].members,
                 asked[i].stream && !j->alone
                     ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"
                     : "");
    else
        snprintf(out, 512, "{\"prompt\":%s,\"ignore_eos\":true%s}",
                 i % 3 ? "\"dropped\"" : "[\"a\",\"b\",\"c\",\"d\",\"e\"]",
                 i % 2 ? ",\"stream\":true" : "");
}

/* Delivers the next piece of request i. */
static void deliver(struct job *j, int i)
{
    char body[512];
    body_of(j, i, body);
    const size_t size = strlen(body), left = size - j->n_put[i];
    const size_t n = j->alone || draw(j, 2) ? left : draw(j, (uint32_t)left + 1);
    struct rank_ask a = {.id = (uint64_t)i,
                         .endpoint = i < j->n && asked[i].chat ? SERVE_CHAT : SERVE_COMPLETIONS,
                         .adapter_named = i < j->n ? asked[i].adapter : ADAPTER_BASE,
                         .size = (int32_t)n,
                         .flags = n == left ? RANK_ASK_LAST : 0,
                         .model = "job"};
    snprintf(a.user, sizeof a.user, "user %d", j->alone ? i : i % 2);
    serve_asks_take(j->asks, &a, body + j->n_put[i]);
    j->n_put[i] += n;
    if (n == left) j->n_put[i] = SIZE_MAX;
}

/* Delivers a piece, or drops a request. Returns false if nothing is left to do. */
static bool act(struct job *j)
{
    const int at = j->n_asked < N_ALL ? j->n_asked : N_ALL - 1,
              i = j->order[draw(j, (uint32_t)at + 1)];
    if (i >= j->n && j->n_put[i] && !j->told[i].dropped && !j->told[i].closed && !draw(j, 3)) {
        serve_asks_drop(j->asks, (uint64_t)i);
        j->told[i].dropped = true;
    } else if (j->n_put[i] != SIZE_MAX && !j->told[i].dropped) {
        deliver(j, i);
    }
    if (j->n_asked < N_ALL && j->n_put[j->order[j->n_asked]]) j->n_asked++;
    for (int k = 0; k < N_ALL; k++)
        if (j->n_put[k] != SIZE_MAX && !j->told[k].dropped) return true;
    return false;
}

static int receive(void *arg, int wait_ms, bool room, struct err *e)
{
    struct job *j = arg;
    (void)e;
    bool more = true;
    CHECK(!wait_ms || (!serve_asks_next(j->asks, SERVE_WHOLE) && !j->ordered));
    /* no answer waits for the next message */
    for (const struct serve_request *q = j->asks->first; q && wait_ms > 0 && !room; q = q->next)
        CHECK(q->n_sent == q->out.n);
    for (uint32_t n = draw(j, 3) + 3 * (wait_ms > 0); n && more; n--) more = act(j);
    if (wait_ms > 0 && !more) j->now_us += (int64_t)wait_ms * 1000;
    return 0;
}

static int receive_alone(void *arg, int wait_ms, bool room, struct err *e)
{
    struct job *j = arg;
    (void)wait_ms, (void)room, (void)e;
    if (!serve_asks_open(j->asks) && j->n_asked < j->n) deliver(j, j->n_asked++);
    return 0;
}

static int answer(void *arg, const struct rank_answer *a, const char *bytes, struct err *e)
{
    struct job *j = arg;
    struct told_answer *t = &j->told[a->id < N_TOLD ? a->id : 0];
    (void)e;
    if (!draw(j, 3)) return 0; /* there is no room */
    CHECK(a->id < N_TOLD && !t->closed && !t->dropped && a->size <= RANK_PIECE_SIZE);
    CHECK(!t->n_pieces++ == (a->status != 0));
    if (a->status) t->status = a->status;
    if (a->flags & RANK_ANSWER_STREAM) t->stream = true;
    if (a->flags & RANK_ANSWER_LAST) t->closed = true;
    t->text = realloc(t->text, t->size + (size_t)a->size + 1);
    memcpy(t->text + t->size, bytes, (size_t)a->size);
    t->size += (size_t)a->size;
    t->text[t->size] = 0;
    return 1;
}

/* Messages come also at this time, as they come in link_saving. */
static const char *draining(void *arg)
{
    struct job *j = arg;
    if (!draw(j, 3)) act(j);
    if (!j->drains) return NULL;
    for (int i = 0; i < N_ALL; i++)
        if (!j->told[i].closed && !j->told[i].dropped) return NULL;
    j->ordered = true;
    return "the test ends";
}

static const char *draining_alone(void *arg)
{
    struct job *j = arg;
    return j->n_asked == j->n && !serve_asks_open(j->asks) ? "the test ends" : NULL;
}

static int64_t now_us(void *arg)
{
    return ((struct job *)arg)->now_us;
}

/* ---- cases of errors ------------------------------------------------------------------------- */

/* clang-format off */
static const struct {
    uint32_t endpoint;
    int32_t adapter;
    const char *body;
    int status;
    const char *says; /* a part of the answer */
} cases[] = {
    {SERVE_COMPLETIONS, -1, "", 400, "\"param\":\"body\""},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\"", 400, "the body cannot be read"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\"} x", 400, "the body cannot be read"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\",\"tempersture\":1}", 400, "\"param\":\"tempersture\""},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"0123456789012345678901234567890123456789012345678901234567890123\"}", 400,
     "\"code\":\"context_length_exceeded\""},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\",\"max_tokens\":21}", 400, "\"param\":\"max_tokens\",\"code\":\"too_large\""},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\",\"stream\":1}", 400, "stream must be true or false"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\",\"stream_options\":{\"include_usage\":true}}", 400, "\"param\":\"stream_options\""},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":[\"a\",2]}", 400, "a list of strings"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":[\"a\",[1]]}", 400, "\"message\":\"prompt must be a string, a list of token ids, a list of"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":[[1],\"a\"]}", 400, "\"param\":\"prompt\""},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":[[1],[260]],\"stream\":true}", 400,
     "\"message\":\"entry 1 of the list: prompt holds the token 260"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":[\"a\",\"0123456789012345678901234567890123456789012345678901234567890123\",\"b\"]}", 400,
     "\"code\":\"context_length_exceeded\""},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":[\"a\",\"b\"],\"prompt\":\"c\"}", 400, "prompt occurs twice"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":[\"a\",\"b\"],", 400, "entry 0 of the list: the body cannot be read"},
    {SERVE_COMPLETIONS, -1, "{\"n\":128,\"prompt\":[[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1]]}", 400,
     "\"param\":\"n\",\"code\":\"too_large\""},
    {SERVE_CHAT, -1, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 400, "\"param\":\"messages\",\"code\":\"unsupported\""},
    {SERVE_CHAT, -1, "{\"tools\":[{}],\"messages\":[]}", 400, "\"param\":\"messages\""},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json\"}}", 400, "type must be"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\",\"n\":129}", 400, "\"param\":\"n\",\"code\":\"too_large\""},
    {SERVE_COMPLETIONS, 2, "{\"prompt\":\"a\"}", 404, "\"param\":\"model\""},
    {SERVE_TOKENIZE, -1, "{\"model\":\"m\",\"prompt\":\"a\\u00e9\"}", 200, "{\"count\":3,\"max_model_len\":64,\"tokens\":[97,195,169]}"},
    {SERVE_TOKENIZE, -1, "{\"text\":\"a\"}", 400, "\"type\":\"invalid_request_error\",\"param\":\"text\""},
    {SERVE_TOKENIZE, -1, "{}", 400, "prompt is missing"},
    {SERVE_DETOKENIZE, -1, "{\"tokens\":[97,195,169,195]}", 200, "{\"prompt\":\"a\xc3\xa9\xef\xbf\xbd\"}"},
    {SERVE_DETOKENIZE, -1, "{\"tokens\":[260]}", 400, "\"param\":\"tokens\""},
    /* the last place of the sequence is free; serve.queue 0 leaves no place for a fourth request */
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"012345678901234567890123456789012345678901234567890123456789012\",\"ignore_eos\":true}", 200,
     "\"completion_tokens\":1,"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":[\"one\"],\"max_tokens\":1,\"ignore_eos\":true}", 200, "\"prompt_tokens\":3,"},
    {SERVE_COMPLETIONS, 1, "{\"prompt\":[[1,2]],\"max_tokens\":1,\"ignore_eos\":true}", 200, "\"prompt_tokens\":2,"},
    {SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\"}", 429, "\"rate_limit_error\",\"param\":null,\"code\":\"queue_full\""},
};
/* clang-format on */
enum { N_CASES = sizeof cases / sizeof *cases };
_Static_assert((int)N_CASES < (int)N_TOLD, "an answer of each case, and of one more");

static void ask(struct job *j, uint64_t id, uint32_t endpoint, int32_t adapter, const char *text)
{
    const struct rank_ask a = {.id = id,
                               .endpoint = endpoint,
                               .flags = RANK_ASK_LAST,
                               .adapter_named = adapter,
                               .size = (int32_t)strlen(text),
                               .model = "job"};
    serve_asks_take(j->asks, &a, text);
}

/* Delivers all requests at once. */
static int receive_cases(void *arg, int wait_ms, bool room, struct err *e)
{
    struct job *j = arg;
    (void)room, (void)e;
    CHECK(!wait_ms || !serve_asks_next(j->asks, SERVE_WHOLE));
    if (j->drains && !j->n_asked++)
        for (uint64_t i = 0; i < 3; i++)
            ask(j, i, SERVE_COMPLETIONS, -1,
                i == 1 ? "{\"prompt\":\"a\",\"ignore_eos\":true}"
                       : "{\"prompt\":\"a\",\"ignore_eos\":true,\"stream\":true}");
    if (j->drains && j->told[0].n_pieces && !j->told[3].status)
        ask(j, 3, SERVE_COMPLETIONS, -1, "{\"prompt\":\"late\"}");
    for (int i = 0; !j->drains && !j->n_asked && i < N_CASES; i++)
        ask(j, (uint64_t)i, cases[i].endpoint, cases[i].adapter, cases[i].body);
    j->n_asked++;
    return 0;
}

/* Tells whether the last request has just ended. */
static bool has_ended(const struct serve_asks *s)
{
    return serve_asks_count(s, SERVE_ENDED) && !serve_asks_count(s, SERVE_WHOLE) &&
           !serve_asks_count(s, SERVE_WAITS) && !serve_asks_count(s, SERVE_AT_WORK);
}

/* A job that drains does so when the first part of a stream was sent. To another job, a request
 * comes at the end of the pass that has ended all others. */
static const char *draining_cases(void *arg)
{
    struct job *j = arg;
    if (j->drains) return j->told[0].n_pieces ? "the job was suspended" : NULL;
    if (!j->ordered && has_ended(j->asks)) {
        ask(j, N_CASES, SERVE_COMPLETIONS, -1, "{\"prompt\":\"a\",\"max_tokens\":1}");
        j->ordered = true;
    }
    for (int i = 0; i <= N_CASES; i++)
        if (!j->told[i].closed) return NULL;
    return "the test ends";
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Tells that the job is not stopped. On rank 0 of a serve job, messages come at this time, as
 * they come in run_stopped: requests and drops fall into a pass. */
static bool never(void *arg)
{
    struct job *j = arg;
    if (j && j->serves && !j->cases && !j->alone && !draw(j, 3)) act(j);
    return false;
}

/* Takes a report of the counts. No sum may fall. */
static int report(void *arg, const struct rank_serving *now, struct err *e)
{
    struct job *j = arg;
    const struct rank_serving *was = &j->reported;
    (void)e;
    CHECK(now->requests >= was->requests && now->refused >= was->refused &&
          now->dropped >= was->dropped && now->prompt_tokens >= was->prompt_tokens &&
          now->tokens >= was->tokens && now->passes >= was->passes && now->rows >= was->rows &&
          now->pass_us >= was->pass_us && now->elapsed_us >= was->elapsed_us);
    CHECK(now->at_work >= 0 && now->at_work <= j->spec.serve.max_requests && now->queued >= 0);
    CHECK(now->passes <= now->rows && now->rows <= now->passes * j->spec.serve.max_requests);
    j->reported = *now;
    j->n_reports++;
    return 0;
}

/* Compares the last report with the result of the job. Both count the tokens of requests that did
 * not end. */
static void check_report(const struct job *j)
{
    const struct rank_serving *r = &j->reported;
    const struct serve_result *out = &j->out;
    CHECK(j->n_reports && !r->at_work && !r->queued);
    CHECK(r->requests == out->n_requests && r->refused == out->n_refused &&
          r->dropped == out->n_dropped && r->rows == out->decode.n);
    CHECK_MSG(r->tokens == out->n_tokens, "%lld tokens reported, %lld in the result",
              (long long)r->tokens, (long long)out->n_tokens);
    CHECK(r->prompt_tokens + r->kept_tokens == out->n_prompt_tokens &&
          r->kept_tokens == out->n_kept_tokens);
}

static int serve(struct job *j, const struct infer *in, int rank, struct err *e)
{
    struct serve_result out = {0};
    struct serve_door door = {j->asks, receive, answer, draining, now_us, j, report};
    if (j->cases) door.receive = receive_cases, door.draining = draining_cases;
    if (j->alone) door.receive = receive_alone, door.draining = draining_alone;
    const int rc = serve_run(in, rank ? NULL : &door, &out, e);
    CHECK(rc || out.ledger_equal);
    if (!rank) j->out = out;
    if (!rank && !rc) check_report(j);
    return rc;
}

/* Opens the tokenizer and the template of the last model. Each rank has its own. */
static int open_text(const struct job *j, struct tokenizer **t, struct chat_model *chat,
                     struct infer *in, struct err *e)
{
    if (!j->own) return 0;
    if (!(*t = tokenizer_open_text(tokenizer_json, json_size, e))) return -1;
    in->tokenizer = *t;
    in->chat.model = chat;
    if (text_add(&chat->source, TEMPLATE, sizeof TEMPLATE - 1) < 0) return buffer_full(e);
    return chat_model_compile(chat, e);
}

static void body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    struct infer_text out = {0};
    struct told told;
    struct tokenizer *tokenizer = NULL;
    struct chat_model chat = {0};
    struct vocabulary vocabulary = {0};
    int rc = tiny_open(t, &j->spec, g, rank, &e);
    told_open(&told);
    struct infer in = {.model = &t->model,
                       .spec = &j->spec,
                       .job_dir = j->dir,
                       .stopped = never,
                       .arg = rank ? NULL : j,
                       .progress = &told.p,
                       .vocabulary = &vocabulary,
                       .ends = &ends};
    if (!rc) rc = open_text(j, &tokenizer, &chat, &in, &e);
    if (!rc) rc = fill(&t->model, &e);
    if (!rc) rc = j->serves ? serve(j, &in, rank, &e) : infer_generate(&in, &j->p, &out, &e);
    if (rc) ranks_fail(g, rank, &e);
    CHECK(rc || j->serves || out.ledger_equal);
    CHECK(!j->serves || !told.parted);
    /* only rank 0 holds the log-probabilities of answers */
    CHECK_MSG(rc || rank || t->model.placed_size == t->plan.arena_size + t->plan.segment_size,
              "held %lld, planned %lld", (long long)t->model.placed_size,
              (long long)(t->plan.arena_size + t->plan.segment_size));
    infer_text_fini(&out);
    chat_model_close(&chat);
    vocabulary_fini(&vocabulary);
    tokenizer_destroy(tokenizer);
    tiny_close(t);
    free(t);
}

static void set_shape(struct model_shape *m, const struct model_shape *x)
{
    *m = *x;
    m->n_layers = 2;
    m->width = 32;
    m->n_heads = 4;
    m->head_dim = 8;
    m->ffn_width = 64;
    if (!m->vocab) m->vocab = 260;
    m->norm_eps = 1e-5;
    m->rope_theta = 10000;
    m->max_pos = 4096;
}

static void job_of(struct job *j, const struct model_shape *x, int P, bool serves)
{
    char path[128];
    struct job_spec *s = &j->spec;
    *j = (struct job){.serves = serves, .now_us = 1};
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = serves ? JOB_SERVE : JOB_GENERATE;
    set_shape(&s->model.shape, x);
    j->own = x->tokenizer == TOKENIZER_OWN;
    j->n = j->own ? N_ASKED : N_ASKED - N_CHATS;
    s->seed = 3;
    s->resources.ranks = P;
    s->data.seq_len = 192;
    if (serves) s->serve.prefill_tokens = 64; /* long prompts take several passes */
    s->sampling.max_tokens = 20;
    s->sampling.temperature = 0.8;
    for (int i = 0; i < 2; i++)
        s->model.adapters[i] = (struct spec_adapter){
            tiny_text(s, adapters[i].name), tiny_text(s, "/a"), tiny_text(s, adapters[i].facts)};
    s->serve.max_requests = 3;
    if (serves) return;
    s->infer.batch = 4;
    snprintf(path, sizeof path, "%s/batch.jsonl", scratch);
    s->input.source = (struct spec_source){tiny_text(s, path), tiny_text(s, "text"),
                                           DATA_OPENAI_BATCH, 0, -1};
}

static void run(struct job *j)
{
    static struct plan p;
    struct ranks g;
    struct err e = {0};
    const char *roots[] = {scratch};
    snprintf(j->dir, sizeof j->dir, "%s/job", scratch);
    CHECK(!file_remove(j->dir, &e));
    if (!j->serves) CHECK_MSG(!prompts_read(&j->p, &j->spec, roots, 1, &e), "%s", e.text);
    CHECK_MSG(!family_check(&j->spec, &e), "%s: %s", e.field, e.text);
    CHECK_MSG(!plan_make(&j->spec, 0, &p, &e), "%s", e.text);
    CHECK(p.batch == (j->serves ? j->spec.serve.max_requests : j->spec.infer.batch));
    ranks_open(&g, p.n_ranks, p.segment_size, NULL);
    ranks_run(&g, body, j);
    ranks_check(&g);
    ranks_close(&g);
    prompts_fini(&j->p);
}

/* ---- the same bits --------------------------------------------------------------------------- */

/* The answers of the batch, from "choices" to the end of "usage". */
static char *wanted[N_ASKED];

/* Returns a copy of the text from "choices" to the number of all tokens in "usage". */
static char *answer_of(const char *text)
{
    const char *from = text ? strstr(text, "\"choices\"") : NULL;
    const char *to = from ? strstr(from, "\"total_tokens\":") : NULL;
    if (!to) return strdup("none");
    to += strlen("\"total_tokens\":");
    return strndup(from, (size_t)(to - from) + strspn(to, "0123456789"));
}

/* Checks that each text that has ended is JSON, if the request asks for JSON. */
static void check_json(int i, const char *answer)
{
    int n = 0;
    if (!strstr(asked[i].members, "json_")) return;
    for (const char *at = answer; (at = strstr(at, "\"text\":")); at++) {
        char text[512];
        struct jread j, in;
        jread_init(&j, at + 7, strlen(at + 7));
        CHECK(jread_next(&j) == J_STRING && !jread_copy(&j, text, sizeof text));
        const char *finish = strstr(at, "\"finish_reason\":");
        if (!finish || strncmp(finish + 16, "\"stop\"", 6)) continue;
        jread_init(&in, text, strlen(text));
        while (jread_next(&in) > J_END) continue;
        CHECK_MSG(in.err.code == ERR_NONE && text[0] == '{', "%s: %s", text, in.err.text);
        n++;
    }
    if (strstr(asked[i].members, "enum")) CHECK_MSG(n == 1, "%s", answer);
    if (strstr(asked[i].members, "const")) /* only the last model can continue */
        CHECK_MSG(n == 1 || (strstr(answer, "\"text\":\"{\\\"a\\\":\\\"b\"") &&
                             strstr(answer, "\"finish_reason\":\"length\"")),
                  "%s", answer);
}

static void put_batch(void)
{
    char path[128], text[16384], *at = text;
    struct err e = {0};
    for (int i = 0; i < N_ASKED; i++)
        for (int n = 0; n == 0 || n < n_list(i); n++) {
            const int k = asked[i].adapter;
            const bool lists = n_list(i);
            char rest[16] = "";
            if (n) sprintf(rest, ".%d", n);
            at += sprintf(at,
                          "{\"custom_id\":\"%d%s\",\"method\":\"POST\","
                          "\"url\":\"/v1/%scompletions\",\"body\":{%s%s%s%s%s%s%s}}\n",
                          i, rest, asked[i].chat ? "chat/" : "", lists ? "\"prompt\":" : "",
                          lists ? asked[i].list[n] : "", lists ? "," : "", asked[i].members,
                          k < 0 ? "" : ",\"model\":\"", k < 0 ? "" : adapters[k].name,
                          k < 0 ? "" : "\"");
        }
    snprintf(path, sizeof path, "%s/batch.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, (size_t)(at - text), &e), "%s", e.text);
}

static int64_t number_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? atoll(at + strlen(name)) : 0;
}

/* Adds the answer to a prompt of a list to the wanted answer: its continuations get the next
 * indexes, and usage the sums. */
static void add_wanted(int i, const char *one)
{
    static const char prompt[] = "\"prompt_tokens\":", made[] = "\"completion_tokens\":";
    static const char head[] = "\"choices\":[";
    const char *was = wanted[i] ? wanted[i] : "\"choices\":[],\"usage\":{";
    const char *end = strstr(was, "],\"usage\""), *rest = strstr(one, "],\"usage\"");
    char *out = malloc(strlen(was) + strlen(one) + 256), *at = out;
    int index = 0;
    CHECK(end && rest && !strncmp(one, head, sizeof head - 1));
    for (const char *c = was; (c = strstr(c, "{\"index\":")); c++) index++;
    at += sprintf(at, "%.*s%s", (int)(end - was), was, index ? "," : "");
    for (const char *c = one + sizeof head - 1; c < rest; c++)
        if (!strncmp(c, "{\"index\":", 9))
            at += sprintf(at, "{\"index\":%d", index++), c += 9;
        else
            *at++ = *c;
    const int64_t n = number_of(was, prompt) + number_of(one, prompt),
                  m = number_of(was, made) + number_of(one, made);
    sprintf(at, "],\"usage\":{%s%lld,%s%lld,\"total_tokens\":%lld", prompt, (long long)n, made,
            (long long)m, (long long)(n + m));
    free(wanted[i]);
    wanted[i] = out;
}

static void run_batch(const struct model_shape *x, int P)
{
    static struct job j;
    char path[192], *end, *rest = NULL;
    size_t size;
    struct err e = {0};
    job_of(&j, x, P, false);
    run(&j);
    snprintf(path, sizeof path, "%s/artifacts/results.jsonl", j.dir);
    char *text = file_read(path, 1 << 24, &size, &e);
    CHECK_MSG(text, "%s", e.text);
    for (char *at = text; (end = strtok_r(at, "\n", &rest)); at = NULL) {
        const char *id = strstr(end, "\"custom_id\":\"");
        const int i = id ? atoi(id + 13) : 0;
        char *one = answer_of(end);
        check_json(i, one);
        if (n_list(i)) {
            add_wanted(i, one);
            free(one);
        } else {
            wanted[i] = one;
        }
    }
    free(text);
}

/* Asks each request alone. With pages, the parts of attention are those of pages, and not those of
 * a batch, unless there is one rank. */
static void run_alone(const struct model_shape *x, int P)
{
    static struct job j;
    job_of(&j, x, P, true);
    j.alone = true;
    j.spec.serve.max_requests = 1;
    j.asks = serve_asks_create();
    run(&j);
    serve_asks_destroy(j.asks);
    for (int i = 0; i < j.n; i++) {
        wanted[i] = answer_of(j.told[i].text);
        free(j.told[i].text);
    }
}

/* Compares the joined parts of a stream with the whole answer. */
static void compare_stream(const struct told_answer *t, const char *want, const char *name)
{
    static struct served is[N_CHOICES], whole[N_CHOICES];
    char *rest = NULL, *copy = strdup(t->text ? t->text : ""), *line;
    int n_done = 0, n_usage = 0;
    memset(is, 0, sizeof is);
    memset(whole, 0, sizeof whole);
    for (char *at = copy; (line = strtok_r(at, "\n", &rest)); at = NULL) {
        CHECK(!strncmp(line, "data: ", 6));
        if (n_done) CHECK_MSG(false, "%s: more after the end: %s", name, line);
        n_done += !strcmp(line, "data: [DONE]");
        n_usage += strstr(line, "\"choices\":[],\"usage\":{") != NULL;
        for (int i = 0; i < N_CHOICES; i++)
            if (*served_choice(line, i)) served_join(&is[i], line);
    }
    CHECK_MSG(n_done == 1 && n_usage == 1, "%s: %s", name, t->text);
    for (int i = 0; i < N_CHOICES; i++) {
        char *one = strdup(served_choice(want, i));
        char *next = *one ? strstr(one + 1, "{\"index\":") : NULL;
        if (*one && next) *next = 0;
        if (*one) served_join(&whole[i], one);
        CHECK_MSG(!memcmp(&is[i], &whole[i], sizeof *is), "%s, %d: %s %s %s %s, want %s %s %s %s",
                  name, i, is[i].text, is[i].logprobs, is[i].offsets, is[i].finish, whole[i].text,
                  whole[i].logprobs, whole[i].offsets, whole[i].finish);
        free(one);
    }
    const char *usage = want ? strstr(want, "\"usage\"") : NULL;
    CHECK_MSG(usage && strstr(t->text, usage), "%s: %s", name, t->text);
    free(copy);
}

static void compare(struct job *j, const char *name)
{
    for (int i = 0; i < j->n; i++) {
        const struct told_answer *t = &j->told[i];
        CHECK_MSG(t->closed && t->status == 200 && t->stream == asked[i].stream, "%s: %d of %d",
                  name, t->status, i);
        if (asked[i].stream) {
            compare_stream(t, wanted[i], name);
            continue;
        }
        char *is = answer_of(t->text);
        CHECK_MSG(!strcmp(is, wanted[i]), "%s, request %d:\n%s\n%s", name, i, is, wanted[i]);
        free(is);
    }
    CHECK_MSG(j->out.n_requests + j->out.n_dropped == N_ALL && j->out.n_refused == 0,
              "%s: %lld answered, %lld dropped, %lld refused", name, (long long)j->out.n_requests,
              (long long)j->out.n_dropped, (long long)j->out.n_refused);
}

static void run_serve(struct job *j, const struct model_shape *x, int P, uint64_t seed)
{
    job_of(j, x, P, true);
    j->rng = seed;
    j->drains = seed % 2;
    if (!j->drains) j->spec.serve.idle_s = 12;
    for (int i = 0; i < N_ALL; i++) j->order[i] = i;
    for (int i = N_ALL - 1; i > 0; i--) {
        const int k = (int)draw(j, (uint32_t)i + 1), was = j->order[i];
        j->order[i] = j->order[k];
        j->order[k] = was;
    }
    j->asks = serve_asks_create();
    run(j);
    serve_asks_destroy(j->asks);
    /* the time without a request passes in empty passes: two of 5 s, and one of 2 s */
    if (!j->drains) CHECK_MSG(j->out.n_passes > 3, "%lld passes", (long long)j->out.n_passes);
}

static void free_told(struct job *j)
{
    for (int i = 0; i < N_TOLD; i++) free(j->told[i].text);
}

static void test_bits(void)
{
    static struct job j;
    char name[64];
    for (int m = 0; m < N_SHAPES; m++)
        for (int P = 1; P <= 2; P++) {
            if (P > 1)
                run_alone(&shapes[m], P);
            else
                run_batch(&shapes[m], P);
            for (uint64_t seed = 1; seed <= 6; seed++) {
                if (small_leaves((int64_t)seed, 3)) continue;
                snprintf(name, sizeof name, "model %d, P %d, seed %d", m, P, (int)seed);
                run_serve(&j, &shapes[m], P, seed);
                compare(&j, name);
                free_told(&j);
            }
            for (int i = 0; i < N_ASKED; i++) free(wanted[i]), wanted[i] = NULL;
        }
}

static void run_cases(struct job *j, bool drains)
{
    job_of(j, &shapes[0], 1, true);
    j->cases = true;
    j->spec.data.seq_len = 64;
    j->drains = drains;
    j->spec.serve.queue = 0;
    j->spec.serve.drain_s = 0;
    j->asks = serve_asks_create();
    run(j);
    serve_asks_destroy(j->asks);
}

static void test_cases(void)
{
    static struct job j;
    run_cases(&j, false);
    for (int i = 0; i < N_CASES; i++) {
        const struct told_answer *t = &j.told[i];
        CHECK_MSG(t->status == cases[i].status && t->text && strstr(t->text, cases[i].says),
                  "case %d: %d %s", i, t->status, t->text);
    }
    CHECK(j.told[N_CASES].status == 200);
    CHECK(j.out.n_requests == 6 && j.out.n_refused == N_CASES - 5);
    free_told(&j);
}

/* ---- memory and messages --------------------------------------------------------------------- */

static void put_piece(struct serve_asks *s, uint64_t id, uint32_t endpoint, size_t size, bool last)
{
    static char bytes[SERVE_TOKENS_SIZE + 1];
    const struct rank_ask a = {
        .id = id, .endpoint = endpoint, .size = (int32_t)size, .flags = last ? RANK_ASK_LAST : 0};
    serve_asks_take(s, &a, bytes);
}

/* Checks an answer for which there is no memory, whose first part was sent or not. */
static void check_no_room(bool begun)
{
    struct serve_request r = {.state = SERVE_AT_WORK, .status = 200, .begun = begun};
    CHECK(!serve_asks_put(&r, "data: part\n\n", 12) && serve_asks_put(&r, "", HUGE_SIZE) == -1);
    CHECK(serve_asks_put(&r, "more", 4) == -1 && r.state == SERVE_ENDED);
    CHECK_MSG(r.status == (begun ? 200 : 503) && strstr(r.out.data, "\"code\":\"busy\"") &&
                  !strncmp(r.out.data, begun ? "data: part\n\ndata: {" : "{\"error\"", 8),
              "%d %s", r.status, r.out.data);
    text_fini(&r.out);
}

/* Checks bodies that are larger than the bounds, and answers for which there is no memory. */
static void test_memory(void)
{
    static struct job j;
    struct serve_asks *s = j.asks = serve_asks_create();
    const struct serve_door door = {s, NULL, answer, NULL, NULL, &j, NULL};
    bool more = true;
    struct err e = {0};
    put_piece(s, 0, SERVE_TOKENIZE, SERVE_TOKENS_SIZE, false);
    put_piece(s, 0, SERVE_TOKENIZE, 1, true);
    put_piece(s, 1, SERVE_CHAT, SERVE_TOKENS_SIZE + 1, true);
    CHECK(s->n_bytes == SERVE_TOKENS_SIZE + 1);
    serve_asks_drop(s, 1);
    s->body_size = 16;
    s->bodies_size = 24;
    put_piece(s, 2, SERVE_CHAT, 16, true);
    put_piece(s, 3, SERVE_CHAT, 16, false); /* does not fit beside request 2 */
    put_piece(s, 4, SERVE_CHAT, 8, false);
    put_piece(s, 4, SERVE_CHAT, 9, false); /* is too large */
    CHECK(serve_asks_count(s, SERVE_IGNORED) == 2 && s->n_bytes == 16);
    for (uint64_t id = 3; id < 5; id++) put_piece(s, id, SERVE_CHAT, 1, true);
    check_no_room(false);
    check_no_room(true);
    while (more) CHECK(!serve_asks_send(s, &door, &more, &e));
    for (uint64_t id = 0; id < 5; id += id ? 1 : 3) {
        const struct told_answer *t = &j.told[id];
        CHECK_MSG(t->closed && t->status == (id == 3 ? 503 : 413) &&
                      strstr(t->text, id == 3 ? "\"code\":\"busy\"" : "\"code\":\"too_large\""),
                  "%d: %d %s", (int)id, t->status, t->text);
    }
    CHECK(strstr(j.told[4].text, "more than 16 bytes") && !s->first->next);
    serve_asks_destroy(s);
    free_told(&j);
}

/* Puts a request whose prompt is n letters between `before` and `after`, in one piece or
 * several. */
static void put_between(struct serve_asks *s, uint64_t id, const char *before, size_t n,
                        const char *after)
{
    static char text[4 * RANK_PIECE_SIZE + 64];
    const int head = snprintf(text, sizeof text, "{\"max_tokens\":1,\"prompt\":%s", before);
    memset(text + head, 'a', n);
    const size_t size = (size_t)head + n + strlen(after) + 1;
    snprintf(text + head + n, sizeof text - (size_t)head - n, "%s}", after);
    for (size_t at = 0, part; at < size; at += part) {
        part = size - at < RANK_PIECE_SIZE ? size - at : RANK_PIECE_SIZE;
        const struct rank_ask a = {.id = id,
                                   .endpoint = SERVE_COMPLETIONS,
                                   .adapter_named = ADAPTER_BASE,
                                   .size = (int32_t)part,
                                   .flags = at + part == size ? RANK_ASK_LAST : 0};
        serve_asks_take(s, &a, text + at);
    }
}

static void put_prompt(struct serve_asks *s, uint64_t id, size_t n)
{
    put_between(s, id, "\"", n, "\"");
}

static void read_until_idle(struct serve_reader *r, struct serve_asks *s, struct serve_result *out)
{
    do serve_read_some(r, s, out);
    while (serve_read_busy(r));
}

/* Checks lists with a long body: the thread finds the list, and reads its long prompt. */
static void check_long_lists(struct serve_reader *r, struct serve_asks *s, struct serve_result *out)
{
    const int64_t n_refused = out->n_refused;
    put_between(s, 10, "[\"b\",\"", 3 * RANK_PIECE_SIZE, "\",\"c\"]");
    serve_read_some(r, s, out);
    CHECK(serve_read_busy(r));
    read_until_idle(r, s, out);
    const struct serve_request *q = serve_asks_find(s, 10, -1);
    CHECK(q->status == 400 && strstr(q->out.data, "entry 1 of the list"));
    CHECK(out->n_refused == n_refused + 1 && !s->n_bytes);
    put_between(s, 11, "[\"b\",\"", 3 * RANK_PIECE_SIZE, "\"]");
    while (!serve_asks_find(s, 11, 1) || serve_asks_find(s, 11, 1)->state != SERVE_READ)
        serve_read_some(r, s, out);
    CHECK(serve_asks_find(s, 11, -1)->state == SERVE_SPLIT &&
          serve_asks_find(s, 11, 0)->state == SERVE_HELD);
    serve_asks_drop(s, 11); /* the thread reads its second prompt */
    read_until_idle(r, s, out);
    CHECK(!s->n_bytes && out->n_refused == n_refused + 1 && !serve_asks_find(s, 11, 1));
    put_between(s, 12, "[\"", 3 * RANK_PIECE_SIZE, "\",\"d\"]");
    read_until_idle(r, s, out);
    CHECK(serve_asks_find(s, 12, -1)->status == 400 && !s->n_bytes);
}

/* Checks long bodies, which a thread reads. No other body is read before its end. A request may be
 * dropped or refused in the meantime, and the job may end. */
static void test_long(void)
{
    static struct job j;
    static struct model m;
    struct serve_result out = {0};
    struct serve_reader r;
    job_of(&j, &shapes[0], 1, true);
    j.spec.data.seq_len = 64;
    struct serve_asks *s = serve_asks_create();
    const struct infer in = {.model = &m, .spec = &j.spec};
    serve_read_open(&r, &in, 4);
    put_prompt(s, 0, 3 * RANK_PIECE_SIZE);
    put_prompt(s, 1, 4);
    serve_read_some(&r, s, &out);
    CHECK(serve_read_busy(&r) && !serve_asks_next(s, SERVE_WHOLE));
    CHECK(serve_asks_count(s, SERVE_READ) == 2);
    read_until_idle(&r, s, &out);
    const struct serve_request *q = serve_asks_find(s, 0, -1);
    CHECK(q->state == SERVE_ENDED && q->status == 400 && out.n_refused == 1);
    CHECK(strstr(q->out.data, "context_length_exceeded"));
    CHECK(serve_asks_find(s, 1, -1)->state == SERVE_WAITS && !s->n_bytes);
    for (uint64_t id = 2; id < 4; id++) {
        put_prompt(s, id, 3 * RANK_PIECE_SIZE);
        serve_read_some(&r, s, &out);
        if (id == 2)
            serve_asks_drop(s, id);
        else
            serve_read_close(&r);
        read_until_idle(&r, s, &out);
        CHECK(!s->n_bytes && serve_asks_count(s, SERVE_READ) == 0);
    }
    CHECK(!serve_asks_find(s, 2, -1) && serve_asks_find(s, 3, -1)->status == 503 &&
          out.n_refused == 2);
    r.closed = false;
    check_long_lists(&r, s, &out);
    put_prompt(s, 4, 3 * RANK_PIECE_SIZE);
    serve_read_some(&r, s, &out);
    CHECK(serve_read_busy(&r));
    serve_read_fini(&r);
    serve_asks_destroy(s);
}

static void take_message(void *n, const struct rank_msg *h, const char *bytes)
{
    (void)bytes;
    *(int *)n += h->type == RANK_ASK;
}

/* Checks that a message that has come ends the wait for messages. */
static void test_link(void)
{
    static char room[LINK_ROOM];
    struct {
        struct rank_msg h;
        struct rank_ask a;
    } ask = {{RANK_ABI, RANK_ASK, 0, sizeof ask.a}, {.flags = RANK_ASK_LAST}};
    struct {
        struct rank_msg h;
        char why[3];
    } save = {{RANK_ABI, RANK_SAVE, 0, 3}, "ab"};
    struct link k;
    int fd[2], n = 0;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd));
    link_init(&k, fd[0]);
    k.take = take_message;
    k.take_arg = &n;
    k.room = room;
    link_wait(&k, 0, false);
    CHECK(n == 0 && send(fd[1], &ask, sizeof ask, 0) == sizeof ask);
    CHECK(send(fd[1], &ask, sizeof ask, 0) == sizeof ask);
    alarm(60); /* only ends a test that would hang */
    link_wait(&k, 1 << 30, false);
    CHECK(n == 2 && !link_saving(&k) && !*k.why);
    save.why[2] = 'c'; /* without its NUL */
    CHECK(send(fd[1], &save, sizeof save.h + 3, 0) > 0 && link_saving(&k));
    CHECK_STR(k.why, "ab");
    close(fd[1]);
    link_wait(&k, 1 << 30, false);
    CHECK(link_stopped(&k));
    alarm(0);
    close(fd[0]);
}

/* Checks a job that may not take any time to drain: open requests end with an error. */
static void test_drain(void)
{
    static struct job j;
    run_cases(&j, true);
    const struct told_answer *t = j.told;
    CHECK_MSG(t[0].status == 200 && t[0].closed && strstr(t[0].text, "\ndata: {\"error\":"), "%s",
              t[0].text);
    CHECK(t[0].stream);
    /* an error in place of a stream is no stream */
    for (int i = 1; i < 4; i++)
        CHECK_MSG(t[i].status == 503 && t[i].closed && !t[i].stream &&
                      !strncmp(t[i].text, "{\"error\":", 9),
                  "%d: %s", i, t[i].text);
    for (int i = 0; i < 2; i++)
        CHECK_MSG(strstr(t[i].text, "the job was suspended"), "%d: %s", i, t[i].text);
    CHECK(j.out.n_requests == 0 && j.out.n_refused == 4);
    free_told(&j);
}

int main(void)
{
    setenv("SEQD_LOG", "error", 0);
    log_init("test_serve");
    snprintf(scratch, sizeof scratch, "/tmp/test_serve.XXXXXX");
    CHECK(mkdtemp(scratch));
    put_batch();
    struct err e = {0};
    tokenizer_json = file_read("tests/golden/tokenizers/llama2.json", 1 << 20, &json_size, &e);
    CHECK_MSG(tokenizer_json, "%s", e.text);
    RUN(test_bits);
    RUN(test_cases);
    RUN(test_drain);
    RUN(test_memory);
    RUN(test_long);
    RUN(test_link);
    free(tokenizer_json);
    CHECK(!file_remove(scratch, &e));
    return test_done("serve");
}
