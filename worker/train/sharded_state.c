/* sharded_state.c: moves buckets between the ranks that own them and the ranks that read them,
 * sums their gradients, updates the rank's own part, and exchanges the two parts of a tied
 * embedding between stages. */
#include "worker/train/sharded_place.h"

#include <math.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/mutant.h"

/* ---- moving a bucket ------------------------------------------------------------------------- */

static void mark_place(const struct sharded_state *h, int b)
{
    struct comm *c = h->model->job;
    if (!c) return;
    comm_where(c)->layer = zero_kind(&h->plan->shards, b) >= ZERO_LAYER ? b - 1 : -1;
    comm_where(c)->hop = -1;
}

static const int64_t *cut_of(const struct sharded_state *h, int b)
{
    return h->plan->shards.cut[zero_kind(&h->plan->shards, b)];
}

/* Fetches a bucket into the window before the model reads the bucket. Used under zero 3. */
static int bucket_fetch(void *arg, int b, struct err *e)
{
    struct sharded_state *h = arg;
    struct model *m = h->model;
    const struct zero *z = &h->plan->shards;
    const int64_t size = dtype_size(m->dtype), trained = zero_trained(z, b);
    char *window = (char *)m->fetched + zero_window_at(z, b);
    mark_place(h, b);
    if (comm_all_gather(m->group, PURPOSE_PARAM, sharded_own_params(h, b), window, cut_of(h, b),
                        size, m->bounce, e))
        return -1;
    if (zero_len(z, b) == trained) return 0;
    return comm_all_gather(m->group, PURPOSE_PARAM, sharded_frozen_params(h, b),
                           window + trained * size, z->frozen_at[zero_kind(z, b)], 1, m->bounce, e);
}

/* Under zero 1 and 2, sends the updated parts to the whole group. */
static int bucket_publish(struct sharded_state *h, int b, struct err *e)
{
    struct model *m = h->model;
    const bool sharded = h->plan->zero == 1 || h->plan->zero == 2;
    if (!sharded || !zero_trained(&h->plan->shards, b)) return 0;
    mark_place(h, b);
    return comm_all_gather(m->group, PURPOSE_PARAM, sharded_own_params(h, b),
                           sharded_trained_of(h, b, 0), cut_of(h, b), dtype_size(m->dtype),
                           m->bounce, e);
}

static void add(struct sharded_state *h, float *y, const float *x, int64_t n)
{
    if (n) h->model->be->ops->add(h->model->be, &(struct add_args){.y = y, .x = x, .n = n});
}

static struct tensor line(float *x, int64_t n)
{
    return tensor_f32(x, 1, n, n);
}

/* Adds the weights of a part to its moving average, which begins at `to`. */
static void average(struct sharded_state *h, const struct optim_part *x, float *to)
{
    const int64_t n = x->end - x->begin;
    const float d = (float)h->optim.spec->ema.decay;
    const struct tensor ema = line(to, n);
    if (n)
        h->model->be->ops->mix(
            h->model->be,
            &(struct mix_args){.a = ema, .b = line(x->p, n), .y = ema, .alpha = d, .beta = 1 - d});
}

/* ---- a tied embedding of two stages ---------------------------------------------------------- */

static bool lends(const struct sharded_state *h, int b)
{
    return h->model->ends && b == 0 && !h->plan->shards.borrows && h->plan->shards.tied_grads;
}

static bool borrows(const struct sharded_state *h)
{
    return h->plan->shards.borrows && h->plan->shards.tied_grads;
}

static int64_t tied_elements(const struct sharded_state *h)
{
    const struct zero_range r = sharded_own_range(h, 0);
    return r.end - r.begin;
}

/* On the borrower, sends the part of the head's gradient that this rank has. */
static int send_gradient(struct sharded_state *h, const float *x, struct err *e)
{
    return tied_send(&h->sends, h->model, x, tied_elements(h), e);
}

static int take_gradient(struct sharded_state *h, float *own, struct err *e)
{
    return tied_join(h->model, own, h->tied, tied_elements(h), e);
}

/* Passes the owner's weights to the borrower after the update. */
static int pass_weights(struct sharded_state *h, struct err *e)
{
    struct model *m = h->model;
    const int64_t size = tied_elements(h) * dtype_size(m->dtype);
    if (!size) return 0;
    mark_place(h, 0);
    return comm_broadcast_tensor(m->ends, PURPOSE_PARAM, 0, sharded_own_params(h, 0), size,
                                 m->bounce, e);
}

/* On the borrower, receives the updated weights and sends them to the other ranks of its group. */
static int take_weights(struct sharded_state *h, struct err *e)
{
    return pass_weights(h, e) || bucket_publish(h, 0, e) ? -1 : 0;
}

int sharded_send_tied(struct sharded_state *h, struct err *e)
{
    if (!borrows(h) || !h->plan->by_bucket) return 0;
    if (plan_adds_here(h->plan) && !h->final) return 0;
    if (send_gradient(h, h->tied, e)) return -1;
    return h->plan->fused ? take_weights(h, e) : 0;
}

int sharded_settle(struct sharded_state *h, struct err *e)
{
    return tied_settle(&h->sends, h->model, e);
}

/* Adds the two parts of a tied embedding's gradient. Do not call it with gradients by bucket. */
static int join_tied(struct sharded_state *h, struct err *e)
{
    if (!h->model->ends || !h->plan->shards.tied_grads) return 0;
    const struct zero_range r = sharded_own_range(h, 0);
    float *own = model_bucket_gradient(h->model, 0) + r.begin;
    if (borrows(h)) return send_gradient(h, own, e);
    return take_gradient(h, own, e);
}

/* ---- an offloaded optimizer ------------------------------------------------------------------ */

/* Requests all arrays of the part ahead. */
static void ask_part(struct sharded_state *h)
{
    const struct away *a = &h->away;
    struct sharded_ahead *x = &h->ahead;
    for (int i = 0; i < AWAY_N; i++)
        if (away_has(a, i))
            x->ticket = away_bring(a, i, sharded_away_at(h, i, x->b, x->piece.begin),
                                   a->window[x->w][i], x->piece.end - x->piece.begin);
}

/* Goes to the next part, in the same bucket or in a later one, and requests its arrays. */
static void go_ahead(struct sharded_state *h)
{
    struct sharded_ahead *x = &h->ahead;
    x->asked = false;
    x->w ^= 1;
    while (!sharded_next_piece(h, &x->left, &x->piece)) {
        if (++x->b >= x->end) return;
        if (zero_trained(&h->plan->shards, x->b)) x->left = sharded_own_range(h, x->b);
    }
    x->asked = true;
    ask_part(h);
}

/* Begins an update of buckets [begin, end). */
static void begin_update(struct sharded_state *h, int begin, int end)
{
    /* go_ahead takes the other window, because the last piece may still be leaving its own */
    h->ahead = (struct sharded_ahead){.b = begin - 1, .end = end, .w = h->ahead.w ^ 1};
    go_ahead(h);
}

/* Updates a part whose arrays are in windows. */
static void update_windows(struct sharded_state *h, struct optim_part *x, float *const *w,
                           const struct optim_rate *r)
{
    const int64_t skip = x->begin - sharded_own_range(h, x->bucket).begin;
    char *params = sharded_own_params(h, x->bucket) + skip * dtype_size(h->model->dtype);
    x->p = w[AWAY_MASTER] ? w[AWAY_MASTER] : (float *)params;
    x->rounded = w[AWAY_MASTER] ? (uint16_t *)params : NULL;
    x->m = w[AWAY_M];
    x->v = w[AWAY_V];
    x->g = w[AWAY_GRAD] ? w[AWAY_GRAD] : sharded_gradient_of(h, x->bucket) + skip;
    optim_update(&h->optim, x, r);
    if (w[AWAY_EMA]) average(h, x, w[AWAY_EMA]);
}

/* Lets all arrays of a part but the gradient leave. */
static void send_part(struct sharded_state *h, const struct optim_part *x, float *const *w)
{
    for (int i = 0; i < AWAY_N; i++)
        if (away_has(&h->away, i) && i != AWAY_GRAD)
            away_send(&h->away, i, sharded_away_at(h, i, x->bucket, x->begin), w[i],
                      x->end - x->begin);
}

/* Updates this rank's own part of a bucket, piece by piece. The next piece is on its way while a
 * piece is updated. */
static int update_away(struct sharded_state *h, int b, const struct optim_rate *r, struct err *e)
{
    while (h->ahead.asked && h->ahead.b == b) {
        const struct sharded_ahead now = h->ahead;
        struct optim_part x = {.bucket = b, .begin = now.piece.begin, .end = now.piece.end};
        float *const *w = h->away.window[now.w];
        go_ahead(h);
        if (away_wait(&h->away, now.ticket, e)) return -1;
        update_windows(h, &x, w, r);
        send_part(h, &x, w);
    }
    return 0;
}

/* Requests the earlier sum of a piece of a bucket's gradient. */
static int64_t ask_earlier(const struct sharded_state *h, int b, const struct zero_range *piece,
                           float *window)
{
    return away_bring(&h->away, AWAY_GRAD, sharded_away_at(h, AWAY_GRAD, b, piece->begin), window,
                      piece->end - piece->begin);
}

/* Adds the sum of earlier samples to this rank's own part of a bucket, which begins at `own`. The
 * next piece is on its way while a piece is added. */
static int add_earlier(struct sharded_state *h, int b, float *own, struct err *e)
{
    const struct zero_range all = sharded_own_range(h, b);
    struct zero_range left = all, now, next;
    float *const window[2] = {h->away.window[0][AWAY_GRAD], h->away.window[1][AWAY_GRAD]};
    bool more = sharded_next_piece(h, &left, &now);
    int64_t ticket = more ? ask_earlier(h, b, &now, window[0]) : 0;
    for (int w = 0; more; w ^= 1, now = next) {
        const int64_t arrives = ticket;
        more = sharded_next_piece(h, &left, &next);
        if (more) ticket = ask_earlier(h, b, &next, window[w ^ 1]);
        if (away_wait(&h->away, arrives, e)) return -1;
        if (!mutant_on(MUTANT_GRAD_LOST))
            add(h, own + (now.begin - all.begin), window[w], now.end - now.begin);
    }
    return 0;
}

/* Lets this rank's own part of a bucket's gradient leave for the store. If it is the gradient of
 * the step, computes its sums of squares first. */
static int leave_own(struct sharded_state *h, int b, const float *own, struct err *e)
{
    const struct zero_range r = sharded_own_range(h, b);
    const struct optim_part x = {.bucket = b, .begin = r.begin, .end = r.end, .g = own};
    if (h->final) optim_sums(&h->optim, &x);
    return away_leave(&h->away, AWAY_GRAD, sharded_away_at(h, AWAY_GRAD, b, r.begin), own,
                      r.end - r.begin, e);
}

/* ---- sums of earlier samples ----------------------------------------------------------------- */

/* Tells whether the store has a sum to which the backward pass of bucket b adds. */
static bool has_earlier(const struct sharded_state *h, int b)
{
    return plan_adds_here(h->plan) && !(h->fresh && !(b == 0 && h->joining));
}

/* Requests the sum of a bucket's earlier gradients, unless it is on its way. */
static void fetch_earlier(struct sharded_state *h, int b)
{
    const struct zero *z = &h->plan->shards;
    if (h->earlier.ticket && h->earlier.b == b) return;
    h->earlier = (struct sharded_earlier){b, away_bring(&h->away, AWAY_GRAD, zero_grad_local(z, b),
                                                        model_bucket_gradient(h->model, b),
                                                        zero_trained(z, b))};
}

/* Requests the sum of the layer before b, which comes next, if it has a place of its own. */
static void fetch_next(struct sharded_state *h, int b)
{
    const struct zero *z = &h->plan->shards;
    const int next = b - 1;
    if (next < 1 || next < z->first || next < z->back_from || b > z->n_layers) return;
    if (z->halves && zero_trained(z, next) && has_earlier(h, next)) fetch_earlier(h, next);
}

/* Fills the window of a bucket with the sum of the rank's own earlier gradients. */
static int bucket_begin(void *arg, int b, struct err *e)
{
    struct sharded_state *h = arg;
    float *x = model_bucket_gradient(h->model, b);
    const int64_t n = zero_trained(&h->plan->shards, b);
    const bool earlier = has_earlier(h, b);
    if (earlier) {
        fetch_earlier(h, b);
        const int64_t ticket = h->earlier.ticket;
        h->earlier.ticket = 0;
        fetch_next(h, b);
        if (away_wait(&h->away, ticket, e)) return -1;
    }
    if (away_left(&h->away, x, n, e)) return -1;
    if (!earlier || mutant_on(MUTANT_GRAD_LOST)) h->model->be->ops->fill(h->model->be, x, n, 0);
    return 0;
}

/* ---- a bucket is updated --------------------------------------------------------------------- */

/* Applies weight decay to the frozen weights of a bucket. This is a fault on purpose
 * (MUTANT_FROZEN_MOVED). */
static void decay_frozen(struct sharded_state *h, int b)
{
    const struct zero_range r = sharded_frozen_range(h, b);
    const int64_t n = r.end - r.begin;
    if (!n || !mutant_on(MUTANT_FROZEN_MOVED) || h->plan->n_ranks == 1) return;
    assert(!h->model->shape.quant);
    const struct tensor x = tensor_of(h->model->dtype, sharded_frozen_params(h, b), 1, n, n);
    h->model->be->ops->mix(h->model->be, &(struct mix_args){.a = x, .y = x, .alpha = 0.999F});
}

/* Updates this rank's own part of a bucket. */
static void update_part(struct sharded_state *h, int b, const struct optim_rate *r)
{
    const struct optim_part x = sharded_part_of(h, b);
    if (r) optim_update(&h->optim, &x, r);
    bool moves = r && h->ema;
    moves |= h->ema && mutant_on(MUTANT_EMA_SKIPPED);
    if (moves) average(h, &x, h->ema + sharded_own_at(h, b));
}

static int bucket_update(struct sharded_state *h, int b, const struct optim_rate *r, struct err *e)
{
    decay_frozen(h, b);
    if (!zero_trained(&h->plan->shards, b)) return 0;
    if (!h->away.store) update_part(h, b, r);
    if (h->away.store && r) {
        if (h->plan->fused) begin_update(h, b, b + 1);
        if (update_away(h, b, r, e)) return -1;
    }
    if (lends(h, b) && pass_weights(h, e)) return -1;
    return bucket_publish(h, b, e);
}

/* Sums a bucket over ranks. x is the bucket's gradient on this rank. Only this rank's own part of
 * x becomes the sum. */
static int bucket_sum(struct sharded_state *h, int b, float *x, struct err *e)
{
    mark_place(h, b);
    return model_sum_bucket(h->model, b, sharded_whole(h), x, e);
}

/* Adds the sum of this rank's own part to the sums of the earlier samples. */
static void bucket_keep(struct sharded_state *h, int b, const float *own)
{
    const struct zero_range r = sharded_own_range(h, b);
    const int64_t n = r.end - r.begin;
    float *to = h->acc + sharded_own_at(h, b);
    if (h->fresh && n)
        h->model->be->ops->copy(h->model->be, to, own, n * 4);
    else
        add(h, to, own, n);
}

/* Takes the gradient x of a bucket to which a rank adds its samples. After the last sample, sums
 * it over ranks. */
static int reduce_here(struct sharded_state *h, int b, bool last, float *x, struct err *e)
{
    const struct zero *z = &h->plan->shards;
    const struct zero_range r = sharded_own_range(h, b);
    float *own = x + (r.begin - zero_begin(z, b));
    if (b == 0) h->joining = !last && h->plan->pp == 1;
    if (!h->final || (b == 0 && h->joining))
        return away_leave(&h->away, AWAY_GRAD, zero_grad_local(z, b), x, zero_trained(z, b), e);
    if (bucket_sum(h, b, x, e)) return -1;
    if (!last) {
        if (r.begin < r.end)
            h->model->be->ops->copy(h->model->be, h->tied, own, (r.end - r.begin) * 4);
        return 0;
    }
    if (lends(h, b) && take_gradient(h, own, e)) return -1;
    return leave_own(h, b, own, e);
}

/* Sums a bucket and, when fused, updates its weights. If gradients are summed by bucket,
 * model->grad is a window, and the gradient of bucket b in it is complete for this sample. */
static int bucket_reduce(void *arg, int b, bool last, struct err *e)
{
    struct sharded_state *h = arg;
    const struct zero *z = &h->plan->shards;
    const struct zero_range r = sharded_own_range(h, b);
    float *x = model_bucket_gradient(h->model, b), *own = x + (r.begin - zero_begin(z, b));
    const int64_t n = r.end - r.begin;
    if (plan_adds_here(h->plan)) return reduce_here(h, b, last, x, e);
    if (bucket_sum(h, b, x, e)) return -1;
    if (!last) {
        if (n) h->model->be->ops->copy(h->model->be, h->tied, own, n * 4);
        return 0;
    }
    if (lends(h, b) && take_gradient(h, own, e)) return -1;
    if (b == 0 && h->tied && !lends(h, b)) add(h, own, h->tied, n);
    if (away_has(&h->away, AWAY_GRAD))
        return (!h->fresh && add_earlier(h, b, own, e)) || leave_own(h, b, own, e) ? -1 : 0;
    if (!h->plan->fused) {
        bucket_keep(h, b, own);
        return 0;
    }
    const struct optim_part part = sharded_part_of(h, b);
    optim_sums(&h->optim, &part);
    return bucket_update(h, b, h->skip ? NULL : &h->rate, e);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Sums the embedding's own part of a tied gradient over ranks, and adds the sum to the head's
 * part. Under determinism "ranks" the embedding's own part is stored after the flat layout. */
static int reduce_tied(struct sharded_state *h, struct err *e)
{
    float *apart = h->model->grad + h->plan->n_trained;
    if (!h->plan->rank_bits || !h->plan->shards.tied_grads || h->model->line) return 0;
    const struct zero_range r = sharded_own_range(h, 0);
    if (bucket_sum(h, 0, apart, e)) return -1;
    add(h, h->model->grad + r.begin, apart + r.begin, r.end - r.begin);
    return 0;
}

int sharded_reduce(struct sharded_state *h, struct err *e)
{
    const struct zero *z = &h->plan->shards;
    if (h->plan->by_bucket) return 0;
    if (sharded_whole(h)) {
        if (model_reduce_grad(h->model, e)) return -1;
    } else {
        for (int b = 0; b < zero_buckets(z); b++)
            if (zero_sums(z, b) && bucket_sum(h, b, model_bucket_gradient(h->model, b), e))
                return -1;
        if (reduce_tied(h, e)) return -1;
    }
    if (join_tied(h, e)) return -1;
    for (int b = z->first; h->acc && b < z->end; b++)
        bucket_keep(h, b,
                    model_bucket_gradient(h->model, b) + sharded_own_range(h, b).begin -
                        zero_begin(z, b));
    return 0;
}

/* Shares the units' sums of squares among the stages. Each stage has computed the units of its own
 * buckets. */
static int share_units(struct sharded_state *h, struct err *e)
{
    const struct pipe *p = &h->plan->pipe;
    int64_t cut[JOB_MAX_RANKS + 1];
    if (!h->model->line) return 0;
    for (int i = 0; i <= p->n; i++) cut[i] = zero_first_unit(&h->plan->shards, p->first[i]);
    return comm_all_gather(h->model->line, PURPOSE_GRAD, h->optim.partial + cut[p->at],
                           h->optim.partial, cut, 8, h->model->bounce, e);
}

int sharded_norm(struct sharded_state *h, double *norm, struct err *e)
{
    const struct zero *z = &h->plan->shards;
    if (away_settle(&h->away, e)) return -1;
    for (int b = z->first; b < z->end; b++) {
        const int64_t *cut = z->unit_cut[zero_kind(z, b)];
        double *sums = h->optim.partial + zero_first_unit(z, b);
        if (!h->plan->fused && !h->away.store) {
            const struct optim_part x = sharded_part_of(h, b);
            optim_sums(&h->optim, &x);
        }
        mark_place(h, b);
        if (!sharded_whole(h) &&
            comm_all_gather(h->model->group, PURPOSE_GRAD, sums + cut[h->model->place], sums, cut,
                            8, h->model->bounce, e))
            return -1;
    }
    /* sums over the ranks of parallel.tp, in the order of their indices */
    struct comm *tensor = h->model->tensor;
    double sum;
    if (share_units(h, e) || optim_norm(&h->optim, &sum, e)) return -1;
    if (tensor && comm_sum_f64(tensor, PURPOSE_GRAD, &sum, 1, h->model->bounce, e)) return -1;
    *norm = sqrt(sum);
    return 0;
}

int sharded_update(struct sharded_state *h, const struct optim_rate *r, struct err *e)
{
    const struct zero *z = &h->plan->shards;
    if (h->plan->fused) return away_settle(&h->away, e);
    if (h->away.store && r) begin_update(h, z->first, z->end);
    for (int b = z->first; b < z->end; b++)
        if (bucket_update(h, b, r, e)) return -1;
    if (borrows(h) && take_weights(h, e)) return -1;
    return away_settle(&h->away, e);
}

/* ---- placing --------------------------------------------------------------------------------- */

static void *take(struct sharded_state *h, enum plan_id id, int64_t size)
{
    const struct plan_item *it = &h->plan->item[id];
    if (!it->name) return NULL;
    assert(!it->in_segment && (size < 0 || it->size == size));
    model_note_placed(h->model, it, it->size);
    return h->model->arena + it->offset;
}

void sharded_init(struct sharded_state *h, const struct job_spec *spec, struct model *m, int rank)
{
    const struct plan *p = m->plan;
    const int64_t shard = p->n_shard * 4;
    *h = (struct sharded_state){.plan = p, .model = m, .rank = rank};
    h->master = take(h, PLAN_MASTER, shard);
    h->m = take(h, PLAN_ADAM_M, shard);
    h->v = take(h, PLAN_ADAM_V, shard);
    h->ema = take(h, PLAN_EMA, shard);
    h->acc = take(h, PLAN_GRAD_ACC, shard);
    h->tied = take(h, PLAN_GRAD_TIED, -1);
    tied_init(&h->sends, m);
    h->optim = (struct optim){.spec = spec, .plan = p, .be = m->be, .tensor_rank = m->tensor_rank};
    h->optim.partial = take(h, PLAN_SUMSQ, -1);
    h->optim.mirror = plan_on_host(&p->item[PLAN_SUMSQ], m->arena, m->host);
    away_init(&h->away, m);
    m->buckets = (struct model_buckets){.fetch = bucket_fetch,
                                        .reduce = bucket_reduce,
                                        .arg = h,
                                        .begin = away_has(&h->away, AWAY_GRAD) ? bucket_begin
                                                                               : NULL};
}
