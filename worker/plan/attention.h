/* attention.h: the buffers of each form of attention over several ranks, except the ring's, which
 * the plan lists by themselves. Pure arithmetic, for the plan, for the code that places buffers
 * and for the strategies (worker/sp): they agree about every byte. */
#ifndef SEQD_PLAN_ATTENTION_H
#define SEQD_PLAN_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"

struct attention_shape {
    enum strategy_id strategy;
    enum form_id form;
    int64_t unit;         /* bytes of an element of q, kv and o */
    bool rank_bits, back; /* rank_bits: determinism "ranks"; back: there is a backward */
    int P, u;             /* ranks; ranks of a group that shares heads (1: no group) */
    int64_t T, seg_len;   /* rows of a rank, of a segment */
    int64_t H, Hk, D;
};

/* Sharded heads: the query heads [q0, q0 + nq) of rank w of P, as evenly as possible, and the KV
 * heads that these use, [k0, k0 + nk). If the query heads of a KV head are divided, its keys and
 * values go to several ranks. */
struct head_share {
    int64_t q0, nq, k0, nk;
};
struct head_share attention_head_share(int64_t H, int64_t Hk, int P, int w);

enum attention_buffer {
    ATTN_KV0,  /* segment: own keys and values (two_pass: one of both; usp: a KV head's) */
    ATTN_KV1,  /* segment: two_pass, usp: the received keys or values */
    ATTN_FULL, /* [P*T, 2*Hk*D] fp32: dK and dV of all ranks; all_gather: in the segment */
    ATTN_TILE, /* two_pass: [seg_len, seg_len] fp32 */
    ATTN_ALL,  /* all_gather: [P*T, 2*Hk*D]: keys and values of all ranks */
    ATTN_HOME, /* all_gather: 2 x [T, 2*Hk*D] fp32: gradients that come home; usp: segment, 2 x
                * [u*T, 2*D] fp32: gradients that travel */
    ATTN_OUT,  /* segment: rows to send, rank by rank */
    ATTN_IN,   /* received rows, rank by rank */
    ATTN_DO,   /* [u*T, nq*D]: gradient of the own heads' output */
    ATTN_SUM,  /* [u*T, nq*D] fp32: carried output; NULL in fp32 */
    ATTN_ROWS, /* 2 x [nq, u*T] fp32: running maximum, delta */
    ATTN_BUFFER_N
};

struct attention_need {
    int64_t
        kept; /* bytes of a layer: kept for its backward beside lse, or used by a forward alone */
    int64_t arena_size, segment_size; /* bytes of all buffers below, each rounded up to 64 */
    struct {
        int64_t offset, size; /* bytes; size 0: not used */
        bool in_segment;
    } at[ATTN_BUFFER_N];
    bool ring; /* the form also needs the blockwise ring's buffers */
};
void attention_need(const struct attention_shape *s, struct attention_need *out);
/* Reserves size bytes for a buffer, on behalf of a strategy's row; size 0: none. */
void attention_put(struct attention_need *n, enum attention_buffer b, int64_t size,
                   bool in_segment);

#endif
