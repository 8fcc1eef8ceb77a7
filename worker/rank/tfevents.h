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
 * The first record of a file has file_version "brain.Event:2". Of a START with a step TensorBoard
 * drops what it has read before of that step and later ones, in files before this one as well, in
 * the order of their names; but for the first START of all.
 *
 * Every record is one write at the end of the whole ones: what a kill leaves is whole, and of a
 * disk that fails in the middle of one nothing of it stays. Nothing is allocated.
 * tested: tests/engine/test_tfevents.c */
#ifndef SEQD_RANK_TFEVENTS_H
#define SEQD_RANK_TFEVENTS_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"

#define TFEVENTS_TAG     32 /* bytes of a tag, with its NUL */
#define TFEVENTS_SCALARS 16 /* of one record, at most */

struct tfevents {
    int fd;       /* -1: closed */
    int64_t size; /* of the whole records */
    char path[FILE_PATH_SIZE];
};

struct tfevents_scalar {
    const char *tag;
    double value; /* as a float in the file */
};

/* Makes path, which must not be there, with its version and a START of step. wall_s: seconds since
 * 1970. fails: ERR_IO naming the file, which is not there then. */
int tfevents_open(struct tfevents *f, const char *path, double wall_s, int64_t step, struct err *e);
/* fails: ERR_IO naming the file, which ends with its last whole record; a later call may succeed.
 */
int tfevents_start(struct tfevents *f, double wall_s, int64_t step, struct err *e);
int tfevents_scalars(struct tfevents *f, double wall_s, int64_t step,
                     const struct tfevents_scalar *s, int n, struct err *e);
int tfevents_sync(struct tfevents *f, struct err *e); /* survives a power cut */
void tfevents_close(struct tfevents *f);              /* a closed one is fine */

#endif
