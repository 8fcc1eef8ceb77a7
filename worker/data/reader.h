/* reader.h: reads a source file once from front to back, and hashes it as it is read. */
#ifndef SEQD_DATA_READER_H
#define SEQD_DATA_READER_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"
#include "api/core/progress.h"
#include "api/core/sha256.h"

#define READER_CHUNK ((size_t)1 << 18)

/* The hash and the progress of all bytes that are read, from one file or from several that belong
 * together. */
struct intake {
    struct sha256 sha;
    struct progress *progress; /* borrowed, in bytes; NULL: not reported */
};

struct reader {
    int fd;              /* owned, -1: closed */
    const char *path;    /* borrowed */
    struct intake *into; /* borrowed */
    char *buf;           /* owned */
    size_t n, room;      /* bytes held, bytes allocated */
    size_t taken;        /* bytes held that reader_take has handed out */
    int64_t at;          /* offset of buf in the file */
    bool end;            /* the file ends after the bytes held */
};

/* Opens a file. path lies beneath root (source_open). */
int reader_open(struct reader *r, const char *root, const char *path, struct intake *into,
                struct err *e);
void reader_close(struct reader *r);         /* safe after a failed open, and twice */
int64_t reader_size(const struct reader *r); /* bytes of the whole file; -1: fstat failed */
/* Reads more bytes after the held ones, in one call of read(2); there must be room. Sets `end` if
 * the file ends. */
int reader_fill(struct reader *r, struct err *e);
/* Doubles the room, up to `most` bytes. fails: ERR_TOO_LARGE; ERR_IO for no memory. */
int reader_grow(struct reader *r, size_t most, struct err *e);
/* Forgets the first n bytes held. */
void reader_drop(struct reader *r, size_t n);
/* Reads a file whose size is known into buf[room] and hashes it; *n: the bytes read. If they fill
 * the room, the file may have more. */
int reader_whole(const char *root, const char *path, struct intake *into, char *buf, size_t room,
                 size_t *n, struct err *e);
/* Checks that the bytes that were read have this digest. fails: ERR_CONFLICT. */
int reader_unchanged(struct intake *into, const char *path, const char *sha256, struct err *e);
/* Hashes the whole file. */
int reader_hash(const char *root, const char *path, struct intake *into, struct err *e);
/* Reads exactly n bytes into out. fails: ERR_CORRUPT when the file ends before; its text names
 * `what`; ERR_IO. */
int reader_take(struct reader *r, void *out, size_t n, const char *what, struct err *e);

#endif
