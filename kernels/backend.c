#include "kernels/backend.h"

#include <assert.h>
#include <string.h>
#include "kernels/cpu/cpu.h"
#ifdef SEQD_CUDA
#include "kernels/cuda/cuda.h"
#endif

struct device {
    const char *name;
    struct be *(*open)(const struct be_options *o, struct err *e);
};

static const struct device devices[] = {
    {"cpu", cpu_open},
#ifdef SEQD_CUDA
    {"cuda", cuda_open},
#endif
};

struct be *be_open(const struct be_options *o, struct err *e)
{
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        if (!strcmp(o->device, devices[i].name)) return devices[i].open(o, e);
    err_set(e, ERR_UNSUPPORTED, "this build has no device \"%s\"; it has: cpu", o->device);
    return NULL;
}

void be_close(struct be *be)
{
    if (be) be->ops->close(be);
}

const char *const *be_isas(void)
{
    return cpu_isas();
}
