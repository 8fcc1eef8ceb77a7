/* backup.h: makes copies of the database while seqd runs, in <state>/backups on request, and in
 * another directory at an interval. A copy includes the
 * secrets that are stored beside the database (carried.h). Used by store.c and by the routes of
 * backups.
 *
 * A separate thread reads through a connection of its own, which neither writes nor checkpoints.
 * The writer can commit in the meantime, and the copy still is the state of the database at one
 * moment. The copy is synced and its integrity is checked before it gets its name. The newest
 * BACKUP_KEEP copies are kept. */
#ifndef SEQD_DAEMON_STORE_BACKUP_H
#define SEQD_DAEMON_STORE_BACKUP_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/sha256.h"

#define BACKUP_KEEP  3
#define BACKUP_CHUNK 65536 /* bytes of one answer to backups_read */
#define BACKUP_NAME  64

struct backups;

/* Makes the object for backups of the state directory dir. `path` is the database. No thread is
 * started yet. */
struct backups *backups_create(struct loop *l, const char *dir, const char *path);
/* Stops a backup that is being made. Outstanding callbacks are not called. b may be NULL. */
void backups_destroy(struct backups *b);

struct backup_made {
    char name[BACKUP_NAME]; /* "seqd-20261123T230801042Z.db" */
    char sha256[SHA256_HEX];
    int64_t size, at_ms, took_ms;
};
/* Called when a backup has been made or has failed. m is borrowed, and is not valid after a
 * failure. The error is ERR_CORRUPT if the copy is not sound, ERR_NO_SPACE, ERR_IO, or an error of
 * carried_put. */
typedef void backup_done(void *arg, const struct backup_made *m, const struct err *e);
/* Begins a backup. Fails with ERR_CONFLICT while another backup is being made, and otherwise as
 * thread_start does. This function and done run on the loop thread. */
int backups_make(struct backups *b, backup_done *done, void *arg, struct err *e);

/* Backups at an interval. */
struct backup_plan {
    int64_t every_ms; /* 0 if there are none */
    int keep;         /* number of backups that are kept */
    int64_t last_ms;  /* UTC: when the newest one was made; 0 if there is none */
    int64_t n_failed;
};
/* Makes backups in `dir` from now on, each every_ms after the one before, also if seqd was
 * restarted in the meantime. The newest `keep` of them are kept. A backup that fails is logged and
 * counted, and is tried again after BACKUP_AGAIN_MS or every_ms, if that is shorter. Fails if `dir`
 * cannot be made. */
#define BACKUP_AGAIN_MS 600000
int backups_every(struct backups *b, int64_t every_ms, const char *dir, int keep, struct err *e);
void backups_plan(const struct backups *b, struct backup_plan *out);

/* Called with n bytes from offset, at most BACKUP_CHUNK. n is 0 at the end of the file. `total` is
 * the size of the file. */
typedef void backup_bytes(void *arg, const void *data, size_t n, int64_t total,
                          const struct err *e);
/* Reads a part of a backup. `name` may be any text. If no backup has that name, the error is
 * ERR_NOT_FOUND. */
void backups_read(struct backups *b, const char *name, int64_t offset, backup_bytes *call,
                  void *arg);

#endif
