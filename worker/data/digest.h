/* digest.h: computes the digests of the files that a job's data sources name, several files at the
 * same time.
 * tested: tests/engine/test_prepare_threads.c */
#ifndef SEQD_DATA_DIGEST_H
#define SEQD_DATA_DIGEST_H

#include "api/core/progress.h"
#include "worker/data/meta.h"
#include "worker/data/source.h"

struct pool;

struct digest_in {
    const struct source_list *list;
    const char *const *roots;
    const int *format; /* enum data_format of each source */
    struct pool *pool; /* NULL if the caller works alone */
    struct progress *progress;
};

/* Fills size and sha256 of out [list->n], in the order of the list. If files cannot be hashed,
 * fails with the error of the failed file that comes first in the list, and sets *bad to the
 * index of that file. */
int digest_files(const struct digest_in *in, struct meta_file *out, int *bad, struct err *e);

#endif
