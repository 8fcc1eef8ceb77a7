/* store_check.c: looks for damage in the database file until its time is over, and writes its
 * log again. */
#include "daemon/store/store_check.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include "api/core/clock.h"
#include "api/core/log.h"
#include "daemon/store/schema.h"

#define INTERRUPTIBLE 3043000     /* first version of SQLite that can interrupt quick_check */
#define MAX_SIZE      (128 << 20) /* size of a file that is walked then: under a second */
#define LOG_PART      16384
#define OPS           1000 /* between two looks at the clock */

struct box {
    int64_t end_ms;
    bool over;
};

static int on_progress(void *arg)
{
    struct box *b = arg;
    b->over = clock_ms() >= b->end_ms;
    return b->over;
}

/* Tells whether a row is at fault and not the file: "NULL value in jobs.doc", "non-INTEGER value in
 * jobs.state". */
static bool of_a_row(const char *text)
{
    return (!strncmp(text, "NULL value in ", 14) || !strncmp(text, "non-", 4) ||
            !strncmp(text, "CHECK constraint", 16) || !strncmp(text, "TEXT value in", 13) ||
            !strncmp(text, "NUMERIC value in", 16));
}

/* Tells whether it is the disk's fault: a page that could not be read. A page that is not sound has
 * another code. */
static bool of_the_disk(const char *text)
{
    const char *code = strstr(text, "error code=");
    if (code) return strncmp(code + 11, "11", 2) != 0; /* SQLITE_CORRUPT */
    return strstr(text, "failed to get page") || strstr(text, "Failed to read ptrmap");
}

static int look(sqlite3_stmt *st, const char *path, struct err *e)
{
    int rc, n = 0;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(st, 0);
        if (!text) text = "out of memory";
        if (!strcmp(text, "ok")) continue;
        if (of_the_disk(text))
            return err_set(e, ERR_IO,
                           "%s could not be read: quick_check says: %.200s; see to the disk, then "
                           "start seqd again",
                           path, text);
        if (!of_a_row(text))
            return err_set(e, ERR_CORRUPT,
                           "%s is damaged: quick_check says: %.200s; put a copy of it that is "
                           "sound in its place",
                           path, text);
        if (!n++) log_warn("store.row", "file=%s text=\"%s\"", path, text);
    }
    return rc;
}

int store_settle_log(sqlite3 *db, const char *path, struct err *e)
{
    static const char failed[] = "%s: its log could not be written again: see to the disk, then "
                                 "start seqd again";
    sqlite3_file *f = NULL;
    sqlite3_int64 size = 0;
    char part[LOG_PART];
    int rc = sqlite3_file_control(db, NULL, SQLITE_FCNTL_JOURNAL_POINTER, &f);
    if (rc != SQLITE_OK || !f || !f->pMethods) return 0; /* there is no log */
    rc = f->pMethods->xFileSize(f, &size);
    for (sqlite3_int64 at = 0; rc == SQLITE_OK && at < size; at += LOG_PART) {
        const int n = size - at < LOG_PART ? (int)(size - at) : LOG_PART;
        rc = f->pMethods->xRead(f, part, n, at);
        if (rc == SQLITE_OK) rc = f->pMethods->xWrite(f, part, n, at);
    }
    if (rc == SQLITE_OK) rc = f->pMethods->xSync(f, SQLITE_SYNC_FULL);
    return rc == SQLITE_OK ? 0 : err_set(e, ERR_IO, failed, path);
}

int store_check(sqlite3 *db, const char *path, int64_t limit_ms, struct err *e)
{
    struct box b = {.end_ms = clock_ms() + limit_ms};
    struct stat st;
    sqlite3_stmt *check = NULL;
    const bool large = stat(path, &st) || st.st_size > MAX_SIZE;
    if (large && sqlite3_libversion_number() < INTERRUPTIBLE) {
        log_info("store.check",
                 "file=%s text=\"not looked at: too large to be checked in %lld ms\"", path,
                 (long long)limit_ms);
        return 0;
    }
    sqlite3_progress_handler(db, OPS, on_progress, &b);
    int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check", -1, &check, NULL);
    if (rc == SQLITE_OK) rc = look(check, path, e);
    if (rc > 0 && rc != SQLITE_DONE && !b.over) rc = schema_damaged(db, path, e);
    sqlite3_finalize(check);
    sqlite3_progress_handler(db, 0, NULL, NULL);
    if (b.over)
        log_info("store.check", "file=%s text=\"looked at in part: %lld ms are over\"", path,
                 (long long)limit_ms);
    return rc < 0 ? -1 : 0;
}
