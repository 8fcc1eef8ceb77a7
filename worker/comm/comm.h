/* comm.h: how ranks exchange bytes.
 *
 * Contract
 *   - comm_sendrecv posts one send and one receive and returns at once with a ticket. Either side
 *     may be absent (peer -1). Between two ranks, messages of one channel arrive in order; KV and
 *     dKV use different channels, so P = 2, where prev and next are the same peer, needs no
 *     special case.
 *   - Both buffers belong to comm until comm_wait(ticket) returns: the receive buffer is then
 *     full, and the send buffer is free because the peer has acknowledged its copy.
 *   - A send buffer must lie in the rank's own comm segment (comm_segment); a receive buffer may
 *     lie anywhere. Over shared memory the receiver copies once, inside comm_wait; over TCP a
 *     thread of the endpoint's own moves the bytes meanwhile.
 *   - If the ranks' devices have memory of their own (comm_options.be), the messages of tensors
 *     lie in it: the segment and all receive buffers. Every channel but CHANNEL_HOST has messages
 *     of tensors. A send follows the operations that were asked of the device before
 *     comm_sendrecv. Operations asked after comm_wait find the received bytes and may overwrite
 *     the sent ones. So callers need no sync. Messages of CHANNEL_HOST lie in the host's memory
 *     and are sent from comm_bounce() alone.
 *   - Every byte is counted in the ledger at both ends, by purpose: the sender counts bytes that
 *     the peer acknowledged, the receiver bytes that it copied. Messages in a device's stream
 *     (NCCL) are counted in comm_wait, which may return before they have moved. A collective that
 *     the transport does as a whole (NCCL's own) is counted after its wait, by the messages that
 *     would have done it: the volume of the algorithm. The bytes that NCCL really moves (ring,
 *     tree) are not counted.
 *   - Waiting spins for a few pauses, yields for 50 us, then sleeps on a futex; it ends with
 *     ERR_ABORTED when the abort flag is up, and with ERR_TIMEOUT after hop_timeout_ms, in a
 *     sentence naming step, layer, hop and peer (and seqrank names the job before that).
 *   - A rank is reached by shared memory, TCP or NCCL; no caller can tell by which. A peer whose
 *     connection closes or is silent is lost: ERR_PEER, in a sentence naming it and its address.
 *   - After the first failure, every call fails at once with the same sentence and touches no
 *     buffer. comm_close then neither waits nor leaves a resource.
 *   - The page (struct shm_head) of every node is indexed by the ranks of the whole attempt.
 * One thread per rank calls these functions. No globals: tests run P ranks as threads. */
#ifndef SEQD_COMM_COMM_H
#define SEQD_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/limits.h"
#include "api/core/rank.h"
#include "kernels/backend.h"
#include "worker/plan/axes.h"

enum comm_channel { CHANNEL_KV, CHANNEL_DKV, CHANNEL_COLL, CHANNEL_HOST, CHANNEL_N };

struct comm; /* one rank's endpoint */

struct comm_options {
    int rank, n_ranks;
    int first_local, n_local; /* ranks that share memfd; n_local 0: all ranks */
    /* AUTO: local ranks use shm, ranks of different nodes tcp. SHM, TCP: all ranks use that one.
     * NCCL, and AUTO if every rank has a GPU of its own and NCCL is available: tensors use NCCL,
     * and other messages shm within a node and tcp between nodes. */
    enum transport_id transport;
    const char *address;      /* tcp: numeric, to listen on and publish; NULL, "": 127.0.0.1 */
    const unsigned char *key; /* tcp: RANK_KEY_SIZE bytes, equal on all; NULL: zeros (tests) */
    bool tls;      /* tcp: encrypt, keyed by `key` (TLS 1.3 PSK); needs a build with TLS */
    int memfd;     /* shared segment (struct shm_head first); shm dup's it */
    struct be *be; /* borrowed: tensors' messages lie in its memory; NULL: the host's */
    void *segment; /* borrowed: segment_size bytes of be's own memory; NULL if be has none */
    /* Tests: the memfd, already mapped in full, so that ranks as threads share addresses and TSan
     * sees the protocol; NULL: mapped here. */
    void *map;
    int64_t segment_size; /* this rank's share; equal on all ranks, from the plan */
    int view_size; /* ranks of each block that comm_group will make, from rank 0 on; 0: all. A view
                    * of other ranks cannot use the transport's own collectives */
    int64_t hop_timeout_ms; /* longest wait for one message, even if the peer is alive */
    /* tcp: a peer whose connection has been silent for this time is lost (ERR_PEER, at most twice
     * as late). nccl: a peer is lost if connecting or a transfer of tensors takes this time
     * (ERR_TIMEOUT). 0: hop_timeout_ms. */
    int64_t silence_ms;
    uint64_t delay_seed;  /* tests: seed of a random delay before each message */
    int64_t delay_max_us; /* longest random delay until a message is visible; 0: none */
    int64_t latency_us;   /* benches: delay of every message */
    int64_t
        bytes_per_ms; /* benches: the connection to each peer carries at most this; 0: no limit */
};

/* A rank's current place: the caller sets it as it runs; errors and the last-op record print it. */
struct comm_where {
    int64_t step;
    int32_t layer, hop;
};

struct comm_xfer {
    enum purpose purpose;
    enum comm_channel channel;
    int send_to, recv_from; /* peer ranks, -1: none */
    const void *send;
    void *recv;
    int64_t send_size, recv_size; /* bytes */
};

struct comm_ticket {
    int slot; /* -1: nothing pending */
};

/* Connecting has two steps. comm_listen makes the endpoint and fills blob (at most BLOB_SIZE).
 * comm_connect takes the blobs of all ranks, in rank order. fails, in either step: ERR_UNSUPPORTED
 * naming the pair that no transport connects, or the library or the device's feature that is
 * missing; ERR_PEER for ranks whose plans differ, or a rank that does not connect; ERR_INVALID for
 * an address; ERR_ABORTED, ERR_TIMEOUT, ERR_IO. */
struct comm *comm_listen(const struct comm_options *o, char blob[BLOB_SIZE], int *blob_size,
                         struct err *e);
int comm_connect(struct comm *c, const struct rank_blob *blobs, int n, struct err *e);
void comm_close(struct comm *c); /* NULL allowed */

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
void *comm_segment(struct comm *c);
/* Returns the buffer from which messages of CHANNEL_HOST are sent: comm_bounce_size(n_ranks) bytes
 * of comm's own if tensors are in a device's memory, else the caller's `bounce`, in the segment. */
void *comm_bounce(struct comm *c, void *bounce);
struct comm_where *comm_where(struct comm *c); /* borrowed; the caller writes its place there */

/* Tells whether messages move while this core computes: TCP or NCCL carries tensors to some rank,
 * or a bench delays them. In shared memory the receiver copies them itself. Ranks may get
 * different answers. */
bool comm_hides(const struct comm *c);

int comm_sendrecv(struct comm *c, const struct comm_xfer *x, struct comm_ticket *t, struct err *e);
/* Begin and end a batch: the tickets posted between these two calls are one exchange, whose
 * messages may pass each other. All are posted before one is waited for. An exchange whose sends
 * and receives are separate tickets must be a batch (nccl.c says why). */
int comm_batch_begin(struct comm *c, struct err *e);
int comm_batch_end(struct comm *c, struct err *e);
/* Checks the transfers under way; be->watch calls it while the host waits for the device. arg: a
 * struct comm. Returns -1 if one has failed for good: the abort flag is up, a peer is lost, or a
 * transfer of tensors has taken silence_ms. */
int comm_watch(void *comm, struct err *e);
int comm_wait(struct comm *c, struct comm_ticket *t, struct err *e);

/* Makes the endpoint of a set of ranks of c, which includes the caller: its rank i is the set's
 * i-th. It is a view: it shares the channels, ledger and place of c's endpoint, and is freed with
 * it. c may be a view itself. A set of all ranks gives c itself. Allocates; NULL: no memory. */
struct comm *comm_group(struct comm *c, struct rank_set of);
/* Sets *out as comm_group returns it, or to NULL if c is NULL or the set is this rank alone. fails:
 * ERR_IO. */
int comm_view(struct comm *c, struct rank_set of, struct comm **out, struct err *e);

/* Collectives (collect.c), written once over sendrecv. bounce: a buffer in the comm segment of
 * comm_bounce_size(n_ranks) bytes. With a device that has memory of its own, x, own and bounce of
 * comm_sum_f32, comm_reduce_scatter, comm_all_gather and comm_broadcast_tensor lie in it; the
 * other collectives' arguments lie in the host's memory, and their bounce is not touched
 * (comm_bounce).
 *
 * comm_sum_f32: x[i] = sum over ranks, the P values added as a perfect binary tree over rank order
 * ((r0+r1)+(r2+r3)): the same bits on every rank. On devices of any_order the order may be the
 * transport's own, the same from run to run. If P is not a power of two, Q ranks split into the
 * first 2^k < Q (the largest such power) and the rest. The sum is a reduce-scatter by direct
 * exchange, then an all-gather: it sends 2 (P-1)/P n floats. n must be a multiple of P * 16. x may
 * lie anywhere.
 * comm_reduce_scatter: rank w's part of x, elements [cut[w], cut[w + 1]), becomes the sum over
 * ranks, in that same order, on rank w; the other parts are left as they are. A part may have any
 * size, even 0.
 * comm_all_gather: rank w has bytes [cut[w], cut[w + 1]) * size of x in `own`; every rank gets all
 * of x. own may be bytes [cut[w], cut[w + 1]) * size of x itself.
 * comm_sum_f64 / _i64: small vectors (n <= 512), all-gather then the same tree.
 * comm_each_i64: every rank's x [n], in rank order, in comm_bounce() until the next collective;
 * sends as many bytes as comm_sum_i64. NULL: failed. */
int64_t comm_bounce_size(int n_ranks);
int comm_sum_f32(struct comm *c, enum purpose p, float *x, int64_t n, void *bounce, struct err *e);
int comm_reduce_scatter(struct comm *c, enum purpose p, float *x, const int64_t *cut, void *bounce,
                        struct err *e);
int comm_all_gather(struct comm *c, enum purpose p, const void *own, void *x, const int64_t *cut,
                    int64_t size, void *bounce, struct err *e);
int comm_sum_f64(struct comm *c, enum purpose p, double *x, int n, void *bounce, struct err *e);
int comm_sum_i64(struct comm *c, enum purpose p, int64_t *x, int n, void *bounce, struct err *e);
const int64_t *comm_each_i64(struct comm *c, enum purpose p, const int64_t *x, int n, void *bounce,
                             struct err *e);
int comm_broadcast(struct comm *c, enum purpose p, int root, void *x, int64_t size, void *bounce,
                   struct err *e);
int comm_broadcast_tensor(struct comm *c, enum purpose p, int root, void *x, int64_t size,
                          void *bounce, struct err *e);
/* All-to-all has two halves, and the caller computes between them; post it within a batch. Block w
 * of send, bytes [at[w], at[w + 1]), in the segment, goes to rank w, and rank w's block for this
 * rank arrives in block w of recv. Empty blocks are not sent. own: this rank's own block is copied
 * too; else recv's own block is undefined. If all blocks of one rank have one size, so must the
 * blocks of every rank. */
struct comm_blocks {
    void *data;
    const int64_t *at; /* [n_ranks + 1] */
};
struct comm_exchange {
    int n;
    struct comm_ticket ticket[JOB_MAX_RANKS];
    enum purpose purpose;
    int64_t block; /* bytes of each block, if the transport does all; 0: messages do it */
};
int comm_all_to_all(struct comm *c, enum purpose p, struct comm_blocks send,
                    struct comm_blocks recv, bool own, struct comm_exchange *x, struct err *e);
int comm_all_to_all_wait(struct comm *c, struct comm_exchange *x, struct err *e);
/* Gathers x of all ranks on root. out: n_ranks * size bytes, in rank order. */
int comm_gather(struct comm *c, enum purpose p, int root, const void *x, int64_t size, void *out,
                void *bounce, struct err *e);

/* comm_ledger returns the counts since the last comm_ledger_reset, by purpose; comm_wait_us
 * returns the time spent inside comm_wait since then. */
const struct comm_count *comm_ledger(const struct comm *c); /* [PURPOSE_N] */
int64_t comm_wait_us(const struct comm *c);
void comm_ledger_reset(struct comm *c);

/* Returns the bytes that a memfd needs for the n ranks that share it: header, channels, segments.
 * Tests and shm.c call it. */
int64_t comm_shm_size(int n_ranks, int64_t segment_size);

#endif
