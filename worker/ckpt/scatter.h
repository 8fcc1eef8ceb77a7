/* scatter.h: moves weights and moments between rank 0, which reads and writes files, and the ranks
 * that hold them. Elements are sent in pieces of the size of the bounce buffer, with purpose
 * CONTROL. No rank needs memory for a whole array, and only rank 0 needs the disk.
 *
 * Only rank 0 knows the contents of the files, so rank 0 sends orders and the other ranks carry
 * them out.
 *   rank 0   calls ckpt_save or ckpt_load_checked with scatter_arrays, or scatter_model, and then
 *            scatter_end, even after a failure
 *   others   call scatter_serve, which returns when rank 0 has called scatter_end
 *
 *   rank 0 -> owner   struct scatter_order, 24 bytes
 *     GIVE            the owner answers with its part of the elements, fp32
 *     TAKE            is followed by the elements that the owner holds
 *     BLOCKS          as TAKE, for weights in the blocks of the weight's format (quant_row)
 *     STILL           without data: tells that rank 0 is busy with its disk and has not hung
 *     END             makes scatter_serve return
 *
 * TAKE is sent to every rank that holds some of the elements. GIVE is sent only to one group of
 * ranks that together hold them, or to no rank if rank 0 holds all elements. tested:
 * tests/engine/test_dp.c */
#ifndef SEQD_CKPT_SCATTER_H
#define SEQD_CKPT_SCATTER_H

#include "worker/ckpt/ckpt.h"
#include "worker/train/sharded_state.h"

/* Makes, on rank 0, the arrays for ckpt_save and ckpt_load_checked. Borrows h. */
struct ckpt_arrays scatter_arrays(struct sharded_state *h);
struct hf_requant;
/* Sends, from rank 0, the weights of a model (hf_load_pieces) to all ranks. `again` is as in
 * struct hf_sink. Fails with the errors of hf_load and comm. */
int scatter_model(struct sharded_state *h, const char *dir, const struct model_shape *shape,
                  struct hf_requant *again, struct err *e);
/* Ends scatter_serve on the other ranks. Only rank 0 calls this. With one rank it does nothing. */
int scatter_end(struct sharded_state *h, struct err *e);
/* Carries out the orders of rank 0; every other rank calls it. Fails with the errors of comm, or
 * with ERR_PEER for an invalid order. */
int scatter_serve(struct sharded_state *h, struct err *e);

#endif
