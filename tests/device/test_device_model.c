/* test_device_model.c: language models of every family on a device with memory of its own, against
 * the goldens that the CPU is held to (tests/lib/lm.h): "emulated", where the host cannot reach
 * that memory, unless SEQD_TEST_DEVICE names another. */
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

/* A ring of softmax attention and one of states, and heads that change places under a window, which
 * the host must know of all ranks' rows. */
static void test_rings(void)
{
    ring_of("bert", 2, STRATEGY_RSA);
    ring_of("tnl", 2, STRATEGY_LASP);
    ring_of("qwen3_5", 2, STRATEGY_LASP);
    ring_of("mistral", 2, STRATEGY_ULYSSES);
}

/* The delta rule's maps; one passes through the second of three ranks. */
static void test_maps(void)
{
    states_of("qwen3_5", 3, STRATEGY_LASP, EXCHANGE_ALL_GATHER);
    states_of("qwen3_5", 3, STRATEGY_LASP, EXCHANGE_SCAN);
}

/* Dense MLPs on pieces of rows: gated and not, with biases, beside experts. */
static void test_pieces(void)
{
    static const char *const names[] = {"mistral", "bert",    "gemma3",
                                        "gpt2",    "qwen3_5", "qwen2_moe"};
    for (int i = 0; i < 6; i++)
        for (int P = 1; P <= 2; P++) {
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

/* Keys and values, under a window; states; both, and experts; states of two ranks,
 * which the last one hands round. */
static void test_decode(void)
{
    decoded("mistral", 1);
    decoded("linear", 1);
    decoded("minimax", 1);
    decoded("tnl", 2);
    decoded("qwen3_5", 2);
}

int main(void)
{
    setenv("SEQD_TEST_DEVICE", "emulated", 0);
    RUN(test_families);
    RUN(test_rings);
    RUN(test_maps);
    RUN(test_pieces);
    RUN(test_decode);
    return test_done("device_model");
}
