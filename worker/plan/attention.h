/* attention.h: the buffers of each form of attention over several ranks, except the buffers of the
 * ring, which are items of the plan themselves. Pure arithmetic, for the plan, for the code that
 * places buffers and for the strategies (worker/sp), so that all of these agree about every
 * byte. */
#ifndef SEQD_PLAN_ATTENTION_H
#define SEQD_PLAN_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"

struct attention_shape {
    enum strategy_id strategy;
    enum form_id form;
    int64_t unit;         /* bytes of an element of q, kv and o */
    bool rank_bits, back; /* rank_bits: determinism is "ranks"; back: there is a backward pass */
    /* P: ranks; u: ranks of a group that shares heads, 1 if there is no group */
    int P, u;
    int64_t T, seg_len; /* T: rows of a rank; seg_len: rows of a segment */
    int64_t H, Hk, D;
};

/* Heads that are sharded. Rank w of P has the query heads [q0, q0 + nq) and the KV heads that
 * these query heads use, [k0, k0 + nk). The query heads are divided as evenly as possible. If the
 * query heads of one KV head are divided, its keys and values go to several ranks. */
struct head_share {
    int64_t q0, nq, k0, nk;
};
struct head_share attention_head_share(int64_t H, int64_t Hk, int P, int w);

enum attention_buffer {
    /* segment: this rank's keys and values; two_pass: either its keys or its values; usp: the keys
     * and values of one KV head */
    ATTN_KV0,
    ATTN_KV1,  /* segment: two_pass, usp: the received keys or values */
    ATTN_FULL, /* [P*T, 2*Hk*D] fp32: dK and dV of all ranks; with all_gather, in the segment */
    ATTN_TILE, /* two_pass: [seg_len, seg_len] fp32 */
    ATTN_ALL,  /* all_gather: [P*T, 2*Hk*D], the keys and values of all ranks */
    /* all_gather: 2 x [T, 2*Hk*D] fp32, gradients on their way back to the rank that owns the
     * keys. usp: 2 x [u*T, 2*D] fp32, in the segment, gradients that are passed round the ring. */
    ATTN_HOME,
    ATTN_OUT,  /* segment: rows to send, in the order of their ranks */
    ATTN_IN,   /* received rows, rank by rank */
    ATTN_DO,   /* [u*T, nq*D]: gradient of the output of this rank's heads */
    ATTN_SUM,  /* [u*T, nq*D] fp32: carried output; NULL if the model is fp32 */
    ATTN_ROWS, /* 2 x [nq, u*T] fp32: running maximum; delta */
    ATTN_BUFFER_N
};

struct attention_need {
    /* bytes that a layer keeps for its backward in addition to lse, or, without a backward, uses
     * in its forward */
    int64_t kept;
    int64_t arena_size, segment_size; /* bytes of all the buffers below, each rounded up to 64 */
    struct {
        int64_t offset, size; /* bytes; size is 0 if it is not used */
        bool in_segment;
    } at[ATTN_BUFFER_N];
    bool ring; /* the form also needs the buffers of the blockwise ring */
};
void attention_need(const struct attention_shape *s, struct attention_need *out);
/* Reserves size bytes for a buffer, as the function of a strategy's row does. size 0 reserves
 * none. */
void attention_put(struct attention_need *n, enum attention_buffer b, int64_t size,
                   bool in_segment);

#endif
