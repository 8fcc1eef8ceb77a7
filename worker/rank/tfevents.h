/* tfevents.h: writes an event file of TensorBoard, one record at a time, for scalars only.
 * A file is a sequence of records of TFRecord (tensorflow/core/lib/io/record_writer.h):
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
 * order of their names. When it reads a START with a step, other than the very first START, it
 * drops records that it has read before, also from earlier files. These are the records whose step
 * is that step or a later step. Records wait in a buffer until tfevents_flush, which opens, writes
 * and closes the file. The file is open at no other time, and it ends with a whole record at any
 * time, unless a kill interrupts a write. If the disk interrupts a write, the incomplete part is
 * cut off. No memory is allocated. tested: tests/engine/test_tfevents.c; with TensorBoard itself:
 * tests/golden/check_tensorboard.py */
#ifndef SEQD_RANK_TFEVENTS_H
#define SEQD_RANK_TFEVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"

#define TFEVENTS_TAG     32    /* bytes of a tag, including its NUL */
#define TFEVENTS_SCALARS 16    /* most scalars of one record */
#define TFEVENTS_BUF     65536 /* bytes of the buffer: at least 250 records of steps */

struct tfevents {
    char path[FILE_PATH_SIZE];
    int64_t size; /* bytes of the file */
    size_t n;     /* bytes in the buffer that are not written yet */
    unsigned char buf[TFEVENTS_BUF];
};

struct tfevents_scalar {
    const char *tag;
    double value; /* written as a float */
};

/* Puts the first record of a file into the buffer. The first flush makes the file. wall_s counts
 * seconds since 1970. */
void tfevents_init(struct tfevents *f, const char *path, double wall_s);
/* Add a record. Return false, and add nothing, if the buffer has no room. */
bool tfevents_start(struct tfevents *f, double wall_s, int64_t step);
bool tfevents_scalars(struct tfevents *f, double wall_s, int64_t step,
                      const struct tfevents_scalar *s, int n);
/* Writes the waiting records. If sync is true, all written records survive a power failure
 * afterwards. Fails as err_errno does, naming the file (ERR_NOT_FOUND if the file or directory is
 * gone). If the write fails, the records remain in the buffer, and the next call may succeed. If
 * only the sync or the close fails, the buffer is empty afterwards. */
int tfevents_flush(struct tfevents *f, bool sync, struct err *e);

#endif
