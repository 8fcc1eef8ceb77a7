#include "worker/plan/choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensor parallelism is there to be compared with, and only when asked for. In order of preference
 * where times are equal. */
static const enum strategy_id strategies[] = {STRATEGY_LOCAL, STRATEGY_DSP, STRATEGY_LASP,
                                              STRATEGY_RSA, STRATEGY_ULYSSES};
#define N_STRATEGIES ((int)(sizeof strategies / sizeof *strategies))

struct weighing {
    const struct job_spec *asked;
    const struct machine *m;
    struct job_spec *spec; /* the alternative */
    struct plan *plan;
    struct choice *out;
};

static int64_t limit_of(const struct job_spec *s)
{
    return s->resources.memory_mib << 20;
}

/* Makes the plan of w->spec. Returns 1 when it fits, 0 when it does not, -1 when it is no plan. */
static int try_plan(struct weighing *w)
{
    struct err e = {0};
    if (plan_make(w->spec, limit_of(w->spec), w->plan, &e) == 0) return 1;
    return e.code == ERR_DOES_NOT_FIT && w->plan->arena_size > 0 ? 0 : -1;
}

/* Sets the alternative. False where job_check refuses it. */
static bool set(struct weighing *w, enum strategy_id strategy, enum exchange_id exchange, int sp,
                int dp)
{
    struct err e;
    *w->spec = *w->asked;
    w->spec->parallel.strategy = strategy;
    w->spec->parallel.exchange = exchange;
    w->spec->parallel.sp = sp;
    w->spec->parallel.dp = dp;
    return job_check(w->spec, &e) == 0;
}

static void weigh(struct weighing *w)
{
    struct choice *c = w->out;
    const struct job_spec *s = w->spec;
    const int fits = try_plan(w);
    if (fits < 0 || c->n == CHOICE_OPTIONS) return;
    struct option *o = &c->option[c->n++];
    *o = (struct option){.strategy = w->plan->strategy,
                         .layout = w->plan->layout,
                         .exchange = s->parallel.exchange,
                         .sp = w->plan->sp,
                         .dp = w->plan->dp,
                         .fits = fits,
                         .recompute = w->plan->recompute,
                         .size = w->plan->arena_size + w->plan->segment_size};
    if (c->timed) machine_estimate(w->m, s, w->plan, &o->time);
}

/* Every exchange of states where the strategy has one; else as asked. */
static void weigh_strategy(struct weighing *w, enum strategy_id strategy, int sp, int dp)
{
    const int32_t asked = w->asked->parallel.exchange;
    const bool any = strategy == STRATEGY_LASP && sp > 1 && asked == EXCHANGE_AUTO;
    const int first = any ? EXCHANGE_RING : asked, last = any ? EXCHANGE_SCAN : asked;
    for (int x = first; x <= last; x++)
        if (set(w, strategy, (enum exchange_id)x, sp, dp)) weigh(w);
}

static void weigh_degree(struct weighing *w, int sp, int dp)
{
    const int32_t asked = w->asked->parallel.strategy;
    if (asked != STRATEGY_AUTO) {
        weigh_strategy(w, (enum strategy_id)asked, sp, dp);
        return;
    }
    for (int i = 0; i < N_STRATEGIES; i++)
        if ((strategies[i] == STRATEGY_LOCAL) == (sp == 1))
            weigh_strategy(w, strategies[i], sp, dp);
}

/* What job_check makes of the spec comes first: it is what runs where nothing else is better. */
static void weigh_all(struct weighing *w)
{
    const struct job_spec *a = w->asked;
    struct err e;
    *w->spec = *a;
    if (job_check(w->spec, &e)) return;
    const int ranks = w->spec->resources.ranks, sp = w->spec->parallel.sp;
    const bool degrees = !a->parallel.sp && !a->parallel.dp && a->kind == JOB_TRAIN;
    weigh_degree(w, sp, ranks / sp);
    for (int d = ranks; degrees && w->out->timed && d >= 1; d--)
        if (ranks % d == 0 && d != sp) weigh_degree(w, d, ranks / d);
}

/* Less is better. What does not fit comes behind all that does, by its size. */
static bool better(const struct choice *c, const struct option *a, const struct option *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return a->size < b->size;
    return c->timed && a->time.step_s < b->time.step_s;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static bool fits_at(struct weighing *w, int64_t seq_len)
{
    w->spec->data.seq_len = seq_len;
    w->spec->n_stages = 0;
    return try_plan(w) == 1;
}

/* Memory grows with the length, so that halving finds the longest. */
static int64_t longest(struct weighing *w)
{
    int64_t fits = w->spec->parallel.sp, fails = JOB_MAX_SEQ + 1;
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
    if (limit_of(w->asked) <= 0 || w->asked->kind == JOB_GENERATE) return;
    for (int i = 0; i < c->n; i++)
        if (c->option[i].sp > wide->sp) wide = &c->option[i];
    const struct option *both[] = {b, wide};
    int64_t found[2] = {0};
    for (int i = 0; i < (wide == b ? 1 : 2); i++)
        if (set(w, (enum strategy_id)both[i]->strategy, (enum exchange_id)both[i]->exchange,
                both[i]->sp, both[i]->dp))
            found[i] = longest(w);
    c->max_seq_len = found[0];
    c->longest = wide == b ? found[0] : found[1];
    if (w->asked->data.seq_len > 0) c->max_batch = found[0] / w->asked->data.seq_len * b->dp;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The whole step on one rank, for what the others gain. */
static void alone(struct weighing *w)
{
    struct estimate t;
    *w->spec = *w->asked;
    w->spec->resources.ranks = w->spec->parallel.sp = w->spec->parallel.dp = 1;
    w->spec->parallel.strategy = STRATEGY_LOCAL;
    w->spec->parallel.layout = LAYOUT_AUTO;
    struct err e;
    if (!w->out->timed || job_check(w->spec, &e) || try_plan(w) != 1) return;
    machine_estimate(w->m, w->spec, w->plan, &t);
    w->out->alone_s = t.step_s;
}

static const char *strategy_word(int32_t strategy)
{
    return spec_field("parallel.strategy")->words[strategy];
}

/* "lasp by ring, sp 4 x dp 1" */
static char *name_of(char out[64], const struct option *o)
{
    const bool states = o->strategy == STRATEGY_LASP && o->exchange != EXCHANGE_AUTO;
    snprintf(out, 64, "%s%s%s, sp %d x dp %d", strategy_word(o->strategy), states ? " by " : "",
             states ? spec_field("parallel.exchange")->words[o->exchange] : "", o->sp, o->dp);
    return out;
}

static char *seconds(char out[32], double s)
{
    if (s < 1e-3)
        snprintf(out, 32, "%.3g us", s * 1e6);
    else if (s < 1)
        snprintf(out, 32, "%.3g ms", s * 1e3);
    else
        snprintf(out, 32, "%.3g s", s);
    return out;
}

static void explain(struct choice *c)
{
    const struct option *b = &c->option[c->best], *second = NULL;
    char mine[32], other[32], bytes[24], name[64];
    int n_fit = 0;
    for (int i = 0; i < c->n; i++) {
        const struct option *o = &c->option[i];
        n_fit += o->fits;
        if (i != c->best && o->fits && (!second || better(c, o, second))) second = o;
    }
    size_t n = (size_t)snprintf(c->reason, sizeof c->reason,
                                "%s, sp %d x dp %d: ", strategy_word(b->strategy), b->sp, b->dp);
    if (!b->fits)
        snprintf(c->reason + n, sizeof c->reason - n,
                 "none of %d alternatives fits; this one needs least, %s per rank", c->n,
                 plan_bytes(bytes, b->size));
    else if (c->asked)
        snprintf(c->reason + n, sizeof c->reason - n, "asked for");
    else if (!c->timed)
        snprintf(c->reason + n, sizeof c->reason - n,
                 "no machine has been measured, so nothing was weighed by time");
    else if (!second)
        snprintf(c->reason + n, sizeof c->reason - n, "the only one of %d alternatives that fits",
                 c->n);
    else
        snprintf(c->reason + n, sizeof c->reason - n,
                 "the fastest of %d that fit, %s a step; next %s, %s", n_fit,
                 seconds(mine, b->time.step_s), name_of(name, second),
                 seconds(other, second->time.step_s));
}

/* A ring costs time where one rank would have done: worth a sentence before it is paid for. */
static void warn(const struct job_spec *asked, struct choice *c)
{
    const struct option *b = &c->option[c->best];
    char alone_s[32], ours[32];
    if (!c->timed || !b->fits || b->sp == 1 || !(c->alone_s > 0)) return;
    const double gain = c->alone_s / b->time.step_s / b->dp;
    if (gain >= 1.1) return;
    snprintf(c->warning, sizeof c->warning,
             "sequence parallelism will not help: sequences of %lld tokens fit one rank, which "
             "takes %s a step, and %d ranks would take %s: too short for what they exchange, or "
             "too few cores; take parallel.sp 1, longer sequences, or parallel.dp",
             (long long)asked->data.seq_len, seconds(alone_s, c->alone_s / b->dp), b->sp,
             seconds(ours, b->time.step_s));
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
        if (better(out, &out->option[i], &out->option[out->best])) out->best = i;
    out->asked = out->n == 1 && asked->parallel.strategy != STRATEGY_AUTO;
    if (out->n) {
        alone(&w);
        explain(out);
        warn(asked, out);
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

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_option(const struct choice *c, int i, struct jwrite *w)
{
    const struct option *o = &c->option[i];
    jwrite_object(w, NULL);
    jwrite_str(w, "strategy", strategy_word(o->strategy));
    jwrite_str(w, "layout", spec_field("parallel.layout")->words[o->layout]);
    if (o->strategy == STRATEGY_LASP)
        jwrite_str(w, "exchange", spec_field("parallel.exchange")->words[o->exchange]);
    jwrite_int(w, "sp", o->sp);
    jwrite_int(w, "dp", o->dp);
    jwrite_str(w, "recompute", spec_field("memory.recompute")->words[o->recompute]);
    jwrite_bool(w, "fits", o->fits);
    jwrite_int(w, "bytes", o->size);
    if (c->timed) jwrite_double(w, "step_s", o->time.step_s);
    jwrite_bool(w, "chosen", i == c->best);
    jwrite_end(w);
}

static void write_estimate(const struct choice *c, struct jwrite *w)
{
    const struct estimate *t = &c->option[c->best].time;
    jwrite_object(w, "estimate");
    jwrite_double(w, "step_s", t->step_s);
    jwrite_double(w, "compute_s", t->compute_s);
    jwrite_double(w, "exchange_s", t->exchange_s);
    jwrite_double(w, "hidden_s", t->hidden_s);
    jwrite_double(w, "tokens_s", t->tokens_s);
    if (c->alone_s > 0) jwrite_double(w, "times_one_rank", c->alone_s / t->step_s);
    jwrite_end(w);
}

static void write_machine(const struct machine *m, struct jwrite *w)
{
    jwrite_object(w, "machine");
    jwrite_str(w, "source", m->measured ? "measured by a node" : "given");
    jwrite_double(w, "gemm_f32_gflops", m->gemm[PRECISION_FP32] * 1e-9);
    jwrite_double(w, "gemm_bf16_gflops", m->gemm[PRECISION_BF16] * 1e-9);
    jwrite_double(w, "attention_f32_gflops", m->attn[PRECISION_FP32] * 1e-9);
    jwrite_double(w, "attention_bf16_gflops", m->attn[PRECISION_BF16] * 1e-9);
    jwrite_double(w, "link_gbs", m->link * 1e-9);
    jwrite_double(w, "network_gbs", m->network * 1e-9);
    jwrite_double(w, "hop_us", m->hop * 1e6);
    if (m->cores > 0) jwrite_double(w, "cores", m->cores);
    jwrite_end(w);
}

void choice_write(const struct choice *c, const struct machine *m, struct jwrite *w)
{
    if (!c->n) return;
    jwrite_str(w, "choice", c->reason);
    jwrite_array(w, "weighed");
    for (int i = 0; i < c->n; i++) write_option(c, i, w);
    jwrite_end(w);
    if (c->timed) write_estimate(c, w);
    if (c->timed) write_machine(m, w);
    if (c->max_seq_len > 0) {
        jwrite_object(w, "limits");
        jwrite_int(w, "max_seq_len", c->max_seq_len);
        jwrite_int(w, "max_batch", c->max_batch);
        jwrite_int(w, "max_seq_len_one_ring", c->longest);
        jwrite_end(w);
    }
    jwrite_array(w, "warnings");
    if (*c->warning) jwrite_str(w, NULL, c->warning);
    jwrite_end(w);
}
