/* pool.c: wakes workers by a futex and hands out tasks by an atomic counter. One word, the gate,
 * decides which workers take part in a run. */
#include "kernels/cpu/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"

/* The gate is one word, which has a run's number, an open bit and the number of workers that have
 * joined the run. A worker joins by a compare-and-swap, which fails once the caller has closed the
 * gate. So the fields of a run can be overwritten as soon as all workers that joined the run have
 * left it. */
#define GATE_JOINED  0x7ffu
#define GATE_OPEN    0x800u
#define GATE_RUN_ONE 0x1000u

#define SPIN_NS 20000

struct worker {
    struct pool *pool;
    int index;
    pthread_t thread;
};

struct pool {
    _Alignas(64) _Atomic uint32_t gate;
    _Atomic int n_sleeping;
    _Atomic bool stop;
    _Alignas(64) _Atomic int64_t next_task;
    _Alignas(64) _Atomic uint32_t n_done; /* number of workers that have left the open run */
    _Atomic int caller_sleeps;
    _Alignas(64) pool_fn fn;
    void *arg;
    int64_t n_tasks;
    int n_threads;
    bool running;
    /* count of the tasks that the caller has done; NULL if they are not counted */
    int64_t *watched;
    struct worker *workers; /* n_threads - 1 */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, POOL_MAX_THREADS, NULL, NULL, 0);
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Spins until *word differs from seen, but for at most SPIN_NS. Returns true if *word differs. */
static bool spin(_Atomic uint32_t *word, uint32_t seen)
{
    int64_t end_ns = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != seen) return true;
            relax();
        }
    } while (now_ns() < end_ns);
    return false;
}

/* Runs a task, and counts it if the caller runs it. Only the caller's tasks are counted, so the
 * counter has only one writer. This is enough to show progress, because the caller takes part in
 * every run. */
static void do_task(struct pool *p, int64_t task, int index)
{
    p->fn(p->arg, task, index);
    if (index == 0 && p->watched) __atomic_fetch_add(p->watched, 1, __ATOMIC_RELAXED);
}

static void take_tasks(struct pool *p, int index)
{
    for (;;) {
        int64_t t = atomic_fetch_add(&p->next_task, 1);
        if (t >= p->n_tasks) return;
        do_task(p, t, index);
    }
}

/* Waits for a run that this worker has not joined yet, and joins it. Returns false if the pool is
 * closing. */
static bool join_run(struct pool *p, uint32_t *last_run)
{
    for (;;) {
        uint32_t g = atomic_load(&p->gate);
        if (atomic_load(&p->stop)) return false;
        if ((g & GATE_OPEN) && g / GATE_RUN_ONE != *last_run) {
            if (!atomic_compare_exchange_weak(&p->gate, &g, g + 1)) continue;
            *last_run = g / GATE_RUN_ONE;
            return true;
        }
        if (spin(&p->gate, g)) continue;
        atomic_fetch_add(&p->n_sleeping, 1);
        if (!atomic_load(&p->stop)) futex_wait(&p->gate, g);
        atomic_fetch_sub(&p->n_sleeping, 1);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    uint32_t last_run = 0;
    while (join_run(p, &last_run)) {
        take_tasks(p, w->index);
        atomic_fetch_add(&p->n_done, 1);
        if (atomic_load(&p->caller_sleeps)) futex_wake(&p->n_done);
    }
    return NULL;
}

static void wait_done(struct pool *p, uint32_t n_joined)
{
    uint32_t n;
    while ((n = atomic_load(&p->n_done)) != n_joined) {
        if (spin(&p->n_done, n)) continue;
        atomic_store(&p->caller_sleeps, 1);
        futex_wait(&p->n_done, n);
        atomic_store(&p->caller_sleeps, 0);
    }
}

void pool_run(struct pool *p, pool_fn fn, void *arg, int64_t n_tasks)
{
    if (!p) {
        for (int64_t t = 0; t < n_tasks; t++) fn(arg, t, 0);
        return;
    }
    assert(!p->running);
    p->fn = fn;
    p->arg = arg;
    if (p->n_threads == 1 || n_tasks <= 1) {
        for (int64_t t = 0; t < n_tasks; t++) do_task(p, t, 0);
        return;
    }
    p->running = true;
    p->n_tasks = n_tasks;
    atomic_store(&p->next_task, 0);
    atomic_store(&p->n_done, 0);
    uint32_t run = atomic_load(&p->gate) / GATE_RUN_ONE + 1;
    atomic_store(&p->gate, run * GATE_RUN_ONE | GATE_OPEN);
    if (atomic_load(&p->n_sleeping)) futex_wake(&p->gate);
    take_tasks(p, 0);
    uint32_t g = atomic_fetch_and(&p->gate, ~GATE_OPEN);
    wait_done(p, g & GATE_JOINED);
    p->running = false;
}

/* Starts a worker with all signals blocked, because signals are for the thread that opened the
 * device. */
static int start(struct worker *w)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGUSR2); /* by which each thread enters the sandbox (landlock_enter_all) */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

struct pool *pool_open(int n_threads, int64_t *n_tasks, struct err *e)
{
    assert(n_threads >= 1 && n_threads <= POOL_MAX_THREADS);
    struct pool *p = aligned_alloc(64, sizeof *p);
    struct worker *workers = calloc((size_t)n_threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        err_set(e, ERR_IO, "out of memory for a pool of %d threads", n_threads);
        return NULL;
    }
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->workers = workers;
    p->watched = n_tasks;
    for (int i = 1; i < n_threads; i++) {
        workers[i - 1] = (struct worker){.pool = p, .index = i};
        int rc = start(&workers[i - 1]);
        if (!rc) continue;
        p->n_threads = i;
        pool_close(p);
        err_set(e, ERR_IO, "thread %d of %d could not be started: %s", i, n_threads, strerror(rc));
        return NULL;
    }
    return p;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->gate, GATE_RUN_ONE); /* a worker that is about to sleep sees the change */
    futex_wake(&p->gate);
    for (int i = 1; i < p->n_threads; i++) pthread_join(p->workers[i - 1].thread, NULL);
    free(p->workers);
    free(p);
}
