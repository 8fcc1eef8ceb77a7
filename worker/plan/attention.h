/* attention.h: the buffers of each form of attention over several ranks. This file does not have
 * the buffers of the ring, because they are items of the plan. Pure arithmetic. The plan, the code
 * that places buffers and the strategies (worker/sp) use it, so that they agree about every
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
    /* P: number of ranks; u: number of ranks of a group that shares heads; 1 if there are no
     * groups */
    int P, u;
    int64_t T, seg_len; /* T: number of rows of a rank; seg_len: number of rows of a segment */
    int64_t H, Hk, D;
};

/* Heads that are divided among ranks. Rank w of P has the query heads [q0, q0 + nq) and the KV
 * heads that these query heads use, [k0, k0 + nk). The query heads are divided as evenly as
 * possible. If the query heads of one KV head are divided, its keys and values go to several
 * ranks. */
struct head_share {
    int64_t q0, nq, k0, nk;
};
struct head_share attention_head_share(int64_t H, int64_t Hk, int P, int w);

enum attention_buffer {
    /* in the segment. two_pass: this rank's keys or its values; usp: the keys and values of one KV
     * head */
    ATTN_KV0,
    ATTN_KV1,  /* in the segment. two_pass, usp: the received keys or values */
    ATTN_FULL, /* [P*T, 2*Hk*D] fp32: dK and dV of all ranks; in the segment with all_gather */
    ATTN_TILE, /* two_pass: [seg_len, seg_len] fp32 */
    ATTN_ALL,  /* all_gather: [P*T, 2*Hk*D], the keys and values of all ranks */
    /* all_gather: 2 x [T, 2*Hk*D] fp32, gradients that are sent to the rank that owns the keys.
     * usp: 2 x [u*T, 2*D] fp32, in the segment, gradients that pass round the ring. */
    ATTN_HOME,
    ATTN_OUT,  /* in the segment: rows to send, in the order of their ranks */
    ATTN_IN,   /* received rows, in the order of their ranks */
    ATTN_DO,   /* [u*T, nq*D]: gradient of the output of this rank's heads */
    ATTN_SUM,  /* [u*T, nq*D] fp32: the output so far; NULL if the model is fp32 */
    ATTN_ROWS, /* 2 x [nq, u*T] fp32: first the running maximum, then delta */
    ATTN_BUFFER_N
};

struct attention_need {
    /* Bytes that a layer keeps for its backward, in addition to lse. Without a backward, bytes
     * that it uses in its forward. */
    int64_t kept;
    int64_t arena_size, segment_size; /* bytes of all the buffers below, each rounded up to 64 */
    struct {
        int64_t offset, size; /* in bytes; size is 0 if the buffer is not used */
        bool in_segment;
    } at[ATTN_BUFFER_N];
    bool ring; /* the form also needs the buffers of the blockwise ring */
};
void attention_need(const struct attention_shape *s, struct attention_need *out);
/* Reserves size bytes for a buffer. The function `need` of a strategy's row calls it. If size is
 * 0, nothing is reserved. */
void attention_put(struct attention_need *n, enum attention_buffer b, int64_t size,
                   bool in_segment);

#endif
