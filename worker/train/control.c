#include "worker/train/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"

/* Rows that are kept, outside the plan. */
#define ROWS_SIZE ((int64_t)4 << 20)

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

/* What a row says: logits, or a diffusion model's prediction. Lives until the next call. */
static struct tensor row_of(struct model *ref, int64_t row)
{
    return family_traits(ref->shape.family)->diffusion ? model_normed(ref, row, 1)
                                                       : model_logits(ref, row, 1);
}

static void read_row(struct model *ref, int64_t row, float *out)
{
    const struct tensor t = row_of(ref, row);
    const uint16_t *half = t.data;
    if (t.dtype == DT_F32)
        ref->be->ops->download(ref->be, out, t.data, t.cols * (int64_t)sizeof(float));
    for (int64_t i = 0; t.dtype == DT_BF16 && i < t.cols; i++) out[i] = bf16_value(half[i]);
}

int control_init(struct control *c, struct model *ref, float *grad, struct err *e)
{
    const struct shard *sh = &ref->sp.shard;
    *c = (struct control){.ref = ref, .cols = row_of(ref, 0).cols};
    const int64_t room = ROWS_SIZE / (c->cols * (int64_t)sizeof(float));
    c->gap = room < 1 ? sh->S : (sh->S + room - 1) / room;
    c->n_rows = (sh->S + c->gap - 1) / c->gap;
    c->nll = malloc((size_t)sh->T * sizeof *c->nll);
    c->rows = malloc((size_t)((c->n_rows + 1) * c->cols) * sizeof *c->rows);
    if (!c->nll || !c->rows) {
        control_fini(c);
        return err_set(e, ERR_IO, "out of memory for the control of a proof");
    }
    memcpy(c->nll, ref->nll, (size_t)sh->T * sizeof *c->nll);
    for (int64_t i = 0; i < c->n_rows; i++) read_row(ref, i * c->gap, c->rows + i * c->cols);
    memcpy(grad, ref->grad, (size_t)ref->plan->n_params * sizeof *grad);
    return 0;
}

/* The loss is a mean over tokens: of independent ones its error is their rms / sqrt(n), and 4 of that
 * are allowed; of ones that go together it is what it is here. */
static void compare_nll(struct control *c)
{
    double sum = 0, square = 0, one = 0;
    for (int64_t i = 0; i < c->ref->sp.shard.T; i++) {
        const double d = c->ref->nll[i] - c->nll[i];
        one += c->nll[i];
        sum += d;
        square += d * d;
    }
    c->loss_rel = fmax(fabs(sum), 4.0 / CONTROL_MARGIN * sqrt(square)) / fabs(one);
}

static void compare_rows(struct control *c)
{
    double diff = 0, norm = 0;
    float *row = c->rows + c->n_rows * c->cols;
    for (int64_t i = 0; i < c->n_rows; i++) {
        read_row(c->ref, i * c->gap, row);
        for (int64_t k = 0; k < c->cols; k++) {
            const double x = c->rows[i * c->cols + k], d = row[k] - x;
            diff += d * d;
            norm += x * x;
        }
    }
    c->logits_rel_l2 = norm > 0 ? sqrt(diff / norm) : 0;
}

int control_run(struct control *c, float scale, struct err *e)
{
    struct model *ref = c->ref;
    double nll;
    flip(ref);
    ref->be->ops->fill(ref->be, ref->grad, ref->plan->n_grad, 0);
    const int rc = model_grad(ref, &ref->batch, scale, &nll, e) || model_reduce_grad(ref, e);
    if (!rc) compare_nll(c);
    if (!rc) compare_rows(c); /* by the head that made them: it may be tied */
    flip(ref);
    return rc ? -1 : 0;
}

void control_fini(struct control *c)
{
    free(c->nll);
    free(c->rows);
    c->nll = NULL;
    c->rows = NULL;
}
