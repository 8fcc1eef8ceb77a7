/* olmo2.c: OLMo 2 (2501.00656). It is Llama with two differences. Norms of the outputs of
 * attention and MLP replace the norms of their inputs. Queries and keys are normalised, all heads
 * together. */
#include <stddef.h>
#include "worker/family/decoder.h"

static void write_olmo2(const struct model_shape *m, struct family *f)
{
    struct decoder d = decoder_plain(m);
    d.norm_after = true;
    d.qk_norm = QK_NORM_WHOLE;
    decoder_ends(f, m, &d);
    decoder_layer(f, m, &d);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {
    HF_ABSENT(2048, 1e-5, 10000), HF_ABSENT_SIZES(4096, 32, 32, 11008, 50304), {NULL, 0}};
static const struct hf_model models[] = {{"olmo2", own, {"Olmo2ForCausalLM", "Olmo2Model"}},
                                         {NULL, NULL, {NULL}}};

static const struct hf_field fields[] = {DECODER_FIELDS, DECODER_BIAS_FIELDS, {NULL, NULL, 0}};
static const struct hf_special specials[] = {
    DECODER_SPECIALS,
    {"attention_bias", decoder_read_bias, decoder_write_bias},
    {"partial_rotary_factor", config_want_one, NULL},
    {NULL, NULL, NULL}};

static const struct hf_family config = {.fields = fields, .specials = specials, .models = models};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_olmo2 = {.config = &config,
                                        .name = "olmo2",
                                        .task = MODEL_CAUSAL_LM,
                                        .softmax = true,
                                        .rope_kinds = true,
                                        .shares_layers = true,
                                        .write = write_olmo2};
