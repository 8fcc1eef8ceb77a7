/* published.h: the tensors that the systems in the papers store and send. Each tensor is counted
 * separately.
 *
 * They are not the buffers of our engine (plan.h). They are the buffers of the programs that were
 * measured in the papers, so that the printed numbers can be compared with a count:
 *   RSA      Ring Self-Attention, 2105.13120, which stores whole rows of scores, and all weights
 *            on every rank
 *   TP       Megatron of 2021, 1909.08053, which divides heads and MLP columns, while the
 *            activations between them are whole on every rank
 *   TP_SP    TP with sequence parallelism for the activations between, 2205.05198
 *   RING     the blockwise ring, 2310.01889, which stores no scores
 *   ULYSSES  the all-to-all from tokens to heads, 2309.14509, which stores scores as RSA does
 * A layer is a transformer block as used after 2018. It is in 16 bits and without recomputation.
 * It has attention dropout and hidden dropout, whose masks take one byte for each element. Two
 * numbers cannot be enumerated from the publications and are fitted to RSA's table:
 * PUBLISHED_STAGE and PUBLISHED_EDGE.
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
 * stages. They are 13.5 bytes for each parameter of the embedding and of 3 layers. Mixed precision
 * takes 12 to 16 bytes for each parameter. */
#define PUBLISHED_STAGE (896.0 * 1024 * 1024)
/* Fitted: bytes for each token and column that are stored outside of the layers. They are the
 * embedding's sum, its mask, a pipeline's input, and the waste of the allocator. */
#define PUBLISHED_EDGE 15.4
/* Bytes for each parameter of a whole model in the claims about the largest batch and length. The
 * 16-bit copies of the weight and of the gradient share 2 bytes. The master weight and Adam's two
 * values have 4 bytes each. */
#define PUBLISHED_PER_PARAM 14.0

struct published_case {
    enum published_system system;
    int64_t P, B, S;
    int64_t n_layers, width, n_heads;
    /* bytes of weights, gradients and optimizer state before any of them is divided */
    double weights;
    double edge; /* PUBLISHED_EDGE */
    /* `logits` is the number of bytes that the head keeps for each token and word, or 0 if this
     * rank has no head */
    double vocab, logits;
};

/* One stored tensor. Time runs over a step: the forward of layer l is moment l, and its backward
 * is moment 2 L - 1 - l. A tensor that layer l stores exists from its forward moment to its
 * backward moment. */
struct published_tensor {
    const char *name;
    int64_t layer; /* -1 if it does not belong to a layer */
    double size;   /* bytes on one rank; if the tensor is not divisible by P, this is the mean over
                    * the ranks */
    int64_t born, dies;
    bool fitted;
};
#define PUBLISHED_TENSORS 20 /* largest number of tensors that published_tensors writes */

/* Writes to out[] the tensors of layer l and the tensors that belong to no layer. Returns their
 * number. */
int published_tensors(const struct published_case *c, int64_t l,
                      struct published_tensor out[PUBLISHED_TENSORS]);
/* Returns the largest number of bytes that are stored at any moment on one rank. */
double published_peak(const struct published_case *c);

/* Returns the number of parameters of BERT with its heads (V words, 512 positions, 2 segments). */
double published_bert_params(int64_t n_layers, int64_t width, int64_t vocab);
/* Return the largest B or the largest S for which the peak is at most `limit` bytes, or 0 if even
 * 1 is too large. */
int64_t published_max_batch(struct published_case c, double limit);
int64_t published_max_length(struct published_case c, double limit);

/* ---- bytes on the wire ----------------------------------------------------------------------- */

/* The bytes that each rank sends, where X is a rank's slice of one activation in bytes. */
enum published_op {
    PUBLISHED_HOPS,           /* (P-1) X, once round a ring in P-1 hops */
    PUBLISHED_ALL_GATHER,     /* (P-1) X */
    PUBLISHED_REDUCE_SCATTER, /* (P-1) X */
    PUBLISHED_ALL_REDUCE,     /* 2 (P-1) X, for the complete activation */
    PUBLISHED_ALL_TO_ALL      /* X (P-1) / P */
};
/* The slice has the columns of all heads, the columns of the KV heads (for K or V), or the latter
 * in fp32. */
enum published_slice { PUBLISHED_WIDTH, PUBLISHED_KV, PUBLISHED_KV32, PUBLISHED_SLICE_N };

struct published_send {
    const char *what;
    enum published_op op;
    enum published_slice slice;
    int forward, backward; /* number of times in a layer */
};
#define PUBLISHED_SENDS 6

/* Lists the sends of one layer of system s, and returns their number. If `variant` is set, RSA
 * sends dK and dV by a reduce-scatter, where the paper uses an all-reduce, and TP_SP gathers its
 * inputs a second time for the gradients of the weights. */
int published_sends(enum published_system s, bool variant,
                    struct published_send out[PUBLISHED_SENDS]);
struct published_volume {
    int64_t forward, backward; /* bytes that one rank sends */
};
/* Returns the sums. size has the bytes of the three slices. */
struct published_volume published_sum(const struct published_send *s, int n, int64_t P,
                                      const int64_t size[PUBLISHED_SLICE_N]);

#endif
