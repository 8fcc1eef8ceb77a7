/* phi3.c: Phi-3 and Phi-4 (2404.14219). They are Llama with q, k and v in one tensor, and with
 * gate and up in one tensor. RoPE rotates a part of each head, with the factors of longrope. */
#include <stddef.h>
#include "api/core/limits.h"
#include "worker/family/decoder.h"
#include "worker/family/window.h"

static void write_phi3(const struct model_shape *m, struct family *f)
{
    struct decoder d = decoder_plain(m);
    d.fused = true;
    decoder_ends(f, m, &d);
    decoder_layer(f, m, &d);
}

static int check_phi3(struct model_shape *m, struct err *e)
{
    if (m->rotary_dim % 2 || m->rotary_dim > m->head_dim)
        return err_field(e, ERR_INVALID, "model.config.rotary_dim",
                         "rotary_dim %lld: it must be even and at most head_dim %lld",
                         (long long)m->rotary_dim, (long long)m->head_dim);
    if (m->rope.kind == ROPE_DEFAULT || m->rope.kind == ROPE_LONGROPE) return 0;
    return err_field(e, ERR_UNSUPPORTED, "model.config.rope_type",
                     "rope_type: this family has only \"default\" and \"longrope\"");
}

/* ---- config.json ----------------------------------------------------------------------------- */

enum { ORIGINAL = 4096 }; /* original length in tokens, if a file does not give it */

static const struct hf_absent own[] = {
    HF_ABSENT(4096, 1e-5, 10000), HF_ABSENT_SIZES(3072, 32, 32, 8192, 32064), {NULL, 0}};
static const struct hf_model models[] = {{"phi3", own, {"Phi3ForCausalLM", "Phi3Model"}},
                                         {NULL, NULL, {NULL}}};

static int read_window(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, JOB_MAX_SEQ, &c->m->window);
}

/* Completes RoPE. The class in transformers takes the original length from the key outside the
 * RoPE object, or uses 4096 if that key is missing. It ignores the length inside the object. In
 * the first files of Phi-3, "yarn" means longrope. */
static int finish_phi3(struct config *c)
{
    if (c->form == CONFIG_FILE && !c->original) c->original = ORIGINAL;
    if (c->m->rope.kind == ROPE_YARN && c->rope_object) c->m->rope.kind = ROPE_LONGROPE;
    return 0;
}

static void write_original(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (m->rope.original) jwrite_int(w, key, m->rope.original);
}

static const struct hf_field fields[] = {DECODER_FIELDS,
                                         {"rotary_dim", NULL, HF_UNWRITTEN},
                                         {"sliding_window", NULL, HF_UNWRITTEN},
                                         {NULL, NULL, 0}};
static const struct hf_special specials[] = {
    DECODER_SPECIALS,
    {"original_max_position_embeddings", NULL, write_original},
    {"partial_rotary_factor", config_read_partial, config_write_partial},
    {"sliding_window", read_window, window_write_size},
    {"attention_bias", config_want_false, NULL},
    {NULL, NULL, NULL}};

static const struct hf_family config = {
    .fields = fields, .specials = specials, .models = models, .finish = finish_phi3};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_phi3 = {.config = &config,
                                       .name = "phi3",
                                       .task = MODEL_CAUSAL_LM,
                                       .softmax = true,
                                       .rope_kinds = true,
                                       .shares_layers = true,
                                       .check = check_phi3,
                                       .write = write_phi3};
