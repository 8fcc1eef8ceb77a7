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

/* The hash and the progress of all bytes that are read, from one file or from several files that
 * belong together. */
struct intake {
    struct sha256 sha;
    struct progress *progress; /* borrowed, counts bytes; NULL if progress is not reported */
};

struct reader {
    int fd;              /* owned; -1 if it is closed */
    const char *path;    /* borrowed */
    struct intake *into; /* borrowed */
    char *buf;           /* owned */
    size_t n, room;      /* bytes held, bytes allocated */
    size_t taken;        /* bytes in buf that reader_take has returned already */
    int64_t at;          /* offset in the file of the beginning of buf */
    bool end;            /* whether the file ends after the bytes in buf */
};

/* Opens a file. path lies beneath root (source_open). */
int reader_open(struct reader *r, const char *root, const char *path, struct intake *into,
                struct err *e);
void reader_close(struct reader *r);         /* may be called after a failed open, and twice */
int64_t reader_size(const struct reader *r); /* returns the bytes of the whole file, or -1 if fstat
                                              * failed */
/* Reads more bytes after those in the buffer, in one call of read(2). There must be room. Sets
 * `end` if the file ends. */
int reader_fill(struct reader *r, struct err *e);
/* Doubles the room, up to `most` bytes. Fails with ERR_TOO_LARGE, or with ERR_IO if memory is
 * out. */
int reader_grow(struct reader *r, size_t most, struct err *e);
/* Forgets the first n bytes held. */
void reader_drop(struct reader *r, size_t n);
/* Reads a file whose size is known into buf [room] and hashes it. *n gets the number of bytes that
 * were read. If this number is room, the file may have more bytes. */
int reader_whole(const char *root, const char *path, struct intake *into, char *buf, size_t room,
                 size_t *n, struct err *e);
/* Checks that the bytes that were read have this digest. Fails with ERR_CONFLICT. */
int reader_unchanged(struct intake *into, const char *path, const char *sha256, struct err *e);
/* Hashes the whole file. */
int reader_hash(const char *root, const char *path, struct intake *into, struct err *e);
/* Reads exactly n bytes into out. Fails with ERR_CORRUPT if the file ends before them, and the
 * error's text names `what`; or with ERR_IO. */
int reader_take(struct reader *r, void *out, size_t n, const char *what, struct err *e);

#endif
