/* dit_config.c: reads and writes keys of config.json that all diffusion transformers have. */
#include "worker/family/dit.h"

int dit_read_ratio(struct config *c, const char *key)
{
    return config_read_real(c, key, 1e-6, 1e6, &c->mlp_ratio);
}

void dit_write_ratio(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_double(w, key, (double)m->ffn_width / (double)m->width);
}

/* Reads the sizes of a patch. The value is one number for both rows and columns, or two numbers,
 * or three numbers of which the first is for frames. */
int dit_read_patch(struct config *c, const char *key)
{
    int64_t v[3] = {1, 1, 1}, n = 0;
    enum jtok t = jread_next(&c->j);
    if (t == J_NUMBER && !jread_int(&c->j, &v[0])) {
        v[2] = v[1] = v[0];
        v[0] = 1;
        n = 3;
    } else if (t == J_ARRAY) {
        while ((t = jread_next(&c->j)) == J_NUMBER && n < 3 && !jread_int(&c->j, &v[n])) n++;
        if (n == 2) v[2] = v[1], v[1] = v[0], v[0] = 1;
        if (t != J_ARRAY_END) n = 0;
    }
    for (int i = 0; i < 3; i++)
        if (v[i] < 1 || v[i] > 16) n = 0;
    if (n < 2) return config_invalid(c, key, "[frames, rows, columns], each 1 to 16");
    c->m->patch_t = v[0];
    c->m->patch_h = v[1];
    c->m->patch_w = v[2];
    return 0;
}

void dit_write_patch(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    jwrite_int(w, NULL, m->patch_t);
    jwrite_int(w, NULL, m->patch_h);
    jwrite_int(w, NULL, m->patch_w);
    jwrite_end(w);
}

int dit_read_sigma(struct config *c, const char *key)
{
    bool sigma = true;
    if (config_read_bool(c, key, &sigma) < 0) return -1;
    c->sigma = 1 + sigma;
    return 0;
}

void dit_write_sigma(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, m->out_channels == 2 * m->in_channels);
}

/* Reads the objective. If a file does not have it, the weights are published weights
 * (worker/plan/check.c) or random. */
int dit_read_objective(struct config *c, const char *key)
{
    const enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_STRING) return config_invalid(c, key, "a string");
    if (jread_is(&c->j, "rectified_flow"))
        c->m->trained_on = OBJECTIVE_RECTIFIED_FLOW;
    else if (jread_is(&c->j, "iddpm"))
        c->m->trained_on = OBJECTIVE_IDDPM;
    else
        return config_refuse(c, key, "only \"rectified_flow\" and \"iddpm\" are supported");
    return 0;
}

void dit_write_objective(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_str(w, key, family_objective(m));
}

int dit_model(const struct model_shape *m)
{
    (void)m;
    return 1;
}

int dit_finish(struct config *c)
{
    struct model_shape *m = c->m;
    if (!m->in_channels) m->in_channels = 4;
    if (!m->out_channels) m->out_channels = (c->sigma ? c->sigma : 2) * m->in_channels;
    if (c->mlp_ratio > 0) m->ffn_width = (int64_t)((double)m->width * c->mlp_ratio);
    return 0;
}

/* Keys that concern training and its kernels. */
const char *const dit_nothing[] = {"input_size",
                                   "class_dropout_prob",
                                   "enable_flash_attn",
                                   "enable_flashattn",
                                   "enable_layernorm_kernel",
                                   "enable_sequence_parallelism",
                                   "freeze",
                                   "freeze_y_embedder",
                                   "only_train_temporal",
                                   "num_frames",
                                   NULL};
