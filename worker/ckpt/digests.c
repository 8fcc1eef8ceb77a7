/* digests.c: sorts the files by size, and hashes them with a pool of threads. The largest file
 * comes first. */
#include "worker/ckpt/digests.h"

#include <stdlib.h>
#include "kernels/cpu/pool.h"

enum {
    LARGE = 1 << 18, /* smallest size in bytes of a file for which a further thread is started */
    /* largest number of threads; a checkpoint has only three large files (weights, average,
     * moments) */
    THREADS = 3
};

struct digests {
    const struct manifest *m;
    const char *dir;
    /* Indices of the files, sorted by size. The largest file comes first, so that no thread
     * begins a large file when the other threads have no more work. */
    int order[MANIFEST_FILES];
    /* owned: one error for each file; its code is ERR_NONE if the file is not damaged */
    struct err *e;
};

static void check_one(void *arg, int64_t task, int worker)
{
    struct digests *d = arg;
    const int i = d->order[task];
    (void)worker;
    if (manifest_check_file(d->m, i, d->dir, MANIFEST_DIGESTS, &d->e[i]) == 0)
        d->e[i].code = ERR_NONE;
}

static void sort(struct digests *d)
{
    for (int i = 0; i < d->m->n_files; i++) {
        int at = i;
        for (; at > 0 && d->m->file[d->order[at - 1]].size < d->m->file[i].size; at--)
            d->order[at] = d->order[at - 1];
        d->order[at] = i;
    }
}

static int n_threads(const struct manifest *m)
{
    int n = 0;
    for (int i = 0; i < m->n_files; i++) n += m->file[i].size >= LARGE;
    return n < THREADS ? n : THREADS;
}

static int check_all(struct digests *d, struct err *e)
{
    const int n = n_threads(d->m);
    /* without a pool, files are hashed one after the other */
    struct pool *pool = n > 1 ? pool_open(n, NULL, NULL) : NULL;
    sort(d);
    pool_run(pool, check_one, d, d->m->n_files);
    pool_close(pool);
    for (int i = 0; i < d->m->n_files; i++) {
        if (d->e[i].code == ERR_NONE) continue;
        if (e) *e = d->e[i];
        return -1;
    }
    return 0;
}

int digests_check(struct manifest *m, const char *dir, struct err *e)
{
    struct digests d = {.m = m, .dir = dir};
    if (manifest_read(m, dir, e) < 0) return -1;
    d.e = calloc((size_t)m->n_files + 1, sizeof *d.e);
    const int rc = d.e ? check_all(&d, e) : err_set(e, ERR_IO, "out of memory");
    free(d.e);
    return rc;
}
