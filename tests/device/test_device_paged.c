/* test_device_paged.c: runs models with pages on a device with memory of its own. SEQD_TEST_DEVICE
 * names the device. If it is not set, the device is "emulated", whose memory the host cannot reach.
 * tests: needs libkernels_emulated.so */
#include "api/core/log.h"
#define PAGED_SHORT
#include "tests/lib/paged_model.h"

static void test_models(void)
{
    for (int i = 0; i < N_MODELS; i++) {
        const char *name = models[i].name;
        if (strcmp(name, "window") && strcmp(name, "qwen3_next") &&
            (small_tests() || (strcmp(name, "bf16") && strcmp(name, "tnl"))))
            continue;
        check_model(&models[i], 1);
    }
}

int main(void)
{
    setenv("SEQD_TEST_DEVICE", "emulated", 0);
    log_init("test_device_paged");
    RUN(test_models);
    return test_done("device_paged");
}
