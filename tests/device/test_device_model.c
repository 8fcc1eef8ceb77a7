/* test_device_model.c: runs language models of every family on a device with memory of its own,
 * and compares them with golden results (tests/lib/lm.h). The CPU is compared with the same golden
 * results. SEQD_TEST_DEVICE names the device. If it is not set, the device is "emulated", whose
 * memory the host cannot reach.
 * tests: needs golden libkernels_emulated.so */
#include "tests/lib/lm.h"

static void golden_of(const char *name, int P, struct lm_run *r)
{
    const enum strategy_id strategy = (enum strategy_id)r->spec.parallel.strategy;
    struct lm_golden g;
    char what[96];
    snprintf(what, sizeof what, "%s, %d ranks, exchange %d, pieces of %lld", engine_device(), P,
             r->spec.parallel.exchange, (long long)r->spec.memory.mlp_chunk_tokens);
    lm_open(&g, name);
    lm_go(r, &g, P);
    CHECK(strategy == STRATEGY_AUTO || r->strategy == strategy);
    lm_check(r, what);
    lm_free(r);
    lm_close(&g);
}

static void states_of(const char *name, int P, enum strategy_id strategy, enum exchange_id x)
{
    struct lm_run r = {.spec.parallel = {.strategy = strategy, .exchange = (int32_t)x}};
    golden_of(name, P, &r);
}

static void ring_of(const char *name, int P, enum strategy_id strategy)
{
    states_of(name, P, strategy, EXCHANGE_AUTO);
}

static void test_families(void)
{
    for (size_t i = 0; i < LM_NAMES; i++) ring_of(lm_names[i], 1, STRATEGY_AUTO);
}

/* Checks a ring of softmax attention, a ring of states, and USP. In USP, ranks exchange heads, and
 * the model has a sliding window. The host must then know the rows of all ranks. */
static void test_rings(void)
{
    ring_of("bert", 2, STRATEGY_RSA);
    ring_of("qwen3_5", 2, STRATEGY_LASP);
    ring_of("mistral", 4, STRATEGY_USP);
    if (small_tests()) return;
    ring_of("tnl", 2, STRATEGY_LASP);
    ring_of("mistral", 2, STRATEGY_ULYSSES);
}

/* Checks the maps that ranks exchange for the delta rule. In one of the cases, the second of three
 * ranks passes a map on to the third. */
static void test_maps(void)
{
    if (!small_tests()) states_of("qwen3_5", 3, STRATEGY_LASP, EXCHANGE_ALL_GATHER);
    states_of("qwen3_5", 3, STRATEGY_LASP, EXCHANGE_SCAN);
}

/* Checks dense MLPs that are computed in pieces of rows. There are MLPs with and without a gate,
 * MLPs with biases, and MLPs in models that also have experts. The short form checks only two of
 * the models, the first on one rank and the second on two ranks. */
static void test_pieces(void)
{
    static const char *const names[] = {"mistral", "bert",    "gemma3",
                                        "gpt2",    "qwen3_5", "qwen2_moe"};
    for (int i = 0; i < 6; i++)
        for (int P = 1; P <= 2; P++) {
            if (small_tests() && (i % 3 != 1 || P != 1 + i % 2)) continue;
            struct lm_run r = {.spec.memory = {.recompute = RECOMPUTE_NONE + (i + P) % 3,
                                               .mlp_chunk_tokens = 3 + P}};
            r.spec.determinism = i % 2 ? DET_RANKS : DET_RUN;
            golden_of(names[i], P, &r);
        }
}

static void decoded(const char *name, int P)
{
    struct lm_golden g;
    lm_open(&g, name);
    lm_decode_go(&g, P);
    lm_close(&g);
}

/* Checks decoding with keys and values (in one model with a window), with states, and with keys,
 * values, states and experts together. On two ranks, it also checks that the last rank passes the
 * states to the first rank. */
static void test_decode(void)
{
    decoded("minimax", 1);
    decoded("qwen3_5", 2);
    if (small_tests()) return;
    decoded("mistral", 1);
    decoded("linear", 1);
    decoded("tnl", 2);
}

/* ---- random weights -------------------------------------------------------------------------- */

/* Draws weights on the device, and returns a copy of them in the host's memory. The first weight
 * is element `from` of the model. */
static void *drawn(const char *device, const struct model_shape *m, int64_t from, enum dtype type)
{
    struct err e = {0};
    const int64_t n = param_count(m) - from, size = n * dtype_size(type);
    struct be *be = be_open(&(struct be_options){.device = device, .n_threads = 2}, &e);
    void *there = be ? be->ops->alloc(be, size, &e) : NULL, *here = malloc((size_t)size);
    CHECK_MSG(there && here, "%s: %s", device, e.text);
    if (!there || !here) abort();
    model_random_part(be, m, 0, 9, from, tensor_of(type, there, 1, n, n));
    be->ops->download(be, here, there, size);
    be->ops->free(be, there, size);
    be_close(be);
    return here;
}

/* Checks that random weights on a device equal those on the CPU. The threads of the host draw them
 * and upload them in pieces, and the embedding is so large that it consists of several pieces. */
static void test_random(void)
{
    static struct job_spec s;
    engine_spec(&s, 8);
    struct model_shape m = s.model.shape;
    m.vocab = 1501;
    m.width = 68;
    for (int i = 0; i < 4; i++) {
        const enum dtype type = i % 2 ? DT_BF16 : DT_F32;
        const int64_t from = i / 2 * 33331;
        void *want = drawn("cpu", &m, from, type), *got = drawn(engine_device(), &m, from, type);
        CHECK_MSG(!memcmp(want, got, (size_t)((param_count(&m) - from) * dtype_size(type))),
                  "dtype %d from %lld", type, (long long)from);
        free(want);
        free(got);
    }
}

int main(void)
{
    setenv("SEQD_TEST_DEVICE", "emulated", 0);
    RUN(test_random);
    RUN(test_families);
    RUN(test_rings);
    RUN(test_maps);
    RUN(test_pieces);
    RUN(test_decode);
    return test_done("device_model");
}
