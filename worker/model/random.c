/* random.c: initial weights, a pure function of (seed, tensor, element). */
#include "worker/model/model.h"

#include <assert.h>
#include <math.h>
#include "kernels/half.h"
#include "kernels/philox.h"

/* (0, 1): never 0, so that its logarithm is finite. */
static double uniform(uint32_t u)
{
    return ((double)u + 0.5) / 4294967296.0;
}

static void words(int64_t seed, uint32_t tensor, int64_t block, uint32_t u[4])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)((uint64_t)seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), tensor, 0};
    philox4x32(key, counter, u);
}

/* Four normals from one Philox block (Box and Muller). */
static void normals(int64_t seed, uint32_t tensor, int64_t block, double out[4])
{
    uint32_t u[4];
    words(seed, tensor, block, u);
    for (int i = 0; i < 4; i += 2) {
        const double r = sqrt(-2 * log(uniform(u[i]))), a = 2 * M_PI * uniform(u[i + 1]);
        out[i] = r * cos(a);
        out[i + 1] = r * sin(a);
    }
}

struct draw {
    int64_t seed;
    int tensor, n_layers;
    const struct param *p;
};

/* Elements [k, k + n), n at most LINE and k a multiple of 4. */
static void normal_line(const struct draw *d, double std, int64_t k, int64_t n, float *out)
{
    for (int64_t j = 0; j < n; j += 4) {
        double z[4];
        normals(d->seed, (uint32_t)d->tensor, (k + j) / 4, z);
        for (int q = 0; q < 4 && j + q < n; q++) out[j + q] = (float)(std * z[q]);
    }
}

static void decay_line(const struct draw *d, int64_t k, int64_t n, float *out)
{
    for (int64_t j = 0; j < n; j += 4) {
        uint32_t u[4];
        words(d->seed, (uint32_t)d->tensor, (k + j) / 4, u);
        for (int q = 0; q < 4 && j + q < n; q++) out[j + q] = (float)log(16 * uniform(u[q]));
    }
}

static void random_line(const struct draw *d, int64_t k, int64_t n, float *out)
{
    const double count = (double)d->p->count, cols = (double)d->p->cols;
    switch (d->p->init) {
    case INIT_NORMAL: normal_line(d, 0.02, k, n, out); return;
    case INIT_RESIDUAL: normal_line(d, 0.02 / sqrt(2.0 * d->n_layers), k, n, out); return;
    case INIT_TABLE: normal_line(d, 1 / sqrt(cols), k, n, out); return;
    case INIT_ONE:
    case INIT_ZERO:
        for (int64_t j = 0; j < n; j++) out[j] = d->p->init == INIT_ONE;
        return;
    case INIT_DECAY: decay_line(d, k, n, out); return;
    case INIT_LRPE:
        for (int64_t j = 0; j < n; j++) out[j] = (float)pow(10000, -2 * (double)(k + j) / count);
    }
}

enum { LINE = 1024 };

static void store(struct be *be, struct tensor to, const float *line)
{
    uint16_t half[LINE];
    if (to.dtype == DT_F32) {
        be->ops->upload(be, to.data, line, to.cols * 4);
        return;
    }
    for (int64_t j = 0; j < to.cols; j++) half[j] = half_round(to.dtype, line[j]);
    be->ops->upload(be, to.data, half, to.cols * 2);
}

/* The elements of [from, from + out.cols) that belong to a tensor. */
static void random_tensor(struct be *be, const struct draw *d, int64_t from, struct tensor out)
{
    const struct param *p = d->p;
    float line[LINE];
    int64_t k = from > p->offset ? from - p->offset : 0;
    const int64_t left = from + out.cols - p->offset, end = left < p->count ? left : p->count;
    while (k < end) {
        const int64_t k0 = k & ~(int64_t)3, room = k0 + LINE < end ? k0 + LINE : end;
        random_line(d, k0, room - k0, line);
        store(be, tensor_sub(out, 0, 1, p->offset + k - from, room - k), line + (k - k0));
        k = room;
    }
}

void model_random_part(struct be *be, const struct model_shape *s, int64_t seed, int64_t from,
                       struct tensor out)
{
    static const float zeros[LINE];
    assert(out.rows == 1);
    for (int64_t k = 0; k < out.cols; k += LINE)
        store(be, tensor_sub(out, 0, 1, k, out.cols - k < LINE ? out.cols - k : LINE), zeros);
    for (int b = 0; b <= s->n_layers + 1; b++) {
        struct param p[PROG_WEIGHTS];
        int first;
        const int n = param_bucket(s, b, p, &first);
        for (int i = 0; i < n; i++)
            random_tensor(be, &(struct draw){seed, first + i, s->n_layers, &p[i]}, from, out);
    }
}

void model_random(struct model *m, int64_t seed)
{
    const int64_t n = m->plan->n_params;
    model_random_part(m->be, &m->shape, seed, 0, tensor_of(m->dtype, m->params, 1, n, n));
}
