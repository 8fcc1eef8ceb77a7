/* backup.h: copies of the database, with the secrets that lie beside it (carried.h), made while
 * seqd runs, in <state>/backups: for store.c and the routes of backups.
 *
 * A thread of its own reads through a connection of its own, which neither writes nor checkpoints:
 * the writer commits meanwhile, and the copy is the state of one moment. The copy is synced, its
 * integrity checked, and then it gets its name; the newest BACKUP_KEEP are kept. */
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

/* Creates the object that makes the backups of a state directory, dir. path: the database. Starts
 * no thread yet. */
struct backups *backups_create(struct loop *l, const char *dir, const char *path);
/* Interrupts a backup that is being made. Callbacks that are due are not called. NULL allowed. */
void backups_destroy(struct backups *b);

struct backup_made {
    char name[BACKUP_NAME]; /* "seqd-20261123T230801042Z.db" */
    char sha256[SHA256_HEX];
    int64_t size, at_ms, took_ms;
};
/* Called when a backup is made, or could not be made: then m does not count. m: borrowed. fails:
 * ERR_NO_SPACE; ERR_CORRUPT when the copy is not sound; ERR_IO; as carried_put. */
typedef void backup_done(void *arg, const struct backup_made *m, const struct err *e);
/* Makes a backup. fails at once: ERR_CONFLICT while another is being made; as thread_start. Both
 * this and done run on the loop thread. */
int backups_make(struct backups *b, backup_done *done, void *arg, struct err *e);

/* Gets at most BACKUP_CHUNK bytes from offset; n 0 at the end. total: size of the file. */
typedef void backup_bytes(void *arg, const void *data, size_t n, int64_t total,
                          const struct err *e);
/* Reads a part of a backup. name: any text; a name that is no backup's is ERR_NOT_FOUND. */
void backups_read(struct backups *b, const char *name, int64_t offset, backup_bytes *call,
                  void *arg);

#endif
