/* comm.h: how ranks exchange bytes.
 *
 * Contract
 *   - comm_sendrecv posts one send and one receive and returns immediately with a ticket. Either
 *     side may be absent (peer -1). Between two ranks, messages of one channel arrive in order. KV
 *     and dKV use different channels. So a ring of two ranks needs no special case, although the
 *     previous rank is also the next rank.
 *   - Both buffers belong to comm until comm_wait(ticket) returns. The receive buffer is then
 *     full, and the send buffer is free, because the peer has acknowledged the message.
 *   - A send buffer must be in the rank's own comm segment (comm_segment); a receive buffer may be
 *     anywhere. Over shared memory the receiver copies the bytes once, inside comm_wait; over TCP
 *     a thread that belongs to the endpoint moves the bytes while the rank computes.
 *   - If the ranks' devices have memory of their own (comm_options.be), the messages of tensors
 *     are in that memory, and so are the segment and all receive buffers. Every channel except
 *     CHANNEL_HOST carries messages of tensors. A send waits for the device's operations that were
 *     called before comm_sendrecv. Operations called after comm_wait find the received bytes and
 *     may overwrite the sent bytes. So callers need no sync. Messages of CHANNEL_HOST are in the
 *     host's memory and may be sent only from comm_bounce().
 *   - Every byte is counted in the ledger at both ends, by purpose. The sender counts the bytes
 *     that the peer has acknowledged, and the receiver counts the bytes that it has copied.
 *     Messages in a device's stream (NCCL) are counted in comm_wait, which may return before they
 *     have moved. If NCCL does a collective as a whole, the ledger counts the messages of seqd's
 *     own algorithm for it, after the wait. It does not count the bytes that NCCL really moves
 *     (ring, tree).
 *   - Waiting spins for a few pauses, yields for 50 us, then sleeps on a futex. It fails with
 *     ERR_ABORTED when the abort flag is set, and with ERR_TIMEOUT after hop_timeout_ms. The error
 *     names step, layer, hop and peer. seqrank adds the job's name.
 *   - A rank is reached by shared memory, TCP or NCCL, which makes no difference for callers. A
 *     peer is lost if its connection closes or is silent. Calls then fail with ERR_PEER, and the
 *     error names the peer and its address.
 *   - After the first failure, every call fails immediately with that first error and touches no
 *     buffer. comm_close then does not wait, and it still frees every resource.
 *   - The page (struct shm_head) of every node is indexed by the ranks of the whole attempt.
 * One thread per rank calls these functions. There are no global variables, so that tests can run
 * P ranks as threads. */
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
    int first_local, n_local; /* ranks that share memfd; n_local 0 means all ranks */
    /* With SHM or TCP, all messages use that transport. With NCCL, tensors use NCCL, and other
     * messages use shm within a node and tcp between nodes. AUTO means NCCL if every rank has a
     * separate GPU and NCCL is available. Otherwise, with AUTO all messages use shm within a node
     * and tcp between nodes. */
    enum transport_id transport;
    /* tcp: the numeric address on which this rank listens and which it publishes; NULL and "" mean
     * 127.0.0.1 */
    const char *address;
    /* tcp: RANK_KEY_SIZE bytes, equal on all ranks; NULL (in tests) means zeros */
    const unsigned char *key;
    bool tls;  /* tcp: encrypt, with `key` as the key (TLS 1.3 PSK); needs a build with TLS */
    int memfd; /* shared segment, with struct shm_head first; shm duplicates the descriptor */
    /* borrowed; its memory has the messages of tensors; NULL if the host's memory has them */
    struct be *be;
    void *segment; /* borrowed; segment_size bytes of be's own memory; NULL if be has none */
    /* For tests: the memfd, already mapped in full, so that ranks that are threads share addresses
     * and TSan sees the protocol. If it is NULL, comm maps the memfd. */
    void *map;
    int64_t segment_size; /* this rank's share in bytes, equal on all ranks; from the plan */
    /* comm_group will make views of blocks of ranks, which begin at rank 0. This is the number of
     * ranks of a block; 0 means all ranks. A view of any other set of ranks cannot use the
     * transport's own collectives. */
    int view_size;
    int64_t hop_timeout_ms; /* longest wait for one message, even if the peer is alive */
    /* With tcp, a peer is lost if its connection has been silent for this time (ERR_PEER; the loss
     * is found after twice this time at the latest). With nccl, a peer is lost if a transfer of
     * tensors takes this time (ERR_TIMEOUT). 0 means hop_timeout_ms. */
    int64_t silence_ms;
    /* nccl: longest time for connecting, and for posting a group, because the first group to a peer
     * connects to it; 0 means silence_ms */
    int64_t connect_ms;
    uint64_t delay_seed; /* tests: seed of the random delays */
    /* upper bound of the random delay until a message is visible; 0 means no delay */
    int64_t delay_max_us;
    int64_t latency_us; /* benches: delay of every message */
    /* for benches: limit of the bytes per ms to each peer; 0 means no limit */
    int64_t bytes_per_ms;
};

/* A rank's current place. The caller sets it as it runs; errors and the record of the last
 * operation print it. */
struct comm_where {
    int64_t step;
    int32_t layer, hop;
};

struct comm_xfer {
    enum purpose purpose;
    enum comm_channel channel;
    int send_to, recv_from; /* peer ranks; -1 if there is none */
    const void *send;
    void *recv;
    int64_t send_size, recv_size; /* bytes */
};

struct comm_ticket {
    int slot; /* -1 if nothing is pending */
};

/* Connecting has two steps. comm_listen makes the endpoint and fills blob (at most BLOB_SIZE
 * bytes). comm_connect needs the blobs of all ranks, in rank order. Either step may fail with
 * ERR_UNSUPPORTED. The error then names the pair of ranks that no transport connects, or the
 * missing library or feature of the device. Either step fails with ERR_PEER if ranks have
 * different plans or a rank does not connect, and with ERR_INVALID if an address is not valid.
 * Both may also fail with ERR_ABORTED, ERR_TIMEOUT or ERR_IO. */
struct comm *comm_listen(const struct comm_options *o, char blob[BLOB_SIZE], int *blob_size,
                         struct err *e);
int comm_connect(struct comm *c, const struct rank_blob *blobs, int n, struct err *e);
/* Returns the TCP port on which the rank of a blob listens, or 0 if it has none. */
int comm_blob_port(const struct rank_blob *blob);
void comm_close(struct comm *c); /* NULL allowed */

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
void *comm_segment(struct comm *c);
/* Returns the buffer from which messages of CHANNEL_HOST are sent. If tensors are in a device's
 * memory, this is a buffer of comm_bounce_size(n_ranks) bytes that comm owns. Otherwise it is the
 * caller's `bounce`, which is in the segment. */
void *comm_bounce(struct comm *c, void *bounce);
struct comm_where *comm_where(struct comm *c); /* borrowed; the caller writes its place into it */

/* Tells whether messages move while this core computes. This is true if TCP or NCCL carries
 * tensors to some rank, or if a bench delays messages. In shared memory the receiver copies the
 * messages itself. Ranks may get different answers. */
bool comm_hides(const struct comm *c);

int comm_sendrecv(struct comm *c, const struct comm_xfer *x, struct comm_ticket *t, struct err *e);
/* Begin and end a batch. The tickets posted between these two calls are one exchange, whose
 * messages may overtake each other. The caller posts all tickets of a batch before it waits for
 * any of them. If the sends and receives of an exchange are separate tickets, the exchange must be
 * a batch (nccl.c explains why). */
int comm_batch_begin(struct comm *c, struct err *e);
int comm_batch_end(struct comm *c, struct err *e);
/* Checks the transfers under way. The device calls it as be->watch while the host waits. Returns
 * -1 if a transfer can no longer succeed, because the abort flag is set, a peer is lost, or a
 * transfer of tensors has taken silence_ms. */
int comm_watch(void *comm, struct err *e);
int comm_wait(struct comm *c, struct comm_ticket *t, struct err *e);

/* Makes the endpoint of a set of ranks of c. The set includes the caller. Rank i of the endpoint
 * is the i-th rank of the set. The endpoint is a view, which means that it shares the channels,
 * the ledger and the place of c's endpoint, and is freed with that endpoint. c may itself be a
 * view. If the set is all ranks, returns c. Allocates; returns NULL if there is no memory. */
struct comm *comm_group(struct comm *c, struct rank_set of);
/* Sets *out to the result of comm_group, or to NULL if c is NULL or the set is only this rank.
 * Fails with ERR_IO. */
int comm_view(struct comm *c, struct rank_set of, struct comm **out, struct err *e);

/* Collectives (collect.c), written once over sendrecv. bounce is a buffer of
 * comm_bounce_size(n_ranks) bytes in the comm segment. The following holds if the device has
 * memory of its own. x, own and bounce of comm_sum_f32, comm_reduce_scatter, comm_all_gather and
 * comm_broadcast_tensor are in the device's memory. The arguments of the other collectives are in
 * the host's memory, and their bounce is not used (see comm_bounce).
 *
 * comm_sum_f32 sets x[i] to the sum of the ranks' x[i]. The P values are added as a perfect binary
 * tree over rank order ((r0+r1)+(r2+r3)), so every rank gets the same bits. If the device has
 * any_order, the transport may choose the order, which does not change from run to run. If P is
 * not a power of two, each set of Q ranks of the tree is split in two. The first part has 2^k
 * ranks, where 2^k is the largest power of two below Q. The sum is a reduce-scatter by direct
 * exchange, followed by an all-gather, so each rank sends 2 (P-1)/P n floats. n must be a multiple
 * of P * 16. x may be anywhere.
 *
 * comm_reduce_scatter sums rank w's part of x, which is elements [cut[w], cut[w + 1]), over ranks,
 * in the order of comm_sum_f32. Only rank w gets this sum. On rank w the other parts of x are not
 * changed. A part may have any size, even 0.
 *
 * comm_all_gather gives every rank all of x. On rank w, `own` has elements [cut[w], cut[w + 1]) of
 * x. Each element has `size` bytes. `own` may point to these elements in x itself.
 *
 * comm_sum_f64 and comm_sum_i64 sum small vectors (n <= 512). Each uses an all-gather, after which
 * every rank adds the vectors by the tree of comm_sum_f32.
 *
 * comm_each_i64 returns every rank's x [n], in rank order, or NULL if it fails. The result is in
 * comm_bounce() and is valid until the next collective. comm_each_i64 sends the same number of
 * bytes as comm_sum_i64. */
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
/* An all-to-all has two halves, and the caller computes between the two calls. Call
 * comm_all_to_all within a batch. send must be in the segment. Block w of send, which is bytes
 * [at[w], at[w + 1]), goes to rank w, and rank w's block for this rank arrives in block w of recv.
 * Empty blocks are not sent. If `own` is set, this rank's block for itself is copied too;
 * otherwise that block of recv is undefined. If all blocks have the same size on one rank, they
 * must have the same size on every rank. */
struct comm_blocks {
    void *data;
    const int64_t *at; /* [n_ranks + 1] */
};
struct comm_exchange {
    int n;
    struct comm_ticket ticket[JOB_MAX_RANKS];
    enum purpose purpose;
    /* bytes of each block if the transport does the whole exchange; 0 if messages do it */
    int64_t block;
};
int comm_all_to_all(struct comm *c, enum purpose p, struct comm_blocks send,
                    struct comm_blocks recv, bool own, struct comm_exchange *x, struct err *e);
int comm_all_to_all_wait(struct comm *c, struct comm_exchange *x, struct err *e);
/* Gathers x of all ranks on rank root. out has n_ranks * size bytes, in rank order. */
int comm_gather(struct comm *c, enum purpose p, int root, const void *x, int64_t size, void *out,
                void *bounce, struct err *e);

/* comm_ledger returns the counts since the last comm_ledger_reset, by purpose. comm_wait_us
 * returns the time spent inside comm_wait since then. */
const struct comm_count *comm_ledger(const struct comm *c); /* [PURPOSE_N] */
int64_t comm_wait_us(const struct comm *c);
void comm_ledger_reset(struct comm *c);

/* Returns the size of a memfd that n ranks share, with the header, the channels and the segments.
 * Tests and shm.c call it. */
int64_t comm_shm_size(int n_ranks, int64_t segment_size);

#endif
