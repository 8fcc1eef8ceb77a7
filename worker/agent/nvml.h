/* nvml.h: reads the state of this machine's GPUs from the driver, through its management library.
 * The library is opened when seqw starts, if there is one. No file here is compiled or linked with
 * CUDA. Calls block, and only one thread may call at a time. */
#ifndef SEQD_AGENT_NVML_H
#define SEQD_AGENT_NVML_H

#include "api/core/gpu.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"

struct nvml;

/* Opens the library. library: its name or path. fails: ERR_NOT_FOUND when there is no such
 * library; ERR_UNSUPPORTED when it lacks a function or finds no driver. In both cases this machine
 * has no GPU to offer. */
struct nvml *nvml_open(const char *library, struct err *e);
void nvml_close(struct nvml *n);
/* Lists all GPUs as they are now, in the order in which they were first seen. GPUs that have
 * disappeared stay in the list as GPU_LOST. Returns their number, at most GPU_MAX, or -1. */
int nvml_sample(struct nvml *n, struct gpu out[GPU_MAX], struct err *e);
/* Remembers a GPU's xid from an earlier run of seqw. uuid NULL: forgets the xid of every GPU. */
void nvml_set_xid(struct nvml *n, const char *uuid, int32_t xid);

#endif
