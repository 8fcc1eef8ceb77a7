/* op_switch.c: SWITCH, which changes the dimension along which rows are spread
 * (worker/sp/dsp.h). */
#include "worker/model/op.h"

static void mark_place(struct frame *f)
{
    if (f->dsp->comm) comm_where(f->dsp->comm)->layer = f->layer;
}

static int switch_forward(struct frame *f, const struct op *o, struct err *e)
{
    mark_place(f);
    return dsp_switch(f->dsp, frame_out(f, o, 0), frame_in(f, o, 0), o->u.dims.from, o->u.dims.to,
                      e);
}

static int switch_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor dy = f->grad[o->out[0]], g = f->grad[o->in[0]];
    const struct back dx = op_back_begin_new(f, o, s, 0, g.dtype);
    mark_place(f);
    if (dsp_switch(f->dsp, dx.to, dy, o->u.dims.to, o->u.dims.from, e)) return -1;
    op_back_end(f, &dx);
    return 0;
}

const struct op_row op_switch = {switch_forward, switch_backward, NULL};
