/* ranks.h: P ranks as threads on the real shared-memory transport, in one process.
 *
 *     struct ranks g;
 *     ranks_open(&g, P, segment_size, &(struct comm_options){.delay_max_us = 100});
 *     ranks_run(&g, body, arg);          body(g, rank, arg) on P threads; joins them
 *     ranks_close(&g);
 *
 * All threads share one mapping, so that TSan sees both ends of the protocol. A body that fails
 * calls ranks_fail: the others leave with ERR_ABORTED instead of waiting for the time limit. */
#ifndef SEQD_TESTS_RANKS_H
#define SEQD_TESTS_RANKS_H

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/test.h"
#include "worker/comm/comm.h"

struct ranks {
    int P, memfd;
    int64_t map_size;
    struct shm_head *head; /* the mapping */
    struct comm *comm[JOB_MAX_RANKS];
    struct err err[JOB_MAX_RANKS]; /* a rank's first failure; ERR_NONE: none */
    void (*body)(struct ranks *, int rank, void *arg);
    void *arg;
};

struct ranks_thread {
    struct ranks *g;
    int rank;
    pthread_t id;
};

/* What seqgang does: the flag, then every door. */
static inline void ranks_abort(struct ranks *g, int by)
{
    __atomic_store_n(&g->head->abort_rank, by, __ATOMIC_RELAXED);
    __atomic_store_n(&g->head->abort, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < g->P; r++) {
        __atomic_fetch_add(&g->head->door[r], 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &g->head->door[r], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

static inline void ranks_fail(struct ranks *g, int rank, const struct err *e)
{
    g->err[rank] = *e;
    ranks_abort(g, rank);
}

/* The memfd as seqgang hands it over: one page, magic and n_ranks. */
static inline void ranks_segment(struct ranks *g, int P, int64_t segment_size)
{
    *g = (struct ranks){.P = P, .map_size = comm_shm_size(P, segment_size)};
    g->memfd = memfd_create("seqd-test", MFD_CLOEXEC);
    if (g->memfd < 0 || ftruncate(g->memfd, g->map_size)) abort();
    g->head = mmap(NULL, (size_t)g->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, g->memfd, 0);
    if (g->head == MAP_FAILED) abort();
    g->head->magic = SHM_MAGIC;
    g->head->n_ranks = (uint32_t)P;
    g->head->abort_rank = -1;
}

/* extra: hop_timeout_ms (default 60000), delay_seed, delay_max_us; NULL: none. */
static inline void ranks_open(struct ranks *g, int P, int64_t segment_size,
                              const struct comm_options *extra)
{
    static _Thread_local struct rank_blob blobs[JOB_MAX_RANKS];
    struct err e = {0};
    ranks_segment(g, P, segment_size);
    for (int r = 0; r < P; r++) {
        struct comm_options o = extra ? *extra : (struct comm_options){0};
        o.rank = r;
        o.n_ranks = P;
        o.memfd = g->memfd;
        o.map = g->head;
        o.segment_size = segment_size;
        if (!o.hop_timeout_ms) o.hop_timeout_ms = 60000;
        blobs[r].rank = r;
        g->comm[r] = comm_listen(&o, blobs[r].data, &blobs[r].size, &e);
        CHECK_MSG(g->comm[r], "%s", e.text);
    }
    for (int r = 0; r < P; r++)
        CHECK_MSG(comm_connect(g->comm[r], blobs, P, &e) == 0, "%s", e.text);
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

/* No rank failed. */
static inline void ranks_check(const struct ranks *g)
{
    for (int r = 0; r < g->P; r++)
        CHECK_MSG(g->err[r].code == ERR_NONE, "P %d rank %d: %s", g->P, r, g->err[r].text);
}

static inline void ranks_close(struct ranks *g)
{
    for (int r = 0; r < g->P; r++) comm_close(g->comm[r]);
    munmap(g->head, (size_t)g->map_size);
    close(g->memfd);
}

#endif
