/* sharded_io.c: writes and reads the parts of arrays that this rank has, for files, and draws
 * random weights. */
#include "api/core/assert.h"
#include "worker/model/host_copy.h"
#include "worker/model/stored.h"
#include "worker/train/sharded_place.h"

/* Returns the intersection of a range and [offset, offset + n). */
static struct zero_range meet(struct zero_range r, int64_t offset, int64_t n)
{
    if (r.begin < offset) r.begin = offset;
    if (r.end > offset + n) r.end = offset + n;
    if (r.end < r.begin) r.end = r.begin;
    return r;
}

static enum away_array array_of(enum sharded_array which)
{
    return which == SHARDED_WEIGHTS ? AWAY_MASTER
           : which == SHARDED_M     ? AWAY_M
           : which == SHARDED_V     ? AWAY_V
           : which == SHARDED_EMA   ? AWAY_EMA
                                    : AWAY_GRAD;
}

/* Writes a range of an array to the store. Weights are also the first moving average. */
static void write_away(struct sharded_state *h, enum sharded_array which, int b,
                       const struct zero_range *r, const float *x)
{
    const enum away_array to[] = {array_of(which),
                                  which == SHARDED_WEIGHTS ? AWAY_EMA : array_of(which)};
    for (int i = 0; i < (which == SHARDED_WEIGHTS ? 2 : 1); i++)
        if (away_has(&h->away, to[i]))
            away_write(&h->away, to[i], sharded_away_at(h, to[i], b, r->begin), x,
                       r->end - r->begin);
}

static void write_bucket(struct sharded_state *h, enum sharded_array which, int b,
                         const struct zero_range *r, const float *x)
{
    struct be *be = h->model->be;
    const int64_t n = r->end - r->begin, skip = r->begin - sharded_own_range(h, b).begin;
    const int64_t at = sharded_own_at(h, b) + skip;
    if (h->away.store) {
        write_away(h, which, b, r, x);
        return;
    }
    if (which != SHARDED_WEIGHTS) {
        host_copy_in(be, DT_F32,
                     (which == SHARDED_M   ? h->m
                      : which == SHARDED_V ? h->v
                                           : h->ema) +
                         at,
                     x, n);
        return;
    }
    if (h->ema) host_copy_in(be, DT_F32, h->ema + at, x, n);
    if (h->master) host_copy_in(be, DT_F32, h->master + at, x, n);
}

/* Writes the weights of a range that this rank has. The first element of the range is stored at
 * `to`. */
static void write_range(struct sharded_state *h, struct zero_range all, char *to, int64_t offset,
                        int64_t n, const float *x)
{
    const enum dtype dtype = h->model->dtype;
    const struct zero_range r = meet(all, offset, n);
    if (r.begin < r.end)
        host_copy_in(h->model->be, dtype, to + (r.begin - all.begin) * dtype_size(dtype),
                     x + (r.begin - offset), r.end - r.begin);
}

/* Writes weights to model->params. Under zero 3 only the rank's own shard is written. */
static void write_params(struct sharded_state *h, int b, int64_t offset, int64_t n, const float *x)
{
    const struct zero *z = &h->plan->shards;
    const int64_t begin = zero_begin(z, b);
    const struct zero_range all = {begin, begin + zero_len(z, b)}, r = meet(all, offset, n);
    if (h->model->shape.quant) {
        stored_put(h->model, r.begin, r.end - r.begin, x + (r.begin - offset));
    } else if (h->plan->zero < 3) {
        write_range(h, all, sharded_trained_of(h, b, 0), offset, n, x);
    } else {
        write_range(h, sharded_own_range(h, b), sharded_own_params(h, b), offset, n, x);
        write_range(h, sharded_frozen_range(h, b), sharded_frozen_params(h, b), offset, n, x);
    }
}

void sharded_write(struct sharded_state *h, enum sharded_array which, int64_t offset, int64_t n,
                   const float *x)
{
    const struct zero *z = &h->plan->shards;
    assert(which != SHARDED_GRAD && n >= 1);
    for (int b = zero_bucket(z, offset); b <= zero_bucket(z, offset + n - 1); b++) {
        if (!zero_holds(z, b)) continue;
        if (which == SHARDED_WEIGHTS) write_params(h, b, offset, n, x);
        const struct zero_range r = meet(sharded_own_range(h, b), offset, n);
        if (zero_owns(z, b) && r.begin < r.end)
            write_bucket(h, which, b, &r, x + (r.begin - offset));
    }
}

enum weights_id sharded_blocks(const struct sharded_state *h, int64_t offset, int64_t n)
{
    return stored_blocks(h->model, offset, n);
}

void sharded_write_blocks(struct sharded_state *h, int64_t offset, int64_t n, const uint8_t *blocks)
{
    const struct zero *z = &h->plan->shards;
    const int b = zero_bucket(z, offset);
    struct zero_range r = {offset, offset + n};
    assert(!h->plan->ema);
    if (!zero_holds(z, b)) return;
    if (h->plan->zero == 3) r = meet(sharded_frozen_range(h, b), offset, n);
    if (r.begin < r.end)
        stored_put_blocks(h->model, r.begin, r.end - r.begin,
                          blocks + quant_row(sharded_blocks(h, offset, n), r.begin - offset));
}

static const float *held(const struct sharded_state *h, enum sharded_array which, int b)
{
    const struct optim_part x = sharded_part_of(h, b);
    if (which == SHARDED_EMA) return h->ema + sharded_own_at(h, b);
    return which == SHARDED_WEIGHTS ? x.p
           : which == SHARDED_M     ? x.m
           : which == SHARDED_V     ? x.v
                                    : x.g;
}

/* Returns the range of frozen elements of bucket b that this rank contributes when an array is
 * collected. Under zero 1 and 2 every rank of a group has all frozen elements. It then contributes
 * the range that it would have under zero 3. */
static struct zero_range given_range(const struct sharded_state *h, int b)
{
    return sharded_whole(h) ? sharded_frozen_range(h, b)
                            : zero_frozen_range(&h->plan->shards, b, h->model->place);
}

/* Reads frozen weights. They are read from model->params, because no other array has them. */
static void read_frozen(const struct sharded_state *h, int b, int64_t offset, int64_t n, float *out)
{
    const struct zero_range all = sharded_frozen_range(h, b),
                            r = meet(given_range(h, b), offset, n);
    if (r.begin < r.end && h->model->shape.quant)
        stored_get(h->model, r.begin, r.end - r.begin, out + (r.begin - offset));
    else if (r.begin < r.end)
        host_copy_out(h->model->be, h->model->dtype,
                      sharded_frozen_params(h, b) +
                          (r.begin - all.begin) * dtype_size(h->model->dtype),
                      out + (r.begin - offset), r.end - r.begin);
}

int sharded_read(const struct sharded_state *h, enum sharded_array which, int64_t offset, int64_t n,
                 float *out, struct err *e)
{
    const struct zero *z = &h->plan->shards;
    struct be *be = h->model->be;
    assert(n >= 1 && !(which == SHARDED_GRAD && h->plan->fused));
    for (int b = zero_bucket(z, offset); b <= zero_bucket(z, offset + n - 1); b++) {
        if (!zero_owns(z, b)) continue;
        if (which == SHARDED_WEIGHTS || which == SHARDED_EMA) read_frozen(h, b, offset, n, out);
        const struct zero_range r = meet(sharded_own_range(h, b), offset, n);
        if (r.begin == r.end) continue;
        if (away_has(&h->away, array_of(which))) {
            if (away_read(&h->away, array_of(which),
                          sharded_away_at(h, array_of(which), b, r.begin), out + (r.begin - offset),
                          r.end - r.begin, e))
                return -1;
            continue;
        }
        const float *from = held(h, which, b) + (r.begin - sharded_own_range(h, b).begin);
        host_copy_out(be, DT_F32, from, out + (r.begin - offset), r.end - r.begin);
    }
    return be->ops->sync ? be->ops->sync(be, e) : 0;
}

static void random_part(struct sharded_state *h, int64_t seed, int64_t from, enum dtype dtype,
                        void *to, int64_t n)
{
    if (n)
        model_random_part(h->model->be, &h->model->shape, h->model->tensor_rank, seed, from,
                          tensor_of(dtype, to, 1, n, n));
}

/* Clears this rank's own part of offloaded moments. The window has zeros, which leave for each
 * piece. */
static void clear_away(struct sharded_state *h, int b)
{
    struct zero_range left = sharded_own_range(h, b), piece;
    const float *zeros = h->away.window[0][AWAY_M];
    while (sharded_next_piece(h, &left, &piece))
        for (enum away_array a = AWAY_M; a <= AWAY_V; a++)
            away_send(&h->away, a, sharded_away_at(h, a, b, piece.begin), zeros,
                      piece.end - piece.begin);
}

int sharded_clear_moments(struct sharded_state *h, struct err *e)
{
    const struct zero *z = &h->plan->shards;
    const struct be_ops *ops = h->model->be->ops;
    if (!h->away.store) {
        ops->fill(h->model->be, h->m, h->plan->n_shard, 0);
        ops->fill(h->model->be, h->v, h->plan->n_shard, 0);
        return 0;
    }
    ops->fill(h->model->be, h->away.window[0][AWAY_M], h->plan->offload.piece, 0);
    for (int b = z->first; b < z->end; b++)
        if (zero_trained(z, b)) clear_away(h, b);
    return away_settle(&h->away, e);
}

/* Writes random weights to this rank's own part of an array of the store. */
static void random_away(struct sharded_state *h, int64_t seed, int b, enum away_array which)
{
    struct zero_range left = sharded_own_range(h, b), piece;
    while (away_has(&h->away, which) && sharded_next_piece(h, &left, &piece)) {
        const int64_t n = piece.end - piece.begin;
        float *window = h->away.window[0][which];
        random_part(h, seed, piece.begin, DT_F32, window, n);
        away_send(&h->away, which, sharded_away_at(h, which, b, piece.begin), window, n);
        away_settle(&h->away, NULL);
    }
}

void sharded_random(struct sharded_state *h, int64_t seed)
{
    const struct zero *z = &h->plan->shards;
    const bool whole = h->plan->zero < 3 || h->model->shape.quant;
    if (whole) model_random(h->model, seed);
    for (int b = 0; b < zero_buckets(z); b++) {
        if (!zero_holds(z, b)) continue;
        const struct zero_range r = sharded_own_range(h, b), rest = sharded_frozen_range(h, b);
        const int64_t at = sharded_own_at(h, b), len = r.end - r.begin;
        const enum dtype dtype = h->model->dtype;
        const bool own = zero_owns(z, b);
        if (own && h->master) random_part(h, seed, r.begin, DT_F32, h->master + at, len);
        if (own && h->ema) random_part(h, seed, r.begin, DT_F32, h->ema + at, len);
        if (own) random_away(h, seed, b, AWAY_MASTER);
        if (own) random_away(h, seed, b, AWAY_EMA);
        if (whole) continue;
        random_part(h, seed, r.begin, dtype, sharded_own_params(h, b), len);
        random_part(h, seed, rest.begin, dtype, sharded_frozen_params(h, b), rest.end - rest.begin);
    }
}
