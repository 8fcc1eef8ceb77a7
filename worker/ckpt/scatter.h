/* scatter.h: moves weights and moments between rank 0, which reads and writes files, and the ranks
 * that hold them: n elements at a time pass through the bounce buffer, with purpose CONTROL. No
 * rank needs memory for a whole array, and only rank 0 needs the disk.
 *
 * Rank 0 sends orders and the others carry them out: only rank 0 knows the contents of the files.
 *   rank 0    ckpt_save or ckpt_load_checked with scatter_arrays, or scatter_model; then
 *             scatter_end, even after a failure
 *   others    scatter_serve, which returns when rank 0 has ended
 *
 *   rank 0 -> owner   struct scatter_order, 24 bytes
 *     GIVE            the owner answers with its part of the elements, fp32
 *     TAKE            the elements that the owner holds follow
 *     BLOCKS          as TAKE, for weights in the blocks of the weight's format (quant_row)
 *     STILL           no data: rank 0 is busy with its disk, and has not hung
 *     END             scatter_serve returns
 *
 * TAKE is sent to every rank that holds some of the elements, GIVE only to one group of these
 * ranks. If rank 0 holds all elements, GIVE is not sent. tested: tests/engine/test_dp.c */
#ifndef SEQD_CKPT_SCATTER_H
#define SEQD_CKPT_SCATTER_H

#include "worker/ckpt/ckpt.h"
#include "worker/train/sharded_state.h"

/* Makes the arrays of ckpt_save and ckpt_load_checked on rank 0. Borrows h. */
struct ckpt_arrays scatter_arrays(struct sharded_state *h);
struct hf_requant;
/* Sends, from rank 0, the weights of a model (hf_load_pieces) to all. again: as of struct hf_sink.
 * fails: hf_load's and comm's errors. */
int scatter_model(struct sharded_state *h, const char *dir, const struct model_shape *shape,
                  struct hf_requant *again, struct err *e);
/* Releases the others; rank 0 calls it. With one rank it does nothing. */
int scatter_end(struct sharded_state *h, struct err *e);
/* Serves rank 0's orders; every other rank calls it. fails: comm's errors; ERR_PEER for an invalid
 * order. */
int scatter_serve(struct sharded_state *h, struct err *e);

#endif
