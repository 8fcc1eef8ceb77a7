/* head.c: final norm, logits and loss, a chunk of rows at a time: no [S, V] matrix ever exists. */
#include "worker/model/model.h"

#include <assert.h>

static struct tensor head_weight(const struct model *m)
{
    return model_weight(m, m->map.head, m->shape.vocab, m->shape.width);
}

/* Rows [row0, row0 + n) of the final norm's output into xn, at the same rows. */
static struct tensor final_norm(struct model *m, int64_t row0, int64_t n)
{
    const int64_t C = m->shape.width;
    const struct tensor y = tensor_sub(model_rows(m, m->xn, C), row0, n, 0, C);
    m->be->ops->rmsnorm_fwd(
        m->be, &(struct rmsnorm_fwd_args){.x = tensor_sub(model_hidden(m), row0, n, 0, C),
                                          .y = y,
                                          .g = model_weight(m, m->map.norm, 1, C),
                                          .rstd = m->rstd + row0,
                                          .eps = (float)m->shape.norm_eps});
    return y;
}

struct tensor model_normed(struct model *m, int64_t row0, int64_t n)
{
    assert(row0 >= 0 && row0 + n <= m->sp.shard.T);
    if (m->plan->by_program) return section_normed(m, row0, n);
    return final_norm(m, row0, n);
}

static struct tensor logits_of(struct model *m, struct tensor xn)
{
    const int64_t V = m->shape.vocab;
    const struct tensor out = tensor_f32(m->logits, xn.rows, V, V);
    m->be->ops->gemm(m->be,
                     &(struct gemm_args){.a = xn, .b = head_weight(m), .c = out, .trans_b = true});
    return out;
}

struct tensor model_logits(struct model *m, int64_t row0, int64_t n)
{
    assert(n <= m->plan->loss_chunk && row0 >= 0 && row0 + n <= m->sp.shard.T);
    if (m->plan->by_program) return section_logits(m, row0, n);
    return logits_of(m, final_norm(m, row0, n));
}

/* ---- loss ------------------------------------------------------------------------------------ */

struct head {
    const struct batch *b;
    float scale;
    bool backward;
};

/* Where the gradient of logits goes: into their own memory, in bf16 the first half of each row. */
static struct tensor dlogits_of(const struct model *m, struct tensor logits)
{
    const int64_t ld = logits.ld * dtype_size(DT_F32) / dtype_size(m->dtype);
    return tensor_of(m->dtype, logits.data, logits.rows, logits.cols, ld);
}

/* Loss chunks of one sum chunk, whose head gradient goes to dst. */
static void head_leaf(struct model *m, void *arg, int64_t row0, int64_t n_rows, float *dst,
                      bool fresh)
{
    const struct head *h = arg;
    const int64_t C = m->shape.width, step = m->plan->loss_chunk;
    for (int64_t r = row0; r < row0 + n_rows; r += step) {
        const int64_t n = r + step < row0 + n_rows ? step : row0 + n_rows - r;
        const struct tensor xn = final_norm(m, r, n), logits = logits_of(m, xn);
        const struct tensor dlogits = dlogits_of(m, logits);
        m->be->ops->xent(m->be, &(struct xent_args){.logits = logits,
                                                    .dlogits = dlogits,
                                                    .targets = h->b->targets + r,
                                                    .nll = m->nll + r,
                                                    .scale = h->scale,
                                                    .backward = h->backward});
        if (!h->backward) continue;
        m->be->ops->gemm(
            m->be, &(struct gemm_args){.a = dlogits,
                                       .b = head_weight(m),
                                       .c = tensor_sub(model_rows(m, m->dxn, C), r, n, 0, C)});
        m->be->ops->gemm(m->be, &(struct gemm_args){.a = dlogits,
                                                    .b = xn,
                                                    .c = tensor_f32(dst, m->shape.vocab, C, C),
                                                    .trans_a = true,
                                                    .accumulate = !fresh || r > row0});
    }
}

static void norm_leaf(struct model *m, void *arg, int64_t row0, int64_t n, float *dst, bool fresh)
{
    const int64_t C = m->shape.width;
    if (fresh) m->be->ops->fill(m->be, dst, C, 0);
    m->be->ops->rmsnorm_bwd(
        m->be, &(struct rmsnorm_bwd_args){.x = tensor_sub(model_hidden(m), row0, n, 0, C),
                                          .dy = tensor_sub(model_rows(m, m->dxn, C), row0, n, 0, C),
                                          .dx = tensor_sub(model_rows(m, m->dx, C), row0, n, 0, C),
                                          .g = model_weight(m, m->map.norm, 1, C),
                                          .rstd = m->rstd + row0,
                                          .dg = dst});
}

/* Rows ascending within a sum chunk, then a perfect binary tree over the n chunks from `first`. */
static double sum_nll(const struct model *m, int first, int n)
{
    double s = 0;
    if (n > 1) return sum_nll(m, first, n / 2) + sum_nll(m, first + n / 2, n / 2);
    const double *p = m->nll + first * m->sp.shard.sum_len;
    for (int64_t i = 0; i < m->sp.shard.sum_len; i++) s += p[i];
    return s;
}

double model_sum_nll(const struct model *m)
{
    return sum_nll(m, 0, m->sp.shard.n_sums);
}

double head_loss(struct model *m, const struct batch *b, float scale, bool backward)
{
    struct head h = {b, scale, backward};
    const int64_t V = m->shape.vocab, C = m->shape.width;
    if (backward) {
        tree_sum(m, model_gradient(m, m->map.head), V * C, &(struct tree_leaf){head_leaf, &h});
        tree_sum(m, model_gradient(m, m->map.norm), C, &(struct tree_leaf){norm_leaf, NULL});
    } else {
        head_leaf(m, &h, 0, m->sp.shard.T, NULL, false);
    }
    return model_sum_nll(m);
}

double model_nll(struct model *m, const struct batch *b)
{
    if (!m->plan->by_program) return head_loss(m, b, 0, false);
    section_loss(m, b);
    return model_sum_nll(m);
}
