/* volume.h: how many bytes and messages one rank moves, per operation, from the algorithms alone.
 *
 * The transport counts its traffic (comm/ledger.h); these formulas never look there, and the two
 * are compared with ==. Letters: P ranks of the ring, T rows on a rank, H query and Hk KV heads, D
 * head size; a KV row is 2*Hk*D elements (keys, then values). Keys and values travel in the model's
 * precision (4 or 2 bytes each), their gradients and sums of floats in fp32.
 *
 *   ring KV, one pass       P-1 hops of T*2*Hk*D elements; forward is one, backward a second
 *   ring dKV, one backward  P-1 hops of T*2*Hk*D*4 bytes: a visiting block's gradient begins at
 *                           the rank after its owner and carried home, where the owner's own part
 *                           is added. Under determinism "ranks" it begins at its owner: P hops
 *   where documents are packed   KV_j goes as far as the last rank that meets it, dKV_j home from
 *                           the first that does ("ranks": from its owner); a block that no rank
 *                           meets does not move
 *   all_gather KV           each other rank gets the rows that it sees, or all T if documents are
 *                           not told apart: at most P-1 messages for each segment. Gradients go
 *                           back in the same number; under "ranks" they go round as in ring dKV
 *   tensor, one half of a block   S rows of C elements: an all-reduce, or an all-gather and
 *                           a reduce-scatter, 2 (P-1)/P S C elements each way
 *   two_pass, one pass      keys go round, then values: as many bytes in 2 (P-1) hops; forward is
 *                           one, backward a second
 *   two_pass dK, dV         of full length, P*T rows of 2*Hk*D floats: a reduce-scatter to the
 *                           owners, 2 (P-1) T Hk D * 4 bytes; as published an all-reduce: twice
 *                           as many
 *   sum of n floats         reduce-scatter by direct exchange, then all-gather: 2 (P-1)/P n * 4
 *                           bytes, in slices of volume_slice(P) floats per part
 *   reduce-scatter          of parts of any size: the others' parts go out, mine comes P-1 times,
 *                           in slices of volume_slice(P) floats
 *   all-gather              of parts of any size: mine goes out P-1 times, the others' come, in
 *                           slices of the bounce buffer
 *   small sum of n          all-gather by direct exchange: (P-1) n * 8 bytes, P-1 messages
 *   broadcast, gather       the root talks to each of the others, in slices of the bounce buffer
 *   decode, n tokens        all-gather of their partial (o, lse): P-1 messages, (P-1) n H (D+1) 4
 *                           bytes */
#ifndef SEQD_PLAN_VOLUME_H
#define SEQD_PLAN_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/rank.h"
#include "worker/plan/reach.h"
#include "worker/plan/shard.h"

#define VOLUME_SMALL_N 512 /* elements of a small sum, at most */

/* Sizes of the buffers that communication needs in the comm segment, bytes. */
int64_t volume_bounce_size(int P); /* collectives: about 1 MiB; 0 for one rank */
/* Returns the bytes of sp_buffers.part that sp/sp.c needs for n tokens. */
int64_t volume_decode_size(int P, int64_t H, int64_t D, int64_t n);
int64_t volume_slice(int P); /* floats of one rank's part that travel at once in a sum */

/* Return one rank's traffic in one operation. */
struct comm_count volume_ring_kv(int P, int64_t T, int64_t Hk, int64_t D, enum precision_id p);
struct comm_count volume_ring_dkv(int P, int64_t T, int64_t Hk, int64_t D, bool rank_bits);
/* Return the traffic of a sample whose documents are known (worker/plan/reach.h), on rank
 * sh->r. Its bytes are at most those of the two functions above. */
struct comm_count volume_ring_kv_met(const struct shard *sh, const struct reach_map *map,
                                     int64_t Hk, int64_t D, enum precision_id p);
struct comm_count volume_ring_dkv_met(const struct shard *sh, const struct reach_map *map,
                                      int64_t Hk, int64_t D);
/* Return the traffic of a gathering of all ranks' KV: each of the other ranks gets the rows
 * that it sees. volume_gather_dkv: gradients go back, or under "ranks" round the ring. */
struct comm_count volume_gather_kv(const struct shard *sh, const struct reach_map *map, int64_t Hk,
                                   int64_t D, enum precision_id p);
struct comm_count volume_gather_dkv(const struct shard *sh, const struct reach_map *map, int64_t Hk,
                                    int64_t D);
struct comm_count volume_two_pass_kv(int P, int64_t T, int64_t Hk, int64_t D, enum precision_id p);
struct comm_count volume_two_pass_dkv(int P, int64_t T, int64_t Hk, int64_t D, bool all_reduce);
struct comm_count volume_sum_f32(int P, int64_t n); /* n a multiple of 16 P */
/* Return rank r's traffic. cut: P + 1 borders in elements, rank w's part from cut[w] on; size:
 * bytes of an element. */
struct comm_count volume_reduce_scatter(int P, int r, const int64_t *cut);
struct comm_count volume_all_gather(int P, int r, const int64_t *cut, int64_t size);
struct comm_count volume_sum_small(int P, int n); /* comm_sum_f64, comm_sum_i64 */
struct comm_count volume_broadcast(int P, int64_t size, bool is_root);
struct comm_count volume_gather(int P, int64_t size, bool is_root);
struct comm_count volume_decode(int P, int64_t H, int64_t D, int64_t n);

/* Linear attention's states (volume_state.c): one layer, one direction, on rank r of P. n: states
 * that a rank folds (shard.n_sums); pieces: a scan's, else 1. all_gather: (P-1) n states go out
 * and come in; ring and scan: one, in pieces, to the next rank, backward to the one before. */
struct comm_count volume_state(enum exchange_id x, int P, int r, int64_t H, int64_t Dk, int64_t Dv,
                               int n, int pieces, bool backward);
/* Returns the traffic that a carried state adds after the sequence of this shard. There is some
 * under all_gather alone, when the last rank has no token: one state goes from the rank with
 * the last token to the last rank; backward: the other way. */
struct comm_count volume_state_edge(enum exchange_id x, const struct shard *sh, int64_t H,
                                    int64_t Dk, int64_t Dv, bool backward);

/* DSP over n[0] x n[1] rows of row_size bytes, on rank r (volume_switch.c). volume_switch: from
 * dimension `from` to the other, each other rank gets the block of r's indices along `from` and
 * its own along the other. volume_gather_dim: a gather of the rows that are spread along `dim`.
 * rank_bits: shares are whole logical chunks. */
struct comm_count volume_switch(int P, int r, const int64_t n[2], int from, int64_t row_size,
                                bool rank_bits);
struct comm_count volume_gather_dim(int P, int r, const int64_t n[2], int dim, int64_t row_size,
                                    bool rank_bits);
/* Adds times * v to sum. */
void volume_add(struct comm_count *sum, struct comm_count v, int64_t times);

#endif
