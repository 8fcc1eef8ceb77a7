/* smollm3.c: SmolLM3. It is Llama in which some layers have no RoPE (NoPE, 2501.18795). The layers
 * without RoPE are the bits of layer_mask. They are every fourth layer, unless the file has a list
 * of them. */
#include <stddef.h>
#include "worker/family/decoder.h"

static void write_smollm3(const struct model_shape *m, struct family *f)
{
    struct decoder d = decoder_plain(m);
    decoder_ends(f, m, &d);
    decoder_layer(f, m, &d);
    d.no_rope = true;
    decoder_layer(f, m, &d);
}

static int layer_kind(const struct model_shape *m, int64_t l)
{
    return shape_special(m, l);
}

static int check_smollm3(struct model_shape *m, struct err *e)
{
    if (m->n_layers <= 32 * SHAPE_MASKS) return 0;
    return err_field(e, ERR_UNSUPPORTED, "model.config.num_hidden_layers",
                     "num_hidden_layers %d: at most %d where layers differ", m->n_layers,
                     32 * SHAPE_MASKS);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {HF_ABSENT(32768, 1e-6, 2e6),
                                       HF_ABSENT_SIZES(2048, 36, 16, 11008, 128256),
                                       {"num_key_value_heads", 4},
                                       {"tie_word_embeddings", 1},
                                       {NULL, 0}};
static const struct hf_model models[] = {{"smollm3", own, {"SmolLM3ForCausalLM", "SmolLM3Model"}},
                                         {NULL, NULL, {NULL}}};

/* Reads an element of the list. 1 means that the layer has RoPE. The list may have more elements
 * than there are layers. */
static int rope_layer(struct config *c, enum jtok t)
{
    int64_t v;
    if (t != J_NUMBER || jread_int(&c->j, &v) < 0 || v < 0 || v > 1) return 1;
    if (c->n_flags < c->m->n_layers || !c->m->n_layers) config_mark_layer(c->m, c->n_flags, v == 0);
    return 0;
}

static int read_layers(struct config *c, const char *key)
{
    const int rc = config_read_list(c, key, rope_layer);
    c->n_rope_flags = c->n_flags;
    c->n_flags = 0;
    return rc;
}

static int read_interval(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, 1 << 20, &c->full_first);
}

static void write_layers(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int l = 0; l < m->n_layers; l++) jwrite_int(w, NULL, !shape_special(m, l));
    jwrite_end(w);
}

static int finish_smollm3(struct config *c)
{
    struct model_shape *m = c->m;
    const int64_t every = c->full_first ? c->full_first : 4;
    if (c->n_rope_flags && c->n_rope_flags < m->n_layers)
        return config_error(c, ERR_INVALID, "no_rope_layers",
                            "no_rope_layers has %lld elements for %d layers",
                            (long long)c->n_rope_flags, m->n_layers);
    /* clears bits of a list that is longer than the model */
    for (int64_t l = m->n_layers; l < 32 * SHAPE_MASKS; l++)
        m->layer_mask[l / 32] &= ~((int64_t)1 << (l % 32));
    if (!c->n_rope_flags && !config_met(c, "layer_mask.0"))
        for (int64_t l = 0; l < m->n_layers; l++) config_mark_layer(m, l, (l + 1) % every == 0);
    return config_check_list(c, "layer_types");
}

static const struct hf_field fields[] = {
    DECODER_FIELDS, DECODER_BIAS_FIELDS, {"mlp_bias", NULL, 0}, HF_MASKS, {NULL, NULL, 0}};
static const struct hf_special specials[] = {
    DECODER_SPECIALS,
    {"attention_bias", decoder_read_bias, decoder_write_bias},
    {"no_rope_layers", read_layers, write_layers},
    {"no_rope_layer_interval", read_interval, NULL},
    {"layer_types", decoder_want_full, NULL},
    {"use_sliding_window", config_want_false, NULL},
    {"sliding_window", config_want_null, NULL},
    {"max_window_layers", config_ignore, NULL},
    {"partial_rotary_factor", config_want_one, NULL},
    {NULL, NULL, NULL}};

static const struct hf_family config = {
    .fields = fields, .specials = specials, .models = models, .finish = finish_smollm3};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_smollm3 = {.config = &config,
                                          .name = "smollm3",
                                          .task = MODEL_CAUSAL_LM,
                                          .softmax = true,
                                          .shares_layers = true,
                                          .rope_kinds = true,
                                          .check = check_smollm3,
                                          .write = write_smollm3,
                                          .layer_kind = layer_kind};
