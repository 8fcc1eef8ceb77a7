/* This file declares the functions and structs of the management library by their ABI, because the
 * library's header is not always installed. from: NVML API reference (the header's macros turn
 * plain names into names with _v2, _v3). */
#include "worker/agent/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"

typedef struct device *device; /* nvmlDevice_t */
typedef struct events *events; /* nvmlEventSet_t */

struct memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};
struct pci { /* nvmlPciInfo_t */
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
struct nvml_event { /* nvmlEventData_t */
    device of;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

enum { DONE = 0, INSUFFICIENT_SIZE = 7 };   /* nvmlReturn_t */
enum { UNCORRECTED = 1, SINCE_DRIVER = 0 }; /* nvmlMemoryErrorType_t, nvmlEccCounterType_t */
enum { CAPS_NVLINK = 2, P2P_OK = 0 };       /* nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t */
enum { XID_CRITICAL = 8 };                  /* type of an event that reports an Xid */
/* Largest number of events that are read in one sample. */
enum { MANY_EVENTS = 64 };

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error)(int);
    int (*count)(unsigned *);
    int (*handle)(unsigned, device *);
    int (*uuid)(device, char *, unsigned);
    int (*name)(device, char *, unsigned);
    int (*memory)(device, struct memory *);
    int (*capability)(device, int *, int *);
    /* Functions that older drivers may lack. The pointer to a missing function is NULL. */
    int (*pci)(device, struct pci *);
    int (*ecc)(device, int, int, unsigned long long *);
    int (*mig)(device, unsigned *, unsigned *);
    int (*processes)(device, unsigned *, void *);
    int (*ancestor)(device, device, int *);
    int (*p2p)(device, device, int, int *);
    int (*events_create)(events *);
    int (*events_free)(events);
    int (*events_register)(device, unsigned long long, events);
    int (*events_wait)(events, struct nvml_event *, unsigned);
    bool open;
    events set; /* NULL if the driver does not report Xids */
    struct gpu gpu[GPU_MAX];
    device device[GPU_MAX];
    int n;
    bool full; /* whether it was logged that there are more GPUs than GPU_MAX */
};

static const struct {
    const char *symbol;
    size_t offset;
    bool needed;
} functions[] = {
#define F(member, symbol, needed)                                                                  \
    {                                                                                              \
        symbol, offsetof(struct nvml, member), needed                                              \
    }
    F(init, "nvmlInit_v2", true),
    F(shutdown, "nvmlShutdown", true),
    F(error, "nvmlErrorString", true),
    F(count, "nvmlDeviceGetCount_v2", true),
    F(handle, "nvmlDeviceGetHandleByIndex_v2", true),
    F(uuid, "nvmlDeviceGetUUID", true),
    F(name, "nvmlDeviceGetName", true),
    F(memory, "nvmlDeviceGetMemoryInfo", true),
    F(capability, "nvmlDeviceGetCudaComputeCapability", true),
    F(pci, "nvmlDeviceGetPciInfo_v3", false),
    F(ecc, "nvmlDeviceGetTotalEccErrors", false),
    F(mig, "nvmlDeviceGetMigMode", false),
    F(processes, "nvmlDeviceGetComputeRunningProcesses_v3", false),
    F(ancestor, "nvmlDeviceGetTopologyCommonAncestor", false),
    F(p2p, "nvmlDeviceGetP2PStatus", false),
    F(events_create, "nvmlEventSetCreate", false),
    F(events_free, "nvmlEventSetFree", false),
    F(events_register, "nvmlDeviceRegisterEvents", false),
    F(events_wait, "nvmlEventSetWait_v2", false),
#undef F
};

/* Returns true if a GPU is unusable after this Xid until it has been reset. All other Xids,
 * such as 8, 11, 13, 31, 43 and 45, report a fault of a program, and end only that program.
 * from: NVIDIA's catalogue of Xids, which recommends an action for each Xid. It recommends a
 * restart of the node for 79, a diagnosis for 48, 74 and 144 to 150, and a reset of the GPU
 * for the other numbers in this function. Xid 154 only reports that an action is needed. */
static bool xid_matters(long long xid)
{
    static const short list[] = {46,  48,  62,  64,  74,  79,  95,  109, 110,
                                 119, 120, 136, 140, 143, 154, 155, 156, 158};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (xid == list[i]) return true;
    return xid >= 144 && xid <= 150;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int load(struct nvml *n, const char *library, struct err *e)
{
    n->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return err_set(e, ERR_NOT_FOUND, "the NVIDIA driver is not found: %s", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(n->library, functions[i].symbol);
        if (!f && functions[i].needed)
            return err_set(e, ERR_UNSUPPORTED, "%s has no %s: the NVIDIA driver is too old",
                           library, functions[i].symbol);
        memcpy((char *)n + functions[i].offset, &f, sizeof f);
    }
    return 0;
}

struct nvml *nvml_open(const char *library, struct err *e)
{
    struct nvml *n = calloc(1, sizeof *n);
    if (!n) abort();
    if (load(n, library, e) == 0) {
        const int rc = n->init();
        n->open = rc == DONE;
        if (!n->open) err_set(e, ERR_UNSUPPORTED, "%s: %s", library, n->error(rc));
    }
    if (!n->open) {
        nvml_close(n);
        return NULL;
    }
    const bool tells = n->events_create && n->events_register && n->events_wait;
    if (!tells || n->events_create(&n->set) != DONE) n->set = NULL;
    return n;
}

void nvml_close(struct nvml *n)
{
    if (!n) return;
    if (n->set && n->events_free) n->events_free(n->set);
    if (n->open) n->shutdown();
    if (n->library) dlclose(n->library);
    free(n);
}

/* ---- sampling -------------------------------------------------------------------------------- */

/* Returns the distance between two GPUs (the member `far` of struct gpu). The library's levels of
 * a common ancestor are 0, 10, .. 50. */
static uint8_t distance(const struct nvml *n, device a, device b)
{
    int status = -1, level = 0;
    if (n->p2p && n->p2p(a, b, CAPS_NVLINK, &status) == DONE && status == P2P_OK) return 0;
    if (!n->ancestor || n->ancestor(a, b, &level) != DONE) return GPU_FAR_SYSTEM;
    level = level / 10 + GPU_FAR_BOARD;
    return (uint8_t)(level > GPU_FAR_SYSTEM ? GPU_FAR_SYSTEM : level);
}

/* Adds a GPU that is not in the list yet. Returns its position in the list, or -1 if the list
 * is full. */
static int add(struct nvml *n, device d, const char *uuid)
{
    if (n->n == GPU_MAX) {
        if (!n->full) log_warn("gpu.many", "text=\"only the first %d GPUs are used\"", GPU_MAX);
        n->full = true;
        return -1;
    }
    const int at = n->n++;
    struct gpu *g = &n->gpu[at];
    struct pci p = {0};
    *g = (struct gpu){0};
    snprintf(g->uuid, sizeof g->uuid, "%.*s", GPU_UUID_SIZE - 1, uuid);
    n->device[at] = d;
    if (n->pci && n->pci(d, &p) == DONE) memcpy(g->bus, p.bus_id, sizeof g->bus - 1);
    for (int i = 0; i < at; i++) g->far[i] = n->gpu[i].far[at] = distance(n, d, n->device[i]);
    if (n->set && n->events_register(d, XID_CRITICAL, n->set) != DONE)
        log_warn("gpu.events", "gpu=%s text=\"its Xids are not told\"", uuid);
    return at;
}

static int processes(const struct nvml *n, device d)
{
    unsigned count = 0;
    if (!n->processes) return 0;
    const int rc = n->processes(d, &count, NULL);
    return rc == INSUFFICIENT_SIZE ? (int)count : 0;
}

/* Reads the state of a GPU. Fails if the GPU does not answer. In that case the caller marks
 * the GPU as lost. */
static int look(struct nvml *n, struct gpu *g, device d)
{
    struct memory m = {0};
    unsigned mig = 0, later = 0;
    unsigned long long errors = 0;
    int major = 0, minor = 0;
    char name[96] = "";
    if (n->memory(d, &m) != DONE || n->capability(d, &major, &minor) != DONE) return -1;
    if (n->name(d, name, sizeof name) != DONE) return -1;
    snprintf(g->name, sizeof g->name, "%.*s", GPU_NAME_SIZE - 1, name);
    g->memory_size = (int64_t)m.total;
    g->memory_free = (int64_t)(m.free < m.total ? m.free : m.total);
    g->major = major;
    g->minor = minor;
    g->n_processes = processes(n, d);
    if (n->ecc && n->ecc(d, UNCORRECTED, SINCE_DRIVER, &errors) == DONE)
        g->ecc_errors = (int64_t)errors;
    const bool divided = n->mig && n->mig(d, &mig, &later) == DONE && mig;
    g->health = g->xid                  ? GPU_XID
                : g->ecc_errors         ? GPU_ECC
                : divided               ? GPU_MIG
                : major < GPU_MIN_MAJOR ? GPU_OLD
                                        : GPU_OK;
    return 0;
}

static void take_events(struct nvml *n)
{
    struct nvml_event v;
    for (int i = 0; n->set && i < MANY_EVENTS; i++) {
        char uuid[96] = "";
        if (n->events_wait(n->set, &v, 0) != DONE) return;
        if (v.type != XID_CRITICAL || n->uuid(v.of, uuid, sizeof uuid) != DONE) continue;
        const int at = gpu_find(n->gpu, n->n, uuid);
        log_warn("gpu.xid", "gpu=%s xid=%llu", uuid, v.data);
        if (at >= 0 && xid_matters((long long)v.data)) n->gpu[at].xid = (int32_t)v.data;
    }
}

void nvml_set_xid(struct nvml *n, const char *uuid, int32_t xid)
{
    for (int i = 0; i < n->n; i++)
        if (!uuid || !strcmp(n->gpu[i].uuid, uuid)) n->gpu[i].xid = uuid ? xid : 0;
}

int nvml_sample(struct nvml *n, struct gpu out[GPU_MAX], struct err *e)
{
    unsigned count = 0;
    const int rc = n->count(&count);
    if (rc != DONE)
        return err_set(e, ERR_DEVICE, "the NVIDIA driver does not count the GPUs: %s",
                       n->error(rc));
    take_events(n);
    for (int i = 0; i < n->n; i++) n->gpu[i].health = GPU_LOST;
    for (unsigned i = 0; i < count; i++) {
        device d = NULL;
        char uuid[96] = "";
        if (n->handle(i, &d) != DONE || n->uuid(d, uuid, sizeof uuid) != DONE) continue;
        /* Skip it: a text of this length is not the UUID of a whole GPU. */
        if (strlen(uuid) >= GPU_UUID_SIZE) continue;
        int at = gpu_find(n->gpu, n->n, uuid);
        if (at < 0) at = add(n, d, uuid);
        if (at < 0) continue;
        n->device[at] = d;
        if (look(n, &n->gpu[at], d) < 0) n->gpu[at].health = GPU_LOST;
    }
    memcpy(out, n->gpu, sizeof n->gpu);
    return n->n;
}
