/* prepare_plan.c: plans a job, on a thread of the planner, unless a job with the same plan_key has
 * been planned before.
 *
 *   choice_make -> choice_set -> family_check -> plan_asked -> the plan as JSON */
#include "daemon/http/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "daemon/http/routes.h"
#include "daemon/loop/plan_cache.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/choice.h"
#include "worker/plan/place.h"

/* Appends the members that describe the choice to the plan's JSON object. */
static void extend_plan(struct preparing *p, const struct choice *c)
{
    enum { MORE = PREPARE_PLAN_SIZE / 2 };
    char *more = malloc(MORE);
    struct jwrite w;
    size_t n = strlen(p->plan);
    if (!more) abort();
    jwrite_init(&w, more, MORE);
    jwrite_object(&w, NULL);
    choice_write(c, &p->machine, p->goal == PREPARE_SUBMIT ? CHOICE_STORED : CHOICE_OPTIONS, &w);
    jwrite_end(&w);
    if (jwrite_finish(&w) > 2 && n && n + strlen(more) < sizeof p->plan)
        snprintf(p->plan + n - 1, sizeof p->plan - n + 1, ",%s", more + 1);
    free(more);
}

/* Completes the job as the user wrote it by the members that are known by now. */
static void complete_asked(struct preparing *p)
{
    const int64_t positions = p->asked.model.shape.max_pos;
    p->asked.model.shape = p->spec.model.shape;
    if (spec_new_model(&p->spec)) p->asked.model.shape.max_pos = positions; /* as written */
    p->asked.resources = p->spec.resources;
}

/* Finds the best choice for every "auto". */
static void choose(struct preparing *p, struct choice *c, struct plan_made *m)
{
    const struct choice_how how = {.limits = p->goal != PREPARE_SUBMIT,
                                   .ungrouped = p->older,
                                   .clock_ms = planner_clock_ms,
                                   .arg = p->R->planner};
    if (p->spec.kind != JOB_MERGE) choice_make(&p->asked, &p->machine, &how, c);
    m->chosen = c->n;
    if (c->n) m->best = c->option[0];
}

/* Refuses a model that differs from the model with which the checkpoint was made, because the
 * checkpoint's tensors have the sizes of that model. */
static int check_made(const struct preparing *p, struct err *e)
{
    char is[32], was[32];
    const struct model_shape *m = &p->spec.model.shape;
    const struct field *f = p->resumes ? shape_difference(m, &p->made) : NULL;
    if (!f) return 0;
    return err_field(e, ERR_INVALID, spec_new_model(&p->spec) ? f->path : "model.path",
                     "%s is %s, and checkpoint.resume is %s, of a model in which it is %s: leave "
                     "it as it was, or train a new model without checkpoint.resume",
                     f->path, shape_text(m, f, is),
                     spec_text(&p->spec, p->spec.checkpoint.resume_path),
                     shape_text(&p->made, f, was));
}

/* Checks the job, in which the choice has replaced every "auto". */
static int check_choice(struct preparing *p, struct err *e)
{
    return family_check(&p->spec, e) || check_made(p, e) ? -1 : 0;
}

/* Copies the plan's choices about memory, except recompute, to the job. For that reason the nodes
 * need not choose again, and nodes whose version does not know these choices are not used. The
 * loss chunk is copied, too, because a training sums its gradients one loss chunk at a time. If a
 * different version chose a chunk of a different size, the bits of the gradients would differ. */
static void keep_memory(struct preparing *p, const struct plan_made *m)
{
    struct job_spec *s = &p->spec;
    if (s->kind == JOB_TRAIN && !s->memory.loss_chunk_tokens && m->loss_chunk < m->T)
        s->memory.loss_chunk_tokens = m->loss_chunk;
    if (s->memory.mlp_chunk_tokens < 0 && m->mlp_chunk) s->memory.mlp_chunk_tokens = m->mlp_chunk;
    if (m->stores) s->memory.offload = m->offload;
    if (s->kind == JOB_GENERATE && !s->infer.batch) s->infer.batch = m->batch;
    if (s->kind == JOB_SERVE && !s->serve.max_requests) s->serve.max_requests = m->batch;
}

static void take_memory(const struct plan *plan, struct plan_made *m)
{
    m->loss_chunk = plan->loss_chunk;
    m->T = plan->T;
    m->mlp_chunk = plan->mlp_chunk;
    m->stores = plan_stores(plan);
    m->offload = plan_offload_id(plan);
    m->batch = plan->batch;
}

/* Makes the plan of the job with its choice, and the plan's text. */
static int make(struct preparing *p, const struct choice *c, struct plan_made *m)
{
    struct plan *plan = calloc(1, sizeof *plan);
    struct err *e = &m->why;
    if (!plan) abort();
    const int bad = plan_asked(&p->asked, &p->spec, &p->limits, plan, e);
    take_memory(plan, m);
    if (!bad) keep_memory(p, m);
    /* If the job does not fit, the refusal shows its plan. If the job was refused before it was
     * planned, there is no plan. */
    if (!bad || (e->code == ERR_DOES_NOT_FIT && plan->n_ranks)) {
        if (plan_json(&p->spec, plan, p->plan, sizeof p->plan) < 0) p->plan[0] = 0;
        extend_plan(p, c);
    }
    free(plan);
    m->text = p->plan;
    return bad;
}

/* Plans a job that was not planned before, and keeps the plan. */
static int plan_anew(struct preparing *p, const uint8_t key[PLAN_KEY_SIZE])
{
    struct plan_made m = {0};
    struct choice *c = calloc(1, sizeof *c);
    if (!c) abort();
    choose(p, c, &m);
    choice_apply(c, &p->spec);
    int bad = check_choice(p, &p->why);
    if (!bad) {
        bad = make(p, c, &m);
        p->why = m.why;
        /* when the planner ends, it ends a search early */
        if (!errands_ending(p->R->planner)) plan_cache_keep(p->R->plans, key, &m);
    }
    free(c);
    return bad;
}

/* Applies a plan that was made for another job with the same key. */
static int plan_again(struct preparing *p, struct plan_made *m)
{
    if (m->chosen) choice_set(&m->best, &p->spec);
    int bad = check_choice(p, &p->why);
    if (!bad) {
        snprintf(p->plan, sizeof p->plan, "%s", m->text);
        p->why = m->why;
        bad = m->why.code ? -1 : 0;
        if (!bad) keep_memory(p, m);
    }
    free(m->text);
    return bad;
}

void prepare_plan(void *preparing)
{
    struct preparing *p = preparing;
    uint8_t key[PLAN_KEY_SIZE];
    struct plan_made m;
    complete_asked(p);
    const struct plan_question q = {
        &p->asked, &p->spec, &p->machine, &p->limits, p->goal != PREPARE_SUBMIT, p->older};
    plan_key(&q, key);
    p->bad = plan_cache_find(p->R->plans, key, &m) ? plan_again(p, &m) : plan_anew(p, key);
}
