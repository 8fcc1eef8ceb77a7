/* llama.c: Llama, Mistral, Ministral, Qwen2 and Qwen3 (2302.13971). They are the plain decoder of
 * decoder.h. In addition, Qwen2 has biases of q, k and v, and Qwen3 has a norm of each query head
 * and key head. If the model has a window, the layers in layer_mask have no window. */
#include <stddef.h>
#include "api/core/limits.h"
#include "worker/family/decoder.h"
#include "worker/family/wrapper.h"
#include "worker/family/window.h"

static void write_llama(const struct model_shape *m, struct family *f)
{
    struct decoder d = decoder_plain(m);
    if (m->qk_norm) d.qk_norm = QK_NORM_HEAD;
    decoder_ends(f, m, &d);
    for (int kind = 0; kind <= window_mixed(m); kind++) {
        d.window = window_of(m, kind);
        decoder_layer(f, m, &d);
    }
}

/* Tells whether q, k and v have a bias and o has no bias. */
static bool is_qwen2(const struct model_shape *m)
{
    return m->qkv_bias && !m->o_bias;
}

static int no_class(const char *field, const char *what, struct err *e)
{
    return err_field(e, ERR_UNSUPPORTED, field,
                     "%s: no model of transformers is both in one, and none could load the result",
                     what);
}

/* Checks that the model can be saved as one of the classes Llama, Mistral, Ministral, Qwen2 and
 * Qwen3. */
static int check_llama(struct model_shape *m, struct err *e)
{
    if (m->o_bias && !m->qkv_bias)
        return no_class("model.config.o_bias", "o_bias without qkv_bias", e);
    if (m->qk_norm && is_qwen2(m))
        return no_class("model.config.qkv_bias", "qk_norm, and qkv_bias without o_bias", e);
    if (m->window && m->o_bias && !m->qk_norm)
        return no_class("model.config.sliding_window", "sliding_window and attention_bias", e);
    if (m->mlp_bias && (m->qk_norm || is_qwen2(m) || m->window))
        return no_class("model.config.mlp_bias",
                        "mlp_bias, and sliding_window, qk_norm or qkv_bias without o_bias", e);
    return window_check(m, e);
}

/* ---- config.json ----------------------------------------------------------------------------- */

enum { TYPE_LLAMA, TYPE_MISTRAL, TYPE_QWEN3, TYPE_QWEN2, TYPE_MINISTRAL };

static bool qwen(const struct config *c)
{
    return c->type == TYPE_QWEN2 || c->type == TYPE_QWEN3;
}

/* Tells whether the class has the keys of a window. Llama's class in transformers does not have
 * them, and ignores them in a file. */
static bool has_window(const struct config *c)
{
    return c->type != TYPE_LLAMA;
}

static int read_window(struct config *c, const char *key)
{
    /* In a file of type llama the key of the window is ignored, as in transformers. A job may set
     * the window. */
    if (!has_window(c) && c->form == CONFIG_FILE) return config_ignore(c, key);
    c->window = 0; /* null: no window */
    return config_read_int(c, key, 0, JOB_MAX_SEQ, &c->window);
}

static int read_window_use(struct config *c, const char *key)
{
    return qwen(c) ? config_read_bool(c, key, &c->window_on) : config_ignore(c, key);
}

static int read_window_layers(struct config *c, const char *key)
{
    if (!qwen(c)) return config_ignore(c, key);
    return config_read_int(c, key, 0, 1 << 20, &c->full_first);
}

static int read_llama_layers(struct config *c, const char *key)
{
    return has_window(c) ? window_read_layers(c, key) : config_ignore(c, key);
}

/* Sets the values of keys that are absent from the file. */
static void llama_absent(struct config *c)
{
    /* the window of a job is used unless use_sliding_window is false */
    if (c->form == CONFIG_JOB) {
        if (!config_met(c, "use_sliding_window")) c->window_on = true;
        if (qwen(c) && !c->window_on) c->window = 0;
        return;
    }
    if (has_window(c) && !config_met(c, "sliding_window")) c->window = 4096;
    if (!qwen(c)) return;
    if (!c->window_on) c->window = 0;
    if (!config_met(c, "max_window_layers")) c->full_first = 28;
}

static int finish_llama(struct config *c)
{
    struct model_shape *m = c->m;
    llama_absent(c);
    if (c->type == TYPE_QWEN3) m->qk_norm = 1;
    if (c->type == TYPE_QWEN2) m->qkv_bias = 1;
    if (c->n_flags && c->n_windowed && !c->window)
        return config_refuse(c, "layer_types", "sliding_attention, and no window is set");
    /* Mistral's class in transformers does not read layer_types. */
    if (c->n_flags && c->type == TYPE_MISTRAL && c->window && c->n_windowed != c->n_flags)
        return config_refuse_mended(
            c, "layer_types",
            "full_attention, and sliding_window gives every layer a window: make "
            "model_type \"ministral\"");
    if (!c->n_flags)
        for (int64_t l = 0; l < c->full_first && l < m->n_layers; l++)
            config_mark_layer(m, l, true);
    m->window = c->full_first < m->n_layers || c->n_flags ? c->window : 0;
    return config_check_list(c, "layer_types");
}

static void write_window(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (!m->window) return;
    jwrite_int(w, key, m->window);
    if (!m->qk_norm && !is_qwen2(m)) return;
    jwrite_bool(w, "use_sliding_window", true);
    jwrite_int(w, "max_window_layers", 0);
}

/* Returns the TYPE_ of the class in transformers that computes this model. */
static int llama_model(const struct model_shape *m)
{
    if (m->qk_norm) return TYPE_QWEN3;
    if (is_qwen2(m)) return TYPE_QWEN2;
    return window_mixed(m) ? TYPE_MINISTRAL : m->window ? TYPE_MISTRAL : TYPE_LLAMA;
}

/* Reads attention_bias. The classes of Qwen2, Mistral and Ministral do not have this key. */
static int read_bias(struct config *c, const char *key)
{
    if (c->type == TYPE_QWEN2 && c->form == CONFIG_FILE) return config_ignore(c, key);
    if (has_window(c) && c->type != TYPE_QWEN3) return config_want_false(c, key);
    return decoder_read_bias(c, key);
}

static int refuse_chunks(struct config *c, const char *key)
{
    struct jread here = c->j;
    if (jread_next(&here) != J_NULL) config_refuse(c, key, "dual chunk attention is not supported");
    return config_ignore(c, key);
}

/* Defaults of each class of transformers. */
static const struct hf_absent of_llama[] = {
    HF_ABSENT(2048, 1e-6, 10000), HF_ABSENT_SIZES(4096, 32, 32, 11008, 32000), {NULL, 0}};
static const struct hf_absent of_mistral[] = {HF_ABSENT(4096 * 32, 1e-6, 10000),
                                              HF_ABSENT_SIZES(4096, 32, 32, 14336, 32000),
                                              {"num_key_value_heads", 8},
                                              {NULL, 0}};
static const struct hf_absent of_qwen2[] = {HF_ABSENT(32768, 1e-6, 10000),
                                            HF_ABSENT_SIZES(4096, 32, 32, 22016, 151936),
                                            {"num_key_value_heads", 32},
                                            {NULL, 0}};
static const struct hf_absent of_qwen3[] = {HF_ABSENT(32768, 1e-6, 10000),
                                            HF_ABSENT_SIZES(4096, 32, 32, 22016, 151936),
                                            {"num_key_value_heads", 32},
                                            {"head_dim", 128},
                                            {NULL, 0}};
static const struct hf_model models[] = {
    [TYPE_LLAMA] = {"llama", of_llama, {"LlamaForCausalLM", "LlamaModel"}},
    [TYPE_MISTRAL] = {"mistral", of_mistral, {"MistralForCausalLM", "MistralModel"}},
    [TYPE_QWEN3] = {"qwen3", of_qwen3, {"Qwen3ForCausalLM", "Qwen3Model"}},
    [TYPE_QWEN2] = {"qwen2", of_qwen2, {"Qwen2ForCausalLM", "Qwen2Model"}},
    [TYPE_MINISTRAL] = {"ministral", of_mistral, {"MinistralForCausalLM", "MinistralModel"}},
    {NULL, NULL, {NULL}}};

static const struct hf_field llama_fields[] = {DECODER_FIELDS,
                                               DECODER_BIAS_FIELDS,
                                               {"mlp_bias", NULL, HF_UNWRITTEN},
                                               {"qk_norm", NULL, HF_UNWRITTEN},
                                               {"sliding_window", NULL, HF_UNWRITTEN},
                                               HF_MASKS,
                                               {NULL, NULL, 0}};

static void write_mlp_bias(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, m->mlp_bias);
}

static const struct hf_special llama_specials[] = {
    DECODER_SPECIALS,
    {"attention_bias", read_bias, decoder_write_bias},
    {"mlp_bias", NULL, write_mlp_bias},
    {"partial_rotary_factor", config_want_one, NULL},
    {"rope_interleaved", config_want_false, NULL},
    {"use_mrope", config_want_false, NULL},
    {"dual_chunk_attention_config", refuse_chunks, NULL},
    {"sliding_window", read_window, write_window},
    {"use_sliding_window", read_window_use, NULL},
    {"max_window_layers", read_window_layers, NULL},
    {"layer_types", read_llama_layers, window_write_layers},
    {NULL, NULL, NULL}};

static const char *const llama_nothing[] = {"is_llama_config", NULL};

static const struct hf_family config = {.fields = llama_fields,
                                        .specials = llama_specials,
                                        .models = models,
                                        .finish = finish_llama,
                                        .model = llama_model,
                                        .nothing = llama_nothing};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_llama = {.config = &config,
                                        .rename = wrapper_rename,
                                        .passed = wrapper_half,
                                        .name = "llama",
                                        .task = MODEL_CAUSAL_LM,
                                        .softmax = true,
                                        .shares_layers = true,
                                        .rope_kinds = true,
                                        .check = check_llama,
                                        .write = write_llama,
                                        .layer_kind = window_kind};
