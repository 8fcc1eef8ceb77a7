/* state_dir.h: the agent's state directory.
 *
 *   <state>/seqw.lock              flocked: one agent per directory
 *   <state>/instance               32 hex digits, drawn at random once: they identify this node
 *                                  after a restart
 *   <state>/gangs/<job>-e<epoch>/  an attempt (api/core/gang_start.h), until seqd says FORGET
 *   <state>/epochs/<job>           the newest epoch of the job that began here, as text; no epoch
 *                                  begins twice
 *   <state>/jobs/<job>/            checkpoints/ and artifacts/ of a job, until seqd says REMOVE;
 *                                  <job>.gone/ while they are removed
 *   <state>/prepared/              prepared data by digest */
#ifndef SEQD_AGENT_STATE_DIR_H
#define SEQD_AGENT_STATE_DIR_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/rank.h"
#include "api/wire.h"

struct state_dir {
    char dir[RANK_PATH_SIZE - 128]; /* absolute; room for the paths beneath it */
    int lock_fd;
    unsigned char instance[WIRE_INSTANCE_SIZE];
    int n_roots, n_writable;
    char writable[RANK_ROOTS][RANK_PATH_SIZE];
    char roots[RANK_ROOTS][RANK_PATH_SIZE]; /* without symbolic links */
};

/* Takes the roots beneath which results may be published. Call it after state_dir_open. fails:
 * ERR_INVALID for more than RANK_ROOTS; and naming the root: ERR_NOT_FOUND; ERR_INVALID if it lies
 * in a private directory; ERR_IO and ERR_NO_SPACE if this process cannot write it; ERR_TOO_LARGE
 * for a long path. */
int state_dir_writable(struct state_dir *s, const char *const *roots, int n, struct err *e);
/* Makes the directories, takes the lock, and reads or draws the instance. fails: ERR_CONFLICT when
 * another agent has the lock; ERR_NOT_FOUND naming a root; ERR_INVALID for a directory of another
 * user, and for more than RANK_ROOTS; ERR_TOO_LARGE for a long path; ERR_IO, ERR_NO_SPACE. */
int state_dir_open(struct state_dir *s, const char *dir, const char *const *roots, int n_roots,
                   struct err *e);
void state_dir_close(struct state_dir *s);

int state_dir_gang_dir(const struct state_dir *s, int64_t job, int64_t epoch,
                       char out[FILE_PATH_SIZE]);
/* Calls `found` for every attempt directory. */
int state_dir_scan(const struct state_dir *s,
                   void (*found)(void *arg, int64_t job, int64_t epoch, const char *dir), void *arg,
                   struct err *e);

/* Reads the newest epoch of a job that began here; 0: none yet. fails: as file_read, but for
 * ERR_NOT_FOUND; ERR_CORRUPT: the file holds no epoch. */
int state_dir_epoch(const struct state_dir *s, int64_t job, int64_t *epoch, struct err *e);
int state_dir_epoch_set(const struct state_dir *s, int64_t job, int64_t epoch,
                        struct err *e);                                            /* durable */
int state_dir_epoch_remove(const struct state_dir *s, int64_t job, struct err *e); /* durable */

/* Writes path without symbolic links, if it lies beneath a root. fails: ERR_NOT_FOUND, ERR_IO;
 * ERR_INVALID for a relative path, or one beneath no root. */
int state_dir_beneath(const struct state_dir *s, const char *path, char out[FILE_PATH_SIZE],
                      struct err *e);

struct state_dir_file {
    int64_t job;
    const char *path; /* NAME: a file in artifacts/; checkpoints/DIR/NAME: that file */
    int64_t offset;
    void *buf;
    size_t size;   /* bytes of buf */
    int64_t total; /* out: bytes of the whole file */
    int64_t stamp; /* out: changes when the file is replaced or written; never 0 */
};
/* Reads at most f->size bytes of a job's file, from an offset. Returns the number of bytes, 0 at
 * the end. fails: ERR_NOT_FOUND; ERR_INVALID for a name that may lead out of the job's directory;
 * ERR_IO. */
int64_t state_dir_fetch(const struct state_dir *s, struct state_dir_file *f, struct err *e);

/* Finds the directory of prepared data. fails: ERR_INVALID for an id that is not hex digits;
 * ERR_NOT_FOUND. */
int state_dir_prepared(const struct state_dir *s, const char *id, char out[FILE_PATH_SIZE],
                       struct err *e);

#endif
