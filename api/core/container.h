/* container.h: finds the kind of a file by its suffix and its first bytes. Text is read as it is.
 * Containers of other programs are refused with the command that converts them.
 * tested: tests/core/test_container.c */
#ifndef SEQD_CORE_CONTAINER_H
#define SEQD_CORE_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

#define CONTAINER_HEAD 264 /* first bytes of a file that show its kind, at most this many */

struct container {
    const char *name;    /* "a Parquet file" */
    const char *suffix;  /* ".gz .tgz"; "": found by its first bytes alone */
    const char *magic;   /* its first bytes; NULL: found by its suffix alone */
    size_t size, offset; /* bytes of magic, and its offset in the file */
    const char *convert; /* the command line; FILE is the file */
};

/* Returns the suffix of a path's last component, with its dot; "": it has none. Digits after the
 * last dot are part of a name ("part.0001"). */
const char *container_suffix(const char *path);
/* Find a container by a file's suffix or first bytes. NULL: none is known. */
const struct container *container_by_suffix(const char *path);
const struct container *container_by_bytes(const void *head, size_t size);
/* Tells whether a file of that name is read as text if the job gives no format. Returns false for
 * a pattern that leaves the suffix open: it may match any file. */
bool container_is_text(const char *path);
/* Says which container the file is and how to convert it. instead: another fix, appended to the
 * sentence; "": none. Returns -1 with ERR_INVALID. */
int container_refuse(const struct container *c, const char *field, const char *file,
                     const char *instead, struct err *e);

#endif
