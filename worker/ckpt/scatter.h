/* scatter.h: moves weights and moments between rank 0 and the ranks that hold them. Rank 0 reads
 * and writes the files. Elements are sent in pieces of the size of the bounce buffer, with purpose
 * CONTROL. No rank needs memory for a whole array, and only rank 0 needs the disk.
 *
 * Only rank 0 knows the contents of the files, so rank 0 sends orders and the other ranks carry
 * them out.
 *   rank 0   calls ckpt_save or ckpt_load_checked with scatter_arrays, or scatter_model, and then
 *            scatter_end, even after a failure
 *   others   call scatter_serve, which returns when rank 0 has called scatter_end
 *
 * The orders from rank 0 to an owner are struct scatter_order, 24 bytes:
 *   GIVE     the owner answers with its part of the elements in fp32
 *   TAKE     the elements that the owner holds follow the order
 *   BLOCKS   like TAKE, but for weights in blocks of the weight's format (quant_row)
 *   STILL    has no data; it shows that rank 0 is busy with its disk and does not hang
 *   END      makes scatter_serve return
 *
 * TAKE is sent to every rank that holds some of the elements. GIVE is sent only to one group of
 * ranks that together hold all elements. If rank 0 holds all of them, GIVE is sent to no rank.
 * tested: tests/engine/test_dp.c */
#ifndef SEQD_CKPT_SCATTER_H
#define SEQD_CKPT_SCATTER_H

#include "worker/ckpt/ckpt.h"
#include "worker/train/sharded_state.h"

/* Returns the arrays for ckpt_save and ckpt_load_checked, on rank 0. The arrays use h. */
struct ckpt_arrays scatter_arrays(struct sharded_state *h);
struct hf_requant;
/* Sends the weights of a model (hf_load_pieces) from rank 0 to all ranks. The parameter
 * `again` has the meaning of the member `again` of struct hf_sink. Fails with the errors of
 * hf_load and comm. */
int scatter_model(struct sharded_state *h, const char *dir, const struct model_shape *shape,
                  struct hf_requant *again, struct err *e);
/* Makes scatter_serve return on the other ranks. Only rank 0 calls this function. If there is
 * only one rank, the function does nothing. */
int scatter_end(struct sharded_state *h, struct err *e);
/* Carries out the orders of rank 0. Every rank except rank 0 calls this function. Fails with
 * the errors of comm, or with ERR_PEER if an order is invalid. */
int scatter_serve(struct sharded_state *h, struct err *e);

#endif
