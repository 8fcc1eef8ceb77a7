/* The operations for x86-64 with AVX-512 and the matrix tiles of AMX. Products of bf16 tensors use
 * the tiles; all other operations are as in ops_avx512.c, from the same source. */
#include "kernels/cpu/vec_avx512bf16.h"

#define VEC_AMX   1
#define GEMM_MR   14
#define GEMM_NV   2
#define PROD_MR   6
#define PROD_NV   4
#define OPS_TABLE cpu_ops_amx
#include "kernels/cpu/ops.inc"
