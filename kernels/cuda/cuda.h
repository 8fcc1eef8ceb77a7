/* cuda.h: the device "cuda" between its files: one row of the table of operations.
 *
 *   cuda.cu      opening, memory, streams, the table
 *   gemm.cu      matrix products                    elem.cu      elementwise; casts, copies, Adam
 *   attn*.cu     softmax attention                  norm.cu      normalisation
 *   linear*.cu   linear attention                   cond.cu      bias, modulation, gates
 *   loss.cu      embedding, losses, routing         position.cu  RoPE, LRPE
 *   hopper*.cu   attention for compute capability 9.0
 *
 * The same files are compiled for the host with SEQD_EMU (emu.h), where the tests run them. */
#ifndef SEQD_CUDA_CUDA_H
#define SEQD_CUDA_CUDA_H

#include "kernels/backend.h"

#ifdef SEQD_EMU
#include "kernels/cuda/emu.h"
#else
#include <cuda_runtime.h>
#endif

struct cuda {
    struct be be;
    cudaStream_t compute;
    bool owns_scratch;
    void *hopper;     /* hopper.h: cuTensorMapEncodeTiled where its kernels run, otherwise NULL */
    char failed[160]; /* the first launch that failed; sync reports it */
};

static inline struct cuda *cuda_of(struct be *be)
{
    return (struct cuda *)be;
}
/* After a launch: what the runtime says is kept for sync. */
void cuda_launched(struct cuda *c, const char *kernel);

#define CUDA_OPS(X)                                                                                \
    X(gemm)                                                                                        \
    X(attn_fwd)                                                                                    \
    X(attn_finish)                                                                                 \
    X(attn_delta) X(attn_bwd) X(rmsnorm_fwd) X(rmsnorm_bwd) X(rope) X(swiglu_fwd) X(swiglu_bwd)    \
        X(embed_fwd) X(embed_bwd) X(xent) X(add) X(adamw) X(sumsq) X(cast) X(norm_fwd) X(norm_bwd) \
            X(act_fwd) X(act_bwd) X(glu_fwd) X(glu_bwd) X(mix) X(bias_fwd) X(bias_bwd)             \
                X(modulate_fwd) X(modulate_bwd) X(gate_fwd) X(gate_bwd) X(lrpe_fwd) X(lrpe_bwd)    \
                    X(softmax_fwd) X(softmax_bwd) X(dropout) X(permute) X(mse) X(route)            \
                        X(linear_fwd) X(linear_enter) X(linear_bwd) X(linear_enter_bwd)            \
                            X(linear_fold)
#define CUDA_DECLARE(op) void cuda_##op(struct be *, const struct op##_args *);
CUDA_OPS(CUDA_DECLARE)
#undef CUDA_DECLARE

#endif
