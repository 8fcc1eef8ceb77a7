/* dit.c: writes linear layers, norms and gates of diffusion transformers, their inputs, and the
 * parts of a block. */
#include "worker/family/dit.h"

#include <math.h>
#include <stdio.h>
#include "worker/family/write.h"

/* number of columns of the sinusoid of a time; all released models have this number */
enum { TIME_COLS = 256 };

static const float EPS = 1e-6f; /* eps of every norm; no config.json has a key for it */

/* ---- operations ------------------------------------------------------------------------------ */

static struct value like(struct dit d, int x, const char *name, enum keep_id keep)
{
    struct value v = d.p->value[x];
    return (struct value){.name = name, .rows = v.rows, .cols = v.cols, .keep = keep};
}

struct dit_weights {
    int w, b;
};

static struct dit_weights weights_of(struct dit d, const struct dit_linear *l, int64_t cols)
{
    struct dit_weights w;
    char name[64];
    snprintf(name, sizeof name, "%s.weight", l->prefix);
    w.w = prog_tensor(d.p, name, l->rows, cols, l->init);
    snprintf(name, sizeof name, "%s.bias", l->prefix);
    w.b = prog_tensor(d.p, name, l->rows, 0, INIT_ZERO);
    return w;
}

int dit_linear(struct dit d, int x, int base, const struct dit_linear *l, const struct value *out)
{
    const struct dit_weights w = weights_of(d, l, d.p->value[x].cols);
    return prog_op(
        d.p,
        &(struct op){
            .kind = OP_LINEAR, .in = {x, base}, .w = w.w, .n_w = 1, .bias = w.b, .n_bias = 1},
        out);
}

/* Writes a product. Its result is kept only under recompute "none". */
static int linear(struct dit d, int x, const char *prefix, int64_t rows, const char *name)
{
    struct value out = like(d, x, name, KEEP_NONE_MODE);
    out.cols = rows;
    return dit_linear(d, x, PROG_NONE, &(struct dit_linear){prefix, rows, INIT_NORMAL}, &out);
}

static int add_act(struct dit d, int x, enum act_id fn, const char *name)
{
    const struct value out = like(d, x, name, KEEP_NEVER);
    return prog_op(d.p, &(struct op){.kind = OP_ACT, .in = {x}, .u.act.kind = fn}, &out);
}

static int add_norm(struct dit d, int x)
{
    const struct value out = like(d, x, "norm_out", KEEP_NEVER);
    return prog_op(d.p, &(struct op){.kind = OP_NORM, .in = {x}, .u.norm = {NORM_LAYER, EPS, 1, 0}},
                   &out);
}

/* ---- tensor parallelism ---------------------------------------------------------------------- */

/* Gathers all rows of x. With GRID_TENSOR the ranks divide every layer, and a rank's residual
 * stream and norms have only the rank's part of the rows. Gathered values and summed values are
 * kept for backward under recompute "none" and "selective". So only recompute "full" repeats an
 * exchange. */
static int gathered(struct dit d, int x)
{
    struct value out = like(d, x, "gathered", KEEP_RING);
    if (d.m->tp <= 1) return x;
    out.rows = ROWS_T;
    return prog_op(d.p, &(struct op){.kind = OP_GATHER, .in = {x}}, &out);
}

/* Writes a dit_linear() in which the columns of W and of x are divided among the ranks. Sums the
 * products of the ranks. */
static int summed(struct dit d, int x, int base, const struct dit_linear *l, struct value out)
{
    if (d.m->tp <= 1) return dit_linear(d, x, base, l, &out);
    const struct dit_weights w = weights_of(d, l, d.p->value[x].cols);
    struct value part = like(d, x, "part", KEEP_NEVER);
    part.cols = l->rows;
    part.f32 = true;
    const struct op product = {
        .kind = OP_LINEAR, .in = {x, PROG_NONE}, .w = w.w, .n_w = 1, .bias = PROG_NONE};
    const int p = prog_op(d.p, &product, &part);
    out.keep = KEEP_RING;
    const struct op sum = {.kind = OP_SCATTER, .in = {p, base}, .bias = w.b, .n_bias = 1};
    return prog_op(d.p, &sum, &out);
}

/* n projections, each with the columns of all heads. Usually they are one tensor. If ranks divide
 * the heads, they are n tensors that follow each other. The name of each of these tensors is
 * PREFIX, followed by an element of `parts`. */
struct dit_projections {
    const char *prefix, *name; /* "attn", "qkv" */
    const char *const *parts;
    int n;
};

static int projected(struct dit d, int x, const struct dit_projections *l, const char *what)
{
    const int64_t C = d.m->n_heads * d.m->head_dim, in = d.p->value[x].cols;
    char name[64];
    if (d.m->grid_way != GRID_TENSOR) {
        snprintf(name, sizeof name, "%s.%s", l->prefix, l->name);
        return linear(d, x, name, l->n * C, what);
    }
    int first[2] = {PROG_NONE, PROG_NONE};
    for (int bias = 0; bias < 2; bias++)
        for (int i = 0; i < l->n; i++) {
            snprintf(name, sizeof name, "%s.%s.%s", l->prefix, l->parts[i],
                     bias ? "bias" : "weight");
            const enum init_id init = bias ? INIT_ZERO : INIT_NORMAL;
            const int w = i ? prog_joined(d.p, name, C, bias ? 0 : in, init)
                            : prog_tensor(d.p, name, C, bias ? 0 : in, init);
            if (i == 0) first[bias] = w;
        }
    struct value out = like(d, x, what, KEEP_NONE_MODE);
    out.cols = l->n * C;
    return prog_op(d.p,
                   &(struct op){.kind = OP_LINEAR,
                                .in = {x, PROG_NONE},
                                .w = first[0],
                                .n_w = l->n,
                                .bias = first[1],
                                .n_bias = l->n},
                   &out);
}

/* ---- in -------------------------------------------------------------------------------------- */

/* Adds the weight of a convolution, [C, channels, (frames,) rows, columns]. In some families the
 * weight has no dimension of frames. */
static int patch_weight(struct dit d, int64_t cols)
{
    const struct model_shape *m = d.m;
    struct weight w = {.name = "x_embedder.proj.weight", .rows = m->width, .cols = cols};
    w.init = INIT_NORMAL;
    w.dims[w.n_dims++] = m->width;
    w.dims[w.n_dims++] = m->in_channels;
    if (!family_row(m)->flat_patches) w.dims[w.n_dims++] = m->patch_t;
    w.dims[w.n_dims++] = m->patch_h;
    w.dims[w.n_dims++] = m->patch_w;
    return prog_weight(d.p, &w);
}

int dit_patches(struct dit d)
{
    const struct model_shape *m = d.m;
    const int64_t cols = m->in_channels * m->patch_t * m->patch_h * m->patch_w;
    const struct value patches = {.name = "patches",
                                  .rows = write_stream_rows(m),
                                  .cols = cols,
                                  .keep = KEEP_NEVER,
                                  .no_grad = true};
    const int x = prog_op(d.p, &(struct op){.kind = OP_PATCH}, &patches);
    const int w = patch_weight(d, cols);
    const int b = prog_tensor(d.p, "x_embedder.proj.bias", m->width, 0, INIT_ZERO);
    struct value out = like(d, x, "embedded", KEEP_NEVER);
    out.cols = m->width;
    return prog_op(
        d.p,
        &(struct op){
            .kind = OP_LINEAR, .in = {x, PROG_NONE}, .w = w, .n_w = 1, .bias = b, .n_bias = 1},
        &out);
}

int dit_position_2d(struct dit d, int x)
{
    const struct value out = like(d, x, "positioned", KEEP_NEVER);
    const double scale = d.m->space_scale > 0 ? d.m->space_scale : 1;
    return prog_op(
        d.p, &(struct op){.kind = OP_POSITION_2D, .in = {x}, .u.position = {scale, d.m->base_size}},
        &out);
}

int dit_position_1d(struct dit d, int x)
{
    const struct value out = like(d, x, "timed", KEEP_NEVER);
    const double scale = d.m->time_scale > 0 ? d.m->time_scale : 1;
    return prog_op(d.p, &(struct op){.kind = OP_POSITION_1D, .in = {x}, .u.position.scale = scale},
                   &out);
}

int dit_timestep(struct dit d, bool fps, int base, bool shared)
{
    const int64_t C = d.m->width;
    const struct value hidden = {
        .name = "time_hidden", .rows = ROWS_COND, .cols = C, .keep = KEEP_NONE_MODE};
    const struct value out = {
        .name = "time", .rows = ROWS_COND, .cols = C, .keep = KEEP_ALWAYS, .shared = shared};
    const int wave = prog_op(d.p, &(struct op){.kind = OP_TIMESTEP, .u.time.fps = fps},
                             &(struct value){.name = fps ? "fps_wave" : "time_wave",
                                             .rows = ROWS_COND,
                                             .cols = TIME_COLS,
                                             .keep = KEEP_NEVER,
                                             .no_grad = true});
    const struct dit_linear first = {fps ? "fps_embedder.mlp.0" : "t_embedder.mlp.0", C,
                                     INIT_NORMAL};
    const struct dit_linear second = {fps ? "fps_embedder.mlp.2" : "t_embedder.mlp.2", C,
                                      INIT_NORMAL};
    int h = dit_linear(d, wave, PROG_NONE, &first, &hidden);
    h = add_act(d, h, ACT_SILU, "time_act");
    return dit_linear(d, h, base, &second, &out);
}

void dit_caption(struct dit d)
{
    const struct model_shape *m = d.m;
    struct weight null = {.name = "y_embedder.y_embedding",
                          .rows = m->text_len,
                          .cols = m->caption_channels,
                          .init = INIT_TABLE,
                          .frozen = true};
    const int w = prog_weight(d.p, &null);
    const int y = prog_op(d.p, &(struct op){.kind = OP_TEXT, .w = w, .n_w = 1},
                          &(struct value){.name = "text",
                                          .rows = ROWS_TEXT,
                                          .cols = m->caption_channels,
                                          .keep = KEEP_NEVER,
                                          .no_grad = true});
    int h = linear(d, y, "y_embedder.y_proj.fc1", m->width, "text_hidden");
    h = add_act(d, h, ACT_GELU_TANH, "text_act");
    const struct value out = {.name = "caption",
                              .rows = ROWS_TEXT,
                              .cols = m->width,
                              .keep = KEEP_ALWAYS,
                              .shared = true};
    const struct dit_linear second = {"y_embedder.y_proj.fc2", m->width, INIT_NORMAL};
    dit_linear(d, h, PROG_NONE, &second, &out);
}

void dit_time_block(struct dit d, int t)
{
    const struct value out = {.name = "time_block",
                              .rows = ROWS_COND,
                              .cols = 6 * d.m->width,
                              .keep = KEEP_ALWAYS,
                              .shared = true};
    const struct dit_linear six = {"t_block.1", out.cols, INIT_NORMAL};
    dit_linear(d, add_act(d, t, ACT_SILU, "time_silu"), PROG_NONE, &six, &out);
}

/* ---- layers ---------------------------------------------------------------------------------- */

int dit_input(struct dit d)
{
    return write_stream(d.p, d.m);
}

struct dit_vectors dit_vectors(struct dit d, int six)
{
    struct dit_vectors v;
    for (int i = 0; i < 6; i++)
        *(i < 3 ? &v.attn[i] : &v.mlp[i - 3]) = prog_view(d.p, six, i * d.m->width, d.m->width);
    return v;
}

static int table(struct dit d, int t, const char *name, int64_t n)
{
    const int64_t C = d.m->width;
    const int w = prog_tensor(d.p, name, n, C, INIT_TABLE);
    return prog_op(
        d.p, &(struct op){.kind = OP_TABLE, .in = {t}, .w = w, .n_w = 1},
        &(struct value){.name = "vectors", .rows = ROWS_COND, .cols = n * C, .keep = KEEP_NEVER});
}

struct dit_vectors dit_table(struct dit d, const struct program *in)
{
    return dit_vectors(d, table(d, prog_shared(d.p, in, "time_block"), "scale_shift_table", 6));
}

static int modulate(struct dit d, int x, const int v[2], bool first)
{
    const struct value out = like(d, x, "modulated", KEEP_NEVER);
    return prog_op(
        d.p, &(struct op){.kind = OP_MODULATE, .in = {x, v[0], v[1]}, .u.cond.first = first}, &out);
}

int dit_modulated(struct dit d, int x, const int v[3])
{
    return modulate(d, add_norm(d, x), v, false);
}

int dit_gate(struct dit d, int base, int x, int gate, bool first, const char *name)
{
    const struct value out = like(d, base, name, KEEP_NONE_MODE);
    return prog_op(d.p, &(struct op){.kind = OP_GATE, .in = {base, x, gate}, .u.cond.first = first},
                   &out);
}

/* Writes RMSNorm of each of the first H heads of a row. The other heads (values) are not
 * changed. */
static int head_norm(struct dit d, int x, const char *prefix, const char *which)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s.weight", prefix, which);
    const int g = prog_tensor(d.p, name, d.m->head_dim, 0, INIT_ONE);
    const struct value out = like(d, x, "head_norm", KEEP_NEVER);
    return prog_op(d.p,
                   &(struct op){.kind = OP_NORM,
                                .in = {x},
                                .w = g,
                                .n_w = 1,
                                .u.norm = {NORM_RMS, EPS, d.m->n_heads, d.m->head_dim}},
                   &out);
}

static int rotated(struct dit d, int x)
{
    const struct value out = like(d, x, "turned", KEEP_NONE_MODE);
    return prog_op(d.p,
                   &(struct op){.kind = OP_ROPE,
                                .in = {x},
                                .u.rope = {.n_heads = d.m->n_heads,
                                           .head_dim = d.m->head_dim,
                                           .interleaved = true,
                                           .frames = true}},
                   &out);
}

/* Tells whether attention along dim needs an all-to-all that exchanges rows for heads. */
static bool turns(const struct model_shape *m, int dim)
{
    return dim >= 0 &&
           (m->grid_way == GRID_HEADS_BOTH || (m->grid_way == GRID_HEADS_SPACE && dim == 0));
}

/* Tells whether attention along dim has all rows of this rank's own heads. This is true after the
 * exchange of turns(). It is also true if ranks divide the heads of every layer. */
static bool by_heads(const struct model_shape *m, int dim)
{
    return turns(m, dim) || (dim >= 0 && m->grid_way == GRID_TENSOR);
}

/* Adds the exchange of rows for heads. If `back` is set, adds the exchange of heads for rows. */
static int turned(struct dit d, int x, int sets, bool back)
{
    const struct value out = like(d, x, back ? "rows_of_heads" : "heads_of_rows", KEEP_RING);
    return prog_op(d.p, &(struct op){.kind = OP_HEADS, .in = {x}, .u.heads = {sets, back}}, &out);
}

static int attend(struct dit d, enum op_kind kind, int q, int kv, int dim)
{
    const struct model_shape *m = d.m;
    const struct value out = like(d, q, kind == OP_CROSS ? "cross_out" : "attn_out", KEEP_RING);
    return prog_op(d.p,
                   &(struct op){.kind = kind,
                                .in = {q, kv},
                                .u.attn = {.n_heads = m->n_heads,
                                           .n_kv_heads = m->n_heads,
                                           .head_dim = m->head_dim,
                                           .scale = (float)(1 / sqrt((double)m->head_dim)),
                                           .dim = dim,
                                           .by_heads = by_heads(m, dim)}},
                   &out);
}

int dit_attention(struct dit d, int x, const struct dit_attn *a)
{
    static const char *const parts[] = {"q", "k", "v"};
    const int64_t C = d.m->n_heads * d.m->head_dim;
    const struct dit_projections three = {a->prefix, "qkv", parts, 3};
    char name[64];
    const int qkv = projected(d, gathered(d, x), &three, "qkv");
    int q = prog_view(d.p, qkv, 0, C), kv = prog_view(d.p, qkv, C, 2 * C);
    if (a->qk_norm) q = head_norm(d, q, a->prefix, "q_norm");
    if (a->qk_norm) kv = head_norm(d, kv, a->prefix, "k_norm");
    if (a->rope) q = rotated(d, q), kv = rotated(d, kv);
    const bool heads = turns(d.m, a->dim);
    if (heads) q = turned(d, q, 1, false), kv = turned(d, kv, 2, false);
    int o = attend(d, OP_ATTENTION, q, kv, a->dim);
    if (heads) o = turned(d, o, 1, true);
    snprintf(name, sizeof name, "%s.proj", a->prefix);
    return summed(d, o, PROG_NONE, &(struct dit_linear){name, d.m->width, INIT_RESIDUAL},
                  like(d, x, "attn_proj", KEEP_NONE_MODE));
}

int dit_cross(struct dit d, const struct program *in, int x)
{
    static const char *const parts[] = {"k_linear", "v_linear"};
    const int64_t C = d.m->n_heads * d.m->head_dim;
    const struct dit_projections two = {"cross_attn", "kv_linear", parts, 2};
    const struct dit_linear last = {"cross_attn.proj", d.m->width, INIT_RESIDUAL};
    const int y = prog_shared(d.p, in, "caption");
    const int q = linear(d, gathered(d, x), "cross_attn.q_linear", C, "cross_q");
    const int kv = projected(d, y, &two, "cross_kv");
    const int o = attend(d, OP_CROSS, q, kv, -1);
    return summed(d, o, x, &last, like(d, x, "cross_sum", KEEP_NONE_MODE));
}

int dit_mlp(struct dit d, int x, const int v[3])
{
    int h = gathered(d, dit_modulated(d, x, v));
    h = linear(d, h, "mlp.fc1", d.m->ffn_width, "mlp_hidden");
    h = add_act(d, h, ACT_GELU_TANH, "mlp_act");
    const struct dit_linear second = {"mlp.fc2", d.m->width, INIT_RESIDUAL};
    h = summed(d, h, PROG_NONE, &second, like(d, x, "mlp_out", KEEP_NONE_MODE));
    return dit_gate(d, x, h, v[2], false, "mlp_sum");
}

void dit_result(struct dit d, int x)
{
    d.p->value[x].name = "layer_output";
    d.p->value[x].keep = KEEP_NEVER;
    d.p->result = x;
}

/* ---- out ------------------------------------------------------------------------------------- */

int dit_final_table(struct dit d, const struct program *in, int x)
{
    const int two = table(d, prog_shared(d.p, in, "time"), "final_layer.scale_shift_table", 2);
    const int v[2] = {prog_view(d.p, two, 0, d.m->width),
                      prog_view(d.p, two, d.m->width, d.m->width)};
    const int once = modulate(d, add_norm(d, x), v, true);
    const int twice = modulate(d, add_norm(d, once), v, false);
    const struct value out = like(d, x, "final", KEEP_NEVER);
    return prog_op(d.p, &(struct op){.kind = OP_SELECT, .in = {once, twice}}, &out);
}

void dit_loss(struct dit d, int x)
{
    const struct model_shape *m = d.m;
    const int64_t cols = m->out_channels * m->patch_t * m->patch_h * m->patch_w;
    struct value out = like(d, x, "prediction", KEEP_NONE_MODE);
    out.cols = cols;
    const int y = dit_linear(d, x, PROG_NONE,
                             &(struct dit_linear){"final_layer.linear", cols, INIT_NORMAL}, &out);
    prog_op(d.p, &(struct op){.kind = shape_of_noise(m) ? OP_NOISE : OP_MSE, .in = {y}}, NULL);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void fill(int64_t *v, int64_t fallback)
{
    if (*v == 0) *v = fallback;
}

static int check_patches(const struct model_shape *m, struct err *e)
{
    if (m->in_channels < 1)
        return err_field(e, ERR_INVALID, "model.config.in_channels",
                         "in_channels is %lld: want the channels of the latents",
                         (long long)m->in_channels);
    if (m->out_channels < m->in_channels)
        return err_field(e, ERR_INVALID, "model.config.out_channels",
                         "out_channels %lld: want at least in_channels %lld",
                         (long long)m->out_channels, (long long)m->in_channels);
    if (m->patch_t < 1 || m->patch_h < 1 || m->patch_w < 1)
        return err_field(e, ERR_INVALID, "model.config.patch_t",
                         "a patch of %lld x %lld x %lld: want at least 1 of each",
                         (long long)m->patch_t, (long long)m->patch_h, (long long)m->patch_w);
    return 0;
}

int dit_check(struct model_shape *m, struct err *e)
{
    fill(&m->in_channels, 4);
    fill(&m->out_channels, 2 * m->in_channels);
    fill(&m->patch_t, 1);
    fill(&m->patch_h, 2);
    fill(&m->patch_w, 2);
    fill(&m->ffn_width, 4 * m->width);
    fill(&m->n_kv_heads, m->n_heads);
    if (m->n_heads > 0) fill(&m->head_dim, m->width / m->n_heads);
    if (m->act != ACT_IDENTITY && m->act != ACT_GELU_TANH)
        return err_field(e, ERR_UNSUPPORTED, "model.config.hidden_act",
                         "hidden_act: this family's is gelu_tanh");
    m->act = ACT_GELU_TANH;
    m->norm_eps = 1e-6;
    m->tied = 0;
    if (m->n_heads < 1 || m->head_dim * m->n_heads != m->width)
        return err_field(e, ERR_INVALID, "model.config.head_dim",
                         "%lld heads of %lld are not hidden_size %lld", (long long)m->n_heads,
                         (long long)m->head_dim, (long long)m->width);
    if (m->n_kv_heads != m->n_heads)
        return err_field(
            e, ERR_INVALID, "model.config.num_key_value_heads",
            "num_key_value_heads is %lld: this family has as many as query heads, %lld",
            (long long)m->n_kv_heads, (long long)m->n_heads);
    if (m->width % 4)
        return err_field(e, ERR_INVALID, "model.config.hidden_size",
                         "hidden_size %lld: positions need a multiple of 4", (long long)m->width);
    if (m->window || m->n_experts || m->value_dim)
        return err_field(e, ERR_INVALID, "model.config.sliding_window",
                         "diffusion transformers have no sliding window, experts or value_dim");
    return check_patches(m, e);
}

int dit_check_caption(struct model_shape *m, struct err *e)
{
    if (m->caption_channels < 1 || m->text_len < 1)
        return err_field(e, ERR_INVALID, "model.config.caption_channels",
                         "caption_channels %lld and model_max_length %lld: want the width of the "
                         "caption's embedding and its tokens at most",
                         (long long)m->caption_channels, (long long)m->text_len);
    return 0;
}
