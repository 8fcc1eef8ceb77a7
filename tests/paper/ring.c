/* ring.c: what Ring Self-Attention sends for a layer, counted by the transport of P ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/paper/report.h"
#include "tests/ranks.h"
#include "worker/plan/attention.h"
#include "worker/plan/published.h"
#include "worker/plan/volume.h"
#include "worker/sp/sp.h"

enum { MAX_P = 8, SEGMENT = 4 << 20 };

struct ring_run {
    enum strategy_id strategy;
    enum form_id form;
    int P;
    int64_t T, H, Hk, D;
    int64_t sent[MAX_P][2]; /* by rank: forward, backward */
};

static float *numbers(int64_t n)
{
    float *x = calloc((size_t)n, 4);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7919 % 1000) - 500) / 500;
    return x;
}

static int64_t all_sent(const struct comm *c)
{
    int64_t sum = 0;
    for (int i = 0; i < PURPOSE_N; i++) sum += comm_ledger(c)[i].bytes_sent;
    return sum;
}

/* The ring's buffers, collectives', and behind them what other forms and strategies need. */
static void place(struct sp *sp, const struct ring_run *r, int rank, struct attention_need *need,
                  char *seg, float *owned[2])
{
    const int64_t n = r->T * 2 * r->Hk * r->D * 4, bounce = volume_bounce_size(r->P);
    const struct attention_shape a = {.strategy = r->strategy,
                                      .form = r->form,
                                      .unit = 4,
                                      .back = true,
                                      .P = r->P,
                                      .r = rank,
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

static void one_layer(struct ranks *g, int rank, void *arg)
{
    struct ring_run *r = arg;
    struct err e = {0};
    const int64_t T = r->T, Q = r->H * r->D, KV = 2 * r->Hk * r->D;
    struct attention_need need;
    struct sp sp = {.ops = sp_find(r->strategy, r->form),
                    .comm = g->comm[rank],
                    .shape = {r->H, r->Hk, r->D, (float)(1 / sqrt((double)r->D))}};
    sp.be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    if (!sp.be || !sp.ops ||
        shard_init(&sp.shard, r->P * T, r->P, rank, LAYOUT_CONTIGUOUS, false, &e))
        abort();
    float *x[10]; /* q, kv, o, d_o, dq, dkv, lse, kept, and two of the strategy */
    place(&sp, r, rank, &need, comm_segment(g->comm[rank]), x + 8);
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
    r->sent[rank][0] = all_sent(g->comm[rank]);
    comm_ledger_reset(g->comm[rank]);
    if (!e.code && sp.ops->attn_bwd(&sp, &b, &e)) ranks_fail(g, rank, &e);
    r->sent[rank][1] = all_sent(g->comm[rank]);
    be_close(sp.be);
    for (int i = 0; i < 10; i++) free(x[i]);
    free(lo), free(hi);
}

/* Counts one layer and holds it against what the system's description says. */
static void ring_claim(enum strategy_id strategy, enum form_id form, const char *name, int P,
                       int64_t Hk, bool scatter)
{
    struct ring_run r = {
        .strategy = strategy, .form = form, .P = P, .T = 48, .H = 4, .Hk = Hk, .D = 16};
    struct ranks g;
    struct published_send x[PUBLISHED_SENDS];
    const bool ulysses = strategy == STRATEGY_ULYSSES, blockwise = form == FORM_BLOCKWISE;
    const int64_t kv = r.T * r.Hk * r.D * 4, size[] = {r.T * r.H * r.D * 4, kv, kv};
    const enum published_system as = ulysses     ? PUBLISHED_ULYSSES
                                     : blockwise ? PUBLISHED_RING
                                                 : PUBLISHED_RSA;
    const int n = published_sends(as, scatter, x);
    const struct published_volume want = published_sum(x, n, P, size);
    ranks_open(&g, P, SEGMENT, NULL);
    ranks_run(&g, one_layer, &r);
    bool equal = true;
    for (int i = 0; i < P; i++) {
        equal &= !g.err[i].code;
        equal &= r.sent[i][0] == want.forward && r.sent[i][1] == want.backward;
    }
    ranks_close(&g);
    char what[128], ours[64];
    const bool published = form == FORM_TWO_PASS || ulysses;
    struct claim c = {.what = what,
                      .source = blockwise   ? "2310.01889"
                                : published ? "2105.13120"
                                            : "-",
                      .claimed_text = published ? "8 (P-1) slices" : "-",
                      .ours_text = ours,
                      .verdict = !equal      ? BROKEN
                                 : published ? REPRODUCED
                                             : HOLDS,
                      .why = "counted == formula on every rank"};
    const int64_t slice = size[PUBLISHED_WIDTH];
    snprintf(what, sizeof what, "%s, P %d, %lld KV heads of 4: sent by a rank for a layer", name, P,
             (long long)Hk);
    if (ulysses)
        snprintf(ours, sizeof ours, "8 (P-1)/P slices");
    else
        snprintf(ours, sizeof ours, "%.4g (P-1) slices",
                 (double)(want.forward + want.backward) / (double)((P - 1) * slice));
    snprintf(c.measured, sizeof c.measured, "%lld + %lld bytes", (long long)r.sent[0][0],
             (long long)r.sent[0][1]);
    report_claim(&c);
}

void paper_ring(void)
{
    report_section("RSA: bytes of a layer, counted",
                   "A slice is one rank's part of one activation. Forward and backward, fp32. The "
                   "published form "
                   "sends 8 (P-1) slices a layer, as many as tensor parallelism of 2021 does; "
                   "scattering the sums "
                   "of dK and dV instead of reducing them everywhere saves a quarter; passing "
                   "blocks round a ring "
                   "with running sums sends KV heads alone.");
    report_table();
    for (int P = 2; P <= MAX_P; P *= 2)
        ring_claim(STRATEGY_RSA, FORM_TWO_PASS, "RSA as published", P, 4, false);
    for (int P = 2; P <= MAX_P; P *= 2)
        ring_claim(STRATEGY_RSA, FORM_TWO_PASS_SCATTER, "RSA, sums scattered", P, 4, true);
    for (int P = 2; P <= MAX_P; P *= 2)
        ring_claim(STRATEGY_RSA, FORM_BLOCKWISE, "blockwise", P, 4, false);
    ring_claim(STRATEGY_RSA, FORM_BLOCKWISE, "blockwise", 4, 1, false);
    for (int P = 2; P <= 4; P *= 2) ring_claim(STRATEGY_ULYSSES, FORM_AUTO, "Ulysses", P, 4, false);
}
