/* spread.h: weights and moments between rank 0, which has the files, and the ranks that hold them:
 * a piece at a time through the bounce buffer, purpose CONTROL, so that nothing has to be whole
 * anywhere and only rank 0 needs the disk.
 *
 * Rank 0 gives orders and the others obey, so that only rank 0 knows what is in which file:
 *   rank 0    ckpt_save or ckpt_load with spread_arrays, or spread_model, then spread_end, also when that failed
 *   others    spread_serve, which returns when rank 0 has ended
 *
 *   rank 0 -> owner   struct spread_order, 24 bytes
 *     GIVE            the owner answers with its part of the elements, fp32
 *     TAKE            the elements follow: those that the owner holds
 *     STILL           nothing: rank 0 is busy with its disk, and no hang
 *     END
 *
 * Pieces go to those who hold some of them: where everything is whole everywhere, GIVE is not
 * needed and TAKE goes to all. tested: tests/test_dp.c */
#ifndef SEQD_TRAIN_SPREAD_H
#define SEQD_TRAIN_SPREAD_H

#include "worker/train/ckpt.h"
#include "worker/train/holding.h"

/* Rank 0's end. Borrows h. */
struct ckpt_arrays spread_arrays(struct holding *h);
/* Rank 0: the weights of a model directory (hf_load) to all. fails: hf_load's and comm's errors. */
int spread_model(struct holding *h, const char *dir, const struct model_shape *shape,
                 struct err *e);
/* Rank 0: releases the others. One rank: nothing. */
int spread_end(struct holding *h, struct err *e);
/* Every other rank. fails: comm's errors; ERR_PEER for an order that makes no sense. */
int spread_serve(struct holding *h, struct err *e);

#endif
