/* trees.h: measures and removes directories with everything in them, on a thread of its own,
 * because unlinking a checkpoint of gigabytes takes seconds, which is too long for a loop.
 *
 * A directory to remove is first renamed to "<path>.gone", so that under its own name a directory
 * is whole or absent, even after a crash. A request removes both names, so that a request that is
 * repeated after a crash completes the removal. Symbolic links are removed, never followed.
 *
 * The functions are called on the loop thread. tested: tests/api/test_trees.c */
#ifndef SEQD_API_TREES_H
#define SEQD_API_TREES_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/loop.h"

/* Most entries of one listing, which takes 4 MiB while it is handed over. */
#define TREES_LIST 1024
/* Most directories in one request: paths of 4 KiB each, and one sync of their parent. */
#define TREES_BATCH 64

struct trees;

struct tree {
    int64_t id;   /* chosen by the caller */
    int64_t size; /* bytes on disk when the directory was measured, or before it was removed; 0 if
                   * the directory does not exist */
    int64_t disk_size, disk_free; /* bytes of the file system of a directory that was measured; 0
                                   * if they are not known */
    int64_t used_s;               /* for an entry of a listing: UTC time at which the entry itself
                                   * was last changed */
    int32_t code;                 /* enum err_code: the reason why it was not removed, synced or
                                   * measured */
    char path[FILE_PATH_SIZE];
};

/* Called with the answer when the request is done. e is the first failure, or the failure of the
 * parent's sync. If e is NULL, nothing failed, and removals are on disk. For a listing, e tells
 * that the directory could not be opened; a failure at one entry is only in the `code` of that
 * entry. */
typedef void trees_done(void *arg, const struct tree *tree, int n, const struct err *e);

struct trees *trees_create(struct loop *l);
/* Stops the request under way at the next entry of its directory, and drops all requests that have
 * no answer yet. Accepts NULL. */
void trees_destroy(struct trees *t);

/* Remove or measure directories. The n (1 to TREES_BATCH) elements of tree are copied; they are
 * siblings in one directory. Answers are given in the order of the requests. */
void trees_remove(struct trees *t, const struct tree *tree, int n, trees_done *done, void *arg);
void trees_measure(struct trees *t, const struct tree *tree, int n, trees_done *done, void *arg);
/* Lists the entries of the directory of `tree`, each with its size. Lists at most TREES_LIST
 * entries. */
void trees_list(struct trees *t, const struct tree *tree, trees_done *done, void *arg);

#endif
