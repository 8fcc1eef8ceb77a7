/* emu_hopper.cc: barriers in memory and by name, copies of strips, and products of warpgroups,
 * each with the checks that emu_hopper.h describes. */
#include "kernels/cuda/emu_hopper.h"
#include "kernels/cuda/emu_race.h"

#include <stdlib.h>

#define WARPS 32 /* largest number of warps of a block */

uint32_t emu_shared_at(const void *shared)
{
    const int64_t at = (const char *)shared - emu_smem;
    if (at < 0 || at >= EMU_SMEM) emu_fail("no address of dynamic shared memory");
    return (uint32_t)at + EMU_SHARED_AT;
}

static char *shared_from(uint32_t at)
{
    if (at < EMU_SHARED_AT || at >= EMU_SHARED_AT + EMU_SMEM) emu_fail("outside of shared memory");
    return emu_smem + (at - EMU_SHARED_AT);
}

/* ---- barriers in memory ---------------------------------------------------------------------- */

#define MADE 0x5e

struct barrier {
    uint8_t made, phase;
    /* count: arrivals that a phase needs; left: arrivals that are still missing */
    uint8_t count, left;
    /* bytes that are still missing; negative if they arrived before they were expected */
    int32_t bytes;
};
static_assert(sizeof(struct barrier) == sizeof(uint64_t), "what a barrier takes");

static struct barrier *barrier_of(uint64_t *b)
{
    struct barrier *x = (struct barrier *)b;
    if ((uintptr_t)b % 8 || x->made != MADE) emu_fail("a barrier that was not made");
    return x;
}

void emu_barrier_init(uint64_t *b, int n_arrivals)
{
    struct barrier *x = (struct barrier *)b;
    (void)emu_shared_at(b);
    if (x->made == MADE || n_arrivals < 1 || n_arrivals > 255) emu_fail("barrier_init");
    race_made(b);
    *x = {MADE, 0, (uint8_t)n_arrivals, (uint8_t)n_arrivals, 0};
}

void emu_barriers_made(void)
{
    race_fence();
}

static void settle(struct barrier *x)
{
    if (x->left || x->bytes) return;
    race_over(x);
    x->phase++;
    x->left = x->count;
}

void emu_barrier_arrive(uint64_t *b, int expect)
{
    struct barrier *x = barrier_of(b);
    if (!x->left) emu_fail("more arrive at a barrier than it counts");
    race_used(x);
    race_arrive(x);
    x->bytes += expect;
    x->left--;
    settle(x);
}

struct wanted {
    const struct barrier *b;
    int parity;
};

static bool is_over(const void *arg)
{
    const struct wanted *w = (const struct wanted *)arg;
    return (w->b->phase & 1) != w->parity;
}

/* barrier for which each thread waits; NULL if it waits for none */
static const struct barrier *waits_for[WARPS * 32];

void emu_barrier_wait(uint64_t *b, int parity)
{
    const struct wanted w = {barrier_of(b), parity & 1};
    race_used(b);
    waits_for[emu_thread()] = w.b;
    emu_wait_for(is_over, &w);
    race_waited(b);
    waits_for[emu_thread()] = NULL;
}

/* ---- barriers with names --------------------------------------------------------------------- */

static struct named {
    int n, arrived;
    unsigned turn;
} names[16];

struct passing {
    const struct named *b;
    unsigned turn;
};

static bool has_passed(const void *arg)
{
    const struct passing *p = (const struct passing *)arg;
    return p->b->turn != p->turn;
}

void emu_named_arrive(int name, int n)
{
    struct named *b = &names[name];
    if (name < 1 || name > 15 || n % 32) emu_fail("a barrier's name or size");
    if (b->arrived && b->n != n) emu_fail("a named barrier of two sizes");
    b->n = n;
    race_arrive(b);
    if (++b->arrived < n) return;
    race_over(b);
    b->arrived = 0;
    b->turn++;
}

void emu_named_barrier_sync(int name, int n)
{
    const struct passing p = {&names[name], names[name].turn};
    emu_named_arrive(name, n);
    emu_wait_for(has_passed, &p);
    race_waited(p.b);
}

/* ---- copies ---------------------------------------------------------------------------------- */

#define STRIP  128 /* bytes of a row */
#define COPIES 64

static struct copying {
    char *to;
    struct hopper_map map;
    int col, head, row;
    struct barrier *b;
} copies[COPIES];
static int n_copies;

/* Returns the place of address `at` in a strip. Rows are 128 bytes, and bits 4 to 6 of the address
 * are XORed with the row's index modulo eight. */
static uint32_t swizzled(uint32_t at)
{
    return at ^ ((at >> 7 & 7) << 4);
}

static uint16_t element(const struct hopper_map *m, int64_t row, int64_t head, int64_t col)
{
    uint16_t x = 0;
    if (row >= 0 && row < m->rows && head < m->n_heads && col < m->D)
        memcpy(&x, m->data + row * m->row_size + head * m->head_size + 2 * col, sizeof x);
    return x;
}

static void arrive(const struct copying *c)
{
    const uint32_t at = emu_shared_at(c->to);
    for (int r = 0; r < c->map.n_rows; r++)
        for (int i = 0; i < STRIP / 2; i++) {
            const uint16_t x = element(&c->map, c->row + r, c->head, c->col + i);
            memcpy(shared_from(swizzled(at + (uint32_t)(r * STRIP + 2 * i))), &x, sizeof x);
        }
    c->b->bytes -= c->map.n_rows * STRIP;
    if (c->b->left == c->b->count && c->b->bytes < 0) emu_fail("bytes that no barrier expects");
    settle(c->b);
}

void emu_strip_copy(void *to, const struct hopper_map *map, int col, int head, int row, uint64_t *b)
{
    if (n_copies == COPIES) emu_fail("too many copies under way");
    if (emu_shared_at(to) % 1024) emu_fail("a strip does not begin at 1024 bytes");
    race_strip(to, (size_t)map->n_rows * STRIP, b);
    memset(to, 0xff, (size_t)map->n_rows * STRIP);
    const struct copying c = {(char *)to, *map, col, head, row, barrier_of(b)};
    if (emu_is_odd_block())
        arrive(&c);
    else
        copies[n_copies++] = c;
}

/* ---- what threads write for products --------------------------------------------------------- */

#define PUTS 64 /* largest number of writes of a thread before the thread's fence */

static struct puts {
    int n;
    uint32_t at[PUTS], word[PUTS];
} puts[WARPS * 32];

void emu_shared_put(uint32_t at, uint32_t word)
{
    struct puts *p = &puts[emu_thread()];
    if (p->n == PUTS) emu_fail("too many writes without shared_made");
    if (at % 4) emu_fail("a word in shared memory is not aligned");
    race_put(shared_from(at), sizeof word);
    memset(shared_from(at), 0xff, sizeof word);
    p->at[p->n] = at;
    p->word[p->n++] = word;
}

void emu_shared_made(void)
{
    struct puts *p = &puts[emu_thread()];
    for (int i = 0; i < p->n; i++) memcpy(shared_from(p->at[i]), &p->word[i], sizeof p->word[i]);
    p->n = 0;
    race_fence();
}

uint32_t emu_matrix_turn(uint32_t pair)
{
    const int g = emu_lane() / 4, r = emu_lane() % 4;
    uint32_t out = 0;
    emu_exchange(&pair, sizeof pair);
    for (int i = 0; i < 2; i++) {
        uint16_t x[2];
        memcpy(x, emu_of_lane(4 * (2 * r + i) + g / 2), sizeof x);
        out |= (uint32_t)x[g % 2] << 16 * i;
    }
    /* makes sure that no lane overwrites a word that another lane still reads */
    emu_exchange(&pair, 1);
    return out;
}

/* ---- products -------------------------------------------------------------------------------- */

#define DEEP 64 /* largest number of products of a warp that are under way */
#define MOST 4  /* largest number of accumulators of a thread that are under way */

/* One product of a warp. It exists from the time at which its first lane issues it until its last
 * lane has waited for it. */
struct product {
    struct emu_product p; /* a, b, n, transposed */
    unsigned batch;
    bool checked;
    uint16_t a[16][16], b[16][128];
    float d[16][128];
};

static struct warp {
    unsigned turn;             /* products so far */
    struct product made[DEEP]; /* the product with the index i is at i % DEEP */
} warps[WARPS];

struct accumulator {
    float *d;
    int n;
    unsigned batch;
    float x[64];
};

static struct thread {
    bool begun, late; /* late: the thread is waiting for its products */
    /* turn: number of products issued; checked: number of products waited for */
    unsigned turn, checked;
    unsigned batch; /* batch that is being issued */
    int n;
    struct accumulator acc[MOST];
    uint32_t a[DEEP][4];
    const uint32_t *a_at[DEEP];
} threads[WARPS * 32];

static struct thread *self(void)
{
    return &threads[emu_thread()];
}

/* Returns the place of element (k, n) of a matrix in strips, counted from the matrix's first
 * element. If transposed, the rows are k. Otherwise the rows are n, or m of A. */
static const char *matrix_place(uint64_t desc, bool transposed, int k, int n)
{
    const uint32_t at = (uint32_t)(desc & 0x3fff) << 4, leading = (desc >> 16 & 0x3fff) << 4,
                   stride = (desc >> 32 & 0x3fff) << 4;
    if (desc >> 62 != 1 || (desc >> 49 & 7)) emu_fail("a matrix of another kind");
    if (transposed)
        return shared_from(swizzled(at + (uint32_t)(n / 64) * leading + (uint32_t)(k / 8) * stride +
                                    (uint32_t)(k % 8 * STRIP + n % 64 * 2)));
    return shared_from(
        swizzled(at + (uint32_t)(n / 8) * stride + (uint32_t)(n % 8 * STRIP + k * 2)));
}

/* Reads an element for the batch with the index `batch`; the emulation itself reads with -1. */
static uint16_t matrix_bits(const char *place, int64_t batch)
{
    uint16_t x;
    if (batch >= 0) race_operand(place, sizeof x, (unsigned)batch + 1);
    memcpy(&x, place, sizeof x);
    return x;
}

static void read_operands(const struct emu_product *p, uint16_t (*a)[16], uint16_t (*b)[128],
                          int64_t batch)
{
    const int first_row = emu_thread() / 32 % 4 * 16;
    for (int k = 0; k < 16; k++) {
        for (int m = 0; m < 16 && !p->registers; m++)
            a[m][k] = matrix_bits(matrix_place(p->a, false, k, first_row + m), batch);
        for (int n = 0; n < p->n; n++)
            b[k][n] = matrix_bits(matrix_place(p->b, p->transposed, k, n), batch);
    }
}

static float value(uint16_t bits)
{
    return __uint_as_float((unsigned)bits << 16);
}

/* A product, in the form in which a lane issues it. All lanes of a warpgroup issue the same
 * product with different registers and sums. */
struct said {
    struct emu_product p;
    uint32_t a[4];
    const float *sum;
};
static_assert(sizeof(struct said) <= EMU_SLOT, "an exchange takes it");

static bool same(const struct emu_product *x, const struct emu_product *y)
{
    return x->a == y->a && x->b == y->b && x->n == y->n && x->transposed == y->transposed &&
           x->add == y->add && !x->registers == !y->registers;
}

static void multiply(struct product *x)
{
    const struct emu_product *p = &x->p;
    for (int t = 0; t < 32; t++) {
        struct said s;
        memcpy(&s, emu_of_lane(t), sizeof s);
        if (!same(&s.p, p)) emu_fail("lanes of a warp issue different products");
        for (int i = 0; i < p->n / 2; i++)
            x->d[t / 4 + i % 4 / 2 * 8][i / 4 * 8 + t % 4 * 2 + i % 2] = p->add ? s.sum[i] : 0;
        for (int i = 0; i < 8 && p->registers; i++)
            x->a[t / 4 + i / 2 % 2 * 8][t % 4 * 2 + i / 4 * 8 + i % 2] = (uint16_t)(s.a[i / 2] >>
                                                                                    (i % 2 ? 16
                                                                                           : 0));
    }
    read_operands(p, x->a, x->b, x->batch);
    float a[EMU_WGMMA_K], b[EMU_WGMMA_K][128];
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < p->n; n++) b[k][n] = value(x->b[k][n]);
    for (int m = 0; m < 16; m++) {
        for (int k = 0; k < 16; k++) a[k] = value(x->a[m][k]);
        emu_dot(x->d[m], p->n, a, b[0], 128, EMU_WGMMA_K, EMU_WGMMA_BITS);
    }
}

/* Checks that the four warps of a group issue the same products in the same order. */
static void check_group(const struct emu_product *p, unsigned turn)
{
    const int first = emu_thread() / 128 * 4;
    for (int w = first; w < first + 4; w++) {
        const struct product *other = &warps[w].made[turn % DEEP];
        if (warps[w].turn >= turn && warps[w].turn - turn < DEEP && !same(&other->p, p))
            emu_fail("warps of a group issue different products");
    }
}

static struct accumulator *accumulator_of(struct thread *t, const struct emu_product *p)
{
    for (int i = 0; i < t->n; i++)
        if (t->acc[i].d == p->d && t->acc[i].n == p->n / 2) return &t->acc[i];
    if (t->n == MOST) emu_fail("too many accumulators under way");
    struct accumulator *a = &t->acc[t->n++];
    a->d = p->d;
    a->n = p->n / 2;
    memcpy(a->x, p->d, (size_t)a->n * sizeof(float));
    memset(p->d, 0xff, (size_t)a->n * sizeof(float));
    return a;
}

void emu_products_begin(void)
{
    emu_warp_barrier();
    self()->begun = true;
}

void emu_product(const struct emu_product *p)
{
    struct thread *t = self();
    struct warp *w = &warps[emu_thread() / 32];
    if (!t->begun) emu_fail("products without products_begin");
    const unsigned turn = ++t->turn;
    if (turn - t->checked > DEEP) emu_fail("too many products under way");
    struct accumulator *a = accumulator_of(t, p);
    struct said s = {*p, {0}, a->x};
    s.p.d = NULL;
    if (p->registers) memcpy(s.a, p->registers, sizeof s.a);
    memcpy(t->a[turn % DEEP], s.a, sizeof s.a);
    t->a_at[turn % DEEP] = p->registers;
    emu_exchange(&s, sizeof s);
    struct product *x = &w->made[turn % DEEP];
    if (w->turn < turn) {
        x->p = s.p;
        x->batch = t->batch;
        x->checked = false;
        multiply(x);
        w->turn = turn;
        check_group(&x->p, turn);
    }
    a->batch = t->batch;
    for (int i = 0; i < a->n; i++)
        a->x[i] = x->d[emu_lane() / 4 + i % 4 / 2 * 8][i / 4 * 8 + emu_lane() % 4 * 2 + i % 2];
    emu_warp_barrier(); /* makes sure that no lane of the warp is two products ahead */
}

void emu_products_commit(void)
{
    emu_warp_barrier();
    self()->begun = false;
    self()->batch++;
}

/* Checks that the operands of the product with the index `turn` still have the values that the
 * product has read. */
static void check_operands(struct thread *t, unsigned turn)
{
    struct product *x = &warps[emu_thread() / 32].made[turn % DEEP];
    if (x->p.registers && memcmp(t->a_at[turn % DEEP], t->a[turn % DEEP], sizeof t->a[0]))
        emu_fail("registers changed while a product reads them");
    if (x->checked) return;
    uint16_t a[16][16], b[16][128];
    memcpy(a, x->a, sizeof a);
    memcpy(b, x->b, sizeof b);
    read_operands(&x->p, a, b, -1);
    if (memcmp(a, x->a, sizeof a) || memcmp(b, x->b, sizeof b))
        emu_fail("shared memory changed while a product reads it");
    x->checked = true;
}

static void give(struct accumulator *a)
{
    for (size_t i = 0; i < (size_t)a->n * sizeof(float); i++)
        if (((const unsigned char *)a->d)[i] != 0xff)
            emu_fail("accumulators written while a product is under way");
    memcpy(a->d, a->x, (size_t)a->n * sizeof(float));
}

static bool is_late_enough(const void *arg)
{
    return !((const struct thread *)arg)->late;
}

/* Completes the products of one group. Called when no thread can continue without them. */
static bool finish_products(void)
{
    for (int i = 0; i < WARPS * 32; i++) {
        if (!threads[i].late) continue;
        for (int t = i / 128 * 128; t < i / 128 * 128 + 128; t++) threads[t].late = false;
        return true;
    }
    return false;
}

void emu_products_wait(int n)
{
    struct thread *t = self();
    const struct warp *w = &warps[emu_thread() / 32];
    t->late = emu_thread() / 32 % 2 == emu_is_odd_block();
    emu_wait_for(is_late_enough, t);
    emu_warp_barrier();
    /* batches with an index below this must be over */
    const unsigned last = t->batch - (unsigned)n;
    if (t->batch < (unsigned)n) return;
    race_multiplied(last);
    while (t->checked < t->turn && w->made[(t->checked + 1) % DEEP].batch < last)
        check_operands(t, ++t->checked);
    for (int i = 0; i < t->n;) {
        if (t->acc[i].batch >= last) {
            i++;
            continue;
        }
        give(&t->acc[i]);
        t->acc[i] = t->acc[--t->n];
    }
    emu_warp_barrier();
}

/* ---- a block --------------------------------------------------------------------------------- */

void emu_async_begin(void)
{
    for (int i = 0; i < 16; i++) names[i] = {0, 0, 0};
    for (int w = 0; w < WARPS; w++) warps[w].turn = 0;
    for (int i = 0; i < WARPS * 32; i++) {
        threads[i].begun = threads[i].late = false;
        threads[i].turn = threads[i].checked = threads[i].batch = 0;
        threads[i].n = puts[i].n = 0;
    }
    memset(waits_for, 0, sizeof waits_for);
    n_copies = 0;
}

static bool is_waited_for(const struct barrier *b)
{
    for (int i = 0; i < WARPS * 32; i++)
        if (waits_for[i] == b) return true;
    return false;
}

/* Does a part of the asynchronous work. A copy arrives only when a thread waits for it. So a
 * thread that reads the bytes without a wait reads NaN. */
bool emu_async_step(void)
{
    if (finish_products()) return true;
    for (int i = n_copies - 1; i >= 0; i--) {
        const struct copying c = copies[i];
        if (!is_waited_for(c.b)) continue;
        copies[i] = copies[--n_copies];
        arrive(&c);
        return true;
    }
    return false;
}

void emu_async_end(void)
{
    for (int i = 0; i < 16; i++)
        if (names[i].arrived) emu_fail("arrivals at a named barrier that no warp waits for");
    for (int i = 0; i < WARPS * 32; i++)
        if (threads[i].n || threads[i].turn != threads[i].checked)
            emu_fail("products that no warp waited for");
        else if (puts[i].n)
            emu_fail("writes for products without shared_made");
    if (n_copies) emu_fail("copies that no thread waited for");
}
