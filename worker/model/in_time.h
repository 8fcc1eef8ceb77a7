/* in_time.h: computes a sequence in windows if its ranks cannot hold the whole sequence (LASP in
 * time).
 *
 * If all layers of a model are linear attention, a window depends on the tokens before it only
 * through the state of every layer at the window's border (2404.02882; algorithm 1 with time in
 * place of ranks). So the sequence is divided into windows of P * chunk tokens. Each window is
 * spread over the ranks like a short sequence. The windows are computed
 *   forward   from left to right; the state of every layer is kept at each border
 *   backward  from right to left: each window is computed again from its tokens and the kept
 *             states, with loss and gradients; it passes the gradient of the states that entered
 *             it to its left neighbour
 * The ranks need memory for one window, and for one state of each layer at each border. Only the
 * memory of the states grows with the length of the sequence.
 *
 * The ranks share a window as they share any sequence. The last rank sends the states that leave
 * the window to the first rank, where the next window begins. Gradients are sent in the opposite
 * direction. So there are two messages for each border, one in each direction (purposes STATE and
 * DSTATE). */
#ifndef SEQD_MODEL_IN_TIME_H
#define SEQD_MODEL_IN_TIME_H

#include "kernels/backend.h"
#include "worker/comm/comm.h"

/* States of all layers at the two borders of a window; worker/sp/linear.h describes the state of
 * one layer. The states of layer l begin at byte l * stride. NULL means that no rank has states at
 * that border. */
struct carry {
    const char *in; /* states at the left border; read on the first rank */
    char *out;      /* states at the right border; written on the last rank */
    const char *d_out;
    char *d_in;
    int64_t stride;
    /* generate: `in` is the state after this number of tokens; positions continue from this
     * number */
    int64_t n_tokens;
};

struct in_time {
    struct be *be;
    struct comm *comm; /* NULL if there is only one rank */
    int64_t n_windows, n_layers;
    int64_t size; /* bytes of the states of all layers at one border */
    /* [n_windows - 1, size], on the first rank: the states that enter window w + 1 */
    char *borders;
    char *out, *d_in; /* [size] each, in the comm segment */
    char *d_out;      /* [size] */
    /* Runs window w forward. Only the states are needed. */
    int (*forward)(void *arg, int64_t w, const struct carry *c, struct err *e);
    /* Runs window w forward and backward, including its loss. Adds to the gradients of the
     * weights. */
    int (*grad)(void *arg, int64_t w, const struct carry *c, struct err *e);
    void *arg;
};

/* Computes all windows of the sequence, forward and then backward. Collective. */
int in_time_walk(struct in_time *t, struct err *e);

#endif
