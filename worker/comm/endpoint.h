/* endpoint.h: one rank's endpoint, and the functions of a transport. For worker/comm only.
 *
 * comm.c owns tickets, waiting, counting, deadlines and sentences. A transport moves one side of a
 * ticket, a send or a receive, between one pair of ranks; via[] says which transport a peer has.
 * Only the rank's own thread calls the functions of a transport. Only connect and close wait for a
 * peer. */
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
enum { COMM_N_OPS = 2 * JOB_MAX_RANKS }; /* enough for a collective's P-1 and a ring's two */

struct comm_op { /* one ticket */
    bool live, send_done, recv_done;
    struct comm_xfer x;
    struct comm_where where;
    const struct comm_ops *stream;     /* transport that moves it in be's stream; NULL: none */
    struct rank_set of;                /* ranks of a collective: x has no peers; n 0: a message */
    uint64_t send_number, recv_number; /* count from 1 by (sender, receiver, channel) */
    int64_t group;                     /* nccl: number of its group */
    int64_t visible_ns; /* injected delay: time before which it does not arrive (shared memory) or
                                        * is not sent (tcp); 0: no delay */
};

/* Collectives that a transport may do as a whole; else messages do them (collect.c). Parts of x are
 * [cut[w], cut[w + 1]) of n ranks, in elements of `size` bytes. */
enum collective_kind {
    COLLECTIVE_SUM,            /* x [cut[n]] floats in place */
    COLLECTIVE_REDUCE_SCATTER, /* this rank's part of x, in place */
    COLLECTIVE_ALL_GATHER,     /* `own` of every rank goes into x */
    COLLECTIVE_BROADCAST,      /* x [cut[n]] of rank root goes to all */
    COLLECTIVE_ALL_TO_ALL,     /* own and x: n blocks of cut[1] */
};
struct collective {
    enum collective_kind kind;
    enum purpose purpose;
    struct rank_set of; /* ranks of the endpoint, the caller among them */
    int rank;           /* the caller's number in `of` */
    int root;
    const void *own;
    void *x;
    const int64_t *cut;
    int64_t size;
};

/* The memory that a message lies in. If no device has memory of its own, both are the host's. */
enum comm_memory { MEMORY_HOST, MEMORY_TENSORS, MEMORY_N };

/* The blob that a rank publishes: its number and how to reach it. Plain data of one build. */
struct comm_blob {
    char magic[16];
    char boot_id[48]; /* identifies the host */
    uint64_t memfd_dev, memfd_ino;
    int64_t segment_size;
    int32_t rank, n_ranks, first_local, n_local;
    int32_t transport, tls; /* enum transport_id, as asked for */
    bool shared;            /* `handle` opens the segment in a device's memory */
    struct be_handle handle;
    unsigned char gpu[16];               /* be->id of its GPU; zeros: none */
    int32_t nccl_version;                /* 0: not available, or not asked for */
    uint32_t nccl_whole;                 /* bits of the collective_kind that NCCL does whole */
    unsigned char nccl_id[NCCL_ID_SIZE]; /* made by rank 0: all ranks connect by it */
    int32_t port;                        /* port of the listening socket; 0: no TCP */
    char address[RANK_ADDRESS_SIZE];
};

struct shm;
struct tcp;
struct nccl;

struct comm {
    int rank, n_ranks, first_local, n_local;
    struct be *be; /* messages of tensors lie in its memory; NULL: all lie in the host's */
    char *segment; /* source of tensors' messages; borrowed from shm.c or the caller */
    int64_t segment_size;
    char *host; /* this rank's share of shared memory: `segment`, or with be a bounce buffer */
    int64_t host_size;
    struct shm_head *head; /* the gang's page; borrowed from shm.c */
    struct comm_where where;
    struct ledger ledger;
    struct comm *base; /* a view's endpoint, with place and ledger; NULL: this is an endpoint */
    struct comm
        *views; /* endpoint: its views, made by comm_group, freed with it; a view: the next one */
    struct rank_set of; /* ranks of a view, by their numbers in base; an endpoint: all */
    int view_size;      /* ranks of each block that comm_group will make; n_ranks: no blocks */

    const struct comm_ops *via[MEMORY_N][JOB_MAX_RANKS]; /* transport to each peer; NULL: itself */
    struct shm *shm;
    struct tcp *tcp;    /* NULL: no peer is reached by TCP */
    struct nccl *nccl;  /* NULL: not asked for */
    struct err why_not; /* why tensors cannot use shared memory or NCCL, for a later error */
    struct comm_blob blob;
    const struct comm_blob *all; /* blobs of all ranks, while comm_connect runs; NULL: not known */

    int64_t hop_timeout_ms, delay_max_us, latency_us, bytes_per_ms;
    int64_t link_free_ns[JOB_MAX_RANKS]; /* time at which the injected link to a peer is free */
    uint64_t delay_seed;
    uint64_t n_sent[JOB_MAX_RANKS][CHANNEL_N], n_received[JOB_MAX_RANKS][CHANNEL_N];
    struct err failed; /* the first failure: every later call fails with the same sentence */
    int n_ops;         /* no live op at or above this index */
    struct comm_op op[COMM_N_OPS];
};

/* A transport is a row of this table (connect.c). A NULL function does nothing. */
struct comm_ops {
    const char *name;
    enum transport_id id;
    /* Tells whether messages that lie in this memory can go to a peer. If not, why has the reason,
     * for the user. Transports are asked in turn, first when the endpoint is opened. While me->all
     * is NULL, true means that it may be usable. */
    bool (*usable)(const struct comm *me, int peer, enum comm_memory memory, struct err *why);
    /* Makes the transport's state in c and fills its part of c->blob, if the transport may be
     * used. */
    int (*open)(struct comm *c, const struct comm_options *o, struct err *e);
    /* Connects the transport, if some peer uses it. all: the blobs of all ranks, checked to be of
     * this attempt. */
    int (*connect)(struct comm *c, const struct comm_blob *all, struct err *e);
    /* Announces a receive; from here on the transport may write to op->x.recv. */
    void (*recv_post)(struct comm *c, struct comm_op *op);
    /* Starts the send or continues it. Returns true when the peer has taken the bytes. */
    bool (*send_try)(struct comm *c, struct comm_op *op);
    /* Sets *done when the bytes lie in op->x.recv. If it knows a time (comm_now_ns) at which to
     * look again without a wake, lowers *wake_ns to that time. */
    int (*recv_try)(struct comm *c, struct comm_op *op, bool *done, int64_t *wake_ns,
                    struct err *e);
    /* Checks that op, which is not done, can still end. fails: ERR_PEER, ERR_CORRUPT naming the
     * peer. */
    int (*check)(struct comm *c, struct comm_op *op, struct err *e);
    /* A row that moves tensors in the device's own stream has these in place of recv_post,
     * send_try and recv_try: post starts both sides at once, and await makes later operations wait
     * for them. Messages between batch(true) and batch(false) are one group. */
    int (*post)(struct comm *c, struct comm_op *op, struct err *e);
    void (*await)(struct comm *c, const struct comm_op *op);
    int (*batch)(struct comm *c, bool on, struct err *e);
    /* Such a row may also have these two. takes tells whether it would do x as a whole: all of x's
     * ranks get the same answer. collective does x, as op, in the open batch if there is one. */
    bool (*takes)(const struct comm *c, const struct collective *x);
    int (*collective)(struct comm *c, struct comm_op *op, const struct collective *x,
                      struct err *e);
    /* Checks all transfers under way. fails: a transfer has failed, or takes too long. */
    int (*watch)(struct comm *c, struct err *e);
    /* Stops, after a failure, all access to the caller's buffers. */
    void (*halt)(struct comm *c);
    void (*close)(struct comm *c);
};

extern const struct comm_ops comm_shm;  /* shm.c; always open: it owns the page and the segment */
extern const struct comm_ops comm_tcp;  /* tcp.c */
extern const struct comm_ops comm_nccl; /* nccl.c; tensors alone */

enum { N_TRANSPORTS = 3 };
extern const struct comm_ops *const comm_transports[N_TRANSPORTS];
bool comm_uses(const struct comm *c, const struct comm_ops *t); /* tells if some peer uses t */
void comm_halt(struct comm *c);                                 /* halts all transports */
struct comm *comm_base(const struct comm *c); /* the endpoint of a view, or c itself */
bool comm_on_device(const struct comm *c, const struct comm_op *op); /* op lies in be's memory */
bool comm_is_local(const struct comm *c, int rank);                  /* rank shares the memfd */
int64_t comm_now_ns(void);                                           /* CLOCK_MONOTONIC */
/* comm_takes sets x->of and x->rank, and tells whether the transport of c's tensors does x as a
 * whole. comm_collective posts x and counts no bytes. Both are in comm.c. */
bool comm_takes(const struct comm *c, struct collective *x);
int comm_collective(struct comm *c, const struct collective *x, struct comm_ticket *t,
                    struct err *e);
/* Prints "step 12, layer 3, hop 1: rank 2". */
void comm_where_print(char *out, size_t size, const struct comm_where *w, int rank);
/* Set the errors that a wait for op ends with. */
int comm_aborted(const struct comm *c, const struct comm_op *op, struct err *e);
int comm_timed_out(const struct comm *c, const struct comm_op *op, int64_t waited_ms,
                   struct err *e);
/* Checks a message's size and purpose, as they were received. fails: "step 12, layer 3, hop 1: rank
 * 2 expects 8 bytes of ring_kv from rank 1, which sends 9 of loss". */
int comm_check_message(const struct comm *c, const struct comm_op *op, int64_t size,
                       int32_t purpose, struct err *e);

/* shm.c: the page's futexes. A rank that will sleep watches its door, looks at all its tickets
 * again, sleeps while the door has the value that shm_door_watch returned, and then leaves the
 * door. Any thread may move a door: the rank that wakes sees whatever that thread changed
 * before. */
void shm_door_move(struct comm *c, int rank);
uint32_t shm_door_watch(struct comm *c); /* this rank's own door, like the next two */
void shm_door_sleep(struct comm *c, uint32_t seen, int64_t ns);
void shm_door_leave(struct comm *c);

#endif
