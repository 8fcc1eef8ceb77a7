/* nvml.h: reads the state of this machine's GPUs from the driver, through the driver's management
 * library. If this machine has the library, it is opened when seqw starts. No file here is
 * compiled or linked with CUDA. The calls block, and only one thread may make a call at a time. */
#ifndef SEQD_AGENT_NVML_H
#define SEQD_AGENT_NVML_H

#include "api/core/gpu.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"

struct nvml;

/* Opens the management library. The parameter `library` is its name or path. Fails with
 * ERR_NOT_FOUND if there is no such library, or with ERR_UNSUPPORTED if the library lacks a
 * function or finds no driver. In both cases this machine has no GPU to offer. */
struct nvml *nvml_open(const char *library, struct err *e);
void nvml_close(struct nvml *n);
/* Lists all GPUs in their present state, in the order in which they were first seen. GPUs that
 * have disappeared remain in the list as GPU_LOST. Returns the number of GPUs, which is at most
 * GPU_MAX, or -1 after a failure. */
int nvml_sample(struct nvml *n, struct gpu out[GPU_MAX], struct err *e);
/* Records the Xid (an error number of the driver) that the driver reported for a GPU in an
 * earlier run of seqw. If uuid is NULL, forgets the Xids of all GPUs. */
void nvml_set_xid(struct nvml *n, const char *uuid, int32_t xid);

#endif
