/* choice.c: weighs products of axes, strategies, groups and exchanges in nested loops, keeps the
 * best options, and searches for the longest sequence that fits. */
#include "worker/plan/choice.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/plan/check.h"
#include "worker/plan/form.h"
#include "worker/plan/place.h"
#include "worker/plan/product.h"
#include "worker/plan/rules.h"
#include "worker/plan/strategy.h"
#include "worker/plan/weigh.h"

/* Returns the limit of a rank's memory in bytes, or 0 if there is none. */
static int64_t limit_of(const struct job_spec *s)
{
    return s->resources.memory_mib << 20;
}

/* Makes the plan of w->spec. Returns 1 if the plan fits, 0 if it does not fit, and -1 if no plan
 * can be made. */
static int try_plan(struct weighing *w)
{
    struct err e = {0};
    if (plan_try(w->spec, limit_of(w->spec), w->plan, &e) == 0) return 1;
    return e.code == ERR_DOES_NOT_FIT && w->plan->arena_size > 0 ? 0 : -1;
}

bool weigh_set(struct weighing *w, const struct option *o)
{
    struct err e;
    *w->spec = *w->asked;
    w->spec->parallel.strategy = o->strategy;
    w->spec->parallel.exchange = o->exchange;
    w->spec->parallel.sp = o->sp;
    w->spec->parallel.dp = o->dp;
    if (o->pp > 1) w->spec->parallel.pp = o->pp;
    if (o->tp > 1) w->spec->parallel.tp = o->tp;
    if (o->zero_group) w->spec->parallel.zero_group = o->zero_group;
    if (o->ulysses) w->spec->parallel.ulysses = o->ulysses;
    return family_check(w->spec, &e) == 0;
}

static bool set_best(struct weighing *w)
{
    return weigh_set(w, &w->out->option[0]);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Describes w->plan as an option. w->plan was made from s. */
static struct option option_of(const struct weighing *w, const struct job_spec *s, bool fits)
{
    const struct plan *p = w->plan;
    struct option o = {.strategy = p->strategy,
                       .form = p->form,
                       .layout = p->layout,
                       .exchange = s->parallel.exchange,
                       .sp = p->sp,
                       .dp = p->dp,
                       .pp = p->pp,
                       .tp = p->tp,
                       .zero_group = s->parallel.zero_group,
                       .ulysses = strategy_row(p->strategy)->rings ? p->ulysses : 0,
                       .fits = fits,
                       .recompute = p->recompute,
                       .mlp_chunk = p->mlp_chunk,
                       .offload = plan_offload_id(p),
                       .size = p->arena_size + p->segment_size};
    for (int i = 0; i < PURPOSE_N; i++) {
        o.bytes += larger(p->comm[i].bytes_sent, p->comm[i].bytes_received);
        o.messages += larger(p->comm[i].messages_sent, p->comm[i].messages_received);
    }
    if (w->out->timed) machine_estimate(w->m, s, p, &o.time);
    const bool divides = o.pp > job_stages(w->asked) || o.tp > job_tp(w->asked);
    o.cost_s = divides ? o.time.step_s / (1 - CHOICE_GAIN) : o.time.step_s;
    return o;
}

bool weigh_try(struct weighing *w, struct option *out)
{
    const int fits = try_plan(w);
    if (fits < 0) return false;
    *out = option_of(w, w->spec, fits);
    return true;
}

void weigh_append(struct weighing *w, const struct option *o)
{
    struct choice *c = w->out;
    if (c->n_compared == CHOICE_COMPARED) return;
    c->option[c->n + c->n_compared++] = *o;
}

/* Inserts *o before the first option that is worse than *o. If the list is full, drops the worst
 * option. */
static void keep(struct choice *c, const struct option *o)
{
    int at = c->n;
    while (at > 0 && weigh_better(c, o, &c->option[at - 1])) at--;
    if (at == CHOICE_OPTIONS) return;
    if (c->n < CHOICE_OPTIONS) c->n++;
    memmove(&c->option[at + 1], &c->option[at], (size_t)(c->n - at - 1) * sizeof *o);
    c->option[at] = *o;
}

/* Tells whether the search has reached a limit. The limit of time applies only if an option has
 * been weighed. */
static bool at_limit(const struct weighing *w)
{
    const struct choice_how *h = w->how;
    if (w->out->n_plans >= (h->most_plans ? h->most_plans : CHOICE_PLANS)) return true;
    return w->out->n && h->clock_ms && h->clock_ms(h->arg) >= w->end_ms;
}

static void weigh(struct weighing *w, const struct option *question)
{
    struct choice *c = w->out;
    struct option o;
    if (at_limit(w) || !weigh_set(w, question)) return;
    c->n_plans++;
    if (!weigh_try(w, &o)) return;
    if (!c->n_weighed++) w->first = o;
    c->n_fit += o.fits;
    keep(c, &o);
}

/* Weighs groups of every size. A single group of all ranks is "ulysses", and groups of one rank
 * are "rsa". So these two sizes are left out, unless the job asks for groups. */
static void weigh_groups(struct weighing *w, struct option o)
{
    const bool all = w->asked->parallel.strategy == o.strategy;
    for (o.ulysses = all ? 1 : 2; o.ulysses <= (all ? o.sp : o.sp / 2); o.ulysses++)
        if (o.sp % o.ulysses == 0) weigh(w, &o);
}

/* Weighs a strategy. If the job leaves the exchange of states or the size of groups open, weighs
 * each of their values. */
static void weigh_strategy(struct weighing *w, struct option o, enum strategy_id strategy)
{
    const int32_t asked = w->asked->parallel.exchange;
    const struct strategy_row *row = strategy_row(strategy);
    const bool any = row->states && o.sp > 1 && asked == EXCHANGE_AUTO;
    const int first = any ? EXCHANGE_RING : asked, last = any ? EXCHANGE_SCAN : asked;
    o.strategy = strategy;
    for (o.exchange = first; o.exchange <= last; o.exchange++)
        if (row->rings && !w->asked->parallel.ulysses && o.sp > 1)
            weigh_groups(w, o);
        else
            weigh(w, &o);
}

/* Weighs strategies in the order of the list. If two strategies are equally fast, the first of
 * them in the list wins. */
static void weigh_strategies(struct weighing *w, const struct option *o)
{
    const int32_t asked = w->asked->parallel.strategy;
    if (asked != STRATEGY_AUTO) {
        weigh_strategy(w, *o, (enum strategy_id)asked);
        return;
    }
    for (int id = STRATEGY_AUTO + 1; id < STRATEGY_N; id++) {
        const struct strategy_row *row = strategy_row(id);
        if (row->rings && w->how->ungrouped) continue;
        if ((row->splits == SPLITS_ANY) == (o->sp == 1))
            weigh_strategy(w, *o, (enum strategy_id)id);
    }
}

/* Weighs the strategies of one product. If grouped is set, weighs them a second time with ZeRO's
 * groups within nodes. */
static void weigh_product(struct weighing *w, const struct axes *a, bool grouped)
{
    struct option o = {.sp = a->sp, .dp = a->dp, .pp = a->pp, .tp = a->tp};
    if (at_limit(w)) return;
    weigh_strategies(w, &o);
    o.zero_group = grouped ? product_zero_group(a, w->m->ranks_per_node) : 0;
    if (o.zero_group) weigh_strategies(w, &o);
    w->out->products_weighed += !at_limit(w);
}

/* Returns the axes that the spec sets. An axis that it does not set is 0. */
static struct axes said_of(const struct job_spec *s)
{
    return (struct axes){
        .dp = s->parallel.dp, .pp = s->parallel.pp, .sp = s->parallel.sp, .tp = s->parallel.tp};
}

static bool same_axes(const struct axes *a, const struct axes *b)
{
    return a->dp == b->dp && a->pp == b->pp && a->sp == b->sp && a->tp == b->tp;
}

/* Weighs the products other than the first product. If times are not known, stops at the first
 * product that fits. If grouped is set, weighs each product a second time with ZeRO's groups
 * within a node. */
static void weigh_others(struct weighing *w, const struct axes *first, int ranks, bool grouped)
{
    struct axes product[PRODUCTS_MAX];
    const struct axes said = said_of(w->asked);
    struct choice *c = w->out;
    const int n = products_of(&said, ranks, w->m->ranks_per_node, product);
    c->n_products = 1;
    for (int i = 0; i < n; i++) c->n_products += !same_axes(&product[i], first);
    for (int i = 0; i < n; i++) {
        if (same_axes(&product[i], first)) continue;
        weigh_product(w, &product[i], grouped);
        if (c->timed || !c->n || !c->option[0].fits) continue;
        /* times are not known, so the first product that fits is used */
        c->n_products = c->products_weighed;
        return;
    }
}

/* Weighs the product that job_check makes of the spec. It is used unless a different product is
 * better. The other products are weighed if one of them may be faster, or if the product of
 * job_check does not fit. */
static void weigh_all(struct weighing *w)
{
    const struct job_spec *a = w->asked;
    struct choice *c = w->out;
    struct err e;
    *w->spec = *a;
    if (family_check(w->spec, &e)) return;
    const int ranks = w->spec->resources.ranks;
    const struct axes first = {.dp = w->spec->parallel.dp,
                               .pp = job_stages(w->spec),
                               .sp = w->spec->parallel.sp,
                               .tp = job_tp(w->spec)};
    const bool trains = a->kind == JOB_TRAIN;
    const bool faster = trains && c->timed && !a->parallel.sp && !a->parallel.dp;
    /* If the job asks for a size of groups, this size is kept. */
    const bool grouped = faster && !a->parallel.zero_group && !w->how->ungrouped;
    c->n_products = 1;
    weigh_product(w, &first, grouped);
    if (faster || (trains && c->n && !c->option[0].fits)) weigh_others(w, &first, ranks, grouped);
}

bool weigh_better(const struct choice *c, const struct option *a, const struct option *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return a->size < b->size;
    return c->timed && a->cost_s < b->cost_s;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static bool is_diffusion(const struct job_spec *s)
{
    return family_diffusion(&s->model.shape);
}

/* Tells whether sequences of n tokens fit. For a video model, tells whether a video of n frames of
 * the asked size fits. If positions are rows of a table, the table has as many rows as the model
 * says. If the model does not give that number, the table has as many rows as the longest sequence
 * needs. */
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
        if (said && !rules_positions(w->spec, n)) return false;
        if (!said) m->max_pos = n + m->first_pos;
    }
    return try_plan(w) == 1;
}

/* A length, and the bytes of a rank for it; 0 if they are not known. */
struct length {
    int64_t n, size;
};

/* Guesses the length between two lengths, of which `fits` fits and `fails` does not, at which the
 * memory is used up. While no length is known that is too long, the guess is four times the
 * longest that fits. Otherwise it lies on the line through two sizes, for memory grows nearly in
 * proportion to the length; every third guess is the middle, which bounds their number. */
static int64_t guess(const struct length *fits, const struct length *fails, int64_t limit, int i)
{
    const int64_t middle = fits->n + (fails->n - fits->n) / 2;
    if (fails->n > JOB_MAX_SEQ) return 4 * fits->n < fails->n ? 4 * fits->n : middle;
    if (!fits->size || fails->size <= fits->size || i % 3 == 2) return middle;
    const double share = (double)(limit - fits->size) / (double)(fails->size - fits->size);
    const int64_t at = fits->n + (int64_t)(share * (double)(fails->n - fits->n));
    return at <= fits->n ? fits->n + 1 : at >= fails->n ? fails->n - 1 : at;
}

/* Finds the longest sequence that fits. The search works because memory grows with the length. */
static int64_t longest(struct weighing *w)
{
    struct length fits = {is_diffusion(w->spec) ? 1 : w->spec->parallel.sp, 0};
    struct length fails = {JOB_MAX_SEQ + 1, 0};
    const int64_t limit = limit_of(w->spec);
    if (!fits_at(w, fits.n)) return 0;
    for (int i = 0; fails.n - fits.n > 1; i++) {
        const int64_t n = guess(&fits, &fails, limit, i);
        const int fit = fits_at(w, n);
        *(fit ? &fits : &fails) = (struct length){n, w->plan->arena_size + w->plan->segment_size};
    }
    return fits.n;
}

static void find_limits(struct weighing *w)
{
    struct choice *c = w->out;
    const struct option *b = &c->option[0], *wide = b->sp < w->first.sp ? &w->first : b;
    if (limit_of(w->asked) <= 0 || job_generates(w->asked)) return;
    const struct option *both[] = {b, wide};
    int64_t found[2] = {0};
    for (int i = 0; i < (wide == b ? 1 : 2); i++)
        if (weigh_set(w, both[i])) found[i] = longest(w);
    c->max_seq_len = found[0];
    c->longest = wide == b ? found[0] : found[1];
    c->frames = is_diffusion(w->asked);
    if (!c->frames && w->asked->data.seq_len > 0)
        c->max_batch = found[0] / w->asked->data.seq_len * b->dp;
}

/* Estimates a whole step on one rank, to show how much time more ranks save. */
static void alone(struct weighing *w)
{
    struct estimate t;
    *w->spec = *w->asked;
    w->spec->resources.ranks = w->spec->parallel.sp = w->spec->parallel.dp = 1;
    w->spec->parallel.pp = w->spec->parallel.tp = 0;
    w->spec->parallel.zero_group = w->spec->parallel.ulysses = 0;
    w->spec->parallel.strategy = STRATEGY_LOCAL;
    w->spec->parallel.layout = LAYOUT_AUTO;
    struct err e;
    if (!w->out->timed || family_check(w->spec, &e) || try_plan(w) != 1) return;
    machine_estimate(w->m, w->spec, w->plan, &t);
    w->out->alone_s = t.step_s;
}

void choice_make(const struct job_spec *asked, const struct machine *m,
                 const struct choice_how *how, struct choice *out)
{
    struct weighing w = {.asked = asked,
                         .m = m,
                         .how = how,
                         .end_ms = how->clock_ms ? how->clock_ms(how->arg) : 0,
                         .spec = calloc(1, sizeof *w.spec),
                         .plan = calloc(1, sizeof *w.plan),
                         .out = out};
    if (!w.spec || !w.plan) abort();
    w.end_ms += w.end_ms < INT64_MAX - CHOICE_MS ? CHOICE_MS : 0;
    *out = (struct choice){.timed = m->known};
    weigh_all(&w);
    out->asked = out->n == 1 && asked->parallel.strategy != STRATEGY_AUTO;
    if (out->n) {
        alone(&w);
        out->waits = set_best(&w) && form_waits(w.spec);
        choice_explain(w.spec, out);
        if (how->limits) weigh_compared(&w);
        if (how->limits) find_limits(&w);
    }
    free(w.spec);
    free(w.plan);
}

void choice_set(const struct option *o, struct job_spec *s)
{
    s->parallel.strategy = o->strategy;
    s->parallel.layout = o->layout;
    s->parallel.exchange = o->exchange;
    s->parallel.sp = o->sp;
    s->parallel.dp = o->dp;
    if (o->pp > 1) s->parallel.pp = o->pp; /* 1 is the default */
    if (o->tp > 1) s->parallel.tp = o->tp;
    s->parallel.zero_group = o->zero_group;
    s->parallel.ulysses = o->ulysses;
}

void choice_apply(const struct choice *c, struct job_spec *s)
{
    if (c->n) choice_set(&c->option[0], s);
}
