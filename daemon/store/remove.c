/* remove.c: deletes the rows of removals, oldest first, lists jobs that have ended, and gives free
 * pages back to the disk. */
#include "daemon/store/remove.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include "api/core/job_state.h"
#include "api/core/removal.h"

/* bytes of a row beside its text: head, keys, and entries in indices */
#define ROW_SIZE 48
/* Free pages beyond a tenth of the file are given back. The remaining free pages are kept, because
 * a file in use should not shrink and grow all the time. At least SPARE_PAGES (4 MiB) are kept,
 * and at most VACUUM_PAGES (256 KiB) are given back at a time. */
#define SPARE_PAGES  1024
#define VACUUM_PAGES 64

_Static_assert(EV_ASSIGN == 1 && EV_CHECKPOINT == 5 && EV_ARTIFACT == 6 &&
                   EV_CHECKPOINT_REMOVED == 18,
               "the statements name them");
_Static_assert(JOB_SUCCEEDED == 4 && JOB_CANCELLED == 6, "and these");
_Static_assert(REMOVAL_JOB == 0 && REMOVAL_EVENTS == 1 && REMOVAL_METRICS == 2 &&
                   REMOVAL_CHECKPOINTS == 4,
               "and those");

/* Statements that delete rows, in the order in which they run. ?1 is the job, ?2 the largest
 * number of rows. A statement returns the bytes of text of each deleted row. */
static const struct removal_part {
    unsigned whats; /* one bit for each enum removal_what whose rows the statement deletes */
    const char *sql;
} parts[] = {
    {1u << REMOVAL_JOB | 1u << REMOVAL_METRICS,
     "DELETE FROM metrics WHERE seq IN (SELECT seq FROM metrics WHERE job = ?1 ORDER BY seq "
     "LIMIT ?2) RETURNING length(data)"},
    {1u << REMOVAL_JOB, "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE job = ?1 "
                        "ORDER BY seq LIMIT ?2) RETURNING length(data)"},
    {1u << REMOVAL_EVENTS,
     "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE job = ?1 AND "
     "type NOT IN (1, 5, 6, 18) ORDER BY seq LIMIT ?2) RETURNING length(data)"},
    {1u << REMOVAL_CHECKPOINTS,
     "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE job = ?1 AND type IN (5, 18) "
     "ORDER BY seq LIMIT ?2) RETURNING length(data)"},
    {1u << REMOVAL_JOB, "DELETE FROM marks WHERE job = ?1 AND epoch IN (SELECT epoch FROM marks "
                        "WHERE job = ?1 LIMIT ?2) RETURNING 0"},
    {1u << REMOVAL_JOB, "DELETE FROM part_marks WHERE job = ?1 AND epoch IN (SELECT epoch FROM "
                        "part_marks WHERE job = ?1 LIMIT ?2) RETURNING 0"},
    {1u << REMOVAL_JOB, "DELETE FROM blames WHERE job = ?1 AND ?2 RETURNING 0"}, /* has few rows */
    {1u << REMOVAL_JOB, "DELETE FROM keys WHERE job = ?1 AND ?2 RETURNING 0"},
    {1u << REMOVAL_JOB, "DELETE FROM ended WHERE job = ?1 AND ?2 RETURNING 0"},
    {1u << REMOVAL_JOB, "DELETE FROM tags WHERE job = ?1 AND ?2 RETURNING length(value)"},
    {1u << REMOVAL_JOB, "DELETE FROM jobs WHERE id = ?1 AND state = 100 AND ?2 "
                        "RETURNING length(spec) + length(doc) + coalesce(length(plan), 0) + "
                        "coalesce(length(result), 0)"},
};
#define N_PARTS ((int)(sizeof parts / sizeof parts[0]))

struct removing {
    sqlite3 *db;
    sqlite3_stmt *part[N_PARTS];
    int n;        /* number of rows that may still be deleted */
    int64_t size; /* bytes of the deleted rows of this removal */
};

/* Reads the number that sql selects. It is 0 if sql selects no row. */
static int number(sqlite3 *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    *out = 0;
    if (!rc && (rc = sqlite3_step(st)) == SQLITE_ROW) *out = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int delete_part(struct removing *r, int i, int64_t job)
{
    sqlite3_stmt **st = &r->part[i];
    int rc = *st ? SQLITE_OK : sqlite3_prepare_v2(r->db, parts[i].sql, -1, st, NULL);
    if (rc) return rc;
    sqlite3_bind_int64(*st, 1, job);
    sqlite3_bind_int(*st, 2, r->n);
    while ((rc = sqlite3_step(*st)) == SQLITE_ROW) {
        r->size += ROW_SIZE + sqlite3_column_int64(*st, 0);
        r->n--;
    }
    sqlite3_reset(*st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Deletes the rows of a removal, part by part, until r->n rows have been deleted. */
static int delete_rows(struct removing *r, int64_t job, int what)
{
    int rc = SQLITE_OK;
    for (int i = 0; !rc && i < N_PARTS && r->n > 0; i++)
        if (parts[i].whats >> what & 1) rc = delete_part(r, i, job);
    return rc;
}

/* Updates a removal after rows were deleted. Adds the bytes of the deleted rows. If no rows are
 * left, sets the next state of the removal, in which the nodes are asked, or ends the removal. */
static int move_on(struct removing *r, int64_t seq, bool gone, int64_t at_ms)
{
    static const char sql[] =
        "UPDATE removals SET rows_size = rows_size + ?2, state = CASE WHEN NOT ?3 THEN state "
        "WHEN EXISTS (SELECT 1 FROM removal_nodes AS n WHERE n.job = removals.job AND "
        "n.what = removals.what) THEN 2 ELSE 3 END, "
        "done_at = CASE WHEN ?3 AND NOT EXISTS (SELECT 1 FROM removal_nodes AS n WHERE "
        "n.job = removals.job AND n.what = removals.what) THEN ?4 END WHERE seq = ?1";
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(r->db, sql, -1, &st, NULL);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, seq);
    sqlite3_bind_int64(st, 2, r->size);
    sqlite3_bind_int(st, 3, gone);
    sqlite3_bind_int64(st, 4, at_ms);
    rc = sqlite3_step(st);
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Deletes rows of the oldest removal whose rows are due. If there is no such removal, *n_moved
 * becomes 0. */
static int remove_oldest(struct removing *r, int64_t at_ms, int64_t *n_moved)
{
    static const char sql[] = "SELECT seq, job, what FROM removals WHERE state = 1 "
                              "ORDER BY seq LIMIT 1";
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(r->db, sql, -1, &st, NULL);
    if (!rc) rc = sqlite3_step(st);
    const int64_t seq = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    const int64_t job = seq ? sqlite3_column_int64(st, 1) : 0;
    const int what = seq ? sqlite3_column_int(st, 2) : 0;
    sqlite3_finalize(st);
    *n_moved = 0;
    if (rc != SQLITE_ROW) return rc == SQLITE_DONE ? SQLITE_OK : rc;
    const int before = r->n;
    r->size = 0;
    if ((rc = delete_rows(r, job, what))) return rc;
    *n_moved = before - r->n + (r->n > 0);
    return move_on(r, seq, r->n > 0, at_ms);
}

/* Moves free pages to the end of the file, and gives them back to the disk. */
static int give_back(sqlite3 *db, int64_t *n_moved)
{
    int64_t n_free, n_pages, mode, left;
    int rc = number(db, "PRAGMA auto_vacuum", &mode);
    if (!rc) rc = number(db, "PRAGMA freelist_count", &n_free);
    if (!rc) rc = number(db, "PRAGMA page_count", &n_pages);
    if (rc || mode != 2 || n_free < SPARE_PAGES + VACUUM_PAGES || n_free < n_pages / 10) return rc;
    char sql[64];
    sqlite3_snprintf(sizeof sql, sql, "PRAGMA incremental_vacuum(%d)", VACUUM_PAGES);
    if ((rc = sqlite3_exec(db, sql, NULL, NULL, NULL))) return rc;
    rc = number(db, "PRAGMA freelist_count", &left);
    *n_moved += n_free - left;
    return rc;
}

int remove_rows(sqlite3 *db, int n, int64_t at_ms, int64_t *n_moved)
{
    struct removing r = {.db = db, .n = n};
    int64_t moved, all = 0;
    int rc = number(db, "SELECT 1 FROM removals WHERE state = 1 LIMIT 1", &moved);
    if (!rc && moved) rc = sqlite3_exec(db, REMOVE_LAST_KEEP, NULL, NULL, NULL);
    while (!rc && moved && r.n > 0) {
        rc = remove_oldest(&r, at_ms, &moved);
        all += moved;
    }
    if (!rc) rc = give_back(db, &all);
    for (int i = 0; i < N_PARTS; i++) sqlite3_finalize(r.part[i]);
    *n_moved = all;
    return rc;
}

int remove_fill(sqlite3 *db, int n, int64_t *n_moved)
{
    static const char cursor_sql[] =
        "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'ended.jobs'";
    char sql[512];
    int64_t after, last;
    *n_moved = 0;
    int rc = number(db, cursor_sql, &after);
    if (rc || after == INT64_MAX) return rc;
    sqlite3_snprintf(
        sizeof sql, sql,
        "SELECT max(id) FROM (SELECT id FROM jobs WHERE id > %lld ORDER BY id LIMIT %d)",
        (long long)after, n);
    if ((rc = number(db, sql, &last))) return rc;
    sqlite3_snprintf(sizeof sql, sql,
                     "INSERT OR IGNORE INTO ended (job, at) SELECT id, coalesce((SELECT max(at) "
                     "FROM events WHERE job = id), created_at) FROM jobs WHERE id > %lld AND "
                     "id <= %lld AND state BETWEEN 4 AND 6;"
                     "INSERT INTO meta (key, value) VALUES ('ended.jobs', '%lld') "
                     "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                     (long long)after, (long long)last, (long long)(last ? last : INT64_MAX));
    *n_moved = last != 0;
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}
