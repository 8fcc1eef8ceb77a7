/* emu_limits.cc: what a launch and a block may have: shared memory that was allowed, and registers
 * that warpgroups give and take. */
#include "kernels/cuda/emu.h"

#include <map>
#include <mutex>

/* ---- shared memory --------------------------------------------------------------------------- */

#define SMEM_FREE (48 << 10) /* largest number of bytes that no attribute has to allow */

static struct {
    std::mutex one;
    std::map<const void *, int> smem; /* by kernel */
} allowed;

cudaError_t emu_allow(const void *kernel, int attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > EMU_SMEM_MOST)
        return cudaErrorInvalidValue;
    const std::lock_guard<std::mutex> lock(allowed.one);
    allowed.smem[kernel] = value;
    return cudaSuccess;
}

bool emu_is_allowed(const void *kernel, size_t smem)
{
    if (smem <= SMEM_FREE) return true;
    const std::lock_guard<std::mutex> lock(allowed.one);
    const auto found = allowed.smem.find(kernel);
    return found != allowed.smem.end() && smem <= (size_t)found->second;
}

/* ---- registers ------------------------------------------------------------------------------- */

#define REGISTERS 65536 /* of a multiprocessor */
#define GROUP     128   /* threads of a warpgroup */
#define WARPS     32

/* A warp's registers for each thread. They are 0 until the block's first call. Then `spare` has
 * the registers that the block has beside those of its warps. */
static struct {
    int of[WARPS], spare;
    int turn[WARPS]; /* calls so far of each warp */
} pool;

void emu_registers_begin(void)
{
    pool = {};
}

static void begin(int blocks)
{
    const int n_warps = emu_threads() / 32, each = REGISTERS / blocks / emu_threads() / 8 * 8;
    if (emu_threads() % GROUP) emu_fail("registers of a part of a warpgroup");
    for (int w = 0; w < n_warps; w++) pool.of[w] = each < 248 ? each : 248;
}

struct wanted {
    int warp, n;
};

static bool is_spare(const void *arg)
{
    const struct wanted *w = (const struct wanted *)arg;
    return pool.spare >= (w->n - pool.of[w->warp]) * 32;
}

/* The first lane of a warp does the work of the warp. */
void emu_registers(int n, int blocks, bool take)
{
    const struct wanted w = {emu_thread() / 32, n};
    emu_warp_barrier();
    if (!pool.of[0]) begin(blocks);
    if (n < 24 || n > 256 || n % 8) emu_fail("a number of registers");
    if (emu_lane() == 0) {
        if (take ? n < pool.of[w.warp] : n > pool.of[w.warp])
            emu_fail("registers are taken that were there, or given that were not");
        /* another warp may have been first; without registers to spare the block stands still */
        while (take && !is_spare(&w)) emu_wait_for(is_spare, &w);
        pool.spare -= (n - pool.of[w.warp]) * 32;
        pool.of[w.warp] = n;
        pool.turn[w.warp]++;
    }
    emu_warp_barrier();
}

void emu_registers_end(void)
{
    for (int w = 0; w < WARPS; w++)
        if (pool.turn[w] != pool.turn[w / 4 * 4])
            emu_fail("a warp of a group neither gives nor takes registers");
}
