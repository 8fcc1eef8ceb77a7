/* Keys of the diffusion transformers: Open-Sora's STDiT and STDiT3 as released, Latte and the
 * Transformer-2D likewise. */
#include "worker/family/config_table.h"

/* ---- what all have --------------------------------------------------------------------------- */

static int read_ratio(struct config *c, const char *key)
{
    return hf_read_real(c, key, 1e-6, 1e6, &c->mlp_ratio);
}

static void write_ratio(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_double(w, key, (double)m->ffn_width / (double)m->width);
}

/* One number, of rows and columns; two, those; three, frames first. */
static int read_patch(struct config *c, const char *key)
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
    if (n < 2) return hf_invalid(c, key, "[frames, rows, columns], each 1 to 16");
    c->m->patch_t = v[0];
    c->m->patch_h = v[1];
    c->m->patch_w = v[2];
    return 0;
}

static void write_patch(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    jwrite_int(w, NULL, m->patch_t);
    jwrite_int(w, NULL, m->patch_h);
    jwrite_int(w, NULL, m->patch_w);
    jwrite_end(w);
}

static int read_sigma(struct config *c, const char *key)
{
    bool sigma = true;
    if (hf_read_bool(c, key, &sigma) < 0) return -1;
    c->sigma = 1 + sigma;
    return 0;
}

static void write_sigma(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, m->out_channels == 2 * m->in_channels);
}

/* Where a file does not say it, only the user knows: job_check asks. */
static int read_objective(struct config *c, const char *key)
{
    const enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_STRING) return hf_invalid(c, key, "a string");
    if (!jread_is(&c->j, "rectified_flow"))
        return hf_refuse(c, key, "only \"rectified_flow\" is supported");
    c->m->trained_on = OBJECTIVE_RECTIFIED_FLOW;
    return 0;
}

static void write_objective(struct jwrite *w, const char *key, const struct model_shape *m)
{
    (void)m;
    jwrite_str(w, key, "rectified_flow");
}

static int finish_dit(struct config *c)
{
    struct model_shape *m = c->m;
    if (!m->in_channels) m->in_channels = 4;
    if (!m->out_channels) m->out_channels = (c->sigma ? c->sigma : 2) * m->in_channels;
    if (c->mlp_ratio > 0) m->ffn_width = (int64_t)((double)m->width * c->mlp_ratio);
    return 0;
}

/* What is trained, and by which kernels. */
static const char *const dit_nothing[] = {"input_size",
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

static void dit_defaults(struct model_shape *m)
{
    hf_usual(m);
    m->in_channels = 4;
    m->patch_t = 1;
    m->patch_h = m->patch_w = 2;
}

/* clang-format off */
#define DIT_SIZES                                                                                  \
    {"hidden_size", NULL, HF_NEEDED}, {"num_attention_heads", "num_heads", HF_NEEDED},             \
    {"intermediate_size", NULL, HF_UNWRITTEN}, {"in_channels", NULL, 0},                           \
    {"head_dim", NULL, HF_UNWRITTEN}, {"num_key_value_heads", NULL, HF_UNWRITTEN},                 \
    {"out_channels", NULL, HF_UNWRITTEN}, {"patch_t", NULL, HF_UNWRITTEN},                         \
    {"patch_h", NULL, HF_UNWRITTEN}, {"patch_w", NULL, HF_UNWRITTEN},                              \
    {"hidden_act", NULL, HF_UNWRITTEN | HF_FIXED}
#define DIT_SPECIALS                                                                               \
    {"mlp_ratio", read_ratio, write_ratio}, {"patch_size", read_patch, write_patch},               \
    {"pred_sigma", read_sigma, write_sigma}, {"drop_path", hf_want_zero, NULL},                    \
    {"objective", read_objective, write_objective},                                                \
    {"quantization_config", hf_want_null, NULL}
#define CAPTION {"caption_channels", NULL, 0}, {"model_max_length", NULL, 0}
/* clang-format on */

/* ---- STDiT3 ---------------------------------------------------------------------------------- */

/* Pairs of a spatial and a temporal block, each a layer of ours. */
static int read_pairs(struct config *c, const char *key)
{
    int64_t n = 0;
    if (hf_read_int(c, key, 1, 512, &n) < 0) return -1;
    c->m->n_layers = (int32_t)(2 * n);
    return 0;
}

static void write_pairs(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->n_layers / 2);
}

static void stdit3_defaults(struct model_shape *m)
{
    dit_defaults(m);
    m->n_layers = 56;
    m->caption_channels = 4096;
    m->text_len = 300;
    m->base_size = 512;
}

static const char *stdit3_type(const struct model_shape *m)
{
    (void)m;
    return "STDiT3";
}

static const struct hf_field stdit3_fields[] = {DIT_SIZES,
                                                CAPTION,
                                                {"num_hidden_layers", NULL, HF_UNWRITTEN},
                                                {"qk_norm", NULL, 0},
                                                {"input_sq_size", NULL, 0},
                                                {NULL, NULL, 0}};
static const struct hf_special stdit3_specials[] = {DIT_SPECIALS,
                                                    {"depth", read_pairs, write_pairs},
                                                    {"qk_norm_legacy", hf_want_false, NULL},
                                                    {"skip_y_embedder", hf_want_false, NULL},
                                                    {NULL, NULL, NULL}};
static const char *const stdit3_types[] = {"STDiT3", NULL};

const struct hf_family hf_stdit3 = {.nothing = dit_nothing,
                                    .fields = stdit3_fields,
                                    .specials = stdit3_specials,
                                    .types = stdit3_types,
                                    .defaults = stdit3_defaults,
                                    .finish = finish_dit,
                                    .type = stdit3_type,
                                    .architecture = stdit3_type};

/* ---- STDiT ----------------------------------------------------------------------------------- */

static void stdit_defaults(struct model_shape *m)
{
    dit_defaults(m);
    m->caption_channels = 4096;
    m->text_len = 120;
    m->space_scale = m->time_scale = 1;
}

static const char *stdit_type(const struct model_shape *m)
{
    (void)m;
    return "STDiT";
}

static const struct hf_field stdit_fields[] = {DIT_SIZES,
                                               CAPTION,
                                               {"num_hidden_layers", "depth", HF_NEEDED},
                                               {"space_scale", NULL, 0},
                                               {"time_scale", NULL, 0},
                                               {NULL, NULL, 0}};
static const struct hf_special stdit_specials[] = {DIT_SPECIALS,
                                                   {"qk_norm", hf_want_false, NULL},
                                                   {"no_temporal_pos_emb", hf_want_false, NULL},
                                                   {NULL, NULL, NULL}};
static const char *const stdit_types[] = {"STDiT", NULL};

const struct hf_family hf_stdit = {.nothing = dit_nothing,
                                   .fields = stdit_fields,
                                   .specials = stdit_specials,
                                   .types = stdit_types,
                                   .defaults = stdit_defaults,
                                   .finish = finish_dit,
                                   .type = stdit_type,
                                   .architecture = stdit_type};

/* ---- Latte ----------------------------------------------------------------------------------- */

/* The table has a row more: no class. */
static int read_classes(struct config *c, const char *key)
{
    int64_t n = -1;
    if (hf_read_int(c, key, 0, (1 << 16) - 1, &n) < 0) return -1;
    c->m->type_vocab = n > 0 ? n + 1 : 0;
    return 0;
}

static void write_classes(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->type_vocab ? m->type_vocab - 1 : 0);
}

static const char *latte_type(const struct model_shape *m)
{
    (void)m;
    return "Latte";
}

static const struct hf_field latte_fields[] = {DIT_SIZES,
                                               {"num_hidden_layers", "depth", HF_NEEDED},
                                               {"type_vocab_size", NULL, HF_UNWRITTEN},
                                               {NULL, NULL, 0}};
static const struct hf_special latte_specials[] = {DIT_SPECIALS,
                                                   {"num_classes", read_classes, write_classes},
                                                   {"qk_norm", hf_want_false, NULL},
                                                   {NULL, NULL, NULL}};
static const char *const latte_types[] = {"Latte", NULL};

/* Said of all of them by those who make them; labels need neither. */
static const char *const latte_nothing[] = {"input_size",       "class_dropout_prob", "num_frames",
                                            "caption_channels", "model_max_length",   NULL};

const struct hf_family hf_latte = {.nothing = latte_nothing,
                                   .fields = latte_fields,
                                   .specials = latte_specials,
                                   .types = latte_types,
                                   .defaults = dit_defaults,
                                   .finish = finish_dit,
                                   .type = latte_type,
                                   .architecture = latte_type};

/* ---- Transformer-2D -------------------------------------------------------------------------- */

static const char *t2d_type(const struct model_shape *m)
{
    (void)m;
    return "transformer_2d";
}

static const struct hf_field t2d_fields[] = {DIT_SIZES,
                                             CAPTION,
                                             {"num_hidden_layers", "depth", HF_NEEDED},
                                             {"qk_norm", NULL, 0},
                                             {NULL, NULL, 0}};
static const struct hf_special t2d_specials[] = {DIT_SPECIALS, {NULL, NULL, NULL}};

const struct hf_family hf_t2d = {.nothing = dit_nothing,
                                 .fields = t2d_fields,
                                 .specials = t2d_specials,
                                 .defaults = dit_defaults,
                                 .finish = finish_dit,
                                 .type = t2d_type,
                                 .architecture = t2d_type};
