/* beneath.h: opening a file for reading without leaving a directory.
 *
 * What a job names lies beneath a configured root, and so must whatever a symbolic link in its
 * place leads to: links within the root are followed (the Hub's caches are full of them), one that
 * leaves it fails with EXDEV, and so does "..", a magic link of /proc, or a rename at the wrong
 * moment. openat2 sees to that in the kernel; where there is none (before 5.6, or a sandbox that
 * refuses it) the path is resolved and then walked without following any link.
 *
 * What seqd and its agents keep, a state directory or the uploads, lies beneath a root easily. A
 * directory that has a file BENEATH_MARK is private with all that is in it, however it is reached:
 * a confined process opens nothing there but what was granted to it.
 * tested: tests/engine/test_beneath.c */
#ifndef SEQD_CORE_BENEATH_H
#define SEQD_CORE_BENEATH_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

#define BENEATH_ROOTS  24 /* roots, and what is granted beside them */
#define BENEATH_GRANTS 32
#define BENEATH_MARK   ".seqd-private"

/* A relative name of a file that stays beneath where it is put: parts between single slashes, none
 * of them empty, "." or "..", no control byte. Words alone: no link is looked at. */
bool beneath_name_good(const char *name);

/* The part of path after root and its slash, "." for the root itself; NULL when path does not begin
 * with root. Words alone: no link is looked at. */
const char *beneath_rest(const char *root, const char *path);
/* Without slashes at its end: 0 for "/". */
size_t beneath_root_len(const char *root);
/* A descriptor for reading; flags are added to O_RDONLY, O_CLOEXEC and O_NONBLOCK. root is
 * absolute, path begins with it. -1 with errno; EXDEV or ELOOP: the way leads outside; EPERM: to
 * something private. */
int beneath_open(const char *root, const char *path, int flags);
/* The walk that takes its place where openat2 is missing or refused. */
int beneath_open_old(const char *root, const char *path, int flags);

/* The parent directory of name (beneath_name_good) beneath the directory root, opened, made with
 * `mode` where it is missing; *leaf: the last part of name. No symbolic link is followed.
 * fails: ERR_INVALID when a part is a link or no directory, as err_errno. */
int beneath_make_parent(int root, const char *name, unsigned mode, const char **leaf,
                        struct err *e);

/* From now on, in this whole process, beneath_read opens what begins with one of these directories
 * (canonical paths) beneath it and nowhere else. Like umask: once, before there are threads. */
void beneath_confine(const char *const *roots, int n_roots);
/* Makes dir, which exists, private. */
int beneath_mark(const char *dir, struct err *e);
/* From now on this process may read what is in dir, private or not; one in dir that is private of
 * itself stays so. Called before there are threads that read. At most BENEATH_GRANTS are kept. */
void beneath_grant(const char *dir);
void beneath_grant_none(void); /* forgets them: tests */
/* Whether path is private and not granted, after its links are followed; of one that does not
 * exist, the part that does. */
bool beneath_private(const char *path);
/* The same, but false where that cannot be told. */
bool beneath_known_private(const char *path);
/* Opens path for reading as the process is confined; for what begins with no root, or without
 * beneath_confine, as open does. fails: ERR_INVALID when it leads outside or to something private,
 * as err_errno. */
int beneath_read(const char *path, struct err *e);
/* The sentence about a path that is private. Returns -1. */
int beneath_refuse(const char *path, struct err *e);

#endif
