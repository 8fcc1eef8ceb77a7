/* gpu.c: names the health states of a GPU, checks the data of a GPU, and finds a GPU in a list by
 * its UUID. */
#include "api/core/gpu.h"

#include <stdio.h>
#include <string.h>

static const char *const names[GPU_HEALTH_N] = {
    [GPU_OK] = "ok",   [GPU_ECC] = "ecc",       [GPU_XID] = "xid", [GPU_LOST] = "lost",
    [GPU_MIG] = "mig", [GPU_SILENT] = "silent", [GPU_OLD] = "old", [GPU_BARE] = "bare",
};

const char *gpu_health_name(int health)
{
    return health >= 0 && health < GPU_HEALTH_N ? names[health] : "unknown";
}

void gpu_complaint(const struct gpu *g, char *out, int size)
{
    const size_t n = (size_t)size;
    *out = 0;
    switch ((enum gpu_health)g->health) {
    case GPU_ECC:
        snprintf(out, n, "%lld uncorrectable memory errors (ECC): reset it",
                 (long long)g->ecc_errors);
        break;
    case GPU_XID:
        snprintf(out, n,
                 "the driver reported Xid %d: reset it, then remove the file " GPU_XIDS
                 " in seqw's state directory",
                 g->xid);
        break;
    case GPU_LOST: snprintf(out, n, "it is gone: the driver does not list it any more"); break;
    case GPU_MIG: snprintf(out, n, "it is partitioned (MIG): switch that off"); break;
    case GPU_SILENT: snprintf(out, n, "the driver does not answer questions about it"); break;
    case GPU_OLD:
        snprintf(out, n, "its compute capability is %d.%d: %d.0 or newer is needed", g->major,
                 g->minor, GPU_MIN_MAJOR);
        break;
    case GPU_BARE:
        snprintf(out, n,
                 "there is no " GPU_KERNELS " beside its node's seqrank: make CUDA=1 install");
        break;
    default: break;
    }
}

/* Tells whether s can be a UUID. This is checked because UUIDs are put into an environment
 * variable, separated by commas. */
static bool is_uuid(const char *s)
{
    static const char legal[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-";
    const size_t n = strlen(s);
    return n > 0 && n < GPU_UUID_SIZE && strspn(s, legal) == n;
}

int gpu_check(const struct gpu *g, struct err *e)
{
    if (!is_uuid(g->uuid))
        return err_field(e, ERR_INVALID, "gpu.uuid",
                         "gpu.uuid \"%.47s\": letters, digits and '-' make one, 1 to %d", g->uuid,
                         GPU_UUID_SIZE - 1);
    if (g->memory_size < 0 || g->memory_free < 0 || g->memory_free > g->memory_size)
        return err_field(e, ERR_INVALID, "gpu.memory_free",
                         "GPU %s has %lld of %lld bytes free: that cannot be", g->uuid,
                         (long long)g->memory_free, (long long)g->memory_size);
    if (g->health < 0 || g->health >= GPU_HEALTH_N)
        return err_field(e, ERR_INVALID, "gpu.health", "GPU %s has the health %d: 0 to %d are",
                         g->uuid, g->health, GPU_HEALTH_N - 1);
    if (g->major < 0 || g->minor < 0 || g->xid < 0 || g->n_processes < 0 || g->ecc_errors < 0)
        return err_field(e, ERR_INVALID, "gpu", "GPU %s counts something below 0", g->uuid);
    return 0;
}

int gpu_find(const struct gpu *list, int n, const char *uuid)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].uuid, uuid)) return i;
    return -1;
}
