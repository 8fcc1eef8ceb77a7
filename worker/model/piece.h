/* piece.h: runs the steps of a dense MLP on one piece of the rows after another (struct
 * step.piece).
 *
 * A value that has memory for all rows gets a window with the rows of the piece. A value that has
 * memory for one piece only has the piece in its first rows. Operations run on a piece as on a
 * shorter sequence. Sums over rows are added to the weights' gradients piece by piece, in
 * ascending order of rows. Each sum chunk begins with a new piece. Under determinism "ranks" the
 * sums of chunks are added as frame_sum() does. */
#ifndef SEQD_MODEL_PIECE_H
#define SEQD_MODEL_PIECE_H

#include "worker/model/op.h"

struct piece_walk {
    const struct schedule *s;
    const struct step *first; /* the first of the first->n_piece steps */
    int64_t chunk;            /* largest number of rows of a piece; > 0 */
    /* Runs the step with index first + i on the frame of a piece. */
    int (*run)(void *arg, int i, struct err *e);
    void *arg;
};

/* Runs the steps on all rows of the frame, one piece after another, and restores the frame. Fails
 * as run does. */
int piece_walk(struct frame *f, const struct piece_walk *w, struct err *e);

#endif
