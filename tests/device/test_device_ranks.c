/* Checks ranks that send tensors by shared memory and store them in the memory of their devices.
 * Several ranks use the same device.
 * tests: needs libkernels_emulated.so */
#include "tests/lib/device_ranks.h"

int main(void)
{
    device_ranks();
    return device_ranks_done("device_ranks");
}
