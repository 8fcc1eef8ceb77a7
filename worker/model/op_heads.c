/* op_heads.c: HEADS, which exchanges some rows of all heads for all rows of some heads
 * (worker/sp/dsp_heads.c). */
#include "worker/model/op.h"

/* Exchanges rows for heads or, if `back` is set, heads for rows. t has some rows of all heads, and
 * heads has all rows of some heads. */
static int turn(struct frame *f, const struct op *o, struct tensor t, struct tensor heads,
                bool back, struct err *e)
{
    const struct dsp_heads a = {t, frame_by_heads(f, heads), o->u.heads.sets, back};
    if (f->dsp->comm) comm_where(f->dsp->comm)->layer = f->layer;
    return dsp_turn_heads(f->dsp, &a, e);
}

static int heads_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor in = frame_in(f, o, 0), out = frame_out(f, o, 0);
    return o->u.heads.back ? turn(f, o, out, in, true, e) : turn(f, o, in, out, false, e);
}

static int heads_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor dy = f->grad[o->out[0]];
    const struct back dx = op_back_begin_new(f, o, s, 0, f->grad[o->in[0]].dtype);
    if (o->u.heads.back ? turn(f, o, dy, dx.to, false, e) : turn(f, o, dx.to, dy, true, e))
        return -1;
    op_back_end(f, &dx);
    return 0;
}

const struct op_row op_heads = {heads_forward, heads_backward, NULL};
