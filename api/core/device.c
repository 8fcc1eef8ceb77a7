/* device.c: the table of kinds of devices: their names, and whether they have memory of their
 * own. */
#include "api/core/device.h"

#include <stddef.h>
#include <string.h>
#include "api/core/assert.h"

/* "emulated" runs CUDA's kernels on the host (kernels/cuda/emu.h), in memory that only these
 * kernels read and write. It is only for tests. */
static const struct device_kind kinds[] = {
    {.name = "cpu"},
    {.name = "cuda", .own_memory = true, .is_gpu = true},
    {.name = "emulated", .own_memory = true},
};

const struct device_kind *device_find(const char *name)
{
    if (!*name) return &kinds[0];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(name, kinds[i].name)) return &kinds[i];
    return NULL;
}

const char *device_names(void)
{
    return "\"cpu\", \"cuda\"";
}

int64_t device_scratch(const char *name, int n_threads)
{
    const struct device_kind *k = device_find(name);
    assert(k);
    return k->own_memory ? BE_SCRATCH_CUDA : n_threads * BE_SCRATCH_PER_THREAD;
}
