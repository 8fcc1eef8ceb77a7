/* gemma.c: Gemma 2 (2408.00118) and Gemma 3's text model (2503.19786). They have norms before and
 * after attention, norms before and after a gated MLP, and windows in some layers. Gemma 2 also
 * has soft caps. Gemma 3 also has normalised heads, and a separate RoPE base for layers with a
 * window.
 *
 *   x = embed[ids] sqrt(C), with the root rounded to the model's precision
 *   per layer   x += n2(Wo attn(rope(Wq n1(x)), rope(Wk n1(x)), Wv n1(x)))
 *               x += n4(Wd (gelu(Wg n3(x)) * Wu n3(x)))
 *   logits = cap(Whead norm(x)); a norm's factors are 1 + its weights */
#include <math.h>
#include <stddef.h>
#include "worker/family/window.h"
#include "worker/family/wrapper.h"
#include "worker/family/write.h"

static int norm(struct program *p, const struct model_shape *m, int x, const char *weight)
{
    return write_norm(p, x,
                      &(struct write_norm){
                          .weight = weight, .kind = NORM_RMS, .eps = m->norm_eps, .offset = true});
}

static int head_norm(struct program *p, const struct model_shape *m, int x, int64_t heads,
                     const char *weight)
{
    if (!m->qk_norm) return x;
    return write_norm(p, x,
                      &(struct write_norm){.weight = weight,
                                           .kind = NORM_RMS,
                                           .eps = m->norm_eps,
                                           .groups = heads,
                                           .dim = m->head_dim,
                                           .offset = true});
}

static int product(struct program *p, int a, int w, int n_w, const char *name, enum keep_id keep)
{
    return write_linear(p, &(struct write_linear){a, PROG_NONE, w, n_w, PROG_NONE, name, keep});
}

static int attention(struct program *p, const struct model_shape *m, int x, int64_t window)
{
    const int64_t C = m->width, D = m->head_dim, HD = m->n_heads * D, KD = m->n_kv_heads * D;
    const int xn = norm(p, m, x, "input_layernorm.weight");
    const int q_w = prog_tensor(p, "self_attn.q_proj.weight", HD, C, INIT_NORMAL);
    const int kv_w = prog_tensor(p, "self_attn.k_proj.weight", KD, C, INIT_NORMAL);
    prog_joined(p, "self_attn.v_proj.weight", KD, C, INIT_NORMAL);
    int kv = product(p, xn, kv_w, 2, "kv", KEEP_NEVER), q = product(p, xn, q_w, 1, "q", KEEP_NEVER);
    q = head_norm(p, m, q, m->n_heads, "self_attn.q_norm.weight");
    kv = head_norm(p, m, kv, m->n_kv_heads, "self_attn.k_norm.weight");
    q = write_window_rope(p, m, q, m->n_heads, "q", window);
    kv = write_window_rope(p, m, kv, m->n_kv_heads, "kv", window);
    const int o = write_attention(p, m, &(struct write_attention){q, kv, true, window});
    const int o_w = prog_tensor(p, "self_attn.o_proj.weight", C, HD, INIT_RESIDUAL);
    const int y = product(p, o, o_w, 1, "attn_proj", KEEP_NONE_MODE);
    return write_sum(p, x, norm(p, m, y, "post_attention_layernorm.weight"), "mlp_input",
                     KEEP_NONE_MODE);
}

static int mlp(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width, I = m->ffn_width;
    const int xn = norm(p, m, x, "pre_feedforward_layernorm.weight");
    const int gate_up = prog_tensor(p, "mlp.gate_proj.weight", I, C, INIT_NORMAL);
    prog_joined(p, "mlp.up_proj.weight", I, C, INIT_NORMAL);
    const int down = prog_tensor(p, "mlp.down_proj.weight", C, I, INIT_RESIDUAL);
    const int gu = product(p, xn, gate_up, 2, "gate_up", KEEP_NONE_MODE);
    const int a = write_glu(p, ACT_GELU_TANH, prog_view(p, gu, 0, I), prog_view(p, gu, I, I),
                            "mlp_act");
    const int y = product(p, a, down, 1, "mlp_out", KEEP_NONE_MODE);
    return write_sum(p, x, norm(p, m, y, "post_feedforward_layernorm.weight"), "layer_output",
                     KEEP_NEVER);
}

static void write_gemma(const struct model_shape *m, struct family *f)
{
    const struct write_norm last = {
        .weight = "model.norm.weight", .kind = NORM_RMS, .eps = m->norm_eps, .offset = true};
    write_embedding(&f->in, m, "model.embed_tokens.weight", sqrt((double)m->width));
    f->in.op[0].u.embed.rounded = true;
    f->n_kinds = 1 + window_mixed(m);
    for (int k = 0; k < f->n_kinds; k++) {
        struct program *p = &f->layer[k];
        prog_init(p, "model.layers.%d.");
        p->result = mlp(p, m, attention(p, m, prog_input(p, m->width), window_of(m, k)));
    }
    write_head(&f->out, m, &last, "lm_head.weight");
}

/* ---- config.json ----------------------------------------------------------------------------- */

enum { TYPE_GEMMA2, TYPE_GEMMA3 };

#define HEADS                                                                                      \
    {"num_key_value_heads", 4}, {"head_dim", 256}, {"query_pre_attn_scalar", 256},                 \
        {"sliding_window", 4096},                                                                  \
    {                                                                                              \
        "tie_word_embeddings", 1                                                                   \
    }
static const struct hf_absent of_gemma2[] = {HF_ABSENT(8192, 1e-6, 10000),
                                             HF_ABSENT_SIZES(2304, 26, 8, 9216, 256000),
                                             HEADS,
                                             {"attn_logit_softcapping", 50},
                                             {"final_logit_softcapping", 30},
                                             {NULL, 0}};
static const struct hf_absent of_gemma3[] = {HF_ABSENT(131072, 1e-6, 1e6),
                                             HF_ABSENT_SIZES(2304, 26, 8, 9216, 262208),
                                             HEADS,
                                             {"rope_local_base_freq", 10000},
                                             {NULL, 0}};
static const struct hf_model models[] = {
    [TYPE_GEMMA2] = {"gemma2", of_gemma2, {"Gemma2ForCausalLM", "Gemma2Model"}},
    [TYPE_GEMMA3] = {"gemma3_text", of_gemma3, {"Gemma3ForCausalLM", "Gemma3TextModel"}},
    {NULL, NULL, {NULL}}};

/* Reads the window. null means that there is no window. */
static int read_window(struct config *c, const char *key)
{
    c->m->window = 0;
    return config_read_int(c, key, 0, JOB_MAX_SEQ, &c->m->window);
}

static int read_attn_cap(struct config *c, const char *key)
{
    c->m->attn_cap = 0; /* null: no cap */
    return config_read_real(c, key, 0, 1e6, &c->m->attn_cap);
}

static int read_final_cap(struct config *c, const char *key)
{
    c->m->final_cap = 0;
    return config_read_real(c, key, 0, 1e6, &c->m->final_cap);
}

static int read_pattern(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, HF_MAX_LAYERS, &c->full_first);
}

static int read_ropes(struct config *c, const char *key)
{
    return c->type == TYPE_GEMMA3 ? config_read_layer_ropes(c, key) : config_read_rope(c, key);
}

static void mark_layers(struct config *c)
{
    struct model_shape *m = c->m;
    const int64_t every = c->full_first ? c->full_first : c->type == TYPE_GEMMA3 ? 6 : 2;
    if (c->n_flags || config_met(c, "layer_mask")) return;
    for (int64_t l = every - 1; l < m->n_layers; l += every) config_mark_layer(m, l, true);
}

/* Sets the values of absent keys. */
static int finish_gemma(struct config *c)
{
    struct model_shape *m = c->m;
    const bool three = c->type == TYPE_GEMMA3;
    mark_layers(c);
    if (!config_met(c, "tie_word_embeddings")) m->tied = 1;
    if (!three && !config_met(c, "attn_logit_softcapping")) m->attn_cap = 50;
    if (!three && !config_met(c, "final_logit_softcapping")) m->final_cap = 30;
    if (three) {
        m->qk_norm = 1;
        if (!m->rope_local) m->rope_local = 10000;
        if (!config_met(c, "rope_theta") && !c->theta) m->rope_theta = 1e6;
    }
    return config_check_list(c, "layer_types");
}

static void write_cap(struct jwrite *w, const char *key, double cap)
{
    if (cap > 0)
        jwrite_double(w, key, cap);
    else
        jwrite_null(w, key);
}

static void write_attn_cap(struct jwrite *w, const char *key, const struct model_shape *m)
{
    write_cap(w, key, m->attn_cap);
}

static void write_final_cap(struct jwrite *w, const char *key, const struct model_shape *m)
{
    write_cap(w, key, m->final_cap);
}

static void write_scalar(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->attn_scalar ? m->attn_scalar : m->head_dim);
}

static void write_local(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (m->rope_local > 0) jwrite_double(w, key, m->rope_local);
}

static int want_gelu(struct config *c, const char *key)
{
    return config_want_word(c, key, "gelu_pytorch_tanh");
}

static void write_gelu(struct jwrite *w, const char *key, const struct model_shape *m)
{
    (void)m;
    jwrite_str(w, key, "gelu_pytorch_tanh");
}

static int gemma_model(const struct model_shape *m)
{
    return m->qk_norm ? TYPE_GEMMA3 : TYPE_GEMMA2;
}

static const struct hf_field gemma_fields[] = {HF_SIZES,
                                               {"num_key_value_heads", NULL, HF_DERIVED},
                                               {"head_dim", NULL, HF_DERIVED},
                                               {"rms_norm_eps", NULL, 0},
                                               {"rope_theta", NULL, 0},
                                               {"qk_norm", NULL, HF_UNWRITTEN},
                                               {"sliding_window", NULL, HF_UNWRITTEN},
                                               {"query_pre_attn_scalar", NULL, HF_UNWRITTEN},
                                               {"rope_local_base_freq", NULL, HF_UNWRITTEN},
                                               {"attn_logit_softcapping", NULL, HF_UNWRITTEN},
                                               {"final_logit_softcapping", NULL, HF_UNWRITTEN},
                                               HF_MASKS,
                                               {NULL, NULL, 0}};

static const struct hf_special gemma_specials[] = {
    HF_NEVER,
    {"attention_bias", config_want_false, config_write_false},
    {"attention_dropout", NULL, config_write_zero}, /* the job's value is used */
    {"hidden_activation", want_gelu, write_gelu},
    {"hidden_act", config_ignore, NULL}, /* because the package reads hidden_activation instead */
    {"use_bidirectional_attention", config_want_false, NULL},
    {"attn_logit_softcapping", read_attn_cap, write_attn_cap},
    {"final_logit_softcapping", read_final_cap, write_final_cap},
    {"query_pre_attn_scalar", NULL, write_scalar},
    {"rope_scaling", config_read_rope, config_write_rope},
    {"rope_parameters", read_ropes, NULL},
    {"rope_local_base_freq", NULL, write_local},
    {"sliding_window", read_window, window_write_size},
    {"sliding_window_pattern", read_pattern, NULL},
    {"layer_types", window_read_layers, window_write_all_layers},
    {NULL, NULL, NULL}};

static const char *const gemma_nothing[] = {"cache_implementation", NULL};

static const struct hf_family config = {.nothing = gemma_nothing,
                                        .fields = gemma_fields,
                                        .specials = gemma_specials,
                                        .models = models,
                                        .finish = finish_gemma,
                                        .model = gemma_model};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_gemma = {.config = &config,
                                        .rename = wrapper_rename,
                                        .passed = wrapper_half,
                                        .name = "gemma2",
                                        .task = MODEL_CAUSAL_LM,
                                        .softmax = true,
                                        .rope_kinds = true,
                                        .check = window_check,
                                        .write = write_gemma,
                                        .layer_kind = window_kind};
