/* gpt2.c: GPT-2. It has LayerNorm before attention and before the MLP, learned positions, biases,
 * and no gates.
 *
 *   x = wte[ids] + wpe[pos]
 *   per layer   x += Wo attn(Wqkv n1(x) + b) + b;  x += W2 act(W1 n2(x) + b) + b
 *   logits = wte n(x)
 *
 * Its files have every matrix of a layer as [in, out]. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "api/core/limits.h"
#include "worker/family/config_table.h"
#include "worker/family/write.h"

#define LAYER_NORM(p, m, x, name)                                                                  \
    write_norm(p, x,                                                                               \
               &(struct write_norm){name ".weight", name ".bias", NORM_LAYER, (m)->norm_eps, 0})

/* Writes [base +] a W' + b with the tensors NAME.weight [in, out] and NAME.bias. */
static int conv(struct program *p, int a, int base, const char *name, int64_t rows,
                const struct value *out)
{
    const int64_t cols = p->value[a].cols;
    struct weight w = {.rows = rows,
                       .cols = cols,
                       .init = base == PROG_NONE ? INIT_NORMAL : INIT_RESIDUAL,
                       .transposed = true,
                       .n_dims = 2,
                       .dims = {cols, rows}};
    char bias[64];
    snprintf(w.name, sizeof w.name, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    const int weight = prog_weight(p, &w), b = prog_tensor(p, bias, rows, 0, INIT_ZERO);
    return write_linear(p, &(struct write_linear){a, base, weight, 1, b, out->name, out->keep});
}

static int attention(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width;
    const int xn = LAYER_NORM(p, m, x, "ln_1");
    const int qkv = conv(p, xn, PROG_NONE, "attn.c_attn", 3 * C,
                         &(struct value){.name = "qkv", .keep = KEEP_NONE_MODE});
    const int q = prog_view(p, qkv, 0, C), window = prog_view(p, qkv, C, 2 * C);
    /* A cache needs keys and values in a separate value, which is not a view. So this operation
     * copies the keys and values. */
    const int kv = prog_op(p,
                           &(struct op){.kind = OP_MIX, .in = {window, PROG_NONE}, .u.mix = {1, 0}},
                           &(struct value){.name = "kv", .cols = 2 * C, .keep = KEEP_NONE_MODE});
    return conv(p, write_attention(p, m, &(struct write_attention){q, kv, true, 0}), x,
                "attn.c_proj", C, &(struct value){.name = "mlp_input", .keep = KEEP_NONE_MODE});
}

static int mlp(struct program *p, const struct model_shape *m, int x)
{
    const int xn = LAYER_NORM(p, m, x, "ln_2");
    const int up = conv(p, xn, PROG_NONE, "mlp.c_fc", m->ffn_width,
                        &(struct value){.name = "mlp_up", .keep = KEEP_NONE_MODE});
    const int act = write_act(p, (enum act_id)m->act, up, "mlp_act", KEEP_NEVER);
    return conv(p, act, x, "mlp.c_proj", m->width,
                &(struct value){.name = "layer_output", .keep = KEEP_NEVER});
}

static void write_gpt2(const struct model_shape *m, struct family *f)
{
    static const struct value embedded = {.name = "embedded", .keep = KEEP_NEVER};
    struct program *in = &f->in, *layer = &f->layer[0];
    struct value sum = embedded;
    write_embedding(in, m, "transformer.wte.weight", 1);
    const int table = prog_tensor(in, "transformer.wpe.weight", m->max_pos, m->width, INIT_NORMAL);
    sum.cols = m->width;
    in->result = prog_op(in,
                         &(struct op){.kind = OP_EMBED_ADD,
                                      .in = {in->result},
                                      .w = table,
                                      .n_w = 1,
                                      .u.embed = {1, INDEX_POSITION}},
                         &sum);
    prog_init(layer, "transformer.h.%d.");
    layer->result = mlp(layer, m, attention(layer, m, prog_input(layer, m->width)));
    f->n_kinds = 1;
    write_head(&f->out, m,
               &(struct write_norm){"transformer.ln_f.weight", "transformer.ln_f.bias", NORM_LAYER,
                                    m->norm_eps, 0},
               "lm_head.weight");
}

static int check_gpt2(struct model_shape *m, struct err *e)
{
    if (write_check_heads(m, e)) return -1;
    if (m->head_dim * m->n_heads != m->width)
        return err_field(e, ERR_INVALID, "model.config.num_attention_heads",
                         "hidden_size %lld is not num_attention_heads %lld heads of one size",
                         (long long)m->width, (long long)m->n_heads);
    if (m->max_pos > JOB_MAX_SEQ)
        return err_field(e, ERR_UNSUPPORTED, "model.config.max_position_embeddings",
                         "max_position_embeddings %lld: a table of at most %lld is supported",
                         (long long)m->max_pos, (long long)JOB_MAX_SEQ);
    if (!m->ffn_width) m->ffn_width = 4 * m->width;
    if (m->act == ACT_IDENTITY) m->act = ACT_GELU_TANH; /* the family's default */
    if (m->act == ACT_ELU1 || m->act == ACT_SIGMOID)
        return err_field(e, ERR_UNSUPPORTED, "model.config.hidden_act",
                         "hidden_act: this family takes gelu, gelu_tanh, relu, silu or tanh");
    return 0;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {HF_ABSENT(1024, 1e-5, 10000), {"hidden_size", 768},
                                       {"num_hidden_layers", 12},    {"num_attention_heads", 12},
                                       {"vocab_size", 50257},        {"hidden_act", ACT_GELU_TANH},
                                       {"tie_word_embeddings", 1},   {NULL, 0}};
static const struct hf_model models[] = {{"gpt2", own, {"GPT2LMHeadModel", "GPT2Model"}},
                                         {NULL, NULL, {NULL}}};

/* Reads n_ctx. The first files of the family use this name for n_positions. */
static int read_context(struct config *c, const char *key)
{
    int64_t n = 0;
    if (config_read_int(c, key, 1, JOB_MAX_SEQ, &n) < 0) return -1;
    if (!config_met(c, "max_position_embeddings") && n) c->m->max_pos = n;
    return 0;
}

static const struct hf_field fields[] = {{"hidden_size", "n_embd", HF_NEEDED},
                                         {"num_hidden_layers", "n_layer", HF_NEEDED},
                                         {"num_attention_heads", "n_head", HF_NEEDED},
                                         {"intermediate_size", "n_inner", 0},
                                         {"vocab_size", NULL, HF_NEEDED},
                                         {"max_position_embeddings", "n_positions", 0},
                                         {"tie_word_embeddings", NULL, 0},
                                         {"rms_norm_eps", "layer_norm_epsilon", 0},
                                         {"rope_theta", NULL, HF_FIXED},
                                         {"hidden_act", NULL, HF_UNWRITTEN},
                                         {NULL, NULL, 0}};
static const struct hf_special specials[] = {
    HF_NEVER,
    {"activation_function", config_read_act, config_write_act},
    {"hidden_act", config_read_act, NULL},
    {"n_ctx", read_context, NULL},
    {"scale_attn_weights", config_want_true, NULL},
    {"scale_attn_by_inverse_layer_idx", config_want_false, NULL},
    {"add_cross_attention", config_want_false, NULL},
    {"attn_pdrop", NULL, config_write_zero}, /* the job's value is used */
    {"resid_pdrop", NULL, config_write_zero},
    {"embd_pdrop", NULL, config_write_zero},
    {NULL, NULL, NULL}};

static const char *const nothing[] = {
    "attn_pdrop",         "reorder_and_upcast_attn", "summary_type",          "summary_use_proj",
    "summary_activation", "summary_proj_to_labels",  "summary_first_dropout", NULL};

static const struct hf_family config = {
    .fields = fields, .specials = specials, .models = models, .nothing = nothing};

/* ---- the row --------------------------------------------------------------------------------- */

/* Tensors of files that are only masks. */
static const char *const beside[] = {".attn.bias", ".attn.masked_bias", NULL};

const struct family_row family_gpt2 = {.base = "transformer.",
                                       .beside = beside,
                                       .position_table = true,
                                       .config = &config,
                                       .name = "gpt2",
                                       .task = MODEL_CAUSAL_LM,
                                       .softmax = true,
                                       .check = check_gpt2,
                                       .write = write_gpt2};
