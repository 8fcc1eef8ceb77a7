/* carried.h: the small files of a state directory that a backup stores in its copy of the
 * database, so that a seqd can be restored from one file. Used by backup.c and store.c.
 *
 *   secret      keys of running attempts
 *   pki/ca.pem  the authority of the nodes' certificates, with its key
 *   token       the token that seqd --dev made
 *
 * A seqd that starts on a copy with these files writes these files beside it and removes them from
 * the database. */
#ifndef SEQD_DAEMON_STORE_CARRIED_H
#define SEQD_DAEMON_STORE_CARRIED_H

#include "api/core/err.h"

struct sqlite3;

/* After a restore, ids of jobs and events continue at the next multiple of this number, because
 * nodes and clients may know later ids than the backup has. */
#define CARRIED_ID_STEP 1000000

/* Copies the files of the state directory dir into db, a copy of the database. Files that do not
 * exist are left out. Fails as file_read does; the error then names the file. Also fails as
 * schema_damaged does. */
int carried_put(struct sqlite3 *db, const char *dir, struct err *e);
/* Writes the files that are stored in `db` into the state directory, and removes them from `db`.
 * It must be called before any other code reads the files. Does nothing if `db` has no such files.
 * After a kill, the next call completes the work. Fails with ERR_CONFLICT if a file exists already
 * and differs; the error names the file. Other failures are those of file_write_private and
 * schema_damaged. */
int carried_take(struct sqlite3 *db, const char *dir, struct err *e);

#endif
