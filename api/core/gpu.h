/* gpu.h: one GPU of a node, as seqw finds it and reports it: its kind, its health, and its
 * distance from the other GPUs. A GPU is named by its UUID everywhere, because its index changes
 * with a reboot, a driver or an environment variable. */
#ifndef SEQD_CORE_GPU_H
#define SEQD_CORE_GPU_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define GPU_MIN_MAJOR 8 /* lowest compute capability (major number) that has kernels */
#define GPU_MAX                                                                                    \
    16                   /* largest number of GPUs of one node, which is twice the 8 GPUs of a
                          * usual server */
#define GPU_UUID_SIZE 48 /* "GPU-" and 36 characters */
#define GPU_NAME_SIZE 64
#define GPU_BUS_SIZE  32
/* File in the directory of seqrank, or in ../lib/seqd. */
#define GPU_KERNELS "libkernels_cuda.so"
#define GPU_XIDS                                                                                   \
    "xids" /* a file in seqw's state directory that lists the Xids of this boot; if an operator
            * removes the file, seqw forgets the Xids */

/* Bytes of a GPU's memory that a plan may not use. They hold CUDA's context with the kernels' code
 * and stacks (0.3 to 0.6 GiB) and NCCL's buffers (at most 2 peers x 16 channels x 8 MiB). */
#define GPU_RESERVE ((int64_t)1 << 30)

enum gpu_health {
    GPU_OK,
    GPU_ECC,    /* uncorrectable errors since its driver was loaded */
    GPU_XID,    /* the driver reported an error that needs a reset or a restart */
    GPU_LOST,   /* the driver does not list it any more */
    GPU_MIG,    /* it is partitioned, so that no rank can have the whole GPU */
    GPU_SILENT, /* the driver has not answered for too long */
    GPU_OLD,    /* its compute capability is below GPU_MIN_MAJOR, so that no kernel runs on it */
    GPU_BARE,   /* the node has the programs of seqd but not GPU_KERNELS */
    GPU_HEALTH_N
};

struct gpu {
    char uuid[GPU_UUID_SIZE];         /* letters, digits and '-' */
    char name[GPU_NAME_SIZE];         /* "NVIDIA H100 80GB HBM3" */
    char bus[GPU_BUS_SIZE];           /* PCI: "00000000:3B:00.0" */
    int64_t memory_size, memory_free; /* bytes */
    int32_t major, minor;             /* compute capability */
    int32_t health;                   /* enum gpu_health */
    int32_t xid;                      /* the last Xid that affects the GPU's health; 0 if there was
                                       * none */
    int32_t n_processes;              /* processes of any user that use this GPU now */
    int64_t ecc_errors;               /* uncorrectable errors since the driver was loaded */
    uint8_t far[GPU_MAX];             /* distance to GPU i (GPU_FAR_*); 0 if NVLink connects the
                                       * two GPUs or i is this GPU */
};

/* Paths between two GPUs, the nearest first. */
enum {
    GPU_FAR_BOARD = 1,
    GPU_FAR_SWITCH,
    GPU_FAR_SWITCHES,
    GPU_FAR_BRIDGE,
    GPU_FAR_NODE,
    GPU_FAR_SYSTEM
};

const char *gpu_health_name(int health); /* returns "ok", "ecc", ...; REST uses these names, so
                                          * they do not change */
/* Writes the reason why no rank gets the GPU, such as "it is partitioned (MIG): switch that off".
 * Writes "" for a healthy GPU. */
void gpu_complaint(const struct gpu *g, char *out, int size);
/* Checks all members, except name, bus and `far`, of a GPU that a different process has sent.
 * Fails with ERR_INVALID; the error's field names the member ("gpu.memory_free" for both sizes,
 * "gpu" for a count below 0). */
int gpu_check(const struct gpu *g, struct err *e);
/* Returns the index of the GPU in the array `list`, or -1 if the array does not have the GPU. */
int gpu_find(const struct gpu *list, int n, const char *uuid);

#endif
