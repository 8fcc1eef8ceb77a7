/* beneath.h: opens a file for reading without leaving a directory.
 *
 * A file that a job names must lie beneath a configured root, and so must the target of a symbolic
 * link. Links within the root are followed, because the Hub's caches are full of them. A path that
 * leads out of the root, by a link or by "..", fails with EXDEV. A magic link of /proc fails with
 * EXDEV or ELOOP. openat2 enforces this in the kernel. In four cases the path is resolved and then
 * walked without following any link: the kernel has no openat2 (before Linux 5.6), a sandbox
 * refuses openat2, openat2 meets an absolute link, or it loses a race with a rename.
 *
 * Directories of seqd and its agents, such as a state directory or the uploads, may lie beneath a
 * root. A directory that contains a file named BENEATH_MARK is private, and so is everything in
 * it. It is private on every path that leads to it. In a directory that all users may write to,
 * only a mark that belongs to the directory's owner counts. A confined process opens a private
 * file only if the file lies in a directory that was granted to the process. tested:
 * tests/engine/test_beneath.c */
#ifndef SEQD_CORE_BENEATH_H
#define SEQD_CORE_BENEATH_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

#define BENEATH_ROOTS  24 /* largest number of roots and granted directories together */
#define BENEATH_GRANTS 32
#define BENEATH_MARK   ".seqd-private"

/* Tells whether a relative name, appended to a directory, cannot lead out of that directory. The
 * parts of such a name are separated by single slashes. No part is empty, "." or "..", has a
 * control byte or is longer than NAME_MAX bytes. Only the text is checked, and no link is
 * followed. */
bool beneath_name_good(const char *name);

/* Returns the part of `path` that follows root and its slash, or "." if `path` is the root itself.
 * Returns NULL if `path` does not begin with root. Only the text is compared, and no link is
 * followed. */
const char *beneath_rest(const char *root, const char *path);
/* Returns the length of root without the slashes at its end. The length of "/" is 0. */
size_t beneath_root_len(const char *root);
/* Opens `path` for reading. The given flags are added to O_RDONLY, O_CLOEXEC, O_NONBLOCK and
 * O_NOCTTY. `root` is absolute, and `path` begins with it. Returns -1 with errno after a failure.
 * errno is EXDEV or ELOOP if `path` leads outside the root, and EPERM if this process is confined
 * and `path` leads to a private file. */
int beneath_open(const char *root, const char *path, int flags);
/* Opens path without openat2, as beneath_open does if openat2 is missing or fails. Resolves the
 * path, and then walks the resolved path part by part. Only tests call it directly. */
int beneath_open_old(const char *root, const char *path, int flags);

/* Opens the parent directory of name beneath the open directory root, and makes missing
 * directories with `mode`. The name must satisfy beneath_name_good. *leaf gets the last part of
 * the name. No symbolic link is followed. Fails with ERR_INVALID if a part of the name is a link
 * or is not a directory, and otherwise as err_errno does. */
int beneath_make_parent(int root, const char *name, unsigned mode, const char **leaf,
                        struct err *e);

/* Confines this process. The roots are canonical paths. From now on, if a path begins with a root,
 * beneath_read opens only files beneath that root. If a path begins with several roots, the
 * shortest root counts. No private file is opened unless it was granted. Call this function once,
 * before there are threads. */
void beneath_confine(const char *const *roots, int n_roots);
/* Tells whether dir, which is absolute and has no links, is itself marked as private. */
bool beneath_marked(const char *dir);
/* Makes dir, which exists, private. */
int beneath_mark(const char *dir, struct err *e);
/* Lets this process read the files in `dir` from now on, even if `dir` is private. A directory in
 * `dir` that has a mark of its own remains private. Call this function before there are threads
 * that read. At most BENEATH_GRANTS directories are kept. */
void beneath_grant(const char *dir);
void beneath_grant_none(void); /* forgets all grants; for tests */
/* Tells whether `path`, with its links followed, is private and not granted. If `path` does not
 * exist, its longest existing parent is checked instead. A path in a granted directory is granted
 * even if it does not exist. Returns true if `path` cannot be checked. */
bool beneath_private(const char *path);
/* Does the same as beneath_private, but returns false if `path` cannot be checked. */
bool beneath_known_private(const char *path);
/* Tells whether relative paths of a job are looked up in this root. Returns false for a private
 * root, even if it was granted, because a job names files in private directories by absolute
 * paths. */
bool beneath_begins(const char *root);
/* Opens `path` for reading by the rules of beneath_confine. If a path begins with no root, or if
 * the process is not confined, the path is opened as by open(2). Fails with ERR_INVALID if `path`
 * leads outside its root or to a private file, and otherwise as err_errno does. */
int beneath_read(const char *path, struct err *e);
/* Fills in the error about a path that is private. Returns -1. */
int beneath_refuse(const char *path, struct err *e);

#endif
