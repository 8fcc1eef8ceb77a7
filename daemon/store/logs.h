/* logs.h: the logs of ranks: one append-only file per attempt and rank,
 * <state>/jobs/<job>/logs/e<epoch>-rank<rank>.log, written as MSG_LOG arrives.
 *
 * Offset protocol: the node sends bytes at an offset. Bytes that are already there are dropped,
 * and a gap is refused. The offset is acknowledged when its bytes are on disk. An acknowledgement
 * that is repeated asks for the bytes after it once more: they were not kept. Every byte is thus
 * kept exactly once through any number of reconnects. Loop thread only. */
#ifndef SEQD_DAEMON_STORE_LOGS_H
#define SEQD_DAEMON_STORE_LOGS_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct logs;

struct logs *logs_open(const char *state_dir, struct err *e); /* makes <state>/jobs */
void logs_close(struct logs *l);                              /* syncs; NULL allowed */

/* Returns the bytes in a log's file; 0 when there is none. */
int64_t logs_size(const struct logs *l, int64_t job, int64_t epoch, int rank);
/* Takes bytes [offset, offset + size). Returns the log's new size, or -1. The size counts bytes
 * that are not in the file as well, since a limit on files (RLIMIT_FSIZE) cut them off. fails:
 * ERR_PEER for a gap; as err_errno. */
int64_t logs_append(struct logs *l, int64_t job, int64_t epoch, int rank, int64_t offset,
                    const void *data, size_t size, struct err *e);
/* Makes everything taken so far durable, and tells the size, as logs_append returns it, of each
 * log that it synced. A file whose sync fails loses the bytes that were not durable, so that they
 * come again; -1 then, and the others are synced. */
typedef void logs_durable(void *arg, int64_t job, int64_t epoch, int rank, int64_t size);
int logs_sync(struct logs *l, logs_durable *call, void *arg, struct err *e);

/* Reads at most size bytes from offset. Returns how many; 0 at or past the end; -1: with
 * ERR_NOT_FOUND when the log cannot be opened, with ERR_IO when it cannot be read. */
int64_t logs_read(struct logs *l, int64_t job, int64_t epoch, int rank, int64_t offset, void *out,
                  size_t size, struct err *e);
/* Closes the job's files, which are about to be removed, and writes the path of the job's
 * directory. */
void logs_forget(struct logs *l, int64_t job, char *path, size_t size);
void logs_path(const struct logs *l, int64_t job, char *path, size_t size); /* job's directory */
void logs_forget_log(struct logs *l, int64_t job, int64_t epoch, int rank, char *path, size_t size);
/* Returns the newest epoch of which this rank has a log; 0 when there is none. */
int64_t logs_last_epoch(struct logs *l, int64_t job, int rank);
/* Returns the oldest epoch after `epoch` of which this rank has a log; 0 when there is none. */
int64_t logs_next_epoch(struct logs *l, int64_t job, int rank, int64_t epoch);
/* Syncs every log of one attempt, and tells its size on disk, for the acknowledgements of a new
 * session. Leaves out a log whose sync fails. */
void logs_each(struct logs *l, int64_t job, int64_t epoch, logs_durable *call, void *arg);

#endif
