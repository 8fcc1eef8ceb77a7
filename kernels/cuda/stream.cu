/* stream.cu: four streams, and the host's waits for them. One stream is for operations, one for
 * transfers between ranks, and two for copies to and from the host that run beside the other two.
 * The two directions have a stream each, because a bus carries both at the same time. The host
 * polls, so that be->watch can end a wait that would never end because a peer is gone. No wait is
 * for the whole device, because other ranks may use the device too. */
#include <stdio.h>
#include <time.h>
#include "kernels/cuda/device.h"
#include "kernels/cuda/graph.h"

/* ---- failures -------------------------------------------------------------------------------- */

/* Names the last kernel that was launched, because a kernel fails when it runs, and not when it is
 * launched. */
bool cuda_fine(struct cuda *c, cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess) return true;
    if (c->failed.code == ERR_NONE)
        err_set(&c->failed, ERR_DEVICE,
                "device \"%s\" (%s): %s: %s; the last kernel launched was %s: "
                "CUDA_LAUNCH_BLOCKING=1 in the environment shows which one fails",
                c->be.ops->name, c->name, what, cudaGetErrorString(rc),
                c->launched ? c->launched : "none");
    return false;
}

void cuda_launched(struct cuda *c, const char *kernel)
{
    const cudaError_t rc = cudaGetLastError();
    c->launched = kernel;
    if (rc != cudaSuccess && c->failed.code == ERR_NONE)
        err_set(&c->failed, ERR_DEVICE, "device \"%s\" (%s): launching %s: %s", c->be.ops->name,
                c->name, kernel, cudaGetErrorString(rc));
}

void cuda_smem_fits(struct cuda *c, int smem, const char *kernel)
{
    if (smem > c->smem_most && c->failed.code == ERR_NONE)
        err_set(&c->failed, ERR_DEVICE,
                "device \"%s\" (%s): %s needs %d bytes of shared memory, a block has %d",
                c->be.ops->name, c->name, kernel, smem, c->smem_most);
}

/* ---- waiting --------------------------------------------------------------------------------- */

#define SPIN_NS  50000 /* a shorter wait is not worth a sleep */
#define SLEEP_NS 20000 /* plus the timer's slack of some 50 us */
#define WATCH_NS 1000000

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* Asks be->watch whether to end the wait. The error of be->watch becomes the device's failure. */
static bool give_up(struct cuda *c)
{
    struct err e = {};
    if (!c->be.watch || c->be.watch(c->be.watch_arg, &e) == 0) return false;
    c->given_up = true;
    if (c->failed.code == ERR_NONE) c->failed = e;
    return true;
}

bool cuda_wait(struct cuda *c, cudaEvent_t e)
{
    const struct timespec sleep = {0, SLEEP_NS};
    const int64_t begun = now_ns();
    int64_t watched = begun;
    while (!c->given_up) {
        const cudaError_t rc = cudaEventQuery(e);
        if (rc != cudaErrorNotReady) return cuda_fine(c, rc, "waiting");
        (void)cudaGetLastError(); /* clears the error, or the next launch would report it */
        const int64_t now = now_ns();
        if (now - watched >= WATCH_NS) {
            watched = now;
            if (give_up(c)) return false;
        }
        if (now - begun >= SPIN_NS) nanosleep(&sleep, NULL);
    }
    return false;
}

static int cuda_sync(struct be *be, struct err *e)
{
    struct cuda *c = cuda_of(be);
    const cudaStream_t all[] = {c->transfer, c->out, c->back, c->compute};
    graph_flush(c);
    for (cudaStream_t s : all)
        if (!cuda_fine(c, cudaEventRecord(c->asked, s), "waiting") || !cuda_wait(c, c->asked))
            break;
    if (c->failed.code == ERR_NONE) return 0;
    if (e) *e = c->failed;
    return -1;
}

/* ---- transfers ------------------------------------------------------------------------------- */

static void *transfer_stream(struct be *be)
{
    return cuda_of(be)->transfer;
}

static void transfer_begin(struct be *be)
{
    struct cuda *c = cuda_of(be);
    graph_flush(c);
    cudaError_t rc = cudaEventRecord(c->begun, c->compute);
    if (rc == cudaSuccess) rc = cudaStreamWaitEvent(c->transfer, c->begun, 0);
    cuda_fine(c, rc, "beginning a transfer");
}

static void transfer_end(struct be *be, int mark)
{
    struct cuda *c = cuda_of(be);
    assert(mark >= 0 && mark < BE_MARKS);
    cuda_fine(c, cudaEventRecord(c->marks[mark], c->transfer), "marking a transfer");
}

static void transfer_await(struct be *be, int mark)
{
    struct cuda *c = cuda_of(be);
    assert(mark >= 0 && mark < BE_MARKS);
    graph_flush(c);
    cuda_fine(c, cudaStreamWaitEvent(c->compute, c->marks[mark], 0), "awaiting a transfer");
}

/* Returns true after a failure too, because the caller must not wait any longer; sync then reports
 * the failure. */
static bool transfer_passed(struct be *be, int mark)
{
    struct cuda *c = cuda_of(be);
    assert(mark >= 0 && mark < BE_MARKS);
    const cudaError_t rc = cudaEventQuery(c->marks[mark]);
    if (rc != cudaErrorNotReady) return cuda_fine(c, rc, "asking for a transfer"), true;
    (void)cudaGetLastError();
    return false;
}

/* ---- copies beside --------------------------------------------------------------------------- */

static void copy_beside(struct be *be, void *dst, const void *src, int64_t size, bool out, int mark)
{
    struct cuda *c = cuda_of(be);
    const cudaStream_t to = out ? c->out : c->back;
    assert(mark >= 0 && mark < BE_COPIES && size > 0);
    graph_flush(c);
    cudaError_t rc = cudaEventRecord(c->begun, c->compute);
    if (rc == cudaSuccess) rc = cudaStreamWaitEvent(to, c->begun, 0);
    if (rc == cudaSuccess && !out) rc = cudaStreamWaitEvent(to, c->gone, 0);
    if (rc == cudaSuccess) rc = cudaMemcpyAsync(dst, src, (size_t)size, cudaMemcpyDefault, to);
    if (rc == cudaSuccess) rc = cudaEventRecord(c->copied[mark], to);
    if (rc == cudaSuccess && out) rc = cudaEventRecord(c->gone, to);
    cuda_fine(c, rc, "copying beside operations");
}

static void copy_await(struct be *be, int mark)
{
    struct cuda *c = cuda_of(be);
    assert(mark >= 0 && mark < BE_COPIES);
    graph_flush(c);
    cuda_fine(c, cudaStreamWaitEvent(c->compute, c->copied[mark], 0), "awaiting a copy");
}

void stream_slots(struct be_ops *t)
{
    t->sync = cuda_sync;
    t->transfer_stream = transfer_stream;
    t->transfer_begin = transfer_begin;
    t->transfer_end = transfer_end;
    t->transfer_await = transfer_await;
    t->transfer_passed = transfer_passed;
    t->copy_beside = copy_beside;
    t->copy_await = copy_await;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Gives transfers and copies priority over operations, because a hop between ranks is short, and
 * operations that run at the same time take long. */
cudaError_t stream_open(struct cuda *c)
{
    int least = 0, most = 0;
    cudaError_t rc = cudaDeviceGetStreamPriorityRange(&least, &most);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithPriority(&c->compute, cudaStreamNonBlocking, least);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithPriority(&c->transfer, cudaStreamNonBlocking, most);
    if (rc == cudaSuccess) rc = cudaStreamCreateWithPriority(&c->back, cudaStreamNonBlocking, most);
    if (rc == cudaSuccess) rc = cudaStreamCreateWithPriority(&c->out, cudaStreamNonBlocking, most);
    if (rc == cudaSuccess) rc = cudaEventCreateWithFlags(&c->asked, cudaEventDisableTiming);
    if (rc == cudaSuccess) rc = cudaEventCreateWithFlags(&c->begun, cudaEventDisableTiming);
    if (rc == cudaSuccess) rc = cudaEventCreateWithFlags(&c->gone, cudaEventDisableTiming);
    for (int i = 0; rc == cudaSuccess && i < BE_MARKS; i++)
        rc = cudaEventCreateWithFlags(&c->marks[i], cudaEventDisableTiming);
    for (int i = 0; rc == cudaSuccess && i < BE_COPIES; i++)
        rc = cudaEventCreateWithFlags(&c->copied[i], cudaEventDisableTiming);
    return rc;
}

void stream_close(struct cuda *c)
{
    for (int i = 0; i < BE_MARKS; i++)
        if (c->marks[i]) (void)cudaEventDestroy(c->marks[i]);
    for (int i = 0; i < BE_COPIES; i++)
        if (c->copied[i]) (void)cudaEventDestroy(c->copied[i]);
    if (c->asked) (void)cudaEventDestroy(c->asked);
    if (c->begun) (void)cudaEventDestroy(c->begun);
    if (c->gone) (void)cudaEventDestroy(c->gone);
    if (c->out) (void)cudaStreamDestroy(c->out);
    if (c->back) (void)cudaStreamDestroy(c->back);
    if (c->transfer) (void)cudaStreamDestroy(c->transfer);
    if (c->compute) (void)cudaStreamDestroy(c->compute);
}
