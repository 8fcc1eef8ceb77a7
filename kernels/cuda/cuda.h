/* cuda.h: the device "cuda" between its files: one row of the table of operations.
 *
 *   cuda.cu      opening, the table                 gemm.cu      products; quant.cu, blas.cu
 *   stream.cu    failures, waiting, transfers       elem.cu      elementwise; casts, copies, Adam
 *   memory.cu    memory, to and from the host       norm.cu      normalisation
 *   graph.cu     operations that come again         cond.cu      bias, modulation, gates
 *   attn*.cu     softmax attention                  position.cu  RoPE, LRPE
 *   linear*.cu   linear attention                   hopper*.cu   both attentions for 9.0
 *   loss.cu      embedding, losses, routing         delta.cu     gated delta rule; conv.cu
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

/* A ring of pinned host memory that uploads pass through, so that the caller can reuse its own at
 * once. 16 MiB hold a step's upload of a batch (ids, targets, positions, lo and hi: 32 bytes a
 * token) of half a million tokens before the host has to wait. Downloads have room for two
 * pieces. */
#define STAGING_RING   ((int64_t)16 << 20)
#define STAGING_PIECE  ((int64_t)1 << 20) /* 20 us of a bus of 50 GB/s, which two pieces fill */
#define STAGING_PIECES 256                /* pieces on their way at a time */
struct staging {
    char *at;                    /* the ring, followed by the downloads' pieces */
    int64_t put, free;           /* put: bytes put in so far; free: bytes that have left */
    int64_t first, last;         /* pieces under way, [first, last) */
    int64_t end[STAGING_PIECES]; /* end of each piece */
    cudaEvent_t sent[STAGING_PIECES];
    cudaEvent_t downloaded[2];
};

#define CUDA_PEERS 256 /* most pieces of other processes' memory attached at a time */

struct cuda {
    struct be be;
    cudaStream_t compute, transfer, copies;
    cudaEvent_t asked, begun; /* asked: for a wait; begun: for transfer_begin and copy_beside */
    cudaEvent_t marks[BE_MARKS], copied[BE_COPIES];
    struct staging staging;
    void *attached[CUDA_PEERS];
    cudaUUID_t uuid;
    char name[256];
    int n_sm, smem_most;       /* multiprocessors; bytes of shared memory that a block may have */
    struct blas *blas;         /* blas.h: cuBLASLt where the order of sums is free, or NULL */
    struct be_library library; /* tells whether cuBLASLt opened; its counts */
    void *hopper;              /* hopper.h: cuTensorMapEncodeTiled where its kernels run, or NULL */
    struct graphs *graphs;     /* graph.h; NULL: operations are launched at once */
    bool owns_scratch;
    bool given_up;        /* be->watch ended a wait: work under way may never end */
    const char *launched; /* the last kernel or graph */
    struct err failed;    /* the first failure; code ERR_NONE: none. sync reports it */
};

static inline struct cuda *cuda_of(struct be *be)
{
    return (struct cuda *)be;
}

/* ---- stream.cu ---- */

/* Called after a launch: keeps an error of the runtime for sync. */
void cuda_launched(struct cuda *c, const char *kernel);
/* Keeps an error for a launch that asks for more shared memory than a block may have. */
void cuda_smem_fits(struct cuda *c, int smem, const char *kernel);
/* Keeps the first failure for sync. Returns true if rc is no failure. what: "copying",
 * "waiting" ... */
bool cuda_fine(struct cuda *c, cudaError_t rc, const char *what);
/* Waits until the device has passed the event. false: a failure, or be->watch ended the wait. */
bool cuda_wait(struct cuda *c, cudaEvent_t e);
cudaError_t stream_open(struct cuda *c);
void stream_close(struct cuda *c);
void stream_slots(struct be_ops *t);

/* ---- memory.cu ---- */

cudaError_t memory_open(struct cuda *c);
void memory_close(struct cuda *c);
void memory_slots(struct be_ops *t);

/* clang-format off */
#define CUDA_OPS(X)                                                                                \
    X(gemm)                                                                                        \
    X(attn_sink_fwd)                                                                               \
    X(attn_sink_bwd)                                                                               \
    X(attn_fwd)                                                                                    \
    X(attn_finish)                                                                                 \
    X(attn_delta) X(attn_bwd) X(rmsnorm_fwd) X(rmsnorm_bwd) X(rope) X(swiglu_fwd) X(swiglu_bwd)    \
        X(embed_fwd) X(embed_bwd) X(xent) X(xent_part) X(add) X(adamw) X(sumsq) X(cast) X(norm_fwd) X(norm_bwd) \
            X(norm_part) \
            X(act_fwd) X(act_bwd) X(glu_fwd) X(glu_bwd)                       \
    X(clamp_glu_fwd) X(clamp_glu_bwd) X(mix) X(bias_fwd) X(bias_bwd)             \
                X(modulate_fwd) X(modulate_bwd) X(gate_fwd) X(gate_bwd) X(lrpe_fwd) X(lrpe_bwd)    \
                    X(softmax_fwd) X(softmax_bwd) X(dropout) X(permute) X(mse) X(noise) X(route)   \
                        X(linear_fwd) X(linear_enter) X(linear_bwd) X(linear_enter_bwd)            \
                            X(linear_fold) X(linear_angle) X(delta_fwd) X(delta_bwd)               \
                                X(conv_fwd) X(conv_bwd)
/* clang-format on */
#define CUDA_DECLARE(op) void cuda_##op(struct be *, const struct op##_args *);
CUDA_OPS(CUDA_DECLARE)
#undef CUDA_DECLARE
void cuda_fill(struct be *be, float *p, int64_t n, float value);
void cuda_copy(struct be *be, void *dst, const void *src, int64_t size);

#endif
