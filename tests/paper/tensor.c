/* tensor.c: runs the forward pass of two transformer blocks in tensor parallelism with sequence
 * parallelism. The blocks consist of the halves of tests/lib/tensor_halves.h. The table of DSP's
 * paper calls this method Megatron-SP. */
#include <math.h>
#include <stdlib.h>
#include "tests/paper/report.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tensor_halves.h"
#include "worker/plan/volume.h"

enum { WIDER = 4, BLOCKS = 2 }; /* the columns of the MLP, as a multiple of the width */

struct blocks {
    int P;
    int64_t S, H, D;
};

static float *numbers(int64_t n)
{
    float *x = calloc((size_t)n, 4);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7919 % 1000) - 500) / 5000;
    return x;
}

static void both_blocks(struct ranks *g, int rank, void *arg)
{
    const struct blocks *b = arg;
    const struct be_options cpu = {.device = "cpu", .n_threads = 1};
    struct err e = {0};
    const int64_t S = b->S, H = b->H / b->P, D = b->D, C = b->H * D, most = WIDER * C / b->P;
    struct tensor_group group = {.be = be_open(&cpu, &e),
                                 .comm = g->comm[rank],
                                 .P = b->P,
                                 .r = rank,
                                 .sp = true,
                                 .S = S,
                                 .C = C,
                                 .bounce = comm_segment(g->comm[rank])};
    const int64_t size[] = {most * C, C * most, S * C, S * most, S * most, S * C,
                            S * C,    S * C,    H * S, H * S,    H * S};
    float *x[sizeof size / sizeof *size];
    int64_t *lo = calloc((size_t)S, 8), *hi = calloc((size_t)S, 8);
    if (!group.be || !lo || !hi) abort();
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = numbers(size[i]);
    for (int64_t i = 0; i < S; i++) hi[i] = S;
    const struct tensor_half half = {
        .whole = x[2], .inner = x[3], .act = x[4], .part = x[5]}; /* the matrices are set below */
    struct tensor_attention a = {.half = half,
                                 .n_heads = H,
                                 .n_kv_heads = H,
                                 .head_dim = D,
                                 .scale = (float)(1 / sqrt((double)D)),
                                 .lo = lo,
                                 .hi = hi,
                                 .lse = x[8],
                                 .m = x[9],
                                 .delta = x[10]};
    struct tensor_mlp m = {.half = half};
    a.half.first = tensor_f32(x[0], 3 * H * D, C, C),
    a.half.last = tensor_f32(x[1], C, H * D, H * D);
    m.half.first = tensor_f32(x[0], most, C, C), m.half.last = tensor_f32(x[1], C, most, most);
    const int64_t rows = tensor_row(&group, rank + 1) - tensor_row(&group, rank);
    const struct tensor in = tensor_f32(x[6], rows, C, C), out = tensor_f32(x[7], rows, C, C);
    for (int k = 0; k < BLOCKS && !e.code; k++)
        if (tensor_attention_fwd(&group, &a, in, out, &e) ||
            tensor_mlp_fwd(&group, &m, out, in, &e))
            ranks_fail(g, rank, &e);
    evidence_phase(g, rank);
    be_close(group.be);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) free(x[i]);
    free(lo), free(hi);
}

struct evidence *count_tensor_blocks(int P, int64_t S, int64_t H, int64_t D)
{
    struct blocks b = {P, S, H, D};
    return evidence_ledger(P, volume_bounce_size(P) + 4096, both_blocks, &b);
}
