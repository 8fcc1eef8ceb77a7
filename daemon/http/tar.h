/* tar.h: makes a tar file (POSIX.1-2001, pax) as a function of its list of files. It computes the
 * bytes at any position without writing the tar file anywhere. The same list always gives the same
 * bytes, because the names are sorted and no times or owners are written. The size is therefore
 * known in advance, and for a range only the bytes of the range are computed. The functions are
 * pure. tested: tests/daemon/test_seqd_tar.c */
#ifndef SEQD_DAEMON_HTTP_TAR_H
#define SEQD_DAEMON_HTTP_TAR_H

#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK     512
#define TAR_HEAD_MAX  (3 * TAR_BLOCK) /* a file's header, preceded by its pax header */
#define TAR_NAME_SIZE 256

struct tar_file {
    const char *name;
    int64_t size;
};

struct tar {         /* borrows all members */
    const char *top; /* directory of all files; the lengths of `top` and a name together are less
                      * than TAR_NAME_SIZE */
    const struct tar_file *file;
    int n;
};

/* A contiguous part of the tar file. Its bytes come from a file, or this module makes them. */
struct tar_run {
    int file;       /* index of the file; -1 if the run is bytes[0, size) */
    int64_t offset; /* in that file */
    int64_t size;   /* at least 1 */
    unsigned char bytes[TAR_HEAD_MAX];
};

int64_t tar_size(const struct tar *t);
/* Finds the run that begins at position `at`, where 0 <= at < tar_size. */
void tar_at(const struct tar *t, int64_t at, struct tar_run *out);

#endif
