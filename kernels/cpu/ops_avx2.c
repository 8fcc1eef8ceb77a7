/* The operations for x86-64 with AVX2 and FMA, which has 16 registers of 8 floats. */
#include "kernels/cpu/vec_avx2.h"

#define GEMM_MR   6
#define GEMM_NV   2
#define PROD_MR   6
#define PROD_NV   2
#define OPS_TABLE cpu_ops_avx2
#include "kernels/cpu/ops.inc"
