/* spool.h: the append-only file of the reports of an attempt's ranks: seqgang writes it (seqw for
 * a gang that died), and seqw reads it at its own pace, so that no report is lost when either
 * dies.
 *
 * The file is records one after the other, numbered from 1:
 *   uint32 size   bytes that follow the crc, at most SPOOL_RECORD_SIZE
 *   uint32 crc    CRC-32 (IEEE) of those bytes
 *   struct rank_msg, then its payload
 * A last record that is cut short or fails its CRC does not count: it is being written, or its
 * writer died. */
#ifndef SEQD_CORE_SPOOL_H
#define SEQD_CORE_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

#define SPOOL_RECORD_SIZE (128 * 1024)
/* Bytes below a limit on the size of files that only failures and ends may use: 64 ranks of 0.7
 * KiB. */
#define SPOOL_RESERVE (64 * 1024)

struct spool {
    int fd;
    int64_t offset; /* writer: the end; reader: the record to read next */
    int64_t seq;    /* writer: records in the file; reader: records read so far */
};

/* Opens the spool for its one writer: creates the file, or continues it after its last whole
 * record. last (may be NULL) gets the head of that record, all zero when there is none. */
int spool_open(struct spool *s, const char *path, struct rank_msg *last, struct err *e);
/* Appends a record, and sets head.size and head.abi. durable: fdatasync before it returns. fails:
 * ERR_TOO_LARGE near the limit on the size of files; else as err_write. RANK_FAIL and RANK_EXIT
 * may use the last SPOOL_RESERVE bytes as well. */
int spool_add(struct spool *s, struct rank_msg head, const void *payload, size_t size, bool durable,
              struct err *e);
/* Opens the spool for a reader, from the start. A missing file is ERR_NOT_FOUND. */
int spool_open_read(struct spool *s, const char *path, struct err *e);
/* Reads the next record (rank_msg and payload) into buf of SPOOL_RECORD_SIZE bytes. Returns the
 * record's size, or 0 when there is no further record now. -1: reading failed. */
int64_t spool_next(struct spool *s, void *buf, struct err *e);
void spool_close(struct spool *s); /* also closes a zeroed spool */

#endif
