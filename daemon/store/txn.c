/* txn.c: defines the statement of every operation, and appends operations to a request. */
#include "daemon/store/txn.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "api/core/removal.h"

/* SQL that enters the time at which a job ended. It is the time of the job's last event. */
#define ENDED                                                                                      \
    "INSERT OR IGNORE INTO ended (job, at) SELECT id, "                                            \
    "coalesce((SELECT max(at) FROM events WHERE job = id), created_at) FROM jobs"
#define FINAL "state BETWEEN 4 AND 6"
_Static_assert(JOB_SUCCEEDED == 4 && JOB_CANCELLED == 6, "FINAL names the states");
_Static_assert(EV_ASSIGN == 1, "OP_REMOVAL_NODES names it");
_Static_assert(REMOVAL_ROWS == 1 && REMOVAL_NODES == 2 && REMOVAL_DONE == 3,
               "and those of removals");
_Static_assert(STORE_GONE == 100 && STORE_GONE > JOB_STATE_N, "OP_REMOVAL_HIDE names it");

const char *const txn_sql[OP_N] = {
    [OP_JOB_NEW] = "INSERT INTO jobs (id, state, created_at, spec, plan, doc, owner) "
                   "VALUES (?1, ?2, ?3, ?5, ?6, ?7, ?9)",
    [OP_JOB_SET] = "UPDATE jobs SET state = ?2, doc = ?5 WHERE id = ?1",
    [OP_TAG] = "INSERT OR IGNORE INTO tags (job, key, value, state) VALUES (?1, ?5, ?6, ?2)",
    [OP_TAG_STATE] = "UPDATE tags SET state = ?2 WHERE job = ?1 AND state <> ?2",
    [OP_LABELS_END] = "DELETE FROM tags WHERE job = ?1 AND key <> ''",
    [OP_SPEC] = "UPDATE jobs SET spec = ?5, plan = coalesce(?6, plan) WHERE id = ?1",
    [OP_RESULT] = "UPDATE jobs SET result = ?5 WHERE id = ?1",
    [OP_EVENT] = "INSERT INTO events (seq, job, epoch, at, type, data) "
                 "VALUES (?8, ?1, ?2, ?3, ?4, ?5)",
    [OP_METRICS] = "INSERT INTO metrics (job, data) VALUES (?1, ?5)",
    [OP_MARK] = "INSERT INTO marks (job, epoch, seq) VALUES (?1, ?2, ?3) "
                "ON CONFLICT (job, epoch) DO UPDATE SET seq = excluded.seq",
    [OP_PART_MARK] = "INSERT INTO part_marks (job, epoch, part, seq) VALUES (?1, ?2, ?4, ?3) "
                     "ON CONFLICT (job, epoch, part) DO UPDATE SET seq = excluded.seq",
    [OP_UNREADABLE] =
        "UPDATE jobs SET state = ?2, doc = CASE WHEN json_valid('{' || doc || '}') THEN "
        "(SELECT substr(d, 2, length(d) - 2) FROM (SELECT json_remove(json_set("
        "'{' || doc || '}', '$.state', 'failed', '$.phase', 'failed', '$.reason', "
        "json('null'), '$.finished_at', ?7, '$.error', json(?5)), '$.target') AS d)) "
        "ELSE ?6 END WHERE id = ?1",
    [OP_KEY] = "INSERT INTO keys (job, at, key, fingerprint) VALUES (?1, ?2, ?5, ?6)",
    [OP_BLAME] = "INSERT INTO blames (job, at, node) VALUES (?1, ?2, ?5) "
                 "ON CONFLICT (node, job) DO UPDATE SET at = excluded.at",
    [OP_BLAME_END] = "DELETE FROM blames WHERE job = ?1 AND node = ?5",
    [OP_QUARANTINE] = "INSERT INTO quarantine (at, node, reason) VALUES (?1, ?5, ?6) "
                      "ON CONFLICT (node) DO UPDATE SET at = excluded.at, reason = excluded.reason",
    [OP_QUARANTINE_END] = "DELETE FROM quarantine WHERE node = ?5",
    [OP_CORDON] = "INSERT OR REPLACE INTO cordons (at, drains, node, by, reason) "
                  "VALUES (?1, ?2, ?5, ?6, ?7)",
    [OP_CORDON_END] = "DELETE FROM cordons WHERE node = ?5",
    [OP_TOKEN] = "INSERT INTO tokens (id, role, created_at, expires_at, user, hash, label, "
                 "revoked_at, used_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)",
    [OP_TOKEN_REVOKE] = "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at = 0",
    [OP_TOKEN_USED] = "UPDATE tokens SET used_at = ?2 WHERE id = ?1",
    [OP_TOKENS_FORGET] = "DELETE FROM tokens WHERE id < (SELECT max(id) FROM tokens) AND "
                         "(revoked_at > 0 OR (expires_at > 0 AND expires_at <= ?1))",
    [OP_AUDIT] = "INSERT INTO audit (at, token, request, role, status, user, address, action) "
                 "VALUES (?1, ?2, ?3, ?4, ?8, ?5, ?6, ?7)",
    /* Search only the newest rows. If a request has no row among them, it has no row at all. */
    [OP_AUDIT_ANSWER] = "UPDATE audit SET status = ?3, made = ?5 WHERE seq = (SELECT seq FROM "
                        "audit WHERE request = ?2 AND at = ?1 AND status = 0 AND "
                        "seq > (SELECT max(seq) FROM audit) - 10000 ORDER BY seq DESC LIMIT 1)",
    [OP_JOIN_TOKEN] =
        "INSERT INTO join_tokens (id, hash, names, uses, used, created_at, expires_at, number) "
        "VALUES (?5, ?6, ?7, ?1, 0, ?2, ?3, ?4)",
    [OP_JOIN_TOKEN_USE] = "UPDATE join_tokens SET used = used + 1 WHERE id = ?5",
    [OP_JOIN_TOKEN_END] = "DELETE FROM join_tokens WHERE id = ?5",
    [OP_CERTIFICATE] = "INSERT INTO certificates (serial, node, key, token, issued_at, expires_at) "
                       "VALUES (?1, ?5, ?6, ?7, ?2, ?3)",
    [OP_CERTIFICATE_REVOKE] = "UPDATE certificates SET revoked_at = ?1 "
                              "WHERE node = ?5 AND revoked_at IS NULL",
    [OP_CERTIFICATE_END] = "DELETE FROM certificates WHERE serial = ?1",
    [OP_REVOCATION] = "INSERT OR REPLACE INTO revocations (node, at, number) VALUES (?5, ?1, ?2)",
    [OP_REVOCATION_END] = "DELETE FROM revocations WHERE node = ?5",
    [OP_REMOVAL] = "INSERT OR IGNORE INTO removals (job, what, state, at, why, who) "
                   "SELECT ?1, ?2, ?3, ?4, ?5, ?6 FROM jobs WHERE id = ?1 AND " FINAL,
    /* Enter every node to which an attempt of the job was ever given. */
    [OP_REMOVAL_NODES] =
        "INSERT OR IGNORE INTO removal_nodes (job, what, node) SELECT ?1, ?2, node FROM ("
        "SELECT json_extract(data, '$.node') AS node FROM events "
        "WHERE job = ?1 AND type = 1 AND json_valid(data) UNION "
        "SELECT json_extract(p.value, '$.node') FROM events AS e, "
        "json_each(CASE WHEN json_valid(e.data) THEN e.data ELSE '{}' END, '$.nodes') AS p "
        "WHERE e.job = ?1 AND e.type = 1) WHERE typeof(node) = 'text' AND "
        "EXISTS (SELECT 1 FROM jobs WHERE id = ?1 AND " FINAL ") AND "
        "EXISTS (SELECT 1 FROM removals WHERE job = ?1 AND what = ?2 AND state < 2)",
    [OP_REMOVAL_CUT] = "UPDATE ended SET cut = cut | ?2 WHERE job = ?1",
    [OP_REMOVALS_FORGET] = "DELETE FROM removals WHERE seq IN (SELECT seq FROM (SELECT seq, "
                           "done_at FROM removals WHERE state = 3 ORDER BY seq LIMIT ?2) "
                           "WHERE done_at < ?1)",
    /* Keep the newest row, so that no seq is used twice. */
    [OP_AUDIT_FORGET] = "DELETE FROM audit WHERE seq IN (SELECT seq FROM (SELECT seq, at "
                        "FROM audit ORDER BY seq LIMIT ?2) WHERE at < ?1) "
                        "AND seq < (SELECT max(seq) FROM audit)",
    [OP_ORDER] = "INSERT INTO orders (id, at, what, n_jobs, who, jobs, handled, done, finished_at) "
                 "VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 0)",
    [OP_ORDER_COUNT] = "UPDATE orders SET done = done + 1 WHERE id = ?1",
    [OP_ORDER_SET] = "UPDATE orders SET handled = ?2, done = ?3, finished_at = ?4, "
                     "jobs = CASE WHEN ?4 > 0 THEN '' ELSE jobs END WHERE id = ?1",
    /* Keep the newest row, so that no id is used twice. */
    [OP_ORDERS_FORGET] = "DELETE FROM orders WHERE finished_at > 0 AND finished_at < ?1 "
                         "AND id < (SELECT max(id) FROM orders)",
    [OP_ENDED] = ENDED " WHERE id = ?1 AND " FINAL,
    [OP_REMOVAL_HIDE] = "UPDATE jobs SET state = 100 WHERE id = ?1 AND " FINAL,
    [OP_REMOVAL_KEYS] = "DELETE FROM keys WHERE job = ?1 AND "
                        "(SELECT state FROM jobs WHERE id = ?1) = 100",
    [OP_REMOVAL_FILES] = "UPDATE removals SET state = 1, logs_size = logs_size + ?3 "
                         "WHERE job = ?1 AND what = ?2 AND state = 0",
    [OP_REMOVAL_SIZE] = "UPDATE removals SET files_size = files_size + ?3 "
                        "WHERE job = ?1 AND what = ?2 AND EXISTS (SELECT 1 FROM removal_nodes "
                        "WHERE node = ?5 AND job = ?1 AND what = ?2)",
    [OP_REMOVAL_NODE] = "DELETE FROM removal_nodes WHERE node = ?5 AND job = ?1 AND what = ?2",
    [OP_REMOVAL_END] = "UPDATE removals SET state = 3, done_at = ?3 "
                       "WHERE job = ?1 AND what = ?2 AND state = 2 AND NOT EXISTS "
                       "(SELECT 1 FROM removal_nodes WHERE job = ?1 AND what = ?2)",
    [OP_REMOVAL_ERROR] = "UPDATE removal_nodes SET error = ?6 "
                         "WHERE node = ?5 AND job = ?1 AND what = ?2",
    /* Set SCHEMA_NEWER, or SCHEMA_VERSION (schema.c). */
    [OP_NEWER] = "PRAGMA user_version = 2",
    [OP_AS_BEFORE] = "PRAGMA user_version = 1",
    /* An image is that of its job only if it has all of the job's events. */
    [OP_IMAGE] = "INSERT OR REPLACE INTO images (job, seq, data) SELECT ?1, ?2, ?5 "
                 "WHERE (SELECT max(seq) FROM events WHERE job = ?1) = ?2",
    [OP_IMAGE_END] = "DELETE FROM images WHERE job = ?1",
    [OP_REMOVAL_WAITS] = "UPDATE removal_nodes SET error = ?6 "
                         "WHERE node = ?5 AND error IS NOT ?6",
};

void *txn_must(void *p)
{
    if (p) return p;
    log_error("store.memory", "text=\"out of memory\"");
    abort();
}

static struct txn_op *add_op(struct store_txn *t, enum txn_op_type type)
{
    struct txn_op *o = txn_must(calloc(1, sizeof *o));
    o->type = type;
    *t->last = o;
    t->last = &o->next;
    return o;
}

char *txn_copy(const char *s)
{
    return s ? txn_must(strdup(s)) : NULL;
}

struct store_txn *store_begin(void)
{
    struct store_txn *t = txn_must(calloc(1, sizeof *t));
    t->last = &t->first;
    return t;
}

void store_client(struct store_txn *t, store_may *may)
{
    t->client = true;
    t->may = may;
}

void store_job_new(struct store_txn *t, int64_t id, int64_t at_ms, const char *spec,
                   const char *plan, const char *doc, const char *owner)
{
    struct txn_op *o = add_op(t, OP_JOB_NEW);
    t->is_new = t->client = true;
    o->n[0] = id, o->n[1] = JOB_QUEUED, o->n[2] = at_ms;
    o->text[0] = txn_copy(spec), o->text[1] = txn_copy(plan), o->text[2] = txn_copy(doc);
    o->text[3] = txn_copy(owner);
}

void store_job_tag(struct store_txn *t, int64_t id, int state, const char *key, const char *value)
{
    struct txn_op *o = add_op(t, OP_TAG);
    o->n[0] = id, o->n[1] = state;
    o->text[0] = txn_copy(key), o->text[1] = txn_copy(value);
}

void store_labels_remove(struct store_txn *t, int64_t id)
{
    add_op(t, OP_LABELS_END)->n[0] = id;
}

static void set_tag_state(struct store_txn *t, int64_t id, int state)
{
    struct txn_op *o = add_op(t, OP_TAG_STATE);
    o->n[0] = id, o->n[1] = state;
}

void store_job_set(struct store_txn *t, int64_t id, int state, const char *doc)
{
    struct txn_op *o = add_op(t, OP_JOB_SET);
    o->n[0] = id, o->n[1] = state;
    o->text[0] = txn_copy(doc);
    if (job_final((enum job_state)state)) add_op(t, OP_ENDED)->n[0] = id;
    set_tag_state(t, id, state);
}

void store_spec_set(struct store_txn *t, int64_t id, const char *spec, const char *plan)
{
    struct txn_op *o = add_op(t, OP_SPEC);
    o->n[0] = id;
    o->text[0] = txn_copy(spec), o->text[1] = txn_copy(plan);
}

void store_result_set(struct store_txn *t, int64_t id, const char *result)
{
    struct txn_op *o = add_op(t, OP_RESULT);
    o->n[0] = id;
    o->text[0] = txn_copy(result);
}

void store_newer(struct store_txn *t)
{
    add_op(t, OP_NEWER);
}

void store_as_before(struct store_txn *t)
{
    add_op(t, OP_AS_BEFORE);
}

void store_event_add(struct store_txn *t, const struct store_event *ev)
{
    struct txn_op *o = add_op(t, OP_EVENT);
    if (job_event_misread((enum job_event)ev->type)) store_newer(t);
    o->n[0] = ev->job, o->n[1] = ev->epoch, o->n[2] = ev->at_ms, o->n[3] = ev->type;
    o->n[4] = ev->seq;
    o->text[0] = txn_copy(ev->data);
}

void store_metrics_add(struct store_txn *t, int64_t job, const char *data)
{
    struct txn_op *o = add_op(t, OP_METRICS);
    o->n[0] = job;
    o->text[0] = txn_copy(data);
}

void store_mark_set(struct store_txn *t, int64_t job, int64_t epoch, int part, int64_t seq)
{
    struct txn_op *o = add_op(t, part ? OP_PART_MARK : OP_MARK);
    o->n[0] = job, o->n[1] = epoch, o->n[2] = seq, o->n[3] = part;
}

void store_image_set(struct store_txn *t, int64_t job, int64_t seq, uint8_t *image, size_t size)
{
    struct txn_op *o = add_op(t, OP_IMAGE);
    o->n[0] = job, o->n[1] = seq;
    o->text[0] = (char *)image;
    o->blob_size = size;
}

void store_image_remove(struct store_txn *t, int64_t job)
{
    add_op(t, OP_IMAGE_END)->n[0] = job;
}

void store_key_add(struct store_txn *t, const char *key, const char *fingerprint, int64_t job,
                   int64_t at_ms)
{
    struct txn_op *o = add_op(t, OP_KEY);
    o->n[0] = job, o->n[1] = at_ms;
    o->text[0] = txn_copy(key), o->text[1] = txn_copy(fingerprint);
}

void store_blame_add(struct store_txn *t, const char *node, int64_t job, int64_t at_ms)
{
    struct txn_op *o = add_op(t, OP_BLAME);
    o->n[0] = job, o->n[1] = at_ms;
    o->text[0] = txn_copy(node);
}

void store_blame_remove(struct store_txn *t, const char *node, int64_t job)
{
    struct txn_op *o = add_op(t, OP_BLAME_END);
    o->n[0] = job;
    o->text[0] = txn_copy(node);
}

void store_quarantine_add(struct store_txn *t, const char *node, int64_t at_ms, const char *reason)
{
    struct txn_op *o = add_op(t, OP_QUARANTINE);
    o->n[0] = at_ms;
    o->text[0] = txn_copy(node), o->text[1] = txn_copy(reason);
}

void store_quarantine_remove(struct store_txn *t, const char *node)
{
    struct txn_op *o = add_op(t, OP_QUARANTINE_END);
    o->text[0] = txn_copy(node);
}

void store_cordon_set(struct store_txn *t, const char *node, int64_t at_ms, bool drains,
                      const char *by, const char *reason)
{
    struct txn_op *o = add_op(t, OP_CORDON);
    o->n[0] = at_ms, o->n[1] = drains;
    o->text[0] = txn_copy(node), o->text[1] = txn_copy(by), o->text[2] = txn_copy(reason);
}

void store_cordon_remove(struct store_txn *t, const char *node)
{
    struct txn_op *o = add_op(t, OP_CORDON_END);
    o->text[0] = txn_copy(node);
}

void store_token_add(struct store_txn *t, const struct store_token *k)
{
    struct txn_op *o = add_op(t, OP_TOKEN);
    o->n[0] = k->id, o->n[1] = k->role, o->n[2] = k->created_ms, o->n[3] = k->expires_ms;
    o->text[0] = txn_copy(k->user), o->text[1] = txn_copy(k->hash);
    o->text[2] = txn_copy(k->label);
}

void store_token_revoke(struct store_txn *t, int64_t id, int64_t at_ms)
{
    struct txn_op *o = add_op(t, OP_TOKEN_REVOKE);
    o->n[0] = id, o->n[1] = at_ms;
}

void store_token_used(struct store_txn *t, int64_t id, int64_t at_ms)
{
    struct txn_op *o = add_op(t, OP_TOKEN_USED);
    o->n[0] = id, o->n[1] = at_ms;
}

void store_tokens_forget(struct store_txn *t, int64_t now_ms)
{
    add_op(t, OP_TOKENS_FORGET)->n[0] = now_ms;
}

void store_audit_add(struct store_txn *t, const struct store_audit *a)
{
    struct txn_op *o = add_op(t, OP_AUDIT);
    o->n[0] = a->at_ms, o->n[1] = a->token, o->n[2] = a->request, o->n[3] = a->role;
    o->n[4] = a->status;
    o->text[0] = txn_copy(a->user), o->text[1] = txn_copy(a->address);
    o->text[2] = txn_copy(a->action);
}

void store_audit_answer(struct store_txn *t, int64_t at_ms, int64_t request, int status,
                        const char *made)
{
    struct txn_op *o = add_op(t, OP_AUDIT_ANSWER);
    o->n[0] = at_ms, o->n[1] = request, o->n[2] = status;
    o->text[0] = txn_copy(made);
}

void store_join_token_add(struct store_txn *t, const struct store_join_token *row)
{
    struct txn_op *o = add_op(t, OP_JOIN_TOKEN);
    o->n[0] = row->uses, o->n[1] = row->created_ms, o->n[2] = row->expires_ms;
    o->n[3] = row->number;
    o->text[0] = txn_copy(row->id), o->text[1] = txn_copy(row->hash);
    o->text[2] = txn_copy(row->names);
}

void store_join_token_use(struct store_txn *t, const char *id)
{
    add_op(t, OP_JOIN_TOKEN_USE)->text[0] = txn_copy(id);
}

void store_join_token_remove(struct store_txn *t, const char *id)
{
    add_op(t, OP_JOIN_TOKEN_END)->text[0] = txn_copy(id);
}

void store_certificate_add(struct store_txn *t, const struct store_certificate *row)
{
    struct txn_op *o = add_op(t, OP_CERTIFICATE);
    o->n[0] = row->serial, o->n[1] = row->issued_ms, o->n[2] = row->expires_ms;
    o->text[0] = txn_copy(row->node), o->text[1] = txn_copy(row->key);
    o->text[2] = txn_copy(row->token);
}

void store_certificate_revoke(struct store_txn *t, const char *node, int64_t at_ms)
{
    struct txn_op *o = add_op(t, OP_CERTIFICATE_REVOKE);
    o->n[0] = at_ms;
    o->text[0] = txn_copy(node);
}

void store_certificate_remove(struct store_txn *t, int64_t serial)
{
    add_op(t, OP_CERTIFICATE_END)->n[0] = serial;
}

void store_revocation_set(struct store_txn *t, const struct store_revocation *row)
{
    struct txn_op *o = add_op(t, OP_REVOCATION);
    o->n[0] = row->at_ms, o->n[1] = row->number;
    o->text[0] = txn_copy(row->node);
}

void store_revocation_remove(struct store_txn *t, const char *node)
{
    add_op(t, OP_REVOCATION_END)->text[0] = txn_copy(node);
}

void store_job_unreadable(struct store_txn *t, int64_t id, const char *error, const char *at,
                          const char *doc)
{
    struct txn_op *o = add_op(t, OP_UNREADABLE);
    o->n[0] = id, o->n[1] = JOB_FAILED;
    o->text[0] = txn_copy(error), o->text[1] = txn_copy(doc), o->text[2] = txn_copy(at);
    add_op(t, OP_ENDED)->n[0] = id;
    set_tag_state(t, id, JOB_FAILED);
}

/* Returns the first state of a removal in which there is work to do. */
static enum removal_state first_state(const struct removal_row *w)
{
    return w->files ? REMOVAL_FILES : w->rows ? REMOVAL_ROWS : REMOVAL_NODES;
}

void store_removal_add(struct store_txn *t, const struct store_removal *r)
{
    const struct removal_row *w = &removal_rows[r->what];
    struct txn_op *o = add_op(t, OP_REMOVAL);
    o->n[0] = r->job, o->n[1] = r->what, o->n[2] = first_state(w), o->n[3] = r->at_ms;
    o->text[0] = txn_copy(r->why), o->text[1] = txn_copy(r->who);
    if (w->nodes) {
        o = add_op(t, OP_REMOVAL_NODES);
        o->n[0] = r->job, o->n[1] = r->what;
    }
    o = add_op(t, OP_REMOVAL_CUT);
    o->n[0] = r->job;
    o->n[1] = r->what == REMOVAL_JOB ? (1 << REMOVAL_N) - 1 : 1 << r->what;
    if (r->what != REMOVAL_JOB) return;
    add_op(t, OP_REMOVAL_HIDE)->n[0] = r->job;
    add_op(t, OP_REMOVAL_KEYS)->n[0] = r->job;
}

void store_removals_forget(struct store_txn *t, int64_t before_ms, int n)
{
    struct txn_op *o = add_op(t, OP_REMOVALS_FORGET);
    o->n[0] = before_ms, o->n[1] = n;
}

void store_audit_forget(struct store_txn *t, int64_t before_ms, int n)
{
    struct txn_op *o = add_op(t, OP_AUDIT_FORGET);
    o->n[0] = before_ms, o->n[1] = n;
}

void store_ended_fill(struct store_txn *t, int n, int64_t *n_moved)
{
    struct txn_op *o = add_op(t, OP_ENDED_FILL);
    o->n[0] = n;
    o->out = n_moved;
}

void store_removal_files(struct store_txn *t, int64_t job, int what, int64_t size)
{
    struct txn_op *o = add_op(t, OP_REMOVAL_FILES);
    o->n[0] = job, o->n[1] = what, o->n[2] = size;
}

void store_removal_rows(struct store_txn *t, int n, int64_t at_ms, int64_t *n_moved)
{
    struct txn_op *o = add_op(t, OP_REMOVAL_ROWS);
    o->n[0] = n, o->n[1] = at_ms;
    o->out = n_moved;
}

void store_removal_node(struct store_txn *t, int64_t job, int what, const char *node, int64_t size,
                        int64_t at_ms)
{
    struct txn_op *o = add_op(t, OP_REMOVAL_SIZE);
    o->n[0] = job, o->n[1] = what, o->n[2] = size;
    o->text[0] = txn_copy(node);
    o = add_op(t, OP_REMOVAL_NODE);
    o->n[0] = job, o->n[1] = what;
    o->text[0] = txn_copy(node);
    o = add_op(t, OP_REMOVAL_END);
    o->n[0] = job, o->n[1] = what, o->n[2] = at_ms;
}

void store_removal_error(struct store_txn *t, int64_t job, int what, const char *node,
                         const char *error)
{
    struct txn_op *o = add_op(t, OP_REMOVAL_ERROR);
    o->n[0] = job, o->n[1] = what;
    o->text[0] = txn_copy(node), o->text[1] = txn_copy(error);
}

void store_removal_waits(struct store_txn *t, const char *node, const char *why)
{
    struct txn_op *o = add_op(t, OP_REMOVAL_WAITS);
    o->text[0] = txn_copy(node), o->text[1] = txn_copy(why);
}

void store_order_add(struct store_txn *t, const struct store_order *k)
{
    struct txn_op *o = add_op(t, OP_ORDER);
    o->n[0] = k->id, o->n[1] = k->at_ms, o->n[2] = k->what, o->n[3] = k->n_jobs;
    o->text[0] = txn_copy(k->who), o->text[1] = txn_copy(k->jobs);
}

void store_order_count(struct store_txn *t, int64_t id)
{
    add_op(t, OP_ORDER_COUNT)->n[0] = id;
}

void store_order_set(struct store_txn *t, int64_t id, int64_t n_handled, int64_t n_done,
                     int64_t finished_ms)
{
    struct txn_op *o = add_op(t, OP_ORDER_SET);
    o->n[0] = id, o->n[1] = n_handled, o->n[2] = n_done, o->n[3] = finished_ms;
}

void store_orders_forget(struct store_txn *t, int64_t before_ms)
{
    add_op(t, OP_ORDERS_FORGET)->n[0] = before_ms;
}

void txn_free(struct store_txn *t)
{
    for (struct txn_op *o = t->first, *next; o; o = next) {
        next = o->next;
        for (int i = 0; i < 4; i++) free(o->text[i]);
        free(o);
    }
    free(t);
}
