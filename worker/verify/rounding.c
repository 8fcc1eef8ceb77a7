/* rounding.c: flips the last bits of the weights of section `in`, or of the first layer, runs the
 * reference again, and compares losses and rows with the kept losses and rows. */
#include "worker/verify/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "worker/family/family.h"
#include "worker/model/host_copy.h"
#include "worker/model/stored.h"
#include "worker/verify/pairs.h"

#define FLIPPED 8192 /* elements whose bits are flipped at a time */
/* Largest number of bytes of the rows that are kept. The plan does not count these bytes. */
#define ROWS_SIZE ((int64_t)4 << 20)

struct rounding_rule rounding_rule(enum dtype params)
{
    if (params == DT_F32) return (struct rounding_rule){4, 10, 1, 0.5, 1};
    return (struct rounding_rule){1, 2, 2, 1, 2};
}

/* Chooses about one element in eight. The choice depends on the index of the element and on the
 * run. */
static bool chosen(uint64_t i, int run)
{
    i = (i + 1 + (uint64_t)run * 0xd1342543de82ef95u) * 0x9e3779b97f4a7c15u;
    i = (i ^ (i >> 31)) * 0xbf58476d1ce4e5b9u;
    return (i >> 61) == 0;
}

/* Flips bits of n elements, which begin at `at`. The index of the first element is `from`.
 * Elements are little-endian, as in files. */
static void flip_piece(const struct model *ref, int run, char *at, int64_t from, int64_t n)
{
    const int64_t unit = dtype_size(ref->dtype);
    unsigned char x[FLIPPED * 4];
    ref->be->ops->download(ref->be, x, at, n * unit);
    for (int64_t i = 0; i < n; i++) /* the lowest bit is in the first byte */
        if (chosen((uint64_t)(from + i), run)) x[i * unit] ^= 1;
    ref->be->ops->upload(ref->be, at, x, n * unit);
}

/* Flips the chosen bits of a section's weights. Returns the number of tensors whose bits it
 * flipped. Tensors in blocks are not changed, because the last bit of a block is not a
 * rounding. */
static int flip_section(const struct model *ref, int run, int b)
{
    const int64_t unit = dtype_size(ref->dtype);
    int first, last, n_flipped = 0;
    param_range(&ref->shape, b, &first, &last);
    for (int k = first; k < last; k++) {
        const struct tensor t = stored_weight(ref, b, k - first);
        struct param p;
        if (dtype_quant(t.dtype)) continue;
        param_get(&ref->shape, k, &p);
        n_flipped++;
        for (int64_t at = 0; at < p.count; at += FLIPPED)
            flip_piece(ref, run, (char *)t.data + at * unit, p.offset + at,
                       p.count - at < FLIPPED ? p.count - at : FLIPPED);
    }
    return n_flipped;
}

/* Flips the chosen bits of the weights of section `in`. If all weights of `in` are in blocks, it
 * flips bits of the first section that has weights outside blocks. A second call restores the
 * bits. */
static void flip(const struct model *ref, int run)
{
    for (int b = 0; b <= ref->shape.n_layers + 1 && !flip_section(ref, run, b); b++) continue;
}

/* Returns a row's output: logits, or a diffusion model's prediction. Valid until the next call. */
static struct tensor row_of(struct model *ref, int64_t row)
{
    return family_diffusion(&ref->shape) ? model_normed(ref, row, 1) : model_logits(ref, row, 1);
}

static void read_row(struct model *ref, int64_t row, float *out)
{
    const struct tensor t = row_of(ref, row);
    host_copy_out(ref->be, t.dtype, t.data, out, t.cols);
}

static int make_room(struct rounding *c, struct model *ref, struct err *e)
{
    const struct shard *sh = &ref->sp.shard;
    c->cols = row_of(ref, 0).cols;
    const int64_t room = ROWS_SIZE / (c->cols * (int64_t)sizeof(float));
    c->gap = room < 1 ? sh->S : (sh->S + room - 1) / room;
    c->n_rows = (sh->S + c->gap - 1) / c->gap;
    c->nll = malloc((size_t)sh->T * sizeof *c->nll);
    c->rows = malloc((size_t)((c->n_rows + 1) * c->cols) * sizeof *c->rows);
    if (c->nll && c->rows) return 0;
    rounding_fini(c);
    return err_set(e, ERR_IO, "out of memory for the reference's other runs");
}

int rounding_keep(struct rounding *c, struct model *ref, struct err *e)
{
    if (!c->nll && make_room(c, ref, e)) return -1;
    memcpy(c->nll, ref->nll, (size_t)ref->sp.shard.T * sizeof *c->nll);
    for (int64_t k = 0; k < c->n_rows; k++) read_row(ref, k * c->gap, c->rows + k * c->cols);
    return c->pairs ? pairs_keep(c->pairs, e) : 0;
}

/* Compares the losses of pairs. Each row's difference has the row's factor, and the references of
 * both runs differ, too. */
static void compare_pairs(struct rounding *c, const struct model *ref)
{
    struct pairs_one *o = c->pairs;
    for (int64_t k = 0; k < ref->sp.shard.T; k++) {
        const double d = (ref->nll[k] - c->nll[k]) * ref->batch.weight[k];
        c->square += d * d;
    }
    c->one += o->first_loss;
    c->sum += o->loss - o->first_loss;
    pairs_again(o);
}

static void compare_nll(struct rounding *c, const struct model *ref)
{
    for (int64_t k = 0; k < ref->sp.shard.T; k++) {
        const double d = ref->nll[k] - c->nll[k];
        c->one += c->nll[k];
        c->sum += d;
        c->square += d * d;
    }
}

static void compare_rows(struct rounding *c, struct model *ref)
{
    float *row = c->rows + c->n_rows * c->cols;
    for (int64_t k = 0; k < c->n_rows; k++) {
        const float *was = c->rows + k * c->cols;
        read_row(ref, k * c->gap, row);
        for (int64_t j = 0; j < c->cols; j++) {
            const double x = was[j], d = row[j] - x;
            c->diff += d * d;
            c->norm += x * x;
        }
    }
}

int rounding_run(struct rounding *c, struct model *ref, int run, float scale, struct err *e)
{
    double nll;
    flip(ref, run);
    const int rc = (c->pairs && pairs_base(c->pairs, e)) ||
                   model_grad(ref, &ref->batch, scale, &nll, e);
    if (!rc) c->pairs ? compare_pairs(c, ref) : compare_nll(c, ref);
    /* must come before flip(), because the weights of a tied head are flipped, too */
    if (!rc) compare_rows(c, ref);
    flip(ref, run);
    return rc ? -1 : 0;
}

/* Computes the differences of a run, and keeps the largest differences of all runs. The error of
 * the loss is the sum of the tokens' errors. A sum of n independent errors has a standard
 * deviation of sqrt(n) times the rms error. The error of the loss counts as at least
 * rounding_rule.apart of these deviations. */
void rounding_end(struct rounding *c, enum dtype params)
{
    const double apart = rounding_rule(params).apart * sqrt(c->square);
    const double loss = fmax(fabs(c->sum), apart) / fabs(c->one);
    const double logits = c->norm > 0 ? sqrt(c->diff / c->norm) : 0;
    c->loss_rel = fmax(c->loss_rel, loss);
    c->logits_rel_l2 = fmax(c->logits_rel_l2, logits);
    c->sum = c->square = c->one = c->diff = c->norm = 0;
    if (c->pairs) pairs_again_end(c->pairs);
}

void rounding_fini(struct rounding *c)
{
    free(c->nll);
    free(c->rows);
    c->nll = NULL;
    c->rows = NULL;
}
