/* stdit3.c: STDiT3, Open-Sora 1.2: pairs of a spatial and a temporal block.
 *
 *   x = patches + positions; t = time MLP(t) + fps MLP(fps); six = t_block(t);
 *   y = caption MLP(text)
 *   per block   x += g_a attn(LN(x) (1 + sc_a) + sh_a)      along space, or along time with RoPE
 *               x += cross(x, y)                            no norm, no gate
 *               x += g_m MLP(LN(x) (1 + sc_m) + sh_m)       shift, scale, gate: table + six
 *   velocity = linear(modulated LN(x))
 *
 * The residual stays spread along space: temporal attention is local, two switches of C columns
 * stand around the spatial attention, projections included. */
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
    const int x = prog_input(d.p, d.m->width);
    const struct dit_vectors v = dit_table(d, in);
    const struct dit_attn attn = {
        .prefix = "attn", .dim = temporal, .rope = temporal, .qk_norm = d.m->qk_norm};
    const int h = dit_modulated(d, x, v.attn);
    const int a = temporal ? dit_attention(d, h, &attn) : dit_attention_switched(d, h, &attn);
    const int sum = dit_gate(d, x, a, v.attn[2], false, "attn_sum");
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
    dit_loss(out, dit_final_table(out, &f->in, prog_input(&f->out, m->width)));
}

static int kind(const struct model_shape *m, int64_t l)
{
    (void)m;
    return l % 2;
}

const struct family_row family_stdit3 = {.name = "stdit3",
                                         .task = MODEL_DIFFUSION,
                                         .softmax = true,
                                         .clips = true,
                                         .check = check,
                                         .write = write,
                                         .layer_kind = kind};
