/* fla.c: the layout and the keys of models of flash-linear-attention. */
#include "worker/family/fla.h"

#include <math.h>
#include "worker/family/write.h"

void fla_write(const struct model_shape *m, struct family *f, write_mixer_fn *mixer)
{
    const struct write_mlp mlp = {.norm = {"mlp_norm.weight", NULL, NORM_RMS, m->norm_eps, 0},
                                  .gate = "mlp.gate_proj.weight",
                                  .up = "mlp.up_proj.weight",
                                  .down = "mlp.down_proj.weight",
                                  .act = ACT_SILU};
    const struct write_norm last = {"model.norm.weight", NULL, NORM_RMS, m->norm_eps, 0};
    struct program *p = &f->layer[0];
    write_embedding(&f->in, m, "model.embeddings.weight", 1);
    prog_init(p, "model.layers.%d.");
    p->result = write_mlp(p, m, mixer(p, m, prog_input(p, m->width)), &mlp);
    f->n_kinds = 1;
    write_head(&f->out, m, &last, "lm_head.weight");
}

/* ---- config.json ----------------------------------------------------------------------------- */

void fla_write_swish(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_str(w, key, "swish");
}

int fla_read_expand_k(struct config *c, const char *key)
{
    return config_read_real(c, key, 1e-6, 1e6, &c->expand_k);
}

int fla_read_expand_v(struct config *c, const char *key)
{
    return config_read_real(c, key, 1e-6, 1e6, &c->expand_v);
}

int fla_read_ratio(struct config *c, const char *key)
{
    return config_read_real(c, key, 1e-6, 1e6, &c->mlp_ratio);
}

void fla_write_expand_k(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_double(w, key, (double)(m->n_heads * m->head_dim) / (double)m->width);
}

void fla_write_expand_v(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_double(w, key, (double)(m->n_heads * m->value_dim) / (double)m->width);
}

int fla_read_kv_heads(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, 65536, &c->m->n_kv_heads);
}

/* Computes the width of a head. All heads together have `expand` times hidden_size columns. */
static int head_of(struct config *c, const char *key, double expand, int64_t *out)
{
    const double width = (double)c->m->width * expand, whole = nearbyint(width);
    if (fabs(width - whole) > 1e-6 * width || whole < 1 || (int64_t)whole % c->m->n_heads)
        return config_error(
            c, ERR_INVALID, key,
            "hidden_size %lld times %s %g is no multiple of num_heads %lld: change one "
            "of them",
            (long long)c->m->width, key, expand, (long long)c->m->n_heads);
    *out = (int64_t)whole / c->m->n_heads;
    return 0;
}

/* Sets the widths of heads and of the MLP. expand_v and ratio are the package's defaults for
 * missing keys. */
int fla_finish(struct config *c, double expand_v, double ratio)
{
    struct model_shape *m = c->m;
    const bool file = c->form == CONFIG_FILE;
    if ((file || c->expand_k > 0) && !config_met(c, "head_dim") &&
        head_of(c, "expand_k", c->expand_k > 0 ? c->expand_k : 1, &m->head_dim))
        return -1;
    if ((file || c->expand_v > 0) && !config_met(c, "value_dim") &&
        head_of(c, "expand_v", c->expand_v > 0 ? c->expand_v : expand_v, &m->value_dim))
        return -1;
    if (c->mlp_ratio > 0) ratio = c->mlp_ratio;
    if (!m->ffn_width && (file || c->mlp_ratio > 0))
        m->ffn_width = ((int64_t)((double)m->width * ratio * 2 / 3) + 255) / 256 * 256;
    return 0;
}

/* Keys of the package's kernels, and of its convolution, which must be switched off. */
const char *const fla_nothing[] = {
    "attn_mode",   "fuse_norm",  "fuse_cross_entropy", "fuse_linear_cross_entropy",
    "fuse_swiglu", "use_l2warp", "conv_size",          NULL};

const struct hf_absent fla_absent[] = {HF_ABSENT(2048, 1e-6, 10000), {NULL, 0}};
