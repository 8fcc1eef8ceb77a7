/* ranks.h: P ranks that run as threads of one process on the real transports.
 *
 *     struct ranks g;
 *     ranks_open(&g, P, segment_size, &(struct comm_options){.delay_max_us = 100});
 *                                        .transport = TRANSPORT_TCP: sockets for every pair
 *                                        .n_local = 2: nodes of two ranks, TCP between nodes
 *     ranks_run(&g, body, arg);          runs body(g, rank, arg) on P threads and joins them
 *     ranks_close(&g);
 *
 * All threads of a node use one mapping of the shared memory, so that TSan sees both ends of the
 * protocol. A body that fails calls ranks_fail. The other ranks then fail with ERR_ABORTED instead
 * of waiting until the time limit. */
#ifndef SEQD_TESTS_RANKS_H
#define SEQD_TESTS_RANKS_H

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "api/core/choices.h"
#include "tests/lib/pages.h"
#include "tests/lib/test.h"
#include "worker/comm/comm.h"

/* The transport that the ranks use if their test does not choose one. */
static enum transport_id ranks_transport = TRANSPORT_AUTO;

struct ranks {
    int P, n_local; /* n_local is the number of ranks on each node; the last node may have fewer */
    int64_t map_size;
    int memfds[JOB_MAX_RANKS]; /* per node */
    struct shm_head *heads[JOB_MAX_RANKS];
    int memfd;             /* the memfd of the first node */
    struct shm_head *head; /* the mapping of the first node */
    struct comm *comm[JOB_MAX_RANKS];
    /* the first failure of each rank; ERR_NONE means that the rank has not failed */
    struct err err[JOB_MAX_RANKS];
    void (*body)(struct ranks *, int rank, void *arg);
    void *arg;
};

struct ranks_thread {
    struct ranks *g;
    int rank;
    pthread_t id;
};

static inline int ranks_nodes(const struct ranks *g)
{
    return g->P ? (g->P + g->n_local - 1) / g->n_local : 0;
}

/* Returns the shared page of the node on which a rank runs. */
static inline struct shm_head *ranks_head(const struct ranks *g, int rank)
{
    return g->heads[rank / g->n_local];
}

/* Aborts in the same way as seqgang: sets the flag first, and then wakes every rank at its door.
 * `by` is the rank that caused the failure, or -1 if no rank did. */
static inline void ranks_abort_node(struct ranks *g, int node, int by)
{
    struct shm_head *h = g->heads[node];
    __atomic_store_n(&h->abort_rank, by, __ATOMIC_RELAXED);
    __atomic_store_n(&h->abort, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < g->P; r++) {
        __atomic_fetch_add(&h->door[r], 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &h->door[r], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

static inline void ranks_abort(struct ranks *g, int by)
{
    for (int k = 0; k < ranks_nodes(g); k++) ranks_abort_node(g, k, by);
}

static inline void ranks_fail(struct ranks *g, int rank, const struct err *e)
{
    g->err[rank] = *e;
    ranks_abort(g, rank);
}

/* Makes the memfd of each node. Its first page holds the magic number and n_ranks, which seqgang
 * would set. */
static inline void ranks_segments(struct ranks *g, int P, int n_local, int64_t segment_size)
{
    *g = (struct ranks){.P = P, .n_local = n_local};
    /* If tensors are in the memory of a device, the segment is only used as the host's bounce
     * buffer. */
    const int64_t bounce = comm_bounce_size(P);
    g->map_size = comm_shm_size(n_local, segment_size > bounce ? segment_size : bounce);
    for (int k = 0; k < ranks_nodes(g); k++) {
        g->heads[k] = engine_shared(g->map_size, &g->memfds[k]);
        g->heads[k]->magic = SHM_MAGIC;
        g->heads[k]->n_ranks = (uint32_t)P;
        g->heads[k]->abort_rank = -1;
    }
    g->memfd = g->memfds[0];
    g->head = g->heads[0];
}

static inline void ranks_segment(struct ranks *g, int P, int64_t segment_size)
{
    ranks_segments(g, P, P, segment_size);
}

/* Returns the options of one rank. They are the options in `extra`, and the rank's index, node and
 * connection. */
static inline struct comm_options ranks_options(const struct ranks *g, int rank,
                                                int64_t segment_size,
                                                const struct comm_options *extra)
{
    struct comm_options o = extra ? *extra : (struct comm_options){0};
    int node = rank / g->n_local, first = node * g->n_local;
    o.rank = rank;
    o.n_ranks = g->P;
    o.first_local = first;
    o.n_local = first + g->n_local > g->P ? g->P - first : g->n_local;
    o.memfd = g->memfds[node];
    o.map = g->heads[node];
    o.segment_size = segment_size;
    if (!o.hop_timeout_ms) o.hop_timeout_ms = 60000;
    if (o.transport == TRANSPORT_AUTO) o.transport = ranks_transport;
    return o;
}

struct ranks_connect {
    struct ranks *g;
    int rank;
    const struct rank_blob *blobs;
    pthread_t id;
};

static inline void *ranks_connect_main(void *arg)
{
    struct ranks_connect *t = arg;
    struct ranks *g = t->g;
    comm_connect(g->comm[t->rank], t->blobs, g->P, &g->err[t->rank]);
    return NULL;
}

/* Connects all ranks at the same time, because over sockets every rank waits for all other ranks.
 * Failures are stored in g->err. */
static inline void ranks_connect(struct ranks *g, const struct rank_blob *blobs)
{
    struct ranks_connect t[JOB_MAX_RANKS];
    for (int r = 0; r < g->P; r++) {
        t[r] = (struct ranks_connect){.g = g, .rank = r, .blobs = blobs};
        if (pthread_create(&t[r].id, NULL, ranks_connect_main, &t[r])) abort();
    }
    for (int r = 0; r < g->P; r++) pthread_join(t[r].id, NULL);
}

/* The device of a rank. The members have the same meanings as the members of comm_options with
 * these names. */
struct ranks_device {
    struct be *be;
    void *segment;
};

/* Opens P ranks. `extra` may be NULL. It sets the transport, n_local (ranks per node; 0 means one
 * node), hop_timeout_ms (default 60000), silence_ms, delay_seed, delay_max_us and other options.
 * `device` is an array [P], or NULL if tensors are in the host's memory. */
static inline void ranks_open_on(struct ranks *g, int P, int64_t segment_size,
                                 const struct comm_options *extra,
                                 const struct ranks_device *device)
{
    static _Thread_local struct rank_blob blobs[JOB_MAX_RANKS];
    struct err e = {0};
    ranks_segments(g, P, extra && extra->n_local ? extra->n_local : P, segment_size);
    for (int r = 0; r < P; r++) {
        struct comm_options o = ranks_options(g, r, segment_size, extra);
        if (device) o.be = device[r].be;
        if (device) o.segment = device[r].segment;
        blobs[r].rank = r;
        g->comm[r] = comm_listen(&o, blobs[r].data, &blobs[r].size, &e);
        CHECK_MSG(g->comm[r], "%s", e.text);
    }
    ranks_connect(g, blobs);
    for (int r = 0; r < P; r++) CHECK_MSG(!g->err[r].code, "rank %d: %s", r, g->err[r].text);
}

static inline void ranks_open(struct ranks *g, int P, int64_t segment_size,
                              const struct comm_options *extra)
{
    ranks_open_on(g, P, segment_size, extra, NULL);
}

static inline void *ranks_main(void *arg)
{
    struct ranks_thread *t = arg;
    t->g->body(t->g, t->rank, t->g->arg);
    return NULL;
}

static inline void ranks_run(struct ranks *g, void (*body)(struct ranks *, int, void *), void *arg)
{
    struct ranks_thread t[JOB_MAX_RANKS];
    g->body = body;
    g->arg = arg;
    for (int r = 0; r < g->P; r++) {
        t[r] = (struct ranks_thread){.g = g, .rank = r};
        if (pthread_create(&t[r].id, NULL, ranks_main, &t[r])) abort();
    }
    for (int r = 0; r < g->P; r++) pthread_join(t[r].id, NULL);
}

/* Checks that no rank failed. */
static inline void ranks_check(const struct ranks *g)
{
    for (int r = 0; r < g->P; r++)
        CHECK_MSG(g->err[r].code == ERR_NONE, "P %d rank %d: %s", g->P, r, g->err[r].text);
}

static inline void ranks_close(struct ranks *g)
{
    for (int r = 0; r < g->P; r++) comm_close(g->comm[r]);
    for (int k = 0; k < JOB_MAX_RANKS && g->heads[k]; k++)
        engine_unshare(g->heads[k], g->map_size, g->memfds[k]);
}

#endif
