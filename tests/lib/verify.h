/* verify.h: runs verify jobs for tests. The models are tiny ones of every family, and they are
 * divided in every way that is supported. */
#ifndef SEQD_TESTS_VERIFY_H
#define SEQD_TESTS_VERIFY_H

#include <math.h>
#include "api/core/file.h"
#include "api/core/mem.h"
#include "kernels/half.h"
#include "tests/lib/latents.h"
#include "tests/lib/mutant.h"
#include "tests/lib/tiny.h"
#include "tests/lib/told.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/model/stored.h"
#include "worker/verify/rounding.h"
#include "worker/verify/verify.h"

static char scratch[64];

/* A model, and the way in which the ranks divide its sequence. */
struct way {
    const char *name;
    struct model_shape shape;
    enum strategy_id strategy;
    enum layout_id layout;
    enum form_id form;
    enum exchange_id exchange;
    /* a text that is in the names of all tensors whose gradients are wrong if the backward pass of
     * attention is wrong */
    const char *mixer;
    double dropout; /* the rate of dropout of attention's weights */
    /* A factor by which some weights are multiplied; 0 means 1. Larger weights of queries make
     * scores that are too large for a plain exp. In models with the delta rule, dt_bias is 1 and
     * is multiplied by this factor. A part of the state then remains after many rows. */
    double gain;
    const char *text; /* the name of a file that write_docs wrote; NULL means "docs" */
    /* memory.mlp_chunk_tokens; 0 means the default, in which MLPs are not computed in pieces */
    int64_t mlp_chunk;
    /* the number of layers of a model that offloads activations; 0 means that nothing is
     * offloaded */
    int offload_layers;
    /* the weights in fp32, in the order of the model; the caller owns them. NULL means random
     * weights. */
    const float *weights;
};

#define SIZES                                                                                      \
    .n_layers = 2, .width = 48, .n_heads = 6, .head_dim = 8, .ffn_width = 40, .vocab = 260,        \
    .norm_eps = 1e-5, .rope_theta = 10000, .max_pos = 4096
#define WAY_LLAMA                                                                                  \
    {                                                                                              \
        SIZES, .n_kv_heads = 2                                                                     \
    }
/* A decoder in which layer 0 has a window, and layer 1 has none. */
#define WAY_WINDOW                                                                                 \
    {                                                                                              \
        SIZES, .n_kv_heads = 2, .window = 7, .layer_mask = { 2 }                                   \
    }
/* A decoder with soft caps, norms with the factor 1 + w, and the windows of WAY_WINDOW. */
#define WAY_GEMMA                                                                                  \
    {                                                                                              \
        SIZES, .n_kv_heads = 2, .window = 7, .layer_mask = {2}, .family = FAMILY_GEMMA,            \
               .attn_cap = 0.5, .final_cap = 2, .tied = 1                                          \
    }
/* A decoder with sinks, with experts that are clamped and have biases, and with the windows of
 * WAY_WINDOW. */
#define WAY_GPT_OSS                                                                                \
    {                                                                                              \
        SIZES, .n_kv_heads = 2, .window = 7, .layer_mask = {2}, .family = FAMILY_GPT_OSS,          \
               .n_experts = 4, .experts_per_token = 2                                              \
    }
#define WAY_BERT                                                                                   \
    {                                                                                              \
        SIZES, .family = FAMILY_BERT, .type_vocab = 2, .tied = 1                                   \
    }
#define WAY_TNL                                                                                    \
    {                                                                                              \
        SIZES, .family = FAMILY_TNL, .layer_mask = { 1 }                                           \
    }
#define WAY_LINEAR                                                                                 \
    {                                                                                              \
        SIZES, .family = FAMILY_LINEAR, .feature_map = ACT_ELU1, .normalise = 1                    \
    }
#define WAY_MINIMAX                                                                                \
    {                                                                                              \
        SIZES, .layer_mask = {1}, .family = FAMILY_MINIMAX, .n_kv_heads = 2, .n_experts = 3,       \
               .experts_per_token = 2, .residual = {                                               \
                   1,                                                                              \
                   1,                                                                              \
                   1,                                                                              \
                   1,                                                                              \
                   1,                                                                              \
                   1                                                                               \
               }                                                                                   \
    }
/* A model with a delta layer followed by softmax attention, or with two delta layers. */
#define WAY_DELTA(mask)                                                                            \
    {                                                                                              \
        SIZES, .layer_mask = {mask}, .family = FAMILY_QWEN3_5, .n_kv_heads = 2, .rotary_dim = 4,   \
               .delta_heads = 4, .delta_key_heads = 2, .delta_key_dim = 12, .delta_value_dim = 10, \
               .conv_width = 4                                                                     \
    }
#define EXPERTS .n_experts = 5, .experts_per_token = 2, .expert_width = 16, .shared_width = 24
#define WAY_QWEN2_MOE                                                                              \
    {                                                                                              \
        SIZES, .family = FAMILY_QWEN2_MOE, .n_kv_heads = 2, .qkv_bias = 1, EXPERTS                 \
    }
/* A model with more heads than WAY_DELTA has. With four heads, the gradient of A_log would depend
 * on a few roundings to bf16. */
#define WAY_NEXT                                                                                   \
    {                                                                                              \
        SIZES, .layer_mask = {1}, .family = FAMILY_QWEN3_NEXT, .n_kv_heads = 2, .rotary_dim = 4,   \
               .delta_heads = 12, .delta_key_heads = 4, .delta_key_dim = 12,                       \
               .delta_value_dim = 10, .conv_width = 4, EXPERTS                                     \
    }
#define WAY_DIT(fam, text, norm) WAY_DIT_ON(fam, text, norm, OBJECTIVE_RECTIFIED_FLOW)
#define WAY_DIT_ON(fam, text, norm, objective)                                                     \
    {                                                                                              \
        .family = fam, .n_layers = 2, .width = 48, .n_heads = 6, .n_kv_heads = 6, .head_dim = 8,   \
        .ffn_width = 96, .max_pos = 2048, .rope_theta = 10000, .norm_eps = 1e-5, .in_channels = 4, \
        .out_channels = 8, .patch_t = 1, .patch_h = 2, .patch_w = 2,                               \
        .type_vocab = (text) ? 0 : LATENTS_USUAL + 1, .caption_channels = (text) ? 6 : 0,          \
        .text_len = (text) ? 3 : 0, .qk_norm = norm, .trained_on = objective                       \
    }
/* An encoder whose windows extend in both directions. Layer 1 has no window. */
#define WAY_MODERNBERT                                                                             \
    {                                                                                              \
        SIZES, .family = FAMILY_MODERNBERT, .window = 7, .layer_mask = {2}, .rope_local = 500,     \
               .tied = 1                                                                           \
    }
#define WAY_DSP      .strategy = STRATEGY_DSP, .layout = LAYOUT_CONTIGUOUS, .mixer = "attn"
#define WAY_RSA(lay) .strategy = STRATEGY_RSA, .layout = lay, .mixer = "self_attn."
#define WAY_LASP(x)  .strategy = STRATEGY_LASP, .layout = LAYOUT_CONTIGUOUS, .exchange = x

enum {
    WAY_ZIGZAG,
    WAY_CONTIGUOUS,
    WAY_GATHER,
    WAY_TWO_PASS,
    WAY_SCATTER,
    WAY_ULYSSES,
    WAY_USP,
    WAY_WINDOWED,
    WAY_WINDOWED_GATHER,
    WAY_WINDOWED_ULYSSES,
    WAY_WINDOWED_USP,
    WAY_CAPPED,
    WAY_CAPPED_GATHER,
    WAY_SINKS,
    WAY_SINKS_GATHER,
    WAY_BERT_RSA,
    WAY_BOTH_WAYS,
    WAY_BOTH_WAYS_GATHER,
    WAY_TNL_RING,
    WAY_TNL_GATHER,
    WAY_TNL_SCAN,
    WAY_LINEAR_RING,
    WAY_RETNET_RING,
    WAY_RETNET_GATHER,
    WAY_MINIMAX_RING,
    WAY_MINIMAX_SCAN,
    WAY_DELTA_SOFTMAX,
    WAY_DELTA_ALONE,
    WAY_DELTA_GATHER,
    WAY_DELTA_SCAN,
    WAY_DELTA_LONG,
    WAY_SHARED,
    WAY_SHARED_DELTA,
    WAY_STDIT3,
    WAY_STDIT,
    WAY_LATTE,
    WAY_LATTE_NOISE,
    WAY_STDIT_NOISE,
    WAY_T2D,
    WAY_PIECES,
    WAY_PIECES_BERT,
    WAY_PIECES_TNL,
    WAY_PIECES_SHARED,
    WAY_PIECES_STDIT3,
    WAY_OFFLOAD,
    WAY_OFFLOAD_BERT,
    WAY_OFFLOAD_TNL,
    WAY_OFFLOAD_LATTE,
    N_WAYS
};
static const struct way ways[N_WAYS] = {
    [WAY_ZIGZAG] = {"llama, ring, zigzag", WAY_LLAMA, WAY_RSA(LAYOUT_ZIGZAG)},
    [WAY_CONTIGUOUS] = {"llama, ring", WAY_LLAMA, WAY_RSA(LAYOUT_CONTIGUOUS)},
    [WAY_GATHER] = {"llama, all_gather", WAY_LLAMA, WAY_RSA(LAYOUT_ZIGZAG),
                    .form = FORM_ALL_GATHER},
    [WAY_TWO_PASS] = {"llama, two_pass", WAY_LLAMA, WAY_RSA(LAYOUT_ZIGZAG), .form = FORM_TWO_PASS},
    [WAY_SCATTER] = {"llama, two_pass_scatter", WAY_LLAMA, WAY_RSA(LAYOUT_CONTIGUOUS),
                     .form = FORM_TWO_PASS_SCATTER},
    [WAY_ULYSSES] = {"llama, ulysses", WAY_LLAMA, .strategy = STRATEGY_ULYSSES,
                     .layout = LAYOUT_CONTIGUOUS, .mixer = "self_attn."},
    [WAY_USP] = {"llama, usp", WAY_LLAMA, .strategy = STRATEGY_USP, .layout = LAYOUT_ZIGZAG,
                 .mixer = "self_attn."},
    [WAY_WINDOWED] = {"ministral, ring", WAY_WINDOW, WAY_RSA(LAYOUT_CONTIGUOUS)},
    [WAY_WINDOWED_GATHER] = {"ministral, all_gather", WAY_WINDOW, WAY_RSA(LAYOUT_ZIGZAG),
                             .form = FORM_ALL_GATHER},
    [WAY_WINDOWED_ULYSSES] = {"ministral, ulysses", WAY_WINDOW, .strategy = STRATEGY_ULYSSES,
                              .layout = LAYOUT_CONTIGUOUS, .mixer = "self_attn."},
    [WAY_WINDOWED_USP] = {"ministral, usp", WAY_WINDOW, .strategy = STRATEGY_USP,
                          .layout = LAYOUT_CONTIGUOUS, .mixer = "self_attn."},
    [WAY_CAPPED] = {"gemma2, ring", WAY_GEMMA, WAY_RSA(LAYOUT_ZIGZAG), .gain = 30},
    [WAY_CAPPED_GATHER] = {"gemma2, all_gather", WAY_GEMMA, WAY_RSA(LAYOUT_CONTIGUOUS),
                           .form = FORM_ALL_GATHER, .gain = 30},
    [WAY_SINKS] = {"gpt_oss, ring", WAY_GPT_OSS, WAY_RSA(LAYOUT_ZIGZAG)},
    [WAY_SINKS_GATHER] = {"gpt_oss, all_gather", WAY_GPT_OSS, WAY_RSA(LAYOUT_CONTIGUOUS),
                          .form = FORM_ALL_GATHER},
    [WAY_BERT_RSA] = {"bert, ring", WAY_BERT, .strategy = STRATEGY_RSA, .layout = LAYOUT_CONTIGUOUS,
                      .mixer = "attention.self."},
    [WAY_BOTH_WAYS] = {"modernbert, ring", WAY_MODERNBERT, .strategy = STRATEGY_RSA,
                       .layout = LAYOUT_CONTIGUOUS, .mixer = "attn."},
    [WAY_BOTH_WAYS_GATHER] = {"modernbert, all_gather", WAY_MODERNBERT, .strategy = STRATEGY_RSA,
                              .layout = LAYOUT_CONTIGUOUS, .form = FORM_ALL_GATHER,
                              .mixer = "attn."},
    [WAY_TNL_RING] = {"tnl, ring", WAY_TNL, WAY_LASP(EXCHANGE_RING), .mixer = "token_mixer."},
    [WAY_TNL_GATHER] = {"tnl, all_gather", WAY_TNL, WAY_LASP(EXCHANGE_ALL_GATHER),
                        .mixer = "token_mixer."},
    [WAY_TNL_SCAN] = {"tnl, scan", WAY_TNL, WAY_LASP(EXCHANGE_SCAN), .mixer = "token_mixer."},
    [WAY_LINEAR_RING] = {"linear, ring", WAY_LINEAR, WAY_LASP(EXCHANGE_RING), .mixer = "attn."},
    [WAY_RETNET_RING] = {"retnet, ring",
                         {SIZES, .family = FAMILY_RETNET},
                         WAY_LASP(EXCHANGE_RING),
                         .mixer = "attn."},
    [WAY_RETNET_GATHER] = {"retnet, all_gather",
                           {SIZES, .family = FAMILY_RETNET},
                           WAY_LASP(EXCHANGE_ALL_GATHER),
                           .mixer = "attn."},
    [WAY_MINIMAX_RING] = {"minimax, ring", WAY_MINIMAX, WAY_LASP(EXCHANGE_RING),
                          .mixer = "self_attn."},
    [WAY_MINIMAX_SCAN] = {"minimax, scan", WAY_MINIMAX, WAY_LASP(EXCHANGE_SCAN),
                          .mixer = "self_attn."},
    [WAY_DELTA_SOFTMAX] = {"qwen3_5, ring", WAY_DELTA(1), WAY_LASP(EXCHANGE_RING),
                           .mixer = "self_attn."},
    [WAY_DELTA_ALONE] = {"qwen3_5 of delta layers, ring", WAY_DELTA(3), WAY_LASP(EXCHANGE_RING),
                         .mixer = "linear_attn."},
    [WAY_DELTA_GATHER] = {"qwen3_5 of delta layers, all_gather", WAY_DELTA(3),
                          WAY_LASP(EXCHANGE_ALL_GATHER), .mixer = "linear_attn.", .gain = -8},
    [WAY_DELTA_SCAN] = {"qwen3_5 of delta layers, scan", WAY_DELTA(3), WAY_LASP(EXCHANGE_SCAN),
                        .mixer = "linear_attn.", .gain = -8},
    [WAY_DELTA_LONG] = {"qwen3_5 of delta layers, long", WAY_DELTA(3),
                        WAY_LASP(EXCHANGE_ALL_GATHER), .mixer = "linear_attn.", .gain = -8,
                        .text = "long"},
    [WAY_SHARED] = {"qwen2_moe, ring", WAY_QWEN2_MOE, WAY_RSA(LAYOUT_ZIGZAG)},
    [WAY_SHARED_DELTA] = {"qwen3_next, ring", WAY_NEXT, WAY_LASP(EXCHANGE_RING),
                          .mixer = "self_attn."},
    [WAY_STDIT3] = {"stdit3, dsp", WAY_DIT(FAMILY_STDIT3, 1, 1), WAY_DSP},
    [WAY_STDIT] = {"stdit, dsp", WAY_DIT(FAMILY_STDIT, 1, 0), WAY_DSP},
    [WAY_LATTE] = {"latte, dsp", WAY_DIT(FAMILY_LATTE, 0, 0), WAY_DSP},
    [WAY_LATTE_NOISE] = {"latte of noise", WAY_DIT_ON(FAMILY_LATTE, 0, 0, OBJECTIVE_IDDPM),
                         .strategy = STRATEGY_DSP, .layout = LAYOUT_CONTIGUOUS,
                         .mixer = "final_layer."},
    [WAY_STDIT_NOISE] = {"stdit of noise", WAY_DIT_ON(FAMILY_STDIT, 1, 0, OBJECTIVE_IDDPM),
                         .strategy = STRATEGY_DSP, .layout = LAYOUT_CONTIGUOUS,
                         .mixer = "final_layer."},
    [WAY_T2D] = {"transformer-2d, dsp", WAY_DIT(FAMILY_T2D, 1, 0), WAY_DSP},
    [WAY_PIECES] = {"llama in pieces", WAY_LLAMA, .strategy = STRATEGY_RSA, .mixer = "mlp.",
                    .mlp_chunk = 7},
    [WAY_PIECES_BERT] = {"bert in pieces", WAY_BERT, .strategy = STRATEGY_RSA,
                         .layout = LAYOUT_CONTIGUOUS, .mixer = ".output.dense.", .mlp_chunk = 24},
    [WAY_PIECES_TNL] = {"tnl in pieces", WAY_TNL, WAY_LASP(EXCHANGE_RING),
                        .mixer = "channel_mixer.", .mlp_chunk = 16},
    [WAY_PIECES_SHARED] = {"qwen2_moe in pieces", WAY_QWEN2_MOE, .strategy = STRATEGY_RSA,
                           .mixer = "shared_expert.", .mlp_chunk = 3},
    [WAY_PIECES_STDIT3] = {"stdit3 in pieces", WAY_DIT(FAMILY_STDIT3, 1, 1),
                           .strategy = STRATEGY_DSP, .layout = LAYOUT_CONTIGUOUS,
                           .mixer = "temporal_blocks.0.mlp.", .mlp_chunk = 4},
    /* with 4 layers, the input of layer 1 is the last value that is copied to the host */
    [WAY_OFFLOAD] = {"llama offloaded", WAY_LLAMA, .strategy = STRATEGY_RSA, .mixer = "mlp.",
                     .offload_layers = 4},
    [WAY_OFFLOAD_BERT] = {"bert offloaded", WAY_BERT, .strategy = STRATEGY_RSA,
                          .layout = LAYOUT_CONTIGUOUS, .mixer = ".output.", .offload_layers = 5},
    [WAY_OFFLOAD_TNL] = {"tnl offloaded", WAY_TNL, WAY_LASP(EXCHANGE_RING),
                         .mixer = "channel_mixer.", .offload_layers = 4},
    [WAY_OFFLOAD_LATTE] = {"latte offloaded", WAY_DIT(FAMILY_LATTE, 0, 0), WAY_DSP,
                           .offload_layers = 6},
};

static inline bool way_takes(const struct way *w, enum precision_id precision)
{
    return precision == PRECISION_FP32 ||
           (w->form != FORM_TWO_PASS && w->form != FORM_TWO_PASS_SCATTER);
}

/* ---- the user's text ------------------------------------------------------------------------- */

/* Writes one document of 1,500 letters and digits. */
static inline void write_long(void)
{
    char path[128], text[1600];
    struct err e = {0};
    int n = snprintf(text, sizeof text, "{\"text\":\"");
    for (uint32_t x = 1; n < 1510; x = x * 1664525 + 1013904223)
        text[n++] = "etaoin shrdlu 01"[x >> 28];
    n += snprintf(text + n, sizeof text - (size_t)n, "\"}\n");
    snprintf(path, sizeof path, "%s/long.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, (size_t)n, &e), "%s", e.text);
}

/* Writes documents of 0 to 150 tokens. Some documents are on one rank, some on two neighbouring
 * ranks, and some on several ranks. */
static inline void write_docs(void)
{
    static const char *const docs[] = {
        "int main(void) { return 0; }",
        "a",
        "static long f(long x) { long y = x * x + 1; while (y > x) y -= x; return y; } /* slowly "
        "*/",
        "",
        "for (i = 0; i < n; i++) sum += a[i]; for (i = 0; i < n; i++) b[i] = a[i] - sum / n; "
        "for (i = 0; i < n; i++) c[i] = b[i] * b[i]; print(c, n);",
        "zz",
        "struct node { struct node *next; int key; char name[16]; };"};
    char path[128], text[1024] = "";
    struct err e = {0};
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "{\"text\":\"%s\"}\n", docs[i]);
    }
    CHECK_MSG(!file_write(path, text, strlen(text), &e), "%s", e.text);
    snprintf(path, sizeof path, "%s/same.jsonl", scratch);
    const int n = snprintf(text, sizeof text, "{\"text\":\"%0300d\"}\n", 0);
    CHECK_MSG(!file_write(path, text, (size_t)n, &e), "%s", e.text);
    write_long();
    latents_manifest(scratch, "latents", latents_usual, LATENTS_USUAL, 4, 6);
}

/* ---- a trial --------------------------------------------------------------------------------- */

struct trial {
    struct job_spec spec;
    const struct way *way;
    char id[80];
    int mutant, mutant_tensor;
    int disturb; /* the rank in whose copy one weight is wrong; -1 means no rank */
    bool artifacts;
    struct verify out;
    struct err sentence;
};

static inline void trial_data(struct trial *t)
{
    struct job_spec *s = &t->spec;
    const bool latents = t->way->strategy == STRATEGY_DSP;
    const char *roots[] = {scratch};
    struct data_stats st;
    struct err e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/%s.jsonl", scratch,
             latents        ? "latents"
             : t->way->text ? t->way->text
                            : "docs");
    s->data.n_train = 1;
    s->data.train[0].path = tiny_text(s, path);
    if (latents) {
        s->data.frames = LATENTS_FRAMES;
        s->data.height = LATENTS_HEIGHT;
        s->data.width = LATENTS_WIDTH;
        s->data.train[0].format = DATA_LATENTS;
    } else {
        s->data.seq_len = 200; /* larger than the compared part of a sequence */
        if (s->verify.max_tokens > 200) s->data.seq_len = s->verify.max_tokens;
        s->data.document_mask = s->data.reset_positions = 1;
        s->data.train[0].text_key = tiny_text(s, "text");
        s->data.train[0].format = DATA_JSONL;
    }
    CHECK_MSG(!family_check(s, &e), "%s: %s: %s", t->way->name, e.field, e.text);
    CHECK_MSG(!data_prepare(s, NULL, roots, 1, scratch, NULL, &st, &e), "%s", e.text);
    snprintf(t->id, sizeof t->id, "%s", st.id);
}

static inline void trial_set(struct trial *t, const struct way *w, int P, int64_t S,
                             enum precision_id precision)
{
    struct err e = {0};
    *t = (struct trial){.way = w, .disturb = -1, .mutant_tensor = -1};
    spec_defaults(&t->spec);
    shape_defaults(&t->spec.model.shape);
    struct job_spec *s = &t->spec;
    s->kind = JOB_VERIFY;
    s->model.shape = w->shape;
    CHECK_MSG(!family_complete(&s->model.shape, &e), "%s: %s", w->name, e.text);
    s->precision.params = (int32_t)precision;
    /* with seed 4, the first sample has 12 places and 5 frames */
    s->seed = w->strategy == STRATEGY_DSP ? 4 : 3;
    s->resources.ranks = P;
    s->resources.threads = 1;
    s->verify.max_tokens = S;
    if (P > 1) {
        s->parallel.strategy = (int32_t)w->strategy;
        s->parallel.layout = (int32_t)w->layout;
        s->parallel.form = (int32_t)w->form;
    }
    s->parallel.exchange = (int32_t)w->exchange;
    s->train.attention_dropout = w->dropout;
    if (w->mlp_chunk) s->memory.mlp_chunk_tokens = w->mlp_chunk;
    if (w->offload_layers) {
        s->model.shape.n_layers = w->offload_layers;
        s->memory.offload = OFFLOAD_ACTIVATIONS;
        s->memory.offload_dir = tiny_text(s, "/tmp");
    }
    trial_data(t);
}

static inline void trial_times(struct model *m, int64_t i, float gain)
{
    uint16_t *const half = m->params;
    if (m->dtype == DT_F32)
        ((float *)m->params)[i] *= gain;
    else
        half[i] = half_round(m->dtype, gain * half_value(m->dtype, half[i]));
}

static inline void trial_weights(const struct trial *t, struct model *m)
{
    for (int i = 0; t->way->weights && i < param_tensors(&m->shape); i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        const int64_t at = tiny_at(m, &p);
        if (at < 0) continue;
        memcpy((float *)m->params + at, t->way->weights + p.offset,
               (size_t)p.count * sizeof(float));
    }
}

static inline void trial_gain(const struct trial *t, struct model *m)
{
    for (int i = 0; t->way->gain && i < param_tensors(&m->shape); i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        const int64_t at = tiny_at(m, &p);
        const bool found = strstr(p.name, "q_proj") || strstr(p.name, "dt_bias");
        for (int64_t k = 0; found && at >= 0 && k < p.count; k++)
            trial_times(m, at + k, (float)t->way->gain);
    }
}

static inline void trial_disturb(const struct trial *t, struct model *m)
{
    struct param p;
    param_get(&t->spec.model.shape, 1 + 9 + 4, &p); /* o_proj of layer 1 */
    float x[QUANT_K];
    if (tiny_at(m, &p) < 0) return;
    stored_get(m, p.offset, QUANT_K, x);
    x[5] += 0.05f;
    stored_put(m, p.offset, QUANT_K, x);
}

/* Draws the weights of the reference from the job's seed. verify calls it if the model's weights
 * are in blocks. */
static inline int trial_reference(void *arg, struct model *reference, struct err *e)
{
    const struct trial *t = arg;
    (void)e;
    model_random(reference, t->spec.seed);
    return 0;
}

static inline void trial_body(struct ranks *g, int rank, void *arg)
{
    struct trial *t = arg;
    struct tiny_rank *r = malloc(sizeof *r);
    struct verify v = {0};
    struct err e = {0};
    struct data *d = data_open(scratch, t->id, DATA_TRUST, &e);
    int rc = !d || tiny_open(r, &t->spec, g, rank, &e);
    if (!rc) trial_weights(t, &r->model), trial_gain(t, &r->model);
    if (!rc && rank == t->disturb) trial_disturb(t, &r->model);
    struct told told;
    told_open(&told);
    if (!rc) {
        const struct verify_args a = {.progress = &told.p,
                                      .spec = &t->spec,
                                      .model = &r->model,
                                      .data = d,
                                      .weights = trial_reference,
                                      .weights_arg = t,
                                      .job_dir = t->artifacts ? scratch : NULL};
        rc = verify_run(&a, &v, &e);
    }
    if (rc) ranks_fail(g, rank, &e);
    /* the total of the progress is the sum of the work of the rank's part, the work of the
     * reference, and the work of the control if there is one */
    if (!rc && rank == 0) {
        const int64_t S = r->model.sp.shard.S;
        const int alone = 1 + (v.controlled ? rounding_rule(r->model.dtype).runs : 0);
        told_check(&told, PROGRESS_TOKENS, 0,
                   (double)(v.n_samples * (r->model.sp.shard.T + alone * S)));
        CHECK(mem_round(r->model.arena_end, PLAN_PAGE) == r->plan.arena_size &&
              mem_round(r->model.segment_end, PLAN_PAGE) == r->plan.segment_size);
        CHECK(told.n_inside > 2 * r->model.shape.n_layers);
        t->out = v;
        verify_sentence(&v, &t->sentence);
    } else {
        verify_fini(&v);
    }
    tiny_close(r);
    free(r);
    data_close(d);
}

/* Runs a trial. Messages are delayed at random, so that the test fails if a rank reads data before
 * it has arrived. The caller frees t->out. */
static inline void trial_run(struct trial *t)
{
    static struct plan plan;
    struct ranks g;
    struct err e = {0};
    CHECK_MSG(!plan_make(&t->spec, 0, &plan, &e), "%s: %s: %s", t->way->name, e.field, e.text);
    ranks_open(&g, plan.n_ranks, plan.segment_size,
               &(struct comm_options){.delay_max_us = 100, .delay_seed = 7});
    mutant_choose(t->mutant);
    mutant_choose_tensor(t->mutant_tensor);
    ranks_run(&g, trial_body, t);
    mutant_choose(MUTANT_NONE);
    ranks_check(&g);
    ranks_close(&g);
}

#endif
