/* file.h: writes files that are either complete or absent. Errors name the file. struct file_out
 * writes one file in large pieces, hashes the bytes and fsyncs at the end. The kernel is told
 * early to write pieces to the disk, so that the fsync has little left to wait for. The caller
 * makes a directory of such files (a checkpoint, prepared data) visible by one rename. libc only.
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
    int64_t written, begun; /* bytes given to the kernel, and bytes whose writing to the disk has
                             * begun */
    size_t n_buf;
    uint8_t *buf; /* owns FILE_BUF_SIZE bytes */
};

int64_t file_limit(void); /* largest number of bytes that a file may have; INT64_MAX if there is no
                           * limit */

/* Creates or truncates path. Fails as err_errno does; the error names the path. */
int file_out_open(struct file_out *f, const char *path, struct err *e);
/* Checks, before any byte is written, that the file may have `size` bytes. Fails with
 * ERR_TOO_LARGE if that is more than file_limit(). */
int file_out_expect(const struct file_out *f, int64_t size, struct err *e);
int file_out_add(struct file_out *f, const void *data, size_t size, struct err *e);
/* Flushes, fsyncs and closes the file. `hex` gets the digest of all bytes that were added. It gets
 * nothing if the file is unhashed, and it may be NULL. */
int file_out_close(struct file_out *f, char hex[SHA256_HEX], struct err *e);
/* Closes and removes the file after an error. It may be called for a file_out that failed to open
 * or was closed. */
void file_out_abort(struct file_out *f);

/* Reads a whole small file into memory from malloc, and appends a NUL. The caller frees the
 * memory. *size gets the number of bytes without the NUL; `size` may be NULL. Fails with
 * ERR_TOO_LARGE if the file is larger than max_size, with ERR_INVALID if it is not a regular file,
 * with ERR_CORRUPT if it becomes shorter during the call, and otherwise as beneath_read does. */
char *file_read(const char *path, int64_t max_size, size_t *size, struct err *e);
/* Writes "<path>.tmp", fsyncs it and renames it to path. The caller fsyncs the directory if that
 * is needed. */
int file_write(const char *path, const void *data, size_t size, struct err *e);

/* Writes a file of secrets as file_write does. Only the owner can read the file, from its creation
 * on and with every umask. */
int file_write_private(const char *path, const void *data, size_t size, struct err *e);

int file_join(char out[FILE_PATH_SIZE], struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))); /* fails with ERR_TOO_LARGE if the path does not fit
                                            * into out */
int file_sync_dir(const char *path, struct err *e);
int file_make_dir(const char *path, struct err *e); /* makes a directory and its parents; existing
                                                     * ones are accepted */

/* Acquires the exclusive lock (flock) of an open file. If a process that holds the lock is killed
 * between fork and exec, its child holds the lock until the exec. This call therefore waits up to
 * FILE_LOCK_MS for the lock. Returns -1 with errno; EWOULDBLOCK means that another process has the
 * lock. */
#define FILE_LOCK_MS 1000
int file_lock(int fd);
/* Makes a state directory with its parents, and sets the mode of the state directory to 0700.
 * Existing permissions of group and others are removed from the state directory and from the
 * directories and regular files directly in it. *n_mended counts the files and directories,
 * including the state directory, that had such permissions. Fails with ERR_INVALID if the path is
 * not a directory, or if the directory belongs to another user, who could write anything into it.
 * Other failures are those of err_errno. */
int file_make_private_dir(const char *path, int *n_mended, struct err *e);
bool file_exists(const char *path);
/* Removes a file, or a directory with everything beneath it, and never follows symbolic links. A
 * missing path is not an error. */
int file_remove(const char *path, struct err *e);

#endif
