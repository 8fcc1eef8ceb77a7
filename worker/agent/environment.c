/* environment.c: copies the variables whose names are in the array `allowed`. */
#include "worker/agent/environment.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"

/* Names of variables. A name that ends in '*' stands for all names that begin with the part before
 * the '*'. */
static const char *const allowed[] = {
    "PATH",            /* the search for NCCL runs python3, whose packages may include NCCL */
    "LD_LIBRARY_PATH", /* the machine's own libraries */
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "HOME", /* for the CUDA driver's cache of compiled kernels */
    "SEQD_LIBRARY_PATH",
    "SEQD_COLLECTIVES",
    "SEQD_CUDA_*",
    "SEQD_LOG",
    "SEQD_MUTANT", /* a fault to inject */
    "SEQD_TEST_*",
    "CUDA_*", /* variables of the CUDA driver */
    "NCCL_*", /* NCCL's interfaces and transports */
    "NVIDIA_*",
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "TSAN_OPTIONS",
    "UBSAN_OPTIONS",
};

static bool is_allowed(const char *variable)
{
    const size_t n = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        const size_t m = strcspn(allowed[i], "*");
        if (!strncmp(variable, allowed[i], m) && (allowed[i][m] ? n > m : n == m)) return true;
    }
    return false;
}

char **environment_for_ranks(char **from)
{
    size_t n = 0, m = 0;
    while (from[n]) n++;
    char **out = malloc((n + 1) * sizeof *out);
    assert(out);
    for (size_t i = 0; i < n; i++)
        if (is_allowed(from[i])) out[m++] = from[i];
    out[m] = NULL;
    return out;
}
