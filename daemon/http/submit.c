/* POST /v1/jobs and POST /v1/plan.
 *
 *   body -> json_spec_read -> names_resolve, refs_resolve -> family_check
 *        -> [DESCRIBE to a node, for model.path -> family_check]
 *        -> plan_make -> plan: reply     dry_run: reply
 *                        submit: [key known? -> the first answer again] -> commit_submit -> 201 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/device.h"
#include "api/core/job.h"
#include "api/core/job_paths.h"
#include "api/core/jwrite.h"
#include "api/core/sha256.h"
#include "daemon/gpus.h"
#include "daemon/http/job_json.h"
#include "daemon/http/refs.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/json.h"
#include "daemon/names.h"
#include "daemon/uploads.h"
#include "worker/family/config.h"
#include "worker/family/family.h"
#include "worker/plan/check.h"
#include "worker/plan/choice.h"

#define PLAN_JSON_SIZE 65536
#define MAX_KEY        255

enum goal { GOAL_PLAN, GOAL_DRY_RUN, GOAL_SUBMIT };

/* One POST on its way; lives until it is answered. */
struct posting {
    struct routes *R;
    struct http_req *r;
    enum goal goal;
    struct posting *next; /* among those that hold an Idempotency-Key */
    bool holds_key;
    int64_t first; /* the job of the same key */
    struct principal who;
    struct refs_found source;          /* what job:ID led to */
    struct names_grants grants;        /* of a DESCRIBE */
    char key[USER_NAME + MAX_KEY + 1]; /* "USER KEY": each user has keys of its own */
    char fingerprint[SHA256_HEX];
    char plan[PLAN_JSON_SIZE];
    struct job_spec spec;
    struct job_spec asked;    /* as it was written: what "auto" stood for is weighed later */
    struct hardware hardware; /* to plan for, instead of the nodes that are here */
};

static void drop(struct posting *p)
{
    struct posting **at = &p->R->in_flight;
    while (p->holds_key && *at && *at != p) at = &(*at)->next;
    if (p->holds_key && *at) *at = p->next;
    free(p);
}

static void refuse(struct posting *p, int status, const struct err *e)
{
    bool plan = e->code == ERR_DOES_NOT_FIT && *p->plan;
    reply_problem(p->r, status ? status : reply_status(e->code), e, plan ? p->plan : NULL);
    drop(p);
}

/* ---- the last step: a job -------------------------------------------------------------------- */

static void location(struct http_req *r, int64_t id)
{
    char text[64];
    snprintf(text, sizeof text, "/v1/jobs/%lld", (long long)id);
    http_set_header(r, "Location", text);
}

static void on_submitted(void *arg, const struct job *j, const struct err *e)
{
    struct posting *p = arg;
    if (e) {
        refuse(p, e->code == ERR_TOO_LARGE ? 429 : 0, e);
        return;
    }
    char *json = job_json_new(j);
    location(p->r, j->id);
    reply_json(p->r, 201, json);
    free(json);
    drop(p);
}

static void submit(struct posting *p)
{
    struct commit_new s = {.spec = &p->spec,
                           .plan = p->plan,
                           .owner = p->who.user,
                           .source = p->source.node,
                           .source_step = p->source.step};
    struct err e;
    if (users_refuse(control_users(p->R->control), &p->who, &e)) {
        refuse(p, 429, &e);
        return;
    }
    if (*p->key) s.key = p->key, s.fingerprint = p->fingerprint;
    commit_submit(control_commits(p->R->control), &s, on_submitted, p);
}

/* ---- Idempotency-Key ------------------------------------------------------------------------- */

static void on_first_answer(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct posting *p = arg;
    struct err e;
    if (failed) {
        refuse(p, 0, failed);
        return;
    }
    if (!rows->n_rows) {
        err_set(&e, ERR_INTERNAL, "the job of this Idempotency-Key is gone");
        refuse(p, 0, &e);
        return;
    }
    char *json = job_json(p->R->control, p->first, &rows->row[0]);
    http_set_header(p->r, "Idempotency-Replayed", "true");
    reply_json(p->r, 201, json);
    free(json);
    drop(p);
}

static void on_key(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct posting *p = arg;
    struct err e;
    if (failed) {
        refuse(p, 0, failed);
        return;
    }
    if (!rows->n_rows) {
        submit(p);
        return;
    }
    const struct store_row *row = &rows->row[0];
    if (strcmp(row->text[0], p->fingerprint)) {
        err_set(&e, ERR_INVALID, "this Idempotency-Key came before with another body (job %lld)",
                (long long)row->n[0]);
        refuse(p, 422, &e);
        return;
    }
    p->first = row->n[0];
    location(p->r, p->first);
    store_read(control_store(p->R->control), ASK_JOB, (const int64_t[4]){p->first}, NULL,
               on_first_answer, p);
}

/* Returns -1 after having answered. */
static int take_key(struct posting *p)
{
    struct err e;
    for (struct posting *q = p->R->in_flight; q; q = q->next) {
        if (strcmp(q->key, p->key)) continue;
        err_set(&e, ERR_CONFLICT, "a request with this Idempotency-Key is still under way");
        refuse(p, 409, &e);
        return -1;
    }
    p->holds_key = true;
    p->next = p->R->in_flight;
    p->R->in_flight = p;
    return 0;
}

/* ---- planning -------------------------------------------------------------------------------- */

/* The node with the most memory: what a job is planned for. NULL: none is up. */
static const struct node *largest_node(const struct posting *p)
{
    const struct nodes *t = control_nodes(p->R->control);
    const struct node *largest = NULL;
    for (int i = 0; i < t->n; i++)
        if (t->node[i].up && (!largest || t->node[i].memory_size > largest->memory_size))
            largest = &t->node[i];
    return largest;
}

static bool on_gpus(const struct posting *p)
{
    return device_find(spec_text(&p->spec, p->spec.resources.device))->is_gpu;
}

/* A rank has a GPU of its own and no more memory than that has. Its speed has not been measured. */
static void find_gpus(struct posting *p, struct machine *m)
{
    struct gpus_offer o;
    int64_t *mib = &p->spec.resources.memory_mib;
    gpus_offer(control_nodes(p->R->control), p->spec.resources.ranks, &o);
    m->memory = gpus_limit(&o);
    if (o.memory_size && (!*mib || *mib > m->memory >> 20)) *mib = m->memory >> 20;
}

/* Adds to an error that says what does not fit the memory into which it does not. */
static void say_gpu(const struct posting *p, struct err *e)
{
    struct gpus_offer o;
    const size_t n = strlen(e->text);
    gpus_offer(control_nodes(p->R->control), p->spec.resources.ranks, &o);
    if (e->code != ERR_DOES_NOT_FIT || !o.memory_size || p->hardware.given || !on_gpus(p)) return;
    snprintf(e->text + n, sizeof e->text - n,
             "; the smallest of the %d largest GPUs here, %s on node %s, has %lld MiB, of which "
             "%lld are CUDA's own",
             p->spec.resources.ranks, o.gpu, o.node, (long long)(o.memory_size >> 20),
             (long long)(GPU_RESERVE >> 20));
}

/* What the ranks would run on, and what one of them may use when the job does not say: its share of
 * that node. Frozen in the spec, so that the plan shown here and the rank's own are the same. */
static void find_machine(struct posting *p, struct machine *m)
{
    const struct node *n = largest_node(p);
    int64_t *mib = &p->spec.resources.memory_mib;
    if (p->hardware.given) {
        machine_of_hardware(&p->hardware, m);
        if (!*mib || *mib > m->memory >> 20) *mib = m->memory >> 20;
        return;
    }
    *m = (struct machine){0};
    if (on_gpus(p)) {
        find_gpus(p, m);
        return;
    }
    if (n) machine_of_profile(&n->profile, n->n_cores, m);
    if (n && !*mib) *mib = (n->memory_size >> 20) / p->spec.resources.ranks;
}

/* Adds the members of an open object after those of the plan. */
static void extend_plan(struct posting *p, const struct choice *c, const struct machine *m)
{
    static char more[PLAN_JSON_SIZE / 2]; /* the loop thread's */
    struct jwrite w;
    size_t n = strlen(p->plan);
    jwrite_init(&w, more, sizeof more);
    jwrite_object(&w, NULL);
    choice_write(c, m, &w);
    jwrite_end(&w);
    if (jwrite_finish(&w) <= 2 || !n || n + strlen(more) >= sizeof p->plan) return;
    snprintf(p->plan + n - 1, sizeof p->plan - n + 1, ",%s", more + 1);
}

/* Everything that is "auto" becomes what is best, once and for all. */
static int choose(struct posting *p, const struct machine *m, struct choice *c, struct err *e)
{
    const int64_t positions = p->asked.model.shape.max_pos;
    p->asked.model.shape = p->spec.model.shape;
    if (spec_new_model(&p->spec)) p->asked.model.shape.max_pos = positions; /* if it was said */
    p->asked.resources = p->spec.resources;
    choice_make(&p->asked, m, p->goal != GOAL_SUBMIT, c);
    choice_apply(c, &p->spec);
    return family_check(&p->spec, e);
}

static void reply_plan(struct posting *p)
{
    char *spec = malloc(JSON_SPEC_SIZE), *out = malloc(JSON_SPEC_SIZE + PLAN_JSON_SIZE + 64);
    if (!spec || !out) abort();
    json_spec_write(&p->spec, JSON_FOR_PEOPLE, spec, JSON_SPEC_SIZE);
    snprintf(out, JSON_SPEC_SIZE + PLAN_JSON_SIZE + 64, "{%s\"plan\":%s,\"spec_effective\":%s}",
             p->goal == GOAL_DRY_RUN ? "\"dry_run\":true," : "", p->plan, spec);
    reply_json(p->r, 200, out);
    free(spec);
    free(out);
    drop(p);
}

static void make_plan(struct posting *p)
{
    struct err e = {0};
    struct machine m;
    struct plan *plan = calloc(1, sizeof *plan);
    struct choice *c = calloc(1, sizeof *c);
    if (!plan || !c) abort();
    find_machine(p, &m);
    int bad = p->goal != GOAL_PLAN && gpus_refuse(control_nodes(p->R->control), &p->spec, &e);
    if (!bad) bad = choose(p, &m, c, &e);
    if (!bad) bad = plan_make(&p->spec, p->spec.resources.memory_mib << 20, plan, &e);
    p->plan[0] = 0;
    /* A job that does not fit is shown with its plan; one that was refused before has none. */
    if (!bad || (e.code == ERR_DOES_NOT_FIT && plan->n_ranks)) {
        if (plan_json(&p->spec, plan, p->plan, sizeof p->plan) < 0) p->plan[0] = 0;
        extend_plan(p, c, &m);
    }
    if (bad) say_gpu(p, &e);
    free(plan);
    free(c);
    if (bad) {
        refuse(p, 0, &e);
        return;
    }
    if (p->goal != GOAL_SUBMIT)
        reply_plan(p);
    else if (*p->key)
        store_read(control_store(p->R->control), ASK_KEY, NULL, p->key, on_key, p);
    else
        submit(p);
}

static void on_described(void *arg, const struct msg *m, const struct err *e)
{
    struct posting *p = arg;
    struct err bad;
    if (e) {
        bad = *e;
        if (!*bad.field) snprintf(bad.field, sizeof bad.field, "model.path");
        refuse(p, bad.code == ERR_NOT_FOUND || bad.code == ERR_CORRUPT ? 400 : 0, &bad);
        return;
    }
    memcpy(p->spec.model.config, m->config, sizeof p->spec.model.config);
    if (config_open(&p->spec, &bad) || family_check(&p->spec, &bad))
        refuse(p, 0, &bad);
    else
        make_plan(p);
}

static void describe_or_plan(struct posting *p)
{
    const char *path = spec_text(&p->spec, p->spec.model.path);
    struct msg m = {.type = MSG_DESCRIBE};
    struct err e;
    if (!*path) {
        make_plan(p);
        return;
    }
    if (strlen(path) >= sizeof m.path) {
        err_field(&e, ERR_INVALID, "model.path", "model.path is longer than %zu bytes",
                  sizeof m.path - 1);
        refuse(p, 0, &e);
        return;
    }
    snprintf(m.path, sizeof m.path, "%s", path);
    names_grants(&p->spec, p->R->uploads ? uploads_files(p->R->uploads) : NULL, &p->grants);
    m.grants = p->grants.list;
    m.n_grants = p->grants.n;
    /* What a job left is on one node. */
    const bool held = job_ref_is(path) && *p->source.node;
    control_ask(p->R->control, held ? p->source.node : NULL, &m, on_described, p);
}

/* ---- the first step -------------------------------------------------------------------------- */

static int read_key(struct posting *p, struct err *e)
{
    const char *key = http_header(p->r, "idempotency-key");
    if (!key || p->goal != GOAL_SUBMIT) return 0;
    size_t n = strlen(key);
    if (!n || n > MAX_KEY)
        return err_set(e, ERR_INVALID, "Idempotency-Key must have 1 to %d bytes", MAX_KEY);
    snprintf(p->key, sizeof p->key, "%s %s", p->who.user, key);
    size_t size;
    const char *body = http_body(p->r, &size);
    char *canonical = json_canonical(body, size, e);
    if (!canonical) return -1;
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, canonical, strlen(canonical));
    sha256_hex(&sha, p->fingerprint);
    free(canonical);
    return 0;
}

/* The devices are the ranks. */
static int take_hardware(struct posting *p, struct err *e)
{
    int32_t *ranks = &p->spec.resources.ranks;
    if (!p->hardware.given) return 0;
    if (!*ranks) *ranks = p->hardware.devices;
    if (*ranks == p->hardware.devices) return 0;
    return err_field(e, ERR_INVALID, "hardware.devices",
                     "hardware.devices %d is not resources.ranks %d: a device is a rank, leave one "
                     "of them out",
                     p->hardware.devices, *ranks);
}

/* The body, as far as it can be judged without a node. */
static int read_body(struct posting *p, struct err *e)
{
    size_t size;
    const char *body = http_body(p->r, &size);
    const struct names_of names = {p->R->uploads, p->R->state_dir};
    int bad = p->goal == GOAL_PLAN ? json_plan_read(body, size, &p->spec, &p->hardware, e)
                                   : json_spec_read(body, size, JSON_FOR_PEOPLE, &p->spec, e);
    return bad || take_hardware(p, e) || names_resolve(&p->spec, &names, &p->who, e) ? -1 : 0;
}

static void on_refs(void *arg, const struct refs_found *found, const struct err *why)
{
    struct posting *p = arg;
    struct err e;
    if (why) {
        refuse(p, 0, why);
        return;
    }
    p->source = *found;
    p->asked = p->spec;
    if (family_check(&p->spec, &e) || read_key(p, &e)) {
        refuse(p, 0, &e);
        return;
    }
    if (*p->key && take_key(p)) return;
    describe_or_plan(p);
}

static void start(struct routes *R, struct http_req *r, const struct principal *who, enum goal goal)
{
    struct posting *p = calloc(1, sizeof *p);
    struct err e;
    if (!p) abort();
    p->R = R;
    p->r = r;
    p->who = *who;
    p->goal = goal;
    if (users_ask(control_users(R->control), who, control_now_ms(R->control), &e)) {
        refuse(p, 429, &e);
        return;
    }
    if (read_body(p, &e)) {
        refuse(p, 0, &e);
        return;
    }
    refs_resolve(R, &p->spec, who, on_refs, p);
}

void route_submit(struct routes *R, struct http_req *r, const struct route_match *a)
{
    const char *dry = http_query(r, "dry_run");
    struct err e;
    if (dry && strcmp(dry, "true") && strcmp(dry, "false")) {
        err_field(&e, ERR_INVALID, "dry_run", "dry_run must be true or false");
        reply_fail(r, &e);
        return;
    }
    start(R, r, &a->who, dry && !strcmp(dry, "true") ? GOAL_DRY_RUN : GOAL_SUBMIT);
}

void route_plan(struct routes *R, struct http_req *r, const struct route_match *a)
{
    start(R, r, &a->who, GOAL_PLAN);
}
