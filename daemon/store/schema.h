/* schema.h: makes the tables of the database (schema.sql), and sets how SQLite stores them. Only
 * the files of the store use it. */
#ifndef SEQD_DAEMON_STORE_SCHEMA_H
#define SEQD_DAEMON_STORE_SCHEMA_H

#include <stdint.h>
#include "api/core/err.h"

struct sqlite3;

/* The two values of user_version. SCHEMA_VERSION marks a file that 0.2.0 reads in the same way as
 * this version. SCHEMA_NEWER marks a file that 0.2.0 would misread (store_newer in store.h). */
#define SCHEMA_VERSION 1
#define SCHEMA_NEWER   2

/* Sets the connection up and makes the tables and columns that are missing. `path` is used only in
 * error texts. Fails with ERR_UNSUPPORTED if a newer seqd wrote the database, or as schema_damaged
 * does. */
int schema_setup(struct sqlite3 *db, const char *path, struct err *e);
/* Reads one integer, which sql selects in one row. Fails as schema_damaged does; *out is then
 * 0. */
int schema_number(struct sqlite3 *db, const char *path, const char *sql, int64_t *out,
                  struct err *e);
/* Sets the error for the last call on db, with the path and SQLite's message. The code is
 * ERR_NO_SPACE or ERR_IO for a fault of the disk, and otherwise ERR_CORRUPT. Returns -1. */
int schema_damaged(struct sqlite3 *db, const char *path, struct err *e);

#endif
