/* test_device_model.c: language models of every family on a device with memory of its own, against the
 * goldens that the CPU is held to (tests/lm.h): "emulated", where the host cannot reach that memory,
 * unless SEQD_TEST_DEVICE names another. */
#include "tests/lm.h"

static void ring_of(const char *name, int P, enum strategy_id strategy)
{
    struct lm_golden g;
    struct lm_run r = {.spec.parallel.strategy = strategy};
    char what[64];
    snprintf(what, sizeof what, "%s, %d ranks", engine_device(), P);
    lm_open(&g, name);
    lm_go(&r, &g, P);
    CHECK(strategy == STRATEGY_AUTO || r.strategy == strategy);
    lm_check(&r, what);
    lm_free(&r);
    lm_close(&g);
}

static void test_families(void)
{
    for (size_t i = 0; i < LM_NAMES; i++) ring_of(lm_names[i], 1, STRATEGY_AUTO);
}

int main(void)
{
    setenv("SEQD_TEST_DEVICE", "emulated", 0);
    RUN(test_families);
    return test_done("device_model");
}
