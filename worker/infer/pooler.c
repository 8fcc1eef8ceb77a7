/* pooler.c: sums hidden states in double over the rows of each rank, in ascending order of rows,
 * and adds the sums of the ranks. */
#include "worker/infer/pooler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/model/host_copy.h"
#include "worker/plan/volume.h"

#define PIECE 32 /* rows of hidden states that are downloaded together */

/* Adds rows [row0, row0 + n) of the states to sum, in ascending order of rows. */
static void add_rows(struct model *m, struct tensor states, int64_t row0, int64_t n, float *buf,
                     double *sum)
{
    const int64_t C = m->shape.width;
    for (int64_t r = 0; r < n; r += PIECE) {
        const int64_t k = r + PIECE < n ? PIECE : n - r;
        const struct tensor x = tensor_sub(states, row0 + r, k, 0, C);
        assert(x.ld == C);
        host_copy_out(m->be, x.dtype, x.data, buf, k * C);
        for (int64_t i = 0; i < k; i++)
            for (int64_t c = 0; c < C; c++) sum[c] += (double)buf[i * C + c];
    }
}

/* Adds the states of those positions [from, n) of the sequence that are on this rank. */
static void add_own(struct model *m, struct tensor states, int64_t from, int64_t n, float *buf,
                    double *sum)
{
    const struct shard *sh = &m->sp.shard;
    for (int s = 0; s < sh->n_segs; s++) {
        const int64_t pos = sh->pos[s];
        const int64_t lo = from > pos ? from - pos : 0, end = n - pos;
        const int64_t hi = end < sh->seg_len ? end : sh->seg_len;
        if (lo < hi) add_rows(m, states, s * sh->seg_len + lo, hi - lo, buf, sum);
    }
}

/* Returns how many elements of a vector one small sum over ranks can add up, beginning with
 * element c. */
static int sum_length(int64_t C, int64_t c)
{
    return (int)(c + VOLUME_SMALL_N < C ? VOLUME_SMALL_N : C - c);
}

static int sum_ranks(struct model *m, double *x, struct err *e)
{
    const int64_t C = m->shape.width;
    for (int64_t c = 0; m->comm && c < C; c += VOLUME_SMALL_N)
        if (comm_sum_f64(m->comm, PURPOSE_CONTROL, x + c, sum_length(C, c), m->bounce, e))
            return -1;
    return 0;
}

static void normalize(double *x, int64_t n)
{
    double most = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    if (most == 0) return;
    for (int64_t i = 0; i < n; i++) sum += x[i] / most * (x[i] / most);
    for (int64_t i = 0; i < n; i++) x[i] /= most * sqrt(sum);
}

int pooler_open(struct pooler *p, const struct infer *in, struct err *e)
{
    const size_t C = (size_t)in->model->shape.width;
    *p = (struct pooler){.in = in};
    p->vector = malloc(C * sizeof *p->vector);
    p->buf = malloc(PIECE * C * sizeof *p->buf);
    if (p->vector && p->buf) return 0;
    pooler_close(p);
    return err_set(e, ERR_IO, "out of memory for a vector of %lld elements", (long long)C);
}

void pooler_close(struct pooler *p)
{
    free(p->vector);
    free(p->buf);
    *p = (struct pooler){0};
}

int pooler_run(struct pooler *p, struct tensor states, int64_t begin, int64_t end, struct err *e)
{
    struct model *m = p->in->model;
    const struct job_spec *spec = p->in->spec;
    const int64_t C = m->shape.width;
    const bool mean = spec->embed.pooling == POOLING_MEAN;
    const bool cls = spec->embed.pooling == POOLING_CLS;
    memset(p->vector, 0, (size_t)C * sizeof *p->vector);
    add_own(m, states, mean || cls ? begin : end - 1, cls ? begin + 1 : end, p->buf, p->vector);
    if (sum_ranks(m, p->vector, e)) return -1;
    for (int64_t c = 0; c < C; c++) {
        if (mean) p->vector[c] /= (double)(end - begin);
        if (!isfinite(p->vector[c])) return 1;
    }
    if (spec->embed.normalize) normalize(p->vector, C);
    return 0;
}

void pooler_expect(const struct model *m, int64_t n, struct comm_count *want)
{
    const int64_t C = m->shape.width;
    for (int64_t c = 0; c < C; c += VOLUME_SMALL_N)
        volume_add(want, volume_sum_small(m->plan->sp, sum_length(C, c)), n);
}
