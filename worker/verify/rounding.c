#include "worker/verify/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "worker/family/family.h"
#include "worker/model/host_copy.h"

#define FLIPPED 8192 /* elements at a time */
/* Rows that are kept, outside the plan. */
#define ROWS_SIZE ((int64_t)4 << 20)

/* One element in eight, by its number alone. */
static bool chosen(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ (i >> 31)) * 0xbf58476d1ce4e5b9u;
    return (i >> 61) == 0;
}

/* Elements [from, from + n) of the weights; little-endian, as files are. */
static void flip_piece(const struct model *ref, int64_t from, int64_t n)
{
    const int64_t unit = dtype_size(ref->dtype);
    unsigned char x[FLIPPED * 4];
    char *at = (char *)ref->params + from * unit;
    ref->be->ops->download(ref->be, x, at, n * unit);
    for (int64_t i = 0; i < n; i++) /* the last bit is in the first byte */
        if (chosen((uint64_t)(from + i))) x[i * unit] ^= 1;
    ref->be->ops->upload(ref->be, at, x, n * unit);
}

/* Twice is not at all. */
static void flip(const struct model *ref)
{
    int first, last;
    param_range(&ref->shape, 0, &first, &last);
    for (int k = first; k < last; k++) {
        struct param p;
        param_get(&ref->shape, k, &p);
        for (int64_t at = 0; at < p.count; at += FLIPPED)
            flip_piece(ref, p.offset + at, p.count - at < FLIPPED ? p.count - at : FLIPPED);
    }
}

/* What a row says: logits, or a diffusion model's prediction. Lives until the next call. */
static struct tensor row_of(struct model *ref, int64_t row)
{
    return family_diffusion(&ref->shape) ? model_normed(ref, row, 1) : model_logits(ref, row, 1);
}

static void read_row(struct model *ref, int64_t row, float *out)
{
    const struct tensor t = row_of(ref, row);
    copy_to_host(ref->be, t.dtype, t.data, out, t.cols);
}

int rounding_init(struct rounding *c, struct model *ref, float *grad, struct err *e)
{
    const struct shard *sh = &ref->sp.shard;
    *c = (struct rounding){.ref = ref, .cols = row_of(ref, 0).cols};
    const int64_t room = ROWS_SIZE / (c->cols * (int64_t)sizeof(float));
    c->gap = room < 1 ? sh->S : (sh->S + room - 1) / room;
    c->n_rows = (sh->S + c->gap - 1) / c->gap;
    c->nll = malloc((size_t)sh->T * sizeof *c->nll);
    c->rows = malloc((size_t)((c->n_rows + 1) * c->cols) * sizeof *c->rows);
    if (!c->nll || !c->rows) {
        rounding_fini(c);
        return err_set(e, ERR_IO, "out of memory for the second run of the reference");
    }
    memcpy(c->nll, ref->nll, (size_t)sh->T * sizeof *c->nll);
    for (int64_t i = 0; i < c->n_rows; i++) read_row(ref, i * c->gap, c->rows + i * c->cols);
    ref->be->ops->copy(ref->be, grad, ref->grad, ref->plan->n_params * (int64_t)sizeof *grad);
    return 0;
}

/* The loss is a mean over tokens: of independent ones its error is their rms / sqrt(n), and 4 of
 * that are allowed; of ones that go together it is what it is here. */
static void compare_nll(struct rounding *c)
{
    double sum = 0, square = 0, one = 0;
    for (int64_t i = 0; i < c->ref->sp.shard.T; i++) {
        const double d = c->ref->nll[i] - c->nll[i];
        one += c->nll[i];
        sum += d;
        square += d * d;
    }
    c->loss_rel = fmax(fabs(sum), 4.0 / ROUNDING_MARGIN * sqrt(square)) / fabs(one);
}

static void compare_rows(struct rounding *c)
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

int rounding_run(struct rounding *c, float scale, struct err *e)
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

void rounding_fini(struct rounding *c)
{
    free(c->nll);
    free(c->rows);
    c->nll = NULL;
    c->rows = NULL;
}
