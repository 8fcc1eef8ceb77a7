/* schema.c: makes the tables, adds columns that an older file lacks, and configures how SQLite
 * stores them. */
#include "daemon/store/schema.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include "api/core/mutant.h"
#include "schema_sql.h"

static const char setup_sql[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA "
    "foreign_keys=ON;"
    "PRAGMA wal_autocheckpoint=0; PRAGMA cell_size_check=ON; PRAGMA trusted_schema=OFF;"
    "PRAGMA temp_store=MEMORY;" /* with this setting savepoints need no disk space */
    /* Removed data is overwritten only in pages that are written anyway. With Debian's default,
     * each freed page would be overwritten as well, although freed pages are given back to the
     * disk. */
    "PRAGMA secure_delete=FAST;";

int schema_damaged(sqlite3 *db, const char *path, struct err *e)
{
    const int rc = sqlite3_errcode(db) & 0xff;
    const bool disk = rc == SQLITE_IOERR || rc == SQLITE_CANTOPEN;
    const enum err_code code = rc == SQLITE_FULL ? ERR_NO_SPACE : disk ? ERR_IO : ERR_CORRUPT;
    return err_set(e, code, "%s: %s", path, sqlite3_errmsg(db));
}

int schema_number(sqlite3 *db, const char *path, const char *sql, int64_t *out, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int bad = sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK ||
              sqlite3_step(st) != SQLITE_ROW;
    if (bad) schema_damaged(db, path, e);
    *out = bad ? 0 : sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return bad ? -1 : 0;
}

/* Columns that were added to tables of version 1. An earlier seqd can read and write tables with
 * these columns, so user_version is unchanged. Its new rows get the columns' defaults. */
static const struct {
    const char *has, *add;
} columns[] = {
    {"SELECT count(*) FROM pragma_table_info('jobs') WHERE name = 'owner'",
     "ALTER TABLE jobs ADD COLUMN owner TEXT"},
    {"SELECT count(*) = 0 OR sum(name = 'made') FROM pragma_table_info('audit')",
     "ALTER TABLE audit ADD COLUMN made TEXT NOT NULL DEFAULT ''"},
    {"SELECT count(*) = 0 OR sum(name = 'number') FROM pragma_table_info('join_tokens')",
     "ALTER TABLE join_tokens ADD COLUMN number INTEGER"},
};

static int add_columns(sqlite3 *db, const char *path, struct err *e)
{
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        int64_t has;
        if (schema_number(db, path, columns[i].has, &has, e)) return -1;
        if (!has && sqlite3_exec(db, columns[i].add, NULL, NULL, NULL) != SQLITE_OK)
            return schema_damaged(db, path, e);
    }
    return 0;
}

static int make_schema(sqlite3 *db, const char *path, struct err *e)
{
    int64_t version;
    if (schema_number(db, path, "PRAGMA user_version", &version, e)) return -1;
    if (version > SCHEMA_NEWER)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has schema version %lld, this seqd knows %d: a newer "
                       "seqd wrote it",
                       path, (long long)version, SCHEMA_NEWER);
    if (version && add_columns(db, path, e)) return -1;
    /* If all tables and columns exist, no page is written, because the disk may be full. */
    if (sqlite3_exec(db, schema_sql, NULL, NULL, NULL) != SQLITE_OK ||
        (version < SCHEMA_VERSION &&
         sqlite3_exec(db, "PRAGMA user_version=1", NULL, NULL, NULL) != SQLITE_OK))
        return schema_damaged(db, path, e);
    return 0;
}

int schema_setup(sqlite3 *db, const char *path, struct err *e)
{
    int64_t n_pages;
    /* auto_vacuum must be set before the first write of a new file. With auto_vacuum, pages that
     * removals free are given back to the disk (remove.c). Without it, as in older files, the file
     * does not shrink, and free pages are used again. */
    if (schema_number(db, path, "PRAGMA page_count", &n_pages, e)) return -1;
    if (!n_pages) sqlite3_exec(db, "PRAGMA auto_vacuum=INCREMENTAL", NULL, NULL, NULL);
    if (sqlite3_exec(db, setup_sql, NULL, NULL, NULL) != SQLITE_OK)
        return schema_damaged(db, path, e);
    if (mutant_on(MUTANT_SYNC_LAZY)) sqlite3_exec(db, "PRAGMA synchronous=NORMAL", 0, 0, 0);
    return make_schema(db, path, e);
}
