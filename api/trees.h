/* trees.h: measures and removes directories with everything in them. It does this on a thread of
 * its own, because unlinking a checkpoint of gigabytes takes seconds, and the loop must not wait
 * so long.
 *
 * A directory that is to be removed is first renamed to "<path>.gone". So a directory under its
 * own name is whole or absent, even after a crash. A request removes both "<path>" and
 * "<path>.gone", so that the same request after a crash completes the removal. Symbolic links are
 * removed, never followed.
 *
 * The functions are called on the loop thread. tested: tests/api/test_trees.c */
#ifndef SEQD_API_TREES_H
#define SEQD_API_TREES_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/loop.h"

/* Largest number of entries of one listing. A listing of this length takes 4 MiB of memory until
 * its callback returns. */
#define TREES_LIST 1024
/* Largest number of directories in one request. Each directory has a path of 4 KiB. The request
 * syncs their common parent once. */
#define TREES_BATCH 64

struct trees;

struct tree {
    int64_t id;   /* chosen by the caller */
    int64_t size; /* bytes on disk when the directory was measured, or just before it was removed;
                   * 0 if the directory does not exist */
    int64_t disk_size, disk_free; /* total and free bytes of the file system of a measured
                                   * directory; 0 if not known */
    int64_t used_s;               /* for an entry of a listing: time of the entry's own last
                                   * change, in seconds since 1970, UTC */
    int32_t code;                 /* enum err_code: why the directory was not removed, synced or
                                   * measured */
    char path[FILE_PATH_SIZE];
};

/* Called with the answer when the request is done. e is the first failure, which may be that of
 * the parent's sync. If e is NULL, nothing failed, and removals are durable. For a listing, e is
 * set only if the directory could not be opened; a failure at one entry is in the `code` of that
 * entry. */
typedef void trees_done(void *arg, const struct tree *tree, int n, const struct err *e);

struct trees *trees_create(struct loop *l);
/* Stops the request under way at the next entry of its directory, and drops all requests that have
 * no answer yet. Accepts NULL. */
void trees_destroy(struct trees *t);

/* Remove or measure directories. `tree` is an array of n elements, 1 to TREES_BATCH, which is
 * copied. Its paths are siblings in one directory. Answers are given in the order of the
 * requests. */
void trees_remove(struct trees *t, const struct tree *tree, int n, trees_done *done, void *arg);
void trees_measure(struct trees *t, const struct tree *tree, int n, trees_done *done, void *arg);
/* Lists the entries of the directory of `tree`, each with its size. Lists at most TREES_LIST
 * entries. */
void trees_list(struct trees *t, const struct tree *tree, trees_done *done, void *arg);

#endif
