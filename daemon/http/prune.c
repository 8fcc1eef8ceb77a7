/* prune.c: POST /v1/prune, which removes jobs that ended long ago, or only lists them. In both
 * cases the same code finds the jobs, so that a removal removes exactly the jobs that a list
 * shows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job_state.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/removal.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/state/doc.h"

#define LIMIT_NORMAL 100
#define LIMIT_MAX    1000
#define ROW_SIZE     512 /* a row of the answer */

struct prune_job {
    int64_t id, at_ms, rows_size, logs_size;
    int state;
    /* id of a live job that reads this job's files, or 0; this job is removed only if the value is
     * 0 */
    int64_t user;
};

struct prune_request {
    struct routes *R;
    struct http_req *r;
    char who[USER_NAME];
    /* the request */
    int64_t older_ms, limit;
    uint32_t states; /* one bit for each enum job_state */
    int what;
    bool dry_run;
    /* The jobs that were found. */
    struct prune_job *job; /* owns n */
    int n, n_measured;
    bool more;
};

static void prune_free(struct prune_request *p)
{
    free(p->job);
    free(p);
}

static void refuse(struct prune_request *p, const struct err *e)
{
    reply_fail(p->r, e);
    prune_free(p);
}

/* ---- the request ----------------------------------------------------------------------------- */

static int read_states(struct jread *j, uint32_t *states, struct err *e)
{
    char word[32];
    enum jtok t = jread_next(j) == J_ARRAY ? jread_next(j) : J_ERROR;
    for (*states = 0; t == J_STRING; t = jread_next(j)) {
        int state = JOB_SUCCEEDED;
        if (jread_copy(j, word, sizeof word)) word[0] = 0;
        while (state < JOB_STATE_N && strcmp(job_state_name((enum job_state)state), word)) state++;
        if (state == JOB_STATE_N) break;
        *states |= 1u << state;
    }
    if (t == J_ARRAY_END && *states) return 0;
    return err_field(e, ERR_INVALID, "states",
                     "states: want an array of succeeded, failed, cancelled");
}

static int read_older(struct jread *j, int64_t *ms, struct err *e)
{
    char word[32];
    if (jread_next(j) == J_STRING && !jread_copy(j, word, sizeof word) &&
        (*ms = retain_age_ms(word)) > 0)
        return 0;
    return err_field(e, ERR_INVALID, "older_than",
                     "older_than: want an age such as 90d, 12h, 30m or 45s");
}

static int read_what(struct jread *j, int *what, struct err *e)
{
    char word[32];
    if (jread_next(j) == J_STRING && !jread_copy(j, word, sizeof word) &&
        (*what = removal_find(word)) >= 0)
        return 0;
    return err_field(e, ERR_INVALID, "what",
                     "what: want job, events, metrics, logs or checkpoints");
}

static int read_dry_run(struct jread *j, bool *dry_run, struct err *e)
{
    const enum jtok t = jread_next(j);
    *dry_run = t == J_TRUE;
    if (t == J_TRUE || t == J_FALSE) return 0;
    return err_field(e, ERR_INVALID, "dry_run", "dry_run: want true or false");
}

static int read_limit(struct jread *j, int64_t *limit, struct err *e)
{
    if (jread_next(j) == J_NUMBER && !jread_int(j, limit) && *limit >= 1 && *limit <= LIMIT_MAX)
        return 0;
    return err_field(e, ERR_INVALID, "limit", "limit: want a number from 1 to %d", LIMIT_MAX);
}

static int read_member(struct prune_request *p, struct jread *j, struct err *e)
{
    char key[64];
    if (jread_is(j, "older_than")) return read_older(j, &p->older_ms, e);
    if (jread_is(j, "states")) return read_states(j, &p->states, e);
    if (jread_is(j, "what")) return read_what(j, &p->what, e);
    if (jread_is(j, "dry_run")) return read_dry_run(j, &p->dry_run, e);
    if (jread_is(j, "limit")) return read_limit(j, &p->limit, e);
    if (jread_copy(j, key, sizeof key)) key[0] = 0;
    return err_field(e, ERR_INVALID, "",
                     "unknown field \"%.40s\": want older_than, states, what, dry_run, limit", key);
}

static int read_request(struct prune_request *p, struct err *e)
{
    struct jread j;
    size_t size;
    const char *body = http_body(p->r, &size);
    enum jtok t;
    jread_init(&j, body, size);
    if (jread_next(&j) != J_OBJECT) return err_set(e, ERR_INVALID, "the body is not a JSON object");
    while ((t = jread_next(&j)) == J_KEY)
        if (read_member(p, &j, e)) return -1;
    if (t != J_OBJECT_END || jread_next(&j) != J_END)
        return err_set(e, ERR_INVALID, "the body is not one JSON object");
    if (p->older_ms) return 0;
    return err_field(e, ERR_INVALID, "older_than",
                     "older_than is missing: give an age such as 90d");
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void put_job(const struct prune_request *p, struct jwrite *w, const struct prune_job *k)
{
    char at[32];
    jwrite_object(w, NULL);
    jwrite_int(w, "job", k->id);
    jwrite_str(w, "what", removal_rows[p->what].name);
    jwrite_str(w, "state", job_state_name((enum job_state)k->state));
    jwrite_str(w, "ended_at", doc_time(k->at_ms, at));
    jwrite_object(w, "bytes");
    jwrite_int(w, "rows", k->rows_size);
    jwrite_int(w, "logs", k->logs_size);
    jwrite_end(w);
    if (k->user) jwrite_int(w, "read_by", k->user);
    jwrite_end(w);
}

static void put_jobs(const struct prune_request *p, struct jwrite *w, const char *key, bool goes)
{
    jwrite_array(w, key);
    for (int i = 0; i < p->n; i++)
        if (!p->job[i].user == goes) put_job(p, w, &p->job[i]);
    jwrite_end(w);
}

static void reply(struct prune_request *p)
{
    const size_t size = 256 + (size_t)p->n * ROW_SIZE;
    char *out = malloc(size);
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_bool(&w, "dry_run", p->dry_run);
    put_jobs(p, &w, "data", true);
    put_jobs(p, &w, "kept", false);
    jwrite_bool(&w, "has_more", p->more);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(p->r, p->dry_run ? 200 : 202, out);
    free(out);
    prune_free(p);
}

/* ---- removing -------------------------------------------------------------------------------- */

static void on_ordered(void *arg, const struct err *e)
{
    struct prune_request *p = arg;
    removals_wake(control_removals(p->R->control));
    if (e)
        refuse(p, e);
    else
        reply(p);
}

static void order(struct prune_request *p)
{
    struct commits *all = control_commits(p->R->control);
    struct store_txn *t = store_begin();
    store_client(t, NULL);
    for (int i = 0; i < p->n; i++) {
        const struct store_removal r = {p->job[i].id, all->utc_ms(), p->what, "prune", p->who};
        if (!p->job[i].user) store_removal_add(t, &r);
    }
    store_commit(all->store, t, on_ordered, p);
}

/* Looks for live jobs that read the files of the jobs to be removed. This is the last step before
 * the order. So no job that reads these files can be committed between the search and the
 * order. */
static void find_users(struct prune_request *p)
{
    struct retain_uses uses;
    if (!removal_rows[p->what].nodes) return;
    retain_uses_init(&uses, &control_commits(p->R->control)->cluster->jobs);
    for (int i = 0; i < p->n; i++) {
        const struct retain_use *u = retain_uses_find(&uses, p->job[i].id);
        p->job[i].user = u ? u->user : 0;
    }
    retain_uses_fini(&uses);
}

static void measure(struct prune_request *p);

static void on_measured(void *arg, const struct tree *tree, int n, const struct err *e)
{
    struct prune_request *p = arg;
    for (int i = 0; i < n; i++) p->job[p->n_measured++].logs_size = tree[i].size;
    measure(p);
}

static void measure(struct prune_request *p)
{
    int64_t jobs[TREES_BATCH];
    int n = 0;
    const int left = removal_rows[p->what].files ? p->n - p->n_measured : 0;
    for (; n < left && n < TREES_BATCH; n++) jobs[n] = p->job[p->n_measured + n].id;
    if (n) {
        removals_measure(control_removals(p->R->control), jobs, n, on_measured, p);
        return;
    }
    find_users(p);
    if (p->dry_run)
        reply(p);
    else
        order(p);
}

static void on_found(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct prune_request *p = arg;
    if (failed) {
        refuse(p, failed);
        return;
    }
    p->more = rows->n_rows > p->limit;
    p->n = p->more ? (int)p->limit : rows->n_rows;
    p->job = calloc((size_t)p->n + 1, sizeof *p->job);
    if (!p->job) abort();
    for (int i = 0; i < p->n; i++) {
        const int64_t *n = rows->row[i].n;
        p->job[i] = (struct prune_job){
            .id = n[0], .at_ms = n[1], .state = (int)n[2], .rows_size = n[3]};
    }
    measure(p);
}

void route_prune(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct prune_request *p = calloc(1, sizeof *p);
    struct err e;
    if (!p) abort();
    *p = (struct prune_request){.R = R, .r = r, .limit = LIMIT_NORMAL, .what = REMOVAL_JOB};
    memcpy(p->who, a->who.user, sizeof p->who);
    p->states = 1u << JOB_SUCCEEDED | 1u << JOB_FAILED | 1u << JOB_CANCELLED;
    if (read_request(p, &e)) {
        refuse(p, &e);
        return;
    }
    const int64_t before = control_commits(R->control)->utc_ms() - p->older_ms;
    store_read(control_store(R->control), ASK_PRUNE,
               (const int64_t[4]){p->what, before, p->states, p->limit + 1}, NULL, on_found, p);
}
