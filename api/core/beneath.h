/* beneath.h: opening a file for reading without leaving a directory.
 *
 * A file that a job names must lie beneath a configured root, and so must the target of a symbolic
 * link. Links within the root are followed (the Hub's caches are full of them). A path that leads
 * out of the root, by a link or by "..", fails with EXDEV. A magic link of /proc fails with EXDEV
 * or ELOOP. openat2 enforces this in the kernel. If openat2 is missing (before Linux 5.6), is
 * refused by a sandbox, meets an absolute link or loses a race with a rename, the path is resolved
 * and then walked without following any link.
 *
 * Directories of seqd and its agents, such as a state directory or the uploads, may lie beneath a
 * root. A directory that has a file BENEATH_MARK is private with everything in it, by whatever
 * path it is reached. In a directory that all users may write to, only a mark of the directory's
 * owner counts. A confined process opens only those private files that lie in directories that
 * were granted to it. tested: tests/engine/test_beneath.c */
#ifndef SEQD_CORE_BENEATH_H
#define SEQD_CORE_BENEATH_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

#define BENEATH_ROOTS  24 /* roots, with the directories granted beside them */
#define BENEATH_GRANTS 32
#define BENEATH_MARK   ".seqd-private"

/* Tells whether a relative name stays beneath the directory in which it is put: its parts, between
 * single slashes, are not empty, "." or "..", have no control byte and at most NAME_MAX bytes.
 * Only the text is checked: no link is followed. */
bool beneath_name_good(const char *name);

/* Returns the part of path after root and its slash, "." for the root itself; NULL when path does
 * not begin with root. Only the text is compared: no link is followed. */
const char *beneath_rest(const char *root, const char *path);
/* Returns the length of root without the slashes at its end: 0 for "/". */
size_t beneath_root_len(const char *root);
/* Opens path for reading; flags are added to O_RDONLY, O_CLOEXEC, O_NONBLOCK and O_NOCTTY. root is
 * absolute, and path begins with it. Returns -1 with errno after a failure: EXDEV or ELOOP if path
 * leads outside, EPERM if this process is confined and path leads to a private file. */
int beneath_open(const char *root, const char *path, int flags);
/* Opens as beneath_open does if openat2 is missing or fails: resolves the path, then walks it part
 * by part. For tests. */
int beneath_open_old(const char *root, const char *path, int flags);

/* Opens the parent directory of name (beneath_name_good) beneath the open directory root, and
 * makes missing directories with `mode`. *leaf: the last part of name. No symbolic link is
 * followed. fails: ERR_INVALID when a part is a link or is not a directory; else as err_errno. */
int beneath_make_parent(int root, const char *name, unsigned mode, const char **leaf,
                        struct err *e);

/* Confines this process. From now on beneath_read opens a path that begins with one of these roots
 * (canonical paths) only beneath that root, or beneath the shortest of several. It opens no
 * private file that is not granted. Call it once, before there are threads. */
void beneath_confine(const char *const *roots, int n_roots);
/* Makes dir, which exists, private. */
int beneath_mark(const char *dir, struct err *e);
/* Lets this process read the files in dir, private or not, from now on. A directory in dir that has
 * a mark of its own stays private. Call it before there are threads that read. At most
 * BENEATH_GRANTS are kept. */
void beneath_grant(const char *dir);
void beneath_grant_none(void); /* forgets all grants; for tests */
/* Tells whether path is private and not granted, after its links are followed. If path does not
 * exist, its longest existing parent is checked instead. A path in a granted directory is granted
 * even if it does not exist. Returns true if path cannot be checked. */
bool beneath_private(const char *path);
/* Does the same as beneath_private, but returns false if path cannot be checked. */
bool beneath_known_private(const char *path);
/* Tells whether relative paths of a job begin in this root. They begin in none that is private,
 * granted or not: a job names files of an upload or of another job by absolute paths. */
bool beneath_begins(const char *root);
/* Opens path for reading by the rules of beneath_confine. A path that begins with no root, or any
 * path in a process that is not confined, is opened as by open(2). fails: ERR_INVALID when path
 * leads outside or to a private file; else as err_errno. */
int beneath_read(const char *path, struct err *e);
/* Writes the error about a path that is private. Returns -1. */
int beneath_refuse(const char *path, struct err *e);

#endif
