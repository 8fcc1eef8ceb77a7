/* op_input.c: what a diffusion transformer begins with: PATCH, POSITION_2D, POSITION_1D, TIMESTEP
 * and TEXT. None has a gradient to hand on but where a value passes through. */
#include "worker/model/op.h"

#include <assert.h>
#include <math.h>

/* ---- PATCH ----------------------------------------------------------------------------------- */

static int patch_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    (void)e;
    frame_move(f, y, tensor_f32((float *)f->batch->latents.patches, y.rows, y.cols, y.cols), false);
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
    f->be->ops->mix(
        f->be,
        &(struct mix_args){
            .a = frame_in(f, o, 0), .b = table, .y = frame_out(f, o, 0), .alpha = 1, .beta = 1});
}

static int pass_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    (void)e;
    if (frame_wants(f, o, 0)) frame_move(f, f->grad[o->in[0]], f->grad[o->out[0]], !s->first[0]);
    return 0;
}

/* Open-Sora's PositionEmbedding2D: the first half of the columns says where along the width, the
 * second along the height; sines before cosines in each. */
static int position_2d_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor y = frame_out(f, o, 0);
    const struct tensor table = scratch_rows(f, DT_F32, y.rows, y.cols);
    double scale = o->u.position.scale, sx = 1, sy = 1;
    const enum rows_id rows = frame_rows_of(f, o->out[0]);
    const int64_t n = y.cols / 4;
    (void)e;
    if (o->u.position.base_size) {
        const double base = round(sqrt((double)(b->grid[1] * b->grid[2])));
        scale = sqrt(b->height * b->width) / (double)o->u.position.base_size;
        sx = base / (double)b->grid[2];
        sy = base / (double)b->grid[1];
    }
    for (int64_t i = 0; i < y.rows; i++) {
        int64_t at[2];
        float *row = (float *)table.data + i * y.cols;
        frame_grid(f, rows, i, at);
        sinusoid((double)(at[0] % b->grid[2]) / scale * sx, n, false, row);
        sinusoid((double)(at[0] / b->grid[2]) / scale * sy, n, false, row + y.cols / 2);
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
        sinusoid((double)at[1] / o->u.position.scale, y.cols / 2, false,
                 (float *)table.data + i * y.cols);
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
        sinusoid(o->u.time.fps ? b->fps
                 : i           ? 0
                               : b->t,
                 y.cols / 2, true, (float *)table.data + i * y.cols);
    frame_move(f, y, table, false);
    return 0;
}

const struct op_row op_timestep = {timestep_forward, no_backward, NULL};

/* ---- TEXT ------------------------------------------------------------------------------------ */

static int text_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor y = frame_out(f, o, 0);
    (void)e;
    assert(b->n_text <= y.rows);
    frame_zero(f, y); /* rows behind the caption: seen by nobody */
    const struct tensor text = b->dropped
                                   ? tensor_sub(frame_weight(f, o->w, 1), 0, b->n_text, 0, y.cols)
                                   : tensor_f32((float *)b->text, b->n_text, y.cols, y.cols);
    frame_move(f, tensor_sub(y, 0, b->n_text, 0, y.cols), text, false);
    return 0;
}

const struct op_row op_text = {text_forward, no_backward, NULL};
