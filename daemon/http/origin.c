/* origin.c: GET /v1/jobs/{id}/steps/{n}/data. It shows the files, records and offsets from which
 * the tokens of optimizer step n came.
 *
 * The spec alone determines the samples of a step, and the prepared data has the sources of these
 * samples. So the route also works for steps that are not done yet, and long after the job, as
 * long as a node has the data. It reads the spec, the preparation and the preparation's node from
 * the store, and then asks this node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jread.h"
#include "api/core/rank.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/spec/json.h"
#include "daemon/state/event.h"
#include "worker/plan/check.h"
#include "worker/plan/stage.h"

#define FRAGMENTS     100 /* default number of fragments that are listed for each sample */
#define FRAGMENTS_MAX 4096
#define SAMPLES_MAX   64   /* samples in one answer; ?sample= asks for a single one */
#define ASSIGNS       1000 /* number of attempts in which the preparation is searched for */

struct step_origin {
    struct routes *R;
    struct http_req *r;
    /* `sample` is an index in the step, or -1 for all samples; `epoch` is that of the
     * preparation */
    int64_t job, step, sample, epoch;
    struct msg ask;
};

static void fail(struct step_origin *o, const struct err *e)
{
    reply_fail(o->r, e);
    free(o);
}

static void on_traced(void *arg, const struct msg *m, const struct err *e)
{
    struct step_origin *o = arg;
    struct err damaged;
    if (e) {
        fail(o, e);
        return;
    }
    struct jread j;
    jread_init(&j, m->data, m->size);
    if (m->size && jread_next(&j) == J_OBJECT && !jread_skip(&j) && jread_next(&j) == J_END) {
        http_reply(o->r, 200, "application/json", m->data, m->size);
        free(o);
        return;
    }
    err_set(&damaged, ERR_INTERNAL, "the node answered no JSON");
    fail(o, &damaged);
}

static void ask(struct step_origin *o, const char *node)
{
    control_ask(o->R->control, node, &o->ask, on_traced, o);
}

/* Finds the node of the attempt that prepared the data. */
static void on_assigns(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct step_origin *o = arg;
    if (failed) {
        fail(o, failed);
        return;
    }
    struct event *ev = malloc(sizeof *ev);
    struct err e;
    if (!ev) abort();
    for (int i = 0; i < rows->n_rows; i++) {
        const struct store_row *row = &rows->row[i];
        if (row->n[1] != o->epoch) continue;
        if (event_read(row->text[0], strlen(row->text[0]), ev, &e)) break;
        ask(o, ev->node);
        free(ev);
        return;
    }
    free(ev);
    err_set(&e, ERR_NOT_FOUND, "it is not recorded which node prepared the data of job %lld",
            (long long)o->job);
    fail(o, &e);
}

static void on_prepared(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct step_origin *o = arg;
    if (failed) {
        fail(o, failed);
        return;
    }
    struct event *ev = malloc(sizeof *ev);
    struct err e = {0};
    if (!ev) abort();
    int bad = !rows->n_rows;
    if (bad)
        err_set(&e, ERR_CONFLICT, "the data of job %lld is not prepared", (long long)o->job);
    else
        bad = event_read(rows->row[0].text[0], strlen(rows->row[0].text[0]), ev, &e);
    if (bad) {
        fail(o, &e);
    } else {
        o->epoch = rows->row[0].n[1];
        memcpy(o->ask.prepared_id, ev->prepared_id, sizeof o->ask.prepared_id);
        store_read(control_store(o->R->control), ASK_EVENTS,
                   (const int64_t[4]){o->job, 0, ASSIGNS, EV_ASSIGN}, NULL, on_assigns, o);
    }
    free(ev);
}

static const char *word_of(const char *path, int32_t v)
{
    return spec_field(path)->words[v];
}

/* Chooses the samples that the step takes, in the same way as the ranks. */
static int choose_samples(struct step_origin *o, const struct job_spec *s, struct err *e)
{
    const int64_t B = s->train.global_batch;
    struct wire_trace *t = &o->ask.trace;
    if (s->kind != JOB_TRAIN)
        return err_set(e, ERR_INVALID, "job %lld is a %s job: only training has steps",
                       (long long)o->job, spec_kind_name(s->kind));
    if (s->train.steps && o->step > s->train.steps)
        return err_set(e, ERR_NOT_FOUND, "job %lld has %lld steps", (long long)o->job,
                       (long long)s->train.steps);
    if (o->sample >= B)
        return err_field(e, ERR_INVALID, "sample", "a step has %lld samples, counted from 0",
                         (long long)B);
    if (o->sample < 0 && B > SAMPLES_MAX)
        return err_field(
            e, ERR_INVALID, "sample",
            "a step has %lld samples, more than the %d of one answer: give sample=0 to "
            "%lld",
            (long long)B, SAMPLES_MAX, (long long)B - 1);
    const int stage = stage_at(s, o->step - 1);
    t->seq_len = stage_seq_len(s, stage);
    t->seed = s->seed;
    t->first = stage_sample(s, o->step - 1) + (o->sample < 0 ? 0 : o->sample);
    t->count = o->sample < 0 ? B : 1;
    int32_t packing = s->data.packing, overlong = s->data.overlong;
    if (s->data.train[0].format == DATA_LATENTS) { /* as in latents_order_options */
        t->seq_len = JOB_MAX_SEQ;
        packing = PACKING_NONE;
        overlong = OVERLONG_ERROR;
    }
    snprintf(t->packing, sizeof t->packing, "%s%s", word_of("data.packing", packing),
             job_learns_pairs(s) ? TRACE_PAIRS : "");
    snprintf(t->overlong, sizeof t->overlong, "%s", word_of("data.overlong", overlong));
    return 0;
}

static void on_job(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct step_origin *o = arg;
    if (failed) {
        fail(o, failed);
        return;
    }
    struct job_spec *s = malloc(sizeof *s);
    struct err e;
    int rc = -1;
    if (!s) abort();
    if (!rows->n_rows) {
        err_set(&e, ERR_NOT_FOUND, "there is no job %lld", (long long)o->job);
    } else {
        const char *text = rows->row[0].text[1];
        rc = json_spec_read(text, strlen(text), JSON_STORED, s, &e) || family_check(s, &e) ||
             choose_samples(o, s, &e);
    }
    free(s);
    if (rc) {
        fail(o, &e);
        return;
    }
    store_read(control_store(o->R->control), ASK_EVENTS,
               (const int64_t[4]){o->job, 0, 1, EV_PREPARED}, NULL, on_prepared, o);
}

void route_step_data(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct step_origin *o = calloc(1, sizeof *o);
    struct err e;
    if (!o) abort();
    *o = (struct step_origin){.R = R, .r = r, .job = a->id, .step = a->n};
    o->ask.type = MSG_TRACE;
    if (reply_query_int(r, "sample", -1, 0, 65535, &o->sample) ||
        reply_query_int(r, "fragments", FRAGMENTS, 0, FRAGMENTS_MAX, &o->ask.trace.max_fragments)) {
        free(o);
        return;
    }
    if (o->step < 1) {
        err_set(&e, ERR_INVALID, "steps are counted from 1");
        fail(o, &e);
        return;
    }
    store_read(control_store(R->control), ASK_JOB, (const int64_t[4]){a->id}, NULL, on_job, o);
}
