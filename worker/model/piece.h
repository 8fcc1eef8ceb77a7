/* piece.h: runs the steps of a dense MLP on one piece of the rows after another (struct
 * step.piece).
 *
 * A piece is a window of the rows of every value that has all rows. A value that exists only for
 * one piece at a time has that piece in its first rows. Operations run on a piece as on a shorter
 * sequence: sums over rows are added to the weights' gradients piece by piece, in ascending order
 * of rows. A sum chunk always begins with a new piece; under determinism "ranks" the chunks' sums
 * are added as frame_sum() does. */
#ifndef SEQD_MODEL_PIECE_H
#define SEQD_MODEL_PIECE_H

#include "worker/model/op.h"

struct piece_walk {
    const struct schedule *s;
    const struct step *first; /* the first of first->n_piece steps */
    int64_t chunk;            /* most rows of a piece; > 0 */
    /* Runs the step with the index first + i on the frame of a piece. */
    int (*run)(void *arg, int i, struct err *e);
    void *arg;
};

/* Walks all rows of the frame's rank, and restores the frame before it returns. Fails as run
 * does. */
int piece_walk(struct frame *f, const struct piece_walk *w, struct err *e);

#endif
