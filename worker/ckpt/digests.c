/* digests.c: sorts the files by size, largest first, and hashes them with a pool of threads. */
#include "worker/ckpt/digests.h"

#include <stdlib.h>
#include "kernels/cpu/pool.h"

enum {
    LARGE = 1 << 18, /* a further thread is started only for a file of at least this many bytes */
    THREADS = 3      /* most threads: a checkpoint has three large files (weights, average,
                      * moments) */
};

struct digests {
    const struct manifest *m;
    const char *dir;
    int order[MANIFEST_FILES]; /* indices of the files, with the largest file first, so that no
                                * thread begins a large file at the end */
    struct err *e;             /* owned; one for each file, with code ERR_NONE if the file is
                                * right */
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
    /* if it is NULL, files are hashed one after the other */
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
