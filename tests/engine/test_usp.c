/* Checks USP, which uses Ulysses within groups of ranks and a ring across the groups. Compares its
 * results with results that are computed in float64 from the definition (tests/lib/ring.h). Checks
 * that its bits are reproduced. Compares the bytes that it sends with formulas of this file. */
/* Not under sanitizers: test_ulysses and test_attention run the same code. */
#include "tests/lib/variants.h"

static const struct product {
    int P, u;
} products[] = {{2, 1}, {2, 2}, {3, 3}, {4, 1}, {4, 2}, {4, 4}, {6, 2}, {6, 3}, {8, 2}, {8, 4}};
enum { N_PRODUCTS = sizeof products / sizeof *products };

/* Numbers of heads. Some are multiples of a group's size, and others are not. In some cases ranks
 * share KV heads, or there is one KV head for all ranks. */
static const struct heads heads[] = {{8, 8, 8}, {8, 2, 24}, {6, 3, 8}, {9, 3, 8}, {4, 1, 16}};
enum { N_HEADS = sizeof heads / sizeof *heads };

static void check_problem(struct problem p)
{
    static int turn;
    truth(&p);
    for (int i = 0; i < N_PRODUCTS; i++)
        for (int zigzag = 0; zigzag < 2; zigzag++, turn++) {
            if (small_leaves(turn, 7)) continue;
            check_variant(&p,
                          &(struct variant){.P = products[i].P,
                                            .u = products[i].u,
                                            .layout = zigzag ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS,
                                            .strategy = STRATEGY_USP,
                                            .maps = turn / 2 % 2,
                                            .fused = turn / 3 % 2,
                                            .n_threads = 1 + turn / 5 % 2});
        }
    problem_free(&p);
}

static void test_few_tokens(void)
{
    each_problem(1, heads, N_HEADS, check_problem);
    each_problem(9, heads, N_HEADS, check_problem);
}

static void test_37(void)
{
    each_problem(37, heads, N_HEADS, check_problem);
}

static void test_long(void)
{
    check_problem(problem_make(701, 6, 2, 24, DOCS_FIVE, true));
    for (int causal = 0; causal < 2; causal++) {
        struct problem p = problem_make(300, 4, 2, 16, DOCS_FIVE, causal);
        p.window = 50;
        check_problem(p);
    }
    for (int h = 0; h < N_HEADS; h++) { /* masks depend on the model's heads and positions */
        struct problem d = problem_make(53, heads[h].H, heads[h].Hk, heads[h].D, DOCS_FIVE, h & 1);
        d.drop = 0.3;
        check_problem(d);
    }
}

/* ---- "ranks" --------------------------------------------------------------------------------- */

static void check_bits(struct problem p)
{
    struct variant v = {.P = 1,
                        .layout = LAYOUT_CONTIGUOUS,
                        .rank_bits = true,
                        .strategy = STRATEGY_LOCAL,
                        .n_threads = 1};
    struct result want = result_make(&p), got = result_make(&p);
    truth(&p);
    CHECK(run(&p, &v, &want) == 0 && within(compare(&p, &want)));
    v.strategy = STRATEGY_USP;
    for (v.P = 2; v.P <= 8; v.P *= 2)
        for (v.u = 1; v.u <= v.P && v.u <= p.Hk; v.u *= 2) {
            v.maps = v.u == 2;
            v.n_threads = 1 + v.P % 3 % 2;
            CHECK(run(&p, &v, &got) == 0);
            CHECK_MSG(same_bits(&p, &got, &want),
                      "S %lld H %lld:%lld P %d in groups of %d differs from one rank",
                      (long long)p.S, (long long)p.H, (long long)p.Hk, v.P, v.u);
        }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

static void test_rank_bits(void)
{
    check_bits(problem_make(37, 8, 8, 16, DOCS_ONE, true));
    check_bits(problem_make(37, 16, 8, 8, DOCS_FIVE, false));
    check_bits(problem_make(500, 8, 4, 24, DOCS_FIVE, true));
    check_bits(problem_make(37, 4, 2, 8, DOCS_ONE, true));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Counts bytes by the formula in the strategy's row of the table. run() compares the ledger with
 * the same formula. */
static void planned(const struct problem *p, const struct variant *v, int rank, bool back,
                    struct comm_count out[PURPOSE_N])
{
    struct shard sh;
    struct reach_map map = {0};
    if (shard_init_groups(&sh, p->S, v->P, v->u, rank, v->layout, v->rank_bits, NULL)) abort();
    if (v->maps) map_of(&map, p, &sh);
    memset(out, 0, PURPOSE_N * sizeof *out);
    strategy_form(v->strategy, FORM_AUTO)
        ->traffic(&(struct attention_pass){.sh = &sh,
                                           .map = &map,
                                           .H = p->H,
                                           .Hk = p->Hk,
                                           .D = p->D,
                                           .precision = PRECISION_FP32,
                                           .back = back},
                  out);
}

/* Checks bytes with T rows per rank, u ranks per group and r groups, heads that u divides, and
 * fp32:
 *   heads   (u-1)/u (2H + 2Hk) T D elements in each direction, in three messages to each other
 *   rank
 *           of the group, or six if a group has two runs of rows
 *   ring    2 Hk/u uT D elements per hop: r - 1 hops forward, r - 1 backward, and r - 1 of
 *   gradients,
 *           of which determinism "ranks" has r */
static void test_whole_blocks(void)
{
    for (int i = 0; i < N_PRODUCTS; i++)
        for (int way = 0; way < 3; way++) {
            const int P = products[i].P, u = products[i].u, r = P / u, two = way == 1;
            const struct variant v = {.P = P,
                                      .u = u,
                                      .layout = two ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS,
                                      .strategy = STRATEGY_USP,
                                      .rank_bits = way == 2};
            struct problem p = {.S = 48 * P, .H = 24, .Hk = 12, .D = 8, .causal = true};
            const int64_t T = 48, all = (2 * p.H + 2 * p.Hk) * T * p.D / u * (u - 1) * 4;
            const int64_t block = 2 * p.Hk * T * p.D * 4, hops = r - 1, home = way == 2 ? r : r - 1;
            struct comm_count c[PURPOSE_N];
            if (way == 2 && (P & (P - 1) || u > 8)) continue;
            for (int rank = 0; rank < P; rank++)
                for (int back = 0; back < 2; back++) {
                    planned(&p, &v, rank, back, c);
                    const struct comm_count *h = &c[PURPOSE_HEADS], *kv = &c[PURPOSE_RING_KV];
                    const struct comm_count *dkv = &c[PURPOSE_RING_DKV];
                    CHECK(h->bytes_sent == all && h->bytes_received == all);
                    CHECK(h->messages_sent == 3 * (u - 1) * (1 + two));
                    CHECK(kv->bytes_sent == hops * block && kv->bytes_received == hops * block);
                    CHECK(kv->messages_sent == hops * p.Hk / u);
                    CHECK(dkv->bytes_sent == (back && r > 1 ? home * block : 0));
                    CHECK(dkv->messages_sent == (back && r > 1 ? home * p.Hk / u : 0));
                }
        }
}

/* Tells whether any row of group a belongs to the same document as a row of group b. */
static bool meets(const struct problem *p, const struct variant *v, int a, int b)
{
    const int64_t T = rows_of(p, v);
    for (int64_t i = 0; i < v->u * T; i++)
        for (int64_t j = 0; j < v->u * T; j++) {
            const int64_t x = global_of(p, v, a * v->u + (int)(i / T), i % T);
            const int64_t y = global_of(p, v, b * v->u + (int)(j / T), j % T);
            if (x < p->S && y < p->S && p->doc[x] == p->doc[y]) return true;
        }
    return false;
}

/* Checks the blocks that are sent if documents are known. A block must be sent only up to the last
 * group that needs it. The gradient of the block must be sent around the ring, from the first
 * group that needs the block back to the group that owns it. */
static void check_met(const struct problem *p, const struct variant *v)
{
    const int r = v->P / v->u;
    const int64_t size = v->u * rows_of(p, v) * 2 * p->D * 4;
    int64_t kv[MAX_P] = {0}, dkv[MAX_P] = {0}; /* the blocks that each group's ranks send */
    for (int j = 0; j < r; j++) {
        int near = 0, far = 0;
        for (int i = 1; i < r; i++)
            if (meets(p, v, (j + i) % r, j)) near = near ? near : i, far = i;
        for (int i = 0; i < far; i++) kv[(j + i) % r]++;
        for (int i = near; near && i < r; i++) dkv[(j + i) % r]++;
    }
    for (int rank = 0; rank < v->P; rank++) {
        struct comm_count c[PURPOSE_N];
        const int64_t nk = attention_head_share(p->H, p->Hk, v->u, rank % v->u).nk;
        planned(p, v, rank, true, c);
        CHECK(c[PURPOSE_RING_KV].bytes_sent == kv[rank / v->u] * nk * size);
        CHECK(c[PURPOSE_RING_KV].messages_sent == kv[rank / v->u] * nk);
        CHECK(c[PURPOSE_RING_DKV].bytes_sent == dkv[rank / v->u] * nk * size);
    }
}

static void test_met_blocks(void)
{
    for (int i = 0; i < N_PRODUCTS; i++)
        for (int docs = 0; docs < DOCS_N; docs++)
            for (int zigzag = 0; zigzag < 2; zigzag++) {
                struct problem p = problem_make(97, 8, 2, 8, (enum docs)docs, true);
                check_met(&p,
                          &(struct variant){.P = products[i].P,
                                            .u = products[i].u,
                                            .layout = zigzag ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS,
                                            .strategy = STRATEGY_USP,
                                            .maps = true});
                problem_free(&p);
            }
}

int main(void)
{
    RUN(test_few_tokens);
    RUN(test_37);
    RUN(test_long);
    RUN(test_rank_bits);
    RUN(test_whole_blocks);
    RUN(test_met_blocks);
    return variants_done("usp");
}
