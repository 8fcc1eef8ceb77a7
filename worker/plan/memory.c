/* memory.c: lists the parameters, gradients and optimizer state, chooses the loss chunk, and
 * places all items one after another. */
#include "worker/plan/memory.h"

#include "api/core/mem.h"
#include "worker/plan/lent.h"
#include "worker/plan/paged.h"

/* LOGITS_BYTES and LOSS_ROWS limit the rows of a loss chunk if memory.loss_chunk_tokens is 0
 * (auto). The logits of a chunk have at most LOGITS_BYTES. In a training, a chunk may have up to
 * LOSS_ROWS rows even if their logits have more bytes. */
#define LOGITS_BYTES ((int64_t)64 << 20) /* bytes of logits */
#define LOSS_ROWS    512                 /* rows, in a training */
/* the number of rows of a loss chunk is a multiple of this number */
#define LOSS_STEP  32
#define SIZE_LIMIT ((int64_t)1 << 62)

int64_t placer_times(struct placer *b, int64_t x, int64_t y)
{
    int64_t r;
    if (mem_mul(x, y, &r) == 0 && r < SIZE_LIMIT / 64) return r;
    b->overflow = true;
    return 0;
}

void placer_put(struct placer *b, const struct placer_want *w)
{
    if (!w->n || !w->size) return;
    struct plan_item *it = &b->p->item[w->id];
    const bool apart = b->p->own_memory, in_host = apart && w->host == HOST_ALONE;
    int64_t *at = w->in_segment ? &b->segment : in_host ? &b->host : &b->arena;
    const int64_t stride = mem_round(w->size, MEM_ALIGN);
    *it = (struct plan_item){.name = w->name, .cls = w->cls, .in_segment = w->in_segment};
    it->in_host = in_host;
    it->mirrored = apart && w->host == HOST_TOO;
    it->mirror = it->mirrored ? b->host : 0;
    it->offset = *at;
    it->stride = w->n > 1 ? stride : 0;
    it->size = placer_times(b, w->n - 1, stride) + w->size;
    if (!in_host) b->p->class_size[w->cls] += it->size;
    if (mem_add(*at, mem_round(it->size, MEM_ALIGN), at)) b->overflow = true;
    if (it->mirrored && mem_add(b->host, mem_round(it->size, MEM_ALIGN), &b->host))
        b->overflow = true;
}

static bool trains(const struct plan *p)
{
    return p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the number of elements of one rank's gradient buffer. */
static int64_t gradient_size(const struct plan *p)
{
    const bool apart = p->rank_bits && p->shards.tied_grads && p->pp == 1;
    const int64_t own_embed = apart ? p->shards.trained[ZERO_EMBED] : 0;
    if (!trains(p)) return 0;
    if (p->by_bucket) return zero_grad_window(&p->shards);
    return mem_round(p->n_trained + own_embed, 16 * plan_sum_ranks(p));
}

/* Returns the number of elements of the embedding's largest part that a rank sums. */
static int64_t embed_part(const struct plan *p)
{
    const struct zero *z = &p->shards;
    int64_t most = p->zero ? 0 : z->trained[ZERO_EMBED];
    for (int w = 0; p->zero && w < z->W; w++)
        most = max64(most, z->cut[ZERO_EMBED][w + 1] - z->cut[ZERO_EMBED][w]);
    return most;
}

/* Tells whether this stage has room for the head's part of a tied embedding's gradient. A stage
 * that receives the part needs the room, and so does a stage that keeps the part until it is
 * sent. */
static bool keeps_tied(const struct plan *p)
{
    if (!p->shards.tied_grads || !trains(p)) return false;
    if (p->pp == 1) return p->by_bucket && !plan_adds_here(p);
    return pipe_first(&p->pipe) || (p->by_bucket && p->shards.borrows);
}

void plan_set_stage(struct plan *p, int stage)
{
    struct zero *z = &p->shards;
    p->pipe.at = stage;
    zero_set_stage(z, pipe_begin(&p->pipe), pipe_end(&p->pipe));
    z->halves = p->offload.optimizer && !p->fused;
    p->slots = p->pp > 1 ? pipe_kept(&p->pipe, p->micro_batches) : 1;
    p->n_params = zero_held(z);
    p->n_trained = zero_grad_held(z);
    p->n_shard = p->zero ? z->shard_max : zero_grad_owned(z);
    p->n_grad = gradient_size(p);
}

/* Returns how many messages with a tied embedding's gradient may be sent and not yet received.
 * Only the last of several stages sends them, so the result is 0 on all other stages. */
static int64_t tied_sends(const struct plan *p)
{
    return trains(p) && p->shards.borrows && p->shards.tied_grads ? plan_tied_sends(p) : 0;
}

int64_t plan_weights_size(const struct plan *p)
{
    return p->zero == 3 ? zero_held_max(&p->shards) : zero_size(&p->shards);
}

static void put_parameters(struct placer *b, const struct memory_choice *c)
{
    struct plan *p = b->p;
    const struct model_shape *m = b->m;
    int levels = 0;
    while ((1 << levels) < b->sh.n_sums) levels++;
    zero_init(&p->shards, m, p->zero_group, plan_sum_ranks(p) / p->zero_group,
              precision_size(p->precision));
    plan_set_stage(p, p->pipe.at);
    p->tree_size = trains(p) && levels ? memory_largest_gradient(m, p) : 0;
    const int64_t flat = placer_times(b, p->n_shard, 4);
    /* checks only for overflow; weights in blocks need less memory */
    placer_times(b, p->n_params, p->shards.unit);
    const int64_t params = b->overflow ? 0 : plan_weights_size(p);
    const int64_t window = zero_window(&p->shards);
    const bool trained = p->kind == JOB_TRAIN, here = trained && !p->offload.optimizer,
               master = here && p->precision != PRECISION_FP32,
               acc = p->offload.optimizer ? false
                     : p->by_bucket       ? !p->fused
                                          : trained && p->rank_bits && p->micro_batches > 1;
    const int64_t n_sums = zero_units(&p->shards);
    const struct placer_want all[] = {
        {PLAN_PARAMS, "params", PLAN_WEIGHTS, params, !c->reference || c->weights},
        {PLAN_FETCHED, "fetched_params", PLAN_WEIGHTS, window, p->zero == 3},
        {PLAN_MASTER, "master_params", PLAN_OPTIMIZER, flat, master},
        {PLAN_GRAD, "grad", PLAN_GRADIENTS, placer_times(b, p->n_grad, 4),
         trains(p) && !lent_may_lie_over(b)},
        {PLAN_GRAD_ACC, "grad_acc", PLAN_GRADIENTS, flat, acc || c->collect},
        {PLAN_GRAD_TIED, "grad_tied", PLAN_GRADIENTS, placer_times(b, embed_part(p), 4),
         keeps_tied(p)},
        {PLAN_TIED_SEND, "tied_send", PLAN_GRADIENTS, placer_times(b, embed_part(p), 4),
         tied_sends(p), true},
        {PLAN_ADAM_M, "adam_m", PLAN_OPTIMIZER, flat, here},
        {PLAN_ADAM_V, "adam_v", PLAN_OPTIMIZER, flat, here},
        {PLAN_EMA, "ema", PLAN_OPTIMIZER, flat, here && p->ema},
        {PLAN_UPDATE, "update_window", PLAN_OPTIMIZER, plan_away_window(p) * 4,
         p->offload.optimizer},
        {PLAN_SUMSQ, "sumsq", PLAN_OPTIMIZER, n_sums * 8, trained, .host = HOST_TOO},
        {PLAN_TREE, "grad_tree", PLAN_WORKSPACE, placer_times(b, p->tree_size, 4), levels},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}

/* Returns the largest number of rows of a loss chunk. In a training, each chunk reads and writes
 * the gradient of the head once. This moves 8 bytes for each element, whereas the products compute
 * 6 flops for each element and row. So a chunk with few rows would wait for memory. Therefore a
 * chunk may have LOSS_ROWS rows if the logits of LOSS_ROWS rows are not larger than the gradient
 * of the head. */
static int64_t chunk_limit(const struct placer *b)
{
    int64_t n = LOGITS_BYTES / (4 * max64(family_slice(b->m).vocab, 1));
    const int64_t width = b->m->width;
    if (trains(b->p)) n = max64(n, width < LOSS_ROWS ? width : LOSS_ROWS);
    return n < LOSS_STEP ? max64(n, 1) : n / LOSS_STEP * LOSS_STEP;
}

/* Returns the rows of a loss chunk. A sum chunk is divided into as few loss chunks as the limit
 * allows. All of them except the last have the same length. Each sum chunk begins with a new loss
 * chunk, and under "ranks" the rows of a loss chunk do not depend on the number of ranks. */
static int64_t pick_chunk(const struct placer *b, int64_t wanted)
{
    const int64_t len = b->sh.sum_len, most = wanted > 0 ? wanted : chunk_limit(b);
    if (most >= len) return len;
    if (wanted > 0 || most < LOSS_STEP) return most;
    const int64_t n_chunks = (len + most - 1) / most;
    return mem_round((len + n_chunks - 1) / n_chunks, LOSS_STEP);
}

/* Returns the number of rows of a cache: the rows of the prompt, the blocks of new tokens that
 * this rank stores, and one more row. In this row a rank computes new keys and values that it does
 * not keep. With pages, returns the number of rows of the pool and of the rows that a pass
 * computes. */
static int64_t cache_rows(const struct plan *p)
{
    if (p->paged) return p->n_pages * CACHE_PAGE + max64(p->T, p->batch);
    if (p->kind != JOB_GENERATE || p->grid[0]) return 0; /* a diffusion model appends nothing */
    const int64_t n_blocks = (p->n_decode + CACHE_BLOCK - 1) / CACHE_BLOCK;
    return p->T + (n_blocks + p->sp - 1) / p->sp * CACHE_BLOCK + 1;
}

/* Returns the bytes of a sample's routes. They are the ids of the experts that its rows choose in
 * n_layers layers, int32 [n_layers, rows, k]. If `follow` is set, there is also room for the rows'
 * own choice in one layer, and for the logits of one row, fp32 [E]. */
static int64_t routes_size(const struct model_shape *m, int64_t n_layers, int64_t rows, bool follow)
{
    const int64_t k = m->experts_per_token, E = m->n_experts;
    return 4 * (n_layers * rows * k + (follow ? rows * k + E : 0));
}

/* Places the experts that rows choose in a proof. These are the rows of this rank or, in the
 * reference, all rows. */
static int put_routes(struct placer *b, const struct memory_choice *c, struct err *e)
{
    struct plan *p = b->p;
    struct shard sh;
    if (!c->reference && !c->proven) return 0;
    if (b->m->n_experts <= b->m->experts_per_token) return 0;
    if (plan_shard(p, c->reference ? p->S : plan_verify_seq(c->spec, p), 0, &sh, e)) return -1;
    const int64_t size = routes_size(b->m, pipe_layers(&p->pipe), sh.T, c->reference);
    placer_put(b, &(struct placer_want){PLAN_ROUTES, "routes", PLAN_DATA, size,
                                        c->reference ? c->samples : p->slots, .host = HOST_ALONE});
    return 0;
}

/* Makes the segment as large as the segment of the largest stage. The stage of this plan does not
 * use the additional room. */
static void put_rest(struct placer *b, int64_t segment_size)
{
    const int64_t n = segment_size - b->segment;
    if (mem_round(b->segment, PLAN_PAGE) < segment_size)
        placer_put(b, &(struct placer_want){PLAN_PIPE_REST, "pipe_rest", PLAN_RING, n, 1, true});
}

int memory_place(struct plan *p, const struct memory_choice *c, struct err *e)
{
    struct placer b = {.p = p, .m = c->shape, .spec = c->spec};
    if (plan_shard(p, p->S, 0, &b.sh, e)) return -1;
    p->T = b.sh.T;
    p->loss_chunk = pick_chunk(&b, c->wanted_chunk);
    if (p->mlp_chunk > b.sh.sum_len) p->mlp_chunk = b.sh.sum_len;
    p->n_decode = p->kind == JOB_GENERATE && !p->grid[0] ? c->n_decode : 0;
    p->batch = p->n_decode && c->batch > 1 ? c->batch : 1;
    paged_pool(c->spec, p);
    p->cache_rows = cache_rows(p);
    for (int i = 0; i < PLAN_ID_N; i++) p->item[i] = (struct plan_item){0};
    for (int i = 0; i < PLAN_CLASS_N; i++) p->class_size[i] = 0;
    if (p->kind == JOB_MERGE) {
        memory_merge(&b);
    } else {
        put_parameters(&b, c);
        memory_program(&b, c->reference);
        memory_infer(&b);
        if (put_routes(&b, c, e)) return -1;
        put_rest(&b, c->segment_size);
    }
    if (b.overflow)
        return err_set(e, ERR_DOES_NOT_FIT, "the model and sequence need more than 2^56 bytes");
    p->arena_size = mem_round(b.arena, PLAN_PAGE);
    p->segment_size = mem_round(b.segment, PLAN_PAGE);
    p->host_size = mem_round(b.host, PLAN_PAGE);
    p->rounding = p->arena_size + p->segment_size;
    for (int i = 0; i < PLAN_CLASS_N; i++) p->rounding -= p->class_size[i];
    return 0;
}
