/* retnet.c: RetNet (2307.08621). Its tensors have the names of flash-linear-attention. It has
 * rotary positions, and the fixed decay 1 - 2^(-5 - h) for head h. The output of each head is
 * normalised and then multiplied by a swish gate.
 *
 *   per layer   x += Wo (n(retention(rope(Wq h), rope(Wk h), Wv h)) * silu(Wg h)), h = n(x)
 *               x += Wd (silu(Wg n(x)) * Wu n(x)) */
#include <math.h>
#include <stddef.h>
#include "api/core/limits.h"
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
    const int vg_w = prog_tensor(p, "attn.v_proj.weight", V, C, INIT_NORMAL);
    prog_joined(p, "attn.g_proj.weight", V, C, INIT_NORMAL);
    const int o_w = prog_tensor(p, "attn.o_proj.weight", C, V, INIT_RESIDUAL);
    const int qk_in = write_linear(
        p, &(struct write_linear){xn, PROG_NONE, qk_w, 2, PROG_NONE, "qk_in", KEEP_NEVER});
    const int qk = write_rope(p, m, qk_in, 2 * m->n_heads, "qk");
    const int vg = write_linear(
        p, &(struct write_linear){xn, PROG_NONE, vg_w, 2, PROG_NONE, "vg", KEEP_NONE_MODE});
    const struct write_mixer mix = {.q = prog_view(p, qk, 0, K),
                                    .k = prog_view(p, qk, K, K),
                                    .v = prog_view(p, vg, 0, V),
                                    .key_dim = m->head_dim,
                                    .value_dim = m->value_dim,
                                    .slopes = SLOPE_RETNET,
                                    .scale = 1 / sqrt((double)m->head_dim)};
    const int g = prog_view(p, vg, V, V);
    const int o = write_norm(p, write_linear_attention(p, m, &mix),
                             &(struct write_norm){"attn.g_norm_swish_gate.weight", NULL, NORM_RMS,
                                                  m->norm_eps, m->n_heads});
    const int gated = write_glu(p, ACT_SILU, g, o, "gated");
    return write_linear(
        p, &(struct write_linear){gated, x, o_w, 1, PROG_NONE, "mlp_input", KEEP_NONE_MODE});
}

static void write_retnet(const struct model_shape *m, struct family *f)
{
    fla_write(m, f, mixer);
}

static int check_retnet(struct model_shape *m, struct err *e)
{
    if (!m->value_dim) m->value_dim = 2 * m->head_dim;
    if (m->value_dim > JOB_MAX_LINEAR_HEAD)
        return err_field(e, ERR_UNSUPPORTED, "model.config.value_dim",
                         "value_dim %lld: at most %d is supported, so take more attention heads",
                         (long long)m->value_dim, JOB_MAX_LINEAR_HEAD);
    if (m->rope_theta != 10000)
        return err_field(e, ERR_UNSUPPORTED, "model.config.rope_theta",
                         "rope_theta %g: this family's is 10000, its files have no other",
                         m->rope_theta);
    return write_check_heads(m, e);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static int finish_retnet(struct config *c)
{
    return fla_finish(c, 2, 2);
}

static const struct hf_field retnet_fields[] = {FLA_SIZES, {NULL, NULL, 0}};
static const struct hf_special retnet_specials[] = {
    FLA_SPECIALS,
    {"feature_map", config_want_null, NULL},
    {"use_short_conv", config_want_false, config_write_false},
    {"use_output_gate", config_want_true, config_write_true},
    {NULL, NULL, NULL}};
static const struct hf_model models[] = {
    {"retnet", fla_absent, {"RetNetForCausalLM", "RetNetModel"}}, {NULL, NULL, {NULL}}};

static const struct hf_family config = {.fields = retnet_fields,
                                        .specials = retnet_specials,
                                        .nothing = fla_nothing,
                                        .models = models,
                                        .finish = finish_retnet};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_retnet = {.config = &config,
                                         .name = "retnet",
                                         .task = MODEL_CAUSAL_LM,
                                         .linear = true,
                                         .check = check_retnet,
                                         .write = write_retnet};
