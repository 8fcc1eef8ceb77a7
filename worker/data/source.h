/* source.h: finds the files that a data source names, and opens them without leaving the roots.
 * A path is absolute and beneath a configured root, or relative to the first root in which it
 * matches a file. Its components may be shell patterns (* ? [..]; a pattern matches a leading dot
 * only if it begins with a dot). Files are opened beneath the root (api/core/beneath.h). tested:
 * tests/engine/test_data.c */
#ifndef SEQD_DATA_SOURCE_H
#define SEQD_DATA_SOURCE_H

#include "api/core/err.h"
#include "api/core/file.h"

#define SOURCE_FILES 65536 /* most files of one job, in all sources together */

struct source_file {
    char *path; /* owned: full path, used for opening and in errors */
    int root;   /* index of the root in which it lies */
    int source; /* the number that the caller gave for the source whose path matched the file */
};

struct source_list {
    struct source_file *file; /* owned */
    int n;
};

/* Appends the files that `path` names, sorted by name. A pattern matches only regular files. A
 * path without wildcards is appended if it exists; if it is not a regular file, source_open
 * refuses it later. field is the path in the job spec of the source, for errors
 * ("data.train.0.path"). Fails with ERR_NOT_FOUND if no file matches; with ERR_INVALID if the path
 * lies beneath no root, is malformed, or names a private file; with ERR_TOO_LARGE; or with ERR_IO
 * if memory is out. */
int source_expand(struct source_list *list, const char *path, const char *const *roots, int n_roots,
                  int source, const char *field, struct err *e);
void source_list_fini(struct source_list *list);

/* Opens the regular file `path`, which must lie beneath root, and returns its descriptor. */
int source_open(const char *root, const char *path, struct err *e);

#endif
