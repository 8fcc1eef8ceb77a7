/* check_emulated: check_kernels of CUDA's kernels, whose source runs on the host (kernels/cuda/emu.h).
 * What it proves is not a GPU's result. */
#define DEVICE "emulated"
#include "tests/engine/check_kernels.c"
