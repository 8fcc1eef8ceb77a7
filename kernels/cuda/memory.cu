/* memory.cu: the device's memory, and copies from and to the host and other ranks. The copies go
 * through the stream of operations (except copy_beside, which is in stream.cu). */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/cuda/device.h"
#include "kernels/cuda/graph.h"

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Allocations are whole pages, because the handle of an allocation (share) gives access to whole
 * pages. */
#define PAGE ((int64_t)2 << 20)

static void *cuda_alloc(struct be *be, int64_t size, struct err *e)
{
    struct cuda *c = cuda_of(be);
    const size_t whole = (size_t)(div_up(size > 0 ? size : 1, PAGE) * PAGE);
    void *p = NULL;
    cudaError_t rc = cudaMalloc(&p, whole);
    if (rc == cudaSuccess) rc = cudaMemsetAsync(p, 0, whole, c->compute);
    if (rc == cudaSuccess) return p;
    (void)cudaGetLastError();
    err_set(e, ERR_DEVICE, "%lld bytes of device memory of %s: %s", (long long)size, c->name,
            cudaGetErrorString(rc));
    return NULL;
}

/* Frees memory, unless be->watch has ended a wait. In that case the device's work may never end,
 * and cudaFree would wait for it. So the memory is freed only when the process ends. */
static void cuda_free(struct be *be, void *p, int64_t)
{
    struct cuda *c = cuda_of(be);
    if (p) graph_forget(c);
    if (p && !c->given_up) cuda_fine(c, cudaFree(p), "freeing memory");
}

void cuda_copy(struct be *be, void *dst, const void *src, int64_t size)
{
    struct cuda *c = cuda_of(be);
    if (size < 1) return; /* a graph cannot contain an empty copy */
    cuda_fine(c, cudaMemcpyAsync(dst, src, (size_t)size, cudaMemcpyDefault, c->compute), "copying");
}

/* ---- from the host --------------------------------------------------------------------------- */

/* Reserves n consecutive bytes of the ring, n <= STAGING_PIECE. Returns NULL if the device has
 * failed. */
static char *staging_take(struct cuda *c, int64_t n)
{
    struct staging *s = &c->staging;
    const int64_t at = s->put % STAGING_RING;
    if (at + n > STAGING_RING) s->put += STAGING_RING - at;
    if (s->first == s->last) s->free = s->put;
    while (s->put + n - s->free > STAGING_RING || s->last - s->first == STAGING_PIECES) {
        const int64_t i = s->first % STAGING_PIECES;
        if (!cuda_wait(c, s->sent[i])) return NULL;
        s->free = s->end[i];
        s->first++;
        if (s->first == s->last) s->free = s->put;
    }
    return s->at + s->put % STAGING_RING;
}

static void staging_send(struct cuda *c, void *dst, const char *piece, int64_t n)
{
    struct staging *s = &c->staging;
    const int64_t i = s->last % STAGING_PIECES;
    cudaError_t rc = cudaMemcpyAsync(dst, piece, (size_t)n, cudaMemcpyHostToDevice, c->compute);
    if (rc == cudaSuccess) rc = cudaEventRecord(s->sent[i], c->compute);
    if (!cuda_fine(c, rc, "copying from the host")) return;
    s->put += n;
    s->end[i] = s->put;
    s->last++;
}

static void cuda_upload(struct be *be, void *dst, const void *src, int64_t size)
{
    struct cuda *c = cuda_of(be);
    graph_flush(c);
    for (int64_t at = 0; at < size; at += STAGING_PIECE) {
        const int64_t n = at_most(size - at, STAGING_PIECE);
        char *piece = staging_take(c, n);
        if (!piece) return;
        memcpy(piece, (const char *)src + at, (size_t)n);
        staging_send(c, (char *)dst + at, piece, n);
    }
}

/* ---- to the host ----------------------------------------------------------------------------- */

static char *place(struct cuda *c, int64_t piece)
{
    return c->staging.at + STAGING_RING + piece % 2 * STAGING_PIECE;
}

static void download_piece(struct cuda *c, const void *src, int64_t size, int64_t piece)
{
    const int64_t at = piece * STAGING_PIECE;
    if (at >= size) return;
    cudaError_t rc = cudaMemcpyAsync(place(c, piece), (const char *)src + at,
                                     (size_t)at_most(size - at, STAGING_PIECE),
                                     cudaMemcpyDeviceToHost, c->compute);
    if (rc == cudaSuccess) rc = cudaEventRecord(c->staging.downloaded[piece % 2], c->compute);
    cuda_fine(c, rc, "copying to the host");
}

/* Downloads in pieces. The next piece arrives while the previous one is copied to dst. */
static void cuda_download(struct be *be, void *dst, const void *src, int64_t size)
{
    struct cuda *c = cuda_of(be);
    graph_flush(c);
    download_piece(c, src, size, 0);
    for (int64_t i = 0; i * STAGING_PIECE < size; i++) {
        const int64_t at = i * STAGING_PIECE;
        download_piece(c, src, size, i + 1);
        if (!cuda_wait(c, c->staging.downloaded[i % 2])) return;
        memcpy((char *)dst + at, place(c, i), (size_t)at_most(size - at, STAGING_PIECE));
    }
}

/* ---- pinned ---------------------------------------------------------------------------------- */

static int cuda_pin(struct be *be, void *host, int64_t size, struct err *e)
{
    struct cuda *c = cuda_of(be);
    const cudaError_t rc = cudaHostRegister(host, (size_t)size, cudaHostRegisterDefault);
    if (rc == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return err_set(e, ERR_DEVICE, "device \"%s\" (%s): pinning %lld bytes of the host's memory: %s",
                   be->ops->name, c->name, (long long)size, cudaGetErrorString(rc));
}

static void cuda_unpin(struct be *be, void *host)
{
    struct cuda *c = cuda_of(be);
    if (!c->given_up) cuda_fine(c, cudaHostUnregister(host), "unpinning the host's memory");
}

/* ---- to other ranks -------------------------------------------------------------------------- */

/* The contents of a handle. A process uses its own memory without opening it. The pid is not
 * enough to recognise it, because processes of two containers may have the same process id. */
struct shared {
    int pid;
    uint64_t pid_space;
    void *p;
    cudaUUID_t device;
    cudaIpcMemHandle_t memory;
};
static_assert(sizeof(struct shared) <= sizeof(struct be_handle), "a handle has room for it");

static uint64_t pid_space(void)
{
    struct stat s;
    return stat("/proc/self/ns/pid", &s) ? 0 : (uint64_t)s.st_ino;
}

static int cuda_share(struct be *be, void *p, struct be_handle *out, struct err *e)
{
    struct cuda *c = cuda_of(be);
    struct shared s = {};
    graph_flush(c);
    s.pid = (int)getpid();
    s.pid_space = pid_space();
    s.p = p;
    s.device = c->uuid;
    const cudaError_t rc = cudaIpcGetMemHandle(&s.memory, p);
    memset(out, 0, sizeof *out);
    memcpy(out, &s, sizeof s);
    if (rc == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return err_set(e, ERR_UNSUPPORTED, "memory of %s cannot be shared with other processes: %s",
                   c->name, cudaGetErrorString(rc));
}

static void **attached_slot(struct cuda *c, const void *p)
{
    for (int i = 0; i < CUDA_PEERS; i++)
        if (c->attached[i] == p) return &c->attached[i];
    return NULL;
}

static void *cuda_attach(struct be *be, const struct be_handle *h, struct err *e)
{
    struct cuda *c = cuda_of(be);
    struct shared s;
    memcpy(&s, h, sizeof s);
    const bool same = !memcmp(&s.device, &c->uuid, sizeof s.device);
    if (same && s.pid == (int)getpid() && s.pid_space == pid_space()) return s.p;
    void **slot = attached_slot(c, NULL), *p = NULL;
    assert(slot);
    const cudaError_t rc = cudaIpcOpenMemHandle(&p, s.memory, cudaIpcMemLazyEnablePeerAccess);
    if (rc == cudaSuccess) return *slot = p;
    (void)cudaGetLastError();
    err_set(e, ERR_UNSUPPORTED,
            "%s does not reach the memory of process %d, on %s: %s: they must see the same "
            "/proc and IPC namespace%s",
            c->name, s.pid, same ? "the same GPU" : "another GPU", cudaGetErrorString(rc),
            same ? "" : ", and the GPUs each other");
    return NULL;
}

static void cuda_detach(struct be *be, void *p)
{
    struct cuda *c = cuda_of(be);
    void **slot = p ? attached_slot(c, p) : NULL;
    if (!slot) return; /* memory of this process */
    *slot = NULL;
    graph_forget(c);
    if (!c->given_up) cuda_fine(c, cudaIpcCloseMemHandle(p), "detaching memory");
}

void memory_slots(struct be_ops *t)
{
    t->pin = cuda_pin;
    t->unpin = cuda_unpin;
    t->alloc = cuda_alloc;
    t->free = cuda_free;
    t->upload = cuda_upload;
    t->download = cuda_download;
    t->share = cuda_share;
    t->attach = cuda_attach;
    t->detach = cuda_detach;
}

/* ---- opening --------------------------------------------------------------------------------- */

cudaError_t memory_open(struct cuda *c)
{
    struct staging *s = &c->staging;
    cudaError_t rc = cudaHostAlloc((void **)&s->at, (size_t)(STAGING_RING + 2 * STAGING_PIECE),
                                   cudaHostAllocDefault);
    for (int i = 0; rc == cudaSuccess && i < STAGING_PIECES; i++)
        rc = cudaEventCreateWithFlags(&s->sent[i], cudaEventDisableTiming);
    for (int i = 0; rc == cudaSuccess && i < 2; i++)
        rc = cudaEventCreateWithFlags(&s->downloaded[i], cudaEventDisableTiming);
    return rc;
}

void memory_close(struct cuda *c)
{
    struct staging *s = &c->staging;
    for (int i = 0; i < STAGING_PIECES; i++)
        if (s->sent[i]) (void)cudaEventDestroy(s->sent[i]);
    for (int i = 0; i < 2; i++)
        if (s->downloaded[i]) (void)cudaEventDestroy(s->downloaded[i]);
    if (s->at && !c->given_up) (void)cudaFreeHost(s->at);
}
