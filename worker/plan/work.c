/* work.c: visits each operation in the schedule of each section, and adds the seconds of its terms
 * (op_rules.h) at the machine's rates. */
#include "worker/plan/work.h"

#include <math.h>
#include "worker/plan/strategy.h"
#include "worker/plan/traffic.h"
#include "worker/program/op_rules.h"

struct work_count {
    const struct machine *m;
    const struct plan *p;
    const struct program *prog;
    double times;
    double rows; /* largest number of rows that a product computes at a time */
    struct work *out;
};

/* ---- rates ----------------------------------------------------------------------------------- */

/* Returns the rate for a size. Between two measured sizes, and below the smallest, rates are
 * interpolated in logarithms. Above the largest size, the result is the rate of the largest
 * size. */
static double rate_at(const double rate[PROFILE_SIZES], const double size[PROFILE_SIZES], double at)
{
    const int last = PROFILE_SIZES - 1;
    int i = 0;
    if (at >= size[last]) return rate[last];
    while (i + 2 < PROFILE_SIZES && at >= size[i + 1]) i++;
    return rate[i] * pow(rate[i + 1] / rate[i], log(at / size[i]) / log(size[i + 1] / size[i]));
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* Adds the time of a product. The smallest of its sides decides the rate. */
static void add_product(const struct work_count *c, const struct op_term *t)
{
    const double *rate = c->m->rate[RATE_GEMM][c->p->precision];
    if (t->rows <= 0 || t->inner <= 0 || t->cols <= 0) return;
    const double side = fmin(fmin(t->rows, c->rows), fmin(t->inner, t->cols));
    c->out->products_s += c->times * 2 * t->rows * t->inner * t->cols /
                          rate_at(rate, profile_widths, side);
}

/* Adds the time of n elements. `rate` is in elements/s; if it is 0, the elements do not count. */
static void add_elements(const struct work_count *c, double n, double rate)
{
    if (rate > 0) c->out->other_s += c->times * n / rate;
}

/* Returns the time of attention on the slowest rank, divided by the mean time of all ranks. */
static double imbalance(const struct plan *p, const struct op *op)
{
    const struct strategy_row *row = strategy_row(p->strategy);
    if (!row->imbalance) return 1;
    return row->imbalance(op->u.attn.n_heads, p->sp, p->ulysses, op->u.attn.causal, p->layout);
}

/* Returns a factor for the tiles at the edges, which take as long as whole tiles. The factor is 1
 * for 512 keys, because rates are measured with 512 keys. */
static double edges(const struct work_count *c, double keys)
{
    const double tile = 32, measured = 512;
    return c->m->measured ? (1 + tile / keys) / (1 + tile / measured) : 1;
}

static void add_attention(const struct work_count *c, const struct op_site *s,
                          const struct op_term *t)
{
    const int kind = s->back ? RATE_ATTN_BACK : RATE_ATTN;
    const double rate = rate_at(c->m->rate[kind][c->p->precision], profile_heads, t->size);
    const double slowest = t->uneven ? imbalance(c->p, s->op) : 1;
    const double flops = 2 * t->n / c->p->sp;
    c->out->attention_s += c->times * flops * slowest * edges(c, t->keys) / rate;
}

/* Adds the time of an operation on states. Linear attention adds the effect of the entering state
 * after its rows, which takes a third of the time of the rows (kernels/backend.h). If ranks
 * compute one after the other, each rank needs the entering state before it computes its rows. The
 * last rank then ends when all other ranks have computed. While a rank computes, it has a core for
 * itself. */
static void add_states(const struct work_count *c, const struct op_site *s, const struct op_term *t)
{
    const int kind = s->back ? RATE_LINEAR_BACK : RATE_LINEAR;
    const double rate = rate_at(c->m->rate[kind][c->p->precision], profile_heads, t->size);
    const bool enters = c->m->measured && (c->p->sp > 1 || c->p->n_windows > 1);
    const double turns = fmax(1, c->p->sp * machine_share(c->m, c->p));
    const double longer = t->in_turn ? (s->maps ? 1 : turns) : enters ? 4.0 / 3 : 1;
    c->out->other_s += c->times * 2 * t->n * longer / rate;
}

static void add_term(const struct work_count *c, const struct op_site *s, const struct op_term *t)
{
    switch (t->id) {
    case TERM_PRODUCT: add_product(c, t); break;
    case TERM_ATTENTION: add_attention(c, s, t); break;
    case TERM_STATES: add_states(c, s, t); break;
    case TERM_NORM: add_elements(c, t->n, c->m->norm / t->slow); break;
    case TERM_POINT: add_elements(c, t->n, c->m->point / t->slow); break;
    case TERM_ROTATE: add_elements(c, t->n, c->m->turn / t->slow); break;
    }
}

static void count_step(struct work_count *c, const struct step *step)
{
    struct op_site s = traffic_site(c->p, c->prog, &c->prog->op[step->op]);
    struct op_work w;
    c->rows = step->piece ? (double)c->p->mlp_chunk : INFINITY;
    s.back = step->kind == STEP_BACKWARD;
    s.no_dx = c->prog->partial && !step->wanted[0];
    s.no_dw = c->prog->partial && !prog_learns(c->prog, s.op->w, s.op->n_w);
    op_work(&s, &w);
    for (int i = 0; i < w.n; i++) add_term(c, &s, &w.term[i]);
}

/* ---- sections -------------------------------------------------------------------------------- */

enum work_pass {
    PASS_STATES, /* forward, without the losses */
    PASS_LOSSES, /* forward, with the losses */
    PASS_BOTH    /* forward and backward */
};

/* Adds the time of the steps of a section. If `train` is set, adds the forward list of the
 * schedule of a training. */
static void count_section(struct work_count *c, const struct program *prog, enum work_pass pass,
                          bool train)
{
    const bool last = prog->result == PROG_NONE;
    struct schedule s;
    const struct schedule_mode mode = plan_schedule(c->p, train);
    schedule_make(prog, &mode, &s);
    c->prog = prog;
    for (int i = 0; i < s.n_forward && !(last && pass == PASS_BOTH); i++)
        if (pass != PASS_STATES || !op_rules[prog->op[s.forward[i].op].kind]->loss)
            count_step(c, &s.forward[i]);
    for (int i = 0; i < s.n_backward && pass == PASS_BOTH; i++) count_step(c, &s.backward[i]);
}

static void count_pass(struct work_count *c, const struct model_shape *shape, enum work_pass pass,
                       double times)
{
    const struct plan *p = c->p;
    const bool train = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    struct family *f = family_new(shape);
    c->times = times;
    if (pipe_first(&p->pipe)) count_section(c, &f->in, pass, train);
    if (pipe_last(&p->pipe)) count_section(c, &f->out, pass, train);
    if (pipe_last(&p->pipe) && p->pairs && pass == PASS_BOTH)
        count_section(c, &f->out, PASS_LOSSES, train);
    for (int k = 0; k < f->n_kinds; k++) {
        c->times = times * (double)p->shards.n_of[ZERO_LAYER + k];
        if (c->times > 0) count_section(c, &f->layer[k], pass, train);
    }
    family_free(f);
}

/* Adds the time of the update: the norm of the rank's own part of the gradients, and AdamW on that
 * part. Gradients that are summed by bucket are also cleared before each micro-batch. Unless fused
 * is set, the rank's own part of their sum is also added to a buffer after each micro-batch. A rank
 * that adds up its own gradients in the store clears each of them once. Later passes add to the
 * sums that have come back. */
static void count_update(struct work_count *c)
{
    const struct plan *p = c->p;
    const struct zero *z = &p->shards;
    const bool here = plan_adds_here(p);
    const double own = (double)p->n_shard, kept = p->fused || here ? 0 : own;
    const double times = here ? 1 : (double)p->micro_batches;
    double cleared = (double)p->n_trained;
    if (z->tied_grads && p->pp == 1 && !here) cleared += (double)z->trained[ZERO_EMBED]; /* twice */
    c->times = 1;
    add_elements(c, own, c->m->point);
    if (p->by_bucket) add_elements(c, times * (cleared + kept), c->m->point);
    const double before_s = c->out->other_s;
    add_elements(c, own, c->m->update);
    c->out->update_s = c->out->other_s - before_s;
}

void work_count(const struct machine *m, const struct model_shape *shape, const struct plan *p,
                struct work *out)
{
    static const enum work_pass passes[JOB_KIND_N] = {
        [JOB_TRAIN] = PASS_BOTH, [JOB_VERIFY] = PASS_BOTH, [JOB_SCORE] = PASS_LOSSES};
    struct work_count c = {.m = m, .p = p, .out = out};
    const double n = (double)p->micro_batches;
    *out = (struct work){0};
    count_pass(&c, shape, passes[p->kind], n * (double)p->n_windows);
    /* a proof of preferences computes the references of its samples first */
    if (p->kind == JOB_VERIFY && p->pairs) count_pass(&c, shape, PASS_LOSSES, n);
    if (p->n_windows > 1) count_pass(&c, shape, PASS_STATES, n * (double)(p->n_windows - 1));
    if (p->kind == JOB_TRAIN) count_update(&c);
}
