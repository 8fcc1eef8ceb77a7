#include "worker/plan/memory.h"

#include "api/core/mem.h"
#include "worker/plan/placer.h"

#define LOGITS_BYTES ((int64_t)64 << 20) /* auto loss chunk: bytes of logits, at most */
#define SIZE_LIMIT   ((int64_t)1 << 62)

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

/* Elements of one rank's gradient buffer. */
static int64_t gradient_size(struct placer *b)
{
    struct plan *p = b->p;
    const int64_t own_embed = p->rank_bits && b->m->tied ? p->shards.len[ZERO_EMBED] : 0;
    if (!trains(p)) return 0;
    if (p->by_bucket) return zero_window(&p->shards);
    return mem_round(p->n_params + own_embed, 16 * plan_sum_ranks(p));
}

/* The largest part of the embedding that a rank sums. */
static int64_t embed_part(const struct plan *p)
{
    const struct zero *z = &p->shards;
    int64_t most = p->zero ? 0 : z->len[ZERO_EMBED];
    for (int w = 0; p->zero && w < z->W; w++)
        most = max64(most, z->cut[ZERO_EMBED][w + 1] - z->cut[ZERO_EMBED][w]);
    return most;
}

static void put_parameters(struct placer *b, const struct memory_choice *c)
{
    struct plan *p = b->p;
    const struct model_shape *m = b->m;
    int levels = 0;
    while ((1 << levels) < b->sh.n_sums) levels++;
    p->n_params = param_count(m);
    zero_init(&p->shards, m, p->zero_group, plan_sum_ranks(p) / p->zero_group);
    p->n_shard = p->zero ? p->shards.shard_max : p->n_params;
    p->n_grad = gradient_size(b);
    p->tree_size = trains(p) && levels ? memory_largest_gradient(m, p->mlp_chunk > 0) : 0;
    const int64_t flat = placer_times(b, p->n_shard, 4), act = precision_size(p->precision);
    const int64_t params = placer_times(b, p->zero == 3 ? p->n_shard : p->n_params, act);
    const int64_t window = placer_times(b, zero_window(&p->shards), act);
    const bool trained = p->kind == JOB_TRAIN, master = trained && p->precision != PRECISION_FP32,
               acc = p->by_bucket ? !p->fused : trained && p->rank_bits && p->micro_batches > 1;
    const int64_t n_sums = zero_units(&p->shards);
    const struct placer_want all[] = {
        {PLAN_PARAMS, "params", PLAN_WEIGHTS, params, !c->reference || c->weights},
        {PLAN_FETCHED, "fetched_params", PLAN_WEIGHTS, window, p->zero == 3},
        {PLAN_MASTER, "master_params", PLAN_OPTIMIZER, flat, master},
        {PLAN_GRAD, "grad", PLAN_GRADIENTS, placer_times(b, p->n_grad, 4), trains(p)},
        {PLAN_GRAD_ACC, "grad_acc", PLAN_GRADIENTS, flat, acc || c->collect},
        {PLAN_GRAD_TIED, "grad_tied", PLAN_GRADIENTS, placer_times(b, embed_part(p), 4),
         p->by_bucket && m->tied},
        {PLAN_ADAM_M, "adam_m", PLAN_OPTIMIZER, flat, trained},
        {PLAN_ADAM_V, "adam_v", PLAN_OPTIMIZER, flat, trained},
        {PLAN_EMA, "ema", PLAN_OPTIMIZER, flat, p->ema},
        {PLAN_SUMSQ, "sumsq", PLAN_OPTIMIZER, n_sums * 8, trained, .host = HOST_TOO},
        {PLAN_TREE, "grad_tree", PLAN_WORKSPACE, placer_times(b, p->tree_size, 4), levels},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}

/* At most LOGITS_BYTES of logits, at most a sum chunk: chunk borders restart at each of those, and
 * under "ranks" neither number depends on the number of ranks. */
static int64_t pick_chunk(const struct placer *b, int64_t wanted)
{
    int64_t n = wanted > 0 ? wanted : LOGITS_BYTES / (4 * max64(b->m->vocab, 1));
    if (n < 1) n = 1;
    return n < b->sh.sum_len ? n : b->sh.sum_len;
}

/* Blocks of new tokens go round the ranks; one row more, where the ranks whose turn it is not put
 * the key and value that they compute and drop. */
static int64_t cache_rows(const struct plan *p)
{
    if (p->kind != JOB_GENERATE || p->grid[0]) return 0; /* a diffusion model appends nothing */
    const int64_t n_blocks = (p->n_decode + CACHE_BLOCK - 1) / CACHE_BLOCK;
    return p->T + (n_blocks + p->sp - 1) / p->sp * CACHE_BLOCK + 1;
}

static int init_shard(struct placer *b, struct err *e)
{
    struct plan *p = b->p;
    if (p->grid[0])
        return shard_init_units(&b->sh, p->grid[0], p->grid[1], p->sp, 0, p->rank_bits, e);
    return shard_init(&b->sh, p->S, p->sp, 0, p->layout, p->rank_bits, e);
}

int memory_place(struct plan *p, const struct memory_choice *c, struct err *e)
{
    struct placer b = {.p = p, .m = c->shape, .spec = c->spec};
    if (init_shard(&b, e)) return -1;
    p->T = b.sh.T;
    p->loss_chunk = pick_chunk(&b, c->wanted_chunk);
    if (p->mlp_chunk > b.sh.sum_len) p->mlp_chunk = b.sh.sum_len;
    p->n_decode = p->kind == JOB_GENERATE && !p->grid[0] ? c->n_decode : 0;
    p->cache_rows = cache_rows(p);
    for (int i = 0; i < PLAN_ID_N; i++) p->item[i] = (struct plan_item){0};
    for (int i = 0; i < PLAN_CLASS_N; i++) p->class_size[i] = 0;
    put_parameters(&b, c);
    memory_program(&b, c->reference);
    memory_infer(&b);
    if (b.overflow)
        return err_set(e, ERR_DOES_NOT_FIT, "the model and sequence need more than 2^56 bytes");
    p->arena_size = mem_round(b.arena, PLAN_PAGE);
    p->segment_size = mem_round(b.segment, PLAN_PAGE);
    p->host_size = mem_round(b.host, PLAN_PAGE);
    p->rounding = p->arena_size + p->segment_size;
    for (int i = 0; i < PLAN_CLASS_N; i++) p->rounding -= p->class_size[i];
    return 0;
}
