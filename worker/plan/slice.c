/* slice.c: finds a tensor's slices by comparing the sliced shape with the whole shape. Computes
 * from an element of a slice its index in the whole tensor, and the reverse. */
#include "worker/plan/slice.h"

#include <string.h>
#include "api/core/assert.h"
#include "api/core/room.h"

/* Returns the slice of a tensor. part is the tensor in the shape with tp. `whole` is this tensor
 * in slice_whole() of that shape. */
static struct slice slice_of(const struct param *part, const struct param *whole, int tp)
{
    const bool flat = part->cols == 0;
    struct slice s = {.trained = part->trained,
                      .rows = flat ? 1 : part->rows,
                      .cols = flat ? part->rows : part->cols,
                      .whole_cols = flat ? whole->rows : whole->cols,
                      .count = whole->count,
                      .offset = part->offset,
                      .whole_offset = whole->offset};
    assert(part->of_ids || whole->count % part->count == 0);
    s.n = part->of_ids ? tp : (int)(whole->count / part->count);
    s.sharers = tp / s.n;
    assert(tp % s.n == 0);
    return s;
}

/* Returns part i of a fused tensor as a separate tensor. */
static struct param fused_part(const struct param *p, int i)
{
    struct param part = *p;
    for (int k = 0; k < i; k++) part.offset += p->fused[k] * p->cols;
    part.rows = p->fused[i];
    part.count = part.rows * p->cols;
    return part;
}

/* Lists the slices of a tensor that a rank has, one for each fused part. Returns the number of
 * slices. */
static int slice_tensor(const struct param *part, const struct param *whole, int tp, int tensor,
                        struct slice *out)
{
    const int n = part->n_fused ? part->n_fused : 1;
    for (int i = 0; i < n; i++) {
        const struct param p = part->n_fused ? fused_part(part, i) : *part;
        const struct param w = part->n_fused ? fused_part(whole, i) : *whole;
        out[i] = slice_of(&p, &w, tp);
        out[i].tensor = tensor;
    }
    return n;
}

static int64_t within(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* Tells whether the elements of a slice are consecutive in the tensor. */
static bool in_one(const struct slice *s)
{
    return s->cols == s->whole_cols || s->rows == 1;
}

int64_t slice_size(const struct slice *s, int t)
{
    const int64_t room = s->rows * s->cols;
    return in_one(s) ? within(s->count - t / s->sharers * room, room) : room;
}

struct model_shape slice_whole(const struct model_shape *m)
{
    struct model_shape whole = *m;
    whole.tp = 0;
    return whole;
}

int slice_bucket(const struct model_shape *m, int bucket, struct slice *out)
{
    const struct model_shape all = slice_whole(m);
    struct param *part = room_take(2 * PROG_WEIGHTS * sizeof *part);
    struct param *whole = part + PROG_WEIGHTS;
    const int n = param_bucket(m, bucket, part, NULL);
    const int n_whole = param_bucket(&all, bucket, whole, NULL);
    assert(n == n_whole);
    (void)n_whole;
    int n_slices = 0;
    for (int i = 0; i < n; i++)
        n_slices += slice_tensor(&part[i], &whole[i], m->tp > 1 ? m->tp : 1, i, out + n_slices);
    room_give(part);
    return n_slices;
}

void slice_cut(const struct slice *s, int64_t *cut)
{
    const int64_t n = s->rows * s->cols;
    for (int k = 0; k <= s->sharers; k++)
        cut[k] = n / s->sharers * k + n % s->sharers * k / s->sharers;
}

struct slice_run slice_run(const struct slice *s, int t, int64_t at)
{
    const int64_t index = t / s->sharers, size = s->rows * s->cols;
    const int64_t row = at / s->cols, col = at % s->cols;
    assert(at < slice_size(s, t));
    if (in_one(s)) return (struct slice_run){index * size + at, slice_size(s, t) - at};
    return (struct slice_run){row * s->whole_cols + index * s->cols + col, s->cols - col};
}

/* Returns how many elements of the slice come before element k of the tensor. */
static int64_t before(const struct slice *s, int t, int64_t k)
{
    const int64_t index = t / s->sharers, size = s->rows * s->cols;
    if (in_one(s)) return within(k - index * size, size);
    const int64_t row = k / s->whole_cols, col = k % s->whole_cols;
    return row * s->cols + within(col - index * s->cols, s->cols);
}

struct slice_part slice_part(const struct slice *s, int t, int64_t from, int64_t n)
{
    const int64_t at = before(s, t, from);
    return (struct slice_part){at, before(s, t, from + n) - at};
}

/* Sets the cursor to the bucket that contains element `whole` of the whole layout. The bucket is
 * found by bisection. */
static void move_to(struct slice_cursor *c, const struct model_shape *m, int64_t whole)
{
    const struct model_shape all = slice_whole(m);
    struct slice *own = room_take(PROG_WEIGHTS * sizeof *own);
    int low = 0, high = m->n_layers + 2;
    while (high - low > 1) {
        const int mid = (low + high) / 2;
        *(param_section(&all, mid) <= whole ? &low : &high) = mid;
    }
    c->begin = param_section(&all, low);
    c->end = low == m->n_layers + 1 ? param_count(&all) : param_section(&all, low + 1);
    c->n = slice_bucket(m, low, own);
    assert(c->n <= SLICE_TENSORS);
    memcpy(c->of, own, (size_t)c->n * sizeof *own);
    room_give(own);
}

struct slice slice_find(struct slice_cursor *c, const struct model_shape *m, int64_t whole)
{
    int i = 0;
    if (whole < c->begin || whole >= c->end) move_to(c, m, whole);
    /* The slices of a bucket need not have ascending offsets, because frozen tensors are placed
     * after trained tensors. */
    for (int k = 1; k < c->n; k++) {
        const int64_t at = c->of[k].whole_offset;
        if (at <= whole && (at > c->of[i].whole_offset || c->of[i].whole_offset > whole)) i = k;
    }
    return c->of[i];
}
