/* stdit3.c: STDiT3 of Open-Sora 1.2. Its blocks are pairs of a spatial and a temporal block.
 *
 *   x = patches + positions; t = time MLP(t) + fps MLP(fps); six = t_block(t);
 *   y = caption MLP(text)
 *   per block   x += g_a attn(LN(x) (1 + sc_a) + sh_a)      along space, or along time with RoPE
 *               x += cross(x, y)                            no norm, no gate
 *               x += g_m MLP(LN(x) (1 + sc_m) + sh_m)       shift, scale, gate: table + six
 *   velocity = linear(modulated LN(x))
 *
 * The residual stream is always spread along space, so temporal attention is local. There is a
 * switch of C columns before the spatial attention with its projections, and one after it. */
#include "worker/family/dit.h"

static int check(struct model_shape *m, struct err *e)
{
    if (m->base_size == 0) m->base_size = 512;
    if (dit_check(m, e) || dit_check_caption(m, e)) return -1;
    if (m->n_layers % 2)
        return err_field(e, ERR_INVALID, "model.config.num_hidden_layers",
                         "%d layers: STDiT3 has pairs of a spatial and a temporal block",
                         m->n_layers);
    if (m->head_dim % 2)
        return err_field(e, ERR_INVALID, "model.config.head_dim",
                         "head_dim %lld: the rotary embedding turns pairs, want an even number",
                         (long long)m->head_dim);
    return 0;
}

static void write_block(struct dit d, const struct program *in, bool temporal)
{
    const int x = dit_input(d);
    const struct dit_vectors v = dit_table(d, in);
    const struct dit_attn attn = {
        .prefix = "attn", .dim = temporal, .rope = temporal, .qk_norm = d.m->qk_norm};
    const int h = dit_modulated(d, x, v.attn);
    const int sum = dit_gate(d, x, dit_attention(d, h, &attn), v.attn[2], false, "attn_sum");
    dit_result(d, dit_mlp(d, dit_cross(d, in, sum), v.mlp));
}

static void write(const struct model_shape *m, struct family *f)
{
    static const char *const prefixes[2] = {"spatial_blocks.%d.", "temporal_blocks.%d."};
    const struct dit in = {&f->in, m}, out = {&f->out, m};
    prog_init(&f->in, "");
    f->in.result = dit_position_2d(in, dit_patches(in));
    const int t = dit_timestep(in, false, PROG_NONE, false);
    dit_time_block(in, dit_timestep(in, true, t, true));
    dit_caption(in);
    f->n_kinds = 2;
    for (int k = 0; k < 2; k++) {
        prog_init(&f->layer[k], prefixes[k]);
        f->layer[k].layer_step = 2;
        write_block((struct dit){&f->layer[k], m}, &f->in, k == 1);
    }
    prog_init(&f->out, "");
    dit_loss(out, dit_final_table(out, &f->in, dit_input(out)));
}

static int kind(const struct model_shape *m, int64_t l)
{
    (void)m;
    return l % 2;
}

/* ---- config.json ----------------------------------------------------------------------------- */

/* Reads the number of pairs, each of a spatial and a temporal block. Each block is a layer
 * here. */
static int read_pairs(struct config *c, const char *key)
{
    int64_t n = 0;
    if (config_read_int(c, key, 1, 512, &n) < 0) return -1;
    c->m->n_layers = (int32_t)(2 * n);
    return 0;
}

static void write_pairs(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->n_layers / 2);
}

static const struct hf_absent own[] = {DIT_ABSENT,
                                       {"num_hidden_layers", 56},
                                       {"caption_channels", 4096},
                                       {"model_max_length", 300},
                                       {"input_sq_size", 512},
                                       {NULL, 0}};
static const struct hf_model models[] = {
    {"stdit3", own, {"STDiT3"}}, {"STDiT3", own, {"STDiT3"}}, {NULL, NULL, {NULL}}};

static const struct hf_field stdit3_fields[] = {DIT_SIZES,
                                                CAPTION,
                                                {"num_hidden_layers", NULL, HF_UNWRITTEN},
                                                {"qk_norm", NULL, 0},
                                                {"input_sq_size", NULL, 0},
                                                {NULL, NULL, 0}};
static const struct hf_special stdit3_specials[] = {DIT_SPECIALS,
                                                    {"depth", read_pairs, write_pairs},
                                                    {"qk_norm_legacy", config_want_false, NULL},
                                                    {"skip_y_embedder", config_want_false, NULL},
                                                    {NULL, NULL, NULL}};

static const struct hf_family config = {.nothing = dit_nothing,
                                        .fields = stdit3_fields,
                                        .specials = stdit3_specials,
                                        .models = models,
                                        .finish = dit_finish,
                                        .model = dit_model};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_stdit3 = {.config = &config,
                                         .name = "stdit3",
                                         .task = MODEL_DIFFUSION,
                                         .softmax = true,
                                         .clips = true,
                                         .check = check,
                                         .write = write,
                                         .layer_kind = kind};
