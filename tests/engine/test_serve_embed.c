/* test_serve_embed.c: checks that a serve job of vectors answers each text with the bits of an
 * embed job that computes each document alone, on one rank and on two. Checks the two encodings,
 * lists, the counts of messages, the memory, and the errors of requests. */
#include <stdlib.h>

#include "api/core/log.h"
#include "tests/lib/reading.h"
#include "worker/data/npy_head.h"
#include "worker/infer/serve.h"

static char scratch[64];
static const char *const docs[] = {"hello", "a", "the quick brown fox", "xyzzy plugh, and more"};
#define N_DOCS ((int)(sizeof docs / sizeof *docs))
#define C      48
#define S      40

/* clang-format off */
static const struct {
    uint32_t endpoint;
    const char *body;
    int status;
    const char *says; /* a part of the answer */
} cases[] = {
    {SERVE_EMBEDDINGS, "{\"input\":\"a\",\"dimensions\":48,\"user\":\"u\"}", 200, "\"usage\":{\"prompt_tokens\":1,\"total_tokens\":1}}"},
    {SERVE_EMBEDDINGS, "{\"input\":\"a\",\"dimensions\":47}", 400, "\"param\":\"dimensions\""},
    {SERVE_EMBEDDINGS, "{\"input\":\"a\",\"encoding_format\":\"int8\"}", 400, "\"param\":\"encoding_format\""},
    {SERVE_EMBEDDINGS, "{\"input\":\"\"}", 400, "\"param\":\"input\""},
    {SERVE_EMBEDDINGS, "{\"input\":[]}", 400, "\"param\":\"input\""},
    {SERVE_EMBEDDINGS, "{\"input\":5}", 400, "a list of strings"},
    {SERVE_EMBEDDINGS, "{\"input\":[\"a\",[1]]}", 400, "a list of strings"},
    {SERVE_EMBEDDINGS, "{\"input\":[300]}", 400, "the vocabulary has"},
    {SERVE_EMBEDDINGS, "{\"model\":\"m\"}", 400, "input is missing"},
    {SERVE_EMBEDDINGS, "{\"input\":\"a\",\"input\":\"b\"}", 400, "input occurs twice"},
    {SERVE_EMBEDDINGS, "{\"input\":\"a\",\"n\":1}", 400, "\"param\":\"n\""},
    {SERVE_EMBEDDINGS, "{\"input\":\"a\"", 400, "\"param\":\"body\""},
    {SERVE_EMBEDDINGS, "{\"input\":[\"a\",\"\"]}", 400, "entry 1 of the list: input is empty"},
    {SERVE_EMBEDDINGS, "{\"input\":\"0123456789012345678901234567890123456789x\"}", 400, "\"code\":\"context_length_exceeded\""},
    {SERVE_COMPLETIONS, "{\"prompt\":\"a\"}", 400, "ask /openai/v1/embeddings"},
    {SERVE_TOKENIZE, "{\"prompt\":\"a\"}", 200, "\"tokens\":[97]"},
};
/* clang-format on */
enum {
    N_CASES = sizeof cases / sizeof *cases,
    LIST = N_CASES, /* all texts, as numbers */
    ALONE,          /* each text, as base64 */
    N_TOLD = ALONE + N_DOCS
};

struct told_answer {
    char *text;
    size_t size;
    int status;
    bool closed;
};

struct job {
    struct job_spec spec;
    struct serve_asks *asks;
    bool asked;
    struct told_answer told[N_TOLD];
    struct serve_result out;
};

/* ---- the door -------------------------------------------------------------------------------- */

static void ask(struct job *j, int id, uint32_t endpoint, const char *text)
{
    const struct rank_ask a = {.id = (uint64_t)id,
                               .endpoint = endpoint,
                               .flags = RANK_ASK_LAST,
                               .adapter_named = -1,
                               .size = (int32_t)strlen(text),
                               .model = "job\"s"};
    serve_asks_take(j->asks, &a, text);
}

static int receive(void *arg, int wait_ms, bool room, struct err *e)
{
    struct job *j = arg;
    char list[512] = "{\"input\":[", one[128];
    (void)wait_ms, (void)room, (void)e;
    if (j->asked) return 0;
    j->asked = true;
    for (int i = 0; i < N_CASES; i++) ask(j, i, cases[i].endpoint, cases[i].body);
    for (int i = 0; i < N_DOCS; i++) {
        sprintf(list + strlen(list), "%s\"%s\"", i ? "," : "", docs[i]);
        snprintf(one, sizeof one, "{\"encoding_format\":\"base64\",\"input\":[\"%s\"]}", docs[i]);
        ask(j, ALONE + i, SERVE_EMBEDDINGS, one);
    }
    strcat(list, "]}");
    ask(j, LIST, SERVE_EMBEDDINGS, list);
    return 0;
}

static int answer(void *arg, const struct rank_answer *a, const char *bytes, struct err *e)
{
    struct told_answer *t = &((struct job *)arg)->told[a->id];
    (void)e;
    CHECK(a->id < N_TOLD && !t->closed && !(a->flags & RANK_ANSWER_STREAM));
    if (a->status) t->status = a->status;
    if (a->flags & RANK_ANSWER_LAST) t->closed = true;
    t->text = realloc(t->text, t->size + (size_t)a->size + 1);
    memcpy(t->text + t->size, bytes, (size_t)a->size);
    t->size += (size_t)a->size;
    t->text[t->size] = 0;
    return 1;
}

static const char *draining(void *arg)
{
    const struct job *j = arg;
    for (int i = 0; i < N_TOLD; i++)
        if (!j->told[i].closed) return NULL;
    return "the test ends";
}

static int64_t now_us(void *arg)
{
    (void)arg;
    return 1;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct tiny_rank *t = calloc(1, sizeof *t);
    struct err e = {0};
    struct serve_result out = {0};
    struct told told;
    int rc = tiny_open(t, &j->spec, g, rank, &e);
    told_open(&told);
    const struct serve_door door = {j->asks, receive, answer, draining, now_us, j};
    struct infer in = {.model = &t->model, .spec = &j->spec, .progress = &told.p};
    if (!rc) rc = serve_run(&in, rank ? NULL : &door, &out, &e);
    if (rc) ranks_fail(g, rank, &e);
    CHECK(rc || out.ledger_equal);
    CHECK(rc || t->model.placed_size == t->plan.arena_size + t->plan.segment_size);
    if (!rank) j->out = out;
    tiny_close(t);
    free(t);
}

static void set_family(struct model_shape *m, int family)
{
    struct err e = {0};
    m->family = family;
    if (family == FAMILY_LLAMA) return;
    m->n_kv_heads = m->n_heads;
    m->max_pos = 64;
    m->tied = 1;
    CHECK_MSG(!family_complete(m, &e), "%s", e.text);
}

/* Runs the embed job. want gets its vectors. */
static void run_embed(int family, int pooling, int P, float want[N_DOCS][C])
{
    static struct reading_embed r;
    char path[128];
    size_t size;
    r = (struct reading_embed){.parent = scratch};
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    snprintf(r.dir, sizeof r.dir, "%s/job%d%d", scratch, family, P);
    reading_spec(&r.spec, JOB_EMBED, scratch, path, P, S);
    set_family(&r.spec.model.shape, family);
    r.spec.embed.pooling = pooling;
    r.spec.data.packing = PACKING_NONE;
    reading_prepare(&r.spec, scratch, r.id);
    reading_run(&r.spec, P, reading_embed, &r);
    char *text = reading_artifact(r.dir, "embeddings.npy", &size);
    CHECK(size == NPY_HEAD + sizeof(float[N_DOCS][C]));
    if (size == NPY_HEAD + sizeof(float[N_DOCS][C]))
        memcpy(want, text + NPY_HEAD, sizeof(float[N_DOCS][C]));
    free(text);
}

static void run_serve(struct job *j, int family, int pooling, int P)
{
    struct err e = {0};
    *j = (struct job){.asks = serve_asks_create()};
    reading_spec(&j->spec, JOB_SERVE, scratch, "", P, S);
    j->spec.input.source = (struct spec_source){.eod = -1};
    set_family(&j->spec.model.shape, family);
    j->spec.embed.pooling = pooling;
    j->spec.serve.task = pooling == POOLING_LAST ? SERVE_TASK_EMBED : SERVE_TASK_AUTO;
    CHECK_MSG(!family_check(&j->spec, &e), "%s: %s", e.field, e.text);
    CHECK(job_embeds(&j->spec) && j->spec.model.shape.no_head);
    reading_run(&j->spec, P, body, j);
    serve_asks_destroy(j->asks);
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char *vector_of(const struct told_answer *t, int index)
{
    char head[80];
    snprintf(head, sizeof head, "{\"object\":\"embedding\",\"index\":%d,\"embedding\":", index);
    const char *at = t->text ? strstr(t->text, head) : NULL;
    CHECK_MSG(at, "%s", t->text);
    return at ? at + strlen(head) : "";
}

static void check_numbers(const struct told_answer *t, int index, const float *want)
{
    const char *at = vector_of(t, index);
    for (int c = 0; c < C; c++) {
        char *end;
        CHECK(*at == (c ? ',' : '['));
        if (!*at) return;
        const float is = strtof(at + 1, &end);
        CHECK_MSG(!memcmp(&is, &want[c], sizeof is), "element %d of %d: %.9g, want %.9g", c, index,
                  (double)is, (double)want[c]);
        at = end;
    }
    CHECK(*at == ']');
}

static void check_base64(const struct told_answer *t, const float *want)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char is[sizeof(float[C]) + 3];
    const char *at = vector_of(t, 0);
    size_t n = 0;
    uint32_t bits = 0;
    CHECK(*at++ == '"' && strcspn(at, "\"") == (sizeof(float[C]) + 2) / 3 * 4);
    for (int k = 0; *at && *at != '"'; at++, k++) {
        const char *d = strchr(digits, *at);
        bits = bits << 6 | (d ? (uint32_t)(d - digits) : 0);
        if (k % 4 != 3 || n + 3 > sizeof is) continue;
        for (int i = 16; i >= 0; i -= 8) is[n++] = (unsigned char)(bits >> i);
    }
    CHECK(n >= sizeof(float[C]) && !memcmp(is, want, sizeof(float[C])));
}

static void check_answers(const struct job *j, float want[N_DOCS][C])
{
    char usage[80];
    int n = 0;
    for (int i = 0; i < N_CASES; i++) {
        const struct told_answer *t = &j->told[i];
        CHECK_MSG(t->status == cases[i].status && t->text && strstr(t->text, cases[i].says),
                  "case %d: %d %s", i, t->status, t->text);
    }
    for (int i = 0; i < N_DOCS; i++) {
        CHECK(j->told[ALONE + i].status == 200);
        check_base64(&j->told[ALONE + i], want[i]);
        check_numbers(&j->told[LIST], i, want[i]);
        n += (int)strlen(docs[i]);
    }
    snprintf(usage, sizeof usage, "],\"model\":\"job\\\"s\",\"usage\":{\"prompt_tokens\":%d,", n);
    CHECK_MSG(strstr(j->told[LIST].text, usage), "%s", j->told[LIST].text);
    CHECK(!strncmp(j->told[LIST].text, "{\"object\":\"list\",\"data\":[{", 26));
    CHECK(j->out.n_requests == N_DOCS + 3 && j->out.n_refused == N_CASES - 2);
    CHECK(j->out.n_prompt_tokens == 2 * n + 1);
}

static void test_vectors(void)
{
    static struct job j;
    static const struct {
        int family, pooling;
    } models[] = {{FAMILY_LLAMA, POOLING_LAST}, {FAMILY_BERT, POOLING_MEAN}};
    float want[N_DOCS][C];
    for (int m = 0; m < 2; m++)
        for (int P = 1; P <= 2; P++) {
            run_embed(models[m].family, models[m].pooling, P, want);
            run_serve(&j, models[m].family, models[m].pooling, P);
            check_answers(&j, want);
            for (int i = 0; i < N_TOLD; i++) free(j.told[i].text);
        }
}

int main(void)
{
    char path[128], text[512] = "";
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_serve_embed");
    snprintf(scratch, sizeof scratch, "/tmp/test_serve_embed.XXXXXX");
    CHECK(mkdtemp(scratch));
    for (int i = 0; i < N_DOCS; i++) sprintf(text + strlen(text), "{\"text\":\"%s\"}\n", docs[i]);
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, strlen(text), &e), "%s", e.text);
    RUN(test_vectors);
    CHECK(!file_remove(scratch, &e));
    return test_done("serve_embed");
}
