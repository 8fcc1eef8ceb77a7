/* routing.c: keeps the experts that rows choose in a pass, or makes a pass use a choice that was
 * kept. */
#include "worker/model/routing.h"

#include <math.h>

bool routing_chosen(const struct model_shape *m, const struct program *layer)
{
    bool any = false;
    for (int i = 0; i < layer->n_ops; i++) any |= layer->op[i].kind == OP_MOE;
    return any && m->n_experts > m->experts_per_token;
}

/* ---- one row --------------------------------------------------------------------------------- */

/* One row of logits, the choice that the row must follow, and the row's own choice. */
struct routed {
    const float *x; /* [E] */
    int64_t E, k;
    const int32_t *own, *given; /* [k] */
};

static bool has(const int32_t *e, int64_t k, int32_t want)
{
    bool found = false;
    for (int64_t i = 0; i < k; i++) found |= e[i] == want;
    return found;
}

/* Tells whether the given experts are k different experts that exist. */
static bool is_choice(const struct routed *r)
{
    for (int64_t i = 0; i < r->k; i++)
        if (r->given[i] < 0 || r->given[i] >= r->E || has(r->given, i, r->given[i])) return false;
    return true;
}

static bool same_set(const struct routed *r)
{
    bool same = true;
    for (int64_t i = 0; i < r->k; i++) same &= has(r->own, r->k, r->given[i]);
    return same;
}

static double deviation(const struct routed *r)
{
    double sum = 0, square = 0;
    for (int64_t e = 0; e < r->E; e++) sum += r->x[e];
    const double mean = sum / (double)r->E;
    for (int64_t e = 0; e < r->E; e++) square += (r->x[e] - mean) * (r->x[e] - mean);
    return sqrt(square / (double)r->E);
}

/* Returns the gap of a row. It is the logit of the best expert that the row itself chose but does
 * not follow, minus the logit of the worst expert that the row follows instead. The unit of the
 * gap is the standard deviation of the row's logits. The gap is NaN if one of these logits is
 * NaN. */
static double gap_of(const struct routed *r)
{
    double best = -INFINITY, worst = INFINITY;
    for (int64_t i = 0; i < r->k; i++) {
        if (!has(r->given, r->k, r->own[i]) && r->x[r->own[i]] > best) best = r->x[r->own[i]];
        if (!has(r->own, r->k, r->given[i]) && r->x[r->given[i]] < worst) worst = r->x[r->given[i]];
    }
    return best > worst ? (best - worst) / deviation(r) : best == worst ? 0 : (double)NAN;
}

/* ---- a layer --------------------------------------------------------------------------------- */

/* Sends row t to the given experts. The weights of these experts come from the logits of the row.
 * Usually the weights are the softmax of only the given experts' logits. If a->plain is set, they
 * are the values of these experts in the softmax of all logits. The denominator of this softmax is
 * derived from the weight of the best expert, which is the first expert of the row's own
 * choice. */
static void turn(struct frame *f, const struct route_args *a, int64_t t, const struct routed *r)
{
    float top;
    double sum = 0;
    const double best = r->x[r->own[0]];
    f->be->ops->download(f->be, &top, a->weight + t * a->k, sizeof top);
    for (int64_t j = 0; j < a->k; j++) sum += exp(r->x[r->given[j]] - best);
    for (int64_t j = 0; j < a->k; j++) {
        const double part = exp(r->x[r->given[j]] - best);
        const float w = (float)(a->plain ? part * (double)top : part / sum);
        f->be->ops->upload(f->be, a->weight + t * a->k + j, &w, sizeof w);
    }
    f->be->ops->upload(f->be, a->expert + t * a->k, r->given, 4 * a->k);
}

static void judge(struct routing *s, const struct routed *r)
{
    const double gap = gap_of(r);
    s->turned++;
    if (!isnan(s->gap) && !(gap <= s->gap)) s->gap = gap; /* NaN is kept */
}

static int follow(struct frame *f, const struct route_args *a, struct err *e)
{
    struct routing *s = f->routing;
    const int64_t T = a->logits.rows, E = a->logits.cols, k = a->k;
    float *x = (float *)(s->own + T * k);
    f->be->ops->download(f->be, s->own, a->expert, 4 * T * k);
    for (int64_t t = 0; t < T; t++) {
        const struct routed r = {x, E, k, s->own + t * k, f->chosen + t * k};
        if (r.given[0] == ROUTING_OWN) continue;
        if (s->judged && !f->again) s->rows++;
        if (!is_choice(&r))
            return err_set(e, ERR_INTERNAL, "layer %d: a row goes to expert %d of %lld", f->layer,
                           r.given[0], (long long)E);
        if (same_set(&r)) continue;
        f->be->ops->download(f->be, x, (float *)a->logits.data + t * a->logits.ld, 4 * E);
        if (s->judged && !f->again) judge(s, &r);
        turn(f, a, t, &r);
    }
    return 0;
}

int routing_meet(struct frame *f, const struct route_args *a, struct err *e)
{
    if (!f->chosen) return 0;
    if (f->routing->follow) return follow(f, a, e);
    f->be->ops->download(f->be, f->chosen, a->expert, 4 * a->logits.rows * a->k);
    return 0;
}
