/* llama.c: Llama, Mistral, Qwen2, Qwen3: RMSNorm before attention with RoPE, and before a gated MLP
 * (2302.13971).
 *
 *   x = embed[ids]
 *   per layer   x += Wo attn(rope(Wq n1(x)), rope(Wk n1(x)), Wv n1(x))
 *               x += Wd (silu(Wg n2(x)) * Wu n2(x))
 *   logits = Whead norm(x), Whead = embed when tied */
#include <math.h>
#include <stddef.h>
#include "api/core/limits.h"
#include "worker/family/config_table.h"
#include "worker/family/family.h"

static int norm(struct program *p, const struct model_shape *m, int x, const char *weight)
{
    const int g = prog_tensor(p, weight, m->width, 0, INIT_ONE);
    return prog_op(p,
                   &(struct op){.kind = OP_NORM,
                                .in = {x},
                                .w = g,
                                .n_w = 1,
                                .u.norm = {NORM_RMS, (float)m->norm_eps, 1, 0}},
                   &(struct value){.name = "norm_out", .cols = m->width, .keep = KEEP_NEVER});
}

/* a W', or base + a W'. */
static int linear(struct program *p, const int in[2], int w, int n_w, const struct value *out)
{
    return prog_op(p, &(struct op){.kind = OP_LINEAR, .in = {in[0], in[1]}, .w = w, .n_w = n_w},
                   out);
}

/* Qwen3: each query and key head is normalised before it is rotated. */
static int head_norm(struct program *p, const struct model_shape *m, int x, int w, int64_t heads)
{
    if (!m->qk_norm) return x;
    const struct value out = {.name = "head_norm", .cols = p->value[x].cols, .keep = KEEP_NEVER};
    return prog_op(p,
                   &(struct op){.kind = OP_NORM,
                                .in = {x},
                                .w = w,
                                .n_w = 1,
                                .u.norm = {NORM_RMS, (float)m->norm_eps, heads, m->head_dim}},
                   &out);
}

static int rotated(struct program *p, const struct model_shape *m, int x, int64_t heads,
                   const char *name)
{
    return prog_op(
        p, &(struct op){.kind = OP_ROPE, .in = {x}, .u.rope = {heads, m->head_dim, m->rotary_dim}},
        &(struct value){.name = name, .cols = p->value[x].cols, .keep = KEEP_NONE_MODE});
}

struct projections {
    int q, kv, q_norm, k_norm, o; /* weights */
};

static struct projections attention_weights(struct program *p, const struct model_shape *m)
{
    const int64_t C = m->width, D = m->head_dim, HD = m->n_heads * D, KD = m->n_kv_heads * D;
    struct projections w = {.q = prog_tensor(p, "self_attn.q_proj.weight", HD, C, INIT_NORMAL)};
    w.kv = prog_joined(p, "self_attn.k_proj.weight", KD, C, INIT_NORMAL);
    prog_joined(p, "self_attn.v_proj.weight", KD, C, INIT_NORMAL);
    if (m->qk_norm) {
        w.q_norm = prog_tensor(p, "self_attn.q_norm.weight", D, 0, INIT_ONE);
        w.k_norm = prog_tensor(p, "self_attn.k_norm.weight", D, 0, INIT_ONE);
    }
    w.o = prog_tensor(p, "self_attn.o_proj.weight", C, HD, INIT_RESIDUAL);
    return w;
}

static int attention(struct program *p, const struct model_shape *m, int x)
{
    const int64_t D = m->head_dim, HD = m->n_heads * D, KV = 2 * m->n_kv_heads * D;
    const int xn = norm(p, m, x, "input_layernorm.weight");
    const struct projections w = attention_weights(p, m);
    const struct value one_q = {.name = "q", .cols = HD, .keep = KEEP_NEVER};
    const struct value one_kv = {.name = "kv", .cols = KV, .keep = KEEP_NEVER};
    int kv = linear(p, (int[]){xn, PROG_NONE}, w.kv, 2, &one_kv);
    int q = linear(p, (int[]){xn, PROG_NONE}, w.q, 1, &one_q);
    q = rotated(p, m, head_norm(p, m, q, w.q_norm, m->n_heads), m->n_heads, "q");
    kv = rotated(p, m, head_norm(p, m, kv, w.k_norm, m->n_kv_heads), m->n_kv_heads, "kv");
    const struct op attend = {.kind = OP_ATTENTION,
                              .in = {q, kv},
                              .u.attn = {.n_heads = m->n_heads,
                                         .n_kv_heads = m->n_kv_heads,
                                         .head_dim = D,
                                         .scale = (float)(1 / sqrt((double)D)),
                                         .causal = true,
                                         .window = m->window,
                                         .dim = -1}};
    const int o = prog_op(p, &attend,
                          &(struct value){.name = "attn_out", .cols = HD, .keep = KEEP_RING});
    const struct value sum = {.name = "mlp_input", .cols = m->width, .keep = KEEP_NONE_MODE};
    return linear(p, (int[]){o, x}, w.o, 1, &sum);
}

static int mlp(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width, I = m->ffn_width;
    const int xn = norm(p, m, x, "post_attention_layernorm.weight");
    const int gate_up = prog_tensor(p, "mlp.gate_proj.weight", I, C, INIT_NORMAL);
    prog_joined(p, "mlp.up_proj.weight", I, C, INIT_NORMAL);
    const int down = prog_tensor(p, "mlp.down_proj.weight", C, I, INIT_RESIDUAL);
    const struct value both = {.name = "gate_up", .cols = 2 * I, .keep = KEEP_NONE_MODE};
    const int gu = linear(p, (int[]){xn, PROG_NONE}, gate_up, 2, &both);
    const int gate = prog_view(p, gu, 0, I), up = prog_view(p, gu, I, I);
    const int act = prog_op(p,
                            &(struct op){.kind = OP_GLU, .in = {gate, up}, .u.act.kind = ACT_SILU},
                            &(struct value){.name = "mlp_act", .cols = I, .keep = KEEP_NEVER});
    return linear(p, (int[]){act, x}, down, 1,
                  &(struct value){.name = "layer_output", .cols = C, .keep = KEEP_NEVER});
}

static void write_llama(const struct model_shape *m, struct family *f)
{
    const int64_t C = m->width;
    struct program *in = &f->in, *layer = &f->layer[0], *out = &f->out;
    prog_init(in, "");
    const int table = prog_tensor(in, "model.embed_tokens.weight", m->vocab, C, INIT_NORMAL);
    in->result = prog_op(in,
                         &(struct op){.kind = OP_EMBED, .w = table, .n_w = 1, .u.embed.scale = 1},
                         &(struct value){.name = "embedded", .cols = C, .keep = KEEP_NEVER});
    prog_init(layer, "model.layers.%d.");
    layer->result = mlp(layer, m, attention(layer, m, prog_input(layer, C)));
    f->n_kinds = 1;
    prog_init(out, "");
    const int xn = norm(out, m, prog_input(out, C), "model.norm.weight");
    const int head = m->tied ? PROG_TIED
                             : prog_tensor(out, "lm_head.weight", m->vocab, C, INIT_NORMAL);
    prog_op(out, &(struct op){.kind = OP_XENT, .in = {xn}, .w = head, .n_w = 1}, NULL);
}

/* ---- config.json ----------------------------------------------------------------------------- */

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

static const struct hf_family config = {llama_fields, llama_specials, llama_types,       hf_usual,
                                        finish_llama, llama_type,     llama_architecture};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_llama = {.config = &config,
                                        .name = "llama",
                                        .task = MODEL_CAUSAL_LM,
                                        .softmax = true,
                                        .slices_heads = true,
                                        .write = write_llama};
