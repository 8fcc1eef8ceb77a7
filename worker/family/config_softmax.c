/* Keys of the families with softmax attention: which their files have, what they mean together, and
 * which of their values we do not compute. */
#include "worker/family/config_table.h"

/* ---- Llama, Mistral, Qwen3 ------------------------------------------------------------------- */

enum { TYPE_MISTRAL, TYPE_QWEN3 };
static const char *const llama_types[] = {"mistral", "qwen3", NULL};

/* Llama's class of transformers has none of these keys, and ignores them where a file does. */
static bool has_window(const struct config *c)
{
    return c->type == TYPE_MISTRAL || c->type == TYPE_QWEN3;
}

static int read_window(struct config *c, const char *key)
{
    /* A job may ask for a window by the decoder's own name. */
    if (!has_window(c) && c->form == CONFIG_FILE) return hf_ignore(c, key);
    c->window = 0; /* null */
    return hf_read_int(c, key, 0, JOB_MAX_SEQ, &c->window);
}

static int read_window_use(struct config *c, const char *key)
{
    return c->type == TYPE_QWEN3 ? hf_read_bool(c, key, &c->window_on) : hf_ignore(c, key);
}

static int read_window_layers(struct config *c, const char *key)
{
    if (c->type != TYPE_QWEN3) return hf_ignore(c, key);
    return hf_read_int(c, key, 0, 1 << 20, &c->full_first);
}

static int llama_layer(struct config *c, enum jtok t)
{
    if (t != J_STRING) return 1;
    if (jread_is(&c->j, "sliding_attention"))
        c->n_windowed++;
    else if (!jread_is(&c->j, "full_attention"))
        return hf_refuse(c, "layer_types",
                         "only \"full_attention\" and \"sliding_attention\" are supported");
    return 0;
}

static int read_llama_layers(struct config *c, const char *key)
{
    return has_window(c) ? hf_read_list(c, key, llama_layer) : hf_ignore(c, key);
}

/* What a key that is not in the file stands for. */
static void llama_absent(struct config *c)
{
    struct model_shape *m = c->m;
    if (c->form == CONFIG_JOB) { /* a window that is given is meant */
        if (!hf_met(c, "use_sliding_window")) c->window_on = true;
        if (c->type == TYPE_QWEN3 && !c->window_on) c->window = 0;
        return;
    }
    if (has_window(c) && !hf_met(c, "sliding_window")) c->window = 4096;
    if (has_window(c) && !hf_met(c, "num_key_value_heads"))
        m->n_kv_heads = c->type == TYPE_QWEN3 ? 32 : 8;
    if (c->type != TYPE_QWEN3) return;
    if (!c->window_on) c->window = 0;
    if (!hf_met(c, "max_window_layers")) c->full_first = 28;
    if (!hf_met(c, "head_dim")) m->head_dim = 128;
}

/* How many layers have a window. Mistral: all, and what layer_types says changes nothing. */
static int64_t windowed_layers(const struct config *c)
{
    const int64_t L = c->m->n_layers;
    if (!c->window) return 0;
    if (c->type != TYPE_QWEN3) return L;
    if (c->n_flags) return c->n_windowed;
    return c->full_first < L ? L - c->full_first : 0;
}

static int finish_llama(struct config *c)
{
    llama_absent(c);
    if (c->type == TYPE_QWEN3) c->m->qk_norm = 1;
    const int64_t n = windowed_layers(c);
    if (n && n != c->m->n_layers)
        return hf_refuse(c, hf_met(c, "layer_types") ? "layer_types" : "max_window_layers",
                         "a window in some layers and none in others is not supported");
    if (c->n_flags && c->n_windowed != n)
        return hf_refuse(c, "layer_types",
                         n ? "full_attention, and sliding_window gives every layer a window"
                           : "sliding_attention, and no window is set");
    c->m->window = n ? c->window : 0;
    return hf_check_list(c, "layer_types");
}

static void write_window(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (!m->window) return;
    jwrite_int(w, key, m->window);
    if (!m->qk_norm) return;
    jwrite_bool(w, "use_sliding_window", true);
    jwrite_int(w, "max_window_layers", 0);
}

/* The model of the package that computes this. */
static const char *llama_type(const struct model_shape *m)
{
    return m->qk_norm ? "qwen3" : m->window ? "mistral" : "llama";
}

static const char *llama_architecture(const struct model_shape *m)
{
    return m->qk_norm ? "Qwen3ForCausalLM" : m->window ? "MistralForCausalLM" : "LlamaForCausalLM";
}

static const struct hf_field llama_fields[] = {HF_SIZES,
                                               {"num_key_value_heads", NULL, 0},
                                               {"head_dim", NULL, 0},
                                               {"rms_norm_eps", NULL, 0},
                                               {"rope_theta", NULL, 0},
                                               {"qk_norm", NULL, HF_UNWRITTEN},
                                               {"sliding_window", NULL, HF_UNWRITTEN},
                                               {NULL, NULL, 0}};

static const struct hf_special llama_specials[] = {
    HF_NEVER,
    {"attention_bias", hf_want_false, hf_write_false},
    {"mlp_bias", hf_want_false, hf_write_false},
    {"attention_dropout", NULL, hf_write_zero}, /* what the job says counts */
    {"partial_rotary_factor", hf_want_one, NULL},
    {"hidden_act", hf_want_silu, hf_write_silu},
    {"rope_scaling", hf_want_plain_rope, hf_write_null},
    {"rope_parameters", hf_want_plain_rope, NULL},
    {"sliding_window", read_window, write_window},
    {"use_sliding_window", read_window_use, NULL},
    {"max_window_layers", read_window_layers, NULL},
    {"layer_types", read_llama_layers, NULL},
    {NULL, NULL, NULL}};

const struct hf_family hf_llama = {llama_fields, llama_specials, llama_types,       hf_usual,
                                   finish_llama, llama_type,     llama_architecture};

/* ---- BERT ------------------------------------------------------------------------------------ */

static void bert_defaults(struct model_shape *m)
{
    hf_usual(m);
    m->max_pos = 512;
    m->type_vocab = 2;
    m->norm_eps = 1e-12;
    m->act = ACT_GELU;
    m->tied = 1;
}

static int want_absolute(struct config *c, const char *key)
{
    return hf_want_word(c, key, "absolute");
}

static const char *bert_type(const struct model_shape *m)
{
    return "bert";
}

static const char *bert_architecture(const struct model_shape *m)
{
    return "BertForMaskedLM";
}

static const struct hf_field bert_fields[] = {HF_SIZES,
                                              {"type_vocab_size", NULL, 0},
                                              {"rms_norm_eps", "layer_norm_eps", 0},
                                              {"rope_theta", NULL, HF_FIXED},
                                              {"hidden_act", NULL, HF_UNWRITTEN},
                                              {NULL, NULL, 0}};
static const struct hf_special bert_specials[] = {
    HF_NEVER,
    {"hidden_act", hf_read_act, hf_write_act},
    {"position_embedding_type", want_absolute, NULL},
    {"is_decoder", hf_want_false, NULL},
    {"add_cross_attention", hf_want_false, NULL},
    {"attention_probs_dropout_prob", NULL, hf_write_zero}, /* what the job says counts */
    {"hidden_dropout_prob", NULL, hf_write_zero},
    {NULL, NULL, NULL}};

static const char *const bert_nothing[] = {"attention_probs_dropout_prob",
                                           "hidden_dropout_prob",
                                           "directionality",
                                           "pooler_fc_size",
                                           "pooler_num_attention_heads",
                                           "pooler_num_fc_layers",
                                           "pooler_size_per_head",
                                           "pooler_type",
                                           NULL};

const struct hf_family hf_bert = {.fields = bert_fields,
                                  .specials = bert_specials,
                                  .defaults = bert_defaults,
                                  .type = bert_type,
                                  .nothing = bert_nothing,
                                  .architecture = bert_architecture};
