/* device.h: the kinds of devices, as jobs name them (resources.device), with the properties that
 * plans and schedulers need. kernels/backend.h has their operations. */
#ifndef SEQD_CORE_DEVICE_H
#define SEQD_CORE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of packed panels and tiles that the CPU's kernels may use per thread: part of every memory
 * plan for the CPU. */
#define BE_SCRATCH_PER_THREAD ((int64_t)4 << 20)
/* Bytes of scratch of a CUDA device. It holds partial sums, and the states of linear attention's
 * blocks of 64 rows each. */
#define BE_SCRATCH_CUDA ((int64_t)64 << 20)

struct device_kind {
    const char *name;
    bool own_memory; /* tensors lie in the device's own memory: a plan counts the host's memory as
                      * well */
    bool is_gpu;     /* true: a rank takes one of the node's GPUs; false: cores */
};

/* Finds a kind by its name; "" is "cpu". NULL: no kind has that name. */
const struct device_kind *device_find(const char *name);
/* Returns the names of the kinds that are not for tests, with ", " between: for errors. */
const char *device_names(void);
/* Returns the bytes of scratch of one rank. name: a known kind. */
int64_t device_scratch(const char *name, int n_threads);

#endif
