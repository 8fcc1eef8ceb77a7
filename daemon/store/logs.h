/* logs.h: the logs of ranks. Each rank of each attempt has one append-only file,
 * <state>/jobs/<job>/logs/e<epoch>-rank<rank>.log, which is written as MSG_LOG arrives.
 *
 * The node sends bytes together with their offset in the file. Bytes that the file already has are
 * dropped. Bytes that would leave a gap are refused. An offset is acknowledged when the bytes
 * before it are on disk. If bytes were lost, the last acknowledged offset is acknowledged again,
 * which asks the node to send the bytes after it again. In this way every byte is kept exactly
 * once, whatever the number of reconnects. All functions are called on the loop thread. */
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
/* Appends the bytes [offset, offset + size) of the log. Returns the log's new size, or -1 after a
 * failure. If a limit on file sizes (RLIMIT_FSIZE) prevents bytes from being written, the size
 * counts these bytes, too. Fails with ERR_PEER if there would be a gap, and otherwise as err_errno
 * does. */
int64_t logs_append(struct logs *l, int64_t job, int64_t epoch, int rank, int64_t offset,
                    const void *data, size_t size, struct err *e);
/* Makes all appended bytes durable. Calls `call` for each log that it has synced, with the size
 * that logs_append returned. If the sync of a file fails, the bytes that were not durable are
 * removed from the file, so that the node sends them again. The remaining files are synced
 * nevertheless, and the function returns -1. */
typedef void logs_durable(void *arg, int64_t job, int64_t epoch, int rank, int64_t size);
int logs_sync(struct logs *l, logs_durable *call, void *arg, struct err *e);

/* Reads at most size bytes from offset. Returns the number of bytes, which is 0 at or past the
 * end. Fails with ERR_NOT_FOUND if the log cannot be opened, and with ERR_IO if it cannot be read;
 * then returns -1. */
int64_t logs_read(struct logs *l, int64_t job, int64_t epoch, int rank, int64_t offset, void *out,
                  size_t size, struct err *e);
/* Closes the job's files, because they are about to be removed, and writes the path of the job's
 * directory to path. */
void logs_forget(struct logs *l, int64_t job, char *path, size_t size);
void logs_path(const struct logs *l, int64_t job, char *path, size_t size); /* job's directory */
void logs_forget_log(struct logs *l, int64_t job, int64_t epoch, int rank, char *path, size_t size);
/* Returns the newest epoch for which this rank has a log, or 0 if there is none. */
int64_t logs_last_epoch(struct logs *l, int64_t job, int rank);
/* Returns the oldest epoch after `epoch` for which this rank has a log, or 0 if there is none. */
int64_t logs_next_epoch(struct logs *l, int64_t job, int rank, int64_t epoch);
/* Syncs every log of one attempt, and calls `call` with its size on disk. It is for the
 * acknowledgements in a new session. A log whose sync fails is left out. */
void logs_each(struct logs *l, int64_t job, int64_t epoch, logs_durable *call, void *arg);

#endif
