/* carried.h: the small files of a state directory that a backup carries in its database, so that
 * one file is a whole seqd: for backup.c and store.c.
 *
 *   secret      keys of running attempts
 *   pki/ca.pem  the authority of the nodes' certificates, with its key
 *   token       of seqd --dev
 *
 * A seqd that starts on such a copy writes them beside it and takes them out of the database. */
#ifndef SEQD_DAEMON_STORE_CARRIED_H
#define SEQD_DAEMON_STORE_CARRIED_H

#include "api/core/err.h"

struct sqlite3;

/* Ids of jobs and events continue at the next multiple of this: nodes and clients may know later
 * ids than the backup does. */
#define CARRIED_ID_STEP 1000000

/* Puts the files of state directory dir that exist into db, the copy. fails: as file_read, naming
 * the file; as schema_damaged. */
int carried_put(struct sqlite3 *db, const char *dir, struct err *e);
/* Takes the files out of the writer's db, before any code reads them. Does nothing where none are
 * carried; work that a kill cut short is done again. fails: ERR_CONFLICT naming a file that is
 * there and differs; as file_write_private; as schema_damaged. */
int carried_take(struct sqlite3 *db, const char *dir, struct err *e);

#endif
