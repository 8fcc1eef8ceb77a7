#include "daemon/store/txn.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/job_state.h"
#include "api/core/log.h"

const char *const txn_sql[OP_N] = {
    [OP_JOB_NEW] = "INSERT INTO jobs (id, state, created_at, spec, plan, doc, owner) "
                   "VALUES (?1, ?2, ?3, ?5, ?6, ?7, ?9)",
    [OP_JOB_SET] = "UPDATE jobs SET state = ?2, doc = ?5 WHERE id = ?1",
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
    [OP_TOKEN] = "INSERT INTO tokens (id, role, created_at, expires_at, user, hash, label, "
                 "revoked_at, used_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)",
    [OP_TOKEN_REVOKE] = "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at = 0",
    [OP_TOKEN_USED] = "UPDATE tokens SET used_at = ?2 WHERE id = ?1",
    [OP_AUDIT] = "INSERT INTO audit (at, token, request, role, status, user, address, action) "
                 "VALUES (?1, ?2, ?3, ?4, ?8, ?5, ?6, ?7)",
    [OP_JOIN_TOKEN] =
        "INSERT INTO join_tokens (id, hash, names, uses, used, created_at, expires_at) "
        "VALUES (?5, ?6, ?7, ?1, 0, ?2, ?3)",
    [OP_JOIN_TOKEN_USE] = "UPDATE join_tokens SET used = used + 1 WHERE id = ?5",
    [OP_JOIN_TOKEN_END] = "DELETE FROM join_tokens WHERE id = ?5",
    [OP_CERTIFICATE] = "INSERT INTO certificates (serial, node, key, token, issued_at, expires_at) "
                       "VALUES (?1, ?5, ?6, ?7, ?2, ?3)",
    [OP_CERTIFICATE_REVOKE] = "UPDATE certificates SET revoked_at = ?1 "
                              "WHERE node = ?5 AND revoked_at IS NULL",
    [OP_CERTIFICATE_END] = "DELETE FROM certificates WHERE serial = ?1",
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

void store_job_new(struct store_txn *t, int64_t id, int64_t at_ms, const char *spec,
                   const char *plan, const char *doc, const char *owner)
{
    struct txn_op *o = add_op(t, OP_JOB_NEW);
    t->is_new = true;
    o->n[0] = id, o->n[1] = JOB_QUEUED, o->n[2] = at_ms;
    o->text[0] = txn_copy(spec), o->text[1] = txn_copy(plan), o->text[2] = txn_copy(doc);
    o->text[3] = txn_copy(owner);
}

void store_job_set(struct store_txn *t, int64_t id, int state, const char *doc)
{
    struct txn_op *o = add_op(t, OP_JOB_SET);
    o->n[0] = id, o->n[1] = state;
    o->text[0] = txn_copy(doc);
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

void store_event_add(struct store_txn *t, const struct store_event *ev)
{
    struct txn_op *o = add_op(t, OP_EVENT);
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

void store_audit_add(struct store_txn *t, const struct store_audit *a)
{
    struct txn_op *o = add_op(t, OP_AUDIT);
    o->n[0] = a->at_ms, o->n[1] = a->token, o->n[2] = a->request, o->n[3] = a->role;
    o->n[4] = a->status;
    o->text[0] = txn_copy(a->user), o->text[1] = txn_copy(a->address);
    o->text[2] = txn_copy(a->action);
}

void store_join_token_add(struct store_txn *t, const struct store_join_token *row)
{
    struct txn_op *o = add_op(t, OP_JOIN_TOKEN);
    o->n[0] = row->uses, o->n[1] = row->created_ms, o->n[2] = row->expires_ms;
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

void store_job_unreadable(struct store_txn *t, int64_t id, const char *error, const char *at,
                          const char *doc)
{
    struct txn_op *o = add_op(t, OP_UNREADABLE);
    o->n[0] = id, o->n[1] = JOB_FAILED;
    o->text[0] = txn_copy(error), o->text[1] = txn_copy(doc), o->text[2] = txn_copy(at);
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
