/* cpu.c: chooses the instruction set (the best one that this processor has, or the requested one),
 * and owns the device's memory. */
#include "kernels/cpu/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "api/core/assert.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#include "api/core/mem.h"
#include "kernels/panels.h"

struct isa {
    const char *name;
    const struct be_ops *ops;
    bool (*have)(void);
    /* returns true if the set runs here but the set of the next row is faster; NULL if that never
     * happens */
    bool (*slow)(void);
};

static bool have_always(void)
{
    return true;
}
#if defined(CPU_ISA_avx512) || defined(CPU_ISA_avx512bf16) || defined(CPU_ISA_amx)
static bool have_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
}
#endif
#if defined(CPU_ISA_avx512bf16) || (defined(CPU_ISA_amx) && !defined(SEQD_EMU))
/* Bits of CPUID leaf 7, EDX. */
#define CPUID_AMX_BF16 (1u << 22)
#define CPUID_AMX_TILE (1u << 24)

static bool cpuid_7_edx(uint32_t bits)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bits) == bits;
}
#endif
#if defined(CPU_ISA_avx512bf16)
static bool have_avx512bf16(void)
{
    return have_avx512() && __builtin_cpu_supports("avx512bf16");
}
/* Tells whether vectors of bf16 are slow. On cores with matrix tiles they run at a quarter of the
 * rate of fp32 vectors, so it is faster to convert to fp32. On cores without tiles they run at the
 * full rate. */
static bool slow_avx512bf16(void)
{
    return cpuid_7_edx(CPUID_AMX_BF16);
}
#endif
#if defined(CPU_ISA_amx) && defined(SEQD_EMU) /* uses the tiles of amx_emu.h */
static bool have_amx(void)
{
    return have_avx512() && __builtin_cpu_supports("avx512bf16");
}
#elif defined(CPU_ISA_amx)
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA  18

/* Asks Linux for the room that the tiles need in the state of a thread. Linux grants it once for
 * all threads of the process. A kernel that does not know tiles refuses, and so does a sandbox. */
static bool have_amx(void)
{
    return have_avx512() && __builtin_cpu_supports("avx512bf16") &&
           cpuid_7_edx(CPUID_AMX_BF16 | CPUID_AMX_TILE) &&
           !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}
#endif
#if defined(CPU_ISA_avx2)
static bool have_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}
#endif
#if defined(CPU_ISA_neonbf16)
#define HWCAP2_HAS_BF16 (1ul << 14) /* Linux's HWCAP2_BF16 */

static bool have_neonbf16(void)
{
    return getauxval(AT_HWCAP2) & HWCAP2_HAS_BF16;
}
#endif

/* Instruction sets, the best first. The Makefile says which sets are compiled. */
static const struct isa isas[] = {
#if defined(CPU_ISA_neonbf16)
    {"neonbf16", &cpu_ops_neonbf16, have_neonbf16, NULL},
#endif
#if defined(CPU_ISA_neon)
    {"neon", &cpu_ops_neon, have_always, NULL},
#endif
#if defined(CPU_ISA_amx)
    {"amx", &cpu_ops_amx, have_amx, NULL},
#endif
#if defined(CPU_ISA_avx512bf16)
    {"avx512bf16", &cpu_ops_avx512bf16, have_avx512bf16, slow_avx512bf16},
#endif
#if defined(CPU_ISA_avx512)
    {"avx512", &cpu_ops_avx512, have_avx512, NULL},
#endif
#if defined(CPU_ISA_avx2)
    {"avx2", &cpu_ops_avx2, have_avx2, NULL},
#endif
    {"portable", &cpu_ops_portable, have_always, NULL},
};
#define N_ISAS ((int)(sizeof isas / sizeof isas[0]))

/* names of the instruction sets that run here, NULL-terminated */
static const char *names[N_ISAS + 1];

static void find_names(void)
{
    int n = 0;
    for (int i = 0; i < N_ISAS; i++)
        if (isas[i].have()) names[n++] = isas[i].name;
}

const char *const *cpu_isas(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_names);
    return names;
}

static const struct isa *find_isa(const char *name, struct err *e)
{
    for (int i = 0; i < N_ISAS; i++)
        if (isas[i].have() &&
            (name ? !strcmp(name, isas[i].name) : !isas[i].slow || !isas[i].slow()))
            return &isas[i];
    char list[128] = "";
    for (const char *const *s = cpu_isas(); *s; s++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", *s);
    }
    err_set(e, ERR_UNSUPPORTED, "this machine cannot run instruction set \"%s\"; it has: %s", name,
            list);
    return NULL;
}

struct be *cpu_open(const struct be_options *o, struct err *e)
{
    const struct isa *isa = find_isa(o->isa, e);
    if (!isa) return NULL;
    if (o->n_threads < 1 || o->n_threads > POOL_MAX_THREADS) {
        err_set(e, ERR_INVALID, "threads %d: want 1 to %d", o->n_threads, POOL_MAX_THREADS);
        return NULL;
    }
    size_t scratch_size = (size_t)o->n_threads * BE_SCRATCH_PER_THREAD;
    struct cpu *c = calloc(1, sizeof *c);
    void *scratch = o->scratch || o->scratch_later ? o->scratch
                                                   : aligned_alloc(MEM_ALIGN, scratch_size);
    if (!c || (!scratch && !o->scratch_later)) {
        err_set(e, ERR_IO, "out of memory for %zu bytes of scratch", scratch_size);
        goto fail;
    }
    assert((uintptr_t)scratch % MEM_ALIGN == 0);
    c->be = (struct be){.ops = isa->ops,
                        .isa = isa->name,
                        .name = "cpu",
                        .n_threads = o->n_threads,
                        .scratch = scratch,
                        .scratch_size = (int64_t)scratch_size};
    c->owns_scratch = scratch && !o->scratch;
    c->be.pool = pool_open(o->n_threads, o->n_tasks, e);
    if (c->be.pool) return &c->be;
fail:
    if (!o->scratch) free(scratch);
    free(c);
    return NULL;
}

void cpu_close(struct be *be)
{
    struct cpu *c = (struct cpu *)be;
    if (c->owns_scratch) free(be->scratch);
    free(c);
}

enum { FILLED = 1 << 20 }; /* elements of a task */

struct filling {
    float *p, value;
    int64_t n;
};

static void fill_task(void *arg, int64_t task, int worker)
{
    const struct filling *f = arg;
    float *p = f->p + task * FILLED;
    const int64_t n = cpu_min(f->n - task * FILLED, FILLED);
    (void)worker;
    if (f->value == 0.0f) {
        memset(p, 0, (size_t)n * sizeof *p);
        return;
    }
    for (int64_t i = 0; i < n; i++) p[i] = f->value;
}

void cpu_fill(struct be *be, float *p, int64_t n, float value)
{
    struct filling f = {p, value, n};
    cpu_run(be, fill_task, &f, cpu_div_up(n, FILLED));
}

enum { TURNED = 16 * QUANT_ROWS }; /* rows of a task */

static_assert(QUANT_ROWS * PANELS_COLS * sizeof(float) <= BE_SCRATCH_PER_THREAD, "a panel fits");
static_assert(QUANT_K / 2 % QUANT_ROWS == 0, "a row of bf16 has whole squares");

struct turning {
    struct be *be;
    struct tensor w;
};

/* Transposes a square of a panel, whose rows are `words` words apart. Reads whole cache lines,
 * because rows whose distance is a power of two share few places in the cache. */
static void turn_square(const uint32_t *rows, int64_t words, uint32_t *out)
{
    uint32_t square[QUANT_ROWS][QUANT_ROWS];
    for (int i = 0; i < QUANT_ROWS; i++) memcpy(square[i], rows + i * words, sizeof square[i]);
    for (int k = 0; k < QUANT_ROWS; k++)
        for (int i = 0; i < QUANT_ROWS; i++) out[k * QUANT_ROWS + i] = square[i][k];
}

/* Converts rows [r, r + QUANT_ROWS), of `words` words each, into a panel. */
static void turn_panel(struct tensor w, int64_t r, int64_t words, uint32_t *room)
{
    uint32_t *const at = (uint32_t *)w.data + r * words;
    memcpy(room, at, (size_t)(QUANT_ROWS * words) * sizeof *room);
    for (int64_t k = 0; k < words; k += QUANT_ROWS)
        turn_square(room + k, words, at + k * QUANT_ROWS);
}

static void turn_task(void *arg, int64_t task, int worker)
{
    const struct turning *t = arg;
    const int64_t end = cpu_min((task + 1) * TURNED, t->w.rows);
    const int64_t words = t->w.cols * dtype_size(t->w.dtype) / 4;
    for (int64_t r = task * TURNED; r + QUANT_ROWS <= end; r += QUANT_ROWS)
        turn_panel(t->w, r, words, (uint32_t *)cpu_scratch(t->be, worker));
}

void cpu_turn(struct be *be, struct tensor w)
{
    struct turning t = {be, w};
    assert(panels_fit(w));
    cpu_run(be, turn_task, &t, cpu_div_up(w.rows, TURNED));
}

/* Copies without the pool, because tasks of the pool may call this function (be_host_run). */
void cpu_copy(struct be *be, void *dst, const void *src, int64_t size)
{
    memcpy(dst, src, (size_t)size);
}

/* Rows of one head are kilobytes apart, so a tile touches hundreds of small pages. If the kernel
 * has large pages, they save a fifth of attention's time. */
#define HUGE_PAGE ((int64_t)2 << 20)

void *cpu_alloc(struct be *be, int64_t size, struct err *e)
{
    assert(size >= 0);
    int64_t page = sysconf(_SC_PAGESIZE), used = mem_round(cpu_max(size, 1), page);
    /* room for moving up to the boundary of a large page */
    int64_t spare = used >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *p = mmap(NULL, (size_t)(used + spare), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        err_errno(e, "mmap of %lld bytes", (long long)size);
        return NULL;
    }
    if (!spare) return p;
    int64_t before = mem_round((int64_t)(uintptr_t)p, HUGE_PAGE) - (int64_t)(uintptr_t)p;
    if (before > 0) munmap(p, (size_t)before);
    if (spare > before) munmap(p + before + used, (size_t)(spare - before));
    /* a failure is ignored, because small pages work too */
    (void)madvise(p + before, (size_t)used, MADV_HUGEPAGE);
    return p + before;
}

void cpu_free(struct be *be, void *p, int64_t size)
{
    if (p) munmap(p, (size_t)cpu_max(size, 1));
}
