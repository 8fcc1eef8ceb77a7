/* The operations for any machine, with 16 registers of 4 floats. */
#include "kernels/cpu/vec_portable.h"

#define GEMM_MR   4
#define GEMM_NV   2
#define PROD_MR   4
#define PROD_NV   2
#define OPS_TABLE cpu_ops_portable
#include "kernels/cpu/ops.inc"
