/* roots.h: the paths that a job names (model.path, checkpoint.resume, context.load) lie beneath a
 * configured root, after every symbolic link is followed. Files in them are opened by
 * beneath_read, since seqrank is confined to its roots. source.h opens files of data. */
#ifndef SEQD_RANK_ROOTS_H
#define SEQD_RANK_ROOTS_H

#include "api/core/err.h"
#include "api/core/rank.h"

/* Writes the canonical path of directory `path` (absolute, or relative to the first root that has
 * it) to out. field: the job-spec path for errors. fails: ERR_INVALID (beneath no root, not a
 * directory, private), ERR_NOT_FOUND, ERR_TOO_LARGE for RANK_PATH_SIZE. */
int roots_directory(const char *path, const char *const *roots, int n_roots, const char *field,
                    char out[RANK_PATH_SIZE], struct err *e);
/* Does the same for model.path: a directory, or a regular file, which is a GGUF file. */
int roots_model(const char *path, const char *const *roots, int n_roots, char out[RANK_PATH_SIZE],
                struct err *e);
/* Does the same for a regular file. */
int roots_file(const char *path, const char *const *roots, int n_roots, const char *field,
               char out[RANK_PATH_SIZE], struct err *e);
/* Returns a descriptor of a directory in which the job may make files: it lies beneath one of the
 * node's writable roots, as do all links on the way to it. path: absolute, or relative to the
 * first root. fails: ERR_NOT_FOUND (no root above it, or no such directory), ERR_INVALID (a link
 * leads outside, not a directory, private); else as err_errno. */
int roots_writable(const char *path, const char *const *roots, int n_roots, const char *field,
                   struct err *e);

#endif
