/* random.c: initial weights, a pure function of (seed, tensor, element). */
#include "worker/model/model.h"

#include <math.h>

void philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* (0, 1): never 0, so that its logarithm is finite. */
static double uniform(uint32_t u)
{
    return ((double)u + 0.5) / 4294967296.0;
}

/* Four normals from one Philox block (Box and Muller). */
static void normals(int64_t seed, uint32_t tensor, int64_t block, double out[4])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)((uint64_t)seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), tensor, 0};
    uint32_t u[4];
    philox4x32(key, counter, u);
    for (int i = 0; i < 4; i += 2) {
        const double r = sqrt(-2 * log(uniform(u[i]))), a = 2 * M_PI * uniform(u[i + 1]);
        out[i] = r * cos(a);
        out[i + 1] = r * sin(a);
    }
}

static bool ends_with_residual(int i)
{
    const int part = (i - 1) % PARAM_PER_LAYER; /* see worker/plan/param.c: o_proj, down_proj */
    return part == 4 || part == 8;
}

void model_random(struct model *m, int64_t seed)
{
    const int n_tensors = param_tensors(&m->shape), n_inside = PARAM_PER_LAYER * m->shape.n_layers;
    float line[1024];
    m->be->ops->fill(m->be, m->params, m->map.end, 0);
    for (int i = 0; i < n_tensors; i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        if (!p.cols) {
            m->be->ops->fill(m->be, m->params + p.offset, p.count, 1);
            continue;
        }
        const bool residual = i > 0 && i <= n_inside && ends_with_residual(i);
        const double std = residual ? 0.02 / sqrt(2.0 * m->shape.n_layers) : 0.02;
        for (int64_t k = 0; k < p.count; k += 1024) {
            const int64_t n = p.count - k < 1024 ? p.count - k : 1024;
            for (int64_t j = 0; j < n; j += 4) {
                double z[4];
                normals(seed, (uint32_t)i, (k + j) / 4, z);
                for (int q = 0; q < 4 && j + q < n; q++) line[j + q] = (float)(std * z[q]);
            }
            m->be->ops->upload(m->be, m->params + p.offset + k, line, n * 4);
        }
    }
}
