/* carry.h: layers whose state passes from chunk to chunk (the gated delta rule, a short
 * convolution), over a sequence that is sharded over ranks. Each chunk is computed from the
 * state after the chunk before it.
 *
 * The state that leaves a rank's rows is an affine map S -> A S + b of the state that enters them.
 * A is no decay but a matrix for each head: the product of the rows' matrices, or zero if a
 * document begins among the rows. How the state passes is sp_carry.exchange:
 *   ring        a rank waits for the state of the rank before it, and then computes its chunks.
 *               The order of work is that of one rank, so that under determinism "ranks", where
 *               the chunks are the logical ones, the bits are those of one rank
 *   scan        each rank makes its A and b at once. The state passes as in the ring, but a rank
 *               only computes A S + b before it sends it on: in plan_scan_pieces() pieces of some
 *               heads each, so that a piece moves on while the next one is computed (2507.01004).
 *               Then all ranks compute their rows
 *   all_gather  the A and b of every rank go to all ranks, and each forms the state that enters
 *               its rows: one exchange, after which only products are made in turn
 * Making A and b costs one more pass over the rows. Products of matrices round differently from
 * rows taken one by one, so the bits then depend on the number of ranks. Backward mirrors all of
 * it from right to left: the gradient D of the state that leaves gives A' D + b.
 *
 * ring and scan: each rank but the last sends one state to the next, each but the first one
 * gradient to the one before; all_gather: each sends A and b to all others. If the state is b
 * alone (a short convolution: the last rows, whatever enters), it is sent as in the ring, but at
 * once. */
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
    struct comm *comm; /* NULL: one rank */
    struct shard shard;
    enum exchange_id exchange; /* AUTO: ring. scan, all_gather: one sum chunk a rank */
    void *send[2]; /* in the comm segment: states of the largest size, in turns; P = 1: unused */
    float *map;    /* scan: A of the largest size */
    float *all;    /* all_gather, in the comm segment: [P] of the largest b and A */
    struct carry_sends sent[2]; /* sent and turn: private; zeros at first */
    int turn;
};

/* A step computes one chunk. Forward: in is the state before it, out takes the state after it.
 * Backward: in is the gradient of the state after it, out takes that of the state before it. out
 * NULL: unwanted. in and out are different buffers. */
struct carry_step {
    int chunk;
    int64_t row0, n_rows, pos; /* pos: global, of row0 */
    const float *in;
    float *out;
};

struct carry_pass {
    int64_t count; /* floats of a state */
    bool back;
    /* forward: [n_chunks] states, out: the state that entered each; backward: 2 states, scratch. */
    float *states;
    float *edge_out; /* on the pass's last rank: state that leaves the sequence; NULL: unwanted */
    void (*step)(void *arg, const struct carry_step *s);
    void *arg;
    /* Scan and all_gather alone read these. A state is `heads` matrices [rows, cols], and A as many
     * [rows, rows]; heads 0: A is zero and is not stored. ahead() makes b [count] and A of all rows
     * of the rank, before any state has entered; false: it cannot, and the rank waits as in a ring,
     * which is allowed with heads 0 alone. */
    int64_t heads, rows, cols;
    bool (*ahead)(void *arg, float *b, float *a);
};

/* fails: as comm does. A call returns when its receives are done; its sends may still be under
 * way. */
int carry_run(struct sp_carry *sp, const struct carry_pass *p, struct err *e);
/* Computes each chunk of a forward pass again, from the states that carry_run left, without an
 * exchange. */
void carry_again(struct sp_carry *sp, const struct carry_pass *p);
/* Waits for the sends. Call it before the ledger is read, and before another use of send or all. */
int carry_settle(struct sp_carry *sp, struct err *e);

#endif
