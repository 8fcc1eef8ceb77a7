/* linear.c: the linear transformer (2006.16236). Its tensors have the names of
 * flash-linear-attention. It has a feature map of queries and keys, no decay, and a norm of each
 * head's output.
 *
 *   per layer   x += Wo n(phi(Wq h) (sum phi(Wk h) Wv h) / sqrt(D)), h = n(x)
 *               x += Wd (silu(Wg n(x)) * Wu n(x))
 *
 * If shape.normalise is set, outputs are divided by the sum of the weights. The norm of each
 * head's output nearly cancels this division. */
#include <math.h>
#include <stddef.h>
#include "worker/family/config_table.h"
#include "worker/family/fla.h"
#include "worker/family/write.h"

static int mixer(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width, K = m->n_heads * m->head_dim, V = m->n_heads * m->value_dim;
    const int xn = write_norm(
        p, x, &(struct write_norm){"attn_norm.weight", NULL, NORM_RMS, m->norm_eps, 0});
    const int qk_w = prog_tensor(p, "attn.q_proj.weight", K, C, INIT_NORMAL);
    prog_joined(p, "attn.k_proj.weight", K, C, INIT_NORMAL);
    const int v_w = prog_tensor(p, "attn.v_proj.weight", V, C, INIT_NORMAL);
    const int o_w = prog_tensor(p, "attn.o_proj.weight", C, V, INIT_RESIDUAL);
    int qk = write_linear(
        p, &(struct write_linear){xn, PROG_NONE, qk_w, 2, PROG_NONE, "qk_in", KEEP_NONE_MODE});
    const int v = write_linear(
        p, &(struct write_linear){xn, PROG_NONE, v_w, 1, PROG_NONE, "v", KEEP_NONE_MODE});
    if (m->feature_map != ACT_IDENTITY)
        qk = write_act(p, (enum act_id)m->feature_map, qk, "qk", KEEP_NEVER);
    const struct write_mixer mix = {.q = prog_view(p, qk, 0, K),
                                    .k = prog_view(p, qk, K, K),
                                    .v = v,
                                    .key_dim = m->head_dim,
                                    .value_dim = m->value_dim,
                                    .slopes = SLOPE_NONE,
                                    .scale = 1 / sqrt((double)m->head_dim),
                                    .normalise = m->normalise != 0};
    const int o = write_norm(
        p, write_linear_attention(p, m, &mix),
        &(struct write_norm){"attn.norm.weight", NULL, NORM_RMS, m->norm_eps, m->n_heads});
    return write_linear(
        p, &(struct write_linear){o, x, o_w, 1, PROG_NONE, "mlp_input", KEEP_NONE_MODE});
}

static void write_linear_transformer(const struct model_shape *m, struct family *f)
{
    fla_write(m, f, mixer);
}

static int check_linear(struct model_shape *m, struct err *e)
{
    if (!m->value_dim) m->value_dim = m->head_dim;
    if (m->feature_map != ACT_ELU1 && m->feature_map != ACT_RELU && m->feature_map != ACT_IDENTITY)
        return err_field(e, ERR_UNSUPPORTED, "model.config.feature_map",
                         "feature_map: this family takes elu1, relu or identity");
    return write_check_heads(m, e);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct {
    const char *word;
    enum act_id act;
} maps[] = {{"elu", ACT_ELU1}, {"elu1", ACT_ELU1}, {"relu", ACT_RELU}, {"identity", ACT_IDENTITY}};

static int read_map(struct config *c, const char *key)
{
    if (jread_next(&c->j) != J_STRING) return config_invalid(c, key, "a string");
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        if (!jread_is(&c->j, maps[i].word)) continue;
        c->m->feature_map = maps[i].act;
        return 0;
    }
    return config_refuse(c, key, "only elu, relu and identity are supported");
}

static void write_map(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_str(w, key,
               m->feature_map == ACT_ELU1   ? "elu"
               : m->feature_map == ACT_RELU ? "relu"
                                            : "identity");
}

static int finish_linear(struct config *c)
{
    if (c->form == CONFIG_FILE && !config_met(c, "feature_map"))
        return config_refuse(
            c, "feature_map",
            "missing, which means a learnt map, and only elu, relu and identity are "
            "supported");
    return fla_finish(c, 1, 4);
}

static const struct hf_field linear_fields[] = {FLA_SIZES,
                                                {"normalise", "norm_feature_map", 0},
                                                {"feature_map", NULL, HF_UNWRITTEN},
                                                {NULL, NULL, 0}};
static const struct hf_special linear_specials[] = {
    FLA_SPECIALS,
    {"feature_map", read_map, write_map},
    {"norm_q", config_want_false, config_write_false},
    {"norm_k", config_want_false, config_write_false},
    {"tie_q_k", config_want_false, NULL},
    {NULL, NULL, NULL}};
static const struct hf_model models[] = {
    {"linear_attn", fla_absent, {"LinearAttentionForCausalLM", "LinearAttentionModel"}},
    {NULL, NULL, {NULL}}};

static const struct hf_family config = {.fields = linear_fields,
                                        .specials = linear_specials,
                                        .nothing = fla_nothing,
                                        .models = models,
                                        .finish = finish_linear};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_linear = {.config = &config,
                                         .name = "linear_attn",
                                         .task = MODEL_CAUSAL_LM,
                                         .linear = true,
                                         .check = check_linear,
                                         .write = write_linear_transformer};
