/* published.h: the tensors that the systems of the papers store and send, counted tensor by tensor.
 *
 * These are not our engine's buffers (plan.h) but those of the programs that were measured in the
 * papers, so that their printed numbers can be compared with an account instead of a fit:
 *   RSA      Ring Self-Attention, 2105.13120: whole rows of scores, weights on every rank
 *   TP       Megatron of 2021, 1909.08053: heads and MLP columns divided, activations between whole
 *   TP_SP    and with sequence parallelism between, 2205.05198
 *   RING     blockwise ring, 2310.01889: no scores are stored
 *   ULYSSES  all-to-all from tokens to heads, 2309.14509; scores stored as in RSA
 * A layer is a post-2018 transformer block in 16 bits without recomputing, with attention and
 * hidden dropout: masks are one byte an element. Two numbers cannot be enumerated from the
 * publications and are fitted to RSA's table: PUBLISHED_STAGE and PUBLISHED_EDGE.
 *
 * Letters: P ranks, B sequences, S tokens of each, C width, H heads, Hk KV heads. */
#ifndef SEQD_TESTS_PAPER_PUBLISHED_H
#define SEQD_TESTS_PAPER_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

enum published_system {
    PUBLISHED_RSA,
    PUBLISHED_TP,
    PUBLISHED_TP_SP,
    PUBLISHED_RING,
    PUBLISHED_ULYSSES,
    PUBLISHED_N
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Fitted: weights, gradients and optimizer state of pipeline stage 0 of BERT-Large on 8 stages,
 * bytes (13.5 a parameter of its embedding and 3 layers: between 12 and the 16 of mixed
 * precision). */
#define PUBLISHED_STAGE (896.0 * 1024 * 1024)
/* Fitted: the storage before the first layer and beside it, bytes for each token and column: the
 * embedding's sum, its mask, a pipeline's input, and the allocator's slack. */
#define PUBLISHED_EDGE 15.4
/* Bytes a parameter of a whole model in the claims about the largest batch and length: 16-bit
 * weight and gradient copies that share (2), master weight, and Adam's two (4 each). */
#define PUBLISHED_PER_PARAM 14.0

struct published_case {
    enum published_system system;
    int64_t P, B, S;
    int64_t n_layers, width, n_heads;
    double weights; /* bytes of weights, gradients and optimizer state before any is divided */
    double edge;    /* PUBLISHED_EDGE */
    double vocab, logits; /* logits: bytes the head keeps for each token and word; 0: none here */
};

/* One stored tensor. Time runs over a step: the forward of layer l is moment l, its backward moment
 * 2 L - 1 - l; a tensor that a layer stores lives from one to the other. */
struct published_tensor {
    const char *name;
    int64_t layer; /* -1: not of a layer */
    double size;   /* bytes on one rank; a mean where P does not divide it */
    int64_t born, dies;
    bool fitted;
};
#define PUBLISHED_TENSORS 20 /* tensors of a layer and beside it, at most */

/* Fills out[] with the tensors beside the layers and those of layer l. Returns how many. */
int published_tensors(const struct published_case *c, int64_t l,
                      struct published_tensor out[PUBLISHED_TENSORS]);
/* The most that lives at any moment, bytes on one rank. */
double published_peak(const struct published_case *c);

/* Parameters of BERT with its heads (V words, 512 positions, 2 segments). */
double published_bert_params(int64_t n_layers, int64_t width, int64_t vocab);
/* The largest B, or S, whose peak is at most `limit` bytes; 0: not even 1. */
int64_t published_max_batch(struct published_case c, double limit);
int64_t published_max_length(struct published_case c, double limit);

/* ---- bytes on the wire ----------------------------------------------------------------------- */

/* X: a rank's slice of one activation, bytes. The bytes that each rank sends: */
enum published_op {
    PUBLISHED_HOPS,           /* once round a ring, P-1 hops: (P-1) X */
    PUBLISHED_ALL_GATHER,     /* (P-1) X */
    PUBLISHED_REDUCE_SCATTER, /* (P-1) X */
    PUBLISHED_ALL_REDUCE,     /* of the whole: 2 (P-1) X */
    PUBLISHED_ALL_TO_ALL      /* X (P-1) / P */
};
/* The slice: all heads; the KV heads of K or V; the same in fp32. */
enum published_slice { PUBLISHED_WIDTH, PUBLISHED_KV, PUBLISHED_KV32, PUBLISHED_SLICE_N };

struct published_send {
    const char *what;
    enum published_op op;
    enum published_slice slice;
    int forward, backward; /* how often in a layer */
};
#define PUBLISHED_SENDS 6

/* Lists the sends of a layer of each system. scatter: RSA's dK and dV by reduce-scatter instead of
 * the paper's all-reduce of the whole; TP_SP: gathered inputs are gathered again for the weights'
 * gradients. Returns how many. */
int published_sends(enum published_system s, bool variant,
                    struct published_send out[PUBLISHED_SENDS]);
struct published_volume {
    int64_t forward, backward; /* bytes sent by one rank */
};
/* size: bytes of the three slices. */
struct published_volume published_sum(const struct published_send *s, int n, int64_t P,
                                      const int64_t size[PUBLISHED_SLICE_N]);

#endif
