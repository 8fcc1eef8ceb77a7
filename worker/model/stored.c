/* stored.c: finds the weights that have given elements of the flat layout. Writes and reads them
 * in place, as numbers in rows or panels, or as blocks. */
#include "worker/model/stored.h"

#include "api/core/assert.h"
#include "kernels/panels.h"
#include "worker/model/host_blocks.h"
#include "worker/model/host_copy.h"

char *stored_section(const struct model *m, int b)
{
    if (m->shape.quant && m->fetched)
        return (char *)m->fetched + zero_window_at(&m->plan->shards, b);
    if (m->shape.quant) return (char *)m->params + m->prog.places[b];
    return model_weight(m, m->prog.weights[b], 1, 1).data;
}

struct tensor stored_weight(const struct model *m, int b, int i)
{
    const struct here h = section_at(m, b);
    const struct weight *w = &h.p->weight[i];
    const int64_t rows = w->cols ? w->rows : 1, cols = w->cols ? w->cols : w->rows;
    char *const at = stored_section(m, b) + h.s->weight_at[i];
    return tensor_of(dtype_stored(w->stored, m->dtype), at, rows, cols, cols);
}

/* A run of elements. All are in one weight, or all are between two weights. */
struct stored_run {
    struct tensor w; /* data is NULL if the run is between weights */
    int64_t at, n;   /* elements of w */
};

/* Returns the weight that begins at element `in` of its section. If no weight begins there,
 * returns the last weight that begins before that element. Sets *end to the first element of the
 * next weight. Offsets are not ascending in a section that has frozen tensors. */
static int weight_of(const struct program *p, int64_t in, int64_t *end)
{
    int64_t begin = -1;
    int at = 0;
    *end = p->weights_size;
    for (int i = 0; i < p->n_weights; i++) {
        const int64_t from = p->weight[i].offset;
        if (from > in && from < *end) *end = from;
        if (from <= in && from > begin) begin = from, at = i;
    }
    return at;
}

/* Returns the first run of elements [offset, offset + n) if this rank has their whole bucket. */
static struct stored_run whole_run(const struct model *m, int64_t offset, int64_t n)
{
    const int b = zero_bucket(&m->plan->shards, offset);
    const struct program *p = section_at(m, b).p;
    const int64_t in = offset - m->prog.weights[b];
    int64_t end;
    const int i = weight_of(p, in, &end);
    const struct tensor w = stored_weight(m, b, i);
    const int64_t at = in - p->weight[i].offset, size = w.rows * w.cols;
    const int64_t left = at < size ? size - at : end - in;
    return (struct stored_run){at < size ? w : (struct tensor){0}, at, left < n ? left : n};
}

/* ---- a shard --------------------------------------------------------------------------------- */

/* Elements of a bucket that follow each other in a shard (zero 3). */
struct stored_share {
    struct zero_range r;
    char *data;    /* address of the first of them */
    int64_t place; /* byte of the section at which a rank with the whole section has it */
};

/* Returns this rank's share of the trained or of the frozen elements of bucket b. */
static struct stored_share share_of(const struct model *m, int b, bool frozen)
{
    const struct zero *z = &m->plan->shards;
    const int64_t begin = zero_begin(z, b), trained = zero_trained(z, b);
    const struct zero_range own = zero_range(z, b, m->place);
    if (!frozen)
        return (struct stored_share){own, (char *)m->params + zero_held_at(z, b, m->place),
                                     (own.begin - begin) * z->unit};
    return (struct stored_share){zero_frozen_range(z, b, m->place),
                                 (char *)m->params + zero_frozen_held_at(z, b, m->place),
                                 trained * z->unit + z->frozen_at[zero_kind(z, b)][m->place]};
}

/* Returns the bytes of the first n elements of w. In blocks, they are whole panels. */
static int64_t bytes_before(struct tensor w, int64_t n)
{
    if (dtype_quant(w.dtype)) return quant_size(dtype_format(w.dtype), n / w.cols, w.cols);
    return n * dtype_size(w.dtype);
}

/* Returns the elements of weight i of bucket b that are in a share, as a tensor. The share has at
 * least one of them. Sets *first to the index in the weight of the first of them. */
static struct tensor part_of(const struct model *m, int b, int i, const struct stored_share *s,
                             int64_t *first)
{
    const struct here h = section_at(m, b);
    struct tensor w = stored_weight(m, b, i);
    const int64_t begin = m->prog.weights[b] + h.p->weight[i].offset, size = w.rows * w.cols;
    const int64_t end = s->r.end < begin + size ? s->r.end - begin : size;
    *first = s->r.begin > begin ? s->r.begin - begin : 0;
    w.data = s->data + h.s->weight_at[i] + bytes_before(w, *first) - s->place;
    if (dtype_quant(w.dtype))
        w.rows = (end - *first) / w.cols;
    else
        w.rows = 1, w.cols = w.ld = end - *first;
    return w;
}

/* Returns the first run of elements [offset, offset + n) in this rank's shard. Elements of other
 * shards are a run without data. */
static struct stored_run shard_run(const struct model *m, int64_t offset, int64_t n)
{
    const struct stored_run r = whole_run(m, offset, n);
    const int b = zero_bucket(&m->plan->shards, offset);
    const int64_t in = offset - m->prog.weights[b];
    const struct stored_share s = share_of(m, b, in >= zero_trained(&m->plan->shards, b));
    int64_t end = offset + r.n, first, unused;
    if (!r.w.data) return r;
    if (offset >= s.r.end || end <= s.r.begin) return (struct stored_run){.n = r.n};
    if (offset < s.r.begin) return (struct stored_run){.n = s.r.begin - offset};
    if (end > s.r.end) end = s.r.end;
    const struct tensor w = part_of(m, b, weight_of(section_at(m, b).p, in, &unused), &s, &first);
    return (struct stored_run){w, r.at - first, end - offset};
}

static struct stored_run run_of(const struct model *m, int64_t offset, int64_t n)
{
    return m->fetched ? shard_run(m, offset, n) : whole_run(m, offset, n);
}

/* ---- numbers and blocks ---------------------------------------------------------------------- */

static char *address(const struct stored_run *r)
{
    return (char *)r->w.data + r->at * dtype_size(r->w.dtype);
}

void stored_put(struct model *m, int64_t offset, int64_t n, const float *x)
{
    for (struct stored_run r; n > 0; offset += r.n, n -= r.n, x += r.n) {
        r = run_of(m, offset, n);
        if (!r.w.data) continue;
        assert(!dtype_panels(r.w.dtype));
        if (dtype_quant(r.w.dtype))
            host_blocks_in(m->be, r.w, r.at, r.n, x);
        else
            host_copy_in(m->be, r.w.dtype, address(&r), x, r.n);
    }
}

void stored_get(const struct model *m, int64_t offset, int64_t n, float *out)
{
    for (struct stored_run r; n > 0; offset += r.n, n -= r.n, out += r.n) {
        r = run_of(m, offset, n);
        if (!r.w.data)
            for (int64_t i = 0; i < r.n; i++) out[i] = 0;
        else if (dtype_quant(r.w.dtype))
            host_blocks_out(m->be, r.w, r.at, r.n, out);
        else if (dtype_panels(r.w.dtype))
            panels_get(r.w, r.at, r.n, out);
        else
            host_copy_out(m->be, r.w.dtype, address(&r), out, r.n);
    }
}

enum weights_id stored_blocks(const struct model *m, int64_t offset, int64_t n)
{
    const int b = zero_bucket(&m->plan->shards, offset);
    const struct program *p = section_at(m, b).p;
    const int64_t in = offset - m->prog.weights[b];
    int64_t end;
    const struct weight *w = &p->weight[weight_of(p, in, &end)];
    const int64_t at = in - w->offset;
    const bool whole = n > 0 && at % QUANT_K == 0 && n % QUANT_K == 0;
    if (!m->shape.quant || !w->stored || !whole) return WEIGHTS_MODEL;
    return at + n <= w->rows * w->cols ? w->stored : WEIGHTS_MODEL;
}

void stored_put_blocks(struct model *m, int64_t offset, int64_t n, const uint8_t *blocks)
{
    const struct stored_run r = run_of(m, offset, n);
    assert(r.n == n && dtype_quant(r.w.dtype));
    host_blocks_take(m->be, r.w, r.at, n, blocks);
}

enum weights_id stored_format(void *model, int64_t offset)
{
    return stored_blocks(model, offset, QUANT_K);
}

int stored_take_blocks(void *model, int64_t offset, int64_t n, const uint8_t *blocks, struct err *e)
{
    struct model *m = model;
    stored_put_blocks(m, offset, n, blocks);
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

int stored_take(void *model, int64_t offset, int64_t n, const float *x, struct err *e)
{
    struct model *m = model;
    stored_put(m, offset, n, x);
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

int stored_give(void *model, int64_t offset, int64_t n, float *out, struct err *e)
{
    const struct model *m = model;
    stored_get(m, offset, n, out);
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* Clears the mark of weight i and of the weights that a product uses together with it as one
 * matrix. */
static void unmark(struct program *p, int i)
{
    int first = i, end = i + 1;
    while (first > 0 && p->weight[first].joined) first--;
    while (end < p->n_weights && p->weight[end].joined) end++;
    for (int k = first; k < end; k++) p->weight[k].stored = WEIGHTS_MODEL;
}

static void unmark_unfit(const struct model *m, struct program *p)
{
    char room[160];
    for (int i = 0; i < p->n_weights; i++) {
        const struct weight *w = &p->weight[i];
        const struct tensor t = tensor_of(m->dtype, NULL, w->rows, w->cols, w->cols);
        if (w->stored && (store_fault(p, i, room) || !panels_fit(t))) unmark(p, i);
    }
}

/* Converts a section's marked weights to panels. */
static void turn_section(struct model *m, int b)
{
    const struct program *p = section_at(m, b).p;
    for (int i = 0; i < p->n_weights; i++) {
        struct tensor w = stored_weight(m, b, i);
        if (!dtype_panels(w.dtype)) continue;
        w.dtype = m->dtype;
        m->be->ops->turn(m->be, w);
    }
}

void stored_turn(struct model *m)
{
    struct family *f = &m->prog.all.family;
    const bool rows = m->plan->zero == 3 || m->plan->tp > 1 || family_diffusion(&m->shape);
    if (!m->be->ops->turn || m->shape.quant || rows) return;
    family_store(f, WEIGHTS_PANELS);
    unmark_unfit(m, &f->in), unmark_unfit(m, &f->out);
    for (int k = 0; k < f->n_kinds; k++) unmark_unfit(m, &f->layer[k]);
    for (int b = 0; b < m->shape.n_layers + 2; b++)
        if (zero_holds(&m->plan->shards, b)) turn_section(m, b);
}
