/* device.h: the kinds of devices, as jobs name them (resources.device), with the properties that
 * plans and schedulers need. kernels/backend.h has their operations. */
#ifndef SEQD_CORE_DEVICE_H
#define SEQD_CORE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of packed panels and tiles that the CPU's kernels may use per thread. They are part of
 * every memory plan for the CPU. */
#define BE_SCRATCH_PER_THREAD ((int64_t)4 << 20)
/* Bytes of scratch memory of a CUDA device. They hold partial sums and, for linear attention, the
 * states of blocks of 64 rows. */
#define BE_SCRATCH_CUDA ((int64_t)64 << 20)

struct device_kind {
    const char *name;
    bool own_memory; /* tensors are in the device's own memory, so that a plan counts the host's
                      * memory separately */
    bool is_gpu;     /* true if a rank takes one of the node's GPUs, false if it takes cores */
};

/* Finds a kind by its name; "" means "cpu". Returns NULL if no kind has that name. */
const struct device_kind *device_find(const char *name);
/* Returns the names of the kinds, separated by ", ", for use in error messages. Kinds that are
 * only for tests are left out. */
const char *device_names(void);
/* Returns the bytes of scratch memory of one rank. `name` must be the name of a kind of device. */
int64_t device_scratch(const char *name, int n_threads);

#endif
