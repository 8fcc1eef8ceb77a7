#include "worker/train/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Logits that are kept, outside the plan. */
#define LOGITS_SIZE ((int64_t)4 << 20)

/* One element in eight, by its number alone. */
static bool chosen(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ (i >> 31)) * 0xbf58476d1ce4e5b9u;
    return (i >> 61) == 0;
}

/* Twice is not at all. */
static void flip(struct model *ref)
{
    int first, last;
    uint16_t *h = ref->params;
    uint32_t *w = ref->params;
    param_range(&ref->shape, 0, &first, &last);
    for (int k = first; k < last; k++) {
        struct param p;
        param_get(&ref->shape, k, &p);
        for (int64_t i = p.offset; i < p.offset + p.count; i++) {
            if (!chosen((uint64_t)i)) continue;
            if (ref->dtype == DT_F32)
                w[i] ^= 1;
            else
                h[i] ^= 1;
        }
    }
}

static void logits_row(struct model *ref, int64_t row, float *out)
{
    const struct tensor t = model_logits(ref, row, 1);
    ref->be->ops->download(ref->be, out, t.data, t.cols * (int64_t)sizeof(float));
}

int control_init(struct control *c, struct model *ref, float *grad, struct err *e)
{
    const int64_t S = ref->plan->S, V = ref->shape.vocab;
    *c = (struct control){.ref = ref};
    c->nll = malloc((size_t)S * sizeof *c->nll);
    if (!family_traits(ref->shape.family)->diffusion) {
        const int64_t room = LOGITS_SIZE / (V * (int64_t)sizeof(float));
        c->gap = room < 1 ? S : (S + room - 1) / room;
        c->n_rows = (S + c->gap - 1) / c->gap;
        c->logits = malloc((size_t)(c->n_rows * V) * sizeof *c->logits);
    }
    if (!c->nll || (c->n_rows && !c->logits)) {
        control_fini(c);
        return err_set(e, ERR_IO, "out of memory for the control of a proof");
    }
    memcpy(c->nll, ref->nll, (size_t)S * sizeof *c->nll);
    for (int64_t i = 0; i < c->n_rows; i++) logits_row(ref, i * c->gap, c->logits + i * V);
    memcpy(grad, ref->grad, (size_t)ref->plan->n_params * sizeof *grad);
    return 0;
}

/* The loss is a mean over tokens: of independent ones its error is their rms / sqrt(n), and 4 of that
 * are allowed; of ones that go together it is what it is here. */
static void compare_nll(struct control *c)
{
    double sum = 0, square = 0, one = 0;
    for (int64_t i = 0; i < c->ref->plan->S; i++) {
        const double d = c->ref->nll[i] - c->nll[i];
        one += c->nll[i];
        sum += d;
        square += d * d;
    }
    c->loss_rel = fmax(fabs(sum), 4.0 / CONTROL_MARGIN * sqrt(square)) / fabs(one);
}

static int compare_logits(struct control *c, struct err *e)
{
    const int64_t V = c->ref->shape.vocab;
    double diff = 0, norm = 0;
    float *row = malloc((size_t)V * sizeof *row);
    if (!row) return err_set(e, ERR_IO, "out of memory for a row of logits");
    for (int64_t i = 0; i < c->n_rows; i++) {
        logits_row(c->ref, i * c->gap, row);
        for (int64_t v = 0; v < V; v++) {
            const double x = c->logits[i * V + v], d = row[v] - x;
            diff += d * d;
            norm += x * x;
        }
    }
    free(row);
    c->logits_rel_l2 = norm > 0 ? sqrt(diff / norm) : 0;
    return 0;
}

int control_run(struct control *c, float scale, struct err *e)
{
    struct model *ref = c->ref;
    double nll;
    flip(ref);
    ref->be->ops->fill(ref->be, ref->grad, ref->plan->n_grad, 0);
    int rc = model_grad(ref, &ref->batch, scale, &nll, e) || model_reduce_grad(ref, e);
    if (!rc) compare_nll(c);
    if (!rc && c->n_rows)
        rc = compare_logits(c, e); /* by the head that made them: it may be tied */
    flip(ref);
    return rc ? -1 : 0;
}

void control_fini(struct control *c)
{
    free(c->nll);
    free(c->logits);
    c->nll = NULL;
    c->logits = NULL;
}
