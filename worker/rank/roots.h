/* roots.h: checks that the paths that a job names (model.path, checkpoint.resume, context.load)
 * lie beneath a configured root after every symbolic link is followed. Files in them are opened by
 * beneath_read, because seqrank is confined to its roots. source.h opens files of data. */
#ifndef SEQD_RANK_ROOTS_H
#define SEQD_RANK_ROOTS_H

#include "api/core/err.h"
#include "api/core/rank.h"

/* Writes the canonical path of the directory `path` to out. path is absolute, or relative to the
 * first root that has it. field is the path of the job spec for errors. Fails with ERR_INVALID if
 * the path lies beneath no root, is not a directory, or is private. Also fails with ERR_NOT_FOUND,
 * or with ERR_TOO_LARGE if the path exceeds RANK_PATH_SIZE. */
int roots_directory(const char *path, const char *const *roots, int n_roots, const char *field,
                    char out[RANK_PATH_SIZE], struct err *e);
/* Does the same as roots_directory for model.path, which may be a directory or a regular file (a
 * GGUF file). */
int roots_model(const char *path, const char *const *roots, int n_roots, char out[RANK_PATH_SIZE],
                struct err *e);
/* Does the same for a regular file. */
int roots_file(const char *path, const char *const *roots, int n_roots, const char *field,
               char out[RANK_PATH_SIZE], struct err *e);
/* Returns a descriptor of a directory in which the job may make files. The directory lies beneath
 * one of the node's writable roots, and so do all links on the way to it. path is absolute, or
 * relative to the first root. Fails with ERR_NOT_FOUND if no root lies above path or the directory
 * does not exist. Fails with ERR_INVALID if a link leads outside, if path is not a directory, or
 * if it is private. Otherwise fails as err_errno does. */
int roots_writable(const char *path, const char *const *roots, int n_roots, const char *field,
                   struct err *e);

#endif
