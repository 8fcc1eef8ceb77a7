/* fake.c: replaces the driver's management library for seqw. It answers from the text file that
 * FAKE_NVML names, and reads that file again at every call, so that a test can change the machine
 * while seqw runs.
 *
 *   gpu UUID NAME MIB [free=MIB] [ecc=N] [mig=1] [procs=N] [cc=N]
 *                        a GPU; GPUs are numbered in the order of their lines
 *   far A B LEVEL        the distance of GPUs A and B, which is nvlink, or a level of the library
 *                        (0, 10, .. 50); without such a line the distance is 50
 *   xid N UUID CODE      an event, which is reported once; events come in the order of their
 *                        lines, and N is not used
 *   silent               the library no longer answers */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 20, NO_DRIVER = 9, SMALL = 7, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };

struct device {
    char uuid[64], name[64];
    long long mib, free, ecc, procs;
    int mig, cc;
};

static struct {
    struct device device[MAX];
    int n, far[MAX][MAX], n_xids, xid_of[MAX], xid[MAX], told, silent;
    /* a handle remains valid after its device has disappeared, as in the real library */
    char known[MAX][64];
    int n_known;
} fake;

static int by_uuid(const char *uuid)
{
    for (int i = 0; i < fake.n; i++)
        if (!strcmp(fake.device[i].uuid, uuid)) return i;
    return -1;
}

static void read_line(char *line)
{
    struct device d = {.free = -1, .cc = 9};
    char a[64], b[64], *word, *rest = NULL;
    int code, nth;
    if (sscanf(line, "gpu %63s %63s %lld", d.uuid, d.name, &d.mib) == 3 && fake.n < MAX) {
        for (word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
            sscanf(word, "free=%lld", &d.free);
            sscanf(word, "ecc=%lld", &d.ecc);
            sscanf(word, "mig=%d", &d.mig);
            sscanf(word, "cc=%d", &d.cc);
            sscanf(word, "procs=%lld", &d.procs);
        }
        if (d.free < 0) d.free = d.mib;
        fake.device[fake.n++] = d;
    } else if (sscanf(line, "far %63s %63s nvlink", a, b) == 2 && strstr(line, "nvlink")) {
        fake.far[by_uuid(a)][by_uuid(b)] = fake.far[by_uuid(b)][by_uuid(a)] = -1;
    } else if (sscanf(line, "far %63s %63s %d", a, b, &code) == 3) {
        fake.far[by_uuid(a)][by_uuid(b)] = fake.far[by_uuid(b)][by_uuid(a)] = code;
    } else if (sscanf(line, "xid %d %63s %d", &nth, a, &code) == 3 && fake.n_xids < MAX) {
        fake.xid_of[fake.n_xids] = by_uuid(a);
        fake.xid[fake.n_xids++] = code;
    } else if (!strncmp(line, "silent", 6)) {
        fake.silent = 1;
    }
}

static int read_file(void)
{
    const char *path = getenv("FAKE_NVML");
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[256];
    if (!f) return NO_DRIVER;
    fake.n = fake.n_xids = fake.silent = 0;
    for (int i = 0; i < MAX; i++)
        for (int k = 0; k < MAX; k++) fake.far[i][k] = 50;
    while (fgets(line, sizeof line, f)) read_line(line);
    fclose(f);
    return 0;
}

/* Finds the device of a handle. A handle is 1 + the index of the device's UUID among all UUIDs
 * that have been seen. */
static struct device *device_of(void *handle)
{
    const int at = by_uuid(fake.known[(int)(size_t)handle - 1]);
    return at < 0 ? NULL : &fake.device[at];
}

static int say(char *out, unsigned size, const char *text)
{
    return (unsigned)snprintf(out, size, "%s", text) < size ? 0 : SMALL;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    return read_file();
}

int nvmlShutdown(void);
int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int rc);
const char *nvmlErrorString(int rc)
{
    return rc == NO_DRIVER ? "Driver Not Loaded" : rc == LOST ? "GPU is lost" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetCount_v2(unsigned *n)
{
    if (read_file() || fake.silent) return UNKNOWN;
    *n = (unsigned)fake.n;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle)
{
    int k = 0;
    while (k < fake.n_known && strcmp(fake.known[k], fake.device[i].uuid)) k++;
    if (k == fake.n_known) memcpy(fake.known[fake.n_known++], fake.device[i].uuid, 64);
    *handle = (void *)(size_t)(k + 1);
    return 0;
}

int nvmlDeviceGetUUID(void *d, char *out, unsigned size);
int nvmlDeviceGetUUID(void *d, char *out, unsigned size)
{
    return device_of(d) ? say(out, size, device_of(d)->uuid) : LOST;
}

int nvmlDeviceGetName(void *d, char *out, unsigned size);
int nvmlDeviceGetName(void *d, char *out, unsigned size)
{
    return device_of(d) ? say(out, size, device_of(d)->name) : LOST;
}

int nvmlDeviceGetMemoryInfo(void *d, unsigned long long m[3]);
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long m[3])
{
    m[0] = (unsigned long long)device_of(d)->mib << 20;
    m[1] = (unsigned long long)device_of(d)->free << 20;
    m[2] = m[0] - m[1];
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor)
{
    *major = device_of(d)->cc;
    *minor = 0;
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *d, void *out);
int nvmlDeviceGetPciInfo_v3(void *d, void *out)
{
    snprintf((char *)out + 36, 32, "00000000:%02X:00.0", (int)(size_t)d);
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, unsigned long long *n);
int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, unsigned long long *n)
{
    *n = type == 1 && counter == 0 ? (unsigned long long)device_of(d)->ecc : 0;
    return 0;
}

int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *later);
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *later)
{
    *now = *later = (unsigned)device_of(d)->mig;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *list);
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *list)
{
    *n = (unsigned)device_of(d)->procs;
    return *n ? SMALL : 0;
}

int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level);
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level)
{
    *level = fake.far[device_of(a) - fake.device][device_of(b) - fake.device];
    return 0;
}

int nvmlDeviceGetP2PStatus(void *a, void *b, int what, int *status);
int nvmlDeviceGetP2PStatus(void *a, void *b, int what, int *status)
{
    const int far = fake.far[device_of(a) - fake.device][device_of(b) - fake.device];
    *status = what == 2 && far == -1 ? 0 : 4;
    return 0;
}

int nvmlEventSetCreate(void **set);
int nvmlEventSetCreate(void **set)
{
    *set = &fake;
    return 0;
}

int nvmlEventSetFree(void *set);
int nvmlEventSetFree(void *set)
{
    return 0;
}

int nvmlDeviceRegisterEvents(void *d, unsigned long long types, void *set);
int nvmlDeviceRegisterEvents(void *d, unsigned long long types, void *set)
{
    return types == 8 ? 0 : UNKNOWN;
}

struct event {
    void *of;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
int nvmlEventSetWait_v2(void *set, struct event *v, unsigned ms);
int nvmlEventSetWait_v2(void *set, struct event *v, unsigned ms)
{
    if (fake.told >= fake.n_xids) return TIMEOUT;
    *v = (struct event){.type = 8, .data = (unsigned long long)fake.xid[fake.told]};
    int k = 0;
    while (strcmp(fake.known[k], fake.device[fake.xid_of[fake.told]].uuid)) k++;
    v->of = (void *)(size_t)(k + 1);
    fake.told++;
    return 0;
}
