/* Checks generation and scoring over P ranks, which are threads on the real transport. The text
 * must not depend on P. Decoding must give the same logits as prefilling. Scores must equal scores
 * that are computed from the definition. */
#include <math.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "api/core/log.h"
#include "tests/lib/answer.h"
#include "tests/lib/param.h"
#include "tests/lib/prefill.h"
#include "tests/lib/tiny.h"
#include "worker/plan/check.h"
#include "worker/family/shape.h"
#include "worker/infer/agree.h"
#include "worker/infer/infer.h"
#include "worker/infer/prompts.h"
#include "worker/infer/score.h"
#include "worker/rank/roots.h"

#define ROOM       24
#define MAX_PROMPT 64

/* ---- generation ------------------------------------------------------------------------------ */

struct story {
    struct job_spec spec;
    int64_t n_prompt;
    int32_t prompt[MAX_PROMPT];
    /* the generated tokens, of rank 0 and of the last rank */
    int32_t text[2][ROOM];
    int64_t n[2];
    double decode_diff; /* the largest |decoded - prefilled| of a logit, over all tokens */
};

static struct job_spec *story_spec(struct story *s, int P, enum layout_id layout)
{
    struct job_spec *spec = &s->spec;
    struct err e = {0};
    spec_defaults(spec);
    shape_defaults(&spec->model.shape);
    spec->kind = JOB_GENERATE;
    spec->model.shape = tiny_shape;
    spec->seed = 3;
    spec->resources.ranks = P;
    spec->resources.threads = 1;
    spec->parallel.layout = P > 1 ? layout : LAYOUT_AUTO;
    spec->sampling.max_tokens = ROOM;
    spec->data.seq_len = MAX_PROMPT + ROOM;
    spec->input.prompt = tiny_text(spec, "x");
    CHECK_MSG(!family_check(spec, &e), "%s: %s", e.field, e.text);
    return spec;
}

/* Answers the given tokens with the sampling options of the job. */
static int answer_one(struct tiny_rank *t, const struct job_spec *spec, const int32_t *tokens,
                      int64_t n, bool reports, struct infer_answer *a, struct err *e)
{
    struct infer in = {.model = &t->model, .spec = spec};
    struct infer_work w;
    struct request r;
    if (infer_work_init(&w, &in, reports, e) || request_init(&r, n, e)) return -1;
    request_of_prompt(&r, spec, "", 0, 0);
    memcpy(r.tokens, tokens, (size_t)n * sizeof *tokens);
    r.n_tokens = n;
    int rc = answer_alone(&in, &w, &r, a, e);
    request_fini(&r);
    infer_work_fini(&w, 1);
    return rc;
}

static void continue_body(struct ranks *g, int rank, void *arg)
{
    struct story *s = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    int side = rank == 0 ? 0 : rank == g->P - 1 ? 1 : -1;
    struct infer_answer a = {0};
    int rc = tiny_open(t, &s->spec, g, rank, &e) ||
             answer_one(t, &s->spec, s->prompt, s->n_prompt, rank == 0, &a, &e);
    if (rc) ranks_fail(g, rank, &e);
    if (side >= 0 && !rc) {
        s->n[side] = a.choice[0].tokens.n;
        memcpy(s->text[side], a.choice[0].tokens.id, (size_t)s->n[side] * sizeof(int32_t));
    }
    infer_answer_fini(&a);
    tiny_close(t);
    free(t);
}

/* Damages the head of one rank. The rank that owns the last row of the prompt computes the logits
 * after the prompt for all ranks. Each rank computes all later logits itself. */
static void damage(struct ranks *g, int rank, struct story *s, float by, const char *chose)
{
    struct tiny_rank *t = malloc(sizeof *t);
    struct infer_answer a = {0};
    struct err e = {0};
    int rc = tiny_open(t, &s->spec, g, rank, &e);
    float *head = (float *)t->model.params + param_named(&tiny_shape, "lm_head.weight").offset;
    for (int64_t i = 0; rank == g->P - 2 && i < tiny_shape.vocab * tiny_shape.width; i++)
        head[i] *= by;
    if (!rc) rc = answer_one(t, &s->spec, s->prompt, s->n_prompt, rank == 0, &a, &e);
    CHECK(rc == -1 && e.code == ERR_CORRUPT);
    char want[64];
    snprintf(want, sizeof want, "rank %d %s", g->P - 2, chose);
    CHECK_MSG(strstr(e.text, want) && strstr(e.text, "after token 8 of prompt 0"), "%s", e.text);
    tiny_close(t);
    free(t);
}
static void damaged_body(struct ranks *g, int rank, void *arg)
{
    damage(g, rank, arg, -1, "chose");
}
static void damaged_nan_body(struct ranks *g, int rank, void *arg)
{
    damage(g, rank, arg, NAN, "has logits that are NaN or infinity");
}

/* The tokens that ranks choose for the rows of a step, and the expected result of comparing
 * them. */
struct row_choices {
    int64_t token[3][3]; /* [rank][row] */
    int first;           /* -1 means an error that contains the words below */
    const char *rank, *prompt;
};

static const struct row_choices rounds[] = {
    {{{7, 8, 9}, {7, 8, 9}, {7, 8, 9}}, 3, NULL, NULL},
    {{{7, 8, 9}, {7, 8, 9}, {7, 5, 4}}, -1, "rank 2 chose token 5", "after token 11 of prompt b"},
    {{{6, 8, 9}, {7, 8, 9}, {7, 5, 9}}, -1, "rank 0 chose token 6", "after token 10 of prompt a"},
    {{{7, 8, 9}, {7, 8, -1}, {7, 8, 9}}, -1, "rank 1 has logits", "after token 12 of prompt c"},
    {{{7, -1, 9}, {7, -1, 9}, {7, -1, 4}}, 1, NULL, NULL},
};

static void agree_body(struct ranks *g, int rank, void *arg)
{
    static const char *const id[3] = {"a", "b", "c"};
    struct comm *c = g->comm[rank];
    (void)arg;
    for (size_t k = 0; k < sizeof rounds / sizeof *rounds; k++) {
        const struct row_choices *x = &rounds[k];
        struct agree_choice own[3];
        struct err e = {0};
        for (int i = 0; i < 3; i++)
            own[i] = (struct agree_choice){x->token[rank][i], id[i], 10 + i};
        CHECK(agree_on(c, comm_segment(c), own, 3, &e) == x->first);
        CHECK_MSG(!x->rank || (e.code == ERR_CORRUPT && strstr(e.text, x->rank) &&
                               strstr(e.text, x->prompt)),
                  "%s", e.text);
    }
    CHECK(comm_ledger(c)[PURPOSE_CONTROL].messages_sent == 2 * (sizeof rounds / sizeof *rounds));
}

/* Checks rows in which ranks differ. The error must name the prompt of the first such row and a
 * rank, even if a later row is not finite. */
static void test_agree(void)
{
    struct ranks g;
    ranks_open(&g, 3, comm_bounce_size(3), NULL);
    ranks_run(&g, agree_body, NULL);
    ranks_check(&g);
    ranks_close(&g);
}

/* Weights and prompt are finite, but the squares of the chosen token's embedding overflow.
 * When the chosen token is decoded again to find the fault, the first operation that overflows
 * must be named. */
static void overflow_body(struct ranks *g, int rank, void *arg)
{
    struct story *s = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct infer_answer a = {0};
    struct err e = {0};
    int rc = tiny_open(t, &s->spec, g, rank, &e);
    float *embed = (float *)t->model.params +
                   param_named(&tiny_shape, "model.embed_tokens.weight").offset;
    for (int64_t i = 0; i < tiny_shape.vocab * tiny_shape.width; i++) {
        const int64_t id = i / tiny_shape.width;
        if ((id < 'a' || id > 'z') && id != TOKEN_PAD) embed[i] *= 1e37f;
    }
    if (!rc) rc = answer_one(t, &s->spec, s->prompt, s->n_prompt, rank == 0, &a, &e);
    CHECK(rc == -1 && e.code == ERR_CORRUPT);
    CHECK_STR(e.text,
              "a logit after token 8 of prompt 0 is NaN or infinity though all weights are "
              "finite, and first so is the output of model.layers.0.input_layernorm.weight: "
              "use weights that are not too large");
    tiny_close(t);
    free(t);
}

static int64_t segment_of(const struct job_spec *spec)
{
    static struct plan p;
    struct err e = {0};
    CHECK_MSG(!plan_make(spec, 0, &p, &e), "%s", e.text);
    return p.segment_size;
}

static void tell(struct story *s, int P, enum layout_id layout,
                 void (*body)(struct ranks *, int, void *))
{
    struct ranks g;
    ranks_open(&g, P, segment_of(&s->spec), NULL);
    ranks_run(&g, body, s);
    ranks_check(&g);
    ranks_close(&g);
}

static void fill_prompt(struct story *s, int64_t n)
{
    s->n_prompt = n;
    for (int64_t i = 0; i < n; i++) s->prompt[i] = (int32_t)(97 + i * i % 23);
}

static void compare_texts(double temperature)
{
    static struct story one, many;
    static const int64_t lengths[] = {1, 2, 3, 7, 37};
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        story_spec(&one, 1, LAYOUT_AUTO)->sampling.temperature = temperature;
        fill_prompt(&one, lengths[k]);
        tell(&one, 1, LAYOUT_AUTO, continue_body);
        CHECK(one.n[0] > 0);
        for (int P = 2; P <= 4; P++)
            for (int layout = LAYOUT_CONTIGUOUS; layout < LAYOUT_N; layout++) {
                story_spec(&many, P, layout)->sampling.temperature = temperature;
                fill_prompt(&many, lengths[k]);
                tell(&many, P, layout, continue_body);
                for (int side = 0; side < 2; side++)
                    CHECK_MSG(many.n[side] == one.n[0] &&
                                  !memcmp(many.text[side], one.text[0],
                                          (size_t)one.n[0] * sizeof one.text[0][0]),
                              "prompt of %lld, P %d, layout %d, side %d", (long long)lengths[k], P,
                              layout, side);
            }
    }
}

static void test_greedy_same_on_any_ranks(void)
{
    compare_texts(0);
}

static void test_temperature_same_on_any_ranks(void)
{
    compare_texts(0.8);
}

/* Appends ROOM given tokens. Compares the logits of every step with the logits of a prefill of all
 * tokens so far. */
static void decode_body(struct ranks *g, int rank, void *arg)
{
    struct story *s = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    const int64_t V = tiny_shape.vocab;
    float *decoded = calloc(ROOM * (size_t)V, sizeof *decoded),
          *want = calloc((size_t)V, sizeof *want);
    int32_t all[MAX_PROMPT + ROOM];
    double worst = 0;
    int rc = tiny_open(t, &s->spec, g, rank, &e);
    struct infer in = {.model = &t->model, .spec = &s->spec};
    memcpy(all, s->prompt, sizeof s->prompt);
    for (int64_t i = 0; i < ROOM; i++) all[s->n_prompt + i] = (int32_t)(32 + i * 7 % 90);
    if (!rc) rc = prefill(&in, all, s->n_prompt, want, &e);
    for (int64_t i = 0; i < ROOM && !rc; i++) {
        struct tensor logits;
        rc = model_decode(&t->model, all[s->n_prompt + i], &logits, &e);
        if (!rc) memcpy(decoded + i * V, logits.data, (size_t)V * sizeof *decoded);
    }
    for (int64_t i = 0; i < ROOM && !rc; i++) {
        rc = prefill(&in, all, s->n_prompt + i + 1, want, &e);
        for (int64_t v = 0; v < V && !rc; v++)
            worst = fmax(worst, fabs((double)decoded[i * V + v] - (double)want[v]));
    }
    if (rc) ranks_fail(g, rank, &e);
    if (rank == g->P - 1) s->decode_diff = worst;
    free(decoded);
    free(want);
    tiny_close(t);
    free(t);
}

/* Compares decoding with prefilling. `window` is the number of keys that a token sees; 0 means
 * that it sees all keys. `form` is the form of attention in the prefill. */
static void compare_decoding(int64_t window, enum form_id form)
{
    static struct story s;
    static const int64_t lengths[] = {1, 5, 37};
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
        for (int P = 1; P <= 4; P++) {
            enum layout_id layout = k % 2 ? LAYOUT_CONTIGUOUS : LAYOUT_ZIGZAG;
            struct job_spec *spec = story_spec(&s, P, layout);
            spec->model.shape.window = window;
            spec->parallel.form = form;
            fill_prompt(&s, lengths[k]);
            tell(&s, P, layout, decode_body);
            CHECK_MSG(s.decode_diff <= 1e-4,
                      "prompt of %lld, P %d, window %lld: logits differ by %g",
                      (long long)lengths[k], P, (long long)window, s.decode_diff);
        }
}

static void test_decode_equals_prefill(void)
{
    compare_decoding(0, FORM_BLOCKWISE);
}

/* Checks a window that is shorter than the prompt, a window that is shorter than the decoded text,
 * and a window of a single token. */
static void test_decode_in_a_window(void)
{
    compare_decoding(1, FORM_BLOCKWISE);
    compare_decoding(6, FORM_ALL_GATHER);
    compare_decoding(23, FORM_TWO_PASS);
}

static void long_body(struct ranks *g, int rank, void *arg)
{
    struct story *s = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    int32_t *tokens = calloc(MAX_PROMPT + ROOM + 1, sizeof *tokens);
    struct infer_answer a;
    CHECK(!tiny_open(t, &s->spec, g, rank, &e));
    CHECK(answer_one(t, &s->spec, tokens, t->plan.S + 1, true, &a, &e) == -1);
    CHECK(e.code == ERR_TOO_LARGE);
    CHECK_STR(e.field, "data.seq_len");
    free(tokens);
    tiny_close(t);
    free(t);
}

/* Checks that every rank, including the damaged one, names the rank that differs. */
static void test_damaged_rank_is_named(void)
{
    static struct story s;
    for (int P = 3; P <= 4; P++) {
        story_spec(&s, P, LAYOUT_CONTIGUOUS);
        fill_prompt(&s, 7);
        tell(&s, P, LAYOUT_CONTIGUOUS, damaged_body);
        tell(&s, P, LAYOUT_CONTIGUOUS, damaged_nan_body);
    }
}

static void test_overflow_is_found(void)
{
    static struct story s;
    for (int P = 1; P <= 3; P++) {
        story_spec(&s, P, LAYOUT_ZIGZAG);
        fill_prompt(&s, 7);
        tell(&s, P, LAYOUT_ZIGZAG, overflow_body);
    }
}

static void test_prompt_too_long(void)
{
    static struct story s;
    story_spec(&s, 1, LAYOUT_AUTO);
    tell(&s, 1, LAYOUT_AUTO, long_body);
}

/* ---- scoring --------------------------------------------------------------------------------- */

#define N_DOCS 5
static const char *const docs[N_DOCS] = {"hello", "a", "the quick brown fox", "ab ab ab", "end"};

static char scratch[64];

struct reading {
    struct job_spec spec;
    char id[80];
    struct score out;
    bool want_plain;
    struct score_sum want[N_DOCS]; /* the sums by the definition, if requested */
};

/* Scores document d by the definition. For each token, the tokens before it are prefilled. The
 * score of the token is -log softmax of the resulting logits. The bytes of a document are all
 * bytes of its text. */
static int plain_score(struct tiny_rank *t, const struct job_spec *spec, const char *doc,
                       struct score_sum *out, struct err *e)
{
    struct infer in = {.model = &t->model, .spec = spec};
    const int64_t V = tiny_shape.vocab, n = (int64_t)strlen(doc) + 1;
    float *logits = malloc((size_t)V * sizeof *logits);
    int32_t tokens[64];
    int rc = 0;
    for (int64_t i = 0; i < n; i++) tokens[i] = i + 1 < n ? (unsigned char)doc[i] : 256;
    out->n_bytes = n - 1;
    for (int64_t i = 1; i < n && !rc; i++) {
        rc = prefill(&in, tokens, i, logits, e);
        double top = -INFINITY, sum = 0;
        for (int64_t v = 0; v < V; v++) top = fmax(top, (double)logits[v]);
        for (int64_t v = 0; v < V; v++) sum += exp((double)logits[v] - top);
        out->nll += log(sum) + top - (double)logits[tokens[i]];
        out->n_targets++;
    }
    free(logits);
    return rc;
}

static void score_body(struct ranks *g, int rank, void *arg)
{
    struct reading *r = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    struct score out;
    struct data *d = data_open(scratch, r->id, DATA_TRUST, &e);
    int rc = !d || tiny_open(t, &r->spec, g, rank, &e);
    struct infer in = {.model = &t->model, .spec = &r->spec, .job_dir = scratch};
    if (!rc) rc = score_run(&in, d, &out, &e);
    if (!rc && rank == 0) r->out = out;
    for (int i = 0; i < N_DOCS && r->want_plain && !rc; i++)
        rc = plain_score(t, &r->spec, docs[i], &r->want[i], &e);
    if (rc) ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
    data_close(d);
}

static void read_spec(struct reading *r, int P, int64_t seq_len)
{
    struct err e = {0};
    char path[128];
    struct data_stats st;
    const char *roots[] = {scratch};
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    *r = (struct reading){0};
    spec_defaults(&r->spec);
    shape_defaults(&r->spec.model.shape);
    r->spec.kind = JOB_SCORE;
    r->spec.model.shape = tiny_shape;
    r->spec.seed = 3;
    r->spec.resources.ranks = P;
    r->spec.resources.threads = 1;
    r->spec.data.seq_len = seq_len;
    r->spec.data.document_mask = r->spec.data.reset_positions = 1;
    r->spec.input.source.path = tiny_text(&r->spec, path);
    r->spec.input.source.text_key = tiny_text(&r->spec, "text");
    r->spec.input.source.format = DATA_JSONL;
    CHECK_MSG(!family_check(&r->spec, &e), "%s: %s", e.field, e.text);
    CHECK_MSG(!data_prepare(&r->spec, NULL, roots, 1, scratch, NULL, &st, &e), "%s", e.text);
    snprintf(r->id, sizeof r->id, "%s", st.id);
}

static void score_once(struct reading *r, int P)
{
    struct ranks g;
    ranks_open(&g, P, segment_of(&r->spec), NULL);
    ranks_run(&g, score_body, r);
    ranks_check(&g);
    ranks_close(&g);
}

static void test_score(void)
{
    static struct reading one, many;
    struct score_sum want = {0};
    read_spec(&one, 1, 64);
    one.want_plain = true;
    score_once(&one, 1);
    for (int i = 0; i < N_DOCS; i++) {
        want.nll += one.want[i].nll;
        want.n_targets += one.want[i].n_targets;
        want.n_bytes += one.want[i].n_bytes;
    }
    CHECK(one.out.n_windows == 1 && one.out.n_documents == N_DOCS && want.n_targets > 30);
    CHECK(one.out.total.n_targets == want.n_targets && one.out.total.n_bytes == want.n_bytes);
    /* The score is a mean of 40 cross-entropies of about 6 in fp32. 1e-6 is ten times their
     * rounding error. */
    CHECK_MSG(fabs(one.out.total.nll - want.nll) < 1e-6 * want.nll, "%.12g, not %.12g",
              one.out.total.nll, want.nll);
    for (int64_t S = 7; S <= 64; S += 19)
        for (int P = 2; P <= 4; P++) {
            read_spec(&one, 1, S);
            score_once(&one, 1);
            read_spec(&many, P, S);
            score_once(&many, P);
            CHECK(many.out.ledger_equal);
            CHECK(many.out.total.n_targets == one.out.total.n_targets);
            CHECK_MSG(fabs(many.out.total.nll - one.out.total.nll) < 1e-6 * one.out.total.nll,
                      "S %lld, P %d: %.12g, not %.12g", (long long)S, P, many.out.total.nll,
                      one.out.total.nll);
        }
}

/* ---- prompts and roots ----------------------------------------------------------------------- */

static void put(const char *name, const char *content, size_t size)
{
    char path[128];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    CHECK_MSG(!file_write(path, content, size, &e), "%s", e.text);
}

/* Reads prompts from a file beneath scratch. Returns -1 with the reason in e if that fails. */
static int read_prompts(struct prompts *p, const char *name, int format, struct err *e)
{
    static struct job_spec s;
    const char *roots[] = {scratch};
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    memset(&s, 0, sizeof s);
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    s.kind = JOB_GENERATE;
    s.input.source.path = tiny_text(&s, path);
    s.input.source.text_key = tiny_text(&s, "q");
    s.input.source.format = format;
    *e = (struct err){0};
    return prompts_read(p, &s, roots, 1, e);
}

static void expect_prompt(const struct prompts *p, int i, const char *want, int64_t want_size)
{
    int64_t size;
    const char *got = prompts_at(p, i, &size);
    CHECK_MSG(size == want_size && !memcmp(got, want, (size_t)size), "prompt %d: %.*s", i,
              (int)size, got);
}

static void test_prompts(void)
{
    struct prompts p;
    struct err e;
    put("one.txt", "two\nlines\0x", 11);
    CHECK_MSG(!read_prompts(&p, "one.txt", DATA_TEXT, &e), "%s", e.text);
    CHECK(p.n == 1);
    expect_prompt(&p, 0, "two\nlines\0x", 11);
    prompts_fini(&p);
    const char good[] =
        "{\"q\":\"a\\u00e9\\n\"}\n\n  \n{\"x\":[1,{\"q\":2}],\"q\":\"b\"}\r\n{\"q\":\"c\"}";
    put("good.jsonl", good, strlen(good));
    CHECK_MSG(!read_prompts(&p, "good.jsonl", DATA_JSONL, &e), "%s", e.text);
    CHECK(p.n == 3);
    expect_prompt(&p, 0, "a\xC3\xA9\n", 4);
    expect_prompt(&p, 1, "b", 1);
    expect_prompt(&p, 2, "c", 1);
    prompts_fini(&p);
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"", "no prompt"},
        {"{\"q\":\"a\"}\n{\"q\":\"\"}\n", "line 2: the prompt is empty"},
        {"{\"q\":\"a\"}\n{\"p\":\"b\"}\n", "line 2: there is no \"q\""},
        {"{\"q\":7}\n", "line 1: want one string"},
        {"{\"q\":\"a\",\"q\":\"b\"}\n", "line 1: want one string"},
        {"[\"q\"]\n", "line 1: want a JSON object"},
        {"{\"q\":\"a\"\n", "line 1"},
        {"{\"q\":\"a\"} x\n", "line 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("bad.jsonl", bad[i].text, strlen(bad[i].text));
        CHECK_MSG(read_prompts(&p, "bad.jsonl", DATA_JSONL, &e) == -1, "%s", bad[i].text);
        CHECK_MSG(strstr(e.text, bad[i].part), "\"%s\", not \"%s\"", e.text, bad[i].part);
        CHECK_MSG(!strncmp(e.field, "input", 5), "field %s", e.field);
        CHECK(!p.text && !p.end);
    }
    /* the first bytes show that this is not a text */
    for (int format = 0; format < DATA_FORMAT_N; format++) {
        put("gz.jsonl", "\037\213\010\0\n{}", 7);
        CHECK(read_prompts(&p, "gz.jsonl", format, &e) == -1 && e.code == ERR_INVALID);
        CHECK_MSG(
            strstr(e.text, "gz.jsonl is a gzip file, which is not read: convert it: name it "),
            "%s", e.text);
        CHECK_STR(e.field, "input.path");
        CHECK(!p.text && !p.end);
    }
    CHECK(read_prompts(&p, "absent.txt", DATA_TEXT, &e) == -1 && e.code == ERR_NOT_FOUND);
    CHECK(read_prompts(&p, "../../etc/passwd", DATA_TEXT, &e) == -1 && e.code == ERR_INVALID);
}

static void test_roots(void)
{
    char path[128], link[128], out[RANK_PATH_SIZE];
    const char *roots[] = {"/no/such/root", scratch};
    struct err e = {0};
    snprintf(path, sizeof path, "%s/m/hf", scratch);
    CHECK(!file_make_dir(path, &e));
    CHECK_MSG(!roots_directory(path, roots, 2, "model.path", out, &e), "%s", e.text);
    CHECK_STR(out, path);
    CHECK(!roots_directory("m/../m/hf", roots, 2, "model.path", out, &e));
    CHECK_STR(out, path);
    snprintf(link, sizeof link, "%s/out", scratch);
    CHECK(!symlink("/etc", link));
    CHECK(roots_directory(link, roots, 2, "model.path", out, &e) == -1);
    CHECK(e.code == ERR_INVALID);
    CHECK_STR(e.field, "model.path");
    CHECK(roots_directory("../..", roots, 2, "model.path", out, &e) == -1);
    CHECK(e.code == ERR_INVALID);
    put("m/file", "x", 1);
    CHECK(roots_directory("m/file", roots, 2, "model.path", out, &e) == -1);
    CHECK_MSG(strstr(e.text, "not a directory"), "%s", e.text);
    CHECK(roots_directory("m/none", roots, 2, "model.path", out, &e) == -1);
    CHECK(e.code == ERR_NOT_FOUND);
    /* A model is a directory or a GGUF file. */
    CHECK(!roots_model("m", roots, 2, out, &e) && !roots_model("m/file", roots, 2, out, &e));
    CHECK(strstr(out, "/m/file"));
    CHECK(roots_model("out/passwd", roots, 2, out, &e) == -1 && e.code == ERR_INVALID);
    CHECK_STR(e.field, "model.path");
    snprintf(path, sizeof path, "%s/m/pipe", scratch);
    CHECK(!mkfifo(path, 0600) && roots_model(path, roots, 2, out, &e) == -1);
    CHECK_MSG(strstr(e.text, "not a directory or a .gguf file"), "%s", e.text);
}

static void write_docs(void)
{
    char path[128], text[1024] = "";
    struct err e = {0};
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    for (int i = 0; i < N_DOCS; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "{\"text\":\"%s\"}\n", docs[i]);
    }
    CHECK_MSG(!file_write(path, text, strlen(text), &e), "%s", e.text);
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_infer");
    snprintf(scratch, sizeof scratch, "/tmp/test_infer.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    RUN(test_greedy_same_on_any_ranks);
    RUN(test_temperature_same_on_any_ranks);
    RUN(test_decode_equals_prefill);
    RUN(test_decode_in_a_window);
    RUN(test_damaged_rank_is_named);
    RUN(test_overflow_is_found);
    RUN(test_agree);
    RUN(test_prompt_too_long);
    RUN(test_score);
    RUN(test_prompts);
    RUN(test_roots);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("infer");
}
