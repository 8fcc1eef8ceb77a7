/* Checks that keys that no query sees are neither sent nor used, with packed documents and with
 * windows, in the blockwise ring and in the all-gather form. Results are compared with float64
 * (tests/lib/ring.h). The bytes that are sent are compared with a count that the test makes token
 * by token. */
/* Not under sanitizers: test_attention and test_packing run the same code. */
#include "tests/lib/variants.h"

/* ---- bytes, token by token ------------------------------------------------------------------- */

static int owner_of(const struct problem *p, const struct variant *v, int64_t pos)
{
    for (int r = 0; r < v->P; r++)
        for (int64_t i = 0; i < rows_of(p, v); i++)
            if (global_of(p, v, r, i) == pos) return r;
    abort();
}

/* Tells whether the ring must send key j to the rank of query i. With a window, this is true if
 * query i sees key j. Without a window, it is true if i and j are in the same document. */
static bool token_meets(const struct problem *p, int64_t i, int64_t j)
{
    return p->window ? sees(p, i, j) : p->doc[i] == p->doc[j];
}

struct pairs {
    bool meets[MAX_P][MAX_P]; /* meets[q][j] is true if rank q needs a key of rank j */
};

static void pairs_of(const struct problem *p, const struct variant *v, struct pairs *out)
{
    int *owner = mem(p->S, sizeof *owner);
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < p->S; i++) owner[i] = owner_of(p, v, i);
    for (int64_t i = 0; i < p->S; i++)
        for (int64_t j = 0; j < p->S; j++)
            if (token_meets(p, i, j)) out->meets[owner[i]][owner[j]] = true;
    free(owner);
}

static int64_t ring_kv_sent(const struct pairs *m, int P, int r)
{
    int64_t n = 0;
    for (int j = 0; j < P;
         j++) { /* rank r = j+i-1 sends KV_j in hop i if a later rank of the ring needs KV_j */
        const int i = (r - j + P) % P + 1;
        bool on = false;
        for (int k = i; k < P; k++) on |= m->meets[(j + k) % P][j];
        n += on;
    }
    return n;
}

static int64_t ring_dkv_sent(const struct pairs *m, int P, int r, bool rank_bits)
{
    int64_t n = 0;
    for (int j = 0; j < P; j++) {
        const int here = (r - j + P) % P; /* r is rank j + `here` */
        bool born = false;
        for (int k = 1; k < P; k++)
            if (rank_bits || k <= here) born |= m->meets[(j + k) % P][j];
        n += born && (here > 0 || rank_bits);
    }
    return n;
}

/* Finds the first and the last row of segment g of rank j that rank q sees. Returns the number of
 * rows from the first to the last. */
static int64_t rows_seen(const struct problem *p, const struct variant *v, int q, int j, int64_t g,
                         int64_t seg)
{
    int64_t first = -1, last = -2;
    for (int64_t t = g * seg; t < (g + 1) * seg; t++) {
        const int64_t key = global_of(p, v, j, t);
        bool seen = false;
        for (int64_t i = 0; i < rows_of(p, v) && key < p->S; i++) {
            const int64_t at = global_of(p, v, q, i);
            seen |= at < p->S && sees(p, at, key);
        }
        if (seen && first < 0) first = t;
        if (seen) last = t;
    }
    return last - first + 1;
}

struct gathered {
    int64_t rows, messages;
};

static struct gathered gather_sent(const struct problem *p, const struct variant *v, int r)
{
    const int64_t T = rows_of(p, v);
    const int64_t n_segs = v->rank_bits ? 8 / v->P : v->layout == LAYOUT_ZIGZAG ? 2 : 1;
    struct gathered out = {0, 0};
    for (int q = 0; q < v->P; q++)
        for (int64_t g = 0; q != r && g < n_segs; g++) {
            const int64_t n = rows_seen(p, v, q, r, g, T / n_segs);
            out.rows += n;
            out.messages += n > 0;
        }
    return out;
}

/* Checks that the formulas agree with a count of tokens. run() compares the formulas with the
 * ledger. */
static void check_counts(const struct problem *p, const struct variant *v)
{
    const int64_t T = rows_of(p, v), row = 2 * p->Hk * p->D * 4;
    const bool ring = v->form == FORM_BLOCKWISE;
    struct pairs m;
    pairs_of(p, v, &m);
    for (int r = 0; r < v->P; r++) {
        struct comm_count want[PURPOSE_N] = {0};
        count_run(p, v, r, want);
        const struct comm_count kv = want[PURPOSE_RING_KV], dkv = want[PURPOSE_RING_DKV];
        const int64_t kv_hops = ring_kv_sent(&m, v->P, r);
        const int64_t dkv_hops = ring_dkv_sent(&m, v->P, r, v->rank_bits);
        const struct gathered g = gather_sent(p, v, r);
        int64_t messages = 2 * kv_hops, bytes = 2 * kv_hops * T * row;
        if (!ring) messages = 2 * g.messages, bytes = 2 * g.rows * row;
        if (!ring && v->rank_bits) /* its backward is that of the ring */
            messages = g.messages + kv_hops, bytes = g.rows * row + kv_hops * T * row;
        CHECK_MSG(kv.messages_sent == messages && kv.bytes_sent == bytes,
                  "P %d rank %d: KV %lld messages of %lld bytes, want %lld of %lld", v->P, r,
                  (long long)kv.messages_sent, (long long)kv.bytes_sent, (long long)messages,
                  (long long)bytes);
        if (ring || v->rank_bits)
            CHECK(dkv.messages_sent == dkv_hops && dkv.bytes_sent == dkv_hops * T * row);
        else
            CHECK(dkv.messages_received == g.messages && dkv.bytes_received == g.rows * row);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static void check_reach(const struct problem *p, const struct variant *v)
{
    check_variant(p, v);
    if (v->maps && p->S <= 64) check_counts(p, v);
}

static void check_problem(struct problem p)
{
    static int turn;
    truth(&p);
    for (int i = 0; i < N_DEGREES; i++)
        /* the ring with a map of the documents, and the all-gather form with and without a map */
        for (int k = 0; k < 3; k++, turn++) {
            if (small_leaves(turn, 5)) continue;
            check_reach(&p, &(struct variant){.P = degrees[i],
                                              .layout = LAYOUT_CONTIGUOUS + turn % 2,
                                              .strategy = STRATEGY_RSA,
                                              .form = k ? FORM_ALL_GATHER : FORM_BLOCKWISE,
                                              .fused = turn / 3 % 2,
                                              .maps = k < 2,
                                              .n_threads = 1 + turn / 5 % 2});
        }
    problem_free(&p);
}

static void each(int64_t S)
{
    static const int64_t windows[] = {0, 1, 6, 1000};
    for (int docs = 0; docs < DOCS_N; docs++)
        for (int causal = 0; causal < 2; causal++)
            for (int k = 0; k < 4; k++) {
                struct problem p = problem_make(S, 6, 2, 8, docs, causal);
                p.window = windows[k];
                check_problem(p);
            }
}

static void test_few_tokens(void)
{
    each(1);
    each(7);
    each(9);
}

static void test_37(void)
{
    each(37);
}

static void test_long(void)
{
    for (int k = 0; k < 4; k++) {
        struct problem p = problem_make(700, 3, 1, 24, k ? DOCS_FIVE : DOCS_ONE, k % 3 > 0);
        p.window = k >= 2 ? 100 : 0;
        check_problem(p);
    }
}

static void test_dropout(void)
{
    for (int docs = 0; docs < 2; docs++) {
        struct problem p = problem_make(61, 6, 2, 8, docs, docs);
        p.drop = 0.25;
        check_problem(p);
    }
}

/* Checks that keys are not sent if no query sees them. In the extreme case, no key is sent. */
static void test_less_is_sent(void)
{
    struct problem p = problem_make(64, 2, 2, 8, DOCS_EACH, true);
    struct variant v = {.P = 4, .layout = LAYOUT_CONTIGUOUS, .strategy = STRATEGY_RSA};
    struct comm_count all[PURPOSE_N] = {0}, none[PURPOSE_N] = {0}, near[PURPOSE_N] = {0};
    count_run(&p, &v, 1, all);
    v.maps = true;
    count_run(&p, &v, 1, none);
    CHECK(all[PURPOSE_RING_KV].bytes_sent == 2 * 3 * 16 * 32 * 4);
    CHECK(none[PURPOSE_RING_KV].bytes_sent == 0 && none[PURPOSE_RING_DKV].messages_sent == 0);
    problem_documents(&p, DOCS_ONE);
    p.window = 9; /* the 8 rows before a shard of 16 */
    v.form = FORM_ALL_GATHER;
    count_run(&p, &v, 1, near);
    CHECK(near[PURPOSE_RING_KV].bytes_sent == 2 * 8 * 32 * 4);
    v.form = FORM_BLOCKWISE;
    memset(near, 0, sizeof near);
    count_run(&p, &v, 1, near);
    /* the rank's own block makes one hop */
    CHECK(near[PURPOSE_RING_KV].bytes_sent == 2 * 16 * 32 * 4);
    problem_free(&p);
    p = problem_make(64, 2, 2, 8, DOCS_ONE, false); /* the 8 rows before and the 8 rows after */
    p.window = 9;
    v.form = FORM_ALL_GATHER;
    memset(near, 0, sizeof near);
    count_run(&p, &v, 1, near);
    CHECK(near[PURPOSE_RING_KV].bytes_sent == 2 * 2 * 8 * 32 * 4);
    problem_free(&p);
}

/* Checks that under determinism "ranks" several ranks give the same bits as one rank without a
 * ring. */
static void check_bits(struct problem p)
{
    truth(&p);
    const struct variant one = {.P = 1,
                                .layout = LAYOUT_CONTIGUOUS,
                                .rank_bits = true,
                                .strategy = STRATEGY_LOCAL,
                                .n_threads = 1};
    struct result want = result_make(&p), got = result_make(&p);
    CHECK(run(&p, &one, &want) == 0 && within(compare(&p, &want)));
    for (int P = 1; P <= 8; P *= 2)
        for (int k = 0; k < 3; k++) {
            struct variant v = one;
            v.P = P;
            v.strategy = STRATEGY_RSA;
            v.form = k ? FORM_ALL_GATHER : FORM_BLOCKWISE;
            v.maps = k < 2;
            CHECK(run(&p, &v, &got) == 0);
            CHECK_MSG(same_bits(&p, &got, &want),
                      "S %lld P %d form %d maps %d differs from one rank", (long long)p.S, P,
                      v.form, v.maps);
            if (v.maps && p.S <= 64) check_counts(&p, &v);
        }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

static void test_rank_bits(void)
{
    check_bits(problem_make(37, 6, 2, 16, DOCS_ONE, true));
    check_bits(problem_make(37, 6, 2, 16, DOCS_FIVE, false));
    check_bits(problem_make(500, 3, 1, 24, DOCS_FIVE, true));
    struct problem p = problem_make(200, 2, 2, 16, DOCS_FIVE, true);
    p.window = 40;
    p.drop = 0.2;
    check_bits(p);
    p = problem_make(200, 2, 2, 16, DOCS_FIVE, false);
    p.window = 40;
    check_bits(p);
}

int main(void)
{
    RUN(test_few_tokens);
    RUN(test_37);
    RUN(test_long);
    RUN(test_dropout);
    RUN(test_less_is_sent);
    RUN(test_rank_bits);
    return variants_done("reach");
}
