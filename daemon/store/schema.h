/* schema.h: the tables of the database (schema.sql) and how SQLite is to keep them. For
 * the files of the store. */
#ifndef SEQD_DAEMON_STORE_SCHEMA_H
#define SEQD_DAEMON_STORE_SCHEMA_H

#include <stdint.h>
#include "api/core/err.h"

struct sqlite3;

/* user_version has one of two values: a file that 0.2.0 reads as this version does, and a file that
 * it would misread (store.h, store_newer). */
#define SCHEMA_VERSION 1
#define SCHEMA_NEWER   2

/* Sets the connection up and makes the tables and columns that are missing. path: for errors.
 * fails: ERR_UNSUPPORTED when a newer seqd wrote it; as schema_damaged. */
int schema_setup(struct sqlite3 *db, const char *path, struct err *e);
/* Reads the one number that sql selects. fails: as schema_damaged, *out is 0 then. */
int schema_number(struct sqlite3 *db, const char *path, const char *sql, int64_t *out,
                  struct err *e);
/* Sets the error of the last call on db, with the file and SQLite's message, and returns -1:
 * ERR_NO_SPACE or ERR_IO for a fault of the disk, else ERR_CORRUPT. */
int schema_damaged(struct sqlite3 *db, const char *path, struct err *e);

#endif
