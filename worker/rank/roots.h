/* roots.h: checks that the paths that a job names (model.path, checkpoint.resume,
 * context.load) are beneath a configured root. Every symbolic link is followed before the
 * check. Files in these directories are opened by beneath_read, because seqrank is confined to
 * its roots. Files of data are opened by source.h. */
#ifndef SEQD_RANK_ROOTS_H
#define SEQD_RANK_ROOTS_H

#include "api/core/err.h"
#include "api/core/rank.h"

/* Writes the canonical path of the directory `path` to out. path is absolute, or relative to
 * the first root that has it. The parameter `field` is the name of the job's field that has
 * the path. It is used in error messages. Fails with ERR_INVALID if the path is not beneath a
 * root, is not a directory, or is private. Fails with ERR_NOT_FOUND if the directory does not
 * exist, and with ERR_TOO_LARGE if the path exceeds RANK_PATH_SIZE. */
int roots_directory(const char *path, const char *const *roots, int n_roots, const char *field,
                    char out[RANK_PATH_SIZE], struct err *e);
/* Does the same as roots_directory for model.path, which may be a directory or a regular file (a
 * GGUF file). */
int roots_model(const char *path, const char *const *roots, int n_roots, char out[RANK_PATH_SIZE],
                struct err *e);
/* Does the same as roots_directory for a regular file. */
int roots_file(const char *path, const char *const *roots, int n_roots, const char *field,
               char out[RANK_PATH_SIZE], struct err *e);
/* Returns a descriptor of a directory in which the job may make files. path is absolute, or
 * relative to the first root. The directory and all links on the way to it must be beneath one
 * of the node's writable roots. Fails with ERR_NOT_FOUND if path is not beneath a root, or if
 * the directory does not exist. Fails with ERR_INVALID if a link leads outside the root, if
 * path is not a directory, or if it is private. Otherwise fails as err_errno does. */
int roots_writable(const char *path, const char *const *roots, int n_roots, const char *field,
                   struct err *e);

#endif
