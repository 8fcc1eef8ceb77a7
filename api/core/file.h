/* file.h: writes files that are complete or absent. Its errors name the file.
 *
 * struct file_out writes one file in large pieces, hashes the bytes and fsyncs at the end; the disk
 * writes meanwhile, so that the fsync has little left to wait for. The caller makes a directory of
 * such files (a checkpoint, prepared data) visible by one rename. libc only.
 * tested: tests/core/test_core.c */
#ifndef SEQD_CORE_FILE_H
#define SEQD_CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

#define FILE_PATH_SIZE 4096
#define FILE_BUF_SIZE  (1 << 18)

struct file_out {
    int fd;
    char path[FILE_PATH_SIZE];
    bool unhashed; /* set before any bytes are added, by a caller that hashes the bytes itself */
    struct sha256 sha;
    int64_t size;           /* bytes added so far */
    int64_t written, begun; /* bytes given to the kernel, and to the disk */
    size_t n_buf;
    uint8_t *buf; /* owns FILE_BUF_SIZE bytes */
};

int64_t file_limit(void); /* bytes that a file may have; INT64_MAX: any number */

/* Creates or truncates path. Every failure names it, as err_errno does. */
int file_out_open(struct file_out *f, const char *path, struct err *e);
/* Checks, before any byte is written, that the file may have `size` bytes. fails: ERR_TOO_LARGE
 * over file_limit(). */
int file_out_expect(const struct file_out *f, int64_t size, struct err *e);
int file_out_add(struct file_out *f, const void *data, size_t size, struct err *e);
/* Flushes, fsyncs, closes. hex (may be NULL) gets the digest of everything added, if hashed. */
int file_out_close(struct file_out *f, char hex[SHA256_HEX], struct err *e);
/* Closes and removes the file, after an error. Safe on a file_out that failed to open or was
 * closed. */
void file_out_abort(struct file_out *f);

/* Reads a whole small file, NUL-terminated, malloc'd: the caller frees it. *size (size may be
 * NULL) gets its bytes without the NUL. fails: ERR_TOO_LARGE over max_size; ERR_INVALID if it is
 * not a regular file; ERR_CORRUPT if it becomes shorter during the call; else as beneath_read. */
char *file_read(const char *path, int64_t max_size, size_t *size, struct err *e);
/* Writes "<path>.tmp", fsyncs, renames to path. The caller fsyncs the directory if needed. */
int file_write(const char *path, const void *data, size_t size, struct err *e);

/* Writes a file of secrets as file_write does. Only its owner may ever read it, whatever the
 * umask. */
int file_write_private(const char *path, const void *data, size_t size, struct err *e);

int file_join(char out[FILE_PATH_SIZE], struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))); /* fails: ERR_TOO_LARGE when the path does not fit */
int file_sync_dir(const char *path, struct err *e);
int file_make_dir(const char *path, struct err *e); /* with parents; existing ones are fine */

/* Takes the exclusive lock (flock) of an open file. If the lock's holder is killed between fork
 * and exec, its child keeps the lock until exec. The call waits up to FILE_LOCK_MS for that exec.
 * Returns -1 with errno; EWOULDBLOCK: another process has the lock. */
#define FILE_LOCK_MS 1000
int file_lock(int fd);
/* Makes a state directory with its parents. Only its owner has permissions on it (0700), whatever
 * the umask, and on the directories and regular files directly in it. Permissions of group and
 * others are removed. *n_mended counts the files and directories, the state directory included,
 * that had such permissions. fails: ERR_INVALID when the path is not a directory or belongs to
 * another user, who could write anything into it; else as err_errno. */
int file_make_private_dir(const char *path, int *n_mended, struct err *e);
bool file_exists(const char *path);
/* Removes a file or a directory with all beneath it, never following symbolic links. A missing path
 * is fine. */
int file_remove(const char *path, struct err *e);

#endif
