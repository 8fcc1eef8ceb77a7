/* digest.c: hashes batches of files with a pool of threads. If files cannot be hashed, the
 * error is that of the failed file that comes first in the list. */
#include "worker/data/digest.h"

#include <stdatomic.h>
#include <stdlib.h>
#include "kernels/cpu/pool.h"
#include "worker/data/format.h"

enum { BATCH = 256 }; /* Number of files that one run of the pool hashes. */

struct digest_run {
    const struct digest_in *in;
    struct meta_file *out;
    int first;             /* first file of the batch */
    _Atomic int bad;       /* lowest index of a file that has failed; files with higher indices are
                            * skipped */
    _Atomic int64_t bytes; /* bytes that other threads have read and that were not reported yet */
    struct err e[BATCH];   /* e[i].code is ERR_NONE if file i has not failed */
};

static int digest_one(struct digest_run *d, int i, struct progress *progress, struct err *e)
{
    const struct source_file *f = &d->in->list->file[i];
    const struct format *row = format_row(d->in->format[f->source]);
    const char *root = d->in->roots[f->root];
    struct intake into = {.progress = progress};
    sha256_init(&into.sha);
    if ((row->hash ? row->hash : reader_hash)(root, f->path, &into, e) < 0) return -1;
    d->out[i].size = (int64_t)into.sha.n_bytes;
    sha256_hex(&into.sha, d->out[i].sha256);
    return 0;
}

static void fail(struct digest_run *d, int i)
{
    int bad = atomic_load(&d->bad);
    while (i < bad && !atomic_compare_exchange_weak(&d->bad, &bad, i)) continue;
}

/* Reports the bytes that other threads have read. Only the thread of the caller, which is
 * worker 0, may call this function. */
static void report(struct digest_run *d)
{
    const int64_t bytes = atomic_exchange(&d->bytes, 0);
    if (bytes) progress_add(d->in->progress, (double)bytes);
}

static void digest_task(void *arg, int64_t task, int worker)
{
    struct digest_run *d = arg;
    const int i = d->first + (int)task;
    d->e[task] = (struct err){0};
    if (i > atomic_load(&d->bad)) return;
    if (digest_one(d, i, worker ? NULL : d->in->progress, &d->e[task]) < 0) {
        fail(d, i);
    } else if (worker) {
        atomic_fetch_add(&d->bytes, d->out[i].size);
    } else {
        report(d);
    }
}

static int run_all(struct digest_run *d, int *bad, struct err *e)
{
    const int n = d->in->list->n;
    for (d->first = 0; d->first < n; d->first += BATCH) {
        pool_run(d->in->pool, digest_task, d, n - d->first < BATCH ? n - d->first : BATCH);
        report(d);
        *bad = atomic_load(&d->bad);
        if (*bad == n) continue;
        if (e) *e = d->e[*bad - d->first];
        return -1;
    }
    return 0;
}

int digest_files(const struct digest_in *in, struct meta_file *out, int *bad, struct err *e)
{
    struct digest_run *d = calloc(1, sizeof *d);
    *bad = 0;
    if (!d) return err_set(e, ERR_IO, "out of memory");
    d->in = in;
    d->out = out;
    atomic_init(&d->bad, in->list->n);
    const int rc = run_all(d, bad, e);
    free(d);
    return rc;
}
