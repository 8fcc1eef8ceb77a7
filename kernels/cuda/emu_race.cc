/* emu_race.cc: keeps, for every two bytes of shared memory, the last write and the reads since
 * then, and compares them with the clocks that a thread knows. */
#ifdef SEQD_EMU_RACE
#include "kernels/cuda/emu_race.h"
#include "kernels/cuda/emu.h"

#include <map>
#include <stdio.h>
#include <vector>

#define WARPS  32
#define LANE   32
#define STRIPS 64 /* copies of strips that are told apart */

typedef std::vector<uint32_t> clocks;

/* What a thread or a barrier knows: what has happened, which of it the asynchronous proxy sees, and
 * which reads are over. */
struct known {
    clocks all, fenced, reads;
};

/* Places in a vector of clocks: threads, then the copies of each thread, then copies of strips,
 * then the products of each warp. */
static struct {
    int n, n_places;
    std::vector<struct known> threads;
    std::vector<bool> gone;
    struct pair {
        struct known now, before; /* arrivals of this phase, and of the phase before it */
    };
    std::map<const void *, struct pair> barriers;
    uint32_t block, n_strips;
    size_t smem;
} race;

static int copies_of(int thread)
{
    return race.n + thread;
}
static int strip_of(uint32_t i)
{
    return 2 * race.n + (int)(i % STRIPS);
}
static int products_of(int warp)
{
    return 2 * race.n + STRIPS + warp;
}

/* ---- what is known --------------------------------------------------------------------------- */

static struct known *mine(void)
{
    return &race.threads[(size_t)emu_thread()];
}

static void join(clocks *to, const clocks &from)
{
    uint32_t *a = to->data();
    const uint32_t *b = from.data();
    for (int i = 0; i < race.n_places; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
}

static void learn(struct known *to, const struct known &from)
{
    join(&to->all, from.all);
    join(&to->fenced, from.fenced);
    join(&to->reads, from.reads);
    join(&to->reads, from.all);
}

static struct known nothing(void)
{
    const clocks zero((size_t)race.n_places, 0);
    return {zero, zero, zero};
}

static struct decltype(race)::pair *barrier(const void *of)
{
    const auto found = race.barriers.find(of);
    if (found != race.barriers.end()) return &found->second;
    return &(race.barriers[of] = {nothing(), nothing()});
}

void race_begin(size_t smem)
{
    race.n = emu_threads();
    race.n_places = 2 * race.n + STRIPS + WARPS;
    race.smem = smem;
    race.block++;
    race.n_strips = 0;
    race.barriers.clear();
    race.threads.assign((size_t)race.n, nothing());
    race.gone.assign((size_t)race.n, false);
    for (int i = 0; i < race.n; i++) race.threads[(size_t)i].all[(size_t)i] = 1;
}

void race_gone(int thread)
{
    race.gone[(size_t)thread] = true;
}

void race_meet(int from, int to)
{
    struct known met = nothing();
    for (int i = from; i < to; i++)
        if (!race.gone[(size_t)i]) learn(&met, race.threads[(size_t)i]);
    for (int i = from; i < to; i++) {
        if (race.gone[(size_t)i]) continue;
        race.threads[(size_t)i] = met;
        race.threads[(size_t)i].all[(size_t)i]++;
    }
}

void race_meet_reads(int from)
{
    uint32_t clock[LANE] = {0};
    const int n = race.n - from < LANE ? race.n - from : LANE;
    for (int i = 0; i < n; i++)
        if (!race.gone[(size_t)(from + i)])
            clock[i] = race.threads[(size_t)(from + i)].all[(size_t)(from + i)]++;
    for (int i = 0; i < n; i++) {
        uint32_t *to = &race.threads[(size_t)(from + i)].reads[(size_t)from];
        for (int m = 0; m < n; m++) to[m] = to[m] > clock[m] ? to[m] : clock[m];
    }
}

void race_arrive(const void *of)
{
    learn(&barrier(of)->now, *mine());
    mine()->all[(size_t)emu_thread()]++;
}

void race_over(const void *of)
{
    struct decltype(race)::pair *b = barrier(of);
    b->before = b->now;
    b->now = nothing();
}

void race_waited(const void *of)
{
    learn(mine(), barrier(of)->before);
}

void race_fence(void)
{
    mine()->fenced = mine()->all;
}

/* ---- what was accessed ----------------------------------------------------------------------- */

#define SIZE    2 /* bytes that are told apart */
#define STATIC  (64 << 10)
#define READERS (2 * WARPS)

/* The last write, and for each warp, and for its products, the last read since then. */
struct cell {
    uint32_t block;
    uint32_t writer, written;
    uint64_t readers; /* a bit for each of `read` */
    uint32_t read[READERS];
    uint8_t lane[READERS];
};

static struct cell dynamic[EMU_SMEM / SIZE], declared[STATIC / SIZE];

extern char __start_emu_shared[] __attribute__((weak));
extern char __stop_emu_shared[] __attribute__((weak));

/* Returns the cell of an address, or NULL if it is not in shared memory. */
static struct cell *cell_of(const char *at)
{
    struct cell *c = NULL;
    if (at >= emu_smem && at < emu_smem + race.smem)
        c = &dynamic[(at - emu_smem) / SIZE];
    else if (__start_emu_shared && at >= __start_emu_shared && at < __stop_emu_shared)
        c = &declared[(at - __start_emu_shared) / SIZE];
    if (c && c->block != race.block) {
        c->block = race.block;
        c->writer = c->written = 0;
        c->readers = 0;
    }
    return c;
}

static void __attribute__((noreturn)) found(const char *what, const char *at, int place)
{
    char why[200];
    const char *const who = place < race.n                ? "thread"
                            : place < 2 * race.n          ? "a copy of thread"
                            : place < 2 * race.n + STRIPS ? "strip"
                                                          : "products of warp";
    const int i = place < race.n                ? place
                  : place < 2 * race.n          ? place - race.n
                  : place < 2 * race.n + STRIPS ? place - 2 * race.n
                                                : place - 2 * race.n - STRIPS;
    snprintf(why, sizeof why, "%s %s %d, at byte %ld of shared memory", what, who, i,
             (long)(at - emu_smem));
    emu_fail(why);
}

static int reader_place(const struct cell *c, int r)
{
    return r < WARPS ? r * LANE + c->lane[r] : products_of(r - WARPS);
}

static void check_write(const struct cell *c, const char *at, const struct known &k, int place)
{
    if (c->written > k.all[c->writer] && (int)c->writer != place)
        found("a write races with a write by", at, (int)c->writer);
    for (uint64_t left = c->readers; left; left &= left - 1) {
        const int r = __builtin_ctzll(left), by = reader_place(c, r);
        const size_t i = (size_t)by;
        if (c->read[r] > k.all[i] && c->read[r] > k.reads[i] && by != place)
            found("a write races with a read by", at, by);
    }
}

static void wrote(struct cell *c, int place, uint32_t clock)
{
    c->writer = (uint32_t)place;
    c->written = clock;
    c->readers = 0;
}

static void write_from(const char *at, size_t size, int place, uint32_t clock, bool by_proxy)
{
    const struct known *k = mine();
    for (const char *end = at + size; at < end; at += SIZE) {
        struct cell *c = cell_of(at);
        if (!c) return;
        check_write(c, at, *k, place);
        if (by_proxy && (int)c->writer < 2 * race.n && c->written > k->fenced[c->writer])
            found("a copy overwrites, without a fence, what was written by", at, (int)c->writer);
        wrote(c, place, clock);
    }
}

static void read_from(const char *at, size_t size, int reader, uint32_t clock)
{
    const struct known *k = mine();
    for (const char *end = at + size; at < end; at += SIZE) {
        struct cell *c = cell_of(at);
        if (!c) return;
        if (c->written > k->all[c->writer])
            found("a read races with a write by", at, (int)c->writer);
        if (reader >= WARPS && (int)c->writer < 2 * race.n && c->written > k->fenced[c->writer])
            found("a product reads, without a fence, what was written by", at, (int)c->writer);
        c->readers |= (uint64_t)1 << reader;
        c->read[reader] = clock;
        c->lane[reader] = (uint8_t)emu_lane();
    }
}

static uint32_t now(void)
{
    return mine()->all[(size_t)emu_thread()];
}

void race_put(const void *at, size_t size)
{
    write_from((const char *)at, size, emu_thread(), now(), false);
}

void race_made(const void *b)
{
    race_put(b, 8);
}

void race_used(const void *b)
{
    const struct cell *c = cell_of((const char *)b);
    if (c && c->written > mine()->all[c->writer])
        found("a barrier is used that races with its making by", (const char *)b, (int)c->writer);
}

void race_copy(const void *to, size_t size, unsigned clock)
{
    write_from((const char *)to, size, copies_of(emu_thread()), clock, false);
}

void race_copied(unsigned clock)
{
    uint32_t *at = &mine()->all[(size_t)copies_of(emu_thread())];
    if (clock > *at) *at = clock;
}

void race_strip(const void *to, size_t size, const void *of)
{
    const struct cell *c = cell_of((const char *)of);
    const uint32_t i = race.n_strips++, clock = i / STRIPS + 1;
    race_used(of);
    if (c && c->written > mine()->fenced[c->writer])
        found("a copy uses, without a fence, a barrier made by", (const char *)of, (int)c->writer);
    write_from((const char *)to, size, strip_of(i), clock, true);
    struct known *there = &barrier(of)->now;
    there->all[(size_t)strip_of(i)] = clock;
    there->fenced[(size_t)strip_of(i)] = clock;
}

void race_operand(const void *at, size_t size, unsigned clock)
{
    read_from((const char *)at, size, WARPS + emu_thread() / LANE, clock);
}

void race_multiplied(unsigned clock)
{
    uint32_t *at = &mine()->all[(size_t)products_of(emu_thread() / LANE)];
    if (clock > *at) *at = clock;
}

/* ---- what the compiler calls ----------------------------------------------------------------- */

static void accessed(const void *at, size_t size, bool write)
{
    if (!race.n || !cell_of((const char *)at)) return;
    if (write)
        write_from((const char *)at, size, emu_thread(), now(), false);
    else
        read_from((const char *)at, size, emu_thread() / LANE, now());
}

#define ACCESS(n)                                                                                  \
    extern "C" void __tsan_read##n(void *at)                                                       \
    {                                                                                              \
        accessed(at, n, false);                                                                    \
    }                                                                                              \
    extern "C" void __tsan_write##n(void *at)                                                      \
    {                                                                                              \
        accessed(at, n, true);                                                                     \
    }                                                                                              \
    extern "C" void __tsan_unaligned_read##n(void *at)                                             \
    {                                                                                              \
        accessed(at, n, false);                                                                    \
    }                                                                                              \
    extern "C" void __tsan_unaligned_write##n(void *at)                                            \
    {                                                                                              \
        accessed(at, n, true);                                                                     \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

extern "C" void __tsan_read_range(void *at, size_t size)
{
    accessed(at, size, false);
}
extern "C" void __tsan_write_range(void *at, size_t size)
{
    accessed(at, size, true);
}
/* Called by guards of static variables of the host. */
extern "C" uint8_t __tsan_atomic8_load(const volatile uint8_t *at, int order)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
extern "C" void __tsan_init(void)
{
}
extern "C" void __tsan_func_entry(void *)
{
}
extern "C" void __tsan_func_exit(void)
{
}
extern "C" void __tsan_vptr_update(void *, void *)
{
}
extern "C" void __tsan_vptr_read(void *)
{
}
#endif
