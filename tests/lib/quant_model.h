/* quant_model.h: models whose weights are stored in blocks, and copies of these models whose
 * weights are plain numbers, equal to the values that the blocks encode. The families of the
 * models together use every kind of product. */
#ifndef SEQD_TESTS_QUANT_MODEL_H
#define SEQD_TESTS_QUANT_MODEL_H

#include <math.h>
#include <string.h>
#include "kernels/quant.h"
#include "tests/lib/prefill.h"
#include "tests/lib/tiny.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/infer.h"
#include "worker/model/finite.h"
#include "worker/model/host_copy.h"
#include "worker/model/stored.h"
#include "worker/plan/check.h"

enum { PROMPT = 37, MORE = 6, MAX_V = 300 };

/* ---- models ---------------------------------------------------------------------------------- */

#define BASE                                                                                       \
    .n_layers = 2, .width = 64, .n_heads = 4, .head_dim = 16, .ffn_width = 96, .vocab = 261,       \
    .norm_eps = 1e-5, .rope_theta = 10000, .max_pos = 4096

static const struct {
    const char *name;
    struct model_shape shape;
    int n_plain; /* the number of matrices in the whole model that are not stored in blocks */
} models[] = {
    {"llama", {BASE, .n_kv_heads = 2}, 1}, /* the table */
    {"llama, tied", {BASE, .n_kv_heads = 2, .tied = 1}, 0},
    {"gpt2", {BASE, .family = FAMILY_GPT2, .n_kv_heads = 4, .tied = 1}, 1}, /* of positions */
    {"gemma2",
     {BASE, .family = FAMILY_GEMMA, .n_kv_heads = 2, .tied = 1, .window = 7, .layer_mask = {2},
      .attn_cap = 3, .final_cap = 5},
     0},
    {"mixtral",
     {BASE, .family = FAMILY_MIXTRAL, .n_kv_heads = 2, .n_experts = 3, .experts_per_token = 2},
     1 + 2}, /* the table and two routers */
    {"gpt_oss",
     {BASE, .family = FAMILY_GPT_OSS, .n_kv_heads = 2, .window = 7, .layer_mask = {2},
      .n_experts = 3, .experts_per_token = 2},
     1 + 2},
    {"qwen2_moe",
     {BASE, .family = FAMILY_QWEN2_MOE, .n_kv_heads = 2, .qkv_bias = 1, .n_experts = 3,
      .experts_per_token = 2, .expert_width = 32, .shared_width = 64},
     1 + 2 * 2}, /* the table, two routers, and two gates of one row each */
    {"qwen3_next",
     {BASE, .family = FAMILY_QWEN3_NEXT, .layer_mask = {1}, .n_kv_heads = 2, .rotary_dim = 8,
      .delta_heads = 4, .delta_key_heads = 2, .delta_key_dim = 16, .delta_value_dim = 16,
      .conv_width = 4, .n_experts = 3, .experts_per_token = 2, .expert_width = 32,
      .shared_width = 64},
     1 + 2 * 2 + 2}, /* the matrices of the row above, and b, a and the taps of the delta layer */
    {"tnl",
     {BASE, .family = FAMILY_TNL, .n_kv_heads = 4, .layer_mask = {1}, .tied = 1},
     1}, /* angles */
    {"minimax",
     {BASE, .family = FAMILY_MINIMAX, .n_kv_heads = 2, .layer_mask = {1}, .n_experts = 3,
      .experts_per_token = 2, .residual = {1, 1, 1, 1, 1, 1}},
     1 + 2},
    {"retnet", {BASE, .family = FAMILY_RETNET, .n_kv_heads = 4}, 1},
};
#define N_MODELS (sizeof models / sizeof *models)

/* The device of the jobs. `bits` tells whether its products always add their terms in one fixed
 * order. */
static struct {
    const char *device;
    bool bits;
} jobs_have = {"cpu", false};

/* Fills in and checks a job that generates with the given model. */
static int set(struct job_spec *s, size_t model, enum weights_id weights,
               enum precision_id precision, int sp, struct err *e)
{
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = JOB_GENERATE;
    s->model.shape = models[model].shape;
    s->model.weights = weights;
    s->precision.params = (int32_t)precision;
    s->seed = 11;
    s->resources.ranks = sp;
    s->resources.threads = 1;
    s->resources.device = tiny_text(s, jobs_have.device);
    if (jobs_have.bits) s->determinism = DET_RANKS;
    s->parallel.sp = sp;
    s->sampling.max_tokens = MORE;
    s->data.seq_len = PROMPT + MORE;
    s->input.prompt = tiny_text(s, "x");
    return family_check(s, e);
}

static int32_t token(int64_t i)
{
    return (int32_t)(32 + i * i % 91);
}

/* Computes the logits after the prompt, and the logits after each of the tokens that follow the
 * prompt. */
static int run(struct tiny_rank *t, const struct job_spec *s, float (*out)[MAX_V], struct err *e)
{
    struct infer in = {.model = &t->model, .spec = s};
    int32_t text[PROMPT];
    for (int i = 0; i < PROMPT; i++) text[i] = token(i);
    infer_at(&in, 1);
    if (prefill(&in, text, PROMPT, out[0], e)) return -1;
    for (int i = 0; i < MORE; i++) {
        struct tensor logits;
        if (model_decode(&t->model, token(PROMPT + i), &logits, e)) return -1;
        host_copy_out(t->be, logits.dtype, logits.data, out[1 + i], t->model.shape.vocab);
    }
    return 0;
}

/* ---- the same model in numbers --------------------------------------------------------------- */

/* Sets the values of a model in plain numbers to the values that a model in blocks encodes. */
static void take_values(struct model *to, const struct model *from)
{
    for (int i = 0; i < param_tensors(&from->shape); i++) {
        struct param p;
        param_get(&from->shape, i, &p);
        float *x = malloc((size_t)p.count * sizeof *x);
        if (!x) abort();
        stored_get(from, p.offset, p.count, x);
        stored_put(to, p.offset, p.count, x);
        free(x);
    }
}

/* Counts the matrices of a model that are not stored in blocks. */
static int count_plain(const struct model *m)
{
    int n = 0;
    for (int b = 0; b < m->shape.n_layers + 2; b++)
        for (int i = 0; i < section_at(m, b).p->n_weights; i++)
            n += section_at(m, b).p->weight[i].cols && !dtype_quant(stored_weight(m, b, i).dtype);
    return n;
}

/* Tells whether products in this precision use the values of the blocks without rounding them. */
static bool exact(const struct be *be, enum precision_id precision)
{
    return be->own_memory ? !be->any_order : precision == PRECISION_FP32;
}

static double rel(float (*a)[MAX_V], float (*b)[MAX_V], int64_t V)
{
    double d = 0, n = 0;
    for (int i = 0; i < 1 + MORE; i++)
        for (int64_t v = 0; v < V; v++) {
            d += ((double)a[i][v] - b[i][v]) * ((double)a[i][v] - b[i][v]);
            n += (double)b[i][v] * b[i][v];
        }
    return sqrt(d / n);
}

static void check_values(size_t model, enum weights_id weights, enum precision_id precision)
{
    static float blocks[1 + MORE][MAX_V], numbers[1 + MORE][MAX_V];
    static struct tiny_rank q, m;
    static struct job_spec s, plain;
    struct err e = {0};
    CHECK_MSG(!set(&s, model, weights, precision, 1, &e), "%s: %s: %s", models[model].name, e.field,
              e.text);
    CHECK(!set(&plain, model, WEIGHTS_MODEL, precision, 1, &e));
    CHECK_MSG(!tiny_open(&q, &s, NULL, 0, &e) && !tiny_open(&m, &plain, NULL, 0, &e), "%s", e.text);
    CHECK_MSG(count_plain(&q.model) == models[model].n_plain, "%s: %d", models[model].name,
              count_plain(&q.model));
    take_values(&m.model, &q.model);
    CHECK_MSG(!run(&q, &s, blocks, &e) && !run(&m, &plain, numbers, &e), "%s", e.text);
    CHECK(q.plan.item[PLAN_PARAMS].size < m.plan.item[PLAN_PARAMS].size);
    CHECK(precision != PRECISION_BF16 ||
          q.plan.item[PLAN_PARAMS].size == plan_blocks_size(&s.model.shape, weights));
    const double off = rel(blocks, numbers, models[model].shape.vocab);
    CHECK_MSG(exact(q.be, precision) ? off == 0 : off < (precision ? 0.02 : 1e-5),
              "%s in %s, precision %d: %g", models[model].name, spec_weights_words[weights],
              precision, off);
    CHECK(numbers[MORE][0] != numbers[MORE][1]);
    tiny_close(&q), tiny_close(&m);
}

/* ---- not finite ------------------------------------------------------------------------------ */

/* Checks that a NaN in a block is found. The error of a job must name the tensor and the block.
 * Then checks the same for a block whose scale exceeds the range of fp16. */
static void check_not_finite(enum weights_id weights)
{
    static struct tiny_rank q;
    static struct job_spec s;
    struct err e = {0};
    struct param p;
    char name[64];
    const float x[QUANT_K] = {1, 2, NAN}, large[QUANT_K] = {1, 2, 65504 * 130.0f};
    int i = 0;
    CHECK(!set(&s, 1, weights, PRECISION_BF16, 1, &e));
    CHECK_MSG(!tiny_open(&q, &s, NULL, 0, &e), "%s", e.text);
    CHECK(!finite_weights(&q.model, name, &e) && !*name);
    do param_get(&q.model.shape, i++, &p);
    while (strcmp(p.name, "model.layers.1.mlp.down_proj.weight"));
    stored_put(&q.model, p.offset + 5 * QUANT_K, QUANT_K, x);
    CHECK(!finite_weights(&q.model, name, &e));
    CHECK_STR(name, p.name);
    CHECK(finite_blame(&q.model, NULL, &e, "the loss") == -1);
    CHECK_STR(e.field, "model.path");
    CHECK_STR(e.text,
              "the loss is NaN or infinity, since tensor model.layers.1.mlp.down_proj.weight "
              "of the weights holds one (row 1, from column 64): replace the weights");
    stored_put(&q.model, p.offset + 5 * QUANT_K, QUANT_K, large);
    CHECK(finite_blame(&q.model, NULL, &e, "the loss") == -1);
    CHECK_STR(e.field, "model.weights");
    CHECK_STR(e.text,
              "the loss is NaN or infinity, since a block of tensor "
              "model.layers.1.mlp.down_proj.weight (row 1, from column 64) has a scale or a "
              "smallest value past fp16's 65504: set model.weights to \"model\"");
    tiny_close(&q);
}

#endif
