/* container.h: finds out the kind of a file from its suffix and its first bytes. A text file is
 * read as it is. A container that only other programs read is refused; the error names the command
 * that converts the container. tested: tests/core/test_container.c */
#ifndef SEQD_CORE_CONTAINER_H
#define SEQD_CORE_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

/* Largest number of bytes at the beginning of a file that are needed to find its kind. */
#define CONTAINER_HEAD 264

struct container {
    const char *name;    /* "a Parquet file" */
    const char *suffix;  /* suffixes, such as ".gz .tgz"; "" means that only its first bytes
                          * identify it */
    const char *magic;   /* its first bytes; NULL means that only its suffix identifies it */
    size_t size, offset; /* bytes of magic, and the offset of magic in the file */
    const char *convert; /* the command line that converts it, with FILE in place of the file's
                          * name, and PUSH in place of the line of seqctl that sends it */
};

/* Returns the suffix of a path's last component, with its dot, or "" if there is none. Digits
 * after the last dot are part of the name ("part.0001"), not a suffix. */
const char *container_suffix(const char *path);
/* container_by_suffix and container_by_bytes find the container that has the suffix or the first
 * bytes of a file. Both return NULL if no container has them. */
const struct container *container_by_suffix(const char *path);
const struct container *container_by_bytes(const void *head, size_t size);
/* Tells whether a file of this name is read as text if the job gives no format. Returns false for
 * a pattern that does not fix the suffix, because such a pattern may match any file. */
bool container_is_text(const char *path);
/* Sets the error that names the kind of container and the command that converts the file.
 * `instead` is a second remedy, which is appended to the sentence; "" appends nothing. Returns -1
 * with ERR_INVALID. */
int container_refuse(const struct container *c, const char *field, const char *file,
                     const char *instead, struct err *e);

#endif
