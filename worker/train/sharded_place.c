/* sharded_place.c: computes places from the plan's shards. */
#include "worker/train/sharded_place.h"

#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/model/stored.h"

bool sharded_whole(const struct sharded_state *h)
{
    return h->plan->zero == 0;
}

struct zero_range sharded_own_range(const struct sharded_state *h, int b)
{
    const struct zero *z = &h->plan->shards;
    const int64_t begin = zero_begin(z, b);
    assert(zero_holds(z, b));
    if (sharded_whole(h)) return (struct zero_range){begin, begin + zero_trained(z, b)};
    return zero_range(z, b, h->model->place);
}

struct zero_range sharded_frozen_range(const struct sharded_state *h, int b)
{
    const struct zero *z = &h->plan->shards;
    const int64_t begin = zero_begin(z, b);
    if (h->plan->zero == 3) return zero_frozen_range(z, b, h->model->place);
    return (struct zero_range){begin + zero_trained(z, b), begin + zero_len(z, b)};
}

int64_t sharded_own_at(const struct sharded_state *h, int b)
{
    const struct zero *z = &h->plan->shards;
    return sharded_whole(h) ? zero_grad_local(z, b) : zero_at(z, b, h->model->place);
}

char *sharded_trained_of(const struct sharded_state *h, int b, int64_t index)
{
    assert(h->plan->zero < 3);
    return stored_section(h->model, b) + index * dtype_size(h->model->dtype);
}

char *sharded_own_params(const struct sharded_state *h, int b)
{
    const struct zero *z = &h->plan->shards;
    if (h->plan->zero == 3) return (char *)h->model->params + zero_held_at(z, b, h->model->place);
    return sharded_trained_of(h, b, sharded_own_range(h, b).begin - zero_begin(z, b));
}

char *sharded_frozen_params(const struct sharded_state *h, int b)
{
    const struct zero *z = &h->plan->shards;
    if (h->plan->zero == 3)
        return (char *)h->model->params + zero_frozen_held_at(z, b, h->model->place);
    assert(!h->model->shape.quant);
    return sharded_trained_of(h, b, zero_trained(z, b));
}

const float *sharded_gradient_of(const struct sharded_state *h, int b)
{
    const struct zero *z = &h->plan->shards;
    const int64_t from = sharded_own_range(h, b).begin;
    if (h->acc) return h->acc + sharded_own_at(h, b);
    return model_bucket_gradient(h->model, b) + (from - zero_begin(z, b));
}

struct optim_part sharded_part_of(const struct sharded_state *h, int b)
{
    const struct zero_range r = sharded_own_range(h, b);
    const int64_t at = sharded_own_at(h, b);
    struct optim_part x = {.bucket = b, .begin = r.begin, .end = r.end};
    void *params = sharded_own_params(h, b);
    x.p = h->master ? h->master + at : params;
    x.rounded = h->master ? params : NULL;
    const bool shifted = mutant_on(MUTANT_MOMENTS_SHIFTED) && h->plan->n_ranks > 1;
    x.m = h->m ? h->m + (shifted ? 0 : at) : NULL;
    x.v = h->v ? h->v + (shifted ? 0 : at) : NULL;
    x.g = sharded_gradient_of(h, b);
    return x;
}

int64_t sharded_away_at(const struct sharded_state *h, enum away_array which, int b, int64_t offset)
{
    const struct zero *z = &h->plan->shards;
    const bool shifted = mutant_on(MUTANT_MOMENTS_SHIFTED) && h->plan->n_ranks > 1;
    if (which == AWAY_GRAD && plan_adds_here(h->plan))
        return zero_grad_local(z, b) + offset - zero_begin(z, b);
    if (shifted && (which == AWAY_M || which == AWAY_V))
        return offset - sharded_own_range(h, b).begin;
    return sharded_own_at(h, b) + offset - sharded_own_range(h, b).begin;
}

bool sharded_next_piece(const struct sharded_state *h, struct zero_range *left,
                        struct zero_range *piece)
{
    *piece = *left;
    if (piece->end - piece->begin > h->plan->offload.piece)
        piece->end = piece->begin + h->plan->offload.piece;
    left->begin = piece->end;
    return piece->begin < piece->end;
}
