/* modernbert.c: ModernBERT (2412.13663). It is an encoder. It has norms before attention and
 * before a gated MLP, RoPE, and a two-sided window in some layers.
 *
 *   x = n(word[ids])
 *   per layer   x += Wo attn(rope(Wqkv n1(x)));  x += Wo (act(Wi n2(x)) * Wi' n2(x))
 *   logits = Wword n(gelu(Wd n(x))) + b
 *
 * The first layer has no n1. Layers with a window have their own RoPE base. Layers without a
 * window are in shape.layer_mask. A token sees local_attention / 2 tokens on each side. */
#include <stddef.h>
#include "api/core/limits.h"
#include "worker/family/decoder.h"
#include "worker/family/window.h"
#include "worker/family/write.h"

enum { FIRST, WINDOWED, FULL, KINDS }; /* kinds of layers; FIRST may have a window or not */

static int layer_kind(const struct model_shape *m, int64_t l)
{
    return l == 0 ? FIRST : window_kind(m, l) == WINDOW_NONE ? FULL : WINDOWED;
}

static int64_t window_of_kind(const struct model_shape *m, int kind)
{
    return window_of(m, kind == FIRST  ? window_kind(m, 0)
                        : kind == FULL ? WINDOW_NONE
                                       : WINDOW_ALL);
}

/* Writes LayerNorm of x with the weights "NAME.weight" and, if the model has it, "NAME.bias". */
#define LAYER_NORM(p, m, x, name)                                                                  \
    write_norm(p, x,                                                                               \
               &(struct write_norm){name ".weight", (m)->norm_bias ? name ".bias" : NULL,          \
                                    NORM_LAYER, (m)->norm_eps, 0})

/* A product a W' [+ bias] [+ base]. The weight is [rows, columns of a]. If has_bias is set, there
 * is a bias [rows]. */
struct projected {
    const char *weight, *bias;
    bool has_bias;
    int64_t rows;
    enum init_id init;
    const char *name; /* name of the result */
    enum keep_id keep;
};
static int projected(struct program *p, int a, int base, const struct projected *d)
{
    const int w = prog_tensor(p, d->weight, d->rows, p->value[a].cols, d->init);
    const int b = d->has_bias ? prog_tensor(p, d->bias, d->rows, 0, INIT_ZERO) : PROG_NONE;
    return write_linear(p, &(struct write_linear){a, base, w, 1, b, d->name, d->keep});
}

static int attention(struct program *p, const struct model_shape *m, int kind, int x)
{
    const int64_t C = m->width, window = window_of_kind(m, kind);
    const int xn = kind == FIRST ? x : LAYER_NORM(p, m, x, "attn_norm");
    const int qkv = projected(p, xn, PROG_NONE,
                              &(struct projected){"attn.Wqkv.weight", "attn.Wqkv.bias", m->qkv_bias,
                                                  3 * C, INIT_NORMAL, "qkv", KEEP_NEVER});
    const int q = write_window_rope(p, m, prog_view(p, qkv, 0, C), m->n_heads, "q", window);
    const int kv = write_window_rope(p, m, prog_view(p, qkv, C, 2 * C), m->n_heads, "kv", window);
    const int a = write_attention(p, m, &(struct write_attention){q, kv, false, window});
    return projected(p, a, x,
                     &(struct projected){"attn.Wo.weight", "attn.Wo.bias", m->o_bias, C,
                                         INIT_RESIDUAL, "mlp_input", KEEP_NONE_MODE});
}

static int mlp(struct program *p, const struct model_shape *m, int x)
{
    const int64_t I = m->ffn_width;
    const int xn = LAYER_NORM(p, m, x, "mlp_norm");
    const int up = projected(p, xn, PROG_NONE,
                             &(struct projected){"mlp.Wi.weight", "mlp.Wi.bias", m->mlp_bias, 2 * I,
                                                 INIT_NORMAL, "gate_up", KEEP_NONE_MODE});
    const int a = write_glu(p, (enum act_id)m->act, prog_view(p, up, 0, I), prog_view(p, up, I, I),
                            "mlp_act");
    return projected(p, a, x,
                     &(struct projected){"mlp.Wo.weight", "mlp.Wo.bias", m->mlp_bias, m->width,
                                         INIT_RESIDUAL, "layer_output", KEEP_NEVER});
}

static void write_in(struct program *in, const struct model_shape *m)
{
    write_embedding(in, m, "model.embeddings.tok_embeddings.weight", 1);
    in->result = LAYER_NORM(in, m, in->result, "model.embeddings.norm");
}

static void write_out(struct program *out, const struct model_shape *m)
{
    const int64_t C = m->width;
    prog_init(out, "");
    int x = LAYER_NORM(out, m, prog_input(out, C), "model.final_norm");
    x = projected(out, x, PROG_NONE,
                  &(struct projected){"head.dense.weight", "head.dense.bias", m->classifier_bias, C,
                                      INIT_NORMAL, "head_up", KEEP_NEVER});
    x = LAYER_NORM(out, m, write_act(out, ACT_GELU, x, "head_act", KEEP_NEVER), "head.norm");
    struct op loss = {.kind = OP_XENT, .in = {x}, .n_w = 1};
    loss.w = m->tied ? PROG_TIED : prog_tensor(out, "decoder.weight", m->vocab, C, INIT_NORMAL);
    if (!m->no_decoder_bias) {
        loss.bias = prog_tensor(out, "decoder.bias", m->vocab, 0, INIT_ZERO);
        loss.n_bias = 1;
    }
    prog_op(out, &loss, NULL);
}

static void write_modernbert(const struct model_shape *m, struct family *f)
{
    write_in(&f->in, m);
    f->n_kinds = KINDS;
    for (int k = 0; k < KINDS; k++) {
        struct program *p = &f->layer[k];
        prog_init(p, "model.layers.%d.");
        p->result = mlp(p, m, attention(p, m, k, prog_input(p, m->width)));
    }
    write_out(&f->out, m);
}

static int check_modernbert(struct model_shape *m, struct err *e)
{
    if (write_check_heads(m, e)) return -1;
    if (m->head_dim * m->n_heads != m->width)
        return err_field(e, ERR_INVALID, "model.config.num_attention_heads",
                         "hidden_size %lld is not num_attention_heads %lld heads of one size",
                         (long long)m->width, (long long)m->n_heads);
    if (m->qkv_bias != m->o_bias)
        return err_field(e, ERR_UNSUPPORTED, "model.config.qkv_bias",
                         "qkv_bias and o_bias: attention_bias gives this family both or none");
    if (m->act == ACT_IDENTITY) m->act = ACT_GELU; /* the family's default */
    if (m->act == ACT_ELU1 || m->act == ACT_SIGMOID)
        return err_field(
            e, ERR_UNSUPPORTED, "model.config.hidden_act",
            "hidden_activation: this family takes gelu, gelu_tanh, relu, silu or tanh");
    return window_check(m, e);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {HF_ABSENT(8192, 1e-5, 160000),
                                       HF_ABSENT_SIZES(768, 22, 12, 1152, 50368),
                                       {"sliding_window", 65},
                                       {"rope_local_base_freq", 10000},
                                       {"hidden_act", ACT_GELU},
                                       {"tie_word_embeddings", 1},
                                       {NULL, 0}};
static const struct hf_model models[] = {
    {"modernbert", own, {"ModernBertForMaskedLM", "ModernBertModel"}}, {NULL, NULL, {NULL}}};

/* Reads local_attention. Half of local_attention is rounded down, as in the package. */
static int read_local_attention(struct config *c, const char *key)
{
    int64_t n = 2 * (c->m->window - 1);
    if (config_read_int(c, key, 0, JOB_MAX_SEQ, &n) < 0) return -1;
    c->m->window = n / 2 + 1;
    return 0;
}

/* Reads sliding_window. In the package, this is the number of tokens on each side. shape.window
 * also counts the token itself. */
static int read_window(struct config *c, const char *key)
{
    const bool file = c->form == CONFIG_FILE;
    if (config_read_int(c, key, 0, JOB_MAX_SEQ - 1, &c->m->window) < 0) return -1;
    c->m->window += file;
    return 0;
}

static void write_local_attention(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (m->window) jwrite_int(w, key, 2 * (m->window - 1));
}

/* Reads hidden_act. The package ignores it and reads hidden_activation instead. */
static int read_hidden_act(struct config *c, const char *key)
{
    return c->form == CONFIG_FILE ? config_ignore(c, key) : config_read_act(c, key);
}

static int read_decoder_bias(struct config *c, const char *key)
{
    bool v = true;
    if (config_read_bool(c, key, &v) < 0) return -1;
    c->m->no_decoder_bias = !v;
    return 0;
}

static void write_decoder_bias(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, !m->no_decoder_bias);
}

static int want_gelu(struct config *c, const char *key)
{
    return config_want_word(c, key, "gelu");
}

static int read_every(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, HF_MAX_LAYERS, &c->full_first);
}

static int finish_modernbert(struct config *c)
{
    const int64_t every = c->full_first ? c->full_first : 3;
    for (int64_t l = 0; l < c->m->n_layers && !c->n_flags && !config_met(c, "layer_mask.0");
         l += every)
        config_mark_layer(c->m, l, true);
    return config_check_list(c, "layer_types");
}

static const struct hf_field fields[] = {HF_SIZES,
                                         {"rms_norm_eps", "norm_eps", 0},
                                         {"rope_theta", "global_rope_theta", 0},
                                         {"rope_local_base_freq", "local_rope_theta", 0},
                                         {"hidden_act", NULL, HF_UNWRITTEN},
                                         {"sliding_window", NULL, HF_UNWRITTEN},
                                         {"norm_bias", NULL, 0},
                                         {"mlp_bias", NULL, 0},
                                         {"classifier_bias", NULL, 0},
                                         {"no_decoder_bias", NULL, HF_UNWRITTEN},
                                         DECODER_BIAS_FIELDS,
                                         HF_MASKS,
                                         {NULL, NULL, 0}};

static const struct hf_special specials[] = {
    HF_NEVER,
    {"attention_bias", decoder_read_bias, decoder_write_bias},
    {"hidden_activation", config_read_act, config_write_act},
    {"hidden_act", read_hidden_act, NULL},
    {"classifier_activation", want_gelu, NULL},
    {"decoder_bias", read_decoder_bias, write_decoder_bias},
    {"local_attention", read_local_attention, write_local_attention},
    {"sliding_window", read_window, NULL},
    {"global_attn_every_n_layers", read_every, NULL},
    {"layer_types", window_read_layers, window_write_all_layers},
    {"rope_scaling", config_read_rope, NULL},
    {"rope_parameters", config_read_layer_ropes, NULL},
    {"partial_rotary_factor", config_want_one, NULL},
    {NULL, NULL, NULL}};

/* Keys that change nothing here. They are for other heads, for dropout, and for options of
 * transformers' code. */
static const char *const nothing[] = {"classifier_pooling",        "deterministic_flash_attn",
                                      "embedding_dropout",         "mlp_dropout",
                                      "initializer_cutoff_factor", "layer_norm_eps",
                                      "position_embedding_type",   "reference_compile",
                                      "repad_logits_with_grad",    "sparse_prediction",
                                      "sparse_pred_ignore_index",  NULL};

static const struct hf_family config = {.fields = fields,
                                        .specials = specials,
                                        .models = models,
                                        .finish = finish_modernbert,
                                        .nothing = nothing};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_modernbert = {.head = "decoder.weight",
                                             .config = &config,
                                             .name = "modernbert",
                                             .task = MODEL_MASKED_LM,
                                             .softmax = true,
                                             .check = check_modernbert,
                                             .write = write_modernbert,
                                             .layer_kind = layer_kind};
