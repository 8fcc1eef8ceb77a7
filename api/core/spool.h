/* spool.h: the append-only file of the reports of an attempt's ranks. seqgang writes it (or seqw,
 * for a gang that died), and seqw reads it at its own pace, so that no report is lost if seqgang
 * or seqw dies.
 *
 * The file is a sequence of records, numbered from 1:
 *   uint32 size   bytes that follow the crc, at most SPOOL_RECORD_SIZE
 *   uint32 crc    CRC-32 (IEEE) of those bytes
 *   struct rank_msg, then its payload
 * If the last record is incomplete or fails its CRC, it does not count, because its writer is
 * still writing it or has died. */
#ifndef SEQD_CORE_SPOOL_H
#define SEQD_CORE_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

#define SPOOL_RECORD_SIZE (128 * 1024)
/* If the size of files is limited, the last SPOOL_RESERVE bytes below the limit are reserved for
 * RANK_FAIL and RANK_EXIT. They are enough for 64 ranks with 0.7 KiB each. */
#define SPOOL_RESERVE (64 * 1024)

struct spool {
    int fd;
    int64_t offset; /* for the writer: the end of the file; for the reader: the offset of the
                     * record to read next */
    int64_t seq;    /* for the writer: number of records in the file; for the reader: number of
                     * records read so far */
};

/* Opens the spool for its only writer. Creates the file, or continues it after its last whole
 * record. `last`, which may be NULL, gets the head of the last whole record, or zeroes if there is
 * no record. */
int spool_open(struct spool *s, const char *path, struct rank_msg *last, struct err *e);
/* Appends a record, and sets head.size and head.abi. If durable, calls fdatasync before it
 * returns. Fails with ERR_TOO_LARGE near the limit on the size of files, and otherwise as
 * err_write does. RANK_FAIL and RANK_EXIT may use the last SPOOL_RESERVE bytes as well. */
int spool_add(struct spool *s, struct rank_msg head, const void *payload, size_t size, bool durable,
              struct err *e);
/* Opens the spool for a reader, which begins at the first record. A missing file gives
 * ERR_NOT_FOUND. */
int spool_open_read(struct spool *s, const char *path, struct err *e);
/* Reads the next record (rank_msg and payload) into buf, which has SPOOL_RECORD_SIZE bytes.
 * Returns the record's size, 0 if there is no further record now, or -1 if reading failed. */
int64_t spool_next(struct spool *s, void *buf, struct err *e);
void spool_close(struct spool *s); /* also closes a zeroed spool */

#endif
