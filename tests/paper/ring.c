/* ring.c: runs a layer of Ring Self-Attention on P ranks, and counts the bytes that the transport
 * sends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/paper/report.h"
#include "tests/lib/ranks.h"
#include "worker/plan/attention.h"
#include "worker/plan/volume.h"
#include "worker/sp/sp.h"

enum { MAX_P = EVIDENCE_RANKS, SEGMENT = 4 << 20 };

static float *numbers(int64_t n)
{
    float *x = calloc((size_t)n, 4);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7919 % 1000) - 500) / 500;
    return x;
}

/* Places the buffers of the ring and of collectives, and after them the buffers that other forms
 * and strategies need. */
static void place(struct sp *sp, const struct layer *r, struct attention_need *need, char *seg,
                  float *owned[2])
{
    const int64_t n = r->T * 2 * r->Hk * r->D * 4, bounce = volume_bounce_size(r->P);
    const struct attention_shape a = {.strategy = (enum strategy_id)r->strategy,
                                      .form = (enum form_id)r->form,
                                      .unit = 4,
                                      .back = true,
                                      .P = r->P,
                                      .u = sp->shard.u,
                                      .T = r->T,
                                      .seg_len = sp->shard.seg_len,
                                      .H = r->H,
                                      .Hk = r->Hk,
                                      .D = r->D};
    attention_need(&a, need);
    owned[0] = numbers(2 * r->H * r->T);
    owned[1] = numbers(need->arena_size / 4 + 16);
    sp->buf = (struct sp_buffers){
        .bounce = seg + 4 * n, .m = owned[0], .delta = owned[0] + r->H * r->T};
    for (int i = 0; i < 2; i++) {
        sp->buf.kv[i] = seg + i * n;
        sp->buf.dkv[i] = (float *)(void *)(seg + (2 + i) * n);
    }
    if (4 * n + bounce + need->segment_size > SEGMENT) abort();
    sp_place(&sp->buf, need, owned[1], seg + 4 * n + bounce);
}

static int group_of(const struct layer *r)
{
    if (r->strategy == STRATEGY_ULYSSES) return r->P;
    return r->u ? r->u : 1;
}

static void one_layer(struct ranks *g, int rank, void *arg)
{
    const struct layer *r = arg;
    struct err e = {0};
    const int64_t T = r->T, Q = r->H * r->D, KV = 2 * r->Hk * r->D;
    struct attention_need need;
    struct sp sp = {.ops = sp_find((enum strategy_id)r->strategy, (enum form_id)r->form),
                    .comm = g->comm[rank],
                    .shape = {r->H, r->Hk, r->D, (float)(1 / sqrt((double)r->D))}};
    sp.be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    if (!sp.be || !sp.ops ||
        shard_init_groups(&sp.shard, r->P * T, r->P, group_of(r), rank, LAYOUT_CONTIGUOUS, false,
                          &e) ||
        sp_open_groups(&sp, &e))
        abort();
    float *x[10]; /* q, kv, o, d_o, dq, dkv, lse, kept, and two buffers of the strategy */
    place(&sp, r, &need, comm_segment(g->comm[rank]), x + 8);
    const int64_t size[8] = {T * Q, T * KV, T * Q,    T * Q,
                             T * Q, T * KV, r->H * T, need.kept / 4 + 16};
    for (int i = 0; i < 8; i++) x[i] = numbers(size[i]);
    int64_t *lo = calloc((size_t)(r->P * T), 8), *hi = calloc((size_t)(r->P * T), 8);
    if (!lo || !hi) abort();
    for (int64_t i = 0; i < r->P * T; i++) hi[i] = r->P * T; /* bidirectional, as published */
    const struct sp_fwd_args f = {.q = tensor_f32(x[0], T, Q, Q),
                                  .kv = tensor_f32(x[1], T, KV, KV),
                                  .o = tensor_f32(x[2], T, Q, Q),
                                  .lse = x[6],
                                  .lo = lo,
                                  .hi = hi,
                                  .kept = x[7],
                                  .all_lo = lo,
                                  .all_hi = hi};
    const struct sp_bwd_args b = {.q = f.q,
                                  .kv = f.kv,
                                  .o = f.o,
                                  .d_o = tensor_f32(x[3], T, Q, Q),
                                  .lse = x[6],
                                  .dq = tensor_f32(x[4], T, Q, Q),
                                  .dkv = tensor_f32(x[5], T, KV, KV),
                                  .lo = lo,
                                  .hi = hi,
                                  .kept = x[7],
                                  .all_lo = lo,
                                  .all_hi = hi};
    if (sp.ops->attn_fwd(&sp, &f, &e)) ranks_fail(g, rank, &e);
    evidence_phase(g, rank);
    if (!e.code && sp.ops->attn_bwd(&sp, &b, &e)) ranks_fail(g, rank, &e);
    evidence_phase(g, rank);
    be_close(sp.be);
    for (int i = 0; i < 10; i++) free(x[i]);
    free(lo), free(hi);
}

struct evidence *count_attention(const struct layer *l)
{
    struct layer copy = *l;
    return evidence_ledger(l->P, SEGMENT, one_layer, &copy);
}

/* The rows of one form. Each row has the number of slices of K (KV heads) that a rank must send to
 * every other rank, forward and backward, divided by `per`. The numbers are from the claims, and
 * not from the engine's formulas. */
struct form_rows {
    const char *name, *source; /* source is NULL if there is no published claim */
    int strategy, form, max_P;
    int forward, backward;
    bool over_P; /* every other rank gets one P-th of a slice */
    const char *text;
};

static void ring_row(const struct form_rows *f, int P, int64_t Hk)
{
    char what[128], claimed[96];
    int64_t want[EVIDENCE_RANKS][EVIDENCE_PHASES];
    const struct layer l = {f->strategy, f->form, P, 48, 4, Hk, 16};
    const int64_t unit = (P - 1) * l.T * Hk * l.D * 4 / (f->over_P ? P : 1);
    struct evidence *e = count_attention(&l);
    for (int i = 0; i < P; i++) want[i][0] = f->forward * unit, want[i][1] = f->backward * unit;
    snprintf(what, sizeof what, "%s, P %d, KV heads %lld of 4: sent by a rank for a layer", f->name,
             P, (long long)Hk);
    snprintf(claimed, sizeof claimed, "%s = %lld + %lld", f->text, (long long)want[0][0],
             (long long)want[0][1]);
    const struct row row = {.what = what, .source = f->source, .claimed_text = claimed};
    report_bytes(&row, e, want);
    evidence_free(e);
}

/* Reports groups of u ranks. The ranks of a group divide the heads, and keys and values rotate
 * through the P/u groups. The all-to-all in a group sends (u-1)/u of each slice. A hop sends as
 * many bytes as a rank's complete slice. */
static void groups_row(int P, int u)
{
    char what[128], claimed[96];
    int64_t want[EVIDENCE_RANKS][EVIDENCE_PHASES];
    const struct layer l = {STRATEGY_USP, FORM_AUTO, P, 48, 4, 4, 16, u};
    const int64_t slice = l.T * l.Hk * l.D * 4, heads = 4 * slice / u * (u - 1), hops = P / u - 1;
    struct evidence *e = count_attention(&l);
    for (int i = 0; i < P; i++) {
        want[i][0] = heads + 2 * hops * slice;
        want[i][1] = heads + 4 * hops * slice;
    }
    snprintf(what, sizeof what, "Ulysses x ring, P %d in groups of %d: sent by a rank for a layer",
             P, u);
    snprintf(claimed, sizeof claimed, "4 (u-1)/u + 2 (P/u-1), then 4 (u-1)/u + 4 (P/u-1) slices");
    const struct row row = {.what = what, .claimed_text = claimed};
    report_bytes(&row, e, want);
    evidence_free(e);
}

void paper_ring(void)
{
    static const struct form_rows rows[] = {
        {"RSA as published", "2105.13120", STRATEGY_RSA, FORM_TWO_PASS, 8, 2, 6, false,
         "2 (P-1) + 6 (P-1) slices"},
        {"RSA, sums scattered", NULL, STRATEGY_RSA, FORM_TWO_PASS_SCATTER, 8, 2, 4, false,
         "2 (P-1) + 4 (P-1) slices"},
        {"blockwise", NULL, STRATEGY_RSA, FORM_BLOCKWISE, 8, 2, 4, false,
         "2 (P-1) + 4 (P-1) slices"},
        {"Ulysses", "2309.14509", STRATEGY_ULYSSES, FORM_AUTO, 4, 4, 4, true,
         "4 all-to-all of a slice each way"},
    };
    report_section("RSA: bytes of a layer, counted",
                   "A slice is one rank's part of K: as large as its part of an activation where "
                   "all heads are KV heads. fp32. The published form sends 8 (P-1) slices a layer, "
                   "as many as tensor parallelism of 2021 does. A reduce-scatter of dK and dV in "
                   "place of the all-reduce saves a quarter. The blockwise ring sends KV heads "
                   "alone. In an all-to-all a rank keeps its own P-th part: (P-1)/P of a slice is "
                   "sent.");
    report_table();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int P = 2; P <= rows[i].max_P; P *= 2) ring_row(&rows[i], P, 4);
        if (rows[i].form == FORM_BLOCKWISE) ring_row(&rows[i], 4, 1);
    }
    groups_row(4, 2);
    groups_row(8, 2);
    groups_row(8, 4);
}
