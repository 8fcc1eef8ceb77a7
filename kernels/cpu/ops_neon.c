/* The operations for arm64, which has 32 registers of 4 floats. */
#include "kernels/cpu/vec_neon.h"

#define GEMM_MR   6
#define GEMM_NV   4
#define PROD_MR   6
#define PROD_NV   4
#define OPS_TABLE cpu_ops_neon
#include "kernels/cpu/ops.inc"
