/* source.h: the files that a data source names, and opening them without leaving the roots.
 *
 * A path is absolute and beneath a configured root, or relative to the first root where it matches
 * something. Its components may be shell patterns (* ? [..]; a leading dot only by name). Files are
 * opened beneath the root (api/core/beneath.h). tested: tests/engine/test_data.c */
#ifndef SEQD_DATA_SOURCE_H
#define SEQD_DATA_SOURCE_H

#include "api/core/err.h"
#include "api/core/file.h"

#define SOURCE_FILES 65536 /* files of one job, all sources together */

struct source_file {
    char *path; /* owned; full path, for opening and for sentences */
    int root;   /* index of the root that holds it */
    int source; /* caller's number of the source whose path matched the file */
};

struct source_list {
    struct source_file *file; /* owned */
    int n;
};

/* Appends the regular files that `path` names, sorted by name. field: the job-spec path of the
 * source for errors ("data.train.0.path"). fails: ERR_NOT_FOUND when nothing matches, ERR_INVALID
 * when the path lies beneath no root, ERR_TOO_LARGE. */
int source_expand(struct source_list *list, const char *path, const char *const *roots, int n_roots,
                  int source, const char *field, struct err *e);
void source_list_fini(struct source_list *list);

/* Opens the regular file `path`, which lies beneath root, and returns its fd. */
int source_open(const char *root, const char *path, struct err *e);

#endif
