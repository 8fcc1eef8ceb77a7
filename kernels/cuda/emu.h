/* emu.h: the parts of CUDA's execution model that the kernels use, on the host, so that the
 * kernels' source runs without a device. Blocks run one after another, and the threads of a block
 * are fibers that yield at barriers. The emulation proves indexing, barriers and arithmetic, but
 * not speed. Its results are not the results of a GPU.
 *
 *   barriers  __syncthreads, __syncwarp. If a thread runs ahead or leaves, there is a deadlock,
 *             and the emulation aborts. Threads run in ascending order up to one barrier and in
 *             descending order up to the next barrier. So if a barrier is missing, a thread reads
 *             bytes that have not been written yet. In blocks with an odd index the descending
 *             order is the first, and a single warp runs as far as it can
 *   warps     shuffles, votes, mma.sync, ldmatrix. All lanes of the warp must take part
 *   memory    shared memory, declared or dynamic, is full of NaNs when a block begins. Dynamic
 *             memory ends at a page that no access may touch
 *   copies    bytes that a thread copies asynchronously are NaN until it waits for them
 *             (emu_copies.cc)
 *
 *   streams   are always done, because launches are synchronous. A process has one launch at a
 *             time, and ranks that are threads wait for each other. A test can stop the streams
 *             (emu_stall) to see which calls wait
 *   graphs    while a stream is captured, no work runs, and a call that a capture may not contain
 *             aborts. Each launch of a graph repeats the captured launches, with the arguments of
 *             the capture. Tests can make each step of making a graph fail (emu_graphs_fail)
 *   limits    a launch that every device would refuse fails here too. So does a launch with more
 *             than 48 KiB of shared memory that was not allowed. A block whose warpgroups take
 *             more registers than others gave stands still (emu_limits.cc)
 *   faults    with EMU_FAULT_AT=n in the environment, the n-th kernel that runs faults, no kernel
 *             runs after it, and the wait reports the fault */
#ifndef SEQD_CUDA_EMU_H
#define SEQD_CUDA_EMU_H

#include <functional>
#include <math.h>
#include <tuple>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__    static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
/* Puts all shared variables into one section, which is filled with NaNs before each block. */
#define __shared__ static __attribute__((section("emu_shared"), aligned(16)))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
typedef int cudaError_t;
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

#define EMU_SMEM (228 << 10)
/* largest number of bytes that a block of compute capability 9.0 may have */
#define EMU_SMEM_MOST (227 << 10)
extern char *emu_smem; /* the block's dynamic shared memory */

/* Runs `thread` for each thread of the launch. A graph may call `thread` later, so `thread` must
 * have copies of the host's data. */
void emu_run(const void *kernel, dim3 grid, dim3 block, size_t smem,
             const std::function<void()> &thread);
/* emu_work does the work immediately. If this host thread is capturing a stream, emu_work keeps
 * the work for the graph instead (emu_graph.cc). emu_outside aborts if a stream is being captured;
 * `what` names the call that a capture may not contain. */
void emu_work(const std::function<void()> &work);
void emu_outside(const char *what);
/* Copies the arguments when the kernel is launched, as a device does. */
template <class K, class... A>
static inline void emu_launch(const void *of, dim3 grid, dim3 block, size_t smem, K kernel,
                              A... args)
{
    emu_run(of, grid, block, smem,
            [kernel, all = std::make_tuple(args...)]() { std::apply(kernel, all); });
}

void emu_block_barrier(void);
/* The barrier of a warp's instruction, and __syncwarp, which orders the lanes' accesses. */
void emu_warp_barrier(void);
void emu_warp_meet(void);
/* Gives this lane's word, of up to 64 bytes, to all lanes of the warp. The lanes can read it by
 * emu_of_lane after the call. */
#define EMU_SLOT 64
void emu_exchange(const void *mine, size_t size);
const void *emu_of_lane(int lane);
bool emu_lane_took_part(int lane); /* false if the lane had already left the kernel */
int emu_lane(void);
/* emu_thread returns the thread's index in its block. emu_wait_for waits until other threads make
 * ready(arg) true. */
int emu_thread(void);
int emu_threads(void); /* number of threads of the block */
/* In blocks with an odd index, asynchronous work is done early and warps run apart. In the others
 * it is done late and warps keep together. */
bool emu_is_odd_block(void);
void emu_wait_for(bool (*ready)(const void *arg), const void *arg);
void emu_fail(const char *why) __attribute__((noreturn));
/* Copies of a thread (emu_copies.cc). The first `have` bytes of `size` are copied, and the others
 * become 0. */
void emu_copies_begin(void);
void emu_copy_async(void *to, const void *from, int size, int have);
void emu_copies_commit(void);
void emu_copies_wait(int n);
/* emu_allow keeps an attribute of a kernel, and emu_is_allowed tells whether a launch of the
 * kernel may have this much dynamic shared memory. emu_registers gives or takes registers of the
 * calling warp. begin and end are called at the start and the end of a block. (emu_limits.cc) */
cudaError_t emu_allow(const void *kernel, int attribute, int value);
bool emu_is_allowed(const void *kernel, size_t smem);
void emu_registers_begin(void);
void emu_registers(int n, int blocks, bool take);
void emu_registers_end(void);
/* Asynchronous work (emu_hopper.cc). begin and end are called at the start and the end of a block.
 * step is called when all threads wait. It does a part of the work, and returns false if no work
 * is left. */
void emu_async_begin(void);
bool emu_async_step(void);
void emu_async_end(void);
/* Computes sum[j] += a[0] b[0][j] + ... + a[K - 1] b[K - 1][j] for j < n, in the way of tensor
 * cores. Products are exact. Let x be the largest of the products and of the old sum. Each product
 * and the old sum are truncated at the bit that is `bits` places below the leading bit of x. They
 * are then added exactly, and the total is truncated to fp32. Because no sum is rounded to
 * nearest, a sum of many steps is nearer to zero than it should be.
 *
 *             K   bits
 *   8.0       8   25     A100; the emulation of mma.sync
 *   9.0      16   26     H100, H200, and also 10.0; the emulation of wgmma
 *
 * from: measurements. M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of
 * NVIDIA tensor cores", PeerJ Computer Science 7:e330 (2021); X. Li et al., "FTTN",
 * arXiv:2403.00232 (2024); F. A. Khattak, M. Mikaitis, "Accurate models of NVIDIA tensor cores",
 * arXiv:2512.07004 (2025). */
#define EMU_MMA_K      8
#define EMU_MMA_BITS   25
#define EMU_WGMMA_K    16
#define EMU_WGMMA_BITS 26
void emu_dot(float *sum, int n, const float *a, const float *b, int b_ld, int K, int bits);
/* Computes this lane's four elements of D + A B from the warp's fragments (mma.h). A lane's
 * fragments are the words a[0..3] and b[0..1], of bf16 or of fp16, and d[0..3]. */
struct emu_fragments {
    uint32_t a[4], b[2];
    float d[4];
};
const float *emu_mma(const struct emu_fragments *mine, bool f16);

static inline void __syncthreads(void)
{
    emu_block_barrier();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_warp_meet();
}

template <class T> static inline T emu_shuffle(T v, int from)
{
    emu_exchange(&v, sizeof v);
    T out = v;
    if (from >= 0 && from < 32 && emu_lane_took_part(from))
        memcpy(&out, emu_of_lane(from), sizeof out);
    return out;
}
template <class T> static inline T __shfl_sync(unsigned, T v, int lane)
{
    return emu_shuffle(v, lane & 31);
}
template <class T> static inline T __shfl_xor_sync(unsigned, T v, int mask)
{
    return emu_shuffle(v, emu_lane() ^ mask);
}
static inline unsigned __ballot_sync(unsigned, int predicate)
{
    unsigned out = 0;
    emu_exchange(&predicate, sizeof predicate);
    for (int i = 0; i < 32; i++) {
        int p = 0;
        if (emu_lane_took_part(i)) memcpy(&p, emu_of_lane(i), sizeof p);
        out |= p ? 1u << i : 0;
    }
    return out;
}
static inline int __any_sync(unsigned m, int p)
{
    return __ballot_sync(m, p) != 0;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline float __uint_as_float(unsigned u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned u;
    memcpy(&u, &x, sizeof u);
    return u;
}
/* ---- the runtime's part that the table's row uses -------------------------------------------- */

typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;
typedef struct emu_graph *cudaGraph_t;
typedef struct emu_exec *cudaGraphExec_t;
enum {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorMapBufferObjectFailed = 205,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDefault = 4,
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaStreamNonBlocking = 1,
    cudaEventDisableTiming,
    cudaHostAllocDefault = 0,
    cudaHostRegisterDefault = 0,
    cudaIpcMemLazyEnablePeerAccess = 1,
};
typedef struct {
    char bytes[16];
} cudaUUID_t;
typedef struct {
    char reserved[64];
} cudaIpcMemHandle_t;
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    int major, minor, multiProcessorCount;
    size_t sharedMemPerBlockOptin;
};
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError(void); /* the last error of a launch by this thread */
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaMalloc(void **p, size_t size);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t size, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t size, int kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t s);
/* The memory that a handle names may belong to another process. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p);
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *p);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);

static inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaDriverGetVersion(int *v)
{
    *v = 0;
    return cudaSuccess;
}
static inline cudaError_t cudaRuntimeGetVersion(int *v)
{
    return cudaDriverGetVersion(v);
}
template <class F> static inline cudaError_t cudaFuncSetAttribute(F *kernel, int what, int value)
{
    return emu_allow((const void *)kernel, what, value);
}

/* An event has always been passed, unless the streams are stopped (emu_stall), so it has no
 * state. */
static inline cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most)
{
    *least = *most = 0;
    return cudaSuccess;
}
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = NULL;
    return cudaSuccess;
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}

#endif
