/* op_input.c: what a diffusion transformer begins with: PATCH, POSITION_2D, POSITION_1D, TIMESTEP and
 * TEXT. None has a gradient to hand on but where a value passes through. */
#include "worker/model/op.h"

#include <assert.h>
#include <math.h>

/* ---- PATCH ----------------------------------------------------------------------------------- */

static int patch_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    (void)e;
    frame_move(f, y, tensor_f32(f->batch->latents.patches, y.rows, y.cols, y.cols), false);
    return 0;
}

static int no_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    (void)f;
    (void)o;
    (void)s;
    (void)e;
    return 0;
}

const struct op_row op_patch = {patch_forward, no_backward, NULL};

/* ---- sinusoids ------------------------------------------------------------------------------- */

/* out[0, n) = sin(x w_j), out[n, 2n) = cos(x w_j), w_j = 10000^(-j / n); the cosines first where
 * asked for. (1706.03762) */
static void sinusoid(double x, int64_t n, bool cos_first, float *out)
{
    for (int64_t j = 0; j < n; j++) {
        const double a = x * pow(10000, -(double)j / (double)n);
        out[cos_first ? n + j : j] = (float)sin(a);
        out[cos_first ? j : n + j] = (float)cos(a);
    }
}

/* A table with a row of fp32 for each row of the value; host memory, then added at once. */
static void add_table(struct frame *f, const struct op *o, struct tensor table)
{
    f->be->ops->mix(f->be, &(struct mix_args){.a = frame_in(f, o, 0),
                                              .b = table,
                                              .y = frame_out(f, o, 0),
                                              .alpha = 1,
                                              .beta = 1});
}

static int pass_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    (void)e;
    if (frame_wants(f, o, 0))
        frame_move(f, f->grad[o->in[0]], f->grad[o->out[0]], !s->first[0]);
    return 0;
}

/* What one step along a frame's width and height adds to a coordinate. */
static void steps_of(const struct op *o, const struct batch_latents *b, double *dx, double *dy)
{
    const double H = (double)b->grid[1], W = (double)b->grid[2];
    *dx = *dy = 1 / (double)o->u.position.scale;
    if (!(o->u.position.base_size > 0)) return;
    const double base = nearbyint(sqrt(H * W));
    const double s = sqrt((double)b->height * (double)b->width) / (double)o->u.position.base_size;
    *dx = base / W / s;
    *dy = base / H / s;
}

/* The first half of the columns says where along the width, the second where along the height. */
static int position_2d_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor y = frame_out(f, o, 0);
    const struct tensor table = scratch_rows(f, DT_F32, y.rows, y.cols);
    const enum rows_id rows = frame_rows_of(f, o->out[0]);
    const int64_t n = y.cols / 4;
    double dx, dy;
    (void)e;
    steps_of(o, b, &dx, &dy);
    for (int64_t i = 0; i < y.rows; i++) {
        int64_t at[2];
        float *row = (float *)table.data + i * y.cols;
        frame_grid(f, rows, i, at);
        sinusoid((double)(at[0] % b->grid[2]) * dx, n, false, row);
        sinusoid((double)(at[0] / b->grid[2]) * dy, n, false, row + y.cols / 2);
    }
    add_table(f, o, table);
    return 0;
}

const struct op_row op_position_2d = {position_2d_forward, pass_backward, NULL};

static int position_1d_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    const struct tensor table = scratch_rows(f, DT_F32, y.rows, y.cols);
    const enum rows_id rows = frame_rows_of(f, o->out[0]);
    (void)e;
    for (int64_t i = 0; i < y.rows; i++) {
        int64_t at[2];
        frame_grid(f, rows, i, at);
        sinusoid((double)at[1] / (double)o->u.position.scale, y.cols / 2, false, (float *)table.data + i * y.cols);
    }
    add_table(f, o, table);
    return 0;
}

const struct op_row op_position_1d = {position_1d_forward, pass_backward, NULL};

/* Of the sample's t, and of t = 0; or of its frames per second, twice. */
static int timestep_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor y = frame_out(f, o, 0);
    const struct tensor table = scratch_rows(f, DT_F32, y.rows, y.cols);
    (void)e;
    for (int64_t i = 0; i < y.rows; i++)
        sinusoid(o->u.time.fps ? b->fps : i ? 0 : b->t, y.cols / 2, true,
                 (float *)table.data + i * y.cols);
    frame_move(f, y, table, false);
    return 0;
}

const struct op_row op_timestep = {timestep_forward, no_backward, NULL};

/* ---- TEXT ------------------------------------------------------------------------------------ */

/* Rows behind the caption are 0: seen by nobody. The null caption is part of the checkpoint and is
 * not trained. */
static int text_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor y = frame_out(f, o, 0);
    (void)e;
    assert(b->n_text >= 0 && b->n_text <= y.rows);
    frame_zero(f, y);
    const struct tensor from = b->dropped ? frame_weight(f, o->w, 1)
                                          : tensor_f32(b->text, b->n_text, y.cols, y.cols);
    if (b->n_text)
        frame_move(f, tensor_sub(y, 0, b->n_text, 0, y.cols),
                   tensor_sub(from, 0, b->n_text, 0, y.cols), false);
    return 0;
}

const struct op_row op_text = {text_forward, no_backward, NULL};
