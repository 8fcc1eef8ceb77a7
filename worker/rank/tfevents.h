/* tfevents.h: an event file of TensorBoard, written a record at a time, for scalars alone.
 *
 * A file is records of TFRecord (tensorflow/core/lib/io/record_writer.h):
 *
 *   uint64  length of data           little-endian, as all numbers here
 *   uint32  masked CRC-32C of these 8 bytes
 *   byte    data[length]
 *   uint32  masked CRC-32C of data
 *   masked = (crc >> 15 | crc << 17) + 0xa282ead8
 *
 * data is one message Event (tensorflow/core/util/event.proto, tensorflow/core/framework/
 * summary.proto) in the encoding of protocol buffers:
 *
 *   Event       1 wall_time double   2 step int64   3 file_version string   5 summary Summary
 *               7 session_log SessionLog
 *   Summary     1 value Value, repeated
 *   Value       1 tag string   2 simple_value float
 *   SessionLog  1 status enum, START = 1
 *
 * The first record of a file has file_version "brain.Event:2". TensorBoard reads files in the
 * order of their names. At a START with a step, except the first START of all, it drops the
 * records of that step and of later ones that it has read before, in earlier files too.
 *
 * Records wait in a buffer until tfevents_flush, which opens, writes and closes: the file is open
 * at no other time, and ends with a whole record at every time, unless a kill breaks a write. If a
 * disk breaks a write, the broken rest is cut off. No memory is allocated.
 * tested: tests/engine/test_tfevents.c; TensorBoard itself: tests/golden/check_tensorboard.py */
#ifndef SEQD_RANK_TFEVENTS_H
#define SEQD_RANK_TFEVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"

#define TFEVENTS_TAG     32    /* bytes of a tag, with its NUL */
#define TFEVENTS_SCALARS 16    /* scalars of one record, at most */
#define TFEVENTS_BUF     65536 /* 250 records of a training's steps, at least */

struct tfevents {
    char path[FILE_PATH_SIZE];
    int64_t size; /* bytes of the file */
    size_t n;     /* bytes in the buffer, to be written */
    unsigned char buf[TFEVENTS_BUF];
};

struct tfevents_scalar {
    const char *tag;
    double value; /* written as a float */
};

/* Puts the first record of a file into the buffer; the first flush makes the file. wall_s: seconds
 * since 1970. */
void tfevents_init(struct tfevents *f, const char *path, double wall_s);
/* Add a record. False: there is no room in the buffer, and no byte of it was taken. */
bool tfevents_start(struct tfevents *f, double wall_s, int64_t step);
bool tfevents_scalars(struct tfevents *f, double wall_s, int64_t step,
                      const struct tfevents_scalar *s, int n);
/* Writes the waiting records. sync: all written records then survive a power cut. fails: as
 * err_errno (ERR_NOT_FOUND for a file or directory that is gone), naming the file. The records
 * still wait, and the next call may succeed, unless the sync or the close alone failed. */
int tfevents_flush(struct tfevents *f, bool sync, struct err *e);

#endif
