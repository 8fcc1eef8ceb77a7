#include "worker/plan/memory.h"

#include <assert.h>
#include "api/core/mem.h"
#include "worker/plan/placer.h"
#include "worker/plan/attention.h"
#include "worker/plan/volume.h"

#define LOGITS_BYTES ((int64_t)64 << 20) /* auto loss chunk: at most so much of logits */
#define SIZE_LIMIT   ((int64_t)1 << 62)

int64_t placer_times(struct placer *b, int64_t x, int64_t y)
{
    int64_t r;
    if (mem_mul(x, y, &r) == 0 && r < SIZE_LIMIT / 64) return r;
    b->overflow = true;
    return 0;
}

static int64_t floats(struct placer *b, int64_t rows, int64_t cols)
{
    return placer_times(b, placer_times(b, rows, cols), 4);
}

/* Of the model's precision. */
static int64_t acts(struct placer *b, int64_t rows, int64_t cols)
{
    return placer_times(b, placer_times(b, rows, cols), precision_size(b->p->precision));
}

void placer_put(struct placer *b, const struct placer_want *w)
{
    if (!w->n || !w->size) return;
    struct plan_item *it = &b->p->item[w->id];
    int64_t *at = w->in_segment ? &b->segment : &b->arena;
    const int64_t stride = mem_round(w->size, MEM_ALIGN);
    *it = (struct plan_item){.name = w->name, .cls = w->cls, .in_segment = w->in_segment};
    it->offset = *at;
    it->stride = w->n > 1 ? stride : 0;
    it->size = placer_times(b, w->n - 1, stride) + w->size;
    b->p->class_size[w->cls] += it->size;
    if (mem_add(*at, mem_round(it->size, MEM_ALIGN), at)) b->overflow = true;
}

/* One of the buffers that share PLAN_WORK, `at` bytes behind its start. */
static int64_t put_shared(struct placer *b, enum plan_id id, const char *name, int64_t at,
                          int64_t size)
{
    const struct plan_item *work = &b->p->item[PLAN_WORK];
    if (!size) return at;
    b->p->item[id] = (struct plan_item){.name = name,
                                        .cls = PLAN_WORKSPACE,
                                        .shared = true,
                                        .offset = work->offset + at,
                                        .size = size};
    return at + mem_round(size, MEM_ALIGN);
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
    zero_init(&p->shards, m, plan_sum_ranks(p));
    p->n_shard = p->zero ? p->shards.shard_max : p->n_params;
    p->n_grad = gradient_size(b);
    p->tree_size = trains(p) && levels ? memory_largest_gradient(m) : 0;
    const int64_t flat = placer_times(b, p->n_shard, 4), act = precision_size(p->precision);
    const int64_t params = placer_times(b, p->zero == 3 ? p->n_shard : p->n_params, act);
    const int64_t window = placer_times(b, zero_window(&p->shards), act);
    const bool trained = p->kind == JOB_TRAIN, master = trained && p->precision != PRECISION_FP32,
               acc = p->by_bucket ? !p->fused : trained && p->rank_bits && p->micro_batches > 1;
    const int64_t n_sums = zero_units(&p->shards) +
                           (p->shards.largest_unit + PLAN_SUMSQ_BLOCK - 1) / PLAN_SUMSQ_BLOCK;
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
        {PLAN_SUMSQ, "sumsq", PLAN_OPTIMIZER, n_sums * 8, trained},
        {PLAN_TREE, "grad_tree", PLAN_WORKSPACE, placer_times(b, p->tree_size, 4), levels},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}

/* How many instances of each activation the recompute mode keeps. */
static void put_activations(struct placer *b)
{
    struct plan *p = b->p;
    const struct model_shape *m = b->m;
    const int64_t T = p->T, L = m->n_layers, HD = m->n_heads * m->head_dim;
    const int64_t kv = acts(b, T, 2 * m->n_kv_heads * m->head_dim);
    const bool none = trains(p) && p->recompute == RECOMPUTE_NONE;
    const bool selective = trains(p) && p->recompute == RECOMPUTE_SELECTIVE;
    const int64_t all = none ? L : 1, attn = none || selective ? L : 1;
    const bool cached = p->kind == JOB_GENERATE;
    const int64_t cache = acts(b, p->cache_rows, 2 * m->n_kv_heads * m->head_dim);
    const struct placer_want list[] = {
        {PLAN_X, "layer_input", PLAN_ACTIVATIONS, acts(b, T, m->width), trains(p) ? L + 1 : 1},
        {PLAN_Q, "q", PLAN_ACTIVATIONS, acts(b, T, HD), all},
        {PLAN_KV, cached ? "kv_cache" : "kv", cached ? PLAN_CACHE : PLAN_ACTIVATIONS,
         cached ? cache : kv, cached ? L : all},
        {PLAN_O, "attn_out", PLAN_ACTIVATIONS, acts(b, T, HD), attn},
        {PLAN_LSE, "attn_lse", PLAN_ACTIVATIONS, floats(b, m->n_heads, T), attn},
        {PLAN_X_MID, "mlp_input", PLAN_ACTIVATIONS, acts(b, T, m->width), trains(p) ? all : 0},
        {PLAN_GATE_UP, "gate_up", PLAN_ACTIVATIONS, acts(b, T, 2 * m->ffn_width), all},
        {PLAN_XN, "norm_out", PLAN_WORKSPACE, acts(b, T, m->width), 1},
        {PLAN_RSTD, "norm_rstd", PLAN_WORKSPACE, floats(b, T, 1), 1},
        {PLAN_DX, "d_residual", PLAN_WORKSPACE, acts(b, T, m->width), trains(p)},
        {PLAN_DXN, "d_norm_out", PLAN_WORKSPACE, acts(b, T, m->width), trains(p)},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) placer_put(b, &list[i]);
}

/* Three phases of a step never overlap: the head (logits), an MLP and an attention block; nor do
 * the forward and the backward of attention. What attention sums over blocks is fp32; in fp32 its
 * output carries the forward's sum itself. */
static void put_work(struct placer *b)
{
    struct plan *p = b->p;
    const struct model_shape *m = b->m;
    const bool back = trains(p), fp32 = p->precision == PRECISION_FP32;
    const int64_t T = p->T, HD = m->n_heads * m->head_dim, KV = 2 * m->n_kv_heads * m->head_dim;
    const int64_t logits = p->kind == JOB_EMBED ? 0 : floats(b, p->loss_chunk, m->vocab);
    const int64_t act = acts(b, T, m->ffn_width);
    const int64_t d_o = back ? acts(b, T, HD) : 0, dq = back ? floats(b, T, HD) : 0;
    const int64_t dkv = back ? floats(b, T, KV) : 0, o_sum = fp32 ? 0 : floats(b, T, HD);
    const int64_t mlp = (back ? 2 : 1) * mem_round(act, MEM_ALIGN);
    const int64_t attn = mem_round(d_o, MEM_ALIGN) + mem_round(dq, MEM_ALIGN) + dkv;
    const int64_t size = max64(max64(logits, mlp), max64(attn, o_sum));
    placer_put(b, &(struct placer_want){PLAN_WORK, "work", PLAN_WORKSPACE, size, 1});
    put_shared(b, PLAN_LOGITS, "logits", 0, logits);
    int64_t at = put_shared(b, PLAN_ACT, "mlp_act", 0, act);
    put_shared(b, PLAN_DACT, "d_mlp_act", at, back ? act : 0);
    at = put_shared(b, PLAN_DO, "d_attn_out", 0, d_o);
    at = put_shared(b, PLAN_DQ, "dq", at, dq);
    put_shared(b, PLAN_DKV, "dkv", at, dkv);
    put_shared(b, PLAN_O_SUM, "attn_sum", 0, o_sum);
}

static void put_ring(struct placer *b)
{
    const struct plan *p = b->p;
    const struct model_shape *m = b->m;
    const int64_t KV = 2 * m->n_kv_heads * m->head_dim;
    const int64_t kv = acts(b, p->T, KV), dkv = floats(b, p->T, KV);
    const int64_t ml = floats(b, m->n_heads, p->T);
    const int64_t bounce = max64(volume_bounce_size(p->n_ranks), volume_bounce_size(p->sp));
    const bool more = p->sp > 1, back = trains(p), decode = p->kind == JOB_GENERATE;
    const bool kept = back && p->recompute != RECOMPUTE_FULL;
    const int64_t whole = p->strategy == STRATEGY_ULYSSES ? 8 * p->sp * p->T : 0;
    struct attention_need need;
    plan_attention(p, m->n_heads, m->n_kv_heads, m->head_dim, &need);
    const bool ring = need.ring;
    const int64_t part = volume_decode_size(p->sp, m->n_heads, m->head_dim);
    const struct placer_want all[] = {
        {PLAN_RING_KV0, "ring_kv0", PLAN_RING, kv, ring, true},
        {PLAN_RING_KV1, "ring_kv1", PLAN_RING, kv, ring, true},
        {PLAN_RING_DKV0, "ring_dkv0", PLAN_RING, dkv, ring && back, true},
        {PLAN_RING_DKV1, "ring_dkv1", PLAN_RING, dkv, ring && back, true},
        {PLAN_ATTN_KEPT, "attn_kept", PLAN_ACTIVATIONS, need.kept, kept ? m->n_layers : 1},
        {PLAN_ATTN_WORK, "attn_work", PLAN_WORKSPACE, need.arena_size, 1},
        {PLAN_ATTN_SEGMENT, "attn_segment", PLAN_RING, need.segment_size, 1, true},
        {PLAN_LO_ALL, "batch_lo_all", PLAN_DATA, whole, 1},
        {PLAN_HI_ALL, "batch_hi_all", PLAN_DATA, whole, 1},
        {PLAN_RING_PART, "decode_part", PLAN_RING, part, decode, more},
        {PLAN_BOUNCE, "bounce", PLAN_RING, bounce, p->n_ranks > 1, true},
        {PLAN_RING_M, "attn_max", PLAN_RING, ml, 1},
        {PLAN_RING_DELTA, "attn_delta", PLAN_RING, ml, back},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}

static void put_rest(struct placer *b, bool reference)
{
    const struct plan *p = b->p;
    const int64_t T = p->T, scratch = p->n_threads * BE_SCRATCH_PER_THREAD;
    const struct placer_want all[] = {
        {PLAN_IDS, "batch_ids", PLAN_DATA, 4 * T, 1},
        {PLAN_TARGETS, "batch_targets", PLAN_DATA, 4 * T, 1},
        {PLAN_POS, "batch_pos", PLAN_DATA, 8 * T, 1},
        {PLAN_LO, "batch_lo", PLAN_DATA, 8 * T, 1},
        {PLAN_HI, "batch_hi", PLAN_DATA, 8 * T, 1},
        {PLAN_NLL, "nll", PLAN_DATA, 8 * T, 1},
        {PLAN_INV_FREQ, "rope_inv_freq", PLAN_WORKSPACE, 4 * b->m->head_dim, 1},
        {PLAN_SCRATCH, "kernel_scratch", PLAN_WORKSPACE, scratch, !reference},
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
    p->n_decode = p->kind == JOB_GENERATE && !p->grid[0] ? c->n_decode : 0;
    p->cache_rows = cache_rows(p);
    for (int i = 0; i < PLAN_ID_N; i++) p->item[i] = (struct plan_item){0};
    for (int i = 0; i < PLAN_CLASS_N; i++) p->class_size[i] = 0;
    put_parameters(&b, c);
    if (p->by_program) {
        memory_program(&b, c->reference);
    } else {
        put_activations(&b);
        put_work(&b);
        put_ring(&b);
        put_rest(&b, c->reference);
    }
    memory_infer(&b);
    if (b.overflow)
        return err_set(e, ERR_DOES_NOT_FIT, "the model and sequence need more than 2^56 bytes");
    p->arena_size = mem_round(b.arena, PLAN_PAGE);
    p->segment_size = mem_round(b.segment, PLAN_PAGE);
    p->rounding = p->arena_size + p->segment_size;
    for (int i = 0; i < PLAN_CLASS_N; i++) p->rounding -= p->class_size[i];
    return 0;
}
