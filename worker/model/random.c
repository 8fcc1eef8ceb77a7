/* random.c: initial weights, which are a pure function of (seed, tensor, element). */
#include "worker/model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/mem.h"
#include "api/core/room.h"
#include "kernels/half.h"
#include "kernels/philox.h"
#include "worker/model/stored.h"
#include "worker/plan/slice.h"

/* Returns a number in (0, 1). It is never 0, so its logarithm is finite. */
static double uniform(uint32_t u)
{
    return ((double)u + 0.5) / 4294967296.0;
}

static void words(int64_t seed, uint32_t tensor, int64_t block, uint32_t u[4])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)((uint64_t)seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), tensor, 0};
    philox4x32(key, counter, u);
}

/* Computes four normal numbers from one Philox block (Box and Muller). */
static void normals(int64_t seed, uint32_t tensor, int64_t block, double out[4])
{
    uint32_t u[4];
    words(seed, tensor, block, u);
    for (int i = 0; i < 4; i += 2) {
        const double r = sqrt(-2 * log(uniform(u[i]))), a = 2 * M_PI * uniform(u[i + 1]);
        out[i] = r * cos(a);
        out[i + 1] = r * sin(a);
    }
}

struct draw {
    int64_t seed;
    int tensor, n_layers;
    const struct param *p; /* the tensor in the whole model */
    struct slice slice;    /* rank t's part of p */
    int t;
};

/* Draws elements [k, k + n), where n is at most LINE and k a multiple of 4. */
static void normal_line(const struct draw *d, double std, int64_t k, int64_t n, float *out)
{
    for (int64_t j = 0; j < n; j += 4) {
        double z[4];
        normals(d->seed, (uint32_t)d->tensor, (k + j) / 4, z);
        for (int q = 0; q < 4 && j + q < n; q++) out[j + q] = (float)(std * z[q]);
    }
}

static void decay_line(const struct draw *d, int64_t k, int64_t n, float *out)
{
    for (int64_t j = 0; j < n; j += 4) {
        uint32_t u[4];
        words(d->seed, (uint32_t)d->tensor, (k + j) / 4, u);
        for (int q = 0; q < 4 && j + q < n; q++) out[j + q] = (float)log(16 * uniform(u[q]));
    }
}

static void uniform_line(const struct draw *d, double bound, int64_t k, int64_t n, float *out)
{
    for (int64_t j = 0; j < n; j += 4) {
        uint32_t u[4];
        words(d->seed, (uint32_t)d->tensor, (k + j) / 4, u);
        for (int q = 0; q < 4 && j + q < n; q++)
            out[j + q] = (float)(bound * (2 * uniform(u[q]) - 1));
    }
}

static void random_line(const struct draw *d, int64_t k, int64_t n, float *out)
{
    const double count = (double)d->p->count, cols = (double)d->p->cols;
    switch (d->p->init) {
    case INIT_NORMAL: normal_line(d, 0.02, k, n, out); return;
    case INIT_RESIDUAL: normal_line(d, 0.02 / sqrt(2.0 * d->n_layers), k, n, out); return;
    case INIT_TABLE: normal_line(d, 1 / sqrt(cols), k, n, out); return;
    case INIT_ONE:
    case INIT_ZERO:
        for (int64_t j = 0; j < n; j++) out[j] = d->p->init == INIT_ONE;
        return;
    case INIT_DECAY: decay_line(d, k, n, out); return;
    case INIT_UNIFORM: uniform_line(d, 1 / sqrt(cols), k, n, out); return;
    case INIT_LRPE:
        for (int64_t j = 0; j < n; j++) out[j] = (float)pow(10000, -2 * (double)(k + j) / count);
    }
}

enum { LINE = 1024 };

static void store(struct tensor to, const float *line)
{
    if (to.dtype == DT_F32) {
        memcpy(to.data, line, (size_t)to.cols * 4);
        return;
    }
    uint16_t *half = to.data;
    for (int64_t j = 0; j < to.cols; j++) half[j] = half_round(to.dtype, line[j]);
}

/* Draws elements [k, k + out.cols) of the whole tensor and rounds them to out's type. */
static void random_run(const struct draw *d, int64_t k, struct tensor out)
{
    float line[LINE];
    const int64_t end = k + out.cols, begin = k;
    while (k < end) {
        const int64_t k0 = k & ~(int64_t)3, room = k0 + LINE < end ? k0 + LINE : end;
        random_line(d, k0, room - k0, line);
        store(tensor_sub(out, 0, 1, k - begin, room - k), line + (k - k0));
        k = room;
    }
}

/* ---- by all threads of the host -------------------------------------------------------------- */

/* TASK: elements of a task; STAGED: elements of one upload */
enum { TASK = 2 * LINE, STAGED = 16 * TASK };

struct random_piece { /* elements [k, k + out.cols) of a slice, in the host's memory */
    const struct draw *d;
    int64_t k;
    struct tensor out;
};

static void random_task(void *arg, int64_t task, int worker)
{
    const struct random_piece *p = arg;
    const struct draw *d = p->d;
    const int64_t left = p->out.cols - task * TASK, end = left < TASK ? left : TASK;
    /* index in the tensor of the slice's first element */
    const int64_t first = d->slice.whole_offset - d->p->offset;
    (void)worker;
    for (int64_t j = 0; j < end;) {
        struct slice_run r = slice_run(&d->slice, d->t, p->k + task * TASK + j);
        if (r.n > end - j) r.n = end - j;
        random_run(d, first + r.whole, tensor_sub(p->out, 0, 1, task * TASK + j, r.n));
        j += r.n;
    }
}

static void random_piece(struct be *be, const struct draw *d, int64_t k, struct tensor out)
{
    be_host_run(be, random_task, &(struct random_piece){d, k, out}, (out.cols + TASK - 1) / TASK);
}

/* Draws elements [k, k + out.cols) of the slice. Draws them in place if the host can write to out,
 * and otherwise uploads them. */
static void random_slice(struct be *be, const struct draw *d, int64_t k, struct tensor out)
{
    if (!be->own_memory) {
        random_piece(be, d, k, out);
        return;
    }
    float *staged = mem_scratch(STAGED * sizeof *staged);
    for (int64_t j = 0; j < out.cols; j += STAGED) {
        const int64_t n = out.cols - j < STAGED ? out.cols - j : STAGED;
        const struct tensor to = tensor_sub(out, 0, 1, j, n);
        random_piece(be, d, k + j, tensor_of(out.dtype, staged, 1, n, n));
        be->ops->upload(be, to.data, staged, n * dtype_size(out.dtype));
    }
    free(staged);
}

static void zeros(struct be *be, struct tensor out)
{
    static const float zero[LINE];
    for (int64_t j = 0; j < out.cols; j += LINE) {
        const int64_t n = out.cols - j < LINE ? out.cols - j : LINE;
        be->ops->upload(be, tensor_sub(out, 0, 1, j, n).data, zero, n * dtype_size(out.dtype));
    }
}

/* The elements to draw. They begin at element `from` of the rank's weights. The first `done` of
 * them have been drawn. */
struct random_part {
    struct be *be;
    struct tensor out;
    int64_t from, done;
};

/* Returns how many elements of the part are before `end` and have not been drawn yet. */
static int64_t missing(const struct random_part *w, int64_t end)
{
    const int64_t n = end - w->from < w->out.cols ? end - w->from : w->out.cols;
    return n > w->done ? n - w->done : 0;
}

static void zero_to(struct random_part *w, int64_t end)
{
    const int64_t n = missing(w, end);
    zeros(w->be, tensor_sub(w->out, 0, 1, w->done, n));
    w->done += n;
}

/* Zeroes the elements before a slice and then draws the slice. Tensors come in ascending order.
 * The elements between tensors become 0. If a slice does not fill its room, the rest of the room
 * becomes 0. */
static void random_tensor(void *part, int bucket, const struct draw *d)
{
    struct random_part *w = part;
    (void)bucket;
    const struct slice *s = &d->slice;
    zero_to(w, s->offset);
    const int64_t n = missing(w, s->offset + slice_size(s, d->t));
    assert(!n || w->from + w->done >= s->offset);
    random_slice(w->be, d, w->from + w->done - s->offset, tensor_sub(w->out, 0, 1, w->done, n));
    w->done += n;
}

/* Tensors are numbered in the order of the model. The tensors of adapters have numbers from
 * ADAPTERS on, so that adapters do not change the initial weights of their model. */
enum { ADAPTERS = 1 << 24 };
struct numbers {
    int base, adapter;
};

static void number(struct numbers *of, const struct param *p, int n, int *out)
{
    for (int i = 0; i < n; i++) out[i] = p[i].adapter ? of->adapter++ : of->base++;
}

/* Visits rank t's slices of all tensors in ascending order. Each visit gets the bucket of the
 * slice. */
static void each_slice(const struct model_shape *s, int t, int64_t seed,
                       void (*visit)(void *arg, int bucket, const struct draw *d), void *arg)
{
    const struct model_shape whole = slice_whole(s);
    struct param *p = room_take(PROG_WEIGHTS * sizeof *p);
    struct slice *own = room_take(PROG_WEIGHTS * sizeof *own);
    int *tensor = room_take(PROG_WEIGHTS * sizeof *tensor);
    struct numbers of = {0, ADAPTERS};
    for (int b = 0; b <= s->n_layers + 1; b++) {
        const int n_whole = param_bucket(&whole, b, p, NULL);
        const int n = slice_bucket(s, b, own);
        number(&of, p, n_whole, tensor);
        /* The flat layout has the trained tensors of a bucket before its frozen tensors. */
        for (int i = 0; i < 2 * n; i++) {
            const struct slice *at = &own[i % n];
            if (at->trained == (i >= n)) continue;
            visit(arg, b,
                  &(struct draw){seed, tensor[at->tensor], s->n_layers, &p[at->tensor], *at, t});
        }
    }
    room_give(tensor);
    room_give(p);
    room_give(own);
}

void model_random_part(struct be *be, const struct model_shape *s, int t, int64_t seed,
                       int64_t from, struct tensor out)
{
    struct random_part w = {be, out, from, 0};
    assert(out.rows == 1);
    each_slice(s, t, seed, random_tensor, &w);
    zero_to(&w, from + out.cols);
}

struct random_stored { /* a model that has weights in blocks */
    struct model *m;
    float *room; /* [STAGED] */
};

/* Draws a slice piece by piece, if this rank has it. */
static void random_stored(void *arg, int bucket, const struct draw *d)
{
    const struct random_stored *w = arg;
    const struct slice *s = &d->slice;
    const int64_t size = slice_size(s, d->t), all = s->rows * s->cols;
    if (!zero_holds(&w->m->plan->shards, bucket)) return;
    for (int64_t k = 0, n; k < all; k += n) {
        n = all - k < STAGED ? all - k : STAGED;
        const int64_t drawn = size - k < n ? (size > k ? size - k : 0) : n;
        if (drawn) random_piece(w->m->be, d, k, tensor_f32(w->room, 1, drawn, drawn));
        for (int64_t i = drawn; i < n; i++) w->room[i] = 0; /* ids that no rank has are 0 */
        stored_put(w->m, s->offset + k, n, w->room);
    }
}

static void random_blocks(struct model *m, int64_t seed)
{
    struct random_stored w = {m, mem_scratch(STAGED * sizeof *w.room)};
    each_slice(&m->shape, m->tensor_rank, seed, random_stored, &w);
    free(w.room);
}

void model_random(struct model *m, int64_t seed)
{
    if (m->shape.quant) {
        random_blocks(m, seed);
        return;
    }
    const struct zero *z = &m->plan->shards;
    const int64_t n = zero_owned(z), lent = zero_held(z) - n;
    model_random_part(m->be, &m->shape, m->tensor_rank, seed, zero_begin(z, z->first),
                      tensor_of(m->dtype, m->params, 1, n, n));
    char *borrowed = (char *)m->params + n * dtype_size(m->dtype);
    if (lent)
        model_random_part(m->be, &m->shape, m->tensor_rank, seed, 0,
                          tensor_of(m->dtype, borrowed, 1, lent, lent));
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* Draws an adapter's tensor in pieces, which `to` takes. */
static int draw_adapter(const struct draw *d, const struct random_sink *to, struct err *e)
{
    float line[LINE];
    for (int64_t k = 0; k < d->p->count; k += LINE) {
        const int64_t n = d->p->count - k < LINE ? d->p->count - k : LINE;
        random_line(d, k, n, line);
        if (to->take(to->arg, d->p->offset + k, n, line, e)) return -1;
    }
    return 0;
}

int model_random_adapters(const struct model_shape *s, int64_t seed, const struct random_sink *to,
                          struct err *e)
{
    struct param *p = room_take(PROG_WEIGHTS * sizeof *p);
    int *tensor = room_take(PROG_WEIGHTS * sizeof *tensor), rc = 0;
    struct numbers of = {0, ADAPTERS};
    for (int b = 0; b <= s->n_layers + 1 && !rc; b++) {
        const int n = param_bucket(s, b, p, NULL);
        number(&of, p, n, tensor);
        for (int i = 0; i < n && !rc; i++) {
            const struct draw d = {
                .seed = seed, .tensor = tensor[i], .n_layers = s->n_layers, .p = &p[i]};
            if (p[i].adapter) rc = draw_adapter(&d, to, e);
        }
    }
    room_give(tensor);
    room_give(p);
    return rc;
}
