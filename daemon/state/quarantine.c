/* quarantine.c: counts the blames of nodes, begins and ends quarantines, and makes the specs of
 * toy runs. */
#include "daemon/state/quarantine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/log.h"
#include "daemon/spec/json.h"
#include "worker/plan/check.h"

#define MAX_BLAMES                                                                                 \
    2048 /* largest number of blames of the last hour; a further blame replaces the
                         * oldest */

struct blamed {
    char node[NODE_NAME];
    int64_t job, at_ms;
};

struct quarantine {
    int n, n_blames;
    struct quarantined row[NODE_MAX];
    struct blamed blame[MAX_BLAMES]; /* oldest first */
};

struct quarantine *quarantine_create(void)
{
    struct quarantine *q = calloc(1, sizeof *q);
    if (!q) abort();
    return q;
}

void quarantine_destroy(struct quarantine *q)
{
    free(q);
}

const struct quarantined *quarantine_find(const struct quarantine *q, const char *node)
{
    for (int i = 0; i < q->n; i++)
        if (!strcmp(q->row[i].node, node)) return &q->row[i];
    return NULL;
}

const struct quarantined *quarantine_at(const struct quarantine *q, int i)
{
    return i < q->n ? &q->row[i] : NULL;
}

void quarantine_load(struct quarantine *q, const char *node, int64_t at_ms, const char *reason)
{
    if (q->n == NODE_MAX) return;
    struct quarantined *r = &q->row[q->n++];
    *r = (struct quarantined){.at_ms = at_ms};
    snprintf(r->node, sizeof r->node, "%s", node);
    snprintf(r->reason, sizeof r->reason, "%s", reason);
}

/* ---- blames ---------------------------------------------------------------------------------- */

static void remove_blame(struct quarantine *q, struct store_txn *t, int i)
{
    if (t) store_blame_remove(t, q->blame[i].node, q->blame[i].job);
    memmove(&q->blame[i], &q->blame[i + 1], (size_t)(--q->n_blames - i) * sizeof *q->blame);
}

void quarantine_load_blame(struct quarantine *q, const char *node, int64_t job, int64_t at_ms)
{
    if (q->n_blames == MAX_BLAMES) remove_blame(q, NULL, 0);
    struct blamed *b = &q->blame[q->n_blames++];
    *b = (struct blamed){.job = job, .at_ms = at_ms};
    snprintf(b->node, sizeof b->node, "%s", node);
}

static int count_blames(const struct quarantine *q, const char *node)
{
    int n = 0;
    for (int i = 0; i < q->n_blames; i++) n += !strcmp(q->blame[i].node, node);
    return n;
}

/* Removes blames that are older than QUARANTINE_MS, except for blames that caused a quarantine.
 * These are kept until the quarantine ends. */
static void forget_old(struct quarantine *q, struct store_txn *t, int64_t now_ms)
{
    for (int i = q->n_blames - 1; i >= 0; i--)
        if (now_ms - q->blame[i].at_ms >= QUARANTINE_MS && !quarantine_find(q, q->blame[i].node))
            remove_blame(q, t, i);
}

static void add_blame(struct quarantine *q, struct store_txn *t, const char *node, int64_t job,
                      int64_t now_ms)
{
    for (int i = q->n_blames - 1; i >= 0; i--) /* keep only the last blame of each job */
        if (q->blame[i].job == job && !strcmp(q->blame[i].node, node)) remove_blame(q, t, i);
    if (q->n_blames == MAX_BLAMES) remove_blame(q, t, 0);
    quarantine_load_blame(q, node, job, now_ms);
    store_blame_add(t, node, job, now_ms);
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Ends a node's quarantine, and adds the removal of its row to t. Returns false if the node is not
 * in quarantine. */
static bool end_quarantine(struct quarantine *q, struct store_txn *t, const char *node,
                           const char *why)
{
    struct quarantined *r = (struct quarantined *)quarantine_find(q, node);
    if (!r) return false;
    log_info("node.release", "node=%s why=\"%s\"", node, why);
    for (int i = q->n_blames - 1; i >= 0; i--)
        if (!strcmp(q->blame[i].node, node)) remove_blame(q, t, i);
    store_quarantine_remove(t, node);
    *r = q->row[--q->n];
    return true;
}

struct quarantine_ending {
    struct quarantined row;
    int n;
    struct blamed blame[];
};

struct quarantine_ending *quarantine_ending(const struct quarantine *q, struct store_txn *t,
                                            const char *node)
{
    const struct quarantined *row = quarantine_find(q, node);
    if (!row) return NULL;
    const size_t size = (size_t)count_blames(q, node) * sizeof(struct blamed);
    struct quarantine_ending *k = malloc(sizeof *k + size);
    if (!k) abort();
    k->row = *row;
    k->n = 0;
    store_quarantine_remove(t, node);
    for (int i = 0; i < q->n_blames; i++) {
        if (strcmp(q->blame[i].node, node)) continue;
        store_blame_remove(t, node, q->blame[i].job);
        k->blame[k->n++] = q->blame[i];
    }
    return k;
}

/* Removes the rows from memory that were removed from the store. A newer blame or quarantine
 * stays. */
void quarantine_ended(struct quarantine *q, const struct quarantine_ending *k)
{
    struct quarantined *r = (struct quarantined *)quarantine_find(q, k->row.node);
    log_info("node.release", "node=%s why=\"released by hand\"", k->row.node);
    for (int i = q->n_blames - 1; i >= 0; i--)
        for (int m = 0; m < k->n; m++)
            if (q->blame[i].job == k->blame[m].job && q->blame[i].at_ms == k->blame[m].at_ms &&
                !strcmp(q->blame[i].node, k->row.node)) {
                remove_blame(q, NULL, i);
                break;
            }
    if (r && r->at_ms == k->row.at_ms) *r = q->row[--q->n];
}

/* Tells whether `node` is the last node that could take jobs. This is true if every other node is
 * down, is in quarantine, or has neither slots nor GPUs. */
static bool is_last(const struct quarantine *q, const struct nodes *t, const char *node)
{
    for (int i = 0; i < t->n; i++) {
        const struct node *n = &t->node[i];
        if (n->up && n->n_slots + n->n_gpus > 0 && strcmp(n->name, node) &&
            !quarantine_find(q, n->name))
            return false;
    }
    return true;
}

/* Ends the oldest quarantine of a node that is not up. If the table has NODE_MAX rows, one of them
 * is about a node that is not up, because at least two nodes are up and have no row: the node of
 * ev, and the last node that could take jobs (is_last). */
static void make_room(struct quarantine *q, const struct nodes *nodes, struct store_txn *t)
{
    const struct quarantined *oldest = NULL;
    for (int i = 0; i < q->n; i++) {
        const struct node *n = node_find((struct nodes *)nodes, q->row[i].node);
        if (n && n->up) continue;
        if (!oldest || q->row[i].at_ms < oldest->at_ms) oldest = &q->row[i];
    }
    assert(oldest);
    end_quarantine(q, t, oldest->node, "it is away, and its place is needed");
}

static void begin(struct quarantine *q, const struct nodes *nodes, int64_t now_ms,
                  struct store_txn *t, const struct event *ev)
{
    char reason[QUARANTINE_REASON];
    if (q->n == NODE_MAX) make_room(q, nodes, t);
    snprintf(reason, sizeof reason,
             "%d jobs failed to start on it within an hour; job %lld: %.256s", QUARANTINE_JOBS,
             (long long)ev->job, ev->err.text);
    quarantine_load(q, ev->node, ev->at_ms, reason);
    struct quarantined *r = (struct quarantined *)quarantine_find(q, ev->node);
    r->toy_ms = now_ms + QUARANTINE_TOY_MS;
    store_quarantine_add(t, ev->node, ev->at_ms, r->reason);
    log_warn("node.quarantine", "node=%s why=\"%s\"", ev->node, r->reason);
}

static void withdraw(struct quarantine *q, struct store_txn *t, const struct job *j)
{
    char node[NODE_NAME];
    for (int i = q->n_blames - 1; i >= 0; i--) {
        memcpy(node, q->blame[i].node, sizeof node);
        if (q->blame[i].job != j->id || job_leaves(j, node, BLAME_NODE)) continue;
        remove_blame(q, t, i);
        if (count_blames(q, node) < QUARANTINE_JOBS)
            end_quarantine(q, t, node, "a job that blamed it failed the same way elsewhere");
        /* end_quarantine may have removed more blames */
        if (i > q->n_blames) i = q->n_blames;
    }
}

void quarantine_take(struct quarantine *q, const struct nodes *nodes, int64_t now_ms,
                     struct store_txn *t, const struct job *j, const struct event *ev)
{
    if (*j->only) {
        if (ev->type == EV_DONE) end_quarantine(q, t, j->only, "its toy run succeeded");
        return;
    }
    if (ev->blame == BLAME_JOB) withdraw(q, t, j);
    if (ev->blame != BLAME_NODE || !job_leaves(j, ev->node, BLAME_NODE)) return;
    forget_old(q, t, ev->at_ms);
    add_blame(q, t, ev->node, j->id, ev->at_ms);
    if (count_blames(q, ev->node) >= QUARANTINE_JOBS && !quarantine_find(q, ev->node) &&
        !is_last(q, nodes, ev->node))
        begin(q, nodes, now_ms, t, ev);
}

/* ---- the toy run ----------------------------------------------------------------------------- */

static const char toy_json[] =
    "{\"kind\":\"generate\",\"name\":\"toy run\",\"model\":{\"config\":{\"model_type\":\"llama\","
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"intermediate_size\":176,\"vocab_size\":258}},"
    "\"input\":{\"prompt\":\"toy\"},\"sampling\":{\"max_tokens\":8,\"seed\":1},"
    "\"parallel\":{\"strategy\":\"rsa\",\"sp\":%d},"
    "\"resources\":{\"device\":\"%s\",\"ranks\":%d,\"threads\":1},\"limits\":{\"restarts\":0}}";

struct seeking {
    const char *node;
    bool found;
};

static void is_toy(void *arg, struct job *j)
{
    struct seeking *s = arg;
    if (!strcmp(j->only, s->node)) s->found = true;
}

int quarantine_toy(const struct node *n, struct job_spec *spec, struct err *e)
{
    char json[1024];
    int gpus = 0;
    for (int i = 0; i < n->n_gpus; i++) gpus += n->gpu[i].health == GPU_OK;
    const int room = gpus ? gpus : n->n_slots, ranks = room < 2 ? 1 : 2;
    const int size = snprintf(json, sizeof json, toy_json, ranks, gpus ? "cuda" : "cpu", ranks);
    if (json_spec_read(json, (size_t)size, JSON_FOR_PEOPLE, spec, e)) return -1;
    return family_check(spec, e);
}

const struct node *quarantine_due(struct quarantine *q, const struct nodes *nodes,
                                  const struct jobs *jobs, int64_t now_ms)
{
    for (int i = 0; i < q->n; i++) {
        struct quarantined *r = &q->row[i];
        const struct node *n = node_find((struct nodes *)nodes, r->node);
        if (!r->toy_ms)
            r->toy_ms = now_ms + QUARANTINE_TOY_MS; /* the row was loaded from the
                                                                 * store */
        if (now_ms < r->toy_ms || !n || !n->up || n->n_slots + n->n_gpus == 0) continue;
        r->toy_ms = now_ms + QUARANTINE_TOY_MS;
        struct seeking s = {.node = r->node};
        jobs_each((struct jobs *)jobs, is_toy, &s);
        if (!s.found) return n;
    }
    return NULL;
}
