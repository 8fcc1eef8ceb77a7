/* source.h: finds the files that a data source names, and opens them without leaving the roots. An
 * absolute path must be beneath a configured root. A relative path is looked up in each root, and
 * the first root with a matching file is used. The components of a path may be shell patterns (* ?
 * [..]). A pattern matches a leading dot only if the pattern begins with a dot. Files are opened
 * beneath the root (api/core/beneath.h). tested: tests/engine/test_data.c */
#ifndef SEQD_DATA_SOURCE_H
#define SEQD_DATA_SOURCE_H

#include "api/core/err.h"
#include "api/core/file.h"

#define SOURCE_FILES 65536 /* Largest number of files of one job, counted over all sources. */

struct source_file {
    char *path; /* owned: full path, used for opening and in errors */
    int root;   /* index of the root that has the file */
    int source; /* the number by which the caller identifies the source whose path matched the
                 * file */
};

struct source_list {
    struct source_file *file; /* owned */
    int n;
};

/* Appends the files that `path` names, sorted by name. A pattern matches only regular files. A
 * path without wildcards is appended if it exists. If it is not a regular file, source_open
 * refuses it later. `field` is the name of the source's path in the job spec
 * ("data.train.0.path"), which errors contain. Fails with ERR_NOT_FOUND if no file matches.
 * Fails with ERR_INVALID if the path is not beneath a root, is malformed, or names a private
 * file. Also fails with ERR_TOO_LARGE, or with ERR_IO if memory is out. */
int source_expand(struct source_list *list, const char *path, const char *const *roots, int n_roots,
                  int source, const char *field, struct err *e);
void source_list_fini(struct source_list *list);

/* Opens the regular file `path`, which must be beneath root, and returns its descriptor. */
int source_open(const char *root, const char *path, struct err *e);

#endif
