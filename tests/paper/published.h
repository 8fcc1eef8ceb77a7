/* published.h: the tensors that the systems of the papers store and send, which are counted one by
 * one.
 *
 * These are not our engine's buffers (plan.h) but those of the programs that were measured in the
 * papers, so that their printed numbers can be compared with an account instead of a fit:
 *   RSA      Ring Self-Attention, 2105.13120, which stores whole rows of scores, and all weights
 *            on every rank
 *   TP       Megatron of 2021, 1909.08053, which divides heads and MLP columns, while the
 *            activations between them are whole on every rank
 *   TP_SP    TP with sequence parallelism for the activations between, 2205.05198
 *   RING     the blockwise ring, 2310.01889, which stores no scores
 *   ULYSSES  the all-to-all from tokens to heads, 2309.14509, which stores scores as RSA does
 * A layer is a transformer block of after 2018 in 16 bits, without recomputing, with attention and
 * hidden dropout, whose masks take one byte for each element. Two numbers cannot be enumerated
 * from the publications and are fitted to RSA's table: PUBLISHED_STAGE and PUBLISHED_EDGE.
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

/* Fitted: bytes of weights, gradients and optimizer state of pipeline stage 0 of BERT-Large on 8
 * stages. They are 13.5 for each parameter of its embedding and 3 layers, which is between 12 and
 * the 16 of mixed precision. */
#define PUBLISHED_STAGE (896.0 * 1024 * 1024)
/* Fitted: bytes for each token and column that are stored before the first layer and beside it.
 * They are the embedding's sum, its mask, a pipeline's input, and the waste of the allocator. */
#define PUBLISHED_EDGE 15.4
/* Bytes for each parameter of a whole model in the claims about the largest batch and length. They
 * are the 16-bit copies of weight and gradient, which share 2 bytes, the master weight, and Adam's
 * two values (4 bytes each). */
#define PUBLISHED_PER_PARAM 14.0

struct published_case {
    enum published_system system;
    int64_t P, B, S;
    int64_t n_layers, width, n_heads;
    /* bytes of weights, gradients and optimizer state before any of them is divided */
    double weights;
    double edge; /* PUBLISHED_EDGE */
    /* logits: bytes that the head keeps for each token and word, or 0 if this rank has no head */
    double vocab, logits;
};

/* One stored tensor. Time runs over a step: the forward of layer l is moment l, and its backward
 * is moment 2 L - 1 - l. A tensor that a layer stores exists from the first of these moments to
 * the second. */
struct published_tensor {
    const char *name;
    int64_t layer; /* -1 if it does not belong to a layer */
    double size;   /* bytes on one rank, which is a mean if P does not divide it */
    int64_t born, dies;
    bool fitted;
};
#define PUBLISHED_TENSORS 20 /* largest number of tensors of a layer and beside it */

/* Fills out[] with the tensors beside the layers and those of layer l. Returns their number. */
int published_tensors(const struct published_case *c, int64_t l,
                      struct published_tensor out[PUBLISHED_TENSORS]);
/* Returns the largest number of bytes that are stored at any moment on one rank. */
double published_peak(const struct published_case *c);

/* Returns the number of parameters of BERT with its heads (V words, 512 positions, 2 segments). */
double published_bert_params(int64_t n_layers, int64_t width, int64_t vocab);
/* Return the largest B, or S, whose peak is at most `limit` bytes, or 0 if not even 1 fits. */
int64_t published_max_batch(struct published_case c, double limit);
int64_t published_max_length(struct published_case c, double limit);

/* ---- bytes on the wire ----------------------------------------------------------------------- */

/* The bytes that each rank sends, where X is a rank's slice of one activation in bytes. */
enum published_op {
    PUBLISHED_HOPS,           /* (P-1) X, once round a ring in P-1 hops */
    PUBLISHED_ALL_GATHER,     /* (P-1) X */
    PUBLISHED_REDUCE_SCATTER, /* (P-1) X */
    PUBLISHED_ALL_REDUCE,     /* 2 (P-1) X, of the whole activation */
    PUBLISHED_ALL_TO_ALL      /* X (P-1) / P */
};
/* The slice: all heads; the KV heads of K or V; or these in fp32. */
enum published_slice { PUBLISHED_WIDTH, PUBLISHED_KV, PUBLISHED_KV32, PUBLISHED_SLICE_N };

struct published_send {
    const char *what;
    enum published_op op;
    enum published_slice slice;
    int forward, backward; /* number of times in a layer */
};
#define PUBLISHED_SENDS 6

/* Lists the sends of a layer of each system. If `variant` is set, RSA sends dK and dV by
 * reduce-scatter instead of the paper's all-reduce of the whole, and TP_SP gathers its gathered
 * inputs again for the gradients of the weights. Returns their number. */
int published_sends(enum published_system s, bool variant,
                    struct published_send out[PUBLISHED_SENDS]);
struct published_volume {
    int64_t forward, backward; /* bytes that one rank sends */
};
/* Returns the sums. size has the bytes of the three slices. */
struct published_volume published_sum(const struct published_send *s, int n, int64_t P,
                                      const int64_t size[PUBLISHED_SLICE_N]);

#endif
