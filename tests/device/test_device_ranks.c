/* Ranks' tensors in memory of their devices, sent by shared memory: several ranks on one device.
 * tests: needs libkernels_emulated.so */
#include "tests/lib/device_ranks.h"

int main(void)
{
    device_ranks();
    return device_ranks_done("device_ranks");
}
