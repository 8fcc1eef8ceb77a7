/* The operations for arm64 with bf16 dot products. Products of bf16 tensors use them; all other
 * operations are as in ops_neon.c, from the same source. */
#include "kernels/cpu/vec_neonbf16.h"
#ifndef VEC_PAIRS
#error "the compiler has no bf16 dot products for these flags"
#endif

#define GEMM_MR   6
#define GEMM_NV   4
#define PROD_MR   6
#define PROD_NV   4
#define OPS_TABLE cpu_ops_neonbf16
#include "kernels/cpu/ops.inc"
