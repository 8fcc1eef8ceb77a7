/* logs.h: the logs of ranks. Each rank of each attempt has one append-only file,
 * <state>/jobs/<job>/logs/e<epoch>-rank<rank>.log, which is written as MSG_LOG arrives.
 *
 * The node sends bytes together with their offset in the file. Bytes that the file already has are
 * dropped, and bytes that would leave a gap are refused. An offset is acknowledged when the bytes
 * before it are on disk. A repeated acknowledgement asks for the bytes after it once more, because
 * they were not kept. In this way every byte is kept exactly once through any number of
 * reconnects. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_STORE_LOGS_H
#define SEQD_DAEMON_STORE_LOGS_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct logs;

struct logs *logs_open(const char *state_dir, struct err *e); /* makes <state>/jobs */
void logs_close(struct logs *l);                              /* syncs all logs; l may be NULL */

/* Returns the number of bytes in a log's file, or 0 if there is no such file. */
int64_t logs_size(const struct logs *l, int64_t job, int64_t epoch, int rank);
/* Takes bytes [offset, offset + size). Returns the log's new size, or -1. The size also counts
 * bytes that are missing in the file because a limit on file sizes (RLIMIT_FSIZE) cut them off.
 * Fails with ERR_PEER for a gap, or as err_errno does. */
int64_t logs_append(struct logs *l, int64_t job, int64_t epoch, int rank, int64_t offset,
                    const void *data, size_t size, struct err *e);
/* Makes all bytes that were taken so far durable. Calls back for each log that it has synced, with
 * the size that logs_append returned. A file whose sync fails loses the bytes that were not
 * durable, so that they are sent again. In that case the other files are still synced, and the
 * result is -1. */
typedef void logs_durable(void *arg, int64_t job, int64_t epoch, int rank, int64_t size);
int logs_sync(struct logs *l, logs_durable *call, void *arg, struct err *e);

/* Reads at most size bytes from offset. Returns their number, which is 0 at or past the end.
 * Returns -1 with ERR_NOT_FOUND if the log cannot be opened, or with ERR_IO if it cannot be
 * read. */
int64_t logs_read(struct logs *l, int64_t job, int64_t epoch, int rank, int64_t offset, void *out,
                  size_t size, struct err *e);
/* Closes the job's files, which are going to be removed, and writes the path of the job's
 * directory. */
void logs_forget(struct logs *l, int64_t job, char *path, size_t size);
void logs_path(const struct logs *l, int64_t job, char *path, size_t size); /* job's directory */
void logs_forget_log(struct logs *l, int64_t job, int64_t epoch, int rank, char *path, size_t size);
/* Returns the newest epoch for which this rank has a log, or 0 if there is none. */
int64_t logs_last_epoch(struct logs *l, int64_t job, int rank);
/* Returns the oldest epoch after `epoch` for which this rank has a log, or 0 if there is none. */
int64_t logs_next_epoch(struct logs *l, int64_t job, int rank, int64_t epoch);
/* Syncs every log of one attempt, and calls back with its size on disk, for the acknowledgements
 * of a new session. Leaves out a log whose sync fails. */
void logs_each(struct logs *l, int64_t job, int64_t epoch, logs_durable *call, void *arg);

#endif
