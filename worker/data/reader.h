/* reader.h: reads a source file once from front to back, and hashes the bytes while they are
 * read. */
#ifndef SEQD_DATA_READER_H
#define SEQD_DATA_READER_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"
#include "api/core/progress.h"
#include "api/core/sha256.h"

#define READER_CHUNK ((size_t)1 << 18)

/* The hash of all bytes that are read, and the progress of the reading. The bytes may be those
 * of one file, or those of several files that belong together. */
struct intake {
    struct sha256 sha;
    struct progress *progress; /* borrowed, counts bytes; NULL if progress is not reported */
};

struct reader {
    int fd;              /* owned; -1 if it is closed */
    const char *path;    /* borrowed */
    struct intake *into; /* borrowed */
    char *buf;           /* owned */
    size_t n, room;      /* number of bytes in the buffer, and size of the buffer */
    size_t taken;        /* bytes in buf that reader_take has returned already */
    int64_t at;          /* offset in the file of the beginning of buf */
    bool end;            /* whether the file ends after the bytes in buf */
};

/* Opens a file. path must be beneath root (source_open). */
int reader_open(struct reader *r, const char *root, const char *path, struct intake *into,
                struct err *e);
void reader_close(struct reader *r);         /* may be called after a failed open, and may be
                                              * called twice */
int64_t reader_size(const struct reader *r); /* returns the size of the whole file in bytes, or
                                              * -1 if fstat failed */
/* Reads more bytes and appends them to the buffer, in one call of read(2). The buffer must
 * have room for at least one byte. Sets `end` if the file ends. */
int reader_fill(struct reader *r, struct err *e);
/* Doubles the size of the buffer, up to the parameter `most` in bytes. Fails with
 * ERR_TOO_LARGE, or with ERR_IO if memory is out. */
int reader_grow(struct reader *r, size_t most, struct err *e);
/* Removes the first n bytes from the buffer. */
void reader_drop(struct reader *r, size_t n);
/* Reads a file into buf [room] and hashes the bytes. *n gets the number of bytes that were
 * read. If *n is equal to `room`, the file may have more bytes. */
int reader_whole(const char *root, const char *path, struct intake *into, char *buf, size_t room,
                 size_t *n, struct err *e);
/* Checks that the bytes that were read have the expected digest, which is a parameter. If the
 * digests differ, fails with ERR_CONFLICT. */
int reader_unchanged(struct intake *into, const char *path, const char *sha256, struct err *e);
/* Hashes the whole file. */
int reader_hash(const char *root, const char *path, struct intake *into, struct err *e);
/* Reads exactly n bytes into out. If the file ends before n bytes were read, fails with
 * ERR_CORRUPT, and the text of the error contains the parameter `what`. Also fails with
 * ERR_IO. */
int reader_take(struct reader *r, void *out, size_t n, const char *what, struct err *e);

#endif
