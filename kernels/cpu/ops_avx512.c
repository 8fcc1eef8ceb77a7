/* The operations for x86-64 with AVX-512, which has 32 registers of 16 floats. */
#include "kernels/cpu/vec_avx512.h"

#define GEMM_MR   14
#define GEMM_NV   2
#define PROD_MR   6
#define PROD_NV   4
#define OPS_TABLE cpu_ops_avx512
#include "kernels/cpu/ops.inc"
