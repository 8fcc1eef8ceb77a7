/* gather.c: collects buckets in flat arrays of the whole model on rank 0, from shards, slices and
 * stages. */
#include "worker/verify/gather.h"

#include <stdlib.h>
#include "api/core/mem.h"
#include "worker/model/host_copy.h"
#include "worker/plan/slice.h"
#include "worker/plan/volume.h"
#include "worker/verify/pass.h"
#include "worker/verify/reference.h"

/* ---- slices of parallel.tp ------------------------------------------------------------------- */

/* elements of a slice that are gathered at a time; the plan does not count their memory */
enum { PIECE = 65536 };

/* A flat array of the whole model on rank 0; on other ranks data is NULL. */
struct whole_array {
    enum dtype dtype;
    void *data;
    bool add; /* if true, values are added to the elements of data; if false, they are copied */
    /* The flat layout has `shift` elements more than `data` before the current bucket. They are
     * frozen tensors, which the layout of gradients does not have. */
    int64_t shift;
};

/* Copies elements of a slice from x to their places in the whole array, or adds them to the
 * elements at these places. `own` is the range of the elements in the layout of rank t; all of it
 * is in slice s. */
static void put_slice(struct be *be, const struct slice *s, int t, struct zero_range own,
                      const float *x, const struct whole_array *to)
{
    float *room = mem_scratch(PIECE * sizeof *room);
    for (int64_t k = own.begin; k < own.end;) {
        struct slice_run r = slice_run(s, t, k - s->offset);
        const float *from = x + (k - own.begin);
        if (r.n > own.end - k) r.n = own.end - k;
        const int64_t element = s->whole_offset + r.whole - to->shift;
        char *there = (char *)to->data + element * dtype_size(to->dtype);
        if (to->add) host_copy_out(be, to->dtype, there, room, r.n);
        for (int64_t i = 0; i < r.n; i++) room[i] = to->add ? room[i] + from[i] : from[i];
        host_copy_in(be, to->dtype, there, room, r.n);
        k += r.n;
    }
    free(room);
}

/* Writes elements [at, at + n) of rank t's flat layout to the whole array, as far as they are in
 * the rank's slices. */
static void put_piece(struct be *be, const struct slice *own, int n_own, int t, int64_t at,
                      int64_t n, const float *x, const struct whole_array *to)
{
    for (int i = 0; i < n_own; i++) {
        const struct slice *s = &own[i];
        struct zero_range r = {s->offset, s->offset + slice_size(s, t)};
        if (r.begin < at) r.begin = at;
        if (r.end > at + n) r.end = at + n;
        if (r.begin < r.end && slice_first(s, t)) put_slice(be, s, t, r, x + (r.begin - at), to);
    }
}

/* Tells whether no rank has the whole model. */
static bool in_parts(const struct model *m)
{
    return m->plan->tp > 1 || m->plan->pp > 1;
}

/* A bucket that is gathered. x is NULL on rank 0 if another stage has the bucket. */
struct gathering {
    struct gathered *w;
    const struct device_array *x;
    const struct whole_array *to;
    int stage; /* the stage that has the bucket */
    /* one: a piece of one rank; all: this piece on all ranks that share layers */
    float *one, *all;
};

/* Gathers elements [at, at + n) of all slices on rank 0. */
static int gather_piece(const struct gathering *g, int64_t at, int64_t n, struct err *e)
{
    struct model *m = g->w->model;
    const int tp = m->plan->tp;
    const int64_t size = n * tp * 4;
    struct comm_count *moved = &g->w->moved;
    float *to = m->tensor ? g->one : g->all;
    if (g->x) {
        if (device_array_read((void *)g->x, at, n, to, e)) return -1;
        if (m->tensor &&
            comm_gather(m->tensor, PURPOSE_VERIFY, 0, g->one, n * 4, g->all, m->bounce, e))
            return -1;
        volume_add(moved, volume_gather(tp, n * 4, m->tensor_rank == 0), 1);
    }
    if (g->stage == 0 || m->tensor_rank) return 0;
    return g->x ? pass_send(m, 0, g->all, size, moved, e)
                : pass_receive(m, g->stage, g->all, size, moved, e);
}

static int gather_pieces(const struct gathering *g, int b, struct slice *own, struct err *e)
{
    struct model *m = g->w->model;
    const struct zero *z = &m->plan->shards;
    const int64_t begin = zero_begin(z, b);
    const int64_t len = g->to->add ? zero_trained(z, b) : zero_len(z, b);
    const int n_own = slice_bucket(&m->shape, b, own);
    for (int64_t at = 0; at < len; at += PIECE) {
        const int64_t n = len - at < PIECE ? len - at : PIECE;
        if (gather_piece(g, at, n, e)) return -1;
        for (int t = 0; g->to->data && t < m->plan->tp; t++)
            put_piece(m->be, own, n_own, t, begin + at, n, g->all + t * n, g->to);
    }
    return 0;
}

/* Gathers bucket b. x is the bucket on each rank of its stage that shares layers with the first
 * rank. The ranks of other rings, and the ranks of this ring that have other rows, have equal
 * copies of the bucket, so they take no part. */
static int gather_parts(struct gathered *w, int b, const struct device_array *x,
                        const struct whole_array *to, struct err *e)
{
    struct model *m = w->model;
    struct gathering g = {w, x, to, pipe_stage(&m->plan->pipe, b)};
    int rc = -1;
    if (!in_parts(m) || m->rank || m->ring) return 0;
    g.one = malloc(PIECE * 4);
    g.all = malloc((size_t)m->plan->tp * PIECE * 4);
    struct slice *own = malloc(PROG_WEIGHTS * sizeof *own);
    if (g.one && g.all && own)
        rc = gather_pieces(&g, b, own, e);
    else
        err_set(e, ERR_IO, "out of memory for pieces of slices");
    free(g.one);
    free(g.all);
    free(own);
    return rc;
}

/* Tells whether this rank receives the buckets of other stages. */
static bool receives(const struct model *m)
{
    return m->plan->pp > 1 && pipe_first(&m->plan->pipe) && !m->ring && !m->rank && !m->tensor_rank;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static int fetch(void *arg, int b, struct err *e)
{
    const struct gathered *w = arg;
    return w->own.fetch(w->own.arg, b, e);
}

/* Copies a bucket's gradient to the array on rank 0, or adds the gradient to that array. x is the
 * sum of bucket b over the stage's ranks, or NULL if another stage has the bucket. */
static int take(struct gathered *w, int b, float *x, struct err *e)
{
    struct model *m = w->model;
    const struct zero *z = &m->plan->shards;
    const struct device_array there = {m->be, DT_F32, x};
    const struct model_shape all = slice_whole(&m->shape);
    const struct whole_array to = {DT_F32, w->grad, true,
                                   param_section(&all, b) - param_grad_section(&all, b)};
    if (in_parts(m)) return gather_parts(w, b, x ? &there : NULL, &to, e);
    if (w->grad && zero_trained(z, b))
        m->be->ops->add(m->be, &(struct add_args){.y = w->grad + zero_grad_begin(z, b),
                                                  .x = x,
                                                  .n = zero_trained(z, b)});
    return 0;
}

/* ---- a tied embedding of two stages ---- */

/* Returns the part of bucket 0 that is in this rank's own shard. A rank of the last stage sends
 * this part, and a rank of the first stage adds to it. */
static struct zero_range tied_part(const struct model *m)
{
    const struct zero *z = &m->plan->shards;
    if (m->plan->zero) return zero_range(z, 0, m->place);
    return (struct zero_range){0, zero_trained(z, 0)};
}

static float *tied_room(const struct model *m)
{
    return (float *)(m->arena + m->plan->item[PLAN_GRAD_TIED].offset);
}

/* Adds the two parts of a tied embedding's gradient. x is the first stage's sum of its own part.
 * On all ranks of the stage, it becomes the sum of both parts. */
static int join_tied(struct gathered *w, float *x, struct err *e)
{
    struct model *m = w->model;
    const struct zero_range r = tied_part(m);
    if (tied_join(m, x + r.begin, tied_room(m), r.end - r.begin, e)) return -1;
    if (!m->plan->zero) return 0;
    return comm_all_gather(m->group, PURPOSE_GRAD, x + r.begin, x, m->plan->shards.cut[ZERO_EMBED],
                           4, m->bounce, e);
}

/* Keeps the head's gradient until the pass has ended, if gradients are by bucket. */
static int keep_tied(struct gathered *w, const float *x)
{
    struct model *m = w->model;
    const struct zero_range r = tied_part(m);
    if (r.begin < r.end) m->be->ops->copy(m->be, tied_room(m), x + r.begin, (r.end - r.begin) * 4);
    return 0;
}

/* Sums a bucket over ranks. Each rank gets the whole sum, because every part of a window is sent
 * by the owner of the part. */
static int reduce(void *arg, int b, bool last, struct err *e)
{
    struct gathered *w = arg;
    struct model *m = w->model;
    /* the two parts of a tied embedding's gradient are on different stages */
    const bool pair = b == 0 && m->ends && m->plan->shards.tied_grads;
    float *x = model_bucket_gradient(m, b);
    const bool everywhere = !(pair && last && m->plan->zero);
    if (model_sum_bucket(m, b, everywhere, x, e)) return -1;
    if (pair && !last) return keep_tied(w, x);
    if (pair && join_tied(w, x, e)) return -1;
    return take(w, b, x, e);
}

void gather_begin(struct gathered *w, struct model *m, float *grad, int64_t n)
{
    const struct plan_item *tied = &m->plan->item[PLAN_GRAD_TIED];
    *w = (struct gathered){.model = m, .own = m->buckets, .grad = grad};
    tied_init(&w->sends, m);
    if (tied->name) model_note_placed(m, tied, tied->size);
    if (!m->plan->by_bucket && !in_parts(m)) return;
    if (grad) m->be->ops->fill(m->be, grad, n, 0);
    if (m->plan->by_bucket)
        m->buckets = (struct model_buckets){.fetch = fetch, .reduce = reduce, .arg = w};
}

void gather_end(struct gathered *w)
{
    w->model->buckets = w->own;
}

int gather_stages(struct gathered *w, struct err *e)
{
    struct model *m = w->model;
    const struct pipe *p = &m->plan->pipe;
    if (!m->plan->by_bucket || !receives(m)) return 0;
    for (int b = p->first[p->n] - 1; b >= pipe_end(p); b--)
        if (take(w, b, NULL, e)) return -1;
    return 0;
}

int gather_passed(struct gathered *w, struct err *e)
{
    struct model *m = w->model;
    const struct zero_range r = tied_part(m);
    const struct zero *z = &m->plan->shards;
    if (!m->plan->by_bucket || !z->borrows || !z->tied_grads) return 0;
    return tied_send(&w->sends, m, tied_room(m), r.end - r.begin, e);
}

int gather_settle(struct gathered *w, struct err *e)
{
    return tied_settle(&w->sends, w->model, e);
}

static int pass_tied(struct gathered *w, struct err *e)
{
    struct model *m = w->model;
    const struct zero *z = &m->plan->shards;
    const struct zero_range r = tied_part(m);
    if (!m->ends || !z->tied_grads) return 0;
    if (!z->borrows) return join_tied(w, model_bucket_gradient(m, 0), e);
    return tied_send(&w->sends, m, model_bucket_gradient(m, 0) + r.begin, r.end - r.begin, e);
}

int gather_gradient(struct gathered *w, struct err *e)
{
    struct model *m = w->model;
    const struct zero *z = &m->plan->shards;
    if (m->plan->by_bucket || !in_parts(m)) return 0;
    if (pass_tied(w, e)) return -1;
    for (int b = 0; b < zero_buckets(z); b++) {
        if (!zero_owns(z, b) && !receives(m)) continue;
        float *x = zero_owns(z, b) ? model_bucket_gradient(m, b) : NULL;
        if (take(w, b, x, e)) return -1;
    }
    return 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Sends a bucket of this stage. */
static int send_weights(struct gathered *w, int b, void *params, struct err *e)
{
    struct model *m = w->model;
    const struct zero *z = &m->plan->shards;
    const int64_t size = dtype_size(m->dtype), begin = zero_begin(z, b);
    const struct whole_array to = {m->dtype, params, false, 0};
    if (m->fetched && m->buckets.fetch(m->buckets.arg, b, e)) return -1;
    char *from = m->fetched ? (char *)m->fetched + zero_window_at(z, b)
                            : (char *)m->params + zero_local(z, begin) * size;
    if (in_parts(m))
        return gather_parts(w, b, &(struct device_array){m->be, m->dtype, from}, &to, e);
    if (params)
        m->be->ops->copy(m->be, (char *)params + zero_size_before(z, b), from,
                         z->size[zero_kind(z, b)]);
    return 0;
}

int gather_weights(struct gathered *w, void *params, struct err *e)
{
    struct model *m = w->model;
    const struct zero *z = &m->plan->shards;
    const struct whole_array to = {m->dtype, params, false, 0};
    if ((!m->fetched && !in_parts(m)) || reference_fills(m)) return 0;
    for (int b = 0; b < zero_buckets(z); b++) {
        if (zero_owns(z, b) && send_weights(w, b, params, e)) return -1;
        if (!zero_owns(z, b) && receives(m) && gather_parts(w, b, NULL, &to, e)) return -1;
    }
    /* After the last bucket, the window no longer has the weights of the head, so they are fetched
     * again. */
    const bool head = z->tied && pipe_last(&m->plan->pipe);
    return m->fetched && head ? m->buckets.fetch(m->buckets.arg, 0, e) : 0;
}
