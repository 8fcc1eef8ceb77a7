/* check_emulated: check_kernels of CUDA's kernels, whose source runs on the host
 * (kernels/cuda/emu.h). Its result does not prove a GPU's. The program beside it is executed, with
 * its device chosen; on small shapes, unless FRESH is set: all of them take half an hour.
 * tests: needs libkernels_emulated.so tests/check_kernels */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    char path[4096];
    snprintf(path, sizeof path, "%.*scheck_kernels", slash ? (int)(slash - argv[0]) + 1 : 0,
             argv[0]);
    setenv("SEQD_TEST_DEVICE", "emulated", 1);
    setenv("SEQD_TEST_SHAPES", getenv("FRESH") ? "all" : "small", 0);
    execv(path, argv);
    perror(path);
    return 1;
}
