/* prepared.c: reads the report of a preparation, computes the number of steps from the report, and
 * chooses the form. */
#include "daemon/state/prepared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "worker/plan/form.h"
#include "worker/plan/place.h"

#define PLAN_JSON_SIZE 65536
#define MAX_TOKENS     ((int64_t)1 << 50) /* tokens of a job's data */

struct result {
    struct event ev;
    int64_t per_pass; /* samples */
    struct form_seen seen;
};

/* ---- reading --------------------------------------------------------------------------------- */

static int read_number(struct jread *j, int64_t *out)
{
    return jread_next(j) != J_NUMBER || jread_int(j, out) ? -1 : 0;
}

static int read_traffic(struct jread *j, struct form_traffic *t)
{
    if (jread_next(j) != J_OBJECT) return -1;
    while (jread_next(j) == J_KEY) {
        const int bad = jread_is(j, "messages") ? read_number(j, &t->messages)
                        : jread_is(j, "bytes")  ? read_number(j, &t->bytes)
                                                : jread_skip(j);
        if (bad) return -1;
    }
    return 0;
}

static int read_forms(struct jread *j, struct form_seen *s)
{
    if (jread_next(j) != J_OBJECT) return -1;
    while (jread_next(j) == J_KEY) {
        const int bad = jread_is(j, "samples")      ? read_number(j, &s->n_samples)
                        : jread_is(j, "blockwise")  ? read_traffic(j, &s->blockwise)
                        : jread_is(j, "all_gather") ? read_traffic(j, &s->all_gather)
                                                    : jread_skip(j);
        if (bad) return -1;
    }
    return 0;
}

static int read_result(const char *json, struct result *r)
{
    struct event *ev = &r->ev;
    struct jread j;
    jread_init(&j, json, strlen(json));
    jread_next(&j);
    while (jread_next(&j) == J_KEY) {
        int bad = 0;
        if (jread_is(&j, "prepared_id"))
            bad = jread_next(&j) != J_STRING ||
                  jread_copy(&j, ev->prepared_id, sizeof ev->prepared_id);
        else if (jread_is(&j, "n_tokens"))
            bad = read_number(&j, &ev->n_tokens);
        else if (jread_is(&j, "samples_per_pass"))
            bad = read_number(&j, &r->per_pass);
        else if (jread_is(&j, "forms"))
            bad = read_forms(&j, &r->seen);
        else
            bad = jread_skip(&j);
        if (bad) return -1;
    }
    return *ev->prepared_id && ev->n_tokens > 0 ? 0 : -1;
}

/* Tells whether the values in a node's result are possible. The id is checked because it becomes
 * the name of a directory; the sizes, because they are multiplied later. */
static bool can_be(const struct job *j, const struct result *r)
{
    const int64_t seq_len = job_spec(j)->data.seq_len > 0 ? job_spec(j)->data.seq_len : 1;
    return rank_prepared_id_good(r->ev.prepared_id) && r->ev.n_tokens <= MAX_TOKENS &&
           r->per_pass >= 0 && r->per_pass <= MAX_TOKENS / seq_len;
}

/* ---- the form of ring attention -------------------------------------------------------------- */

/* Makes the plan again, because the plan of the submit was for a different form. */
static void plan_again(struct job *j, const struct job_spec *spec)
{
    struct plan *plan = calloc(1, sizeof *plan);
    char *json = malloc(PLAN_JSON_SIZE);
    struct err e;
    if (!plan || !json) abort();
    if (!plan_try(spec, spec->resources.memory_mib << 20, plan, &e) &&
        plan_json(spec, plan, json, PLAN_JSON_SIZE) > 0) {
        job_set_plan(j, json);
        json = NULL;
    }
    free(json);
    free(plan);
}

/* Puts `reason` before the members of the rank's report. */
static void add_reason(struct event *ev, const char *reason)
{
    char text[512], joined[EVENT_DETAIL_SIZE];
    struct jwrite w;
    jwrite_init(&w, text, sizeof text);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "form_reason", reason);
    jwrite_end(&w);
    const int64_t n = jwrite_finish(&w);
    const char *rest = *ev->detail ? strchr(ev->detail, '{') : NULL;
    if (n < 2) return;
    text[n - 1] = 0; /* removes the closing brace */
    const int wrote = rest ? snprintf(joined, sizeof joined, "%s,%s", text, rest + 1)
                           : snprintf(joined, sizeof joined, "%s}", text);
    if (wrote > 0 && (size_t)wrote < sizeof joined) memcpy(ev->detail, joined, (size_t)wrote + 1);
}

static void choose_form(struct job *j, const struct node *n, struct result *r)
{
    struct job_spec *spec = malloc(sizeof *spec);
    struct machine m = {0};
    char reason[FORM_REASON_SIZE];
    if (!spec) abort();
    job_spec_copy(j, spec);
    if (n && !job_takes_gpus(j)) machine_of_profile(&n->profile, n->n_cores, &m);
    spec->parallel.form = form_choose(spec, &m, &r->seen, reason);
    r->ev.form = 1 + spec->parallel.form;
    add_reason(&r->ev, reason);
    if (spec->parallel.form != FORM_BLOCKWISE) plan_again(j, spec);
    free(spec);
}

void prepared_take(struct job *j, const struct node *node, const struct attempt_part *p,
                   const char *json, struct verdict *v)
{
    struct result r = {.ev = {.type = EV_PREPARED, .rank = -1}};
    if (strlen(json) < sizeof r.ev.detail) memcpy(r.ev.detail, json, strlen(json) + 1);
    const bool read = !read_result(json, &r);
    if (read && can_be(j, &r)) {
        /* A packed pass has per_pass sequences. Each counts with its full length. */
        r.ev.steps = job_steps(job_spec(j),
                               r.per_pass ? r.per_pass * job_spec(j)->data.seq_len : r.ev.n_tokens);
        if (form_waits(job_spec(j))) choose_form(j, node, &r);
        v->type = VERDICT_EVENT;
        v->ev = r.ev;
        return;
    }
    struct event bad = {.type = EV_RANK_EXIT, .rank = 0, .cause = CAUSE_FINAL};
    err_set(&bad.err, ERR_INVALID, "the preparation found no tokens in the data");
    if (read) {
        bad.cause = CAUSE_INFRASTRUCTURE;
        err_set(&bad.err, ERR_PEER,
                "node %s prepared the data and sent a result that cannot be right: prepared_id "
                "'%s', n_tokens %lld, samples_per_pass %lld",
                p->place.node, r.ev.prepared_id, (long long)r.ev.n_tokens, (long long)r.per_pass);
    }
    if (!attempt_alive(j)) return;
    memcpy(bad.node, p->place.node, sizeof bad.node);
    v->type = VERDICT_FAIL;
    v->ev = bad;
}
