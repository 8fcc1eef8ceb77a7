/* ring.c: what Ring Self-Attention sends for a layer, counted by the transport of P ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/paper/report.h"
#include "tests/ranks.h"
#include "tests/standin.h"
#include "worker/plan/published.h"
#include "worker/sp/sp.h"

enum { MAX_P = 8 };

struct ring_run {
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

static struct sp_buffers buffers(const struct ring_run *r, float *seg, float *heap)
{
    const int64_t n = r->T * 2 * r->Hk * r->D, ml = r->H * r->T;
    return (struct sp_buffers){.kv = {seg, seg + n},
                               .dkv = {seg + 2 * n, seg + 3 * n},
                               .bounce = seg + 4 * n,
                               .m = heap,
                               .delta = heap + ml,
                               .full = heap + 2 * ml,
                               .tile = heap + 2 * ml + r->P * n};
}

static void one_layer(struct ranks *g, int rank, void *arg)
{
    struct ring_run *r = arg;
    struct err e = {0};
    const int64_t T = r->T, Q = r->H * r->D, KV = 2 * r->Hk * r->D;
    struct sp sp = {.ops = sp_find(STRATEGY_RSA, r->form),
                    .comm = g->comm[rank],
                    .shape = {r->H, r->Hk, r->D, (float)(1 / sqrt((double)r->D))}};
    float *heap = numbers(2 * r->H * T + r->P * T * KV + T * T * r->P), *lse = numbers(r->H * T);
    float *q = numbers(T * Q), *kv = numbers(T * KV), *o = numbers(T * Q), *d_o = numbers(T * Q);
    float *dq = numbers(T * Q), *dkv = numbers(T * KV), *kept = numbers(r->H * T * T * r->P);
    int64_t *lo = calloc((size_t)T, 8), *hi = calloc((size_t)T, 8);
    sp.be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    if (!lo || !hi || !sp.be) abort();
    standin(sp.be);
    sp.buf = buffers(r, comm_segment(g->comm[rank]), heap);
    for (int64_t i = 0; i < T; i++) hi[i] = r->P * T; /* bidirectional, as published */
    const struct sp_fwd_args f = {.q = tensor_f32(q, T, Q, Q),
                                  .kv = tensor_f32(kv, T, KV, KV),
                                  .o = tensor_f32(o, T, Q, Q),
                                  .lse = lse,
                                  .lo = lo,
                                  .hi = hi,
                                  .kept = kept};
    const struct sp_bwd_args b = {.q = f.q,
                                  .kv = f.kv,
                                  .o = f.o,
                                  .d_o = tensor_f32(d_o, T, Q, Q),
                                  .lse = lse,
                                  .dq = tensor_f32(dq, T, Q, Q),
                                  .dkv = tensor_f32(dkv, T, KV, KV),
                                  .lo = lo,
                                  .hi = hi,
                                  .kept = kept};
    if (shard_init(&sp.shard, r->P * T, r->P, rank, LAYOUT_CONTIGUOUS, false, &e) ||
        sp.ops->attn_fwd(&sp, &f, &e))
        ranks_fail(g, rank, &e);
    r->sent[rank][0] = all_sent(g->comm[rank]);
    comm_ledger_reset(g->comm[rank]);
    if (!e.code && sp.ops->attn_bwd(&sp, &b, &e)) ranks_fail(g, rank, &e);
    r->sent[rank][1] = all_sent(g->comm[rank]);
    be_close(sp.be);
    void *all[] = {heap, lse, q, kv, o, d_o, dq, dkv, kept, lo, hi};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Counts one layer and holds it against what the system's description says. */
static void ring_claim(enum form_id form, const char *name, int P, int64_t Hk, bool scatter)
{
    struct ring_run r = {.form = form, .P = P, .T = 48, .H = 4, .Hk = Hk, .D = 16};
    struct ranks g;
    struct published_send x[PUBLISHED_SENDS];
    const bool blockwise = form == FORM_BLOCKWISE;
    const int64_t kv = r.T * r.Hk * r.D * 4, size[] = {r.T * r.H * r.D * 4, kv, kv};
    const int n = published_sends(blockwise ? PUBLISHED_RING : PUBLISHED_RSA, scatter, x);
    const struct published_volume want = published_sum(x, n, P, size);
    ranks_open(&g, P, (8 * r.T * r.Hk * r.D) * 4 + (2 << 20), NULL);
    ranks_run(&g, one_layer, &r);
    bool equal = true;
    for (int i = 0; i < P; i++) {
        equal &= !g.err[i].code;
        equal &= r.sent[i][0] == want.forward && r.sent[i][1] == want.backward;
    }
    ranks_close(&g);
    char what[128], ours[64];
    const bool published = form == FORM_TWO_PASS;
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
    for (int P = 2; P <= MAX_P; P *= 2) ring_claim(FORM_TWO_PASS, "RSA as published", P, 4, false);
    for (int P = 2; P <= MAX_P; P *= 2)
        ring_claim(FORM_TWO_PASS_SCATTER, "RSA, sums scattered", P, 4, true);
    for (int P = 2; P <= MAX_P; P *= 2) ring_claim(FORM_BLOCKWISE, "blockwise", P, 4, false);
    ring_claim(FORM_BLOCKWISE, "blockwise", 4, 1, false);
}
