/* stdit.c: STDiT of Open-Sora 1.0. A block attends along space and then along time.
 *
 *   per block   x += g_a attn(LN(x) (1 + sc_a) + sh_a)      along space
 *               x += g_a attn_temp(x [+ e(frame)])          along time; positions only in
 *                                                           block 0; no norm; the gate of t
 *                                                           for all rows
 *               x += cross(x, y)
 *               x += g_m MLP(LN(x) (1 + sc_m) + sh_m)
 *
 * There is a switch before the spatial attention and one after it, so the residual stream is
 * always spread along space. */
#include "worker/family/dit.h"

static int check(struct model_shape *m, struct err *e)
{
    if (m->base_size || m->qk_norm)
        return err_field(e, ERR_INVALID, "model.config.qk_norm",
                         "stdit has neither qk_norm nor input_sq_size: is it stdit3?");
    return dit_check(m, e) || dit_check_caption(m, e) ? -1 : 0;
}

static void write_block(struct dit d, const struct program *in, bool first)
{
    const int x = dit_input(d);
    const struct dit_vectors v = dit_table(d, in);
    const struct dit_attn space = {.prefix = "attn", .dim = 0};
    const struct dit_attn time = {.prefix = "attn_temp", .dim = 1};
    const int s = dit_attention(d, dit_modulated(d, x, v.attn), &space);
    const int sum = dit_gate(d, x, s, v.attn[2], false, "space_sum");
    const int timed = first ? dit_position_1d(d, sum) : sum;
    const int t = dit_attention(d, timed, &time);
    const int both = dit_gate(d, sum, t, v.attn[2], true, "time_sum");
    dit_result(d, dit_mlp(d, dit_cross(d, in, both), v.mlp));
}

static void write(const struct model_shape *m, struct family *f)
{
    const struct dit in = {&f->in, m}, out = {&f->out, m};
    prog_init(&f->in, "");
    f->in.result = dit_position_2d(in, dit_patches(in));
    dit_time_block(in, dit_timestep(in, false, PROG_NONE, true));
    dit_caption(in);
    f->n_kinds = 2;
    for (int k = 0; k < 2; k++) {
        prog_init(&f->layer[k], "blocks.%d.");
        write_block((struct dit){&f->layer[k], m}, &f->in, k == 0);
    }
    prog_init(&f->out, "");
    dit_loss(out, dit_final_table(out, &f->in, dit_input(out)));
}

static int kind(const struct model_shape *m, int64_t l)
{
    (void)m;
    return l > 0;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {
    DIT_ABSENT,         {"caption_channels", 4096}, {"model_max_length", 120},
    {"space_scale", 1}, {"time_scale", 1},          {NULL, 0}};
static const struct hf_model models[] = {
    {"stdit", own, {"STDiT"}}, {"STDiT", own, {"STDiT"}}, {NULL, NULL, {NULL}}};

static const struct hf_field stdit_fields[] = {DIT_SIZES,
                                               CAPTION,
                                               {"num_hidden_layers", "depth", HF_NEEDED},
                                               {"space_scale", NULL, 0},
                                               {"time_scale", NULL, 0},
                                               {NULL, NULL, 0}};
static const struct hf_special stdit_specials[] = {DIT_SPECIALS,
                                                   {"qk_norm", config_want_false, NULL},
                                                   {"no_temporal_pos_emb", config_want_false, NULL},
                                                   {NULL, NULL, NULL}};

static const struct hf_family config = {.nothing = dit_nothing,
                                        .fields = stdit_fields,
                                        .specials = stdit_specials,
                                        .models = models,
                                        .finish = dit_finish,
                                        .model = dit_model};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_stdit = {.config = &config,
                                        .name = "stdit",
                                        .task = MODEL_DIFFUSION,
                                        .softmax = true,
                                        .published_on_noise = true,
                                        .guided = 3,
                                        .check = check,
                                        .write = write,
                                        .layer_kind = kind};
