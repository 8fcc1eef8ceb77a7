/* in_time.h: walks a sequence in windows if its ranks cannot hold it at once (LASP in time).
 *
 * In a model whose layers are all linear attention, a window depends on the tokens before it only
 * through the state of every layer at the window's border (2404.02882; algorithm 1 with time in
 * place of ranks). So the sequence is cut into windows of P * chunk tokens. Each window is spread
 * over the ranks like a short sequence, and the windows are walked
 *   forward   left to right, keeping every layer's state at each border
 *   backward  right to left: the window is computed again from its tokens and the kept states,
 *             with loss and gradients, and passes to its left neighbour the gradient of the states
 *             that entered it
 * The ranks need the memory of one window, and of one state for each layer and border. Only the
 * memory of the states grows with the length of the sequence.
 *
 * The ranks share a window as they share any sequence. The last rank sends the states that leave
 * the window to the first rank, where the next window begins. Gradients go the other way. So there
 * is one message for each border in each direction (purposes STATE, DSTATE). */
#ifndef SEQD_MODEL_IN_TIME_H
#define SEQD_MODEL_IN_TIME_H

#include "kernels/backend.h"
#include "worker/comm/comm.h"

/* States of all layers at the two borders of a window; worker/sp/linear.h describes the state of
 * one layer. The states of layer l begin at byte l * stride. NULL means that there are no states
 * at that border, on any rank. */
struct carry {
    const char *in; /* read on the first rank */
    char *out;      /* written on the last rank */
    const char *d_out;
    char *d_in;
    int64_t stride;
    /* generate: number of tokens after which `in` is the state; positions count on from there */
    int64_t n_tokens;
};

struct in_time {
    struct be *be;
    struct comm *comm; /* NULL if there is one rank */
    int64_t n_windows, n_layers;
    int64_t size; /* bytes of the states of all layers at one border */
    /* [n_windows - 1, size], on the first rank: the states that enter window w + 1 */
    char *borders;
    char *out, *d_in; /* [size] each, in the comm segment */
    char *d_out;      /* [size] */
    /* Runs window w forward, only to compute the states. */
    int (*forward)(void *arg, int64_t w, const struct carry *c, struct err *e);
    /* Runs window w forward and backward, including its loss, and adds to the weights'
     * gradients. */
    int (*grad)(void *arg, int64_t w, const struct carry *c, struct err *e);
    void *arg;
};

/* Walks the whole sequence, all windows. Collective. */
int in_time_walk(struct in_time *t, struct err *e);

#endif
