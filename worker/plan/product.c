/* product.c: tries all divisors for each axis that the job leaves open. The ranks that share a
 * layer must be on one node. */
#include "worker/plan/product.h"

#include <stdbool.h>

static bool agrees(int said, int degree)
{
    return !said || said == degree;
}

/* Tells whether ranks that share layers are always on one node. Ranks that share layers are
 * consecutive. So it is enough if a node has a multiple of tp ranks, or if the job has only one
 * node. */
static bool within_node(int tp, int ranks, int per_node)
{
    return per_node <= 0 || per_node >= ranks || per_node % tp == 0;
}

int products_of(const struct axes *said, int ranks, int per_node, struct axes out[PRODUCTS_MAX])
{
    int n = 0;
    for (int model = 1; model <= ranks; model++) {
        const int rest = ranks / model;
        for (int tp = model; tp >= 1 && ranks % model == 0; tp--) {
            if (model % tp || !agrees(said->tp, tp) || !agrees(said->pp, model / tp)) continue;
            if (said->tp != tp && !within_node(tp, ranks, per_node)) continue;
            for (int sp = rest; sp >= 1; sp--) {
                if (rest % sp || !agrees(said->sp, sp) || !agrees(said->dp, rest / sp)) continue;
                assert(n < PRODUCTS_MAX);
                out[n++] = (struct axes){.dp = rest / sp, .pp = model / tp, .sp = sp, .tp = tp};
            }
        }
    }
    return n;
}

/* Divides the ranks that share a stage and a tp index into groups of n ranks. Tells whether no
 * group includes ranks of two nodes. */
static bool groups_stay(const struct axes *a, int n, int per_node)
{
    for (int rank = 0; rank < axes_ranks(a); rank++) {
        const struct rank_set of = axes_line(a, rank, AXIS_DP | AXIS_SP);
        for (int i = 0; i < of.n; i++)
            if (rank_set_at(&of, i) / per_node != rank_set_at(&of, i / n * n) / per_node)
                return false;
    }
    return true;
}

int product_zero_group(const struct axes *a, int per_node)
{
    const struct rank_set of = axes_line(a, 0, AXIS_DP | AXIS_SP);
    int n = 0;
    if (per_node <= 0) return 0;
    while (n < of.n && rank_set_at(&of, n) < per_node) n++;
    if (n <= 1 || n == of.n || of.n % n) return 0;
    return groups_stay(a, n, per_node) ? n : 0;
}
