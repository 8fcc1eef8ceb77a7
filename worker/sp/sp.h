/* sp.h: sequence parallelism: attention over a sequence that no rank holds whole.
 *
 * A strategy is a struct sp_row. The model calls sp->ops->attn_* and does not depend on the number
 * of ranks. The files are local, rsa with its forms two_pass and all_gather, and ulysses (also for
 * usp). linear.h has the table of linear attention's exchanges, dsp.h DSP's changes of the sharded
 * dimension.
 *
 * Order of the sums. For a query segment c the key segments are taken c, c-1, ..., 0, then n-1,
 * ..., c+1; a dKV segment is summed over query segments c, c+1, ..., n-1, then 0, ..., c-1. In a
 * contiguous ring this is the order in which blocks arrive, if the later segments of the own block
 * are taken last. So under "ranks" the bits do not depend on P. */
#ifndef SEQD_SP_SP_H
#define SEQD_SP_SP_H

#include "kernels/backend.h"
#include "worker/comm/comm.h"
#include "worker/plan/attention.h"
#include "worker/plan/reach.h"
#include "worker/plan/shard.h"

struct sp_attn_shape {
    int64_t n_heads, n_kv_heads, head_dim;
    float scale, cap;   /* scale: factor of scores, 1/sqrt(D) or the family's; cap: their soft cap,
                         * 0: none */
    struct tensor sink; /* [1, H] act: a logit of each head without a value; data NULL: none */
};

/* Attention dropout of this step: the parameters that all layers and samples share (struct
 * attn_drop). */
struct sp_drop {
    double rate; /* 0: none */
    uint32_t key[2];
    uint32_t layer, sample; /* the model sets them before a call */
    uint32_t head;          /* number of the call's first head */
};

/* Workspace of the ring, at the plan's offsets. One set serves all layers.
 *   o         [T, H*D] fp32: the sums that forward carries from block to block; NULL when q, kv
 *             and o are fp32, and o itself holds the sums
 *   kv[2]     in the comm segment: [T, 2*Hk*D] of kv's dtype each: the own copy and received
 *             blocks, in turns
 *   dkv[2]    in the comm segment: [T, 2*Hk*D] fp32 gradients that are passed on; NULL without
 *             backward
 *   m         [H, T] running maximum (lse holds the running sum); in decoding, sums
 *   delta     [H, T]; NULL without backward
 *   part      in the comm segment (anywhere when P = 1), for attn_decode: [P, n, H*(D+1)] partial
 *             (o, lse) of every rank, of the n tokens of a pass, then workspace for merging them;
 *             volume_decode_size() bytes of the most tokens; NULL unless generating
 *   at        the buffers of enum attention_buffer (worker/plan/attention.h), set by sp_place()
 * kv and dkv are not used when P = 1. */
struct sp_buffers {
    float *o;
    void *kv[2];
    float *dkv[2];
    float *m, *delta;
    float *part;
    void *bounce; /* in the comm segment, for collectives; two_pass */
    void *at[ATTN_BUFFER_N];
};

struct sp {
    const struct sp_ops *ops;
    struct be *be;
    struct comm *comm; /* NULL for local */
    /* ulysses, usp: views of comm (sp_open_groups). group: the ranks of this rank's group; ring:
     * the ranks at the same place in all groups. NULL: this rank alone. */
    struct comm *group, *ring;
    struct shard shard;
    struct sp_attn_shape shape;
    struct sp_buffers buf;
    struct sp_drop drop;
    bool rank_bits; /* determinism "ranks": dKV starts from the owner's part and travels P hops */
};

/* The host's copy of the key ranges of rows, by which the host leaves out pairs of blocks in which
 * no query sees a key. It is for devices with memory of their own, in which lo and hi of the args
 * below lie; other devices do not read it. NULL: the host leaves out no pair, and the device skips
 * them. */
struct sp_seen {
    const int64_t *lo, *hi;
};

/* q, kv, o and d_o are act (kernels/backend.h), all of one dtype; dq and dkv are fp32. */
struct sp_fwd_args {
    struct tensor q;        /* [T, H*D], after RoPE */
    struct tensor kv;       /* [T, 2*Hk*D] own block, K after RoPE; anywhere */
    struct tensor o;        /* [T, H*D] out, normalised */
    float *lse;             /* [H, T] out; -inf, or the sink, for rows that see no key */
    const int64_t *lo, *hi; /* [T] visible global key range of each local row */
    struct sp_seen seen;    /* lo and hi on the host */
    void *kept;             /* out: kept for the layer's backward; NULL if it needs no memory */
    const struct reach_map *reach; /* NULL: not known, and nothing is left out */
    const int64_t *all_lo,
        *all_hi;             /* strategy_row.ranges: [u*T] lo and hi of the group's rows, in the
                              * order of shard_group; u 1: not read */
    struct sp_seen all_seen; /* all_lo and all_hi on the host */
};

struct sp_bwd_args {
    struct tensor q, kv, o, d_o; /* as in forward */
    const float *lse;
    struct tensor dq;  /* [T, H*D] out */
    struct tensor dkv; /* [T, 2*Hk*D] out; anywhere */
    /* [SHARD_SEGS, H] fp32. Row 0 gets the gradient of the sinks, summed over sum chunks as a
     * tree, like all sums over rows. The caller sums over ranks. Other rows are scratch. data
     * NULL: there are no sinks. */
    struct tensor d_sink;
    const int64_t *lo, *hi;
    struct sp_seen seen;
    void *kept; /* from the forward pass; overwritten */
    const struct reach_map *reach;
    const int64_t *all_lo, *all_hi;
    struct sp_seen all_seen;
};

/* The new tokens of n sequences (generate). Each rank has the part of KV that prefill left on it.
 * Every rank gets the same q and returns the same o. The partial (o, lse) of all ranks are
 * gathered in one exchange and merged in rank order, for each token as if it were alone. At least
 * one rank has a row of each sequence.
 *   q [n, H*D]; kv [n] of [n_rows, 2*Hk*D], the rows of this rank's cache that each token sees;
 *   o [n, H*D] out; all act */
struct sp_decode_args {
    struct tensor q, o;
    const struct tensor *kv;
};

struct sp_ops {
    int (*attn_fwd)(struct sp *, const struct sp_fwd_args *, struct err *);
    int (*attn_bwd)(struct sp *, const struct sp_bwd_args *, struct err *);
    int (*attn_decode)(struct sp *, const struct sp_decode_args *, struct err *);
};

/* The operations of a strategy, by form: sp_row_NAME of its file, for each line of
 * api/core/strategy.h. A strategy without softmax attention over the sequence has none. */
struct sp_row {
    const struct sp_ops *form[FORM_N]; /* [FORM_BLOCKWISE]: the default */
};
/* Returns the operations of a strategy in a form, or in its default form if it lacks that form.
 * NULL: the strategy has no operations. */
const struct sp_ops *sp_find(enum strategy_id id, enum form_id form);

/* Points the buffers of `need` (worker/plan/attention.h) into its arena_size and segment_size bytes
 * at arena and segment. The caller sets the buffers of the blockwise ring, bounce, m and delta. */
void sp_place(struct sp_buffers *b, const struct attention_need *need, void *arena, void *segment);

/* Makes the views `group` and `ring` of a rank whose shard and comm are set. fails: ERR_IO, no
 * memory. */
int sp_open_groups(struct sp *sp, struct err *e);

/* Operations that other files use, and the decoding that strategies share (sp.c). */
extern const struct sp_ops sp_local, sp_rsa, sp_two_pass, sp_two_pass_scatter, sp_all_gather;
int sp_attn_decode(struct sp *sp, const struct sp_decode_args *a, struct err *e);

#endif
