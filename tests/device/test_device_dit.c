/* test_device_dit.c: runs diffusion transformers on a device with memory of its own, and compares
 * them with golden results (tests/lib/dit_golden.h). The CPU is compared with the same golden
 * results. SEQD_TEST_DEVICE names the device. If it is not set, the device is "emulated", whose
 * memory the host cannot reach.
 * tests: needs golden libkernels_emulated.so */
#include "tests/lib/dit_golden.h"

static void planned(const char *name, int P, enum recompute_id recompute)
{
    struct dit_golden g;
    dit_open(&g, name);
    dit_check_planned(&g, P, recompute);
    dit_close(&g);
}

static void test_families(void)
{
    for (int i = 0; i < DIT_NAMES; i++) planned(dit_names[i], 1, RECOMPUTE_SELECTIVE);
}

static void test_switches(void)
{
    planned("stdit3", 2, RECOMPUTE_NONE);
}

static void test_pieces(void)
{
    struct dit_golden g;
    dit_open(&g, "stdit3");
    dit_check_pieces(&g, 2, RECOMPUTE_SELECTIVE, 5);
    dit_close(&g);
}

int main(void)
{
    setenv("SEQD_TEST_DEVICE", "emulated", 0);
    RUN(test_families);
    RUN(test_switches);
    RUN(test_pieces);
    return test_done("device_dit");
}
