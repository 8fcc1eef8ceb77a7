#include "worker/plan/choice.h"

#include <stdlib.h>
#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/plan/check.h"
#include "worker/plan/form.h"
#include "worker/plan/strategy.h"
#include "worker/plan/weigh.h"

int64_t weigh_limit(const struct job_spec *s)
{
    return s->resources.memory_mib << 20;
}

/* Makes the plan of w->spec. Returns 1 when it fits, 0 when it does not, -1 when it is no plan. */
static int try_plan(struct weighing *w)
{
    struct err e = {0};
    if (plan_make(w->spec, weigh_limit(w->spec), w->plan, &e) == 0) return 1;
    return e.code == ERR_DOES_NOT_FIT && w->plan->arena_size > 0 ? 0 : -1;
}

bool weigh_set(struct weighing *w, enum strategy_id strategy, enum exchange_id exchange, int sp,
               int dp)
{
    struct err e;
    *w->spec = *w->asked;
    w->spec->parallel.strategy = strategy;
    w->spec->parallel.exchange = exchange;
    w->spec->parallel.sp = sp;
    w->spec->parallel.dp = dp;
    return family_check(w->spec, &e) == 0;
}

bool weigh_best(struct weighing *w)
{
    const struct option *b = &w->out->option[w->out->best];
    return weigh_set(w, (enum strategy_id)b->strategy, (enum exchange_id)b->exchange, b->sp, b->dp);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct option weigh_option(const struct weighing *w, const struct job_spec *s, bool fits)
{
    const struct plan *p = w->plan;
    struct option o = {.strategy = p->strategy,
                       .form = p->form,
                       .layout = p->layout,
                       .exchange = s->parallel.exchange,
                       .sp = p->sp,
                       .dp = p->dp,
                       .runs = true,
                       .fits = fits,
                       .recompute = p->recompute,
                       .mlp_chunk = p->mlp_chunk,
                       .size = p->arena_size + p->segment_size};
    for (int i = 0; i < PURPOSE_N; i++) {
        o.bytes += larger(p->comm[i].bytes_sent, p->comm[i].bytes_received);
        o.messages += larger(p->comm[i].messages_sent, p->comm[i].messages_received);
    }
    if (w->out->timed) machine_estimate(w->m, s, p, &o.time);
    return o;
}

struct option *weigh_try(struct weighing *w)
{
    struct choice *c = w->out;
    const int fits = try_plan(w), n = c->n + c->n_compared;
    if (fits < 0 || n == CHOICE_OPTIONS) return NULL;
    c->option[n] = weigh_option(w, w->spec, fits);
    return &c->option[n];
}

static void weigh(struct weighing *w)
{
    if (weigh_try(w)) w->out->n++;
}

/* Every exchange of states where the strategy has one; else as asked. */
static void weigh_strategy(struct weighing *w, enum strategy_id strategy, int sp, int dp)
{
    const int32_t asked = w->asked->parallel.exchange;
    const bool any = strategy_row(strategy)->states && sp > 1 && asked == EXCHANGE_AUTO;
    const int first = any ? EXCHANGE_RING : asked, last = any ? EXCHANGE_SCAN : asked;
    for (int x = first; x <= last; x++)
        if (weigh_set(w, strategy, (enum exchange_id)x, sp, dp)) weigh(w);
}

/* In the list's order, which decides where times are equal. */
static void weigh_degree(struct weighing *w, int sp, int dp)
{
    const int32_t asked = w->asked->parallel.strategy;
    if (asked != STRATEGY_AUTO) {
        weigh_strategy(w, (enum strategy_id)asked, sp, dp);
        return;
    }
    for (int id = STRATEGY_AUTO + 1; id < STRATEGY_N; id++)
        if ((strategy_row(id)->splits == SPLITS_ANY) == (sp == 1))
            weigh_strategy(w, (enum strategy_id)id, sp, dp);
}

/* What job_check makes of the spec comes first: it is what runs where nothing else is better. */
static void weigh_all(struct weighing *w)
{
    const struct job_spec *a = w->asked;
    struct err e;
    *w->spec = *a;
    if (family_check(w->spec, &e)) return;
    const int ranks = w->spec->resources.ranks, sp = w->spec->parallel.sp;
    const bool degrees = !a->parallel.sp && !a->parallel.dp && a->kind == JOB_TRAIN;
    weigh_degree(w, sp, ranks / sp);
    for (int d = ranks; degrees && w->out->timed && d >= 1; d--)
        if (ranks % d == 0 && d != sp) weigh_degree(w, d, ranks / d);
}

bool weigh_better(const struct choice *c, const struct option *a, const struct option *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return a->size < b->size;
    return c->timed && a->time.step_s < b->time.step_s;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static bool is_diffusion(const struct job_spec *s)
{
    return family_diffusion(&s->model.shape);
}

/* n: tokens, or of a video frames as large as the asked ones. Positions that are rows of a table
 * are as many as the model says, or as the longest sequence has. */
static bool fits_at(struct weighing *w, int64_t n)
{
    struct model_shape *m = &w->spec->model.shape;
    w->spec->n_stages = 0;
    if (is_diffusion(w->spec))
        w->spec->data.frames = n;
    else
        w->spec->data.seq_len = n;
    if (family_row(m)->position_table) {
        const bool said = !spec_new_model(w->spec) ||
                          w->asked->model.shape.max_pos != CHOICE_ANY_POSITIONS;
        if (said && n > family_positions(m)) return false;
        if (!said) m->max_pos = n + m->first_pos;
    }
    return try_plan(w) == 1;
}

/* Memory grows with the length, so that halving finds the longest. */
static int64_t longest(struct weighing *w)
{
    int64_t fits = is_diffusion(w->spec) ? 1 : w->spec->parallel.sp, fails = JOB_MAX_SEQ + 1;
    if (!fits_at(w, fits)) return 0;
    while (fails - fits > 1) {
        const int64_t mid = fits + (fails - fits) / 2;
        *(fits_at(w, mid) ? &fits : &fails) = mid;
    }
    return fits;
}

static void find_limits(struct weighing *w)
{
    struct choice *c = w->out;
    const struct option *b = &c->option[c->best], *wide = b;
    if (weigh_limit(w->asked) <= 0 || w->asked->kind == JOB_GENERATE) return;
    for (int i = 0; i < c->n; i++)
        if (c->option[i].sp > wide->sp) wide = &c->option[i];
    const struct option *both[] = {b, wide};
    int64_t found[2] = {0};
    for (int i = 0; i < (wide == b ? 1 : 2); i++)
        if (weigh_set(w, (enum strategy_id)both[i]->strategy, (enum exchange_id)both[i]->exchange,
                      both[i]->sp, both[i]->dp))
            found[i] = longest(w);
    c->max_seq_len = found[0];
    c->longest = wide == b ? found[0] : found[1];
    c->frames = is_diffusion(w->asked);
    if (!c->frames && w->asked->data.seq_len > 0)
        c->max_batch = found[0] / w->asked->data.seq_len * b->dp;
}

/* The whole step on one rank, for what the others gain. */
static void alone(struct weighing *w)
{
    struct estimate t;
    *w->spec = *w->asked;
    w->spec->resources.ranks = w->spec->parallel.sp = w->spec->parallel.dp = 1;
    w->spec->parallel.zero_group = 0;
    w->spec->parallel.strategy = STRATEGY_LOCAL;
    w->spec->parallel.layout = LAYOUT_AUTO;
    struct err e;
    if (!w->out->timed || family_check(w->spec, &e) || try_plan(w) != 1) return;
    machine_estimate(w->m, w->spec, w->plan, &t);
    w->out->alone_s = t.step_s;
}

void choice_make(const struct job_spec *asked, const struct machine *m, bool limits,
                 struct choice *out)
{
    struct weighing w = {.asked = asked,
                         .m = m,
                         .spec = calloc(1, sizeof *w.spec),
                         .plan = calloc(1, sizeof *w.plan),
                         .out = out};
    if (!w.spec || !w.plan) abort();
    *out = (struct choice){.timed = m->known};
    weigh_all(&w);
    for (int i = 1; i < out->n; i++)
        if (weigh_better(out, &out->option[i], &out->option[out->best])) out->best = i;
    out->asked = out->n == 1 && asked->parallel.strategy != STRATEGY_AUTO;
    if (out->n) {
        alone(&w);
        out->waits = weigh_best(&w) && form_waits(w.spec);
        choice_explain(asked, w.spec, out);
        if (limits) weigh_compared(&w);
        if (limits) find_limits(&w);
    }
    free(w.spec);
    free(w.plan);
}

void choice_apply(const struct choice *c, struct job_spec *s)
{
    const struct option *b = &c->option[c->best];
    if (!c->n) return;
    s->parallel.strategy = b->strategy;
    s->parallel.layout = b->layout;
    s->parallel.exchange = b->exchange;
    s->parallel.sp = b->sp;
    s->parallel.dp = b->dp;
}
