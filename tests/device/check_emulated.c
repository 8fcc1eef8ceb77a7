/* check_emulated: runs check_kernels on CUDA's kernels, whose source is compiled for the host
 * (kernels/cuda/emu.h). A pass does not prove that the kernels are right on a GPU. This program
 * sets the device in the environment, and then executes the program check_kernels. Unless FRESH is
 * set, it uses only small shapes, because all shapes together take half an hour.
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
