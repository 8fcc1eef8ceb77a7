/* op.c: the functions that all operations share, for scratch, values, gradients, weights, and sums
 * over rows in a fixed order. */
#include "worker/model/op.h"

#include "api/core/assert.h"
#include "api/core/mem.h"

#define OP_ROW(kind, name) [kind] = &op_##name,
const struct op_row *const op_table[] = {OPERATORS(OP_ROW)};
#undef OP_ROW
static_assert(sizeof op_table / sizeof *op_table == OP_KIND_N, "an execution of every operator");

/* ---- scratch --------------------------------------------------------------------------------- */

void op_scratch_reset(struct frame *f)
{
    f->scratch_used = f->stage_used = 0;
}

void *op_scratch_take(struct frame *f, int64_t size)
{
    char *p = f->scratch + f->scratch_used;
    f->scratch_used += mem_round(size, MEM_ALIGN);
    assert(f->scratch_used <= f->scratch_size);
    return p;
}

struct tensor op_scratch_rows(struct frame *f, enum dtype t, int64_t rows, int64_t cols)
{
    return tensor_of(t, op_scratch_take(f, rows * cols * dtype_size(t)), rows, cols, cols);
}

static void *stage_take(struct frame *f, int64_t size)
{
    char *p = f->stage + f->stage_used;
    f->stage_used += mem_round(size, MEM_ALIGN);
    assert(f->stage_used <= f->stage_size);
    return p;
}

struct twin op_twin_take(struct frame *f, int64_t size)
{
    struct twin t = {.dev = op_scratch_take(f, size), .size = size};
    t.host = f->be->own_memory ? stage_take(f, size) : t.dev;
    return t;
}

void op_twin_up(struct frame *f, const struct twin *t)
{
    if (t->host != t->dev) f->be->ops->upload(f->be, t->dev, t->host, t->size);
}

const void *frame_fetch(struct frame *f, const void *p, int64_t size)
{
    if (!f->be->own_memory) return p;
    void *to = stage_take(f, size);
    f->be->ops->download(f->be, to, p, size);
    return to;
}

const struct batch *frame_host(const struct frame *f)
{
    return f->host ? f->host : f->batch;
}

/* ---- values ---------------------------------------------------------------------------------- */

struct tensor frame_in(const struct frame *f, const struct op *o, int i)
{
    return f->value[o->in[i]];
}

struct tensor frame_out(const struct frame *f, const struct op *o, int i)
{
    return f->value[o->out[i]];
}

enum rows_id frame_rows_of(const struct frame *f, int value)
{
    return f->p->value[value].rows;
}

int64_t frame_row0(const struct frame *f, enum rows_id rows)
{
    return rows == ROWS_PART ? f->tensor.r * f->rows[ROWS_PART].n : 0;
}

void frame_move(struct frame *f, struct tensor y, struct tensor x, bool add)
{
    if (y.data == x.data) return;
    if (add)
        f->be->ops->mix(f->be, &(struct mix_args){.a = y, .b = x, .y = y, .alpha = 1, .beta = 1});
    else if (y.dtype == x.dtype && y.ld == y.cols && x.ld == x.cols)
        f->be->ops->copy(f->be, y.data, x.data, x.rows * x.cols * dtype_size(x.dtype));
    else
        f->be->ops->cast(f->be, &(struct cast_args){.dst = y, .src = x});
}

struct tensor frame_ones(struct frame *f, int64_t n)
{
    const struct tensor t = op_scratch_rows(f, DT_F32, 1, n);
    f->be->ops->fill(f->be, t.data, n, 1);
    return t;
}

/* Copies x into every column by a product with a row of ones. */
void frame_spread(struct frame *f, struct tensor x, struct tensor ones, struct tensor to)
{
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = x, .b = ones, .c = to});
}

/* Zeroes a run of bytes. Uses fill() if the run consists of whole floats, and uploads of zeros
 * otherwise. */
static void zero_run(struct frame *f, char *to, int64_t size)
{
    static const char zeros[4096];
    if (((int64_t)(uintptr_t)to | size) % (int64_t)sizeof(float) == 0) {
        f->be->ops->fill(f->be, (float *)to, size / (int64_t)sizeof(float), 0);
        return;
    }
    for (int64_t k = 0; k < size; k += (int64_t)sizeof zeros)
        f->be->ops->upload(f->be, to + k, zeros,
                           size - k < (int64_t)sizeof zeros ? size - k : (int64_t)sizeof zeros);
}

void frame_zero(struct frame *f, struct tensor t)
{
    const int64_t runs = t.ld == t.cols ? 1 : t.rows, unit = dtype_size(t.dtype);
    for (int64_t i = 0; i < runs; i++)
        zero_run(f, (char *)t.data + i * t.ld * unit, (runs == 1 ? t.rows : 1) * t.cols * unit);
}

void frame_repeat(struct frame *f, int64_t *p, int64_t n, int64_t value)
{
    if (n > 0) f->be->ops->upload(f->be, p, &value, sizeof value);
    if (n > 1)
        f->be->ops->permute(f->be, &(struct permute_args){.dst = p + 1,
                                                          .src = p,
                                                          .n = {1, 1, n - 1},
                                                          .dst_stride = {0, 0, sizeof value},
                                                          .size = sizeof value});
}

/* ---- gradients of values --------------------------------------------------------------------- */

bool frame_wants(const struct frame *f, const struct op *o, int i)
{
    if (f->now && !f->now->wanted[i]) return false;
    return o->in[i] != PROG_NONE && f->grad[o->in[i]].data;
}

struct tensor frame_dy(struct frame *f, const struct op *o)
{
    const struct tensor dy = f->grad[o->out[0]];
    if (dy.dtype == f->dtype) return dy;
    const struct tensor room = op_scratch_rows(f, f->dtype, dy.rows, dy.cols);
    frame_move(f, room, dy, false);
    return room;
}

struct back op_back_begin(struct frame *f, const struct op *o, const struct step *s, int i)
{
    const struct tensor g = f->grad[o->in[i]];
    struct back b = {.to = g, .accumulate = !s->first[i], .grad = g, .first = s->first[i]};
    if (g.dtype == f->dtype) return b;
    b.to = op_scratch_rows(f, f->dtype, g.rows, g.cols);
    b.staged = true;
    b.accumulate = false;
    return b;
}

struct back op_back_begin_new(struct frame *f, const struct op *o, const struct step *s, int i,
                              enum dtype t)
{
    const struct tensor g = f->grad[o->in[i]];
    struct back b = {.to = g, .grad = g, .first = s->first[i]};
    if (g.dtype == t && s->first[i]) return b;
    b.to = op_scratch_rows(f, t, g.rows, g.cols);
    b.staged = true;
    return b;
}

void op_back_end(struct frame *f, const struct back *b)
{
    if (b->staged) frame_move(f, b->grad, b->to, !b->first);
}

/* ---- weights --------------------------------------------------------------------------------- */

struct tensor frame_weight(const struct frame *f, int i, int n)
{
    if (i == PROG_TIED) return f->tied;
    const struct weight *w = &f->p->weight[i];
    const bool flat = w->cols == 0;
    int64_t rows = 0;
    for (int k = 0; k < n; k++) {
        assert(k == 0 || (w[k].joined && w[k].stored == w[0].stored));
        rows += w[k].rows;
    }
    char *at = (char *)f->weights + f->weight_at[i];
    const enum dtype t = dtype_stored(w->stored, f->dtype);
    return flat ? tensor_of(t, at, 1, rows, rows) : tensor_of(t, at, rows, w->cols, w->cols);
}

float *frame_weight_grad(const struct frame *f, int i)
{
    return i == PROG_TIED ? f->tied_grad : f->weights_grad + f->p->weight[i].offset;
}

bool frame_learns(const struct frame *f, int i)
{
    return prog_learns(f->p, i, 1);
}

/* ---- tensor parallelism ---------------------------------------------------------------------- */

void frame_mark(struct frame *f)
{
    if (!f->tensor.comm) return;
    comm_where(f->tensor.comm)->layer = f->layer;
    comm_where(f->tensor.comm)->hop = -1;
}

struct frame_ids frame_ids(const struct frame *f, struct tensor w)
{
    struct frame_ids own = {w, 0};
    if (f->tensor.n <= 1) return own;
    own.first = f->tensor.r * w.rows;
    const int64_t left = f->shape->vocab - own.first;
    own.w = tensor_sub(w, 0, left < 0 ? 0 : left < w.rows ? left : w.rows, 0, w.cols);
    return own;
}

/* ---- sums over rows -------------------------------------------------------------------------- */

static bool in_parts(enum rows_id rows)
{
    return rows == ROWS_COND || rows == ROWS_TEXT;
}

struct span frame_span(const struct frame *f, enum rows_id rows, int i)
{
    const struct frame_rows *r = &f->rows[rows];
    if (in_parts(rows)) return (struct span){0, i * r->n, r->n};
    const int64_t at = i * r->sum_len < r->n ? i * r->sum_len : r->n;
    return (struct span){at, at, at + r->sum_len < r->n ? r->sum_len : r->n - at};
}

int frame_blocks(const struct frame *f, enum rows_id rows)
{
    return in_parts(rows) ? f->parts : 1;
}

struct span frame_block(const struct frame *f, enum rows_id rows, int i)
{
    return in_parts(rows) ? frame_span(f, rows, i) : (struct span){0, 0, f->rows[rows].n};
}

struct tensor op_span_value(struct tensor t, struct span s)
{
    return tensor_sub(t, s.value0, s.n, 0, t.cols);
}

struct tensor op_span_grad(struct tensor t, struct span s)
{
    return tensor_sub(t, s.grad0, s.n, 0, t.cols);
}

struct sum_tree {
    struct frame *f;
    enum rows_id rows;
    int64_t n;
    const struct sum_leaf *leaf;
};

/* Sums spans [first, first + count) into dst as the tree ((0+1)+(2+3))+... . count is a power of
 * two. Each level of the tree has one buffer for the sum of its right half. */
static void sum_range(const struct sum_tree *w, int first, int count, float *dst, int level)
{
    struct frame *f = w->f;
    if (count == 1) {
        w->leaf->call(f, w->leaf->arg, frame_span(f, w->rows, first), dst, true);
        return;
    }
    float *right = f->tree_room + level * f->tree_stride;
    assert(w->n <= f->tree_stride);
    sum_range(w, first, count / 2, dst, level + 1);
    sum_range(w, first + count / 2, count / 2, right, level + 1);
    f->be->ops->add(f->be, &(struct add_args){.y = dst, .x = right, .n = w->n});
}

void frame_sum(struct frame *f, enum rows_id rows, float *dst, int64_t n,
               const struct sum_leaf *leaf)
{
    const struct sum_tree w = {f, rows, n, leaf};
    if (f->tree)
        sum_range(&w, 0, f->parts, dst, 0);
    else
        leaf->call(f, leaf->arg, frame_span(f, rows, 0), dst, f->fresh);
}

void frame_add_sum(struct frame *f, float *dst, struct tensor x)
{
    if (f->tree || f->fresh)
        f->be->ops->copy(f->be, dst, x.data, 4 * x.cols);
    else
        f->be->ops->add(f->be, &(struct add_args){.y = dst, .x = x.data, .n = x.cols});
}

struct gemm_leaf {
    struct tensor dy, x;
};

static void gemm_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct gemm_leaf *g = arg;
    const int64_t M = g->dy.cols, N = g->x.cols;
    if (!s.n) { /* the last sum chunks of a short sequence are empty */
        if (fresh) f->be->ops->fill(f->be, dst, M * N, 0);
        return;
    }
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = op_span_grad(g->dy, s),
                                                .b = op_span_value(g->x, s),
                                                .c = tensor_f32(dst, M, N, N),
                                                .trans_a = true,
                                                .accumulate = !fresh});
}

void frame_sum_gemm(struct frame *f, enum rows_id rows, float *dst, struct tensor dy,
                    struct tensor x)
{
    struct gemm_leaf g = {dy, x};
    frame_sum(f, rows, dst, dy.cols * x.cols, &(struct sum_leaf){gemm_leaf, &g});
}

/* ---- grids ----------------------------------------------------------------------------------- */

/* Returns the indices along `dim` of this rank's rows. The spread dimension is the outermost. It
 * is dimension 0 for ROWS_T and dimension 1 for ROWS_ALT. In ROWS_PART, the indices of this
 * dimension are divided among the ranks that share layers. */
struct along frame_along(const struct frame *f, enum rows_id rows, int dim)
{
    const struct dsp *d = f->dsp;
    const int spread = rows == ROWS_ALT, n = rows == ROWS_PART ? f->tensor.n : 1;
    const int64_t share = shard_share(d->n[spread], d->P, d->rank_bits) / n;
    if (dim == spread)
        return (struct along){(d->r * n + (n > 1 ? f->tensor.r : 0)) * share, share, d->n[!spread]};
    return (struct along){0, d->n[dim], 1};
}

struct tensor frame_by_heads(const struct frame *f, struct tensor t)
{
    const int64_t P = f->dsp->P;
    if (P == 1) return t;
    assert(t.ld == t.cols && t.cols % P == 0);
    return tensor_of(t.dtype, t.data, t.rows * P, t.cols / P, t.cols / P);
}
