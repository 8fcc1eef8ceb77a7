/* tree.c: sums over the rows of a shard in an order that does not depend on the number of ranks. */
#include <assert.h>
#include "worker/model/model.h"

struct walk {
    struct model *m;
    int64_t n; /* floats of the sum */
    const struct tree_leaf *leaf;
};

/* dst = sum over chunks [first, first + count), count a power of two: ((0+1)+(2+3))+... A rank's
 * chunks are an aligned subtree of the whole sequence's, which comm_sum_f32 completes. Each level
 * below the top needs one buffer, for its right half. */
static void sum_range(const struct walk *w, int first, int count, float *dst, int level)
{
    struct model *m = w->m;
    if (count == 1) {
        const int64_t len = m->sp.shard.sum_len;
        w->leaf->call(m, w->leaf->arg, first * len, len, dst, true);
        return;
    }
    float *right = m->tree + level * m->tree_stride / 4;
    sum_range(w, first, count / 2, dst, level + 1);
    sum_range(w, first + count / 2, count / 2, right, level + 1);
    m->be->ops->add(m->be, &(struct add_args){.y = dst, .x = right, .n = w->n});
}

void tree_sum(struct model *m, float *dst, int64_t n, const struct tree_leaf *leaf)
{
    const struct walk w = {m, n, leaf};
    const struct shard *sh = &m->sp.shard;
    assert(sh->n_sums == 1 || n <= m->plan->tree_size);
    if (m->plan->rank_bits)
        sum_range(&w, 0, sh->n_sums, dst, 0);
    else
        leaf->call(m, leaf->arg, 0, sh->T, dst, false);
}

struct gemm_leaf {
    struct tensor a, b;
};

static void gemm_leaf(struct model *m, void *arg, int64_t row0, int64_t n, float *dst, bool fresh)
{
    const struct gemm_leaf *g = arg;
    m->be->ops->gemm(m->be,
                     &(struct gemm_args){.a = tensor_sub(g->a, row0, n, 0, g->a.cols),
                                         .b = tensor_sub(g->b, row0, n, 0, g->b.cols),
                                         .c = tensor_f32(dst, g->a.cols, g->b.cols, g->b.cols),
                                         .trans_a = true,
                                         .accumulate = !fresh});
}

void tree_gemm(struct model *m, float *dst, struct tensor a, struct tensor b)
{
    struct gemm_leaf g = {a, b};
    tree_sum(m, dst, a.cols * b.cols, &(struct tree_leaf){gemm_leaf, &g});
}
