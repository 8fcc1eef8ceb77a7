/* linear.h: linear attention over a sequence that no rank holds whole (LASP, 2404.02882).
 *
 * A rank's rows are its shard's sum chunks in order (contiguous layout). The rank has one chunk
 * or, under determinism "ranks", its logical chunks. Each chunk's output and summary M_c are
 * computed from a state of zero (backend: linear_fwd). The summaries are folded left to right into
 * the state that enters each chunk, S_(c+1) = lambda^len S_c + M_c. The effect of the state that
 * enters a chunk is added to its output (linear_enter). Backward runs from right to left, with the
 * gradient dM_c in place of M_c. No state passes the start of a document.
 *
 * A row of linear_table[] selects how S passes from rank to rank:
 *   ring        rank r receives the state from r-1, folds its chunks into the state and sends the
 *               state to r+1
 *   all_gather  every rank sends its summary to all ranks, and each rank folds the summaries of
 *               the ranks before it (arXiv 2502.07563). If summaries are computed before the
 *               outputs (`apart`), they are sent while the outputs are computed. Under "ranks"
 *               there is one summary for each logical chunk, because a summary of several chunks
 *               would be rounded differently
 *   scan        the ring, with the state in pieces along Dk, so that a piece is sent on while the
 *               next piece is folded (2507.01004)
 * All exchanges give the same bits under "ranks". A ring posts its receive before the chunks are
 * computed and waits for it afterwards. So the critical path is P-1 hops, and not P-1 hops and
 * chunks.
 *
 * The state that enters each chunk is kept for the backward pass: state [n_chunks, H, Dk, Dv] of
 * the layer, which the model keeps as it keeps lse. So neither backward nor a recomputed forward
 * needs a second exchange. linear_again() recomputes o from these states without communication. */
#ifndef SEQD_SP_LINEAR_H
#define SEQD_SP_LINEAR_H

#include "worker/sp/sp.h"

/* Workspace, of which one set is used for all layers. A state has H*Dk*Dv elements.
 *   send[2]   in the comm segment. ring and scan use both alternately for states to send.
 *             all_gather uses only send[0], for zeros or a state at the sequence's edge
 *   recv[2]   received states. With scan, recv[0] has a state in the order of messages, and
 *             recv[1] has it in the kernels' order
 *   all       in the comm segment. all_gather: [P * n_chunks] summaries
 *   m         arena: [n_chunks] this rank's summaries
 * P = 1 needs only m. */
struct linear_buffers {
    void *send[2], *recv[2], *all, *m;
};

struct sp_linear_shape {
    int64_t n_heads, key_dim, value_dim;
    float scale;
    const double *slope; /* [H] of this layer */
};

/* Sends whose buffers the peers may still be reading. */
#define LINEAR_SENDS 64
struct linear_sends {
    int n;
    struct comm_ticket ticket[LINEAR_SENDS];
};

#define LINEAR_MAX_PIECES 16
struct sp_linear {
    const struct sp_linear_ops *ops;
    struct be *be;
    struct comm *comm; /* NULL if there is one rank */
    struct shard shard;
    struct linear_buffers buf;
    enum dtype state_dtype; /* DT_F32; or DT_F64 on the tests' reference device */
    int pieces;             /* scan: number of pieces of a state, a divisor of Dk */
    /* all_gather: summaries are computed and sent before the outputs are computed, so that the
     * messages overlap with computation (comm_hides). This costs a third more work for each chunk.
     * The setting changes no bits, and it may differ between ranks. */
    bool apart;
    struct linear_sends sent[2]; /* private: sends from send[0] and from send[1]; zeros at first */
    int turn;
};

struct linear_fwd {
    struct sp_linear_shape shape;
    struct tensor q, k, v, o; /* [T, H*Dk], [T, H*Dk], [T, H*Dv], [T, H*Dv] out */
    void *state;              /* [n_chunks, H, Dk, Dv] out: the state that entered each chunk */
    const int64_t *lo, *hi;
    /* lo and hi on the host; needed only if the device has memory of its own */
    struct sp_seen seen;
    /* Rows that see the carried state have lo[i] < 0, because their document began before the
     * sequence. carry_in is the state [H, Dk, Dv] before the whole sequence, which is read on rank
     * 0; NULL if it is 0. carry_out is the state [H, Dk, Dv] after the whole sequence, which is
     * written on the last rank; NULL if it is not wanted. If one of them is NULL on one rank, it
     * must be NULL on all ranks. If carry_out is set, there is no padding before shard.S. */
    const void *carry_in;
    void *carry_out;
};
struct linear_bwd {
    struct sp_linear_shape shape;
    struct tensor q, k, v, d_o, dq, dk, dv; /* gradients fp32, written */
    const void *state;
    const int64_t *lo, *hi;
    struct sp_seen seen;
    /* gradient of carry_out, which is read on the last rank; NULL if it is 0 */
    const void *d_carry_out;
    /* out: gradient of carry_in, written on rank 0; NULL on all ranks if it is not wanted */
    void *d_carry_in;
    /* [n_chunks, H, Dk / 2] out: each chunk's gradient of LRPE's angles (backend: linear_angle);
     * NULL if it is not wanted */
    float *d_angle;
};

struct sp_linear_ops {
    const char *name;
    int (*fwd)(struct sp_linear *, const struct linear_fwd *, struct err *);
    int (*bwd)(struct sp_linear *, const struct linear_bwd *, struct err *);
};

/* Returns the row of an exchange, or NULL if the table has no row for `id`. EXCHANGE_AUTO has no
 * row, because the plan replaces it. If P = 1, returns the row that exchanges nothing, whatever id
 * is. */
const struct sp_linear_ops *linear_find(enum exchange_id id, int P);
/* Waits for the last sends, which may still be under way when a call returns. Call it before the
 * ledger is read, and before the buffers `send` and `all` are used for other data. */
int linear_settle(struct sp_linear *sp, struct err *e);
/* Computes o again from q, k, v and the kept states, without communication. */
void linear_again(struct sp_linear *sp, const struct linear_fwd *a);
/* The arguments for n new tokens of one sequence, at most CACHE_PAGE. For each token, linear_decode
 * computes S = lambda S + k v' and then o = q S, without communication, because every rank already
 * has the state after the context. */
struct linear_decode {
    struct sp_linear_shape shape;
    struct tensor q, k, v, o; /* n rows */
    void *state;              /* [H, Dk, Dv] in and out; the same on every rank */
    /* [n] each: room in the device's memory if the device has memory of its own; otherwise
     * unused */
    int64_t *lo, *hi;
};
void linear_decode(struct sp_linear *sp, const struct linear_decode *a);

#endif
