/* emu.cc: runs the fibers of a block one after another, switches between them at barriers and
 * exchanges, and adds the products of an mma in fixed point. */
#include "kernels/cuda/emu.h"
#include "kernels/cuda/emu_race.h"
#include "kernels/half.h"

#include <atomic>
#include <fcntl.h>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "api/core/assert.h"
#ifndef __x86_64__
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
char *emu_smem;

#define STACK ((size_t)256 << 10)
#define PAGE  ((size_t)4096)
#define MOST  1024
/* number of slots of an exchange; two are enough, because no lane is two exchanges ahead of
 * another lane */
#define SLOTS 2

/* ---- fibers: a stack, and its pointer -------------------------------------------------------- */

#ifdef __x86_64__
/* Pushes onto the old stack the registers that a call must preserve. (glibc's swapcontext would
 * make a system call each time.) */
struct place {
    void *sp;
};
extern "C" void emu_switch(struct place *from, const struct place *to);
asm(".text\n"
    ".type emu_switch, @function\n"
    "emu_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov (%rsi), %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    ret\n"
    ".size emu_switch, .-emu_switch\n");

static void place_at(struct place *p, void *stack, void (*entry)(void))
{
    void **top = (void **)((char *)stack + STACK - 64);
    *--top = NULL; /* entry does not return */
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++) *--top = NULL;
    p->sp = top;
}
#else
struct place {
    ucontext_t context;
};
static void emu_switch(struct place *from, const struct place *to)
{
    swapcontext(&from->context, &to->context);
}
static void place_at(struct place *p, void *stack, void (*entry)(void))
{
    getcontext(&p->context);
    p->context.uc_stack.ss_sp = stack;
    p->context.uc_stack.ss_size = STACK;
    p->context.uc_link = NULL;
    makecontext(&p->context, entry, 0);
}
#endif

/* ---- a block --------------------------------------------------------------------------------- */

enum state { READY, AT_BLOCK, AT_WARP, WAITING, GONE };

struct fiber {
    struct place at;
    void *stack;
    enum state state;
    uint3 id;
    unsigned turn; /* exchanges so far */
    bool meets;    /* AT_WARP: the barrier orders the accesses of the lanes */
    /* WAITING: the thread waits until this function returns true */
    bool (*ready)(const void *arg);
    const void *arg;
    char slot[SLOTS][EMU_SLOT];
};

static struct {
    std::mutex one;
    struct fiber fiber[MOST];
    int n, now;
    struct place scheduler;
    const std::function<void()> *thread;
} emu;

extern char __start_emu_shared[] __attribute__((weak));
extern char __stop_emu_shared[] __attribute__((weak));

static void __attribute__((noreturn)) fail(const char *why)
{
    fprintf(stderr, "emu: %s: block (%u, %u, %u), thread (%u, %u, %u)\n", why, blockIdx.x,
            blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    abort();
}

void emu_fail(const char *why)
{
    fail(why);
}

static struct fiber *self(void)
{
    return &emu.fiber[emu.now];
}

int emu_thread(void)
{
    return emu.now;
}

int emu_threads(void)
{
    return emu.n;
}

bool emu_is_odd_block(void)
{
    return (blockIdx.x + blockIdx.y + blockIdx.z) % 2;
}

int emu_lane(void)
{
    return emu.now % 32;
}

static struct fiber *lane(int i)
{
    const int at = emu.now / 32 * 32 + i;
    return at < emu.n ? &emu.fiber[at] : NULL;
}

/* Tells whether lane i took part in this exchange. Since then the lane may have reached the next
 * exchange, or ended. */
bool emu_lane_took_part(int i)
{
    const struct fiber *f = lane(i);
    if (f && f->state != GONE && f->turn - self()->turn > 1)
        fail("lanes of a warp exchange different things");
    return f && f->turn - self()->turn <= 1;
}

static void enter(void)
{
    (*emu.thread)();
    race_gone(emu.now);
    self()->state = GONE;
    emu_switch(&self()->at, &emu.scheduler);
}

static void wait(enum state at)
{
    struct fiber *f = self();
    f->state = at;
    emu_switch(&f->at, &emu.scheduler);
}

void emu_block_barrier(void)
{
    wait(AT_BLOCK);
}

void emu_warp_barrier(void)
{
    wait(AT_WARP);
}

void emu_warp_meet(void)
{
    self()->meets = true;
    wait(AT_WARP);
    self()->meets = false;
}

void emu_wait_for(bool (*ready)(const void *arg), const void *arg)
{
    self()->ready = ready;
    self()->arg = arg;
    wait(WAITING);
}

void emu_exchange(const void *mine, size_t size)
{
    struct fiber *f = self();
    if (size > EMU_SLOT) fail("an exchange is too large");
    f->turn++;
    memcpy(f->slot[f->turn % SLOTS], mine, size);
    wait(AT_WARP);
}

const void *emu_of_lane(int i)
{
    if (!emu_lane_took_part(i)) fail("a lane that left is read");
    return lane(i)->slot[self()->turn % SLOTS];
}

/* ---- products of a warp ---------------------------------------------------------------------- */

static struct warp_product {
    unsigned turn; /* index of the exchange; the fibers of a block begin at 0 */
    float d[32][4];
} products[MOST / 32];

#define DOT_COLS 8 /* columns that are summed at a time */

/* Adds the K products of an mma to each sum, truncated. The parts of a sum are integers, in units
 * of one binary place; 17 parts of up to 2^26 each fit in an int. If a part is not finite, the
 * plain sum is used. */
template <int K> static void dot(float *sum, const float *a, const float *b, int b_ld, int bits)
{
    float part[K][DOT_COLS], most[DOT_COLS], plain[DOT_COLS], unit[DOT_COLS], per[DOT_COLS];
    int32_t total[DOT_COLS];
    for (int j = 0; j < DOT_COLS; j++) {
        plain[j] = sum[j];
        most[j] = fabsf(sum[j]);
    }
    for (int k = 0; k < K; k++)
        for (int j = 0; j < DOT_COLS; j++) {
            const float x = a[k] * b[k * b_ld + j], size = fabsf(x);
            part[k][j] = x;
            plain[j] += x;
            most[j] = most[j] > size ? most[j] : size;
        }
    for (int j = 0; j < DOT_COLS; j++) {
        /* m is limited so that 1 / unit is a finite float */
        const float m = most[j] > 0x1p-98f ? most[j] : 0x1p-98f;
        const int first = (int)(__float_as_uint(m) >> 23), last = first - (bits - 1);
        unit[j] = __uint_as_float((uint32_t)last << 23);
        per[j] = __uint_as_float((uint32_t)(254 - last) << 23);
        total[j] = (int32_t)(sum[j] * per[j]);
    }
    for (int k = 0; k < K; k++)
        for (int j = 0; j < DOT_COLS; j++) total[j] += (int32_t)(part[k][j] * per[j]);
    for (int j = 0; j < DOT_COLS; j++) {
        double x = total[j];
        uint64_t u;
        memcpy(&u, &x, sizeof u);
        u &= ~(((uint64_t)1 << 29) - 1); /* keeps the first 24 bits */
        memcpy(&x, &u, sizeof x);
        const float cut = (float)x * unit[j];
        sum[j] = plain[j] - plain[j] == 0 ? cut : plain[j];
    }
}

void emu_dot(float *sum, int n, const float *a, const float *b, int b_ld, int K, int bits)
{
    assert(n % DOT_COLS == 0 && (K == 8 || K == 16) && bits <= 26);
    for (int j = 0; j < n; j += DOT_COLS)
        if (K == 8)
            dot<8>(sum + j, a, b + j, b_ld, bits);
        else
            dot<16>(sum + j, a, b + j, b_ld, bits);
}

static float half(uint32_t word, int high, bool f16)
{
    return half_value(f16 ? DT_F16 : DT_BF16, (uint16_t)(high ? word >> 16 : word));
}

#define INFINITE 0x7f800000

/* Returns the bits of the largest absolute value of x. */
static int largest(const float *x, int n)
{
    int most = 0;
    for (int i = 0; i < n; i++) {
        const int size = (int)(__float_as_uint(x[i]) & 0x7fffffff);
        most = size > most ? size : most;
    }
    return most;
}

/* Multiplies a warp's fragments. The first lane that runs after the exchange computes the parts of
 * all lanes. */
static void multiply(struct warp_product *p, bool f16)
{
    float a[16][16], b[16][8], sum[16][8];
    for (int t = 0; t < 32; t++) {
        const struct emu_fragments *w = (const struct emu_fragments *)emu_of_lane(t);
        const int g = t / 4, r = t % 4;
        for (int i = 0; i < 8; i++)
            a[g + i / 2 % 2 * 8][2 * r + i / 4 * 8 + i % 2] = half(w->a[i / 2], i % 2, f16);
        for (int i = 0; i < 4; i++) b[2 * r + i / 2 * 8 + i % 2][g] = half(w->b[i / 2], i % 2, f16);
        for (int i = 0; i < 4; i++) sum[g + i / 2 * 8][2 * r + i % 2] = w->d[i];
    }
    const int most_b = largest(b[0], 16 * 8);
    for (int row = 0; row < 16; row++) {
        const int most_a = largest(a[row], 16);
        /* skips zeros, because their products with finite numbers add nothing; the tile of a small
         * matrix is nearly all zeros */
        const bool skip = (!most_a && most_b < INFINITE) || (!most_b && most_a < INFINITE);
        for (int k = 0; k < 16 && !skip; k += EMU_MMA_K)
            emu_dot(sum[row], 8, a[row] + k, b[k], 8, EMU_MMA_K, EMU_MMA_BITS);
        for (int col = 0; col < 8; col++)
            p->d[row % 8 * 4 + col / 2][row / 8 * 2 + col % 2] = sum[row][col];
    }
}

const float *emu_mma(const struct emu_fragments *mine, bool f16)
{
    struct warp_product *p = &products[emu.now / 32];
    emu_exchange(mine, sizeof *mine);
    if (p->turn != self()->turn) multiply(p, f16);
    p->turn = self()->turn;
    return p->d[emu_lane()];
}

/* ---- scheduling ------------------------------------------------------------------------------ */

/* Releases fibers [from, to) if each of them has ended or is at the barrier. Returns true if it
 * released them. */
static bool release(int from, int to, enum state at)
{
    bool any = false, meet = at == AT_BLOCK;
    for (int i = from; i < to; i++) {
        if (emu.fiber[i].state == GONE) continue;
        if (emu.fiber[i].state != at) return false;
        any = true;
        meet |= emu.fiber[i].meets;
    }
    if (any && meet) race_meet(from, to);
    if (any && !meet) race_meet_reads(from);
    for (int i = from; any && i < to; i++)
        if (emu.fiber[i].state == at) emu.fiber[i].state = READY;
    return any;
}

static bool release_waiting(void)
{
    bool any = false;
    for (int i = 0; i < emu.n; i++) {
        struct fiber *f = &emu.fiber[i];
        if (f->state != WAITING || !f->ready(f->arg)) continue;
        f->state = READY;
        any = true;
    }
    return any;
}

static bool release_some(void)
{
    bool any = release_waiting();
    for (int w = 0; w < emu.n && !(any && emu_is_odd_block()); w += 32)
        any |= release(w, w + 32 < emu.n ? w + 32 : emu.n, AT_WARP);
    return any || release(0, emu.n, AT_BLOCK) || emu_async_step();
}

static void start(int i)
{
    struct fiber *f = &emu.fiber[i];
    if (!f->stack) {
        f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (f->stack == MAP_FAILED) fail("no memory for a thread's stack");
    }
    place_at(&f->at, f->stack, enter);
    f->state = READY;
    f->turn = 0;
    f->meets = false;
    f->id = {(unsigned)i % blockDim.x, (unsigned)i / blockDim.x % blockDim.y,
             (unsigned)i / (blockDim.x * blockDim.y)};
}

static void run(int i)
{
    if (emu.fiber[i].state != READY) return;
    emu.now = i;
    threadIdx = emu.fiber[i].id;
    emu_switch(&emu.scheduler, &emu.fiber[i].at);
}

static void run_block(size_t smem)
{
    bool up = !emu_is_odd_block();
    if (__start_emu_shared)
        memset(__start_emu_shared, 0xff, (size_t)(__stop_emu_shared - __start_emu_shared));
    memset(emu_smem, 0xff, smem);
    for (int i = 0; i < emu.n; i++) start(i);
    for (int w = 0; w < MOST / 32; w++) products[w].turn = 0;
    race_begin(smem);
    emu_copies_begin();
    emu_registers_begin();
    emu_async_begin();
    for (;; up = !up) {
        bool live = false;
        for (int i = 0; i < emu.n; i++) run(up ? i : emu.n - 1 - i);
        for (int i = 0; i < emu.n; i++) live |= emu.fiber[i].state != GONE;
        if (!live) break;
        if (!release_some()) fail("threads wait at different barriers");
    }
    emu_registers_end();
    emu_async_end();
}

/* ---- memory, which the host cannot reach unless the device works ----------------------------- */

#define REGIONS 1024

static struct region {
    char *at;
    size_t size;
    int fd; /* file in which other processes find the region; -1 if it is not shared yet */
} regions[REGIONS];
static int n_regions;

static void protect(int how)
{
    for (int i = 0; i < n_regions; i++)
        if (mprotect(regions[i].at, regions[i].size, how)) fail("memory cannot be protected");
}

/* A lock on the device, because only one rank at a time may launch a kernel or copy. */
struct turn {
    std::lock_guard<std::mutex> lock;
    turn() : lock(emu.one)
    {
        protect(PROT_READ | PROT_WRITE);
    }
    ~turn()
    {
        protect(PROT_NONE);
    }
};

static thread_local cudaError_t launch_error;

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = launch_error;
    launch_error = cudaSuccess;
    return e;
}

static void launch(dim3 grid, dim3 block, size_t smem, const std::function<void()> &thread);

void emu_run(const void *kernel, dim3 grid, dim3 block, size_t smem,
             const std::function<void()> &thread)
{
    const unsigned n = block.x * block.y * block.z;
    if (!grid.x || grid.x > 0x7fffffffu || !grid.y || grid.y > 65535 || !grid.z || grid.z > 65535 ||
        n < 1 || n > MOST || block.z > 64) {
        launch_error = cudaErrorInvalidConfiguration;
        return;
    }
    if (smem > EMU_SMEM_MOST || !emu_is_allowed(kernel, smem)) {
        launch_error = cudaErrorInvalidValue;
        return;
    }
    emu_work([=]() { launch(grid, block, smem, thread); });
}

static bool faulty; /* a kernel has faulted; it is never cleared */

static bool fault()
{
    static const char *at = getenv("EMU_FAULT_AT");
    static long n = at ? atol(at) : 0;
    if (n > 0 && --n == 0) faulty = true;
    return faulty;
}

/* Returns the end of the memory in which dynamic shared memory lies, which is the beginning of a
 * page that no access may touch. */
static char *shared_end(void)
{
    const size_t size = (EMU_SMEM + PAGE - 1) / PAGE * PAGE;
    char *at = (char *)mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                            -1, 0);
    if (at == MAP_FAILED || mprotect(at + size, PAGE, PROT_NONE)) fail("no shared memory");
    return at + size;
}

static void launch(dim3 grid, dim3 block, size_t smem, const std::function<void()> &thread)
{
    const struct turn turn;
    static char *const end = shared_end();
    if (fault()) return;
    emu_smem = end - (smem + 127) / 128 * 128;
    blockDim = block;
    gridDim = grid;
    emu.thread = &thread;
    emu.n = (int)(block.x * block.y * block.z);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = {x, y, z};
                run_block(smem);
            }
}

/* ---- the runtime ----------------------------------------------------------------------------- */

/* Maps `size` bytes of fd, or of no file if fd < 0, between two guard pages. Returns NULL if there
 * is no memory. */
static char *map_region(size_t size, int fd)
{
    if (n_regions == REGIONS) return NULL;
    char *at = (char *)mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    at += PAGE;
    /* asks for large pages, because each launch changes the protection of every page twice */
    (void)madvise(at, size, MADV_HUGEPAGE);
    if (fd >= 0 && mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(at - PAGE, size + 2 * PAGE);
        return NULL;
    }
    regions[n_regions++] = {at, size, -1};
    return at;
}

static struct region *find_region(const void *p)
{
    for (int i = 0; i < n_regions; i++)
        if (regions[i].at == p) return &regions[i];
    return NULL;
}

static cudaError_t unmap_region(void *p)
{
    emu_outside("memory given back");
    std::lock_guard<std::mutex> lock(emu.one);
    struct region *r = find_region(p);
    if (!r) return p ? cudaErrorInvalidValue : cudaSuccess;
    munmap(r->at - PAGE, r->size + 2 * PAGE);
    if (r->fd >= 0) close(r->fd);
    *r = regions[--n_regions];
    return cudaSuccess;
}

/* Fills the new memory with NaN. */
cudaError_t cudaMalloc(void **p, size_t size)
{
    emu_outside("memory taken");
    std::lock_guard<std::mutex> lock(emu.one);
    const size_t used = (size + PAGE - 1) / PAGE * PAGE;
    char *at = map_region(used, -1);
    if (!at) return cudaErrorMemoryAllocation;
    mprotect(at, used, PROT_READ | PROT_WRITE);
    memset(at, 0xff, used);
    mprotect(at, used, PROT_NONE);
    *p = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    return unmap_region(p);
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned)
{
    *p = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned)
{
    if (!size || (uintptr_t)p % PAGE || size % PAGE) emu_fail("pinned memory is whole pages");
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *)
{
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t size, int kind, cudaStream_t)
{
    if (kind != cudaMemcpyDefault) emu_outside("a copy from or to the host");
    emu_work([=]() {
        const struct turn turn;
        memcpy(dst, src, size);
    });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t)
{
    emu_outside("memory set");
    const struct turn turn;
    memset(p, value, size);
    return cudaSuccess;
}

/* ---- memory of other processes: /proc/PID/fd/N ----------------------------------------------- */

struct place_of_memory {
    int pid, fd;
    size_t size;
};

/* Moves a region into a file, at the same address. */
static int move_to_file(struct region *r)
{
    const int fd = memfd_create("seqd-emulated", MFD_CLOEXEC);
    if (fd < 0) return -1;
    mprotect(r->at, r->size, PROT_READ);
    if (ftruncate(fd, (off_t)r->size) || pwrite(fd, r->at, r->size, 0) != (ssize_t)r->size ||
        mmap(r->at, r->size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        mprotect(r->at, r->size, PROT_NONE);
        close(fd);
        return -1;
    }
    return fd;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    std::lock_guard<std::mutex> lock(emu.one);
    struct region *r = find_region(p);
    if (!r) return cudaErrorInvalidValue;
    if (r->fd < 0) r->fd = move_to_file(r);
    if (r->fd < 0) return cudaErrorMemoryAllocation;
    const struct place_of_memory at = {(int)getpid(), r->fd, r->size};
    memcpy(h, &at, sizeof at);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned)
{
    struct place_of_memory from;
    char path[64];
    memcpy(&from, &h, sizeof from);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", from.pid, from.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return cudaErrorMapBufferObjectFailed;
    std::lock_guard<std::mutex> lock(emu.one);
    *p = map_region(from.size, fd);
    close(fd);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    return unmap_region(p);
}

/* ---- the device, and its streams ------------------------------------------------------------- */

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    *p = {};
    snprintf(p->name, sizeof p->name, "emulation");
    p->major = 9;
    p->multiProcessorCount = 4;
    p->sharedMemPerBlockOptin = EMU_SMEM_MOST;
    return cudaSuccess;
}

static std::atomic<bool> stalled;

/* Stops the streams, or lets them run again. Tests find this function in the library by its
 * name. */
extern "C" __attribute__((visibility("default"))) void emu_stall(bool still)
{
    stalled = still;
}

cudaError_t cudaEventQuery(cudaEvent_t)
{
    emu_outside("a question for an event");
    if (faulty) return cudaErrorLaunchFailure;
    return stalled ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    emu_outside("an event");
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    emu_outside("a wait for an event");
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorStreamCaptureUnsupported: return "operation not supported in a capture";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorMapBufferObjectFailed: return "mapping of buffer object failed";
    default: return "unknown error";
    }
}
