/* trees.h: measures and removes directories with everything in them, on a thread of its own: to
 * unlink a checkpoint of gigabytes takes seconds, too long for a loop.
 *
 * A directory to remove is first renamed to "<path>.gone": under its own name a directory is whole
 * or absent, even after a crash. Both names are removed, so that another request after a crash
 * ends the removal. Symbolic links are removed, never followed.
 *
 * Loop thread. tested: tests/api/test_trees.c */
#ifndef SEQD_API_TREES_H
#define SEQD_API_TREES_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/loop.h"

#define TREES_LIST  1024 /* entries of one listing, 4 MiB while it is handed over */
#define TREES_BATCH 64   /* directories in one request: paths of 4 KiB, one sync of their parent */

struct trees;

struct tree {
    int64_t id;   /* chosen by the caller */
    int64_t size; /* bytes on disk, before the removal or when measured; 0: not there */
    int64_t disk_size, disk_free; /* measured: bytes of its file system; 0: not known */
    int64_t used_s;               /* in a listing: when the entry itself was last changed, UTC */
    int32_t code;                 /* enum err_code: the reason that it was not removed, synced or
                                   * measured */
    char path[FILE_PATH_SIZE];
};

/* Takes the answer when the request is done. e: the first failure, or that of the parent's sync;
 * NULL: there was none, and removals are on disk. For a listing e tells that the directory could
 * not be opened. A failure at one entry is in its `code` alone. */
typedef void trees_done(void *arg, const struct tree *tree, int n, const struct err *e);

struct trees *trees_create(struct loop *l);
/* Stops the request under way at its next entry, and drops all requests without an answer. NULL
 * allowed. */
void trees_destroy(struct trees *t);

/* Remove or measure directories. tree: copied; n from 1 to TREES_BATCH, siblings of one directory.
 * Answers come in the order of the requests. */
void trees_remove(struct trees *t, const struct tree *tree, int n, trees_done *done, void *arg);
void trees_measure(struct trees *t, const struct tree *tree, int n, trees_done *done, void *arg);
/* Lists the entries of the directory of `tree`, each with its size, TREES_LIST entries at most. */
void trees_list(struct trees *t, const struct tree *tree, trees_done *done, void *arg);

#endif
