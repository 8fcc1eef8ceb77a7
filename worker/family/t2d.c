/* t2d.c: Transformer-2D, the model of the DSP paper (2403.10266). A block consists of attention
 * and MLP. Even blocks are computed along space, and odd blocks along time. The residual stream is
 * switched between blocks. Blocks are modulated like the blocks of STDiT. If the model has
 * caption_channels, blocks read a caption. If it has qk_norm, heads are normalised.
 *
 *   x = patches + e(patch) + e(frame)
 *   per block   x += g_a attn(LN(x) (1 + sc_a) + sh_a);  [x += cross(x, y)]
 *               x += g_m MLP(LN(x) (1 + sc_m) + sh_m) */
#include "worker/family/dit.h"

static int check(struct model_shape *m, struct err *e)
{
    if (dit_check(m, e)) return -1;
    return m->caption_channels || m->text_len ? dit_check_caption(m, e) : 0;
}

static void write_block(struct dit d, const struct program *in, bool temporal)
{
    const int x = dit_input(d);
    const struct dit_vectors v = dit_table(d, in);
    const struct dit_attn attn = {.prefix = "attn", .dim = temporal, .qk_norm = d.m->qk_norm};
    const int a = dit_attention(d, dit_modulated(d, x, v.attn), &attn);
    int sum = dit_gate(d, x, a, v.attn[2], false, "attn_sum");
    if (d.m->caption_channels) sum = dit_cross(d, in, sum);
    dit_result(d, dit_mlp(d, sum, v.mlp));
}

static void write(const struct model_shape *m, struct family *f)
{
    const struct dit in = {&f->in, m}, out = {&f->out, m};
    prog_init(&f->in, "");
    f->in.result = dit_position_1d(in, dit_position_2d(in, dit_patches(in)));
    dit_time_block(in, dit_timestep(in, false, PROG_NONE, true));
    if (m->caption_channels) dit_caption(in);
    f->n_kinds = 2;
    for (int k = 0; k < 2; k++) {
        prog_init(&f->layer[k], "blocks.%d.");
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

static const struct hf_field t2d_fields[] = {DIT_SIZES,
                                             CAPTION,
                                             {"num_hidden_layers", "depth", HF_NEEDED},
                                             {"qk_norm", NULL, 0},
                                             {NULL, NULL, 0}};
static const struct hf_special t2d_specials[] = {DIT_SPECIALS, {NULL, NULL, NULL}};

static const struct hf_absent own[] = {DIT_ABSENT, {NULL, 0}};
static const struct hf_model models[] = {{"transformer_2d", own, {"transformer_2d"}},
                                         {NULL, NULL, {NULL}}};

static const struct hf_family config = {.nothing = dit_nothing,
                                        .fields = t2d_fields,
                                        .specials = t2d_specials,
                                        .models = models,
                                        .finish = dit_finish};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_t2d = {.config = &config,
                                      .name = "transformer_2d",
                                      .task = MODEL_DIFFUSION,
                                      .softmax = true,
                                      .residual_turns = true,
                                      .check = check,
                                      .write = write,
                                      .layer_kind = kind};
