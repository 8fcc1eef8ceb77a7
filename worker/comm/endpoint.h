/* endpoint.h: one rank's endpoint, and the functions of a transport. It is private to worker/comm.
 *
 * comm.c is responsible for tickets, waiting, counting, deadlines and the texts of errors. A
 * transport moves one side of a ticket, a send or a receive, between one pair of ranks. via[] has
 * the transport to each peer. Only the rank's own thread calls the functions of a transport. Only
 * connect and close wait for a peer. */
#ifndef SEQD_COMM_ENDPOINT_H
#define SEQD_COMM_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/limits.h"
#include "worker/comm/comm.h"
#include "worker/comm/ledger.h"

#define NCCL_ID_SIZE 128
/* enough for the P-1 tickets of a collective and the two tickets of a ring */
enum { COMM_N_OPS = 2 * JOB_MAX_RANKS };

struct comm_op { /* one ticket */
    bool live, send_done, recv_done;
    struct comm_xfer x;
    struct comm_where where;
    /* transport that moves the op in be's stream; NULL if a transport of the host moves it */
    const struct comm_ops *stream;
    /* ranks of a collective, for which x has no peers; n is 0 for a message */
    struct rank_set of;
    /* index of the message, counted from 1 for each (sender, receiver, channel) */
    uint64_t send_number, recv_number;
    int64_t group; /* nccl: index of the op's group */
    /* Injected delay. Before this time, the message is not received (shared memory) or not sent
     * (tcp). 0 means that there is no delay. */
    int64_t visible_ns;
};

/* Collectives that a transport may do as a whole. If the transport does not do a collective,
 * collect.c does it by messages. Rank w's part of x is [cut[w], cut[w + 1]), in elements of `size`
 * bytes. n is the number of ranks. */
enum collective_kind {
    COLLECTIVE_SUM,            /* x [cut[n]] floats in place */
    COLLECTIVE_REDUCE_SCATTER, /* sums this rank's part of x, in place */
    COLLECTIVE_ALL_GATHER,     /* copies every rank's `own` into every rank's x */
    COLLECTIVE_BROADCAST,      /* copies rank root's x [cut[n]] to all ranks */
    COLLECTIVE_ALL_TO_ALL,     /* own and x have n blocks of cut[1] */
};
struct collective {
    enum collective_kind kind;
    enum purpose purpose;
    struct rank_set of; /* ranks of the endpoint, including the caller */
    int rank;           /* the caller's index in `of` */
    int root;
    const void *own;
    void *x;
    const int64_t *cut;
    int64_t size;
};

/* The memory in which a message is. If no device has memory of its own, both kinds are the host's
 * memory. */
enum comm_memory { MEMORY_HOST, MEMORY_TENSORS, MEMORY_N };

/* The blob that a rank publishes. It has the rank's index and the ways to reach the rank. It is
 * plain data, which only ranks of one build of seqd understand. */
struct comm_blob {
    char magic[16];
    char boot_id[48]; /* identifies the host */
    uint64_t memfd_dev, memfd_ino;
    int64_t segment_size;
    int32_t rank, n_ranks, first_local, n_local;
    int32_t transport, tls; /* enum transport_id, as asked for */
    bool shared;            /* `handle` opens the segment in a device's memory */
    struct be_handle handle;
    unsigned char gpu[16]; /* be->id of the rank's GPU; zeros if it has no GPU */
    int32_t nccl_version;  /* 0 if NCCL is not available or not asked for */
    /* one bit for each kind of collective that NCCL does as a whole */
    uint32_t nccl_whole;
    unsigned char nccl_id[NCCL_ID_SIZE]; /* made by rank 0; all ranks use it to connect */
    int32_t port;                        /* port of the listening socket; 0 without TCP */
    char address[RANK_ADDRESS_SIZE];
};

struct shm;
struct tcp;
struct nccl;

struct comm {
    int rank, n_ranks, first_local, n_local;
    struct be *be; /* its memory has the messages of tensors; NULL if the host's memory has them */
    char *segment; /* source of tensors' messages; borrowed from shm.c or the caller */
    int64_t segment_size;
    /* this rank's share of shared memory: equal to `segment`, or a bounce buffer if be is set */
    char *host;
    int64_t host_size;
    struct shm_head *head; /* the gang's page; borrowed from shm.c */
    struct comm_where where;
    struct ledger ledger;
    /* in a view, its endpoint, which has the place and the ledger; in an endpoint, NULL */
    struct comm *base;
    /* in an endpoint, the list of its views, which are freed with it; in a view, the next view */
    struct comm *views;
    struct rank_set of; /* ranks of a view, by their indices in base; in an endpoint, all ranks */
    /* number of ranks of a block (comm_options.view_size); n_ranks if there are no blocks */
    int view_size;

    /* transport to each peer; NULL for the rank itself */
    const struct comm_ops *via[MEMORY_N][JOB_MAX_RANKS];
    struct shm *shm;
    struct tcp *tcp;    /* NULL if no peer is reached by TCP */
    struct nccl *nccl;  /* NULL if it was not asked for */
    struct err why_not; /* why tensors cannot use shared memory or NCCL, kept for a later error */
    struct comm_blob blob;
    /* blobs of all ranks while comm_connect runs; NULL if they are not known */
    const struct comm_blob *all;

    int64_t hop_timeout_ms, delay_max_us, latency_us, bytes_per_ms;
    int64_t link_free_ns[JOB_MAX_RANKS]; /* time at which the injected link to a peer is free */
    uint64_t delay_seed;
    uint64_t n_sent[JOB_MAX_RANKS][CHANNEL_N], n_received[JOB_MAX_RANKS][CHANNEL_N];
    struct err failed; /* the first failure; every later call fails with this error */
    int n_ops;         /* no op at or above this index is in use */
    struct comm_op op[COMM_N_OPS];
};

/* A transport is one row of this table (connect.c). If a function is NULL, the transport has
 * nothing to do there. */
struct comm_ops {
    const char *name;
    enum transport_id id;
    /* Tells whether messages in this memory can be sent to a peer. If not, sets why to the reason,
     * written for the user. The function is called when the endpoint is opened, and again when all
     * blobs are known. As long as me->all is NULL, true means only that the transport may turn out
     * to be usable. */
    bool (*usable)(const struct comm *me, int peer, enum comm_memory memory, struct err *why);
    /* If the transport may be used, makes the transport's state in c and fills in the transport's
     * part of c->blob. */
    int (*open)(struct comm *c, const struct comm_options *o, struct err *e);
    /* Connects the transport if it reaches some peer. all has the blobs of all ranks, which have
     * been checked to belong to this attempt. */
    int (*connect)(struct comm *c, const struct comm_blob *all, struct err *e);
    /* Announces a receive. From this call on the transport may write to op->x.recv. */
    void (*recv_post)(struct comm *c, struct comm_op *op);
    /* Starts the send or continues it. Returns true when the peer has received the bytes. */
    bool (*send_try)(struct comm *c, struct comm_op *op);
    /* Sets *done when the bytes have arrived in op->x.recv. If the bytes will arrive at a known
     * time (comm_now_ns) without a wake, lowers *wake_ns to that time. */
    int (*recv_try)(struct comm *c, struct comm_op *op, bool *done, int64_t *wake_ns,
                    struct err *e);
    /* Checks that op, which is not complete, can still complete. Fails with ERR_PEER or
     * ERR_CORRUPT; the error names the peer. */
    int (*check)(struct comm *c, struct comm_op *op, struct err *e);
    /* The three functions post, await and batch replace recv_post, send_try and recv_try in a
     * transport that moves tensors in the device's stream. post starts both sides of a ticket.
     * await makes later operations wait for both sides. Messages between batch(true) and
     * batch(false) are one group. */
    int (*post)(struct comm *c, struct comm_op *op, struct err *e);
    void (*await)(struct comm *c, const struct comm_op *op);
    int (*batch)(struct comm *c, bool on, struct err *e);
    /* A transport that works in the device's stream may also have `takes` and `collective`.
     * `takes` tells whether the transport does x as a whole; the answer is equal on all of x's
     * ranks. `collective` does x, as op. If a batch is open, x is part of the batch. */
    bool (*takes)(const struct comm *c, const struct collective *x);
    int (*collective)(struct comm *c, struct comm_op *op, const struct collective *x,
                      struct err *e);
    /* Checks all transfers under way. Fails if a transfer has failed or takes too long. */
    int (*watch)(struct comm *c, struct err *e);
    /* Ends all access to the caller's buffers, after a failure. */
    void (*halt)(struct comm *c);
    void (*close)(struct comm *c);
};

/* shm.c; always open, because shm.c owns the page and the segment */
extern const struct comm_ops comm_shm;
extern const struct comm_ops comm_tcp;  /* tcp.c */
extern const struct comm_ops comm_nccl; /* nccl.c; for tensors only */

enum { N_TRANSPORTS = 3 };
extern const struct comm_ops *const comm_transports[N_TRANSPORTS];
/* tells whether some peer uses t */
bool comm_uses(const struct comm *c, const struct comm_ops *t);
void comm_halt(struct comm *c); /* halts all transports */
/* the endpoint of a view; c itself if c is an endpoint */
struct comm *comm_base(const struct comm *c);
/* tells whether op's message is in be's memory */
bool comm_on_device(const struct comm *c, const struct comm_op *op);
bool comm_is_local(const struct comm *c, int rank); /* rank shares the memfd */
int64_t comm_now_ns(void);                          /* CLOCK_MONOTONIC */
/* comm_takes sets x->of and x->rank, and tells whether the transport of c's tensors does x as a
 * whole. comm_collective posts x without counting its bytes. The two functions are in comm.c. */
bool comm_takes(const struct comm *c, struct collective *x);
int comm_collective(struct comm *c, const struct collective *x, struct comm_ticket *t,
                    struct err *e);
/* Prints "step 12, layer 3, hop 1: rank 2". */
void comm_where_print(char *out, size_t size, const struct comm_where *w, int rank);
/* Set the error with which a wait for op fails. */
int comm_aborted(const struct comm *c, const struct comm_op *op, struct err *e);
int comm_timed_out(const struct comm *c, const struct comm_op *op, int64_t waited_ms,
                   struct err *e);
/* Checks a message's size and purpose as they were received. Fails with an error such as "step 12,
 * layer 3, hop 1: rank 2 expects 8 bytes of ring_kv from rank 1, which sends 9 of loss". */
int comm_check_message(const struct comm *c, const struct comm_op *op, int64_t size,
                       int32_t purpose, struct err *e);

/* shm.c: the page's futexes. A rank that is about to sleep first calls shm_door_watch and then
 * looks at all its tickets again. It sleeps while the door still has the value that shm_door_watch
 * returned, and then calls shm_door_leave. Any thread may change the value of a door by
 * shm_door_move, which wakes the rank. The rank then sees everything that the thread wrote
 * before. */
void shm_door_move(struct comm *c, int rank);
uint32_t shm_door_watch(struct comm *c); /* this and the next two functions use c's own door */
void shm_door_sleep(struct comm *c, uint32_t seen, int64_t ns);
void shm_door_leave(struct comm *c);

#endif
