/* carried.c: copies the small files of a state directory into a copy of the database, and restores
 * the files from it. */
#include "daemon/store/carried.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/log.h"
#include "daemon/store/remove.h"
#include "daemon/store/schema.h"

#define MAX_SIZE 65536

static const struct carried_file {
    const char *name, *folder; /* path in the state directory; folder of the file, or "" */
} files[] = {{"secret", ""}, {"pki/ca.pem", "pki"}, {"token", ""}};
#define N_FILES (sizeof files / sizeof *files)

static int run(sqlite3 *db, const char *sql, struct err *e)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : schema_damaged(db, "the database", e);
}

/* ---- into a copy ----------------------------------------------------------------------------- */

static int put(sqlite3_stmt *st, const char *dir, const char *name, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size;
    if (file_join(path, e, "%s/%s", dir, name)) return -1;
    if (!file_exists(path)) return 0;
    char *data = file_read(path, MAX_SIZE, &size, e);
    if (!data) return -1;
    sqlite3_reset(st);
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_blob(st, 2, data, (int)size, SQLITE_STATIC);
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : -1;
    if (rc) schema_damaged(sqlite3_db_handle(st), "the backup", e);
    explicit_bzero(data, size);
    free(data);
    return rc;
}

int carried_put(sqlite3 *db, const char *dir, struct err *e)
{
    sqlite3_stmt *st = NULL;
    if (run(db, "CREATE TABLE carried (name TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT", e))
        return -1;
    int rc = sqlite3_prepare_v2(db, "INSERT INTO carried VALUES (?1, ?2)", -1, &st, NULL);
    if (rc) rc = schema_damaged(db, "the backup", e);
    for (size_t i = 0; i < N_FILES && !rc; i++) rc = put(st, dir, files[i].name, e);
    sqlite3_finalize(st);
    return rc;
}

/* ---- out of it ------------------------------------------------------------------------------- */

static const struct carried_file *find(const char *name)
{
    for (size_t i = 0; i < N_FILES; i++)
        if (name && !strcmp(files[i].name, name)) return &files[i];
    return NULL;
}

/* Compares a carried file with the file at path. Returns 1 if the file at path exists and has the
 * bytes of the carried file, and 0 if it does not exist. */
static int compare(const char *path, const void *data, size_t size, struct err *e)
{
    size_t have;
    if (!file_exists(path)) return 0;
    char *old = file_read(path, MAX_SIZE, &have, e);
    if (!old) return -1;
    const bool same = have == size && !memcmp(old, data, size);
    explicit_bzero(old, have);
    free(old);
    if (same) return 1;
    return err_set(
        e, ERR_CONFLICT,
        "%s is not the one of the backup that seqd.db was restored from: restore into an "
        "empty state directory, or move this file away to take the backup's",
        path);
}

static int take(const char *dir, const struct carried_file *f, const void *data, size_t size,
                struct err *e)
{
    char path[FILE_PATH_SIZE], folder[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/%s", dir, f->name) ||
        file_join(folder, e, "%s%s%s", dir, *f->folder ? "/" : "", f->folder))
        return -1;
    const int there = compare(path, data, size, e);
    if (there) return there < 0 ? -1 : 0;
    if (*f->folder && file_make_private_dir(folder, &(int){0}, e)) return -1;
    if (file_write_private(path, data, size, e) || file_sync_dir(folder, e)) return -1;
    log_info("store.restored", "file=%s", path);
    return *f->folder ? file_sync_dir(dir, e) : 0;
}

static int take_all(sqlite3 *db, const char *dir, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, "SELECT name, data FROM carried", -1, &st, NULL), step = 0;
    if (rc) return schema_damaged(db, "the carried files", e);
    while (!rc && (step = sqlite3_step(st)) == SQLITE_ROW) {
        const struct carried_file *f = find((const char *)sqlite3_column_text(st, 0));
        const void *data = sqlite3_column_blob(st, 1);
        if (f && data) rc = take(dir, f, data, (size_t)sqlite3_column_bytes(st, 1), e);
    }
    if (!rc && step != SQLITE_DONE) rc = schema_damaged(db, "the carried files", e);
    sqlite3_finalize(st);
    return rc;
}

/* Removes the carried files from the database. In the same commit the last ids are raised to a
 * multiple of CARRIED_ID_STEP, because a node or a client may know later ids than the backup
 * has. */
static int forget(sqlite3 *db, struct err *e)
{
    char sql[1024];
    snprintf(sql, sizeof sql,
             "BEGIN IMMEDIATE;" REMOVE_LAST_KEEP ";"
             "UPDATE meta SET value = (CAST(value AS INTEGER) / %d + 1) * %d "
             "WHERE key IN ('last.jobs', 'last.events');"
             "DROP TABLE carried; COMMIT",
             CARRIED_ID_STEP, CARRIED_ID_STEP);
    if (run(db, "PRAGMA secure_delete=ON", e) || run(db, sql, e)) return -1;
    return run(db, "PRAGMA secure_delete=FAST", e);
}

int carried_take(sqlite3 *db, const char *dir, struct err *e)
{
    int64_t has;
    if (schema_number(
            db, "the database",
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'carried'", &has,
            e))
        return -1;
    return !has ? 0 : take_all(db, dir, e) || forget(db, e) ? -1 : 0;
}
