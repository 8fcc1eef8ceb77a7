/* granite.c: Granite 3. It is Llama with constants from config.json. Embeddings, attention scores
 * and additions to the residual stream are multiplied by constants. Logits are divided by a
 * constant. */
#include <stddef.h>
#include "worker/family/decoder.h"

static void write_granite(const struct model_shape *m, struct family *f)
{
    struct decoder d = decoder_plain(m);
    d.embed_scale = m->embed_scale;
    d.attn_scale = m->attn_scale;
    d.residual_scale = m->residual_scale;
    d.logit_scale = m->logit_scale;
    decoder_ends(f, m, &d);
    decoder_layer(f, m, &d);
}

static int check_granite(struct model_shape *m, struct err *e)
{
    double *const all[] = {&m->embed_scale, &m->attn_scale, &m->residual_scale, &m->logit_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!*all[i]) *all[i] = 1;
    return 0;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {
    HF_ABSENT(2048, 1e-6, 10000), HF_ABSENT_SIZES(4096, 32, 32, 11008, 32000), {NULL, 0}};
static const struct hf_model models[] = {{"granite", own, {"GraniteForCausalLM", "GraniteModel"}},
                                         {NULL, NULL, {NULL}}};

static const struct hf_field fields[] = {DECODER_FIELDS,
                                         DECODER_BIAS_FIELDS,
                                         {"mlp_bias", NULL, 0},
                                         {"embedding_multiplier", NULL, 0},
                                         {"attention_multiplier", NULL, 0},
                                         {"residual_multiplier", NULL, 0},
                                         {"logits_scaling", NULL, 0},
                                         {NULL, NULL, 0}};
static const struct hf_special specials[] = {
    DECODER_SPECIALS,
    {"attention_bias", decoder_read_bias, decoder_write_bias},
    {"partial_rotary_factor", config_want_one, NULL},
    {NULL, NULL, NULL}};

static const struct hf_family config = {.fields = fields, .specials = specials, .models = models};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_granite = {.config = &config,
                                          .name = "granite",
                                          .task = MODEL_CAUSAL_LM,
                                          .softmax = true,
                                          .shares_layers = true,
                                          .rope_kinds = true,
                                          .check = check_granite,
                                          .write = write_granite};
