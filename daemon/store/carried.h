/* carried.h: the small files of a state directory that a backup carries in its database, so that
 * one file is all that is needed to restore a seqd. Used by backup.c and store.c.
 *
 *   secret      keys of running attempts
 *   pki/ca.pem  the authority of the nodes' certificates, with its key
 *   token       the token that seqd --dev made
 *
 * A seqd that starts on such a copy writes these files beside it and removes them from the
 * database. */
#ifndef SEQD_DAEMON_STORE_CARRIED_H
#define SEQD_DAEMON_STORE_CARRIED_H

#include "api/core/err.h"

struct sqlite3;

/* Ids of jobs and events continue at the next multiple of this number, because nodes and clients
 * may know later ids than the backup has. */
#define CARRIED_ID_STEP 1000000

/* Copies those files of the state directory dir that exist into db, which is a copy of the
 * database. Fails as file_read does, naming the file, or as schema_damaged does. */
int carried_put(struct sqlite3 *db, const char *dir, struct err *e);
/* Writes the files that the writer's db carries into the state directory, and removes them from
 * db, before any other code reads them. Does nothing if db carries none. If a kill interrupted it,
 * it does its work again. Fails with ERR_CONFLICT, which names a file that exists and differs, or
 * as file_write_private or schema_damaged does. */
int carried_take(struct sqlite3 *db, const char *dir, struct err *e);

#endif
