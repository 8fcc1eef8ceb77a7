/* hopper.h: primitives that compute capability 9.0 has and 8.0 does not have. They are bulk copies
 * of tiles to shared memory, whose bytes are counted by barriers in memory; asynchronous products
 * of a warpgroup; and registers that one warpgroup gives to another. emu_hopper.h has these
 * primitives for the host.
 *
 * A tile in shared memory is made of strips, one after the other. A strip has HOPPER_STRIP columns
 * (128 bytes) of all rows of the tile, and begins at a multiple of 1024 bytes. A row is divided
 * into pieces of 16 bytes. Piece i of row r is stored at place i XOR (r mod 8) of the row. So for
 * each i, the pieces i of eight neighbouring rows are in different banks. This order is called
 * "128-byte swizzle". Copies write this order and products read it.
 *
 * from: PTX ISA 8.5, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate", "mbarrier",
 * "cp.async.bulk.tensor", "setmaxnreg" */
#ifndef SEQD_CUDA_HOPPER_H
#define SEQD_CUDA_HOPPER_H

#include "kernels/cuda/mma.h"

#ifdef SEQD_EMU
#include "kernels/cuda/emu_hopper.h"
#define __grid_constant__
#else
#include <cuda.h>
typedef CUtensorMap hopper_map;
#endif

#define HOPPER_GROUP (4 * WARP) /* threads of a warpgroup, which computes 64 rows of a product */
#define HOPPER_ROWS  64
#define HOPPER_STRIP 64

/* ---- the host's part (hopper.cu) ------------------------------------------------------------- */

/* Sets c->hopper to the driver's function that makes maps. If the device's compute capability is
 * not 9.0, or isa names a capability other than 9.0, c->hopper remains NULL. Fails with
 * ERR_UNSUPPORTED if isa names 9.0 and the device or its driver cannot run it. */
int hopper_open(struct cuda *c, const char *isa, struct err *e);

/* Tells whether rows with heads of D columns can be copied as tiles. */
static inline bool hopper_takes(struct tensor t, int64_t D)
{
    return t.dtype == DT_BF16 && D % 8 == 0 && fits_packs(t);
}
/* Maps the rows of t as n_heads heads of D columns, which are copied as strips of n_rows rows.
 * Columns past D and rows past the last row are copied as zeros. An error of the driver is stored
 * in c->failed. */
hopper_map hopper_map_of(struct cuda *c, struct tensor t, int64_t n_heads, int64_t D, int n_rows);

/* Run attention's kernels for 9.0. Return false if these kernels cannot compute the call
 * (hopper_attn*.cu). Backward's spans must be filled in (attn_bwd.h). */
struct bwd_call;
bool hopper_attn_fwd(struct cuda *c, const struct attn_fwd_args *a);
bool hopper_attn_bwd(struct cuda *c, const struct attn_bwd_args *a, const struct bwd_call &b);
/* Run linear attention's kernels (linear.h) for a part of a walk. Return false if these kernels
 * cannot compute the part. The summary uses neither q nor out. */
struct linear_part;
bool hopper_linear_summary(struct cuda *c, const struct linear_part &p);
bool hopper_linear_rows(struct cuda *c, const struct linear_part &p);

/* ---- addresses ------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t hopper_at(const void *shared)
{
#ifdef SEQD_EMU
    return emu_shared_at(shared);
#else
    return (uint32_t)__cvta_generic_to_shared(shared);
#endif
}
/* Returns the first address, from p on, at which a strip may begin. */
static __device__ __forceinline__ char *hopper_align(char *p)
{
    return p + (1024 - hopper_at(p) % 1024) % 1024;
}

/* ---- barriers that count arrivals and bytes -------------------------------------------------- */

/* A barrier in memory. A phase of the barrier is over when the required number of threads have
 * arrived and all expected bytes have been written. Then the next phase begins. */
typedef uint64_t hopper_barrier;

static __device__ __forceinline__ void barrier_init(hopper_barrier *b, int n_arrivals)
{
#ifdef SEQD_EMU
    emu_barrier_init(b, n_arrivals);
#else
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(hopper_at(b)), "r"(n_arrivals)
                 : "memory");
#endif
}
/* Makes new barriers visible to copies. The thread that made the barriers calls it after the last
 * barrier_init, before the other threads continue. */
static __device__ __forceinline__ void barriers_made(void)
{
#ifdef SEQD_EMU
    emu_barriers_made();
#else
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
static __device__ __forceinline__ void barrier_arrive(hopper_barrier *b)
{
#ifdef SEQD_EMU
    emu_barrier_arrive(b, 0);
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(hopper_at(b)) : "memory");
#endif
}
/* Arrives, and makes the phase wait for `bytes` additional bytes. */
static __device__ __forceinline__ void barrier_expect(hopper_barrier *b, int bytes)
{
#ifdef SEQD_EMU
    emu_barrier_arrive(b, bytes);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(hopper_at(b)),
                 "r"(bytes)
                 : "memory");
#endif
}
/* Waits until the phase of this parity is over. On a new barrier, parity 1 counts as over. */
static __device__ __forceinline__ void barrier_wait(hopper_barrier *b, int parity)
{
#ifdef SEQD_EMU
    emu_barrier_wait(b, parity);
#else
    uint32_t over;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(over)
                     : "r"(hopper_at(b)), "r"(parity)
                     : "memory");
    } while (!over);
#endif
}

/* Buffers of tiles, which are used cyclically. Tile i is in buffer i % STAGES. The warp that fills
 * a buffer waits until the buffer is free. A warp that reads a buffer waits until the buffer is
 * full, and releases it when it has read the tile. */
template <int STAGES> struct hopper_ring {
    hopper_barrier there[STAGES], read[STAGES];
};
template <int STAGES>
static __device__ __forceinline__ void ring_make(hopper_ring<STAGES> *r, int n_fillers,
                                                 int n_readers)
{
    for (int s = 0; s < STAGES; s++) {
        barrier_init(&r->there[s], n_fillers);
        barrier_init(&r->read[s], n_readers);
    }
}
template <int STAGES>
static __device__ __forceinline__ void ring_wait_free(hopper_ring<STAGES> *r, int i)
{
    barrier_wait(&r->read[i % STAGES], (i / STAGES & 1) ^ 1);
}
template <int STAGES>
static __device__ __forceinline__ void ring_wait(hopper_ring<STAGES> *r, int i)
{
    barrier_wait(&r->there[i % STAGES], i / STAGES & 1);
}
template <int STAGES>
static __device__ __forceinline__ void ring_let_go(hopper_ring<STAGES> *r, int i)
{
    if (threadIdx.x % WARP == 0) barrier_arrive(&r->read[i % STAGES]);
}

/* ---- barriers with names --------------------------------------------------------------------- */

/* Use the barrier with the index `name` (1 to 15) among n threads, which must be whole warps.
 * named_barrier_sync arrives and waits; named_arrive only arrives. */
static __device__ __forceinline__ void named_barrier_sync(int name, int n)
{
#ifdef SEQD_EMU
    emu_named_barrier_sync(name, n);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(n) : "memory");
#endif
}
static __device__ __forceinline__ void named_arrive(int name, int n)
{
#ifdef SEQD_EMU
    emu_named_arrive(name, n);
#else
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(n) : "memory");
#endif
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Copies a strip, which has the map's rows from `row` on and the columns of a head from col on.
 * Barrier b counts the bytes. One thread calls this function. */
static __device__ __forceinline__ void strip_copy(void *to, const hopper_map *map, int col,
                                                  int head, int row, hopper_barrier *b)
{
#ifdef SEQD_EMU
    emu_strip_copy(to, map, col, head, row, b);
#else
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(hopper_at(to)),
                 "l"(map), "r"(hopper_at(b)), "r"(col), "r"(head), "r"(row)
                 : "memory");
#endif
}
/* Copies n rows of a head as STRIPS strips. */
template <int STRIPS>
static __device__ __forceinline__ void tile_copy(bf16 *to, const hopper_map *map, int n, int head,
                                                 int row, hopper_barrier *b)
{
    UNROLL
    for (int s = 0; s < STRIPS; s++)
        strip_copy(to + s * n * HOPPER_STRIP, map, s * HOPPER_STRIP, head, row, b);
}

/* ---- operands that threads write ------------------------------------------------------------- */

/* Writes a word that a product will read from shared memory. The product may read it once its
 * writer has called shared_made and has passed a barrier after that. */
static __device__ __forceinline__ void shared_put(uint32_t at, uint32_t word)
{
#ifdef SEQD_EMU
    emu_shared_put(at, word);
#else
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
#endif
}
/* Writes four 8 x 8 matrices of bf16, in the places that ldmatrix4 of mma.h uses. */
static __device__ __forceinline__ void shared_put4(uint32_t at, const uint32_t (&x)[4])
{
#ifdef SEQD_EMU
    emu_exchange(&at, sizeof at);
    for (int i = 0; i < 4; i++) {
        uint32_t row;
        memcpy(&row, emu_of_lane(8 * i + emu_lane() / 4), sizeof row);
        emu_shared_put(row + (uint32_t)(emu_lane() % 4 * 4), x[i]);
    }
    /* makes sure that no lane overwrites a word that another lane still reads */
    emu_exchange(&at, 1);
#else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
#endif
}
static __device__ __forceinline__ void shared_made(void)
{
#ifdef SEQD_EMU
    emu_shared_made();
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* ---- products of a warpgroup ----------------------------------------------------------------- */

/* A product is D [64, N] += A [64, 16] B [16, N]. Warp w of the group has rows [16 w, 16 w + 16)
 * of D in registers. If A is in registers too, the warp has the same rows of A. D and A are in the
 * order of mma.h.
 *
 * Products between products_begin and products_commit form a batch. They are under way until
 * products_wait. Until then no thread may use the products' registers or change the shared memory
 * that they read. */

/* Returns the descriptor, for a product, of a matrix in shared memory. at is the address of the
 * matrix's first element. It must be the start of a strip, or the start of a 16-byte piece of a
 * strip's first row. A group of eight rows begins 1024 bytes after the previous group. A matrix
 * whose N runs along rows (transposed) continues in the next strip of n_rows rows. */
static __device__ __forceinline__ uint64_t matrix_at(uint32_t at, int n_rows)
{
    const uint64_t eight_rows = 1024 >> 4, strip = (uint64_t)(n_rows * 2 * HOPPER_STRIP) >> 4;
    return (uint64_t)((at & 0x3ffff) >> 4) | strip << 16 | eight_rows << 32 | (uint64_t)1 << 62;
}
/* Returns the address of elements [16 k, 16 k + 16) of K in a matrix in which K runs along a row.
 * A strip of n_rows rows has four such groups of elements. */
static __device__ __forceinline__ uint32_t matrix_k(uint32_t at, int k, int n_rows)
{
    return at + (uint32_t)(k / 4 * n_rows * 2 * HOPPER_STRIP + k % 4 * 32);
}
/* Returns the address of elements [16 k, 16 k + 16) of K in a matrix whose rows are B's K. */
static __device__ __forceinline__ uint32_t matrix_k_transposed(uint32_t at, int k)
{
    return at + (uint32_t)(k * 16 * 2 * HOPPER_STRIP);
}

static __device__ __forceinline__ void products_begin(void)
{
#ifdef SEQD_EMU
    emu_products_begin();
#else
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void products_commit(void)
{
#ifdef SEQD_EMU
    emu_products_commit();
#else
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* Waits until at most N batches are under way. */
template <int N> static __device__ __forceinline__ void products_wait(void)
{
#ifdef SEQD_EMU
    emu_products_wait(N);
#else
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
/* Pins d in registers, so that writes of d are done before this point and reads of d after it.
 * Without it the compiler would not know that products write d until they have been waited for,
 * and could move work past a wait. */
template <int N> static __device__ __forceinline__ void registers_pin(float (&d)[N][4])
{
#ifndef SEQD_EMU
    UNROLL
    for (int n = 0; n < N; n++) UNROLL
    for (int e = 0; e < 4; e++) asm volatile("" : "+f"(d[n][e])::"memory");
#endif
}
/* Returns threadIdx.x, which is read at this point, so that it occupies no register between
 * uses. */
static __device__ __forceinline__ int thread_again(void)
{
#ifdef SEQD_EMU
    return (int)threadIdx.x;
#else
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
#endif
}

#define HOPPER_D4(n)  "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define HOPPER_D16(n) HOPPER_D4(n), HOPPER_D4(n + 1), HOPPER_D4(n + 2), HOPPER_D4(n + 3)
#define HOPPER_D32    HOPPER_D16(0), HOPPER_D16(4)
#define HOPPER_D64    HOPPER_D32, HOPPER_D16(8), HOPPER_D16(12)
#define HOPPER_NAMES32                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HOPPER_NAMES64                                                                             \
    HOPPER_NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
                   "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "   \
                   "%62, %63"
#define HOPPER_PRODUCT(n) "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 "

/* Multiplies A and B, which are both in shared memory (matrix_at). TURNED means that a row of B in
 * shared memory is one k. If add is false, d is overwritten. */
template <bool TURNED, int N8>
static __device__ __forceinline__ void product(float (&d)[N8][4], uint64_t a, uint64_t b, bool add)
{
    static_assert(N8 == 8 || N8 == 16, "N is 64 or 128");
#ifdef SEQD_EMU
    const struct emu_product p = {a, b, 8 * N8, TURNED, add, NULL, &d[0][0]};
    emu_product(&p);
#else
    if constexpr (N8 == 8)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" HOPPER_PRODUCT("64") "{" //
                     HOPPER_NAMES32 "}, %32, %33, p, 1, 1, 0, %35;\n}"
                     : HOPPER_D32
                     : "l"(a), "l"(b), "r"((int)add), "n"((int)TURNED)
                     : "memory");
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n" HOPPER_PRODUCT("128") "{" //
                     HOPPER_NAMES64 "}, %64, %65, p, 1, 1, 0, %67;\n}"
                     : HOPPER_D64
                     : "l"(a), "l"(b), "r"((int)add), "n"((int)TURNED)
                     : "memory");
#endif
}
/* Multiplies A, which is in registers, and B, which is in shared memory. */
template <bool TURNED, int N8>
static __device__ __forceinline__ void product(float (&d)[N8][4], const uint32_t (&a)[4],
                                               uint64_t b, bool add)
{
    static_assert(N8 == 8 || N8 == 16, "N is 64 or 128");
#ifdef SEQD_EMU
    const struct emu_product p = {0, b, 8 * N8, TURNED, add, a, &d[0][0]};
    emu_product(&p);
#else
    if constexpr (N8 == 8)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" HOPPER_PRODUCT("64") "{" //
                     HOPPER_NAMES32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
                     : HOPPER_D32
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add),
                       "n"((int)TURNED)
                     : "memory");
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n" HOPPER_PRODUCT("128") "{" //
                     HOPPER_NAMES64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
                     : HOPPER_D64
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add),
                       "n"((int)TURNED)
                     : "memory");
#endif
}

/* ---- a product's rows in memory -------------------------------------------------------------- */

/* A pair of a thread's part of fp32 rows. The part has the rows `row` and row + 8, and the pairs
 * of columns that begin at 8 n + lane % 4 * 2. An element past n_rows or n_cols is read as 0 and
 * is not written. Pairs must begin at multiples of 8 bytes (rows_fit). */
struct alignas(8) hopper_pair {
    float x[2];
};
static inline bool rows_fit(struct tensor t)
{
    return (uintptr_t)t.data % sizeof(hopper_pair) == 0 && t.ld % 2 == 0;
}
template <int N8>
static __device__ __forceinline__ void rows_get(float (&to)[N8][4], const float *x, int64_t ld,
                                                int row, int n_rows, int n_cols)
{
    UNROLL
    for (int h = 0; h < 2; h++) UNROLL
    for (int n = 0; n < N8; n++) {
        const int col = 8 * n + (int)threadIdx.x % 4 * 2;
        hopper_pair p = {{0, 0}};
        if (row + 8 * h < n_rows && col < n_cols)
            p = *(const hopper_pair *)(x + (row + 8 * h) * ld + col);
        to[n][2 * h] = p.x[0];
        to[n][2 * h + 1] = p.x[1];
    }
}
template <int N8>
static __device__ __forceinline__ void rows_put(const float (&from)[N8][4], float *x, int64_t ld,
                                                int row, int n_rows, int n_cols)
{
    UNROLL
    for (int h = 0; h < 2; h++) UNROLL
    for (int n = 0; n < N8; n++) {
        const int col = 8 * n + (int)threadIdx.x % 4 * 2;
        const hopper_pair p = {{from[n][2 * h], from[n][2 * h + 1]}};
        if (row + 8 * h < n_rows && col < n_cols)
            *(hopper_pair *)(x + (row + 8 * h) * ld + col) = p;
    }
}
/* Returns the first row that a thread has among its warpgroup's 64 rows. */
static __device__ __forceinline__ int rows_mine(void)
{
    return (int)threadIdx.x % HOPPER_GROUP / WARP * 16 + (int)threadIdx.x % WARP / 4;
}
/* Rounds x to bf16. The result has the form of A in a product with K = 8 N8. */
template <int N8>
static __device__ __forceinline__ void rows_round(uint32_t (&a)[N8 / 2][4], const float (&x)[N8][4])
{
    UNROLL
    for (int k = 0; k < N8 / 2; k++) UNROLL
    for (int i = 0; i < 4; i++)
        a[k][i] = pack_bf16(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
}
/* Transposes an 8 x 8 matrix that is spread over a warp. Lane 4 g + r has the elements (g, 2r) and
 * (g, 2r + 1). */
static __device__ __forceinline__ uint32_t matrix_turn(uint32_t pair)
{
#ifdef SEQD_EMU
    return emu_matrix_turn(pair);
#else
    uint32_t out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
    return out;
#endif
}

/* ---- registers ------------------------------------------------------------------------------- */

/* registers_give makes a warpgroup keep only N registers for each thread. registers_take raises
 * the number to N, with registers that other groups gave. All threads of the group must call these
 * functions. BLOCKS is the number of blocks of a multiprocessor in the kernel's launch bounds. */
template <int N, int BLOCKS = 1> static __device__ __forceinline__ void registers_give(void)
{
#ifdef SEQD_EMU
    emu_registers(N, BLOCKS, false);
#else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N, int BLOCKS = 1> static __device__ __forceinline__ void registers_take(void)
{
#ifdef SEQD_EMU
    emu_registers(N, BLOCKS, true);
#else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

#endif
