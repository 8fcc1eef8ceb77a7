/* standin.h: slots of the table that a device does not have yet, in obvious loops: for tests. */
#ifndef SEQD_TESTS_STANDIN_H
#define SEQD_TESTS_STANDIN_H

#include <math.h>
#include "kernels/backend.h"
#include "tests/philox.h"

static inline void standin_softmax_fwd(struct be *be, const struct softmax_fwd_args *a)
{
    (void)be;
    for (int64_t i = 0; i < a->x.rows; i++) {
        float *x = (float *)a->x.data + i * a->x.ld;
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < a->x.cols; j++)
            if (a->lo[i] <= a->col_pos + j && a->col_pos + j < a->hi[i]) max = fmax(max, x[j]);
        for (int64_t j = 0; j < a->x.cols; j++) {
            const bool sees = a->lo[i] <= a->col_pos + j && a->col_pos + j < a->hi[i];
            x[j] = sees ? expf((float)(x[j] - max)) : 0;
            sum += x[j];
        }
        for (int64_t j = 0; j < a->x.cols && sum > 0; j++) x[j] = (float)(x[j] / sum);
        if (a->lse) a->lse[i] = (float)(max + log(sum));
        if (a->lse && sum == 0) a->lse[i] = -INFINITY;
    }
}

static inline void standin_softmax_bwd(struct be *be, const struct softmax_bwd_args *a)
{
    (void)be;
    for (int64_t i = 0; i < a->p.rows; i++)
        for (int64_t j = 0; j < a->p.cols; j++) {
            float *dp = (float *)a->dp.data + i * a->dp.ld + j;
            *dp = ((float *)a->p.data)[i * a->p.ld + j] * (*dp - a->delta[i]);
        }
}

static inline void standin_dropout(struct be *be, const struct dropout_args *a)
{
    const struct attn_drop *d = a->drop;
    (void)be;
    for (int64_t i = 0; i < a->x.rows; i++)
        for (int64_t j = 0; j < a->x.cols; j++) {
            const struct philox_at at = {d->q_pos + i, a->col_pos + j, d->layer, a->head,
                                         d->sample};
            ((float *)a->x.data)[i * a->x.ld + j] *= (float)philox_mask(d->key, &at, d->rate);
        }
}

static inline void standin_mix(struct be *be, const struct mix_args *a)
{
    (void)be;
    for (int64_t i = 0; i < a->y.rows; i++)
        for (int64_t j = 0; j < a->y.cols; j++) {
            float v = a->alpha * ((float *)a->a.data)[i * a->a.ld + j];
            if (a->b.data) v += a->beta * ((float *)a->b.data)[i * a->b.ld + j];
            ((float *)a->y.data)[i * a->y.ld + j] = v;
        }
}

/* Fills what is empty. The table is one for all devices of the process. */
static inline void standin(struct be *be)
{
    static struct be_ops ops;
    static bool done;
    if (!done) {
        ops = *be->ops;
        if (!ops.softmax_fwd) ops.softmax_fwd = standin_softmax_fwd;
        if (!ops.softmax_bwd) ops.softmax_bwd = standin_softmax_bwd;
        if (!ops.dropout) ops.dropout = standin_dropout;
        if (!ops.mix) ops.mix = standin_mix;
        done = true;
    }
    be->ops = &ops;
}

#endif
