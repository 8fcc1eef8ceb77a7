/* load.c: reads the live jobs, and the rows about them and about nodes, and passes them to the
 * caller. */
#include "daemon/store/load.h"

#include <sqlite3.h>
#include "api/core/choices.h"
#include "api/core/job_state.h"
#include "daemon/store/schema.h"

#define LIVE "state IN (0, 1, 2, 3, 7)" /* all states that are not final */
_Static_assert(JOB_QUEUED == 0 && JOB_STOPPING == 3 && JOB_SUSPENDED == 7 && JOB_STATE_N == 8,
               "LIVE names the states");

static const char *column(sqlite3_stmt *st, int i)
{
    return (const char *)sqlite3_column_text(st, i);
}

/* Reads a column that cannot be NULL unless the file has been tampered with. */
static const char *sure_column(sqlite3_stmt *st, int i)
{
    const char *text = column(st, i);
    return text ? text : "";
}

static int load_rows(sqlite3 *db, const char *path, const char *sql, const void *c,
                     int (*row)(const void *, sqlite3_stmt *, struct err *), struct err *e)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) return schema_damaged(db, path, e);
    int rc, bad = 0;
    while (!bad && (rc = sqlite3_step(st)) == SQLITE_ROW) bad = row(c, st, e);
    if (!bad && rc != SQLITE_DONE) bad = schema_damaged(db, path, e);
    sqlite3_finalize(st);
    return bad;
}

static int load_job(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load *c = calls;
    return c->job(c->arg, sqlite3_column_int64(st, 0), sure_column(st, 1), column(st, 2),
                  column(st, 3), sqlite3_column_int(st, 4), column(st, 5), e);
}

static int load_event(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load *c = calls;
    struct store_event ev = {.seq = sqlite3_column_int64(st, 0),
                             .job = sqlite3_column_int64(st, 1),
                             .epoch = sqlite3_column_int64(st, 2),
                             .at_ms = sqlite3_column_int64(st, 3),
                             .type = sqlite3_column_int(st, 4),
                             .data = sure_column(st, 5)};
    return c->event(c->arg, &ev, e);
}

static int load_mark(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load *c = calls;
    return c->mark(c->arg, sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
                   sqlite3_column_int(st, 2), sqlite3_column_int64(st, 3));
}

static int load_steps(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load *c = calls;
    return c->steps(c->arg, sqlite3_column_int64(st, 0), sure_column(st, 1));
}

static int load_blame(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load *c = calls;
    if (!c->blame) return 0;
    return c->blame(c->arg, column(st, 0), sqlite3_column_int64(st, 1),
                    sqlite3_column_int64(st, 2));
}

static int load_quarantine(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load *c = calls;
    if (!c->quarantine) return 0;
    return c->quarantine(c->arg, column(st, 0), sqlite3_column_int64(st, 1), column(st, 2));
}

static int load_cordon(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load *c = calls;
    if (!c->cordon) return 0;
    return c->cordon(c->arg, sure_column(st, 0), sqlite3_column_int64(st, 1),
                     sqlite3_column_int(st, 2) != 0, sure_column(st, 3), sure_column(st, 4));
}

/* ---- live jobs ------------------------------------------------------------------------------- */

/* The statements that read a live job: its image or, if that is not accepted, its rows. */
enum one_id { ONE_IMAGE, ONE_JOB, ONE_EVENTS, ONE_N };

static const char *const one_sql[ONE_N] = {
    [ONE_IMAGE] = "SELECT job, seq, data FROM images WHERE job = ?1 AND "
                  "seq = (SELECT max(seq) FROM events WHERE job = ?1)",
    [ONE_JOB] = "SELECT id, spec, plan, result, json_valid('{' || doc || '}') AND state >= 0, "
                "CASE WHEN instr(doc, '\"serving\":') AND json_valid('{' || doc || '}') THEN "
                "json_extract('{' || doc || '}', '$.serving') END FROM jobs WHERE id = ?1",
    [ONE_EVENTS] = "SELECT seq, job, epoch, at, type, data FROM events WHERE job = ?1 ORDER BY seq",
};

struct ones {
    const struct store_load *calls;
    sqlite3 *db;
    const char *path;
    sqlite3_stmt *st[ONE_N];
};

/* Passes the rows of a job to the call of that row. Returns -1 with *e after a failure. */
static int load_of(const struct ones *o, enum one_id which, int64_t id,
                   int (*row)(const void *, sqlite3_stmt *, struct err *), struct err *e)
{
    sqlite3_stmt *st = o->st[which];
    int rc, bad = 0;
    sqlite3_bind_int64(st, 1, id);
    while (!bad && (rc = sqlite3_step(st)) == SQLITE_ROW) bad = row(o->calls, st, e);
    if (!bad && rc != SQLITE_DONE) bad = schema_damaged(o->db, o->path, e);
    sqlite3_reset(st);
    return bad;
}

/* Passes the image of a job on. Returns whether it was accepted. An image that cannot be read is as
 * good as none. */
static bool load_image(const struct ones *o, int64_t id)
{
    const struct store_load *c = o->calls;
    sqlite3_stmt *st = o->st[ONE_IMAGE];
    sqlite3_bind_int64(st, 1, id);
    const bool took = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 2) == SQLITE_BLOB &&
                      c->image(c->arg, id, sqlite3_column_int64(st, 1), sqlite3_column_blob(st, 2),
                               (size_t)sqlite3_column_bytes(st, 2));
    sqlite3_reset(st);
    return took;
}

static int load_live(const void *ones, sqlite3_stmt *st, struct err *e)
{
    const struct ones *o = ones;
    const int64_t id = sqlite3_column_int64(st, 0);
    if (o->calls->image && sqlite3_column_int(st, 1) == JOB_QUEUED && load_image(o, id)) return 0;
    return load_of(o, ONE_JOB, id, load_job, e) || load_of(o, ONE_EVENTS, id, load_event, e);
}

static int load_jobs(sqlite3 *db, const char *path, const struct store_load *c, struct err *e)
{
    struct ones o = {c, db, path, {NULL}};
    int bad = 0;
    for (int i = 0; !bad && i < ONE_N; i++)
        if (sqlite3_prepare_v2(db, one_sql[i], -1, &o.st[i], NULL) != SQLITE_OK)
            bad = schema_damaged(db, path, e);
    if (!bad)
        bad = load_rows(db, path, "SELECT id, state FROM jobs WHERE " LIVE " ORDER BY id", &o,
                        load_live, e);
    for (int i = 0; i < ONE_N; i++) sqlite3_finalize(o.st[i]);
    return bad;
}

int load_all(sqlite3 *db, const char *path, const struct store_load *c, struct err *e)
{
    if (load_jobs(db, path, c, e) ||
        load_rows(db, path,
                  "SELECT m.job, m.epoch, 0, m.seq FROM jobs AS j CROSS JOIN marks AS m "
                  "ON m.job = j.id WHERE j." LIVE " UNION ALL "
                  "SELECT m.job, m.epoch, m.part, m.seq FROM jobs AS j CROSS JOIN part_marks AS m "
                  "ON m.job = j.id WHERE j." LIVE,
                  c, load_mark, e) ||
        load_rows(db, path,
                  "SELECT j.id, m.data FROM jobs AS j JOIN metrics AS m ON m.seq = "
                  "(SELECT max(seq) FROM metrics WHERE job = j.id) WHERE j." LIVE,
                  c, load_steps, e) ||
        load_rows(db, path, "SELECT node, job, at FROM blames ORDER BY at", c, load_blame, e) ||
        load_rows(db, path, "SELECT node, at, reason FROM quarantine", c, load_quarantine, e) ||
        load_rows(db, path, "SELECT node, at, drains, by, reason FROM cordons", c, load_cordon, e))
        return -1;
    return 0;
}

int load_tokens(sqlite3 *db, const char *path, void *arg,
                int (*token)(void *, const struct store_token *), struct err *e)
{
    static const char sql[] = "SELECT id, role, created_at, expires_at, revoked_at, used_at, "
                              "user, hash, label FROM tokens ORDER BY id";
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL), bad = 0;
    while (rc == SQLITE_OK && !bad && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const struct store_token k = {.id = sqlite3_column_int64(st, 0),
                                      .role = sqlite3_column_int(st, 1),
                                      .created_ms = sqlite3_column_int64(st, 2),
                                      .expires_ms = sqlite3_column_int64(st, 3),
                                      .revoked_ms = sqlite3_column_int64(st, 4),
                                      .used_ms = sqlite3_column_int64(st, 5),
                                      .user = sure_column(st, 6),
                                      .hash = sure_column(st, 7),
                                      .label = sure_column(st, 8)};
        bad = token(arg, &k);
        rc = SQLITE_OK;
    }
    if (!bad && rc != SQLITE_DONE) bad = schema_damaged(db, path, e);
    sqlite3_finalize(st);
    return bad;
}

static int load_join_token(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load_joins *c = calls;
    const struct store_join_token row = {.id = sure_column(st, 0),
                                         .hash = sure_column(st, 1),
                                         .names = sure_column(st, 2),
                                         .uses = sqlite3_column_int64(st, 3),
                                         .used = sqlite3_column_int64(st, 4),
                                         .created_ms = sqlite3_column_int64(st, 5),
                                         .expires_ms = sqlite3_column_int64(st, 6),
                                         .number = sqlite3_column_int64(st, 7)};
    return c->token(c->arg, &row, e);
}

static int load_certificate(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load_joins *c = calls;
    const struct store_certificate row = {.serial = sqlite3_column_int64(st, 0),
                                          .node = sure_column(st, 1),
                                          .key = sure_column(st, 2),
                                          .token = sure_column(st, 3),
                                          .issued_ms = sqlite3_column_int64(st, 4),
                                          .expires_ms = sqlite3_column_int64(st, 5),
                                          .revoked_ms = sqlite3_column_int64(st, 6)};
    return c->certificate(c->arg, &row, e);
}

static int load_revocation(const void *calls, sqlite3_stmt *st, struct err *e)
{
    const struct store_load_joins *c = calls;
    const struct store_revocation row = {.node = sure_column(st, 0),
                                         .at_ms = sqlite3_column_int64(st, 1),
                                         .number = sqlite3_column_int64(st, 2)};
    return c->revocation(c->arg, &row, e);
}

int load_joins(sqlite3 *db, const char *path, const struct store_load_joins *c, struct err *e)
{
    if (load_rows(db, path,
                  "SELECT id, hash, names, uses, used, created_at, expires_at, number "
                  "FROM join_tokens ORDER BY number",
                  c, load_join_token, e) ||
        load_rows(db, path,
                  "SELECT serial, node, key, token, issued_at, expires_at, revoked_at "
                  "FROM certificates ORDER BY issued_at, serial",
                  c, load_certificate, e) ||
        load_rows(db, path, "SELECT node, at, number FROM revocations", c, load_revocation, e))
        return -1;
    return 0;
}
