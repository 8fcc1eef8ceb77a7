/* tnl.c: TransNormerLLM (2307.14995). If the paper and the released code differ, this code follows
 * the released code, because the released weights were trained with it.
 *
 *   x = embed[ids] sqrt(C)
 *   per layer   x += Wo (u * s(linear attention(silu(q), silu(k), v))), q, k, v, u = Wqkvu s(x)
 *               x += W3 (W1 s(x) * W2 s(x))
 *   logits = Whead s(x)
 *
 * s is RMSNorm over the whole width, without a weight and with eps 1e-6. q k is not scaled, and
 * neither the gate u nor the gate of the MLP has an activation. Layers in layer_mask (in released
 * models, the first layer) have LRPE, which doubles the size of keys. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "api/core/limits.h"
#include "worker/family/config_table.h"
#include "worker/family/write.h"

#define SIMPLE_NORM(p, x) write_norm(p, x, &(struct write_norm){.kind = NORM_RMS, .eps = 1e-6})

enum { PLAIN, WITH_LRPE };

/* Applies LRPE to queries and keys together. Both use the same theta. */
static int lrpe(struct program *p, int x, int theta)
{
    return prog_op(
        p, &(struct op){.kind = OP_LRPE, .in = {x}, .w = theta, .n_w = 1},
        &(struct value){.name = "qk_lrpe", .cols = 2 * p->value[x].cols, .keep = KEEP_NONE_MODE});
}

/* Adds theta as [H, D]. In the file it is [H, 1, D]. */
static int theta_weight(struct program *p, const struct model_shape *m)
{
    struct weight w = {.name = "token_mixer.lrpe.theta",
                       .rows = m->n_heads,
                       .cols = m->head_dim,
                       .init = INIT_LRPE,
                       .n_dims = 3,
                       .dims = {m->n_heads, 1, m->head_dim}};
    return prog_weight(p, &w);
}

static int mixer(struct program *p, const struct model_shape *m, int x, int kind)
{
    const int64_t C = m->width, D = m->head_dim, E = m->n_heads * D;
    const int xn = SIMPLE_NORM(p, x);
    const int w = prog_tensor(p, "token_mixer.qkvu_proj.weight", 4 * E, C, INIT_NORMAL);
    const int theta = kind == WITH_LRPE ? theta_weight(p, m) : PROG_NONE;
    const int out = prog_tensor(p, "token_mixer.out_proj.weight", C, E, INIT_RESIDUAL);
    const int all = write_linear(
        p, &(struct write_linear){xn, PROG_NONE, w, 1, PROG_NONE, "qkvu", KEEP_NONE_MODE});
    const int linear_qk = prog_view(p, all, 0, 2 * E);
    const int v = prog_view(p, all, 2 * E, E), u = prog_view(p, all, 3 * E, E);
    const int act = write_act(p, ACT_SILU, linear_qk, "qk", KEEP_NEVER);
    const int qk = kind == WITH_LRPE ? lrpe(p, act, theta) : act;
    const int64_t width = p->value[qk].cols / 2;
    const int q = prog_view(p, qk, 0, width), k = prog_view(p, qk, width, width);
    const struct write_mixer mix = {.q = q,
                                    .k = k,
                                    .v = v,
                                    .key_dim = kind == WITH_LRPE ? 2 * D : D,
                                    .value_dim = D,
                                    .slopes = SLOPE_TNL,
                                    .scale = 1,
                                    .theta = theta,
                                    .n_theta = kind == WITH_LRPE};
    const int o = SIMPLE_NORM(p, write_linear_attention(p, m, &mix));
    const int gated = write_glu(p, ACT_IDENTITY, o, u, "gated");
    return write_linear(
        p, &(struct write_linear){gated, x, out, 1, PROG_NONE, "mlp_input", KEEP_NONE_MODE});
}

static void write_tnl(const struct model_shape *m, struct family *f)
{
    static const struct write_mlp mlp = {.norm = {.kind = NORM_RMS, .eps = 1e-6},
                                         .gate = "channel_mixer.l1.weight",
                                         .up = "channel_mixer.l2.weight",
                                         .down = "channel_mixer.l3.weight",
                                         .act = ACT_IDENTITY};
    write_embedding(&f->in, m, "model.embed_tokens.weight",
                    m->unscaled ? 1 : sqrt((double)m->width));
    for (int kind = PLAIN; kind <= WITH_LRPE; kind++) {
        struct program *p = &f->layer[kind];
        prog_init(p, "model.layers.%d.");
        p->result = write_mlp(p, m, mixer(p, m, prog_input(p, m->width), kind), &mlp);
    }
    f->n_kinds = 2;
    write_head(&f->out, m, &mlp.norm, "lm_head.weight");
}

static int layer_kind(const struct model_shape *m, int64_t l)
{
    return shape_special(m, l) ? WITH_LRPE : PLAIN;
}

static int check_tnl(struct model_shape *m, struct err *e)
{
    for (int64_t l = 0; l < m->n_layers; l++)
        if (shape_special(m, l) && 2 * m->head_dim > JOB_MAX_LINEAR_HEAD)
            return err_field(e, ERR_UNSUPPORTED, "model.config.head_dim",
                             "head_dim %lld: LRPE doubles it, and at most %d is supported",
                             (long long)m->head_dim, JOB_MAX_LINEAR_HEAD);
    return write_check_heads(m, e);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static int read_mixer_width(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, 1 << 24, &c->mixer_width);
}

static void write_mixer_width(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->n_heads * m->head_dim);
}

static int lrpe_layer(struct config *c, enum jtok t)
{
    double v = 0;
    if (t == J_NUMBER ? jread_double(&c->j, &v) < 0 || (v != 0 && v != 1)
                      : t != J_TRUE && t != J_FALSE)
        return 1;
    config_mark_layer(c->m, c->n_flags, t == J_TRUE || v == 1);
    return 0;
}

static int read_lrpe(struct config *c, const char *key)
{
    return config_read_list(c, key, lrpe_layer);
}

static void write_lrpe(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int l = 0; l < m->n_layers; l++) jwrite_int(w, NULL, shape_special(m, l));
    jwrite_end(w);
}

static int want_simple_norm(struct config *c, const char *key)
{
    return config_want_word(c, key, "simplermsnorm");
}

static void write_simple_norm(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_str(w, key, "simplermsnorm");
}

static int finish_tnl(struct config *c)
{
    struct model_shape *m = c->m;
    if (c->mixer_width % m->n_heads)
        return config_error(
            c, ERR_INVALID, "hidden_dim",
            "hidden_dim %lld is no multiple of decoder_attention_heads %lld: change one "
            "of them",
            (long long)c->mixer_width, (long long)m->n_heads);
    if (c->mixer_width && !config_met(c, "head_dim")) m->head_dim = c->mixer_width / m->n_heads;
    return config_check_list(c, "linear_use_lrpe_list");
}

static const struct hf_field tnl_fields[] = {
    {"hidden_size", "decoder_embed_dim", HF_NEEDED},
    {"num_hidden_layers", "decoder_layers", HF_NEEDED},
    {"num_attention_heads", "decoder_attention_heads", HF_NEEDED},
    {"intermediate_size", "glu_dim", HF_NEEDED},
    {"vocab_size", NULL, HF_NEEDED},
    {"max_position_embeddings", NULL, 0},
    {"tie_word_embeddings", NULL, 0},
    {"no_scale_embedding", NULL, 0},
    {"head_dim", NULL, HF_UNWRITTEN},
    {"rms_norm_eps", NULL, HF_FIXED},
    {"rope_theta", NULL, HF_FIXED},
    HF_MASKS,
    {NULL, NULL, 0}};
static const struct hf_special tnl_specials[] = {
    HF_NEVER,
    {"hidden_dim", read_mixer_width, write_mixer_width},
    {"linear_use_lrpe_list", read_lrpe, write_lrpe},
    {"linear_act_fun", config_want_silu, config_write_silu},
    {"norm_type", want_simple_norm, write_simple_norm},
    {"bias", config_want_false, config_write_false},
    {"add_bos_token", NULL, config_write_false},
    {NULL, NULL, NULL}};

static const char *const tnl_nothing[] = {"add_bos_token", NULL};

static const struct hf_absent own[] = {HF_ABSENT(2048, 1e-6, 10000), {NULL, 0}};
static const struct hf_model models[] = {
    {"transnormer", own, {"TransnormerForCausalLM", "TransnormerModel"}}, {NULL, NULL, {NULL}}};

static const struct hf_family config = {.nothing = tnl_nothing,
                                        .fields = tnl_fields,
                                        .specials = tnl_specials,
                                        .models = models,
                                        .finish = finish_tnl};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_tnl = {.config = &config,
                                      .name = "transnormer",
                                      .task = MODEL_CAUSAL_LM,
                                      .linear = true,
                                      .check = check_tnl,
                                      .write = write_tnl,
                                      .layer_kind = layer_kind};
