/* cuda.h: declarations that the files of the device "cuda" share. The device is one row of the
 * table of operations:
 *
 *   cuda.cu      opening, the table                 gemm.cu      products; quant.cu, blas.cu
 *   stream.cu    failures, waiting, transfers       elem.cu      elementwise; casts, copies, Adam
 *   memory.cu    memory, to and from the host       norm.cu      normalisation
 *   graph.cu     operations that are repeated       cond.cu      bias, modulation, gates
 *   attn*.cu     softmax attention                  position.cu  RoPE, LRPE
 *   linear*.cu   linear attention                   hopper*.cu   both attentions for 9.0
 *   loss.cu      embedding, losses, routing         delta.cu     gated delta rule; conv.cu
 *
 * With SEQD_EMU these files are compiled for the host (emu.h), where the tests run them. */
#ifndef SEQD_CUDA_CUDA_H
#define SEQD_CUDA_CUDA_H

#include "kernels/backend.h"

#ifdef SEQD_EMU
#include "kernels/cuda/emu.h"
#else
#include <cuda_runtime.h>
#endif

/* A ring of pinned host memory through which uploads pass, so that the caller can reuse the source
 * immediately. 16 MiB are enough for a step's upload of a batch of half a million tokens (32 bytes
 * of ids, targets, positions, lo and hi for each token) before the host has to wait. Downloads
 * have room for two pieces. */
#define STAGING_RING ((int64_t)16 << 20)
/* 20 us of a bus of 50 GB/s; two pieces keep the bus busy */
#define STAGING_PIECE  ((int64_t)1 << 20)
#define STAGING_PIECES 256 /* largest number of pieces that are being copied at a time */
struct staging {
    char *at; /* the ring, and after it the pieces for downloads */
    /* put counts the bytes that were written into the ring, free counts the bytes that have left
     * it */
    int64_t put, free;
    int64_t first, last;         /* pieces under way, [first, last) */
    int64_t end[STAGING_PIECES]; /* end of each piece */
    cudaEvent_t sent[STAGING_PIECES];
    cudaEvent_t downloaded[2];
};

/* largest number of pieces of other processes' memory that are attached at a time */
#define CUDA_PEERS 256

struct cuda {
    struct be be;
    cudaStream_t compute, transfer, back, out; /* back, out: copies from and to the host */
    /* asked: used by a wait; begun: used by transfer_begin and copy_beside; gone: set by the last
     * copy in `out` */
    cudaEvent_t asked, begun, gone;
    cudaEvent_t marks[BE_MARKS], copied[BE_COPIES];
    struct staging staging;
    void *attached[CUDA_PEERS];
    cudaUUID_t uuid;
    char name[256];
    /* number of multiprocessors; bytes of shared memory that a block may have */
    int n_sm, smem_most;
    struct blas *blas;         /* blas.h: cuBLASLt if the order of sums is free, or NULL */
    struct be_library library; /* whether cuBLASLt was opened, and its counts */
    /* hopper.h: cuTensorMapEncodeTiled if kernels for 9.0 run, or NULL */
    void *hopper;
    struct graphs *graphs; /* graph.h; NULL if operations are launched immediately */
    bool owns_scratch;
    /* be->watch has ended a wait; the work under way may therefore never finish */
    bool given_up;
    const char *launched; /* the last kernel or graph */
    /* the first failure, which sync reports; its code is ERR_NONE if there is none */
    struct err failed;
};

static inline struct cuda *cuda_of(struct be *be)
{
    return (struct cuda *)be;
}

/* ---- stream.cu ---- */

/* Called after a launch. Keeps an error of the runtime for sync. */
void cuda_launched(struct cuda *c, const char *kernel);
/* Keeps an error for sync if a launch asks for more shared memory than a block may have. */
void cuda_smem_fits(struct cuda *c, int smem, const char *kernel);
/* Keeps the first failure for sync. Returns true if rc is not a failure. `what` names the work
 * that rc belongs to, such as "copying" or "waiting". */
bool cuda_fine(struct cuda *c, cudaError_t rc, const char *what);
/* Waits until the device has passed the event. Returns false after a failure, or if be->watch has
 * ended the wait. */
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
    X(attn_merge)                                                                                  \
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
