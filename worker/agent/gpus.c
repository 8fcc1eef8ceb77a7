/* gpus.c: samples the driver on one thread, keeps the last sample under a lock, and stores Xids
 * together with the id of the boot. */
#include "worker/agent/gpus.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "worker/agent/nvml.h"

/* Seconds for which gpus_close waits for a thread that hangs in the driver. */
enum { CLOSE_S = 2 };

struct gpus {
    struct nvml *nvml; /* after the thread was started, only the thread uses this member and
                        * the two paths below */
    char kernels[2][FILE_PATH_SIZE], xids[FILE_PATH_SIZE], boot[64];
    bool told; /* set once the file GPU_XIDS was written or found */
    bool chosen;
    int n_mine; /* number of chosen GPUs */
    char mine[GPU_MAX][GPU_UUID_SIZE];
    int look_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* guarded by the lock */
    bool closing;
    struct gpu list[GPU_MAX];
    int n;
    int64_t seen_ms;
};

static void complain(const struct gpu *before, int n_before, const struct gpu *now, int n)
{
    for (int i = 0; i < n; i++) {
        char why[128];
        const int was = gpu_find(before, n_before, now[i].uuid);
        if ((was < 0 ? GPU_OK : before[was].health) == now[i].health) continue;
        gpu_complaint(&now[i], why, sizeof why);
        log_warn("gpu.health", "gpu=%s health=%s why=\"%s\"", now[i].uuid,
                 gpu_health_name(now[i].health), why);
    }
}

/* ---- Xids ------------------------------------------------------------------------------------ */

/* Writes a line for each Xid: "BOOT UUID XID". */
static void xids_save(struct gpus *g, const struct gpu *list, int n)
{
    char text[GPU_MAX * (sizeof g->boot + GPU_UUID_SIZE + 16)];
    struct err e;
    int size = 0;
    for (int i = 0; i < n; i++)
        if (list[i].xid)
            size += snprintf(text + size, sizeof text - (size_t)size, "%s %s %d\n", g->boot,
                             list[i].uuid, list[i].xid);
    g->told = file_write(g->xids, text, (size_t)size, &e) == 0;
    if (!g->told) log_warn("gpu.xids", "why=\"%s\"", e.text);
}

static void xids_load(struct gpus *g)
{
    char boot[sizeof g->boot], uuid[GPU_UUID_SIZE];
    int xid;
    FILE *f = fopen(g->xids, "re");
    while (f && fscanf(f, "%63s %47s %d", boot, uuid, &xid) == 3)
        if (!strcmp(boot, g->boot)) nvml_set_xid(g->nvml, uuid, xid);
    g->told = f != NULL;
    if (f) fclose(f);
}

/* Samples the GPUs, and writes new Xids to the file. If the file was removed, forgets all Xids. */
static int sample_xids(struct gpus *g, struct gpu list[GPU_MAX], struct err *e)
{
    if (g->told && !file_exists(g->xids)) {
        log_info("gpu.xids", "text=\"%s was removed: Xids are forgotten\"", g->xids);
        nvml_set_xid(g->nvml, NULL, 0);
        g->told = false;
    }
    const int n = nvml_sample(g->nvml, list, e);
    for (int i = 0; i < n; i++) {
        const int was = gpu_find(g->list, g->n, list[i].uuid);
        if (list[i].xid == (was < 0 ? 0 : g->list[was].xid)) continue;
        if (list[i].xid) xids_save(g, list, n);
        break;
    }
    return n;
}

/* ---- looking --------------------------------------------------------------------------------- */

static int look(struct gpus *g, struct err *e)
{
    struct gpu list[GPU_MAX];
    const int n = sample_xids(g, list, e);
    if (n < 0) return -1;
    const bool bare = !file_exists(g->kernels[0]) && !file_exists(g->kernels[1]);
    for (int i = 0; bare && i < n; i++)
        if (list[i].health == GPU_OK) list[i].health = GPU_BARE;
    complain(g->list, g->n, list, n);
    pthread_mutex_lock(&g->lock);
    memcpy(g->list, list, sizeof list);
    g->n = n;
    g->seen_ms = clock_ms();
    pthread_mutex_unlock(&g->lock);
    return 0;
}

static void later(struct timespec *t, int ms)
{
    const long ns = t->tv_nsec + ms % 1000 * 1000000L;
    t->tv_sec += ms / 1000 + ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
}

static void *watch(void *arg)
{
    struct gpus *g = arg;
    bool failed = false;
    pthread_mutex_lock(&g->lock);
    while (!g->closing) {
        struct err e;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        later(&until, g->look_ms);
        pthread_cond_timedwait(&g->wake, &g->lock, &until);
        if (g->closing) break;
        pthread_mutex_unlock(&g->lock);
        const bool bad = look(g, &e) < 0;
        if (bad && !failed) log_warn("gpu.look", "why=\"%s\"", e.text);
        failed = bad;
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static void read_boot(char *out, int size)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !fgets(out, size, f)) snprintf(out, (size_t)size, "unknown");
    out[strcspn(out, "\n")] = 0;
    if (f) fclose(f);
}

static struct gpus *gpus_new(struct nvml *nvml)
{
    struct gpus *g = calloc(1, sizeof *g);
    pthread_condattr_t attr;
    if (!g) abort();
    g->nvml = nvml;
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->wake, &attr);
    pthread_condattr_destroy(&attr);
    return g;
}

static void gpus_free(struct gpus *g)
{
    nvml_close(g->nvml);
    pthread_cond_destroy(&g->wake);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

struct gpus *gpus_open(const char *library, const char *bin, const char *state, int look_ms)
{
    struct err e = {0};
    struct gpu list[GPU_MAX];
    struct nvml *nvml = nvml_open(library, &e);
    if (!nvml) {
        log_info("gpu.none", "why=\"%s\"", e.text);
        return NULL;
    }
    struct gpus *g = gpus_new(nvml);
    g->look_ms = look_ms;
    int rc = file_join(g->kernels[0], &e, "%s/" GPU_KERNELS, bin);
    if (rc == 0) rc = file_join(g->kernels[1], &e, "%s/../lib/seqd/" GPU_KERNELS, bin);
    if (rc == 0) rc = file_join(g->xids, &e, "%s/" GPU_XIDS, state);
    read_boot(g->boot, sizeof g->boot);
    if (rc == 0) rc = nvml_sample(g->nvml, list, &e) < 0 ? -1 : 0; /* find the GPUs first */
    if (rc == 0) xids_load(g); /* load earlier Xids before the file is written */
    if (rc == 0) rc = look(g, &e);
    if (rc == 0 && (rc = pthread_create(&g->thread, NULL, watch, g)))
        rc = err_set(&e, ERR_IO, "the thread for the GPUs does not start: %s", strerror(rc));
    if (rc == 0) {
        log_info("gpu.found", "n=%d", g->n);
        return g;
    }
    log_warn("gpu.look", "why=\"%s\"", e.text);
    gpus_free(g);
    return NULL;
}

/* Removes the GPUs that were not chosen. They are removed from the list, and their distances
 * are removed from the remaining GPUs. Returns the number of GPUs that are left. */
static int keep_mine(const struct gpus *g, struct gpu list[GPU_MAX], int n)
{
    struct gpu all[GPU_MAX];
    int at[GPU_MAX], m = 0;
    memcpy(all, list, sizeof all);
    for (int i = 0; i < g->n_mine; i++)
        if ((at[m] = gpu_find(all, n, g->mine[i])) >= 0) m++;
    for (int i = 0; i < m; i++) {
        list[i] = all[at[i]];
        memset(list[i].far, 0, sizeof list[i].far);
        for (int k = 0; k < m; k++) list[i].far[k] = all[at[i]].far[at[k]];
    }
    return m;
}

int gpus_get(struct gpus *g, struct gpu out[GPU_MAX])
{
    if (!g) return 0;
    pthread_mutex_lock(&g->lock);
    const int n = g->n;
    const bool silent = clock_ms() - g->seen_ms > GPUS_SILENT_MS;
    memcpy(out, g->list, sizeof g->list);
    pthread_mutex_unlock(&g->lock);
    for (int i = 0; silent && i < n; i++) out[i].health = GPU_SILENT;
    return g->chosen ? keep_mine(g, out, n) : n;
}

int gpus_choose(struct gpus *g, const struct allocation *a, struct err *e)
{
    struct gpu list[GPU_MAX];
    int at[GPU_MAX];
    if (!g) return 0;
    const int n = gpus_get(g, list), m = allocation_match(a, list, n, at, e);
    if (m < 0) return -1;
    for (int i = 0; i < m; i++) memcpy(g->mine[i], list[at[i]].uuid, GPU_UUID_SIZE);
    g->n_mine = m;
    g->chosen = a->gpus != ALLOCATION_ALL;
    return 0;
}

void gpus_close(struct gpus *g)
{
    struct timespec until;
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->closing = true;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLOSE_S;
    if (pthread_clockjoin_np(g->thread, NULL, CLOCK_MONOTONIC, &until) == 0) gpus_free(g);
}
