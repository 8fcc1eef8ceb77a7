/* source.h: finds the files that a data source names, and opens them without leaving the roots.
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
    char *path; /* owned; full path, to open and for errors */
    int root;   /* index of the root that holds it */
    int source; /* caller's number of the source whose path matched the file */
};

struct source_list {
    struct source_file *file; /* owned */
    int n;
};

/* Appends the files that `path` names, sorted by name. A pattern matches regular files only. A
 * path without wildcards is appended if it exists; source_open later refuses it if it is not a
 * regular file. field: the job-spec path of the source for errors ("data.train.0.path"). fails:
 * ERR_NOT_FOUND when no file matches; ERR_INVALID when the path lies beneath no root, is
 * malformed, or names a private file; ERR_TOO_LARGE; ERR_IO for no memory. */
int source_expand(struct source_list *list, const char *path, const char *const *roots, int n_roots,
                  int source, const char *field, struct err *e);
void source_list_fini(struct source_list *list);

/* Opens the regular file `path`, which lies beneath root, and returns its fd. */
int source_open(const char *root, const char *path, struct err *e);

#endif
