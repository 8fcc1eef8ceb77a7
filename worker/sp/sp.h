/* sp.h: sequence parallelism, which is attention over a sequence that no rank holds whole.
 *
 * A strategy is a struct sp_row. The model calls sp->ops->attn_* and does not depend on the number
 * of ranks. The strategies are in the files local, rsa (with its forms two_pass and all_gather)
 * and ulysses (also for usp). linear.h has the table of linear attention's exchanges. dsp.h has
 * DSP's changes of the sharded dimension.
 *
 * Order of the sums. A query segment c uses the key segments in the order c, c-1, ..., 0, then
 * n-1, ..., c+1; a dKV segment c is summed over query segments c, c+1, ..., n-1, then 0, ..., c-1.
 * In a contiguous ring, blocks arrive in this order. The only exception are the later segments of
 * the rank's own block, which are used at the end. So under "ranks" the bits do not depend on
 * P. */
#ifndef SEQD_SP_SP_H
#define SEQD_SP_SP_H

#include "kernels/backend.h"
#include "worker/comm/comm.h"
#include "worker/plan/attention.h"
#include "worker/plan/reach.h"
#include "worker/plan/shard.h"

struct sp_attn_shape {
    int64_t n_heads, n_kv_heads, head_dim;
    /* scale is the factor of the scores, which is 1/sqrt(D) or defined by the model's family. cap
     * is the soft cap of the scores; 0 means that there is no cap. */
    float scale, cap;
    /* [1, H] act: one logit for each head, which has no value vector; data is NULL without
     * sinks */
    struct tensor sink;
};

/* Attention dropout of this step, with the parameters that all layers and samples share (struct
 * attn_drop). Also the random changes of other operations, which have the same key. */
struct sp_drop {
    double rate;     /* 0 if there is no dropout */
    double adapters; /* the rate of the dropout of adapters' inputs; 0 if there is none */
    double noise;    /* train.neftune_alpha; 0 if embeddings get no noise */
    uint32_t key[2];
    uint32_t layer, sample; /* the model sets them before each call */
    uint32_t head;          /* index of the first head of the call */
    /* The position that row position 0 of the model has in the sequence. It is not 0 in a window
     * of time. ADAPT and EMBED add it. */
    int64_t first;
};

/* Computes without dropout and noise from now on. */
static inline void sp_drop_nothing(struct sp_drop *d)
{
    d->rate = d->adapters = d->noise = 0;
}

/* Workspace of the ring, at the plan's offsets. One set is used for all layers.
 *   o         [T, H*D] fp32: the sums that forward carries from block to block. NULL if q, kv and
 *             o are fp32; the args' o then holds the sums
 *   kv[2]     in the comm segment: [T, 2*Hk*D] of kv's dtype each. They hold this rank's copy and
 *             then received blocks, alternately
 *   dkv[2]    in the comm segment: [T, 2*Hk*D] fp32 gradients that are passed on; NULL without
 *             backward
 *   m         [H, T] running maximum (lse holds the running sum); in a piece of a prompt
 *             (paged.h), the running sum
 *   delta     [H, T]; NULL without backward
 *   part      in the comm segment (anywhere when P = 1), for attn_decode: the partial results of
 *             every rank for the n tokens of a pass, o [n, H*D] and lse [H, n], and then workspace.
 *             It has volume_decode_size() bytes for the largest n. NULL if the job does not
 *             generate
 *   at        the buffers of enum attention_buffer (worker/plan/attention.h), set by sp_place()
 * kv and dkv are not used when P = 1. */
struct sp_buffers {
    float *o;
    void *kv[2];
    float *dkv[2];
    float *m, *delta;
    float *part;
    void *bounce; /* in the comm segment, for collectives; used by two_pass */
    void *at[ATTN_BUFFER_N];
};

struct sp {
    const struct sp_ops *ops;
    struct be *be;
    struct comm *comm; /* NULL for local */
    /* ulysses, usp: views of comm (sp_open_groups). group has the ranks of this rank's group. ring
     * has the ranks that have this rank's place in their groups. A view of only this rank is
     * NULL. */
    struct comm *group, *ring;
    struct shard shard;
    struct sp_attn_shape shape;
    struct sp_buffers buf;
    struct sp_drop drop;
    /* determinism is "ranks"; dKV then starts with its owner's part and travels P hops */
    bool rank_bits;
};

/* The host's copy of the key ranges of rows. With it, the host leaves out pairs of blocks in which
 * no query sees a key. It is needed if the device has memory of its own, because lo and hi of the
 * args below are then in the device's memory. It is not read for other devices. If it is NULL, the
 * host leaves out no pair, and the device skips the pairs in which no query sees a key. */
struct sp_seen {
    const int64_t *lo, *hi;
};

/* q, kv, o and d_o are act (kernels/backend.h), all of the same dtype; dq and dkv are fp32. */
struct sp_fwd_args {
    struct tensor q;        /* [T, H*D], after RoPE */
    struct tensor kv;       /* [T, 2*Hk*D] this rank's block, K after RoPE; may be anywhere */
    struct tensor o;        /* [T, H*D] out, normalised */
    float *lse;             /* [H, T] out; for a row that sees no key, -inf or the sink */
    const int64_t *lo, *hi; /* [T] range of global keys that each row sees */
    struct sp_seen seen;    /* lo and hi on the host */
    /* out: kept for the layer's backward; NULL if the form keeps nothing */
    void *kept;
    const struct reach_map *reach; /* NULL if it is not known, so that nothing is left out */
    /* needed if strategy_row.ranges is set: [u*T] lo and hi of the group's rows, in the order of
     * shard_group; not read if u is 1 */
    const int64_t *all_lo, *all_hi;
    struct sp_seen all_seen; /* all_lo and all_hi on the host */
};

struct sp_bwd_args {
    struct tensor q, kv, o, d_o; /* as in forward */
    const float *lse;
    struct tensor dq;  /* [T, H*D] out */
    struct tensor dkv; /* [T, 2*Hk*D] out; anywhere */
    /* [SHARD_SEGS, H] fp32. The gradient of the sinks is written to row 0, and the other rows are
     * scratch. Like all sums over rows, this gradient is summed over sum chunks as a tree. The
     * caller sums it over ranks. data is NULL if there are no sinks. */
    struct tensor d_sink;
    const int64_t *lo, *hi;
    struct sp_seen seen;
    void *kept; /* from the forward pass; overwritten */
    const struct reach_map *reach;
    const int64_t *all_lo, *all_hi;
    struct sp_seen all_seen;
};

/* Keys and values of one sequence on this rank. A query sees rows [lo, n). If pages is NULL, row i
 * is row i of kv. Otherwise kv is a pool of pages of CACHE_PAGE rows, and row i lies in page
 * pages[i / CACHE_PAGE] of the pool. */
struct sp_keys {
    struct tensor kv;     /* [rows, 2*Hk*D] act */
    const int32_t *pages; /* on the device */
    int64_t lo, n;
};

/* Attention of the new tokens of n sequences (generate). Each rank has the part of KV that prefill
 * left on the rank. The caller passes equal q on all ranks, and all ranks return equal o. The
 * partial (o, lse) of all ranks are gathered in one exchange and merged in rank order. A token's
 * result does not depend on the other tokens. At least one rank has a row of each sequence.
 *   q [n, H*D]; keys [n], the rows of this rank's cache that each token sees; o [n, H*D] out; all
 *   act */
struct sp_decode_args {
    struct tensor q, o;
    const struct sp_keys *keys;
};

struct sp_ops {
    int (*attn_fwd)(struct sp *, const struct sp_fwd_args *, struct err *);
    int (*attn_bwd)(struct sp *, const struct sp_bwd_args *, struct err *);
    int (*attn_decode)(struct sp *, const struct sp_decode_args *, struct err *);
};

/* The operations of a strategy in each form. For each line of api/core/strategy.h, the strategy's
 * file has an sp_row_NAME. A strategy without softmax attention over the sequence has no
 * operations. */
struct sp_row {
    const struct sp_ops *form[FORM_N]; /* [FORM_BLOCKWISE]: the default */
};
/* Returns the operations of a strategy in a form. If the strategy does not have this form, returns
 * the operations of its default form, or NULL if it has no operations. */
const struct sp_ops *sp_find(enum strategy_id id, enum form_id form);

/* Points the buffers of `need` (worker/plan/attention.h) into need->arena_size bytes at arena and
 * need->segment_size bytes at segment. The caller sets bounce, m, delta and the buffers of the
 * blockwise ring. */
void sp_place(struct sp_buffers *b, const struct attention_need *need, void *arena, void *segment);

/* Makes the views `group` and `ring` of a rank whose shard and comm are set. Fails with ERR_IO, if
 * there is no memory. */
int sp_open_groups(struct sp *sp, struct err *e);

/* The ranges of keys [lo, hi) of tokens that continue the document of a state, from position 0
 * on. */
extern const int64_t sp_tokens_lo[CACHE_PAGE], sp_tokens_hi[CACHE_PAGE];

/* Operations that other files use. sp_attn_decode is the decoding of all strategies (sp.c). */
extern const struct sp_ops sp_local, sp_rsa, sp_two_pass, sp_two_pass_scatter, sp_all_gather;
int sp_attn_decode(struct sp *sp, const struct sp_decode_args *a, struct err *e);

#endif
