/* latte.c: Latte (2401.03048). It has DiT blocks (2212.09748). Even blocks attend along space, and
 * odd blocks along time.
 *
 *   c = time MLP(t) [+ label]
 *   per block   shift, scale, gate of both = linear(SiLU(c)), with a linear layer per block
 *               x += g_a attn(LN(x) (1 + sc_a) + sh_a);  x += g_m MLP(LN(x) (1 + sc_m) + sh_m)
 *   the first temporal block adds e(frame) to x
 *
 * Every frame has the sample's t. The residual stream is always spread along space, as in
 * STDiT3. */
#include "worker/family/dit.h"

static int check(struct model_shape *m, struct err *e)
{
    if (m->caption_channels || m->base_size || m->qk_norm)
        return err_field(e, ERR_INVALID, "model.config.caption_channels",
                         "latte has no caption, qk_norm or input_sq_size");
    if (dit_check(m, e)) return -1;
    if (m->patch_t != 1)
        return err_field(e, ERR_INVALID, "model.config.patch_t",
                         "patch_t %lld: latte's patches are of one frame", (long long)m->patch_t);
    return 0;
}

static int label(struct dit d, int t)
{
    const int64_t C = d.m->width;
    const struct value out = {
        .name = "condition", .rows = ROWS_COND, .cols = C, .keep = KEEP_NONE_MODE};
    if (!d.m->type_vocab) return t;
    const int w = prog_tensor(d.p, "y_embedder.embedding_table.weight", d.m->type_vocab, C,
                              INIT_NORMAL);
    return prog_op(d.p,
                   &(struct op){.kind = OP_EMBED_ADD,
                                .in = {t},
                                .w = w,
                                .n_w = 1,
                                .u.embed = {.scale = 1, .index = INDEX_LABEL}},
                   &out);
}

/* Writes the n vectors of a block or of the final layer. They come from the value that section
 * `in` shares. */
static int modulation(struct dit d, const struct program *in, const char *prefix, int64_t n)
{
    const struct value out = {
        .name = "vectors", .rows = ROWS_COND, .cols = n * d.m->width, .keep = KEEP_NONE_MODE};
    const struct dit_linear w = {prefix, out.cols, INIT_NORMAL};
    return dit_linear(d, prog_shared(d.p, in, "silu"), PROG_NONE, &w, &out);
}

enum { SPACE, FIRST_TIME, TIME, KINDS };

static void write_block(struct dit d, const struct program *in, int kind)
{
    int x = dit_input(d);
    if (kind == FIRST_TIME) x = dit_position_1d(d, x);
    const struct dit_vectors v = dit_vectors(d, modulation(d, in, "adaLN_modulation.1", 6));
    const struct dit_attn attn = {.prefix = "attn", .dim = kind != SPACE};
    const int h = dit_modulated(d, x, v.attn);
    const int a = dit_attention(d, h, &attn);
    dit_result(d, dit_mlp(d, dit_gate(d, x, a, v.attn[2], false, "attn_sum"), v.mlp));
}

static void write_out(struct dit d, const struct program *in)
{
    const int x = dit_input(d);
    const int two = modulation(d, in, "final_layer.adaLN_modulation.1", 2);
    const int v[3] = {prog_view(d.p, two, 0, d.m->width),
                      prog_view(d.p, two, d.m->width, d.m->width), PROG_NONE};
    dit_loss(d, dit_modulated(d, x, v));
}

static void write(const struct model_shape *m, struct family *f)
{
    const struct dit in = {&f->in, m};
    prog_init(&f->in, "");
    f->in.result = dit_position_2d(in, dit_patches(in));
    const int c = label(in, dit_timestep(in, false, PROG_NONE, false));
    const struct value silu = {
        .name = "silu", .rows = ROWS_COND, .cols = m->width, .keep = KEEP_ALWAYS, .shared = true};
    prog_op(&f->in, &(struct op){.kind = OP_ACT, .in = {c}, .u.act.kind = ACT_SILU}, &silu);
    f->n_kinds = KINDS;
    for (int k = 0; k < KINDS; k++) {
        prog_init(&f->layer[k], "blocks.%d.");
        write_block((struct dit){&f->layer[k], m}, &f->in, k);
    }
    prog_init(&f->out, "");
    write_out((struct dit){&f->out, m}, &f->in);
}

static int kind(const struct model_shape *m, int64_t l)
{
    (void)m;
    return l % 2 == 0 ? SPACE : l == 1 ? FIRST_TIME : TIME;
}

/* ---- config.json ----------------------------------------------------------------------------- */

/* Reads the number of classes. The table has one more row, for "no class". */
static int read_classes(struct config *c, const char *key)
{
    int64_t n = -1;
    if (config_read_int(c, key, 0, (1 << 16) - 1, &n) < 0) return -1;
    c->m->type_vocab = n > 0 ? n + 1 : 0;
    return 0;
}

static void write_classes(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->type_vocab ? m->type_vocab - 1 : 0);
}

static const struct hf_field latte_fields[] = {DIT_SIZES,
                                               {"num_hidden_layers", "depth", HF_NEEDED},
                                               {"type_vocab_size", NULL, HF_UNWRITTEN},
                                               {NULL, NULL, 0}};
static const struct hf_special latte_specials[] = {DIT_SPECIALS,
                                                   {"num_classes", read_classes, write_classes},
                                                   {"qk_norm", config_want_false, NULL},
                                                   {NULL, NULL, NULL}};

/* Keys that the published directories of every variant have. The keys change nothing here. The
 * last two would matter only for captions, which a model with class labels does not read. */
static const char *const latte_nothing[] = {"input_size",       "class_dropout_prob", "num_frames",
                                            "caption_channels", "model_max_length",   NULL};

static const struct hf_absent own[] = {DIT_ABSENT, {NULL, 0}};
static const struct hf_model models[] = {
    {"latte", own, {"Latte"}}, {"Latte", own, {"Latte"}}, {NULL, NULL, {NULL}}};

static const struct hf_family config = {.nothing = latte_nothing,
                                        .fields = latte_fields,
                                        .specials = latte_specials,
                                        .models = models,
                                        .finish = dit_finish,
                                        .model = dit_model};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_latte = {.config = &config,
                                        .name = "latte",
                                        .task = MODEL_DIFFUSION,
                                        .softmax = true,
                                        .flat_patches = true,
                                        .published_on_noise = true,
                                        .check = check,
                                        .write = write,
                                        .layer_kind = kind};
