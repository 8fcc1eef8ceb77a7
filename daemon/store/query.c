/* query.c: has the statements of all queries, and runs a query. */
#include "daemon/store/query.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "api/core/job_state.h"
#include "api/core/removal.h"

#define SHOWN "EXISTS (SELECT 1 FROM jobs WHERE id = ?1 AND state < 100)"
_Static_assert(STORE_GONE == 100, "SHOWN names it");
/* SQL condition that is true if the checkpoints of job ?1 are shown. They are not shown once their
 * removal was ordered. */
#define KEPT "NOT EXISTS (SELECT 1 FROM removals WHERE job = ?1 AND what = 4)"
_Static_assert(REMOVAL_CHECKPOINTS == 4, "KEPT names it");

static void take_row(struct store_rows *rows, sqlite3_stmt *st, int n_ints, int n_texts)
{
    rows->row = txn_must(realloc(rows->row, ((size_t)rows->n_rows + 1) * sizeof *rows->row));
    struct store_row *r = &rows->row[rows->n_rows++];
    *r = (struct store_row){0};
    for (int i = 0; i < n_ints; i++) r->n[i] = sqlite3_column_int64(st, i);
    for (int i = 0; i < n_texts; i++)
        r->text[i] = txn_copy((const char *)sqlite3_column_text(st, n_ints + i));
}

static void query_failed(sqlite3 *db, int rc, struct err *e)
{
    enum err_code code = ERR_IO;
    if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB) code = ERR_CORRUPT;
    if ((rc & 0xff) == SQLITE_INTERRUPT || (rc & 0xff) == SQLITE_BUSY) code = ERR_TIMEOUT;
    err_set(e, code, "the store could not be read: %s", sqlite3_errmsg(db));
}

/* Adds the rows of a statement to the rows of a, unless an earlier statement has failed. */
static void select_rows(sqlite3 *db, const char *sql, const int64_t *n, int n_bound,
                        const char *text, int n_ints, int n_texts, struct query *a)
{
    sqlite3_stmt *st = NULL;
    if (a->err.code) return;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) {
        for (int i = 0; i < n_bound; i++) sqlite3_bind_int64(st, i + 1, n[i]);
        if (text) sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
        while ((rc = sqlite3_step(st)) == SQLITE_ROW) take_row(&a->rows, st, n_ints, n_texts);
    }
    if (rc != SQLITE_DONE) query_failed(db, rc, &a->err);
    sqlite3_finalize(st);
}

static int newest_first(const void *a, const void *b)
{
    const struct store_row *x = a, *y = b;
    return x->n[0] > y->n[0] ? -1 : x->n[0] < y->n[0];
}

static void sort_jobs(struct query *a)
{
    if (a->rows.n_rows)
        qsort(a->rows.row, (size_t)a->rows.n_rows, sizeof *a->rows.row, newest_first);
}

/* SQL value: a result in the short form of lists. It has the beginning of its texts, its numbers,
 * and the loss of an evaluation. NULL if there is no result. */
#define LISTED                                                                                     \
    "CASE WHEN json_valid(result) THEN (SELECT json_group_object(key, CASE type "                  \
    "WHEN 'text' THEN substr(value, 1, 256) WHEN 'true' THEN json('true') "                        \
    "WHEN 'false' THEN json('false') WHEN 'object' THEN json(value) ELSE value END) "              \
    "FROM json_each(result) WHERE key = 'eval' OR type NOT IN ('object', 'array')) END"

/* Selects the jobs of several states by merging one indexed scan for each state. It never scans
 * all jobs. */
static void select_jobs_of(sqlite3 *db, struct query *a)
{
    const int64_t before = a->n[0] > 0 ? a->n[0] : INT64_MAX;
    for (int state = 0; state < JOB_STATE_N; state++) {
        const int64_t bound[] = {0, state, before, a->n[1]};
        if (!a->n[2] || a->n[2] >> state & 1)
            select_rows(db,
                        "SELECT id, coalesce(doc, ''), " LISTED
                        " FROM jobs WHERE owner = ?1 AND state = ?2 AND id < ?3 "
                        "ORDER BY id DESC LIMIT ?4",
                        bound, 4, a->text, 1, 2, a);
    }
    sort_jobs(a);
}

/* Counts the live jobs of other users in each state. The count is that of all jobs minus that of
 * the user's own jobs. Both counts read only an index. */
static void select_others(sqlite3 *db, struct query *a)
{
    for (int state = 0; state < JOB_STATE_N; state++) {
        const int64_t bound[] = {0, state};
        if (!job_final((enum job_state)state))
            select_rows(db,
                        "SELECT ?2, (SELECT count(*) FROM jobs WHERE state = ?2) - "
                        "(SELECT count(*) FROM jobs WHERE owner = ?1 AND state = ?2)",
                        bound, 2, a->text, 2, 0, a);
    }
}

static void select_audit(sqlite3 *db, struct query *a)
{
    const int64_t bound[] = {0, a->n[0] > 0 ? a->n[0] : INT64_MAX, a->n[1], a->text == NULL};
    select_rows(
        db,
        "SELECT seq, at, role, token, request, status, user, address, action, made FROM audit "
        "WHERE seq < ?2 AND (?4 OR user = ?1) ORDER BY seq DESC LIMIT ?3",
        bound, 4, a->text, 6, 4, a);
}

/* Selects the jobs of one owner, or of all owners, that have all the tags. Uses the index for the
 * first tag. */
static void select_tagged(sqlite3 *db, struct query *a)
{
    const int64_t before = a->n[0] > 0 ? a->n[0] : INT64_MAX;
    for (int state = 0; state < JOB_STATE_N; state++) {
        const int64_t bound[] = {0, state, before, a->n[1]};
        if (a->n[2] && !(a->n[2] >> state & 1)) continue;
        select_rows(
            db,
            "SELECT t.job, coalesce(j.doc, ''), " LISTED " FROM tags AS t CROSS JOIN jobs AS j ON "
            "j.id = t.job AND j.state < 100 WHERE t.key = json_extract(?1, '$.tags[0][0]') AND "
            "t.value = json_extract(?1, '$.tags[0][1]') AND t.state = ?2 AND t.job < ?3 "
            "AND json_extract(?1, '$.owner') IN (j.owner, '') AND NOT EXISTS ("
            "SELECT 1 FROM json_each(?1, '$.tags') AS f WHERE f.key > 0 AND NOT EXISTS ("
            "SELECT 1 FROM tags AS o WHERE o.job = t.job AND "
            "o.key = json_extract(f.value, '$[0]') AND "
            "o.value = json_extract(f.value, '$[1]'))) ORDER BY t.job DESC LIMIT ?4",
            bound, 4, a->text, 1, 2, a);
    }
    sort_jobs(a);
}

static void select_all_jobs(sqlite3 *db, struct query *a)
{
    int64_t before = a->n[0] > 0 ? a->n[0] : INT64_MAX, limit = a->n[1];
    if (!a->n[2]) {
        const int64_t bound[] = {before, limit};
        select_rows(db,
                    "SELECT id, coalesce(doc, ''), " LISTED
                    " FROM jobs WHERE id < ?1 AND state < 100 ORDER BY id DESC LIMIT ?2",
                    bound, 2, NULL, 1, 2, a);
        return;
    }
    for (int state = 0; state < JOB_STATE_N; state++) {
        const int64_t bound[] = {state, before, limit};
        if (a->n[2] >> state & 1)
            select_rows(db,
                        "SELECT id, coalesce(doc, ''), " LISTED
                        " FROM jobs WHERE state = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
                        bound, 3, NULL, 1, 2, a);
    }
    sort_jobs(a);
}

static void select_jobs(sqlite3 *db, struct query *a)
{
    if (a->text)
        select_jobs_of(db, a);
    else
        select_all_jobs(db, a);
}

/* Selects the last event about each step, if this event is EV_CHECKPOINT. */
static void select_checkpoints(sqlite3 *db, struct query *a)
{
    const int64_t bound[] = {a->n[0], a->n[1], a->n[2], EV_CHECKPOINT, EV_CHECKPOINT_REMOVED};
    select_rows(db,
                "SELECT seq, epoch, at, type, coalesce(data, '') FROM events "
                "WHERE job = ?1 AND " SHOWN " AND " KEPT " AND seq > ?2 AND type = ?4 AND seq IN ("
                "SELECT max(seq) FROM events WHERE job = ?1 AND type IN (?4, ?5) AND "
                "json_valid(data) GROUP BY json_extract(data, '$.step')) ORDER BY seq LIMIT ?3",
                bound, 5, NULL, 4, 1, a);
}

/* Selects the last event about each name. */
static void select_artifacts(sqlite3 *db, struct query *a)
{
    const int64_t bound[] = {a->n[0], a->n[1], a->n[2], EV_ARTIFACT};
    select_rows(db,
                "SELECT seq, epoch, at, type, coalesce(data, '') FROM events "
                "WHERE job = ?1 AND " SHOWN " AND seq > ?2 AND type = ?4 AND seq IN ("
                "SELECT max(seq) FROM events WHERE job = ?1 AND type = ?4 AND json_valid(data) "
                "GROUP BY json_extract(data, '$.detail.name')) ORDER BY seq LIMIT ?3",
                bound, 4, NULL, 4, 1, a);
}

static void select_artifact(sqlite3 *db, struct query *a)
{
    const int64_t bound[] = {0, a->n[0], EV_ARTIFACT, EV_ASSIGN};
    select_rows(db,
                "SELECT seq, epoch, at, type, data, (SELECT data FROM events AS b WHERE b.job = ?2 "
                "AND b.epoch = a.epoch AND b.type = ?4 ORDER BY seq DESC LIMIT 1) "
                "FROM events AS a WHERE job = ?2 AND type = ?3 AND json_valid(data) AND "
                "json_extract(data, '$.detail.name') = ?1 AND "
                "EXISTS (SELECT 1 FROM jobs WHERE id = ?2 AND state < 100) "
                "ORDER BY seq DESC LIMIT 1",
                bound, 4, a->text, 4, 2, a);
}

static void select_feed(sqlite3 *db, struct query *a)
{
    const int64_t bound[] = {0, a->n[1], a->n[2], a->n[3]};
    select_rows(
        db,
        "WITH looked AS MATERIALIZED (SELECT e.seq, e.epoch, e.at, e.type, e.job, e.data, "
        "j.state AS state, coalesce(j.owner, '') AS owner FROM events AS e CROSS JOIN jobs AS j "
        "ON j.id = e.job AND j.state < 100 WHERE e.seq > ?2 ORDER BY e.seq LIMIT ?3), "
        "told AS (SELECT seq, epoch, at, type, job, lag(seq, 1, ?2) OVER (ORDER BY seq) AS before, "
        "CASE WHEN json_extract(?1, '$.owner') IN (owner, '') AND (?4 = 0 OR (?4 >> state) & 1) "
        "AND NOT EXISTS (SELECT 1 FROM json_each(?1, '$.tags') AS f WHERE NOT EXISTS ("
        "SELECT 1 FROM tags AS o WHERE o.job = looked.job AND "
        "o.key = json_extract(f.value, '$[0]') AND o.value = json_extract(f.value, '$[1]'))) "
        "THEN coalesce(data, '') END AS shown FROM looked) "
        "SELECT seq, epoch, at, type, job, before, shown FROM told WHERE shown IS NOT NULL OR "
        "before < seq - 1 OR seq = (SELECT max(seq) FROM looked) ORDER BY seq",
        bound, 4, a->text, 6, 1, a);
}

/* SQL that selects removals r in the form in which clients see them. */
#define REMOVAL                                                                                    \
    "SELECT r.seq, r.job, r.what, r.state, json_object('id', r.seq, 'job', r.job, 'what', "        \
    "CASE r.what " WHATS " END, 'why', r.why, 'who', r.who, 'state', "                             \
    "iif(r.state = 3, 'done', 'pending'), 'at', " TIME("r.at") ", 'done_at', " TIME(               \
        "r.done_at") ", 'bytes', json_object('rows', r.rows_size, 'logs', r.logs_size, 'files', "  \
                     "r.files_size), "                                                             \
                     "'waits_for', (SELECT json_group_array(json_object('node', w.node, 'error', " \
                     "w.error)) "                                                                  \
                     "FROM removal_nodes AS w WHERE w.job = r.job AND w.what = r.what)), "         \
                     "coalesce(r.who, '') FROM removals AS r "
#define WHATS                                                                                      \
    "WHEN 0 THEN 'job' WHEN 1 THEN 'events' WHEN 2 THEN 'metrics' WHEN 3 THEN 'logs' "             \
    "WHEN 4 THEN 'checkpoints'"
#define TIME(at) "strftime('%Y-%m-%dT%H:%M:%fZ', " at " / 1000.0, 'unixepoch')"
_Static_assert(REMOVAL_CHECKPOINTS == 4 && REMOVAL_N == 5, "WHATS has them all");

/* Selects the jobs that are due, using one partial index for each part. */
static void select_due(sqlite3 *db, struct query *a)
{
#define DUE(bit)                                                                                   \
    "SELECT job, at FROM ended WHERE cut & " bit                                                   \
    " = 0 AND at < ?2 AND (at, job) > (?3, ?4) ORDER BY at, job LIMIT 100"
    static const char *const sql[REMOVAL_N] = {[REMOVAL_JOB] = DUE("1"),
                                               [REMOVAL_EVENTS] = DUE("2"),
                                               [REMOVAL_METRICS] = DUE("4"),
                                               [REMOVAL_LOGS] = DUE("8"),
                                               [REMOVAL_CHECKPOINTS] = DUE("16")};
    _Static_assert(STORE_DUE == 100, "DUE names it");
    select_rows(db, sql[a->n[0]], a->n, 4, NULL, 2, 0, a);
}

/* Selects jobs to prune, with the bytes of their rows. The bytes are counted as in remove.c. */
static void select_prune(sqlite3 *db, struct query *a)
{
#define METRICS_SIZE "(SELECT coalesce(sum(length(data) + 48), 0) FROM metrics WHERE job = e.job)"
#define EVENTS_SIZE(and)                                                                           \
    "(SELECT coalesce(sum(length(data) + 48), 0) FROM events WHERE job = e.job" and ")"
#define PRUNE(bit, size)                                                                           \
    "SELECT e.job, e.at, j.state, " size " FROM ended AS e JOIN jobs AS j ON j.id = e.job WHERE "  \
    "e.cut & " bit " = 0 AND e.at < ?2 AND j.state < 100 AND (?3 >> j.state) & 1 "                 \
    "ORDER BY e.at, e.job LIMIT ?4"
    static const char *const sql[REMOVAL_N] = {
        [REMOVAL_JOB] = PRUNE("1", METRICS_SIZE
                              " + " EVENTS_SIZE("") " + 48 + length(j.spec) + "
                                                    "length(j.doc) + coalesce(length(j.plan), 0) + "
                                                    "coalesce(length(j.result), 0)"),
        [REMOVAL_EVENTS] = PRUNE("2", EVENTS_SIZE(" AND type NOT IN (1, 5, 6, 18)")),
        [REMOVAL_METRICS] = PRUNE("4", METRICS_SIZE),
        [REMOVAL_LOGS] = PRUNE("8", "0"),
        [REMOVAL_CHECKPOINTS] = PRUNE("16", EVENTS_SIZE(" AND type IN (5, 18)"))};
    select_rows(db, sql[a->n[0]], a->n, 4, NULL, 4, 0, a);
}

/* Selects the bytes of jobs. The size of a checkpoint or an artifact is the size in the last event
 * about its step or name, as the rank reported it. */
static void select_usage(sqlite3 *db, struct query *a)
{
    const int64_t bound[] = {0, a->n[0] > 0 ? a->n[0] : INT64_MAX, a->n[1], a->text == NULL};
    select_rows(
        db,
        "SELECT e.job, " METRICS_SIZE " + " EVENTS_SIZE(
            "") " + e.size, "
                "(SELECT coalesce(sum(json_extract(data, '$.detail.size')), 0) FROM events "
                "WHERE job = e.job AND type = 5 AND seq IN (SELECT max(seq) FROM events WHERE "
                "job = e.job AND type IN (5, 18) AND json_valid(data) "
                "GROUP BY json_extract(data, '$.step'))), "
                "(SELECT coalesce(sum(json_extract(data, '$.detail.size')), 0) FROM events "
                "WHERE job = e.job AND type = 6 AND seq IN (SELECT max(seq) FROM events WHERE "
                "job = e.job AND type = 6 AND json_valid(data) "
                "GROUP BY json_extract(data, '$.detail.name'))), e.owner "
                "FROM (SELECT id AS job, coalesce(owner, '') AS owner, 48 + length(spec) + "
                "length(doc) + coalesce(length(plan), "
                "0) + "
                "coalesce(length(result), 0) AS size FROM jobs WHERE id < ?2 AND state < 100 "
                "AND (?4 OR owner = ?1) ORDER BY id DESC LIMIT ?3) AS e",
        bound, 4, a->text, 4, 1, a);
}

static void select_removals(sqlite3 *db, struct query *a)
{
    const bool pending = a->n[2] == 1;
    const int64_t bound[] = {a->n[0] > 0 || pending ? a->n[0] : INT64_MAX, a->n[1]};
    /* Select pending removals by their state, because an index covers the state. */
    select_rows(db,
                pending ? REMOVAL "WHERE r.state < 3 AND r.seq > ?1 ORDER BY r.seq LIMIT ?2"
                        : REMOVAL "WHERE r.seq < ?1 ORDER BY r.seq DESC LIMIT ?2",
                bound, 2, NULL, 4, 1, a);
}

/* Selects the newest rows until they have n[3] steps. */
static void select_last_steps(sqlite3 *db, struct query *a)
{
    const int64_t bound[] = {a->n[0], a->n[3]};
    select_rows(db,
                "SELECT seq, data FROM (SELECT seq, data, sum(n) OVER (ORDER BY seq DESC ROWS "
                "BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer FROM (SELECT seq, "
                "coalesce(data, '') AS data, CASE WHEN json_valid(data) THEN "
                "json_array_length(data) ELSE 0 END AS n FROM metrics WHERE job = ?1 AND " SHOWN
                " ORDER BY seq DESC LIMIT ?2)) WHERE coalesce(newer, 0) < ?2 ORDER BY seq",
                bound, 2, NULL, 1, 1, a);
}

static void select_metrics(sqlite3 *db, struct query *a)
{
    if (a->n[3] > 0)
        select_last_steps(db, a);
    else
        select_rows(db,
                    "SELECT seq, coalesce(data, '') FROM metrics WHERE job = ?1 AND " SHOWN
                    " AND seq > ?2 ORDER BY seq LIMIT ?3",
                    a->n, 3, NULL, 1, 1, a);
}

static void select_checkpoint(sqlite3 *db, struct query *a)
{
    const int64_t bound[] = {a->n[0], a->n[1], EV_CHECKPOINT, EV_CHECKPOINT_REMOVED, EV_ASSIGN};
    select_rows(db,
                "SELECT seq, epoch, at, type, data, (SELECT data FROM events AS b WHERE b.job = ?1 "
                "AND b.epoch = a.epoch AND b.type = ?5 ORDER BY seq DESC LIMIT 1) "
                "FROM events AS a WHERE job = ?1 AND " SHOWN " AND " KEPT
                " AND type IN (?3, ?4) AND json_valid(data) AND "
                "json_extract(data, '$.step') = ?2 ORDER BY seq DESC LIMIT 1",
                bound, 5, NULL, 4, 2, a);
}

/* The queries. Each is answered by one statement or by a function. */
static const struct question {
    void (*select)(sqlite3 *db, struct query *a);
    const char *sql;
    /* n_bound values of a->n are bound, from ?1 on. The other members are the numbers of integer
     * and of text columns */
    int n_bound, n_ints, n_texts;
    bool by_text; /* ?1 is a->text */
} questions[] = {
    [ASK_JOB] = {NULL,
                 "SELECT coalesce(doc, ''), coalesce(spec, ''), plan, result FROM jobs "
                 "WHERE id = ?1 AND state < 100",
                 1, 0, 4},
    [ASK_TAGGED] = {select_tagged},
    [ASK_JOBS] = {select_jobs},
    [ASK_OWNER] = {NULL, "SELECT state >= 100, coalesce(owner, '') FROM jobs WHERE id = ?1", 1, 1,
                   1},
    [ASK_STATES] = {NULL,
                    "SELECT id, state, coalesce(owner, '') FROM jobs WHERE id IN "
                    "(SELECT value FROM json_each(?1))",
                    1, 2, 1, true},
    [ASK_OTHERS] = {select_others},
    [ASK_AUDIT] = {select_audit},
    [ASK_EVENTS] = {NULL,
                    "SELECT seq, epoch, at, type, coalesce(data, '') FROM events "
                    "WHERE job = ?1 AND " SHOWN
                    " AND seq > ?2 AND (?4 < 0 OR type = ?4) ORDER BY seq LIMIT ?3",
                    4, 4, 1},
    [ASK_FEED] = {select_feed},
    [ASK_FEED_START] = {NULL,
                        "SELECT coalesce((SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET "
                        "?2), 0)",
                        2, 1, 0},
    [ASK_CHECKPOINTS] = {select_checkpoints},
    [ASK_CHECKPOINT] = {select_checkpoint},
    [ASK_ARTIFACTS] = {select_artifacts},
    [ASK_ARTIFACT] = {select_artifact},
    [ASK_METRICS] = {select_metrics},
    [ASK_QUARANTINE] = {NULL,
                        "SELECT at, -1, node, reason, '' FROM quarantine UNION ALL "
                        "SELECT at, drains, node, reason, by FROM cordons UNION ALL "
                        "SELECT max(revoked_at), -2, node, '', '' FROM certificates GROUP BY node "
                        "HAVING count(revoked_at) = count(*)",
                        0, 2, 3},
    [ASK_KEY] = {NULL, "SELECT job, coalesce(fingerprint, '') FROM keys WHERE key = ?1", 0, 1, 1,
                 true},
    [ASK_REMOVAL] = {NULL, REMOVAL "WHERE r.job = ?1 AND r.what = ?2", 2, 4, 2},
    [ASK_USAGE] = {select_usage},
    [ASK_DATABASE] = {NULL,
                      "SELECT page_count * page_size, freelist_count * page_size FROM "
                      "pragma_page_count, pragma_page_size, pragma_freelist_count",
                      0, 2, 0},
    [ASK_PRUNE] = {select_prune},
    [ASK_DUE] = {select_due},
    [ASK_ENDED] = {NULL, "SELECT count(*) FROM ended WHERE cut & 1 = 0", 0, 1, 0},
    [ASK_REMOVALS] = {select_removals},
    [ASK_REMOVAL_FILES] = {NULL,
                           "SELECT seq, job, what FROM removals WHERE state = 0 AND seq > ?1 "
                           "ORDER BY seq LIMIT ?2",
                           2, 3, 0},
    /* failed removals come last, so that they delay no other removal */
    [ASK_REMOVAL_NODE] = {NULL,
                          "SELECT job, what FROM removal_nodes WHERE node = ?1 "
                          "ORDER BY error IS NOT NULL, job LIMIT ?2",
                          2, 2, 0, true},
    [ASK_ORDER] = {NULL,
                   "SELECT id, at, what, n_jobs, done, handled, who, CAST(finished_at AS TEXT) "
                   "FROM orders WHERE id = ?1",
                   1, 6, 2},
    [ASK_ORDERS] = {NULL,
                    "SELECT id, at, what, n_jobs, done, handled, who, jobs FROM orders "
                    "WHERE finished_at = 0 OR id = (SELECT max(id) FROM orders) ORDER BY id",
                    0, 6, 2},
};

/* Runs several statements on the same state of the store. Otherwise a job whose state changes
 * between two statements could be listed twice or left out. */
static void select_in_one_read(sqlite3 *db, const struct question *row, struct query *a)
{
    int rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    if (rc) query_failed(db, rc, &a->err);
    row->select(db, a); /* this call does nothing if an earlier call has failed */
    if (!sqlite3_get_autocommit(db)) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
}

void query_run(sqlite3 *db, struct query *a)
{
    const struct question *row = &questions[a->what];
    assert(row->select || row->sql);
    if (row->select)
        select_in_one_read(db, row, a);
    else
        select_rows(db, row->sql, a->n, row->n_bound, row->by_text ? a->text : NULL, row->n_ints,
                    row->n_texts, a);
}

void query_free(struct query *a)
{
    for (int i = 0; i < a->rows.n_rows; i++)
        for (int k = 0; k < 4; k++) free(a->rows.row[i].text[k]);
    free(a->rows.row);
    free(a->text);
    free(a);
}
