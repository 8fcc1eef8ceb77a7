/* cuda.cu: opening the device, its memory and stream; the table. */
#include <stdio.h>
#include <stdlib.h>
#include "kernels/cuda/hopper.h"
#include "kernels/plugin.h"

void cuda_launched(struct cuda *c, const char *kernel)
{
    const cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess && !c->failed[0])
        snprintf(c->failed, sizeof c->failed, "launching %s: %s", kernel, cudaGetErrorString(e));
}

/* ---- memory ----------------------------------------------------------------------------------- */

static void copy(struct cuda *c, void *dst, const void *src, int64_t size)
{
    const cudaError_t e = cudaMemcpyAsync(dst, src, (size_t)size, cudaMemcpyDefault, c->compute);
    if (e != cudaSuccess && !c->failed[0])
        snprintf(c->failed, sizeof c->failed, "copying %lld bytes: %s", (long long)size,
                 cudaGetErrorString(e));
}

static void cuda_copy(struct be *be, void *dst, const void *src, int64_t size)
{
    copy(cuda_of(be), dst, src, size);
}

static int cuda_sync(struct be *be, struct err *e)
{
    struct cuda *c = cuda_of(be);
    const cudaError_t rc = cudaStreamSynchronize(c->compute);
    if (c->failed[0]) return err_set(e, ERR_INTERNAL, "device \"cuda\": %s", c->failed);
    if (rc != cudaSuccess)
        return err_set(e, ERR_INTERNAL, "device \"cuda\": %s", cudaGetErrorString(rc));
    return 0;
}

static void cuda_download(struct be *be, void *dst, const void *src, int64_t size)
{
    copy(cuda_of(be), dst, src, size);
    (void)cudaStreamSynchronize(cuda_of(be)->compute); /* what failed, sync reports */
}

static void *cuda_alloc(struct be *be, int64_t size, struct err *e)
{
    struct cuda *c = cuda_of(be);
    void *p = NULL;
    cudaError_t rc = cudaMalloc(&p, (size_t)(size > 0 ? size : 1));
    if (rc == cudaSuccess) rc = cudaMemsetAsync(p, 0, (size_t)(size > 0 ? size : 1), c->compute);
    if (rc == cudaSuccess) return p;
    err_set(e, ERR_IO, "%lld bytes of device memory: %s", (long long)size, cudaGetErrorString(rc));
    return NULL;
}

static void cuda_free(struct be *be, void *p, int64_t size)
{
    (void)cudaStreamSynchronize(cuda_of(be)->compute);
    (void)cudaFree(p);
}

static void cuda_close(struct be *be)
{
    struct cuda *c = cuda_of(be);
    if (c->owns_scratch) (void)cudaFree(be->scratch);
    (void)cudaStreamDestroy(c->compute);
    free(c);
}

/* ---- opening ---------------------------------------------------------------------------------- */

void cuda_fill(struct be *be, float *p, int64_t n, float value);

static struct be_ops table(void)
{
    struct be_ops t = {};
    t.name = "cuda";
#define ENTER(op) t.op = cuda_##op;
    CUDA_OPS(ENTER)
#undef ENTER
    t.fill = cuda_fill;
    t.copy = t.upload = cuda_copy;
    t.download = cuda_download;
    t.sync = cuda_sync;
    t.alloc = cuda_alloc;
    t.free = cuda_free;
    t.close = cuda_close;
    return t;
}

static struct be *cuda_open(const struct be_options *o, struct err *e)
{
    static const struct be_ops ops = table();
    int n = 0;
    const cudaError_t found = cudaGetDeviceCount(&n);
    if (found != cudaSuccess || n < 1) {
        err_set(e, ERR_UNSUPPORTED, "device \"cuda\": %s",
                found != cudaSuccess ? cudaGetErrorString(found) : "this machine has none");
        return NULL;
    }
    struct cuda *c = (struct cuda *)calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    if (hopper_open(c, o->isa, e)) {
        free(c);
        return NULL;
    }
    c->owns_scratch = !o->scratch && !o->scratch_later;
    c->be.own_memory = true;
    c->be.scratch_size = BE_SCRATCH_CUDA;
    c->be.ops = &ops;
#ifdef SEQD_EMU
    c->be.isa = c->hopper ? "sm90" : "emulated";
#else
    c->be.isa = c->hopper ? "sm90" : "sm80";
#endif
    c->be.n_threads = o->n_threads;
    void *scratch = o->scratch;
    cudaError_t rc = cudaStreamCreate(&c->compute);
    if (rc == cudaSuccess && c->owns_scratch) rc = cudaMalloc(&scratch, (size_t)BE_SCRATCH_CUDA);
    c->be.scratch = (char *)scratch;
    if (rc == cudaSuccess) return &c->be;
    if (c->compute) (void)cudaStreamDestroy(c->compute);
    err_set(e, ERR_IO, "device \"cuda\": %s", cudaGetErrorString(rc));
    free(c);
    return NULL;
}

extern "C" __attribute__((visibility("default")))
const struct kernels_plugin seqd_kernels = {KERNELS_ABI, sizeof(struct be_ops), cuda_open};
