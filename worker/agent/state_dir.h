/* state_dir.h: the agent's state directory.
 *
 *   <state>/seqw.lock              is locked (flock), so that a directory has only one agent
 *   <state>/instance               32 random hex digits, made once, which identify this node
 *                                  after a restart
 *   <state>/gangs/<job>-e<epoch>/  an attempt (api/core/gang_start.h), until seqd sends FORGET
 *   <state>/epochs/<job>           the newest epoch of the job that began here, as text, so that
 *                                  no epoch begins twice
 *   <state>/jobs/<job>/            checkpoints/ and artifacts/ of a job, until seqd sends REMOVE;
 *                                  <job>.gone/ while they are removed
 *   <state>/prepared/              prepared data, in directories named by their digests
 *
 * With seqw --shared, jobs/ and prepared/ lie in the shared directory (shared.h). */
#ifndef SEQD_AGENT_STATE_DIR_H
#define SEQD_AGENT_STATE_DIR_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/rank.h"
#include "api/wire.h"

struct state_dir {
    char dir[RANK_PATH_SIZE - 128];   /* absolute path, with room for the paths beneath it */
    char files[RANK_PATH_SIZE - 128]; /* absolute path of the directory that has jobs/ and
                                       * prepared/; the same as dir without a shared directory */
    int64_t shared;                   /* id of the shared directory (shared.h), or 0 */
    int lock_fd;
    unsigned char instance[WIRE_INSTANCE_SIZE];
    int n_roots, n_writable;
    char writable[RANK_ROOTS][RANK_PATH_SIZE];
    char roots[RANK_ROOTS][RANK_PATH_SIZE]; /* paths of the roots, with symbolic links resolved */
};

/* Adds the roots beneath which results may be published. Call it after state_dir_open. Fails with
 * ERR_INVALID if there are more than RANK_ROOTS roots. All other errors name the root. They are
 * ERR_NOT_FOUND if the root does not exist, ERR_INVALID if it is inside a private directory,
 * ERR_IO or ERR_NO_SPACE if this process cannot write to it, and ERR_TOO_LARGE if its path is too
 * long. */
int state_dir_writable(struct state_dir *s, const char *const *roots, int n, struct err *e);
/* Makes the directories, takes the lock, and reads the file `instance`, or makes this file if
 * it does not exist. Fails with ERR_CONFLICT if another agent has the lock. Fails with
 * ERR_NOT_FOUND if a root does not exist, and the error names the root. Fails with ERR_INVALID
 * if the directory belongs to another user or if there are more than RANK_ROOTS roots. Also
 * fails with ERR_TOO_LARGE if a path is too long, or with ERR_IO or ERR_NO_SPACE. */
int state_dir_open(struct state_dir *s, const char *dir, const char *const *roots, int n_roots,
                   struct err *e);
void state_dir_close(struct state_dir *s);
/* Puts jobs/ and prepared/ into the shared directory `dir`. Call it after state_dir_open. Fails
 * with ERR_CONFLICT if jobs/ of the state directory has files, which would not be found any
 * more, and with ERR_INVALID if a root and `dir` contain each other, because its files are
 * private. Also fails as shared_open does. Errors name --shared. */
int state_dir_share(struct state_dir *s, const char *dir, struct err *e);

int state_dir_gang_dir(const struct state_dir *s, int64_t job, int64_t epoch,
                       char out[FILE_PATH_SIZE]);
/* Calls `found` for the directory of every attempt. */
int state_dir_scan(const struct state_dir *s,
                   void (*found)(void *arg, int64_t job, int64_t epoch, const char *dir), void *arg,
                   struct err *e);

/* Reads the newest epoch of the job that began here. If no epoch of the job has begun here,
 * the result is 0. Fails with ERR_CORRUPT if the job's file in epochs/ holds no valid epoch.
 * Also fails as file_read does. */
int state_dir_epoch(const struct state_dir *s, int64_t job, int64_t *epoch, struct err *e);
int state_dir_epoch_set(const struct state_dir *s, int64_t job, int64_t epoch,
                        struct err *e);                                            /* durable */
int state_dir_epoch_remove(const struct state_dir *s, int64_t job, struct err *e); /* durable */

/* Resolves the symbolic links of path, and writes the resulting path to out if it is beneath a
 * root. Fails with ERR_INVALID if path is relative or is not beneath a root. Also fails with
 * ERR_NOT_FOUND or ERR_IO. */
int state_dir_beneath(const struct state_dir *s, const char *path, char out[FILE_PATH_SIZE],
                      struct err *e);

struct state_dir_file {
    int64_t job;
    const char *path; /* path of the file: NAME stands for the file artifacts/NAME of the job,
                       * and checkpoints/DIR/NAME stands for the file of that path */
    int64_t offset;
    void *buf;
    size_t size;   /* bytes of buf */
    int64_t total; /* result: bytes of the whole file */
    int64_t stamp; /* result: a number other than 0 that changes when the file is replaced or
                    * written */
};
/* Reads at most f->size bytes of a job's file, from f->offset. Returns the number of bytes, which
 * is 0 at the end of the file. Fails with ERR_INVALID if f->path may lead out of the job's
 * directory. Also fails with ERR_NOT_FOUND or ERR_IO. */
int64_t state_dir_fetch(const struct state_dir *s, struct state_dir_file *f, struct err *e);

/* Finds the directory of prepared data. Fails with ERR_INVALID if id has a character that is not a
 * hex digit, or with ERR_NOT_FOUND. */
int state_dir_prepared(const struct state_dir *s, const char *id, char out[FILE_PATH_SIZE],
                       struct err *e);

#endif
