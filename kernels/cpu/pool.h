/* pool.h: threads of the host that share the work of an operation. Opened devices, the preparation
 * of data and the digests of checkpoints use pools.
 *
 * A pool has n_threads - 1 threads, which exist as long as the pool; the caller is worker 0. Idle
 * workers spin for about 20 us, because the next operation usually follows immediately, and then
 * sleep on a futex. A worker that wakes up after the other workers have finished a run does no
 * task of that run. So on a crowded machine no thread waits for a thread that the kernel has not
 * scheduled. */
#ifndef SEQD_CPU_POOL_H
#define SEQD_CPU_POOL_H

#include <stdint.h>
#include "api/core/err.h"

#define POOL_MAX_THREADS 1024

struct pool;

typedef void (*pool_fn)(void *arg, int64_t task, int worker);

/* Opens a pool of n_threads, in [1, POOL_MAX_THREADS]. *n_tasks counts the tasks that the caller
 * has done, even during a run, so that another thread can watch it. n_tasks is borrowed; NULL
 * means that tasks are not counted. Fails with ERR_IO if threads cannot be started. */
struct pool *pool_open(int n_threads, int64_t *n_tasks, struct err *e);
void pool_close(struct pool *p); /* NULL allowed */

/* Runs fn(arg, t, worker) once for each t in [0, n_tasks). Tasks are started in ascending order.
 * Returns when all tasks are done. Not reentrant; only one caller at a time. If p is NULL, the
 * caller runs all tasks, as worker 0. */
void pool_run(struct pool *p, pool_fn fn, void *arg, int64_t n_tasks);

#endif
