/* carry.h: layers whose state passes from chunk to chunk, each computed from the state that the
 * one before left (the gated delta rule, a short convolution), over a sequence that no rank holds
 * whole.
 *
 * What leaves a chunk depends on what enters it by an affine map that is not a decay: unlike
 * linear.h a rank waits for the state of the rank before it, and then computes its chunks. Backward
 * mirrors it from right to left with the state's gradient. The order of work is that of one rank,
 * so that under determinism "ranks", where the chunks are the logical ones, the bits are those of
 * one rank.
 *
 * Each rank but the last sends one state to the next, each but the first one gradient to the one
 * before: volume_state() of EXCHANGE_RING. */
#ifndef SEQD_SP_CARRY_H
#define SEQD_SP_CARRY_H

#include "worker/sp/sp.h"

struct sp_carry {
    struct be *be;
    struct comm *comm; /* NULL: one rank */
    struct shard shard;
    void *send[2]; /* in the comm segment: states of the largest size, in turns; P = 1: unused */
    struct comm_ticket sent[2]; /* private, as are these: zeros at first */
    bool busy[2];
    int turn;
};

/* One chunk. in: the state before it (backward: the gradient of the one after it), out: the other;
 * NULL: unwanted. They differ. */
struct carry_step {
    int chunk;
    int64_t row0, n_rows, pos; /* pos: global, of row0 */
    const float *in;
    float *out;
};

struct carry_pass {
    int64_t count; /* floats of a state */
    bool back;
    /* forward: [n_chunks] states, out: what entered each; backward: 2 states, scratch. */
    float *states;
    const float *edge_in; /* on the rank that the pass begins at: enters the sequence; NULL: 0 */
    float *edge_out;      /* on the one that it ends at: what leaves the sequence; NULL: unwanted */
    void (*step)(void *arg, const struct carry_step *s);
    void *arg;
};

/* fails: as comm does. A call returns when its receive is done; its send may still be under way. */
int carry_run(struct sp_carry *sp, const struct carry_pass *p, struct err *e);
/* Each chunk of a forward pass once more, from the states that carry_run left: no exchange. */
void carry_again(struct sp_carry *sp, const struct carry_pass *p);
/* Waits for the sends: before the ledger is read, and before send serves another purpose. */
int carry_settle(struct sp_carry *sp, struct err *e);

#endif
