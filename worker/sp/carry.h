/* carry.h: layers whose state passes from chunk to chunk (the gated delta rule, a short
 * convolution), over a sequence that is sharded over ranks. Each chunk is computed from the state
 * after the previous chunk.
 *
 * The state that leaves a rank's rows is A S + b, an affine map of the state S that enters them. A
 * is a matrix for each head. It is the product of the rows' matrices, or zero if a document begins
 * among the rows. sp_carry.exchange selects how the state passes from rank to rank:
 *   ring        a rank waits for the state of the previous rank, and then computes its chunks. The
 *               work is done in the order of a single rank. So under determinism "ranks", where
 *               the chunks are the logical chunks, the bits are those of a single rank
 *   scan        each rank first computes its A and b. Then the state passes as in the ring, but a
 *               rank only computes A S + b before it sends the result on. The state is divided
 *               into plan_scan_pieces() pieces of some heads each, and a piece is sent while the
 *               next piece is computed (arXiv 2507.01004). Then all ranks compute their rows
 *   all_gather  every rank sends its A and b to all ranks, and each rank computes the state that
 *               enters its rows. After this one exchange, a rank only multiplies matrices
 * To compute A and b costs one more pass over the rows. Products of matrices are rounded
 * differently from the computation row by row. So with scan and all_gather the bits depend on the
 * number of ranks. Backward runs from right to left. It computes A' D + b from the gradient D of
 * the state that leaves.
 *
 * Messages. In ring and scan, each rank except the last sends one state to the next rank, and each
 * rank except the first sends one gradient to the previous rank. In all_gather each rank sends A
 * and b to all other ranks. If A is zero, the state that leaves is b, and a rank sends b to the
 * next rank without waiting for the state that enters. A is zero in a short convolution, because
 * its state is the last rows. */
#ifndef SEQD_SP_CARRY_H
#define SEQD_SP_CARRY_H

#include "worker/sp/sp.h"

/* Sends whose buffers the peers may still be reading. */
struct carry_sends {
    int n;
    struct comm_ticket ticket[JOB_MAX_RANKS];
};

struct sp_carry {
    struct be *be;
    struct comm *comm; /* NULL if there is one rank */
    struct shard shard;
    /* AUTO means ring. scan and all_gather need one sum chunk on each rank */
    enum exchange_id exchange;
    /* in the comm segment: two states of the largest size, used alternately; unused if P = 1 */
    void *send[2];
    float *map;                 /* scan: room for one A of the largest size */
    float *all;                 /* all_gather, in the comm segment: P times the largest b and A */
    struct carry_sends sent[2]; /* sent and turn are private; zeros at first */
    int turn;
};

/* A step computes one chunk. Forward: `in` is the state before the chunk, and the state after it
 * is written to `out`. Backward: `in` is the gradient of the state after the chunk, and the
 * gradient of the state before it is written to `out`. out is NULL if it is not wanted. in and out
 * are different buffers. */
struct carry_step {
    int chunk;
    int64_t row0, n_rows, pos; /* pos: global, of row0 */
    const float *in;
    float *out;
};

struct carry_pass {
    int64_t count; /* floats of a state */
    bool back;
    /* Forward: n_chunks states, to which the state that entered each chunk is written. Backward: 2
     * states of scratch. */
    float *states;
    /* on the pass's last rank, the state that leaves the sequence is written here; NULL if it is
     * not wanted */
    float *edge_out;
    void (*step)(void *arg, const struct carry_step *s);
    void *arg;
    /* Only scan and all_gather read these members. A state is `heads` matrices [rows, cols], and A
     * is `heads` matrices [rows, rows]. If heads is 0, A is zero and is not stored. ahead()
     * computes b [count] and A of all rows of the rank, before any state has entered. If heads is
     * 0, ahead() may return false, which means that it cannot compute b; the rank then waits as in
     * a ring. */
    int64_t heads, rows, cols;
    bool (*ahead)(void *arg, float *b, float *a);
};

/* Runs a pass. Fails as comm does. When it returns, its receives are done, but its sends may still
 * be under way. */
int carry_run(struct sp_carry *sp, const struct carry_pass *p, struct err *e);
/* Computes each chunk of a forward pass again, from the states that carry_run left, without an
 * exchange. */
void carry_again(struct sp_carry *sp, const struct carry_pass *p);
/* Waits for the sends. Call it before the ledger is read, and before `send` or `all` is used for
 * other data. */
int carry_settle(struct sp_carry *sp, struct err *e);

#endif
