/* cpu.h: declarations for all operations of the CPU device.
 *
 * One source is compiled for several instruction sets. Each ops_ISA.c includes a vec_ISA.h (a
 * vector of VL floats and its operations) and then the templates *.inc, which define every
 * operation as a static function. ops_ISA.c exports these functions as one table. */
#ifndef SEQD_CPU_CPU_H
#define SEQD_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/pool.h"

struct cpu {
    struct be be; /* must be first, because a struct be * of this device is a struct cpu * */
    bool owns_scratch;
};

/* Opens the CPU device. Fails with ERR_UNSUPPORTED if the instruction set is not available (the
 * error names the available sets), with ERR_INVALID if n_threads is out of range, or with
 * ERR_IO. */
struct be *cpu_open(const struct be_options *o, struct err *e);
const char *const *cpu_isas(void);

/* Operations that have one version for all instruction sets. */
void cpu_fill(struct be *be, float *p, int64_t n, float value);
void cpu_turn(struct be *be, struct tensor w);
void cpu_copy(struct be *be, void *dst, const void *src, int64_t size);
void cpu_noise(struct be *be, const struct noise_args *a);
void *cpu_alloc(struct be *be, int64_t size, struct err *e);
void cpu_free(struct be *be, void *p, int64_t size);
void cpu_close(struct be *be);

/* One table for each instruction set. The Makefile says which tables are compiled, and cpu.c uses
 * only these tables. */
extern const struct be_ops cpu_ops_portable, cpu_ops_avx2, cpu_ops_avx512, cpu_ops_avx512bf16,
    cpu_ops_amx, cpu_ops_neon, cpu_ops_neonbf16;

static inline void cpu_run(struct be *be, pool_fn fn, void *arg, int64_t n_tasks)
{
    pool_run(be->pool, fn, arg, n_tasks);
}

/* Returns the BE_SCRATCH_PER_THREAD bytes of one worker, 64-byte aligned and with undefined
 * contents. */
static inline char *cpu_scratch(struct be *be, int worker)
{
    return be->scratch + worker * BE_SCRATCH_PER_THREAD;
}

static inline int64_t cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t cpu_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t cpu_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
