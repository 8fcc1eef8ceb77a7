/* blas.h: matrix products by cuBLASLt, which are used if the order of sums is free
 * (be->any_order). cuBLASLt chooses a kernel for each shape, so a row's bits may depend on how
 * many rows there are. Results are the same from run to run, because no algorithm that adds by
 * atomics is used.
 *
 * blas_open opens the library. If there is no library, or if it has no algorithm for a product,
 * our own kernel computes the product. */
#ifndef SEQD_CUDA_BLAS_H
#define SEQD_CUDA_BLAS_H

#include "kernels/cuda/cuda.h"

/* The part of cuBLASLt's interface that is used (releases 12 and 13), declared here so that the
 * build does not need cuBLASLt's header. If the header exists, blas.cu compares these declarations
 * with it. Each call returns 0, or a status that is not 0. */
struct blas_algo {
    uint64_t data[8];
};
struct blas_choice {
    struct blas_algo algo;
    size_t workspace_size;
    int state;
    float waves;
    int reserved[4];
};
enum {
    BLAS_OP_N = 0,
    BLAS_OP_T = 1,
    BLAS_R_32F = 0,
    BLAS_R_16F = 2,
    BLAS_R_16BF = 14,
    BLAS_COMPUTE_32F = 68,
    BLAS_DESC_TRANSA = 3,
    BLAS_DESC_TRANSB = 4,
    BLAS_DESC_EPILOGUE = 7,
    BLAS_DESC_BIAS = 8, /* a pointer to [m] of d's type */
    BLAS_EPILOGUE_BIAS = 4,
    BLAS_PREF_WORKSPACE = 1,
    BLAS_PREF_REDUCTION = 3,
    BLAS_PREF_ALIGN_A = 5, /* then B, C, D */
    /* allows split-K, which sums its parts in order, in the workspace */
    BLAS_REDUCTION_IN_F32 = 2,
};
#define BLAS_CALLS(X)                                                                              \
    X(Create, (void **))                                                                           \
    X(Destroy, (void *))                                                                           \
    X(MatmulDescCreate, (void **, int compute, int scale))                                         \
    X(MatmulDescDestroy, (void *))                                                                 \
    X(MatmulDescSetAttribute, (void *, int, const void *, size_t))                                 \
    X(MatrixLayoutCreate, (void **, int type, uint64_t rows, uint64_t cols, int64_t ld))           \
    X(MatrixLayoutDestroy, (void *))                                                               \
    X(MatmulPreferenceCreate, (void **))                                                           \
    X(MatmulPreferenceDestroy, (void *))                                                           \
    X(MatmulPreferenceSetAttribute, (void *, int, const void *, size_t))                           \
    X(MatmulAlgoGetHeuristic, (void *handle, void *desc, void *a, void *b, void *c, void *d,       \
                               void *preference, int most, struct blas_choice *, int *n))          \
    X(Matmul,                                                                                      \
      (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,  \
       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,   \
       const struct blas_algo *, void *workspace, size_t size, cudaStream_t))

/* Opens the library. Returns NULL if there is no library, or if it is not wanted. In that case, *l
 * has the reason; otherwise *l has the library's version. */
struct blas *blas_open(struct be_library *l);
void blas_close(struct blas *b);
/* Computes a product by cuBLASLt. Returns false if cuBLASLt has not computed the product. */
bool blas_gemm(struct cuda *c, const struct gemm_args *a);

#ifdef SEQD_EMU
/* Replaces dlsym of a library in the emulation (emu_blas.cc). */
void *emu_blas_find(const char *name);
#endif

#endif
