/* tar.h: a tar file (POSIX.1-2001, pax) as a function of its list of files. It gives the bytes at
 * any position, without writing the file anywhere. The same list always gives the same bytes:
 * names in order, no times, no owners. So the size is known in advance, and a range is as cheap as
 * the whole. Pure.
 * tested: tests/daemon/test_seqd_tar.c */
#ifndef SEQD_DAEMON_HTTP_TAR_H
#define SEQD_DAEMON_HTTP_TAR_H

#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK     512
#define TAR_HEAD_MAX  (3 * TAR_BLOCK) /* a file's header, with its pax header before it */
#define TAR_NAME_SIZE 256

struct tar_file {
    const char *name;
    int64_t size;
};

struct tar {         /* borrows all members */
    const char *top; /* directory of all files; shorter than TAR_NAME_SIZE with any name */
    const struct tar_file *file;
    int n;
};

/* A run of bytes from a file, or made here. */
struct tar_run {
    int file;       /* index, or -1: bytes[0, size) */
    int64_t offset; /* in that file */
    int64_t size;   /* at least 1 */
    unsigned char bytes[TAR_HEAD_MAX];
};

int64_t tar_size(const struct tar *t);
/* Finds the run that begins at position at, 0 <= at < tar_size. */
void tar_at(const struct tar *t, int64_t at, struct tar_run *out);

#endif
