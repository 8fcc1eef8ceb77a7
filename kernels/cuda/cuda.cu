/* cuda.cu: opens the device, and has the table of its operations. */
#include <stdio.h>
#include <stdlib.h>
#include "kernels/cuda/blas.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/hopper.h"
#include "kernels/plugin.h"

#ifdef SEQD_EMU
#define NAME "emulated"
#else
#define NAME "cuda"
#endif

/* ---- the table ------------------------------------------------------------------------------- */

static void cuda_close(struct be *be)
{
    struct cuda *c = cuda_of(be);
    if (c->owns_scratch && be->scratch) be->ops->free(be, be->scratch, be->scratch_size);
    graph_close(c);
    blas_close(c->blas);
    memory_close(c);
    stream_close(c);
    free(c);
}

static struct be_ops table(void)
{
    struct be_ops t = {};
    t.name = NAME;
    graph_slots(&t);
    memory_slots(&t);
    stream_slots(&t);
    t.close = cuda_close;
    return t;
}

/* ---- opening --------------------------------------------------------------------------------- */

#define ADVICE "or say resources.device \"cpu\""

static int version_set(struct err *e, int has)
{
    int want = 0;
    (void)cudaRuntimeGetVersion(&want);
    if (has == 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "device \"cuda\": no NVIDIA driver is loaded here: install one of CUDA "
                       "%d.%d or later, " ADVICE,
                       want / 1000, want % 1000 / 10);
    return err_set(e, ERR_UNSUPPORTED,
                   "device \"cuda\": the NVIDIA driver is of CUDA %d.%d, this build of %d.%d: "
                   "update the driver, " ADVICE,
                   has / 1000, has % 1000 / 10, want / 1000, want % 1000 / 10);
}

/* Checks that there is a device. The runtime reports the same error for a missing driver and for a
 * driver that is too old. */
static int find(struct err *e)
{
    int n = 0, driver = 0;
    const cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc == cudaErrorInsufficientDriver) {
        (void)cudaDriverGetVersion(&driver);
        return version_set(e, driver);
    }
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    if (rc == cudaErrorNoDevice || (rc == cudaSuccess && n < 1))
        return err_set(e, ERR_UNSUPPORTED,
                       "device \"cuda\": the driver shows no GPU (CUDA_VISIBLE_DEVICES is %s%s%s): "
                       "see what nvidia-smi lists, " ADVICE,
                       seen ? "\"" : "", seen ? seen : "not set", seen ? "\"" : "");
    if (rc == cudaSuccess) return 0;
    return err_set(e, ERR_UNSUPPORTED, "device \"cuda\": %s", cudaGetErrorString(rc));
}

/* Limits kernels to the shared memory of 8.6. Refuses devices for which no kernels with this limit
 * are built. */
static int small_shapes(struct cuda *c, const cudaDeviceProp *p, struct err *e)
{
#ifndef SEQD_EMU
    if (p->major == 9 || p->major == 10)
        return err_set(e, ERR_UNSUPPORTED,
                       "isa \"sm86\": %s, of compute capability %d.%d, has no kernels for less "
                       "shared memory: leave isa out, or say \"sm80\"",
                       p->name, p->major, p->minor);
#endif
    (void)p, (void)e;
    if (c->smem_most > SMEM_SMALL) c->smem_most = SMEM_SMALL;
    return 0;
}

/* Reads the device's properties and chooses the instruction set. isa is "sm80", "sm86" or "sm90";
 * if it is NULL, the value of SEQD_CUDA_ISA or the device's best is used. */
static int examine(struct cuda *c, const char *isa, struct err *e)
{
    cudaDeviceProp p;
    const cudaError_t rc = cudaGetDeviceProperties(&p, 0);
    if (!isa) isa = getenv("SEQD_CUDA_ISA");
    if (rc != cudaSuccess)
        return err_set(e, ERR_DEVICE, "device \"cuda\": %s", cudaGetErrorString(rc));
    snprintf(c->name, sizeof c->name, "%s", p.name);
    c->uuid = p.uuid;
    memcpy(c->be.id, &p.uuid, sizeof c->be.id);
    c->n_sm = p.multiProcessorCount;
    c->smem_most = (int)p.sharedMemPerBlockOptin;
    if (p.major < 8)
        return err_set(
            e, ERR_UNSUPPORTED,
            "device \"cuda\": %s has compute capability %d.%d, the kernels need 8.0, " ADVICE,
            p.name, p.major, p.minor);
    if (isa && strcmp(isa, "sm80") && strcmp(isa, "sm86") && strcmp(isa, "sm90"))
        return err_set(e, ERR_UNSUPPORTED, "%s cannot run instruction set \"%s\": sm80, sm86, sm90",
                       p.name, isa);
    if (isa && !strcmp(isa, "sm86") && small_shapes(c, &p, e)) return -1;
    if (hopper_open(c, isa, e)) return -1;
    c->be.isa = c->hopper ? "sm90" : c->smem_most > SMEM_SMALL ? "sm80" : "sm86";
    return 0;
}

/* Returns false if graphs are turned off. Also returns false if CUDA_LAUNCH_BLOCKING makes the
 * runtime wait for each launch, because users set it in order to see which launch fails. */
static bool wants_graphs(const struct be_options *o)
{
    const char *graphs = getenv("SEQD_CUDA_GRAPHS"), *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    return !o->no_graphs && !(graphs && !strcmp(graphs, "0")) &&
           !(blocking && strcmp(blocking, "0"));
}

/* Opens the streams and the memory. Opens cuBLASLt and graphs if they are wanted. Allocates the
 * scratch unless the caller gives it. */
static int open_rest(struct cuda *c, const struct be_options *o, struct err *e)
{
    cudaError_t rc = stream_open(c);
    if (rc == cudaSuccess) rc = memory_open(c);
    if (rc != cudaSuccess)
        return err_set(e, ERR_DEVICE, "device \"cuda\": opening %s: %s", c->name,
                       cudaGetErrorString(rc));
    c->be.any_order = o->any_order;
    if (o->any_order) c->blas = blas_open(&c->library), c->be.library = &c->library;
    if (wants_graphs(o)) c->be.graphs = graph_open(c);
    if (c->blas) strncat(c->name, ", cuBLASLt", sizeof c->name - strlen(c->name) - 1);
    c->owns_scratch = !o->scratch && !o->scratch_later;
    c->be.scratch = (char *)o->scratch;
    c->be.scratch_size = BE_SCRATCH_CUDA;
    if (c->owns_scratch) c->be.scratch = (char *)c->be.ops->alloc(&c->be, BE_SCRATCH_CUDA, e);
    return c->owns_scratch && !c->be.scratch ? -1 : 0;
}

static struct be *cuda_open(const struct be_options *o, struct err *e)
{
    static const struct be_ops ops = table();
    if (find(e)) return NULL;
    struct cuda *c = (struct cuda *)calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    c->be.ops = &ops;
    c->be.own_memory = true;
    c->be.n_threads = o->n_threads;
    c->be.name = c->name;
    if (!examine(c, o->isa, e) && !open_rest(c, o, e)) return &c->be;
    cuda_close(&c->be);
    return NULL;
}

extern "C" __attribute__((visibility("default")))
const struct kernels_plugin seqd_kernels = {KERNELS_ABI, sizeof(struct be_ops), cuda_open};
