/* volume.h: computes how many bytes and messages one rank moves for each operation. The formulas
 * come only from the algorithms.
 *
 * The transport counts its traffic (comm/ledger.h). The formulas never use these counts, but their
 * results must be equal to the counts. Below, P is the number of ranks of the ring, T the number
 * of rows of a rank, H the number of query heads, Hk of KV heads, and D the size of a head. A KV
 * row has 2*Hk*D elements (keys, then values). Keys and values are sent in the model's precision
 * (4 or 2 bytes per element). Their gradients and sums of floats are sent in fp32.
 *
 *   ring KV, one pass       P-1 hops of T*2*Hk*D elements; forward is one pass, and backward is
 *                           another pass
 *   ring dKV, one backward  P-1 hops of T*2*Hk*D*4 bytes. The gradient of a block begins at the
 *                           rank after the block's owner and travels to the owner, whose part is
 *                           added. Under determinism "ranks" the gradient begins at the owner and
 *                           makes P hops
 *     with packed documents KV_j is sent from rank to rank up to the last rank that needs it.
 *                           dKV_j begins at the first rank that needs KV_j (under "ranks", at the
 *                           owner) and is sent to the owner. A block that no other rank needs is
 *                           not sent
 *   all_gather KV           each other rank gets the rows that it sees, or all T rows if documents
 *                           are not told apart, in at most P-1 messages for each segment.
 *                           Gradients are sent back in as many messages. Under "ranks" they pass
 *                           round the ring as in ring dKV
 *   tensor, half a block    S rows of C elements: an all-reduce, or an all-gather and a
 *                           reduce-scatter. Both send 2 (P-1)/P S C elements and receive as many
 *   two_pass, one pass      keys go round, and then values. These are as many bytes as in ring KV,
 *                           in 2 (P-1) hops. Forward is one pass, and backward is another pass
 *   two_pass dK, dV         have the full length, P*T rows of 2*Hk*D floats. A reduce-scatter to
 *                           the owners sends 2 (P-1) T Hk D * 4 bytes. The published all-reduce
 *                           sends twice as many
 *   sum of n floats         reduce-scatter by direct exchange, then all-gather: 2 (P-1)/P n * 4
 *                           bytes, in slices of volume_slice(P) floats for each part
 *   reduce-scatter          of parts of any size: a rank sends the other ranks' parts and
 *                           receives its own P-1 times, in slices of volume_slice(P) floats
 *   all-gather              of parts of any size: a rank sends its own part P-1 times and
 *                           receives the other ranks' parts, in slices of the bounce buffer
 *   small sum of n          all-gather by direct exchange: (P-1) n * 8 bytes, P-1 messages
 *   broadcast, gather       the root exchanges with each other rank, in slices of the bounce
 *                           buffer
 *   decode, n tokens        all-gather of the tokens' partial (o, lse): P-1 messages, (P-1) n H
 *                           (D+1) 4 bytes
 *   piece, T rows of a rank all-gather of T queries: P-1 messages, (P-1) T H D act; then a partial
 *                           (o, lse) of each rank's queries to that rank: P-1 messages, (P-1) T H
 *                           (D+1) 4 bytes */
#ifndef SEQD_PLAN_VOLUME_H
#define SEQD_PLAN_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/rank.h"
#include "worker/plan/reach.h"
#include "worker/plan/shard.h"

#define VOLUME_SMALL_N 512 /* largest number of elements of a small sum */

/* Return the bytes of buffers in the comm segment. volume_bounce_size is for the buffer of
 * collectives: about 1 MiB, or 0 for one rank. volume_decode_size is for sp_buffers.part
 * (worker/sp/sp.h) if n tokens are decoded at a time. */
int64_t volume_bounce_size(int P);
int64_t volume_decode_size(int P, int64_t H, int64_t D, int64_t n);
/* returns the bytes of the buffers of struct sp_paged (worker/sp/paged.h) for T rows of a rank;
 * a query has elements of `unit` bytes */
int64_t volume_piece_size(int P, int64_t T, int64_t H, int64_t D, int64_t unit);
/* returns the number of floats of one rank's part in one slice of a sum */
int64_t volume_slice(int P);

/* Return one rank's traffic in one operation. */
struct comm_count volume_ring_kv(int P, int64_t T, int64_t Hk, int64_t D, enum precision_id p);
struct comm_count volume_ring_dkv(int P, int64_t T, int64_t Hk, int64_t D, bool rank_bits);
/* Return the traffic of rank sh->r for a sample whose documents are known (worker/plan/reach.h).
 * The bytes are at most those of volume_ring_kv and volume_ring_dkv. */
struct comm_count volume_ring_kv_met(const struct shard *sh, const struct reach_map *map,
                                     int64_t Hk, int64_t D, enum precision_id p);
struct comm_count volume_ring_dkv_met(const struct shard *sh, const struct reach_map *map,
                                      int64_t Hk, int64_t D);
/* Return the traffic of gathering the KV of all ranks. Each of the other ranks gets the rows that
 * it sees. volume_gather_dkv returns the traffic of the gradients, which are sent back to the
 * owners. Under "ranks" the gradients are passed round the ring instead. */
struct comm_count volume_gather_kv(const struct shard *sh, const struct reach_map *map, int64_t Hk,
                                   int64_t D, enum precision_id p);
struct comm_count volume_gather_dkv(const struct shard *sh, const struct reach_map *map, int64_t Hk,
                                    int64_t D);
struct comm_count volume_two_pass_kv(int P, int64_t T, int64_t Hk, int64_t D, enum precision_id p);
struct comm_count volume_two_pass_dkv(int P, int64_t T, int64_t Hk, int64_t D, bool all_reduce);
struct comm_count volume_sum_f32(int P, int64_t n); /* n must be a multiple of 16 P */
/* Return rank r's traffic. cut has P + 1 borders, in elements. Rank w's part is [cut[w], cut[w +
 * 1]). size is the number of bytes of an element. */
struct comm_count volume_reduce_scatter(int P, int r, const int64_t *cut);
struct comm_count volume_all_gather(int P, int r, const int64_t *cut, int64_t size);
struct comm_count volume_sum_small(int P, int n); /* comm_sum_f64, comm_sum_i64 */
struct comm_count volume_broadcast(int P, int64_t size, bool is_root);
struct comm_count volume_gather(int P, int64_t size, bool is_root);
struct comm_count volume_decode(int P, int64_t H, int64_t D, int64_t n);
struct comm_count volume_rows(int P, int64_t size); /* all-gather of `size` bytes, undivided */
struct comm_count volume_piece(int P, int64_t T, int64_t H, int64_t D, int64_t unit);

/* The states of linear attention (volume_state.c), for one layer and one direction, on rank r of
 * P. n is the number of states that a rank folds (shard.n_sums). pieces is the number of pieces of
 * a scan, and 1 for other exchanges. With all_gather, (P-1) n states are sent and (P-1) n states
 * are received. With ring and scan, one state is sent, in pieces. It is sent to the next rank in
 * forward, and to the previous rank in backward. */
struct comm_count volume_state(enum exchange_id x, int P, int r, int64_t H, int64_t Dk, int64_t Dv,
                               int n, int pieces, bool backward);
/* Returns the additional traffic of a state that is carried beyond the sequence of this shard.
 * There is additional traffic only with all_gather, and only if the last rank has no token. In
 * forward, one state is then sent from the rank with the last token to the last rank. In backward,
 * it is sent in the other direction. */
struct comm_count volume_state_edge(enum exchange_id x, const struct shard *sh, int64_t H,
                                    int64_t Dk, int64_t Dv, bool backward);

/* The traffic of DSP on rank r (volume_switch.c). There are n[0] x n[1] rows of row_size bytes.
 * volume_switch is for a switch from dimension `from` to the other dimension. Each other rank w
 * gets a block, which has r's indices along `from` and w's indices along the other dimension.
 * volume_gather_dim is for a gather of rows that are spread along `dim`. If rank_bits is set, the
 * shares consist of whole logical chunks. */
struct comm_count volume_switch(int P, int r, const int64_t n[2], int from, int64_t row_size,
                                bool rank_bits);
struct comm_count volume_gather_dim(int P, int r, const int64_t n[2], int dim, int64_t row_size,
                                    bool rank_bits);
/* Adds v, multiplied by times, to *sum. */
void volume_add(struct comm_count *sum, struct comm_count v, int64_t times);

#endif
