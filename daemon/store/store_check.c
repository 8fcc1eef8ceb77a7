/* store_check.c: searches the database file for damage until its time is over, and rewrites its
 * log. */
#include "daemon/store/store_check.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "api/core/clock.h"
#include "api/core/log.h"
#include "daemon/store/schema.h"

#define TABLES     64 /* largest number of tables */
#define TABLE_NAME 128
#define SQL_SIZE   256 /* room for a PRAGMA with the name of a table */
#define PART       16384
#define SAID       201   /* bytes of a message of SQLite */
#define OPS        1000  /* virtual instructions of SQLite between two reads of the clock */
#define AGAIN_MS   60000 /* time for reading the file again after damage was found */

struct box {
    int64_t end_ms;
    store_check_stop *stop; /* NULL if nothing stops the check */
    void *arg;
    const char *sql; /* the PRAGMA */
    bool over;
};

static int on_progress(void *arg)
{
    struct box *b = arg;
    b->over = clock_ms() >= b->end_ms || (b->stop && b->stop(b->arg));
    return b->over;
}

/* Tells whether the text is about a fault of a row and not of the file, such as "NULL value in
 * jobs.doc" or "non-INTEGER value in jobs.state". */
static bool of_a_row(const char *text)
{
    return (!strncmp(text, "NULL value in ", 14) || !strncmp(text, "non-", 4) ||
            !strncmp(text, "CHECK constraint", 16) || !strncmp(text, "TEXT value in", 13) ||
            !strncmp(text, "NUMERIC value in", 16));
}

/* Runs quick_check. Returns 1 if it found damage; `text` gets the first damage. Returns 0 if it
 * found no damage or the time was over. Returns -1 with *e if the statement failed. If `quiet` is
 * set, values whose type differs from that of their column are not logged. */
static int look(sqlite3 *db, const char *path, const struct box *b, bool quiet, char text[SAID],
                struct err *e)
{
    sqlite3_stmt *st = NULL;
    int damaged = 0, n = 0, rc = sqlite3_prepare_v2(db, b->sql, -1, &st, NULL);
    if (rc == SQLITE_OK)
        while (!damaged && (rc = sqlite3_step(st)) == SQLITE_ROW) {
            const char *said = (const char *)sqlite3_column_text(st, 0);
            if (!said) said = "out of memory";
            snprintf(text, SAID, "%s", said);
            for (char *p = text; (p = strchr(p, '\n'));) *p = ' ';
            if (of_a_row(said) && !n++ && !quiet)
                log_warn("store.row", "file=%s text=\"%s\"", path, said);
            damaged = strcmp(said, "ok") != 0 && !of_a_row(said);
        }
    if (!damaged && rc != SQLITE_DONE && !b->over) damaged = schema_damaged(db, path, e);
    sqlite3_finalize(st);
    return damaged;
}

/* Reads the file that `which` names: the database or its log. If `again` is set, also writes the
 * same bytes again and syncs them. Returns a code of SQLite: SQLITE_OK if there is no such file,
 * and SQLITE_INTERRUPT if end_ms has passed. */
static int pass_over(sqlite3 *db, int which, bool again, int64_t end_ms)
{
    sqlite3_file *f = NULL;
    sqlite3_int64 size = 0;
    char part[PART];
    int rc = sqlite3_file_control(db, NULL, which, &f);
    if (rc != SQLITE_OK || !f || !f->pMethods) return SQLITE_OK;
    rc = f->pMethods->xFileSize(f, &size);
    for (sqlite3_int64 at = 0; rc == SQLITE_OK && at < size; at += PART) {
        const int n = size - at < PART ? (int)(size - at) : PART;
        rc = f->pMethods->xRead(f, part, n, at);
        if (rc == SQLITE_OK && again) rc = f->pMethods->xWrite(f, part, n, at);
        if (rc == SQLITE_OK && clock_ms() >= end_ms) rc = SQLITE_INTERRUPT;
    }
    return rc == SQLITE_OK && again ? f->pMethods->xSync(f, SQLITE_SYNC_FULL) : rc;
}

/* Called after damage was found. Tells whether the damage is in the file, or whether the disk
 * failed to read a page. It is in the file if every byte can be read and the damage is found
 * again. If the file cannot be read in time, it counts as damaged. */
static bool is_in_file(sqlite3 *db, const char *path, struct box *b)
{
    char text[SAID];
    b->over = false;
    b->end_ms = b->stop ? INT64_MAX : clock_ms() + AGAIN_MS;
    int rc = pass_over(db, SQLITE_FCNTL_FILE_POINTER, false, b->end_ms);
    if (rc == SQLITE_OK) rc = pass_over(db, SQLITE_FCNTL_JOURNAL_POINTER, false, b->end_ms);
    if (rc != SQLITE_OK) return rc == SQLITE_INTERRUPT;
    return look(db, path, b, true, text, NULL) > 0 || (b->over && !b->stop);
}

int store_settle_log(sqlite3 *db, const char *path, struct err *e)
{
    if (pass_over(db, SQLITE_FCNTL_JOURNAL_POINTER, true, INT64_MAX) == SQLITE_OK) return 0;
    return err_set(e, ERR_IO,
                   "%s: its log could not be written again: see to the disk, then start seqd again",
                   path);
}

static int say_damage(sqlite3 *db, const char *path, struct box *b, const char *text, struct err *e)
{
    log_warn("store.damage", "file=%s text=\"%s\"", path, text);
    if (is_in_file(db, path, b))
        return err_set(e, ERR_CORRUPT,
                       "%s is damaged: quick_check says: %s; put a copy of it that is sound in its "
                       "place",
                       path, text);
    return err_set(e, ERR_IO,
                   "%s could not be read: quick_check says: %s; see to the disk, then start seqd "
                   "again",
                   path, text);
}

int store_check(sqlite3 *db, const char *path, int64_t limit_ms, struct err *e)
{
    struct box b = {.end_ms = clock_ms() + limit_ms, .sql = "PRAGMA quick_check"};
    char text[SAID];
    sqlite3_progress_handler(db, OPS, on_progress, &b);
    int rc = look(db, path, &b, false, text, e);
    const bool over = b.over;
    if (rc > 0) rc = say_damage(db, path, &b, text, e);
    sqlite3_progress_handler(db, 0, NULL, NULL);
    if (over)
        log_info("store.check", "file=%s text=\"looked at in part: %lld ms are over\"", path,
                 (long long)limit_ms);
    return rc;
}

/* Checks one table and its indexes. */
static int check_table(sqlite3 *db, const char *path, const char *table, struct box *b,
                       struct err *e)
{
    char text[SAID], sql[SQL_SIZE];
    sqlite3_snprintf(sizeof sql, sql, "PRAGMA quick_check(\"%w\")", table);
    b->sql = sql;
    int rc = look(db, path, b, false, text, e);
    if (rc > 0 && !b->stop(b->arg)) rc = say_damage(db, path, b, text, e);
    if (b->stop(b->arg)) return err_set(e, ERR_ABORTED, "the check of %s was stopped", path);
    return rc;
}

int store_check_tables(sqlite3 *db, const char *path, store_check_stop *stop, void *arg,
                       struct err *e)
{
    struct box b = {.end_ms = INT64_MAX, .stop = stop, .arg = arg};
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type = 'table'", -1, &st,
                                NULL);
    char names[TABLES][TABLE_NAME];
    int n = 0;
    while (!rc && n < TABLES && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        rc = SQLITE_OK;
        snprintf(names[n++], TABLE_NAME, "%s", (const char *)sqlite3_column_text(st, 0));
    }
    if (rc == SQLITE_DONE) rc = SQLITE_OK;
    sqlite3_finalize(st); /* before the checks, because each reads the newest commit */
    if (rc) return schema_damaged(db, path, e);
    sqlite3_progress_handler(db, OPS, on_progress, &b);
    for (int i = 0; i < n && !rc; i++) rc = check_table(db, path, names[i], &b, e);
    sqlite3_progress_handler(db, 0, NULL, NULL);
    return rc;
}
