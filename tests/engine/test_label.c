/* Checks that the chosen labelling sends the smallest number of elements. For random graphs, and
 * for a transformer of space and time, it is compared with all possible labellings. For a block of
 * an Evoformer (AlphaFold 2), which has an MSA [s, r] and pairs [r, r], it is compared with a cost
 * that is computed by hand. */
#include "tests/lib/test.h"

#include <stdlib.h>
#include "worker/program/label.h"

static uint32_t draw(uint32_t *s, uint32_t n)
{
    *s = *s * 1664525u + 1013904223u;
    return (*s >> 16) % n;
}

/* ---- sent elements, counted index by index -------------------------------------------------- */

struct sizes {
    int n_dims, P;
    int64_t n[LABEL_WHOLE];
};

static int owner(const struct sizes *z, int dim, int64_t i)
{
    return (int)(i / ((z->n[dim] + z->P - 1) / z->P));
}

/* Counts the elements of one column that ranks must send if the label of the value changes. */
static int64_t count_moved(const struct sizes *z, int from, int to)
{
    int64_t at[LABEL_WHOLE] = {0}, n = 0;
    if (from == LABEL_WHOLE || from == to) return 0;
    for (;;) {
        n += to == LABEL_WHOLE ? z->P - 1 : owner(z, from, at[from]) != owner(z, to, at[to]);
        int d = 0;
        while (d < z->n_dims && ++at[d] == z->n[d]) at[d++] = 0;
        if (d == z->n_dims) return n;
    }
}

static struct label_value value_of(const struct sizes *z, int64_t cols)
{
    struct label_value v = {.one_label = false};
    for (int a = 0; a < LABELS; a++)
        for (int b = 0; b < LABELS; b++)
            if ((a < z->n_dims || a == LABEL_WHOLE) && (b < z->n_dims || b == LABEL_WHOLE))
                v.moved[a][b] = cols * count_moved(z, a, b);
    return v;
}

/* ---- all choices ----------------------------------------------------------------------------- */

struct search {
    const struct label_graph *g;
    bool has[LABEL_VALUES][LABELS];
    /* if one_label is set: the label with which the value was read first, or -1 if it has not been
     * read */
    int read_as[LABEL_VALUES];
    struct label_cost best;
    int64_t n_complete;
};

static bool less(const struct label_cost *a, const struct label_cost *b)
{
    if (a->moved != b->moved) return a->moved < b->moved;
    return a->n_moves != b->n_moves ? a->n_moves < b->n_moves : a->early < b->early;
}

/* Adds the cost of reading value v with the given label. Returns false if the value may not be
 * read with this label. */
static bool take(struct search *s, int i, int v, int label, struct label_cost *c)
{
    const struct label_value *x = &s->g->value[v];
    int64_t least = INT64_MAX;
    if (x->one_label && (label == LABEL_WHOLE || (s->read_as[v] >= 0 && s->read_as[v] != label)))
        return false;
    s->read_as[v] = label;
    if (s->has[v][label]) return true;
    for (int from = 0; from < LABELS; from++)
        if (s->has[v][from] && x->moved[from][label] < least) least = x->moved[from][label];
    s->has[v][label] = true;
    c->moved += least;
    c->n_moves++;
    c->early |= (uint64_t)1 << (63 - i);
    return true;
}

static void search_from(struct search *s, int i, struct label_cost so_far)
{
    if (s->best.moved != INT64_MAX && !less(&so_far, &s->best)) return;
    if (i == s->g->n_ops) {
        s->best = so_far;
        s->n_complete++;
        return;
    }
    const struct label_op *o = &s->g->op[i];
    for (int w = 0; w < o->n_ways; w++) {
        struct search next = *s;
        struct label_cost c = so_far;
        bool ok = true;
        for (int k = 0; ok && k < LABEL_INS; k++)
            ok = o->in[k] < 0 || take(&next, i, o->in[k], o->way[w].in[k], &c);
        if (!ok) continue;
        if (o->out >= 0) next.has[o->out][(int)o->way[w].out] = true;
        search_from(&next, i + 1, c);
        s->best = next.best;
    }
}

static struct label_cost brute(const struct label_graph *g)
{
    struct search s = {.g = g, .best = {.moved = INT64_MAX}};
    for (int v = 0; v < LABEL_VALUES; v++) s.read_as[v] = -1;
    search_from(&s, 0, (struct label_cost){0});
    return s.best;
}

/* Computes the cost if operation i uses the way way[i]. */
static bool cost_of(const struct label_graph *g, const int way[], struct label_cost *c)
{
    struct label_graph one = *g;
    for (int i = 0; i < g->n_ops; i++) {
        one.op[i].n_ways = 1;
        one.op[i].way[0] = g->op[i].way[way[i]];
    }
    *c = brute(&one);
    return c->moved != INT64_MAX;
}

static bool same(const struct label_cost *a, const struct label_cost *b)
{
    return a->moved == b->moved && a->n_moves == b->n_moves && a->early == b->early;
}

static struct label_cost check(const struct label_graph *g, const char *name)
{
    int way[LABEL_OPS];
    struct label_cost got = {.moved = -1}, chosen;
    const struct label_cost want = brute(g);
    const bool found = label_solve(g, way, &got);
    CHECK_MSG(found == (want.moved != INT64_MAX), "%s: found %d", name, found);
    if (!found || want.moved == INT64_MAX) return got;
    CHECK_MSG(same(&got, &want), "%s: %d moves of %lld elements, want %d of %lld", name,
              got.n_moves, (long long)got.moved, want.n_moves, (long long)want.moved);
    CHECK_MSG(cost_of(g, way, &chosen) && same(&chosen, &want), "%s: its ways cost other than said",
              name);
    return got;
}

/* ---- random graphs --------------------------------------------------------------------------- */

static int draw_label(uint32_t *seed, int n_dims)
{
    const uint32_t d = draw(seed, (uint32_t)n_dims + 1);
    return d == (uint32_t)n_dims ? (draw(seed, 3) ? 0 : LABEL_WHOLE) : (int)d;
}

static struct label_op draw_op(uint32_t *seed, int n_before, int n_dims)
{
    struct label_op o = {.in = {-1, -1, -1}, .out = n_before};
    const int n_in = n_before ? (int)draw(seed, 3) : 0;
    for (int k = 0; k < n_in; k++) o.in[k] = (int)draw(seed, (uint32_t)n_before);
    o.n_ways = 1 + (int)draw(seed, 3);
    for (int w = 0; w < o.n_ways; w++) {
        for (int k = 0; k < LABEL_INS; k++) o.way[w].in[k] = (signed char)draw_label(seed, n_dims);
        o.way[w].out = (signed char)draw_label(seed, n_dims);
    }
    return o;
}

static int draw_graph(uint32_t *seed, struct label_graph *g)
{
    struct sizes z = {.n_dims = 2 + (int)draw(seed, 2), .P = 1 + (int)draw(seed, 4)};
    *g = (struct label_graph){.n_ops = 1 + (int)draw(seed, 7)};
    g->n_values = g->n_ops;
    int n_shared = 0;
    for (int i = 0; i < g->n_ops; i++) {
        for (int d = 0; d < z.n_dims; d++) z.n[d] = 1 + draw(seed, 5);
        g->value[i] = value_of(&z, 1 + draw(seed, 3));
        g->op[i] = draw_op(seed, i, z.n_dims);
        bool whole = false;
        for (int w = 0; w < g->op[i].n_ways; w++) whole |= g->op[i].way[w].out == LABEL_WHOLE;
        g->value[i].one_label = !whole && draw(seed, 4) == 0;
        n_shared += g->value[i].one_label;
    }
    return n_shared;
}

static void test_random(void)
{
    static struct label_graph g;
    uint32_t seed = 11;
    int n_free = 0, n_moving = 0, n_none = 0;
    for (int i = 0; i < 3000; i++) {
        char name[32];
        int way[LABEL_OPS];
        struct label_cost c;
        snprintf(name, sizeof name, "graph %d", i);
        draw_graph(&seed, &g);
        check(&g, name);
        if (!label_solve(&g, way, &c))
            n_none++;
        else
            *(c.n_moves ? &n_moving : &n_free) += 1;
    }
    CHECK_MSG(n_none > 20 && n_free > 200 && n_moving > 500, "%d without a labelling, %d free, %d",
              n_none, n_free, n_moving);
}

/* ---- graphs written by hand ------------------------------------------------------------------ */

static int add_value(struct label_graph *g, const struct sizes *z, int64_t cols)
{
    g->value[g->n_values] = value_of(z, cols);
    return g->n_values++;
}

static void add(struct label_graph *g, int a, int b, int out, int n_ways,
                const struct label_way way[])
{
    struct label_op *o = &g->op[g->n_ops++];
    *o = (struct label_op){.in = {a, b, -1}, .out = out, .n_ways = n_ways};
    for (int w = 0; w < n_ways; w++) o->way[w] = way[w];
}

static void at(struct label_graph *g, int v, bool begins, int label)
{
    const signed char l = (signed char)label;
    add(g, begins ? -1 : v, -1, begins ? v : -1, 1, &(struct label_way){{l, l, l}, l});
}

/* An operation on single rows can be spread along either dimension. */
static const struct label_way either[2] = {{{0, 0, 0}, 0}, {{1, 1, 1}, 1}};

static int rows_of(struct label_graph *g, const struct sizes *z, int64_t cols, int a, int b)
{
    const int out = add_value(g, z, cols);
    add(g, a, b, out, 2, either);
    return out;
}

/* Adds an operation that needs all positions of dimension `dim` on one rank, so that the other
 * dimension must be divided among the ranks. If there is a second input b, every rank needs all of
 * b. */
static int sees_along(struct label_graph *g, const struct sizes *z, int64_t cols, int dim, int a,
                      int b)
{
    const int out = add_value(g, z, cols);
    const signed char l = (signed char)!dim;
    add(g, a, b, out, 1, &(struct label_way){{l, LABEL_WHOLE, 0}, l});
    return out;
}

/* ---- space and time -------------------------------------------------------------------------- */

/* Makes a chain of n pairs of blocks along space and, if both is set, along time. Before and after
 * the chain, the residual is divided along the dimension `home`. */
static struct label_cost pairs(int n, int P, bool both, int home)
{
    static struct label_graph g;
    const struct sizes z = {2, P, {31, 15}};
    g = (struct label_graph){0};
    int x = add_value(&g, &z, 1);
    at(&g, x, true, home);
    for (int i = 0; i < 2 * n; i++) {
        x = sees_along(&g, &z, 1, both && i % 2, x, -1);
        x = rows_of(&g, &z, 1, x, -1);
    }
    at(&g, x, false, home);
    if (n <= 2) return check(&g, "pairs");
    int way[LABEL_OPS];
    struct label_cost c = {.moved = -1};
    CHECK(label_solve(&g, way, &c));
    return c;
}

/* Checks that there are two switches for each pair of blocks. If no block needs all positions of
 * the divided dimension, there must be no switch. */
static void test_pairs(void)
{
    static const int n[] = {1, 2, 14};
    for (int i = 0; i < 3 * 7; i++) {
        const int N = n[i % 3], P = 2 + i / 3;
        const struct sizes z = {2, P, {31, 15}};
        const struct label_cost c = pairs(N, P, true, 0), none = pairs(N, P, false, 1);
        CHECK(c.n_moves == 2 * N);
        CHECK(c.moved == N * (count_moved(&z, 0, 1) + count_moved(&z, 1, 0)));
        CHECK(count_moved(&z, 0, 1) == count_moved(&z, 1, 0));
        CHECK(none.n_moves == 0 && none.moved == 0);
    }
}

/* ---- Evoformer ------------------------------------------------------------------------------- */

enum { MSA = 256, PAIR = 128, OUTER = 32, MSA_HEADS = 8, PAIR_HEADS = 4 }; /* columns */

/* Adds out_ij, the sum over k of products of a and b. If out is divided along i, every rank needs
 * all of b. If out is divided along j, every rank needs all of a. */
static int product(struct label_graph *g, const struct sizes *z, int a, int b, int index_dim)
{
    const int out = add_value(g, z, PAIR);
    const signed char d = (signed char)index_dim;
    const struct label_way ways[2] = {{{d, LABEL_WHOLE, 0}, 0}, {{LABEL_WHOLE, d, 0}, 1}};
    add(g, a, b, out, 2, ways);
    return out;
}

static int triangle_product(struct label_graph *g, const struct sizes *z, int pair, int index_dim)
{
    const int a = rows_of(g, z, PAIR, pair, -1), b = rows_of(g, z, PAIR, pair, -1);
    return rows_of(g, z, PAIR, pair, product(g, z, a, b, index_dim));
}

static int triangle_attention(struct label_graph *g, const struct sizes *z, int pair, int dim)
{
    const int bias = rows_of(g, z, PAIR_HEADS, pair, -1);
    return rows_of(g, z, PAIR, pair, sees_along(g, z, PAIR, dim, pair, bias));
}

/* Makes one block. Before and after the block, the MSA is divided along sequences, and the pairs
 * are divided along their first residue. */
static void evoformer(struct label_graph *g, const struct sizes *msa, const struct sizes *pair)
{
    *g = (struct label_graph){0};
    int m = add_value(g, msa, MSA), z = add_value(g, pair, PAIR);
    at(g, m, true, 0);
    at(g, z, true, 0);
    const int bias = rows_of(g, pair, MSA_HEADS, z, -1);
    m = rows_of(g, msa, MSA, m, sees_along(g, msa, MSA, 1, m, bias)); /* along residues */
    m = rows_of(g, msa, MSA, m, sees_along(g, msa, MSA, 0, m, -1));   /* along sequences */
    m = rows_of(g, msa, MSA, m, -1);
    const int a = rows_of(g, msa, OUTER, m, -1), b = rows_of(g, msa, OUTER, m, -1);
    z = rows_of(g, pair, PAIR, z, product(g, pair, a, b, 1));
    z = triangle_product(g, pair, z, 0);   /* the outgoing product, a_ik b_jk */
    z = triangle_product(g, pair, z, 1);   /* the incoming product, a_ki b_kj */
    z = triangle_attention(g, pair, z, 1); /* around the starting node */
    z = triangle_attention(g, pair, z, 0); /* around the ending node */
    z = rows_of(g, pair, PAIR, z, -1);
    at(g, m, false, 0);
    at(g, z, false, 0);
}

/* Compares the cost with one that is computed by hand, for sizes that P divides. A switch sends
 * (P - 1) / P of all rows. Gathering a complete value on every rank sends P - 1 times all of its
 * rows.
 *   m  is switched before attention along sequences, and back at the end
 *   b  of the outer product is gathered, because a is divided along residues
 *   z  In the outgoing product b is gathered. In the incoming product a is switched and b is
 *      gathered. z is switched before attention around the ending node, and back at the end. The
 *      three biases are gathered. */
static void check_evoformer(int64_t s, int64_t r, int P)
{
    static struct label_graph g;
    const struct sizes msa = {2, P, {s, r}}, pair = {2, P, {r, r}};
    evoformer(&g, &msa, &pair);
    const struct label_cost c = check(&g, "an Evoformer's block");
    const int64_t m = s * r, z = r * r;
    const int64_t switched = 2 * m * MSA + 3 * z * PAIR;
    const int64_t whole = m * OUTER + z * (MSA_HEADS + 2 * PAIR + 2 * PAIR_HEADS);
    CHECK_MSG(c.moved == switched / P * (P - 1) + whole * (P - 1),
              "%lld x %lld, P %d: %lld elements in %d moves", (long long)s, (long long)r, P,
              (long long)c.moved, c.n_moves);
    CHECK(c.n_moves == 2 + 3 + 1 + 2 + 3);
}

static void test_evoformer(void)
{
    for (int P = 2; P <= 4; P *= 2) check_evoformer(8, 4, P);
    check_evoformer(16, 8, 8);
}

int main(void)
{
    RUN(test_random);
    RUN(test_pairs);
    RUN(test_evoformer);
    return test_done("label");
}
