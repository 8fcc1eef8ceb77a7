/* tfevents.h: writes an event file of TensorBoard, one record at a time. The records can have
 * only scalars. A file is a sequence of records of TFRecord
 * (tensorflow/core/lib/io/record_writer.h):
 *
 *   uint64  length of data           little-endian, as all numbers here
 *   uint32  masked CRC-32C of these 8 bytes
 *   byte    data[length]
 *   uint32  masked CRC-32C of data
 *   masked = (crc >> 15 | crc << 17) + 0xa282ead8
 *
 * The data of a record is one message Event (tensorflow/core/util/event.proto,
 * tensorflow/core/framework/summary.proto) in the encoding of protocol buffers:
 *
 *   Event       1 wall_time double   2 step int64   3 file_version string   5 summary Summary
 *               7 session_log SessionLog
 *   Summary     1 value Value, repeated
 *   Value       1 tag string   2 simple_value float
 *   SessionLog  1 status enum, START = 1
 *
 * The first record of a file has file_version "brain.Event:2". TensorBoard reads files in the
 * order of their names. When it reads a START with step k, it drops the records of step k and
 * of later steps that it has read before, also from earlier files. When it reads its first
 * START, it drops no records. Records wait in a buffer until tfevents_flush, which opens the
 * file, writes the records, and closes the file. At all other times the file is closed. It
 * always ends with a whole record, unless the process is killed during a write. If a write
 * fails, the incomplete record is removed from the file. No memory is allocated. tested:
 * tests/engine/test_tfevents.c; with TensorBoard itself: tests/golden/check_tensorboard.py */
#ifndef SEQD_RANK_TFEVENTS_H
#define SEQD_RANK_TFEVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"

#define TFEVENTS_TAG     32 /* largest size of a tag in bytes, including its NUL */
#define TFEVENTS_SCALARS 16 /* largest number of scalars in one record */
/* Size of the buffer in bytes; it has room for at least 250 records of steps. */
#define TFEVENTS_BUF 65536

struct tfevents {
    char path[FILE_PATH_SIZE];
    int64_t size; /* bytes of the file */
    size_t n;     /* bytes in the buffer that are not written yet */
    unsigned char buf[TFEVENTS_BUF];
};

struct tfevents_scalar {
    const char *tag;
    double value; /* value of the scalar; it is written as a float */
};

/* Puts the first record of a file into the buffer. The first flush creates the file. wall_s is the
 * time in seconds since 1970. */
void tfevents_init(struct tfevents *f, const char *path, double wall_s);
/* Both functions add a record. If the buffer has no room, they return false and add no record. */
bool tfevents_start(struct tfevents *f, double wall_s, int64_t step);
bool tfevents_scalars(struct tfevents *f, double wall_s, int64_t step,
                      const struct tfevents_scalar *s, int n);
/* Writes the waiting records. If the parameter `sync` is true, also syncs the file, so that
 * all written records survive a power failure. Fails as err_errno does, and the error names
 * the file. The error is ERR_NOT_FOUND if the file or its directory is gone. If the write
 * fails, the records remain in the buffer, and the next call may succeed. If only the sync or
 * the close fails, the buffer is empty afterwards. */
int tfevents_flush(struct tfevents *f, bool sync, struct err *e);

#endif
