/* ring.h: runs attention over a ring of ranks for tests, and compares it with results that are
 * computed in float64 from the definition.
 *
 * The reference is tests/lib/attend.h. It does not use the intervals, the shards or the order of
 * segments that the code under test uses. The formula that maps local rows to positions in the
 * sequence is also independent of that code.
 *
 * Every buffer that the strategy writes starts as NaN and has guard bytes around it. The scratch
 * of the device starts as NaN, too. Messages are delayed at random, and every run is compared with
 * the volume formulas. */
#ifndef SEQD_TESTS_RING_H
#define SEQD_TESTS_RING_H

#include <math.h>
#include <stdlib.h>
#include "kernels/half.h"
#include "kernels/backend.h"
#include "tests/lib/attend.h"
#include "tests/lib/ledger_check.h"
#include "tests/lib/mutant.h"
#include "tests/lib/ranks.h"
#include "tests/lib/mirror.h"
#include "worker/comm/ledger.h"
#include "worker/plan/attention.h"
#include "worker/plan/strategy.h"
#include "worker/plan/volume.h"
#include "worker/sp/sp.h"

enum { MAX_P = 8, GUARD = 16 }; /* GUARD floats precede and follow each buffer */

struct variant {
    int P;
    /* for usp, the number of ranks in a group; 0 means two if P is even, and one if it is odd */
    int u;
    enum form_id form;
    enum layout_id layout;
    bool rank_bits, fused; /* fused means that q, k and v are windows of one wide tensor */
    enum strategy_id strategy;
    int n_threads, mutant;
    /* the type of q, kv, o and d_o. If it has 16 bits, the inputs of the problem must have been
     * rounded to this type before. */
    enum dtype act;
    enum transport_id transport;
    int n_local; /* ranks per node; 0 means that all ranks are on one node */
    /* every rank knows the documents of all ranks' rows, and keys that no query sees are not
     * exchanged */
    bool maps;
    /* if the device has memory of its own, the intervals of keys are stored only there */
    bool blind;
};

struct result { /* S rows in the order of the sequence */
    float *o, *dq, *dkv;
    /* [MAX_P, H] the gradient of the sinks, one row from each rank; it is 0 if there are no
     * sinks */
    float *d_sink;
};

/* ---- one run of the code under test ---------------------------------------------------------- */

/* Returns the number of successive ranks in a group. The ranks of a group divide the heads among
 * them. */
static inline int group_of(const struct variant *v)
{
    if (v->strategy == STRATEGY_ULYSSES) return v->P;
    if (v->strategy != STRATEGY_USP) return 1;
    return v->u ? v->u : v->P % 2 ? 1 : 2;
}

/* Returns the position in the sequence of local row i of rank r. If it is S or more, the row is
 * padding. In the zigzag layout each group has two chunks, and each chunk consists of u parts.
 * There are as many chunks before a group's first chunk as after its second chunk. */
static inline int64_t global_of(const struct problem *p, const struct variant *v, int r, int64_t i)
{
    if (v->rank_bits) return r * (8 / v->P) * ((p->S + 7) / 8) + i;
    if (v->layout == LAYOUT_CONTIGUOUS) return r * ((p->S + v->P - 1) / v->P) + i;
    int64_t h = (p->S + 2 * v->P - 1) / (2 * v->P);
    const int u = group_of(v), group = r / u, after = 2 * (v->P / u) - 1 - group;
    return i < h ? r * h + i : (after * u + r % u) * h + i - h;
}

static inline int64_t rows_of(const struct problem *p,
                              const struct variant *v) /* returns T by the definition */
{
    if (v->rank_bits) return 8 / v->P * ((p->S + 7) / 8);
    if (v->layout == LAYOUT_CONTIGUOUS) return (p->S + v->P - 1) / v->P;
    return 2 * ((p->S + 2 * v->P - 1) / (2 * v->P));
}

struct local { /* the tensors of one rank, which are in a single allocation with guards */
    struct tensor q, kv, o, d_o, dq, dkv;
    /* sink is [1, H]. d_sink is [SHARD_SEGS, H], and its first row is 0 at the start. */
    struct tensor sink, d_sink;
    float *lse, *m, *delta, *sum;
    int64_t *lo, *hi;
    void *kept, *arena; /* memory for the form, or NULL if the form needs none */
    /* the intervals of all rows that the ranks of the group have, in order and with padding */
    int64_t *all_lo, *all_hi;
    float *block;
    int64_t block_size, kept_size, arena_size;
};

/* Takes memory for n floats from the block, with GUARD floats before and after it. Tensors of
 * 16-bit types use the first half of this memory. */
static inline float *take(float **at, int64_t n)
{
    float *p = *at + GUARD;
    *at = p + n;
    return p;
}

static inline bool is_two_pass(const struct variant *v)
{
    return v->strategy == STRATEGY_RSA &&
           (v->form == FORM_TWO_PASS || v->form == FORM_TWO_PASS_SCATTER);
}

static inline bool is_all_gather(const struct variant *v)
{
    return v->strategy == STRATEGY_RSA && v->form == FORM_ALL_GATHER;
}

static inline struct attention_need need_of(const struct problem *p, const struct variant *v)
{
    const int64_t T = rows_of(p, v);
    struct attention_need need;
    struct attention_shape s = {.strategy = v->strategy,
                                .form = v->form,
                                .unit = v->act == DT_F32 ? 4 : 2,
                                .rank_bits = v->rank_bits,
                                .back = true,
                                .P = v->P,
                                .u = group_of(v),
                                .T = T,
                                .seg_len = v->rank_bits                 ? T / (8 / v->P)
                                           : v->layout == LAYOUT_ZIGZAG ? T / 2
                                                                        : T,
                                .H = p->H,
                                .Hk = p->Hk,
                                .D = p->D};
    attention_need(&s, &need);
    return need;
}

/* Allocates memory and fills it with NaN. Each call makes a separate allocation, so that ASan
 * finds accesses outside of it. */
static inline void *poisoned(int64_t size)
{
    if (!size) return NULL;
    void *p = mem(size, 1);
    memset(p, 0xff, (size_t)size);
    return p;
}

static inline void local_place(struct local *l, const struct problem *p, const struct variant *v,
                               int64_t T)
{
    int64_t q_cols = p->H * p->D, kv_cols = 2 * p->Hk * p->D, wide = q_cols + kv_cols + 5;
    int64_t n_floats = T * (2 * wide + 3 * q_cols + 3 * p->H) + 13 * GUARD;
    n_floats += (1 + SHARD_SEGS) * p->H;
    l->block = mem(n_floats, 4);
    l->block_size = n_floats * 4;
    memset(l->block, 0xff, (size_t)l->block_size); /* NaN */
    float *at = l->block;
    l->o = tensor_of(v->act, take(&at, T * q_cols), T, q_cols, q_cols);
    l->d_o = tensor_of(v->act, take(&at, T * q_cols), T, q_cols, q_cols);
    l->sum = take(&at, T * q_cols);
    l->lse = take(&at, p->H * T);
    l->m = take(&at, p->H * T);
    l->delta = take(&at, p->H * T);
    if (v->fused) {
        struct tensor x = tensor_of(v->act, take(&at, T * wide), T, wide, wide);
        struct tensor dx = tensor_f32(take(&at, T * wide), T, wide, wide);
        l->q = tensor_sub(x, 0, T, 0, q_cols);
        l->kv = tensor_sub(x, 0, T, q_cols, kv_cols);
        l->dq = tensor_sub(dx, 0, T, 0, q_cols);
        l->dkv = tensor_sub(dx, 0, T, q_cols, kv_cols);
    } else {
        l->q = tensor_of(v->act, take(&at, T * q_cols), T, q_cols, q_cols);
        l->kv = tensor_of(v->act, take(&at, T * kv_cols), T, kv_cols, kv_cols);
        l->dq = tensor_f32(take(&at, T * q_cols), T, q_cols, q_cols);
        l->dkv = tensor_f32(take(&at, T * kv_cols), T, kv_cols, kv_cols);
    }
    l->sink = tensor_of(v->act, take(&at, p->H), 1, p->H, p->H);
    l->d_sink = tensor_f32(take(&at, SHARD_SEGS * p->H), SHARD_SEGS, p->H, p->H);
    l->lo = mem(T, 8);
    l->hi = mem(T, 8);
    l->all_lo = mem(group_of(v) * T, 8);
    l->all_hi = mem(group_of(v) * T, 8);
    const struct attention_need need = need_of(p, v);
    l->kept = poisoned(need.kept);
    l->arena = poisoned(need.arena_size);
    l->kept_size = need.kept;
    l->arena_size = need.arena_size;
}

static inline float element(struct tensor t, int64_t i, int64_t c)
{
    const int64_t at = i * t.ld + c;
    return t.dtype == DT_F32 ? ((float *)t.data)[at]
                             : half_value(t.dtype, ((uint16_t *)t.data)[at]);
}

static inline void set_element(struct tensor t, int64_t i, int64_t c, float x)
{
    const int64_t at = i * t.ld + c;
    if (t.dtype == DT_F32)
        ((float *)t.data)[at] = x;
    else
        ((uint16_t *)t.data)[at] = half_round(t.dtype, x);
}

static inline struct reach_document document_at(void *arg, int64_t pos)
{
    const struct problem *p = arg;
    struct reach_document d = {pos, pos + 1};
    while (d.start > 0 && p->doc[d.start - 1] == p->doc[pos]) d.start--;
    while (d.end < p->S && p->doc[d.end] == p->doc[pos]) d.end++;
    return d;
}

/* Returns the interval of keys that the query at position `at` sees. It is empty for a row of
 * padding. */
static inline struct reach_document visible_of(const struct problem *p, int64_t at)
{
    if (at >= p->S) return (struct reach_document){at, at};
    struct reach_document d = document_at((void *)p, at);
    if (p->causal) d.end = at + 1;
    if (p->window && d.start < at - p->window + 1) d.start = at - p->window + 1;
    if (p->window && d.end > at + p->window) d.end = at + p->window;
    return d;
}

/* Copies this rank's rows of the problem. Rows of padding are filled with large numbers, which
 * must not influence any result. */
static inline void local_load(struct local *l, const struct problem *p, const struct variant *v,
                              int r, int64_t T)
{
    struct tensor to[3] = {l->q, l->kv, l->d_o};
    const float *from[3] = {p->q, p->kv, p->d_o}, large = v->act == DT_F16 ? 6e4f : 1e6f;
    for (int64_t i = 0; i < T; i++) {
        int64_t at = global_of(p, v, r, i);
        for (int k = 0; k < 3; k++)
            for (int64_t c = 0; c < to[k].cols; c++)
                set_element(to[k], i, c, at < p->S ? from[k][at * to[k].cols + c] : large);
        l->lo[i] = visible_of(p, at).start;
        l->hi[i] = visible_of(p, at).end;
    }
    for (int64_t h = 0; h < p->H; h++) {
        if (p->sink) set_element(l->sink, 0, h, p->sink[h]);
        set_element(l->d_sink, 0, h, 0);
    }
    if (!p->sink) l->sink.data = NULL;
    const int u = group_of(v);
    const int64_t run = v->layout == LAYOUT_ZIGZAG ? T / 2 : T;
    for (int64_t i = 0; i < u * T; i++) {
        const int64_t in = i % (u * run), c = i / (u * run);
        const int64_t at = global_of(p, v, r / u * u + (int)(in / run), c * run + in % run);
        l->all_lo[i] = visible_of(p, at).start;
        l->all_hi[i] = visible_of(p, at).end;
    }
}

struct run {
    const struct problem *p;
    const struct variant *v;
    struct result *out;
    /* for each rank, the number of elements of padding that are not exactly 0, and of guards that
     * were overwritten */
    int64_t n_bad[MAX_P];
};

/* A device is opened once for each pair of rank and number of threads, for 8 ranks and 1 or 2
 * threads. If isa is NULL, the device uses its best instruction set. */
static const char *device_name = "cpu";
static struct be *devices[MAX_P][3];
static const char *isa;

static inline void devices_close(void)
{
    for (int r = 0; r < MAX_P; r++)
        for (int t = 1; t <= 2; t++) {
            mirror_close(devices[r][t]);
            devices[r][t] = NULL;
        }
}

static struct be *device(int rank, int n_threads)
{
    struct be **be = &devices[rank][n_threads];
    if (!*be) {
        *be = mirror_open(device_name, isa, n_threads);
        CHECK(!isa || !strcmp((*be)->isa, isa));
    }
    if (!(*be)->own_memory) memset((*be)->scratch, 0xff, (size_t)(*be)->scratch_size);
    return *be;
}

/* Returns the size in bytes of the ring's buffers kv[2] and dkv[2] in the segment of the comm. The
 * size is the same for every P. */
static inline int64_t ring_size(const struct problem *p, int64_t T)
{
    return 4 * T * 2 * p->Hk * p->D * 4;
}

/* Returns the size of the comm's segment. The segment holds the buffers of the ring, of the form,
 * and of collectives. */
static inline int64_t segment_size_of(const struct problem *p, const struct variant *v)
{
    const struct attention_need need = need_of(p, v);
    const int64_t ring = need.ring || v->P == 1 ? ring_size(p, rows_of(p, v)) : 0;
    return ring + need.segment_size + (is_two_pass(v) ? volume_bounce_size(v->P) : 0);
}

static inline bool sp_of(struct sp *sp, const struct run *x, struct comm *comm, int rank,
                         const struct local *l, struct err *e)
{
    const struct problem *p = x->p;
    *sp = (struct sp){
        .ops = sp_find(x->v->strategy, x->v->form),
        .be = device(rank, x->v->n_threads),
        .comm = x->v->strategy == STRATEGY_LOCAL ? NULL : comm,
        .shape = {p->H, p->Hk, p->D, (float)(1 / sqrt((double)p->D)), (float)p->cap, l->sink},
        .buf = {.o = x->v->act == DT_F32 ? NULL : l->sum, .m = l->m, .delta = l->delta},
        .drop = {.rate = p->drop,
                 .key = {drop_key[0], drop_key[1]},
                 .layer = DROP_LAYER,
                 .sample = DROP_SAMPLE},
        .rank_bits = x->v->rank_bits,
    };
    if (shard_init_groups(&sp->shard, p->S, x->v->P, group_of(x->v), rank, x->v->layout,
                          x->v->rank_bits, e) ||
        sp_open_groups(sp, e))
        return false;
    const struct attention_need need = need_of(p, x->v);
    float *seg = comm_segment(comm);
    int64_t n = sp->shard.T * 2 * p->Hk * p->D;
    if (sp->shard.T != rows_of(p, x->v)) abort();
    mirror_poison(sp->be, seg, segment_size_of(p, x->v));
    if (need.ring || x->v->P == 1) {
        sp->buf.kv[0] = seg;
        sp->buf.kv[1] = seg + n;
        sp->buf.dkv[0] = seg + 2 * n;
        sp->buf.dkv[1] = seg + 3 * n;
        seg += 4 * n;
    }
    sp_place(&sp->buf, &need, l->arena, seg);
    if (is_two_pass(x->v)) sp->buf.bounce = (char *)seg + need.segment_size;
    return true;
}

static inline void map_of(struct reach_map *map, const struct problem *p, const struct shard *sh)
{
    struct reach_map plain, cut;
    reach_make(&plain, sh,
               &(struct reach_documents){
                   .at = document_at, .arg = (void *)p, .n_tokens = p->S, .causal = p->causal});
    *map = *reach_window(&plain, sh, p->window, p->causal, &cut);
}

static inline void store(float *global, const struct run *x, int rank, struct tensor t,
                         int64_t *n_bad)
{
    for (int64_t i = 0; i < t.rows; i++) {
        int64_t at = global_of(x->p, x->v, rank, i);
        for (int64_t c = 0; c < t.cols; c++)
            if (at < x->p->S)
                global[at * t.cols + c] = element(t, i, c);
            else
                *n_bad += element(t, i, c) != 0;
    }
}

static inline int64_t guards_broken(const struct local *l, const struct run *x, int64_t T)
{
    const float *starts[] = {l->o.data, l->d_o.data, l->sum, l->lse, l->m, l->delta};
    int64_t q = T * x->p->H * x->p->D, h = x->p->H * T, sizes[] = {q, q, q, h, h, h}, n = 0;
    uint32_t word;
    for (int k = 0; k < 6; k++)
        for (int i = 1; i <= GUARD; i++) {
            memcpy(&word, starts[k] - i, 4);
            n += word != 0xffffffffu;
            memcpy(&word, starts[k] + sizes[k] + i - 1, 4);
            n += word != 0xffffffffu;
        }
    return n;
}

/* Returns a copy of l whose tensors are in the device's memory. */
static inline struct local local_twin(struct mirrors *w, const struct local *l,
                                      const struct variant *v, int64_t T)
{
    struct local d = *l;
    mirror_add(w, l->block, l->block_size);
    mirror_add(w, l->kept, l->kept_size);
    mirror_add(w, l->arena, l->arena_size);
    mirror_add(w, l->lo, T * 8);
    mirror_add(w, l->hi, T * 8);
    mirror_add(w, l->all_lo, group_of(v) * T * 8);
    mirror_add(w, l->all_hi, group_of(v) * T * 8);
    struct tensor *tensors[] = {&d.q, &d.kv, &d.o, &d.d_o, &d.dq, &d.dkv, &d.d_sink, &d.sink};
    for (int i = 0; i < 7 + (l->sink.data != NULL); i++)
        *tensors[i] = mirror_tensor(w, *tensors[i]);
    d.lse = mirror_of(w, l->lse), d.m = mirror_of(w, l->m), d.delta = mirror_of(w, l->delta);
    d.sum = mirror_of(w, l->sum), d.kept = mirror_of(w, l->kept), d.arena = mirror_of(w, l->arena);
    d.lo = mirror_of(w, l->lo), d.hi = mirror_of(w, l->hi);
    d.all_lo = mirror_of(w, l->all_lo), d.all_hi = mirror_of(w, l->all_hi);
    return d;
}

static inline void local_free(struct local *l)
{
    free(l->kept);
    free(l->arena);
    free(l->all_lo);
    free(l->all_hi);
    free(l->block);
    free(l->lo);
    free(l->hi);
}

static inline void collect(struct run *x, int rank, const struct local *l, int64_t T)
{
    store(x->out->o, x, rank, l->o, &x->n_bad[rank]);
    store(x->out->dq, x, rank, l->dq, &x->n_bad[rank]);
    store(x->out->dkv, x, rank, l->dkv, &x->n_bad[rank]);
    memcpy(x->out->d_sink + rank * x->p->H, l->d_sink.data, (size_t)x->p->H * 4);
    x->n_bad[rank] += guards_broken(l, x, T);
    for (int64_t i = 0; i < T && !strategy_row(x->v->strategy)->ranges && !x->p->sink; i++)
        for (int64_t h = 0; h < x->p->H; h++)
            x->n_bad[rank] += (l->lse[h * T + i] == -INFINITY) != (l->lo[i] >= l->hi[i]);
}

static inline int both_ways(struct sp *sp, const struct local *d, const struct local *l,
                            const struct reach_map *map, bool blind, struct err *e)
{
    const struct sp_seen none = {NULL, NULL};
    const struct sp_fwd_args f = {.q = d->q,
                                  .kv = d->kv,
                                  .o = d->o,
                                  .lse = d->lse,
                                  .lo = d->lo,
                                  .hi = d->hi,
                                  .seen = blind ? none : (struct sp_seen){l->lo, l->hi},
                                  .kept = d->kept,
                                  .reach = map,
                                  .all_lo = d->all_lo,
                                  .all_hi = d->all_hi,
                                  .all_seen = blind ? none
                                                    : (struct sp_seen){l->all_lo, l->all_hi}};
    const struct sp_bwd_args b = {.q = d->q,
                                  .kv = d->kv,
                                  .o = d->o,
                                  .d_o = d->d_o,
                                  .lse = d->lse,
                                  .dq = d->dq,
                                  .dkv = d->dkv,
                                  .d_sink = l->sink.data ? d->d_sink : (struct tensor){0},
                                  .lo = d->lo,
                                  .hi = d->hi,
                                  .seen = f.seen,
                                  .kept = d->kept,
                                  .reach = map,
                                  .all_lo = d->all_lo,
                                  .all_hi = d->all_hi,
                                  .all_seen = f.all_seen};
    return sp->ops->attn_fwd(sp, &f, e) || sp->ops->attn_bwd(sp, &b, e) ? -1 : 0;
}

static inline void body(struct ranks *g, int rank, void *arg)
{
    struct run *x = arg;
    struct local l;
    struct sp sp;
    struct err e = {0};
    struct mirrors w = {.be = device(rank, x->v->n_threads)};
    const int64_t T = rows_of(x->p, x->v);
    local_place(&l, x->p, x->v, T);
    local_load(&l, x->p, x->v, rank, T);
    const struct local d = local_twin(&w, &l, x->v, T);
    struct reach_map known, *map = x->v->maps ? &known : NULL;
    if (!sp_of(&sp, x, g->comm[rank], rank, &d, &e)) goto out;
    if (map) map_of(&known, x->p, &sp.shard);
    if (both_ways(&sp, &d, &l, map, x->v->blind, &e)) goto out;
    mirror_upload(&w);
    collect(x, rank, &l, T);
out:
    mirror_free(&w);
    local_free(&l);
    if (e.code) ranks_fail(g, rank, &e);
}

static inline struct result result_make(const struct problem *p)
{
    return (struct result){random_floats(p->S * p->H * p->D, NAN),
                           random_floats(p->S * p->H * p->D, NAN),
                           random_floats(p->S * 2 * p->Hk * p->D, NAN), mem(MAX_P * p->H, 4)};
}

static inline void result_free(struct result *r)
{
    free(r->o);
    free(r->dq);
    free(r->dkv);
    free(r->d_sink);
}

static uint64_t n_runs; /* seeds the delays */

/* Computes the expected counts with the formula in the strategy's row of the table. The functions
 * below call the formulas of the ring directly. */
static inline void count_row(const struct problem *p, const struct variant *v, int rank,
                             struct comm_count want[PURPOSE_N])
{
    struct shard sh;
    struct reach_map map = {0};
    if (shard_init_groups(&sh, p->S, v->P, group_of(v), rank, v->layout, v->rank_bits, NULL))
        abort();
    if (v->maps) map_of(&map, p, &sh);
    for (int back = 0; back < 2 && v->P > 1; back++)
        strategy_form(v->strategy, v->form)
            ->traffic(&(struct attention_pass){.sh = &sh,
                                               .map = &map,
                                               .H = p->H,
                                               .Hk = p->Hk,
                                               .D = p->D,
                                               .precision = v->act == DT_F32 ? PRECISION_FP32
                                                                             : PRECISION_BF16,
                                               .back = back},
                      want);
}

/* Computes the expected counts of rank `rank` for one forward and one backward pass. */
static inline void count_run(const struct problem *p, const struct variant *v, int rank,
                             struct comm_count want[PURPOSE_N])
{
    /* b gives the size of an element */
    const enum precision_id b = v->act == DT_F32 ? PRECISION_FP32 : PRECISION_BF16;
    const int64_t T = rows_of(p, v);
    if (v->strategy != STRATEGY_RSA && v->strategy != STRATEGY_LOCAL) {
        count_row(p, v, rank, want);
        return;
    }
    struct comm_count *kv = &want[PURPOSE_RING_KV], *dkv = &want[PURPOSE_RING_DKV];
    if (is_two_pass(v)) {
        volume_add(kv, volume_two_pass_kv(v->P, T, p->Hk, p->D, b), 2);
        volume_add(dkv, volume_two_pass_dkv(v->P, T, p->Hk, p->D, v->form == FORM_TWO_PASS), 1);
        return;
    }
    if (v->maps || is_all_gather(v)) {
        struct shard sh;
        struct reach_map map = {0};
        if (shard_init_groups(&sh, p->S, v->P, group_of(v), rank, v->layout, v->rank_bits, NULL))
            abort();
        if (v->maps) map_of(&map, p, &sh);
        if (is_all_gather(v)) {
            const bool ring = v->rank_bits; /* with rank_bits, backward is that of the ring */
            volume_add(kv, volume_gather_kv(&sh, &map, p->Hk, p->D, b), ring ? 1 : 2);
            if (ring) volume_add(kv, volume_ring_kv_met(&sh, &map, p->Hk, p->D, b), 1);
            volume_add(dkv, volume_gather_dkv(&sh, &map, p->Hk, p->D), 1);
            return;
        }
        volume_add(kv, volume_ring_kv_met(&sh, &map, p->Hk, p->D, b), 2);
        volume_add(dkv, volume_ring_dkv_met(&sh, &map, p->Hk, p->D), 1);
        return;
    }
    volume_add(kv, volume_ring_kv(v->P, T, p->Hk, p->D, b), 2);
    volume_add(dkv, volume_ring_dkv(v->P, T, p->Hk, p->D, v->rank_bits), 1);
}

static inline void ranks_devices(struct ranks_device *on, const struct variant *v, int64_t size)
{
    for (int r = 0; r < v->P; r++) {
        struct be *be = device(r, v->n_threads);
        on[r] = (struct ranks_device){be, be->own_memory ? mirror_alloc(be, size) : NULL};
    }
}

/* Runs v on p. The counts of every rank must equal the formulas. Returns the number of elements of
 * padding that are not 0, and of guards that were overwritten. */
static inline int64_t run(const struct problem *p, const struct variant *v, struct result *out)
{
    struct run x = {.p = p, .v = v, .out = out};
    struct ranks g;
    int64_t n_bad = 0;
    struct ranks_device on[MAX_P];
    memset(out->d_sink, 0, (size_t)(MAX_P * p->H) * 4);
    ranks_devices(on, v, segment_size_of(p, v));
    ranks_open_on(&g, v->P, segment_size_of(p, v),
                  &(struct comm_options){.delay_seed = ++n_runs,
                                         .delay_max_us = v->P > 1 ? 100 : 0,
                                         .transport = v->transport,
                                         .n_local = v->n_local},
                  on);
    mutant_choose(v->mutant);
    ranks_run(&g, body, &x);
    mutant_choose(MUTANT_NONE);
    ranks_check(&g);
    for (int r = 0; r < v->P; r++) {
        struct err e;
        struct comm_count want[PURPOSE_N] = {0};
        count_run(p, v, r, want);
        CHECK_MSG(!ledger_check(comm_ledger(g.comm[r]), want, &e), "P %d rank %d: %s", v->P, r,
                  e.text);
        n_bad += x.n_bad[r];
    }
    ranks_close(&g);
    for (int r = 0; r < v->P; r++)
        if (on[r].segment) on[r].be->ops->free(on[r].be, on[r].segment, segment_size_of(p, v));
    return n_bad;
}

/* ---- comparison ------------------------------------------------------------------------------ */

struct norms {
    double err, ref;
};

/* Computes the norms of columns [c0, c0 + n) over all rows. */
static inline struct norms norms(const float *x, const double *ref, int64_t rows, int64_t cols,
                                 int64_t c0, int64_t n)
{
    struct norms s = {0, 0};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = c0; c < c0 + n; c++) {
            double d = x[i * cols + c] - ref[i * cols + c];
            s.err += d * d;
            s.ref += ref[i * cols + c] * ref[i * cols + c];
        }
    return (struct norms){sqrt(s.err), sqrt(s.ref)};
}

/* Returns the relative L2 error. A true value may be zero because its terms cancel: if a token
 * sees a single key, for example, the gradient of that key's score is zero. In this case the error
 * is divided by the size of these terms, which is the parameter `cancelled`. If a value is NaN,
 * the result is NaN, which is not within any bound. */
static inline double norms_ratio(struct norms s, double cancelled)
{
    return s.err / (s.ref > 1e-9 * cancelled ? s.ref : cancelled);
}

struct errors {
    double o, dq, dk, dv, sink;
};

/* Sums the ranks' rows in place, pair by pair, as in a tree. Under determinism "ranks" the sums
 * have the same bits for 1, 2, 4 and 8 ranks. */
static inline const float *sinks_sum(const struct problem *p, const struct result *r)
{
    for (int step = 1; step < MAX_P; step *= 2)
        for (int k = 0; k + step < MAX_P; k += 2 * step)
            for (int64_t h = 0; h < p->H; h++) {
                r->d_sink[k * p->H + h] += r->d_sink[(k + step) * p->H + h];
                r->d_sink[(k + step) * p->H + h] = 0;
            }
    return r->d_sink;
}

/* Returns the error of the sinks' gradient, which is a sum over rows of terms with both signs. The
 * error is relative to the gradient's norm plus the square root of the number of terms. That root
 * is about the norm of the terms if d_o and o have size 1. */
static inline double sink_error(const struct problem *p, const struct result *r)
{
    if (!p->sink) return 0;
    const struct norms n = norms(sinks_sum(p, r), p->d_sink, 1, p->H, 0, p->H);
    return n.err / (n.ref + sqrt((double)(p->S * p->H)));
}

static inline struct errors compare(const struct problem *p, const struct result *r)
{
    int64_t q = p->H * p->D, k = p->Hk * p->D;
    return (struct errors){
        norms_ratio(norms(r->o, p->o, p->S, q, 0, q), 0),
        norms_ratio(norms(r->dq, p->dq, p->S, q, 0, q), p->floor_q),
        norms_ratio(norms(r->dkv, p->dkv, p->S, 2 * k, 0, k), p->floor_k),
        norms_ratio(norms(r->dkv, p->dkv, p->S, 2 * k, k, k), 0),
        sink_error(p, r),
    };
}

/* The bounds for fp32 in sums over a few thousand keys. */
#define TOL_OUT  2e-6
#define TOL_GRAD 5e-6

static inline bool within(struct errors e)
{
    return e.o <= TOL_OUT && e.dq <= TOL_GRAD && e.dk <= TOL_GRAD && e.dv <= TOL_GRAD &&
           e.sink <= TOL_GRAD;
}

static inline bool same_bits(const struct problem *p, const struct result *a,
                             const struct result *b)
{
    const size_t q = (size_t)(p->S * p->H * p->D) * 4, kv = (size_t)(p->S * 2 * p->Hk * p->D) * 4;
    return !memcmp(a->o, b->o, q) && !memcmp(a->dq, b->dq, q) && !memcmp(a->dkv, b->dkv, kv) &&
           !memcmp(sinks_sum(p, a), sinks_sum(p, b), (size_t)p->H * 4);
}

#endif
