/* batch.c: prepares and submits all jobs of one request. Either all of them are stored, or none.
 *
 *   body -> positions of the specs -> [key known? -> the first answer again]
 *        -> one spec in each turn of the loop: prepare -> commit_batch_add
 *        -> dry_run: reply     else: commit_batch_submit, one transaction -> 201 */
#include "daemon/http/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "daemon/http/key.h"
#include "daemon/http/prepare.h"
#include "daemon/http/reply.h"
#include "daemon/state/doc.h"

/* A request that is being worked on. It exists until it is answered. */
struct spec_batch {
    struct spec_batch *next;
    struct routes *R;
    struct http_req *r;
    struct principal who;
    bool dry_run;
    struct submit_key key;
    int64_t first; /* first job of an earlier batch with the same key */
    int n;
    struct batch_spec { /* borrowed from the body */
        const char *text;
        size_t size;
    } spec[BATCH_JOBS];
    struct preparing *p;       /* owns; NULL until planning begins */
    int at;                    /* index of the next spec */
    struct commit_batch *jobs; /* owns */
    int n_wrong, status;       /* status is that of the first wrong spec */
    char *shown;               /* owns; plan of the first wrong spec, or NULL */
    struct err *wrong;         /* owned [BATCH_WRONG + 1]; NULL while no spec is wrong */
};

static void batch_free(struct spec_batch *b)
{
    key_drop(&b->key);
    commit_batch_destroy(b->jobs);
    free(b->shown);
    free(b->wrong);
    free(b->p);
    free(b);
}

static void drop(struct spec_batch *b)
{
    struct spec_batch **at = &b->R->batches;
    while (*at != b) at = &(*at)->next;
    *at = b->next;
    batch_free(b);
}

void batches_drop(struct routes *R)
{
    while (R->batches) drop(R->batches);
}

static void refuse(struct spec_batch *b, int status, const struct err *e)
{
    reply_problem(b->r, status ? status : reply_status(e->code), e, NULL);
    drop(b);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* An answer {"data":[...]}, which is written row by row. */
struct batch_answer {
    FILE *f;
    char *text;
    size_t size;
    int n;
};

static void answer_begin(struct batch_answer *a, const char *members)
{
    *a = (struct batch_answer){0};
    if (!(a->f = open_memstream(&a->text, &a->size))) abort();
    fprintf(a->f, "{%s\"data\":[", members);
}

static void answer_add(struct batch_answer *a, const char *row)
{
    fprintf(a->f, "%s%s", a->n++ ? "," : "", row);
}

static void answer_end(struct batch_answer *a, struct spec_batch *b, int status)
{
    fputs("]}", a->f);
    if (ferror(a->f) || fclose(a->f)) abort(); /* out of memory */
    reply_json(b->r, status, a->text);
    free(a->text);
    drop(b);
}

static void on_committed(void *arg, const struct commit_batch *jobs, const struct err *e)
{
    struct spec_batch *b = arg;
    struct batch_answer a;
    char *doc = malloc(DOC_JOB_SIZE);
    if (!doc) abort();
    if (e) {
        free(doc);
        refuse(b, e->code == ERR_TOO_LARGE ? 429 : 0, e);
        return;
    }
    answer_begin(&a, "");
    for (int i = 0; i < commit_batch_n(jobs); i++) {
        const struct job *j = commit_batch_job(jobs, i);
        doc_job(j, doc, DOC_JOB_SIZE);
        char *row = doc_shown(j->id, doc, j);
        answer_add(&a, row);
        free(row);
    }
    free(doc);
    answer_end(&a, b, 201);
}

/* Answers with the jobs that would be stored. */
static void reply_dry_run(struct spec_batch *b)
{
    struct batch_answer a;
    answer_begin(&a, "\"dry_run\":true,");
    for (int i = 0; i < commit_batch_n(b->jobs); i++) {
        const struct job *j = commit_batch_job(b->jobs, i);
        const char *name = spec_text(job_spec(j), job_spec(j)->name);
        const size_t size = 6 * strlen(name) + strlen(j->plan) + 128;
        char *row = malloc(size);
        struct jwrite w;
        if (!row) abort();
        jwrite_init(&w, row, size);
        jwrite_object(&w, NULL);
        jwrite_str(&w, "name", name);
        jwrite_str(&w, "kind", spec_kind_name(job_spec(j)->kind));
        jwrite_raw(&w, "plan", *j->plan ? j->plan : "null");
        jwrite_end(&w);
        if (jwrite_finish(&w) < 0) abort();
        answer_add(&a, row);
        free(row);
    }
    answer_end(&a, b, 200);
}

/* Answers a repeated batch with the present state of its jobs. The ids of the jobs are
 * consecutive. `rows` begins with the newest job. */
static void on_first_answer(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct spec_batch *b = arg;
    struct batch_answer a;
    int at = failed ? 0 : rows->n_rows - 1;
    if (failed) {
        refuse(b, 0, failed);
        return;
    }
    answer_begin(&a, "");
    while (at >= 0 && rows->row[at].n[0] < b->first) at--;
    for (int64_t id = b->first; id < b->first + b->n; id++) {
        char gone[64];
        const bool there = at >= 0 && rows->row[at].n[0] == id;
        snprintf(gone, sizeof gone, "{\"id\":%lld,\"removed\":true}", (long long)id);
        char *row = there ? doc_shown(id, rows->row[at].text[0], control_job(b->R->control, id))
                          : NULL;
        answer_add(&a, there ? row : gone);
        free(row);
        at -= there;
    }
    http_set_header(b->r, "Idempotency-Replayed", "true");
    answer_end(&a, b, 201);
}

/* ---- planning -------------------------------------------------------------------------------- */

static void commit_all(struct spec_batch *b)
{
    struct commits *all = control_commits(b->R->control);
    struct commit_batch *jobs = b->jobs;
    const bool key = *b->key.text;
    struct err e;
    if (users_refuse(control_users(b->R->control), &b->who, b->n, &e)) {
        refuse(b, 429, &e);
        return;
    }
    b->jobs = NULL;
    commit_batch_submit(all, jobs, key ? b->key.text : NULL, key ? b->key.fingerprint : NULL,
                        on_committed, b);
}

/* Puts the index of the spec into the field of its error, so that "train.steps" becomes
 * "jobs.17.train.steps". */
static void say_which(const struct spec_batch *b, struct err *e)
{
    char field[sizeof e->field + 16];
    snprintf(field, sizeof field, "jobs.%d%s%s", b->at, *e->field ? "." : "", e->field);
    snprintf(e->field, sizeof e->field, "%.*s", (int)sizeof e->field - 1, field);
    err_prefix(e, "jobs[%d]", b->at);
}

/* Notes a wrong spec. An answer names the first BATCH_WRONG wrong specs and counts the remaining
 * wrong specs. Returns true if the caller should check more specs. Returns false after an error of
 * seqd itself (status 500 and above), because the next spec would fail, too. */
static bool note_wrong(struct spec_batch *b, int status, const struct err *why)
{
    if (!b->wrong && !(b->wrong = calloc(BATCH_WRONG + 1, sizeof *b->wrong))) abort();
    if (b->n_wrong < BATCH_WRONG) {
        b->wrong[b->n_wrong] = *why;
        say_which(b, &b->wrong[b->n_wrong]);
    }
    if (!b->n_wrong++) {
        const char *plan = prepare_shown(b->p, why);
        b->status = status;
        if (plan && !(b->shown = strdup(plan))) abort();
    }
    return status < 500;
}

static void refuse_wrong(struct spec_batch *b)
{
    int n = b->n_wrong;
    if (n > BATCH_WRONG) {
        n = BATCH_WRONG;
        err_field(&b->wrong[n++], ERR_INVALID, "jobs",
                  "and %d more of the %d specs are wrong: the first %d are named",
                  b->n_wrong - BATCH_WRONG, b->n, BATCH_WRONG);
    }
    reply_problems(b->r, b->status, b->wrong, n, b->shown);
    drop(b);
}

static int add(struct spec_batch *b, struct err *e)
{
    const struct preparing *p = b->p;
    const struct commit_new new = {.spec = &p->spec,
                                   .plan = p->plan,
                                   .owner = p->who.user,
                                   .source = p->source.node,
                                   .source_step = p->source.step};
    commit_batch_add(control_commits(b->R->control), b->jobs, &new);
    if (commit_batch_size(b->jobs) <= BATCH_SIZE) return 0;
    return err_field(e, ERR_TOO_LARGE, "jobs",
                     "the first %d jobs and their plans take %d MiB, the limit of a batch: send "
                     "fewer",
                     b->at + 1, BATCH_SIZE >> 20);
}

static void next_turn(struct spec_batch *b);

static void on_prepared(void *arg, int status, const struct err *why)
{
    struct spec_batch *b = arg;
    struct err e;
    if (why && !note_wrong(b, status ? status : reply_status(why->code), why)) {
        refuse_wrong(b);
        return;
    }
    if (!b->n_wrong && add(b, &e)) { /* once a spec is wrong, no spec becomes a job */
        refuse(b, 0, &e);
        return;
    }
    b->at++;
    next_turn(b);
}

static void turn(void *arg)
{
    struct spec_batch *b = arg;
    if (b->at < b->n)
        prepare(b->p, b->spec[b->at].text, b->spec[b->at].size, on_prepared, b);
    else if (b->n_wrong)
        refuse_wrong(b);
    else if (b->dry_run)
        reply_dry_run(b);
    else
        commit_all(b);
}

/* Posts the next turn to the loop, so that calls that were posted in the meantime run before
 * it. */
static void next_turn(struct spec_batch *b)
{
    loop_post(control_commits(b->R->control)->loop, turn, b);
}

static int find_place(const struct spec_batch *b, struct err *e)
{
    int n = 0;
    for (const struct spec_batch *o = b->R->batches; o; o = o->next) {
        if (!o->p) continue;
        if (!strcmp(o->who.user, b->who.user))
            return err_set(e, ERR_TOO_LARGE,
                           "a batch of %s is under way, and one at a time is planned for a user: "
                           "come again when it is answered",
                           b->who.user);
        n++;
    }
    if (n < BATCHES) return 0;
    return err_set(e, ERR_TOO_LARGE, "%d batches of other users are under way: come again soon", n);
}

static void on_key(void *arg, int64_t job, int status, const struct err *why)
{
    struct spec_batch *b = arg;
    struct users *users = control_users(b->R->control);
    struct err e;
    if (why) {
        refuse(b, status, why);
    } else if (job) {
        b->first = job;
        store_read(control_store(b->R->control), ASK_JOBS, (const int64_t[4]){job + b->n, b->n, 0},
                   NULL, on_first_answer, b);
    } else if (find_place(b, &e) || (!b->dry_run && users_refuse(users, &b->who, b->n, &e)) ||
               users_ask_more(users, &b->who, b->n, control_now_ms(b->R->control), &e)) {
        refuse(b, 429, &e);
    } else {
        b->jobs = commit_batch_create();
        if (!(b->p = calloc(1, sizeof *b->p))) abort();
        b->p->R = b->R;
        b->p->who = b->who;
        b->p->goal = PREPARE_SUBMIT;
        next_turn(b);
    }
}

/* ---- the body -------------------------------------------------------------------------------- */

static int read_specs(struct spec_batch *b, struct jread *j, struct err *e)
{
    enum jtok t = jread_next(j);
    char field[32];
    if (t != J_ARRAY) return err_field(e, ERR_INVALID, "jobs", "jobs must be an array of specs");
    for (b->n = 0; (t = jread_next(j)) == J_OBJECT; b->n++) {
        const char *text = j->p - 1;
        if (b->n == BATCH_JOBS)
            return err_field(e, ERR_INVALID, "jobs",
                             "jobs has more than %d specs, the limit of a batch: send several",
                             BATCH_JOBS);
        if (jread_skip(j)) return 0; /* the caller reports the fault */
        b->spec[b->n] = (struct batch_spec){text, (size_t)(j->p - text)};
    }
    if (t == J_ERROR) return 0;
    snprintf(field, sizeof field, "jobs.%d", b->n);
    if (t != J_ARRAY_END)
        return err_field(e, ERR_INVALID, field, "jobs[%d] must be an object: a job's spec", b->n);
    if (b->n) return 0;
    return err_field(e, ERR_INVALID, "jobs", "jobs is empty: give 1 to %d specs", BATCH_JOBS);
}

static int read_body(struct spec_batch *b, struct err *e)
{
    struct jread j;
    size_t size;
    const char *body = http_body(b->r, &size);
    char key[64];
    enum jtok t;
    bool seen = false;
    jread_init(&j, body, size);
    if (jread_next(&j) != J_OBJECT)
        return err_set(e, ERR_INVALID, "the body must be an object, {\"jobs\": [...]}");
    while ((t = jread_next(&j)) == J_KEY) {
        if (!jread_is(&j, "jobs")) {
            if (jread_copy(&j, key, sizeof key)) key[0] = 0;
            return err_set(e, ERR_INVALID, "unknown field \"%.40s\": a batch has jobs alone", key);
        }
        if (seen) return err_field(e, ERR_INVALID, "jobs", "jobs is there twice");
        seen = true;
        if (read_specs(b, &j, e)) return -1;
    }
    if (t != J_OBJECT_END || jread_next(&j) != J_END)
        return err_set(e, ERR_INVALID, "the body is not valid JSON: %.200s", j.err.text);
    return seen ? 0 : err_field(e, ERR_INVALID, "jobs", "jobs is missing: an array of specs");
}

void route_batch(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct err e;
    bool dry_run;
    if (reply_query_dry_run(r, &dry_run)) return;
    struct spec_batch *b = calloc(1, sizeof *b);
    if (!b) abort();
    *b = (struct spec_batch){.R = R, .r = r, .who = a->who, .dry_run = dry_run, .next = R->batches};
    R->batches = b;
    if (users_ask(control_users(R->control), &b->who, control_now_ms(R->control), &e))
        refuse(b, 429, &e);
    else if (read_body(b, &e) ||
             (!dry_run && (key_read(&b->key, R, r, &b->who, &e) || key_hold(&b->key, &e))))
        refuse(b, 0, &e);
    else
        key_find(&b->key, on_key, b);
}
