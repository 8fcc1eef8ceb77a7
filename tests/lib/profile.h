/* profile.h: profiles of machines for tests. A machine has one rate for all operations that count
 * flops, and another rate for all operations that count elements. */
#ifndef SEQD_TESTS_PROFILE_H
#define SEQD_TESTS_PROFILE_H

#include "api/core/profile.h"

static inline struct profile profile_of(double flops, double elements, double copy, double hop)
{
    struct profile p = {
        .norm = elements, .point = elements, .turn = elements, .update = elements, .copy = copy};
    double *const rates[] = {p.gemm_f32,      p.gemm_bf16,      p.attn_f32, p.attn_bf16,
                             p.attn_back_f32, p.attn_back_bf16, p.linear,   p.linear_back};
    for (unsigned i = 0; i < sizeof rates / sizeof *rates; i++)
        for (int k = 0; k < PROFILE_SIZES; k++) rates[i][k] = flops;
    p.hop = hop;
    return p;
}

#endif
