/* op_input.c: the first operations of a diffusion transformer: PATCH, POSITION_2D, POSITION_1D,
 * TIMESTEP and TEXT. They compute a gradient only for a value to which they add. */
#include "worker/model/op.h"

#include <math.h>
#include "api/core/assert.h"

/* ---- PATCH ----------------------------------------------------------------------------------- */

static int patch_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    float *patches = f->batch->latents.patches +
                     frame_row0(f, frame_rows_of(f, o->out[0])) * y.cols;
    (void)e;
    frame_move(f, y, tensor_f32(patches, y.rows, y.cols, y.cols), false);
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

/* Writes out[0, n) = sin(x w_j) and out[n, 2n) = cos(x w_j), with w_j = 10000^(-j / n)
 * (1706.03762). If cos_first is set, the two halves are swapped. */
static void sinusoid(double x, int64_t n, bool cos_first, float *out)
{
    for (int64_t j = 0; j < n; j++) {
        const double a = x * pow(10000, -(double)j / (double)n);
        out[cos_first ? n + j : j] = (float)sin(a);
        out[cos_first ? j : n + j] = (float)cos(a);
    }
}

/* Lines that are added to rows. write() computes the line of one index. */
struct input_lines {
    void (*write)(const struct input_lines *l, int64_t index, float *out);
    const struct batch_latents *b;
    int64_t cols;
    double scale, sx, sy;
};

/* Copies lines [k, k + n) of a dimension to all rows of the table that have these indices. */
static void place_lines(struct frame *f, const struct along *d, struct tensor table,
                        const struct twin *lines, int64_t k, int64_t n)
{
    const int64_t line = table.cols * (int64_t)sizeof(float), period = d->n * d->within;
    op_twin_up(f, &(struct twin){lines->dev, lines->host, n * line});
    f->be->ops->permute(
        f->be, &(struct permute_args){.dst = (char *)table.data + k * d->within * line,
                                      .src = lines->dev,
                                      .n = {table.rows / period, n, d->within},
                                      .dst_stride = {period * line, d->within * line, line},
                                      .src_stride = {0, line, 0},
                                      .size = line});
}

/* Adds an fp32 line to each row. The line depends on the row's index along dimension `dim`. Each
 * line is computed once, and rule_stage_lines() lines are computed at a time. */
static void add_lines(struct frame *f, const struct op *o, int dim, const struct input_lines *l)
{
    const struct tensor y = frame_out(f, o, 0);
    const struct along d = frame_along(f, frame_rows_of(f, o->out[0]), dim);
    const struct tensor table = op_scratch_rows(f, DT_F32, y.rows, y.cols);
    const int64_t line = y.cols * (int64_t)sizeof(float), most = rule_stage_lines(y.rows, y.cols);
    const struct twin lines = op_twin_take(f, most * line);
    for (int64_t k = 0; k < d.n; k += most) {
        const int64_t n = d.n - k < most ? d.n - k : most;
        for (int64_t i = 0; i < n; i++)
            l->write(l, d.first + k + i, (float *)lines.host + i * y.cols);
        place_lines(f, &d, table, &lines, k, n);
    }
    f->be->ops->mix(f->be, &(struct mix_args){
                               .a = frame_in(f, o, 0), .b = table, .y = y, .alpha = 1, .beta = 1});
}

static int pass_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    (void)e;
    if (frame_wants(f, o, 0)) frame_move(f, f->grad[o->in[0]], f->grad[o->out[0]], !s->first[0]);
    return 0;
}

/* Writes a line of Open-Sora's PositionEmbedding2D. The first half of the columns is for the place
 * along the width, and the second half for the place along the height. In each half, sines come
 * before cosines. */
static void line_2d(const struct input_lines *l, int64_t index, float *out)
{
    const int64_t n = l->cols / 4, width = l->b->grid[2];
    sinusoid((double)(index % width) / l->scale * l->sx, n, false, out);
    sinusoid((double)(index / width) / l->scale * l->sy, n, false, out + l->cols / 2);
}

static int position_2d_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct batch_latents *b = &f->batch->latents;
    struct input_lines l = {line_2d, b, frame_out(f, o, 0).cols, o->u.position.scale, 1, 1};
    (void)e;
    if (o->u.position.base_size) {
        const double base = round(sqrt((double)(b->grid[1] * b->grid[2])));
        l.scale = sqrt(b->height * b->width) / (double)o->u.position.base_size;
        l.sx = base / (double)b->grid[2];
        l.sy = base / (double)b->grid[1];
    }
    add_lines(f, o, 0, &l);
    return 0;
}

const struct op_row op_position_2d = {position_2d_forward, pass_backward, NULL};

static void line_1d(const struct input_lines *l, int64_t index, float *out)
{
    sinusoid((double)index / l->scale, l->cols / 2, false, out);
}

static int position_1d_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct input_lines l = {
        .write = line_1d, .cols = frame_out(f, o, 0).cols, .scale = o->u.position.scale};
    (void)e;
    add_lines(f, o, 1, &l);
    return 0;
}

const struct op_row op_position_1d = {position_1d_forward, pass_backward, NULL};

/* Embeds the sample's t in the first row, and 0 in the second row. If time.fps is set, embeds the
 * frames per second in every row. */
static int timestep_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor y = frame_out(f, o, 0);
    const struct twin table = op_twin_take(f, y.rows * y.cols * (int64_t)sizeof(float));
    (void)e;
    for (int64_t i = 0; i < y.rows; i++)
        sinusoid(o->u.time.fps ? b->fps
                 : i           ? 0
                               : b->t,
                 y.cols / 2, true, (float *)table.host + i * y.cols);
    op_twin_up(f, &table);
    frame_move(f, y, tensor_f32(table.dev, y.rows, y.cols, y.cols), false);
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
    frame_zero(f, y); /* the rows after the caption are 0; no query sees them */
    const struct tensor text = b->dropped
                                   ? tensor_sub(frame_weight(f, o->w, 1), 0, b->n_text, 0, y.cols)
                                   : tensor_f32((float *)b->text, b->n_text, y.cols, y.cols);
    frame_move(f, tensor_sub(y, 0, b->n_text, 0, y.cols), text, false);
    return 0;
}

const struct op_row op_text = {text_forward, no_backward, NULL};
