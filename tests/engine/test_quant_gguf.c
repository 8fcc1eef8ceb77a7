/* test_quant_gguf: checks GGUF files whose tensors have blocks and are loaded into blocks
 * (model.weights). The values of Q4_0, Q4_1 and Q8_0 must not change if the format of the weight
 * can hold them, for any number of threads, in slices and in stages. The results of a job must
 * then have the same bits as with these values in fp32. For other pairs of types, the values are
 * quantised like plain numbers. The error for a number that exceeds fp16 must name the number's
 * tensor. */
#include <fcntl.h>
#include <unistd.h>
#include "tests/lib/gguf_model.h"
#include "tests/lib/prefill.h"
#include "tests/lib/tiny.h"
#include "worker/ckpt/scatter.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/model/finite.h"
#include "worker/model/stored.h"
#include "worker/plan/check.h"

enum { PROMPT = 21, MORE = 4, VOCAB = 40 };

static char path[64];

static const struct {
    int type; /* the number of the type in the file */
    const char *name;
    bool in[WEIGHTS_N]; /* for each value of model.weights, whether its format can hold all values
                         * of this GGUF type */
} types[] = {
    {8, "Q8_0", {[WEIGHTS_INT8] = true}},
    {2, "Q4_0", {[WEIGHTS_INT8] = true, [WEIGHTS_INT4] = true}},
    {3, "Q4_1", {[WEIGHTS_INT4] = true}},
};
enum { TYPES = sizeof types / sizeof *types };

static struct job_spec spec_of(int model, enum weights_id weights, int threads)
{
    struct job_spec s;
    struct err e = {0};
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    s.kind = JOB_GENERATE;
    gguf_shape(&gguf_models[model], &s.model.shape);
    s.model.shape.tokenizer = TOKENIZER_OWN; /* the 40 ids do not include those of bytes */
    s.model.weights = (int32_t)weights;
    s.precision.params = PRECISION_FP32;
    s.seed = 5;
    s.resources.threads = threads;
    s.sampling.max_tokens = MORE;
    s.data.seq_len = PROMPT + MORE;
    s.input.prompt = tiny_text(&s, "x");
    CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    return s;
}

static struct hf_requant again; /* the report of the last load */

static int try_load(struct tiny_rank *t, const struct model_shape *shape, struct err *e)
{
    memset(t->model.params, 0x7f, (size_t)t->plan.item[PLAN_PARAMS].size);
    const struct hf_sink to = {.take = stored_take,
                               .arg = &t->model,
                               .format = stored_format,
                               .take_blocks = stored_take_blocks,
                               .again = &again,
                               .be = t->be,
                               .any_order = true};
    again = (struct hf_requant){0};
    return hf_load_pieces(path, shape, &to, e);
}

static void load(struct tiny_rank *t, const struct model_shape *shape)
{
    struct err e = {0};
    CHECK_MSG(!try_load(t, shape, &e), "%s", e.text);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Tells whether the weights of tensor i, which begins at p->offset, equal the values in the
 * file. */
static bool keeps(const struct model *m, const struct param *p, int type)
{
    const enum weights_id stored = stored_blocks(m, p->offset, QUANT_K);
    return !p->cols || stored == WEIGHTS_MODEL || types[type].in[stored];
}

static void check_values(int model, int type, enum weights_id weights, int threads)
{
    static struct tiny_rank got, put;
    const struct job_spec s = spec_of(model, weights, threads);
    const struct model_shape *m = &s.model.shape;
    struct err e = {0};
    float *want = gguf_make_model(&gguf_models[model], m, types[type].type, path);
    CHECK_MSG(!tiny_open(&got, &s, NULL, 0, &e) && !tiny_open(&put, &s, NULL, 0, &e), "%s", e.text);
    load(&got, m);
    int n_kept = 0;
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        float *x = malloc((size_t)p.count * sizeof *x), *y = malloc((size_t)p.count * sizeof *y);
        stored_get(&got.model, p.offset, p.count, x);
        memcpy(y, want + p.offset, (size_t)p.count * sizeof *y);
        const bool kept = keeps(&got.model, &p, type);
        n_kept += kept && p.cols;
        if (!kept) { /* quantised like plain numbers */
            stored_put(&put.model, p.offset, p.count, y);
            stored_get(&put.model, p.offset, p.count, y);
        }
        int64_t off = 0;
        for (int64_t k = 0; k < p.count; k++) off += x[k] != y[k]; /* -0 == 0 */
        CHECK_MSG(!off, "%s in %s, %s: %s: %lld of %lld values differ", types[type].name,
                  spec_weights_words[weights], gguf_models[model].arch, p.name, (long long)off,
                  (long long)p.count);
        free(x), free(y);
    }
    CHECK(n_kept >= (types[type].in[weights] ? 2 * 7 : 0));
    free(want);
    tiny_close(&got), tiny_close(&put);
}

static void test_values(void)
{
    for (int i = 0; i < GGUF_MODELS; i++)
        for (int t = 0; t < TYPES; t++)
            for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++)
                check_values(i, t, (enum weights_id)w, 1 + (i + t) % 2 * 2);
}

/* ---- results --------------------------------------------------------------------------------- */

static void run(struct tiny_rank *t, const struct job_spec *s, float out[1 + MORE][VOCAB])
{
    struct infer in = {.model = &t->model, .spec = s};
    int32_t text[PROMPT];
    struct err e = {0};
    for (int i = 0; i < PROMPT; i++) text[i] = i * i % VOCAB;
    infer_at(&in, 1);
    CHECK_MSG(!prefill(&in, text, PROMPT, out[0], &e), "%s", e.text);
    for (int i = 0; i < MORE; i++) {
        struct tensor logits;
        CHECK_MSG(!model_decode(&t->model, 7 + i, &logits, &e), "%s", e.text);
        memcpy(out[1 + i], logits.data, sizeof out[1 + i]);
    }
}

static void check_result(int model, int type, enum weights_id weights)
{
    static float blocks[1 + MORE][VOCAB], numbers[1 + MORE][VOCAB];
    static struct tiny_rank q, m;
    const struct job_spec s = spec_of(model, weights, 1);
    const struct job_spec plain = spec_of(model, WEIGHTS_MODEL, 1);
    struct err e = {0};
    free(gguf_make_model(&gguf_models[model], &s.model.shape, types[type].type, path));
    CHECK_MSG(!tiny_open(&q, &s, NULL, 0, &e) && !tiny_open(&m, &plain, NULL, 0, &e), "%s", e.text);
    load(&q, &s.model.shape);
    load(&m, &plain.model.shape);
    run(&q, &s, blocks);
    run(&m, &plain, numbers);
    CHECK(numbers[MORE][0] != numbers[MORE][1]);
    CHECK_MSG(!memcmp(blocks, numbers, sizeof blocks), "%s in %s, %s", types[type].name,
              spec_weights_words[weights], gguf_models[model].arch);
    tiny_close(&q), tiny_close(&m);
}

/* Compares results. With int4 the weights of the head have 8 bits, and this format cannot hold the
 * values of Q4_1. */
static void test_results(void)
{
    for (int i = 0; i < GGUF_MODELS; i++) {
        check_result(i, 0, WEIGHTS_INT8);
        check_result(i, 1, WEIGHTS_INT8);
        check_result(i, 1, WEIGHTS_INT4);
    }
}

/* ---- slices and stages ----------------------------------------------------------------------- */

struct scattered {
    struct job_spec spec;
    const float *want; /* the values of the complete model */
    int type, n_kept;
    struct hf_requant again; /* of rank 0 */
};

static void check_slices(const struct scattered *x, struct tiny_rank *t, int *n_kept)
{
    static _Thread_local struct slice own[PROG_WEIGHTS];
    const struct model *m = &t->model;
    for (int b = 0; b < m->shape.n_layers + 2; b++) {
        const int n = zero_holds(&t->plan.shards, b) ? slice_bucket(&m->shape, b, own) : 0;
        for (int i = 0; i < n; i++) {
            const struct slice *s = &own[i];
            const enum weights_id stored = stored_blocks(m, s->offset, QUANT_K);
            if (!stored || !types[x->type].in[stored]) continue;
            const int64_t size = slice_size(s, m->tensor_rank);
            float *got = malloc((size_t)size * sizeof *got);
            stored_get(m, s->offset, size, got);
            for (int64_t k = 0; k < size; k++) {
                const int64_t at = slice_run(s, m->tensor_rank, k).whole;
                CHECK_MSG(got[k] == x->want[s->whole_offset + at], "bucket %d, slice %d, %lld", b,
                          i, (long long)k);
            }
            free(got);
            ++*n_kept;
        }
    }
}

static void scattered_body(struct ranks *g, int rank, void *arg)
{
    struct scattered *x = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct sharded_state h;
    struct err e = {0};
    int n_kept = 0, rc = tiny_open(t, &x->spec, g, rank, &e);
    if (!rc) {
        const struct model_shape whole = slice_whole(&t->model.shape);
        memset(t->model.params, 0x7f, (size_t)t->plan.item[PLAN_PARAMS].size);
        sharded_init(&h, &x->spec, &t->model, rank);
        rc = rank ? scatter_serve(&h, &e)
                  : scatter_model(&h, path, &whole, &x->again, &e) || scatter_end(&h, &e);
    }
    if (rc)
        ranks_fail(g, rank, &e);
    else
        check_slices(x, t, &n_kept);
    __atomic_fetch_add(&x->n_kept, n_kept, __ATOMIC_RELAXED);
    tiny_close(t);
    free(t);
}

static void check_scattered(int model, int type, enum weights_id weights, int tp, int pp)
{
    static struct scattered x;
    static struct plan p;
    struct err e = {0};
    struct ranks g;
    x = (struct scattered){.spec = spec_of(model, weights, 1), .type = type};
    struct job_spec *s = &x.spec;
    /* only in verify jobs may slices or stages have weights in blocks */
    s->kind = JOB_VERIFY;
    s->data.n_train = 1;
    s->data.train[0].path = tiny_text(s, "text");
    s->data.train[0].format = DATA_LLMC; /* ids */
    s->input.prompt = 0;
    s->sampling.max_tokens = 1;
    s->resources.ranks = tp * pp;
    s->parallel.tp = tp;
    s->parallel.pp = pp;
    s->model.shape.ffn_width = 128; /* each rank's part is a multiple of a block */
    CHECK_MSG(!family_check(s, &e), "%s: %s", e.field, e.text);
    const struct model_shape whole = slice_whole(&s->model.shape);
    float *const want = gguf_make_model(&gguf_models[model], &whole, types[type].type, path);
    x.want = want;
    CHECK_MSG(!plan_make(s, 0, &p, &e), "%s", e.text);
    ranks_open(&g, tp * pp, p.segment_size, NULL);
    ranks_run(&g, scattered_body, &x);
    ranks_check(&g);
    ranks_close(&g);
    CHECK_MSG(x.n_kept >= 2 * 7 * tp, "%d", x.n_kept); /* products of both layers */
    CHECK_MSG(x.again.n == (types[type].type == 3), "%s", x.again.names); /* the head */
    free(want);
}

static void test_scattered(void)
{
    for (int i = 0; i < GGUF_MODELS; i++)
        for (int ways = 1; ways <= 3; ways++) {
            const int tp = ways & 1 ? 2 : 1, pp = ways & 2 ? 2 : 1;
            /* this model cannot be divided among ranks */
            if (tp > 1 && !strcmp(gguf_models[i].arch, "gemma3")) continue;
            check_scattered(i, 0, WEIGHTS_INT8, tp, pp);
            check_scattered(i, 1, WEIGHTS_INT4, tp, pp);
            check_scattered(i, 2, WEIGHTS_INT4, tp, pp);
        }
}

/* ---- shards ---------------------------------------------------------------------------------- */

struct sharded {
    struct job_spec spec;
    char *bytes; /* the weights of the whole model, as a rank with all of them stores them */
    int n_equal; /* the number of buckets whose bytes are these, on all ranks */
};

/* Compares the buckets of a rank with x->bytes. If each rank has the whole model, rank 0 sets
 * x->bytes instead. */
static int compare_buckets(struct sharded *x, struct model *m, int rank, struct err *e)
{
    const struct zero *z = &m->plan->shards;
    for (int b = 0; b < zero_buckets(z); b++) {
        if (model_fetch(m, b, e)) return -1;
        char *const want = x->bytes + zero_size_before(z, b);
        const size_t size = (size_t)z->size[zero_kind(z, b)];
        if (m->fetched)
            __atomic_fetch_add(&x->n_equal, !memcmp(stored_section(m, b), want, size),
                               __ATOMIC_RELAXED);
        else if (rank == 0)
            memcpy(want, stored_section(m, b), size);
    }
    return 0;
}

static void sharded_body(struct ranks *g, int rank, void *arg)
{
    struct sharded *x = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct sharded_state h;
    struct hf_requant twice = {0};
    struct err e = {0};
    int rc = tiny_open(t, &x->spec, g, rank, &e);
    if (!rc) {
        memset(t->model.params, 0x7f, (size_t)t->plan.item[PLAN_PARAMS].size);
        sharded_init(&h, &x->spec, &t->model, rank);
        rc = rank ? scatter_serve(&h, &e)
                  : scatter_model(&h, path, &t->model.shape, &twice, &e) || scatter_end(&h, &e);
    }
    if (!rc) rc = compare_buckets(x, &t->model, rank, &e);
    if (rc) ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
}

/* Checks that ranks with shards of a base in blocks (zero 3) together have the bytes of a rank with
 * the whole base. The blocks of the file are kept, or are quantised again. */
static void check_shards(int model, int type, enum weights_id weights, int ranks)
{
    static struct sharded x;
    static struct plan p;
    struct err e = {0};
    x = (struct sharded){.spec = spec_of(model, weights, 1)};
    struct job_spec *s = &x.spec;
    free(gguf_make_model(&gguf_models[model], &s->model.shape, types[type].type, path));
    s->kind = JOB_TRAIN;
    s->data.n_train = 1;
    s->data.train[0].path = tiny_text(s, "text");
    s->data.train[0].format = DATA_LLMC; /* ids */
    s->input.prompt = 0;
    s->sampling.max_tokens = 1;
    s->adapter.type = ADAPTER_LORA;
    s->train.steps = 1;
    for (int zero = 0; zero <= 3; zero += 3) {
        struct ranks g;
        s->resources.ranks = s->parallel.dp = ranks;
        s->train.global_batch = ranks;
        s->parallel.zero = zero;
        CHECK_MSG(!family_check(s, &e), "%s: %s", e.field, e.text);
        CHECK_MSG(!plan_make(s, 0, &p, &e), "%s", e.text);
        if (!zero) x.bytes = malloc((size_t)zero_size(&p.shards));
        ranks_open(&g, ranks, p.segment_size, NULL);
        ranks_run(&g, sharded_body, &x);
        ranks_check(&g);
        ranks_close(&g);
    }
    CHECK_MSG(x.n_equal == ranks * zero_buckets(&p.shards), "%d", x.n_equal);
    free(x.bytes);
}

static void test_sharded(void)
{
    for (int i = 0; i < GGUF_MODELS; i++)
        for (int type = 0; type < 3; type++)
            check_shards(i, type, type ? WEIGHTS_INT4 : WEIGHTS_INT8, 2 + (i + type) % 2);
}

/* ---- quantised again ------------------------------------------------------------------------- */

/* Checks tensors whose blocks in the file have a different format than the weight. The job must
 * report their number and their names. */
static void test_again(void)
{
    static const struct {
        int model, type;
        enum weights_id weights;
        int n;
        const char *names;
    } cases[] = {
        {0, 3, WEIGHTS_INT4, 1, "output.weight (Q4_1)"},
        {3, 3, WEIGHTS_INT4, 1, "token_embd.weight (Q4_1)"}, /* the head's too */
        {0, 3, WEIGHTS_INT8, 2 * 7 + 1, "blk.0.attn_q.weight (Q4_1), "},
        {0, 8, WEIGHTS_INT4, 2 * 7, "blk.0.attn_q.weight (Q8_0), "},
        {0, 2, WEIGHTS_INT4, 0, ""},
        {0, 8, WEIGHTS_INT8, 0, ""},
        {0, 1, WEIGHTS_INT4, 0, ""}, /* numbers */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct tiny_rank q;
        struct err e = {0};
        const struct job_spec s = spec_of(cases[i].model, cases[i].weights, 1);
        free(gguf_make_model(&gguf_models[cases[i].model], &s.model.shape, cases[i].type, path));
        CHECK_MSG(!tiny_open(&q, &s, NULL, 0, &e), "%s", e.text);
        load(&q, &s.model.shape);
        CHECK_MSG(again.n == cases[i].n &&
                      !strncmp(again.names, cases[i].names, strlen(cases[i].names)),
                  "%d: %s", again.n, again.names);
        tiny_close(&q);
    }
}

/* ---- numbers beyond fp16 --------------------------------------------------------------------- */

static void put_scale(const struct job_spec *s, int type, uint16_t scale)
{
    struct err e = {0};
    free(gguf_make_model(&gguf_models[0], &s->model.shape, type, path));
    struct gguf *g = gguf_open(path, &e);
    const struct gguf_tensor *t = g ? gguf_find_tensor(g, "blk.1.ffn_down.weight") : NULL;
    const int fd = open(path, O_WRONLY), size = type == 2 ? 18 : type == 3 ? 20 : 34;
    CHECK(t && fd >= 0 && pwrite(fd, &scale, 2, t->offset + size * 5) == 2);
    close(fd);
    gguf_close(g);
}

/* Checks a file in which a scale is NaN or infinity. With every value of model.weights, this must
 * be reported as damage. */
static void test_damaged(void)
{
    static const struct {
        int type;
        enum weights_id weights;
        uint16_t scale;
    } cases[] = {{2, WEIGHTS_INT4, 0x7c00}, {2, WEIGHTS_INT8, 0xfc00},  {2, WEIGHTS_MODEL, 0x7c00},
                 {2, WEIGHTS_INT4, 0x7e00}, {3, WEIGHTS_INT4, 0x7c00},  {3, WEIGHTS_INT8, 0x7c00},
                 {8, WEIGHTS_INT8, 0x7c00}, {8, WEIGHTS_MODEL, 0x7e00}, {8, WEIGHTS_INT4, 0xfe00}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct tiny_rank q;
        const struct job_spec s = spec_of(0, cases[i].weights, 1);
        struct err e = {0};
        put_scale(&s, cases[i].type, cases[i].scale);
        CHECK_MSG(!tiny_open(&q, &s, NULL, 0, &e), "%s", e.text);
        CHECK(try_load(&q, &s.model.shape, &e) == -1 && e.code == ERR_CORRUPT);
        CHECK_MSG(strstr(e.text, "tensor \"blk.1.ffn_down.weight\": a block (row 1 of "
                                 "the file, from column 64)") &&
                      strstr(e.text, "the file is damaged: fetch it again"),
                  "case %zu: %s", i, e.text);
        tiny_close(&q);
    }
}

/* Checks numbers that exceed the range of fp16. With a scale of 8192 the smallest value is -65536,
 * which fp16 cannot represent. With a scale of 8188 it is -65504. */
static void test_past_fp16(void)
{
    static const uint16_t scales[] = {0x6fff, 0x7000, 0xefff, 0xf000};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        static struct tiny_rank q;
        const struct job_spec s = spec_of(0, WEIGHTS_INT4, 1);
        struct err e = {0};
        char name[64];
        put_scale(&s, 2, scales[i]);
        CHECK_MSG(!tiny_open(&q, &s, NULL, 0, &e), "%s", e.text);
        load(&q, &s.model.shape);
        CHECK(!finite_weights(&q.model, name, &e));
        CHECK_STR(name, i % 2 ? "model.layers.1.mlp.down_proj.weight" : "");
        CHECK(finite_blame(&q.model, NULL, &e, "the loss") == -1);
        CHECK_STR(e.field, i % 2 ? "model.weights" : "model.path");
        CHECK_MSG(!*name == !strstr(e.text, "(row 1, from column 64)"), "%s", e.text);
        tiny_close(&q);
    }
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/seqd-quant-gguf-XXXXXX");
    const int fd = mkstemp(path);
    if (fd < 0) abort();
    close(fd);
    RUN(test_values);
    RUN(test_results);
    RUN(test_scattered);
    RUN(test_sharded);
    RUN(test_again);
    RUN(test_damaged);
    RUN(test_past_fp16);
    unlink(path);
    return test_done("test_quant_gguf");
}
