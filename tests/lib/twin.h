/* twin.h: buffers of kernel tests, for devices that can access only their own memory.
 *
 * A test keeps the buffers that it compares in the host's memory. They are in blocks that twin_new
 * returned, and the args struct of a call contains pointers into these blocks. If the device has
 * memory of its own, twin_in copies all blocks to which the args point into one area of device
 * memory, one block after the other. It returns a copy of the args in which the pointers point
 * into that area. twin_back waits for the call and copies the blocks back. The test then sees
 * every byte that the call wrote, including bytes beside the windows. Every call starts with the
 * bytes on the host, and its results are copied to the host. Because of these two copies, all
 * checks of the host's memory (sentinels, gaps, inputs that must not change) also check the
 * device's memory.
 *
 * Pointers are found by their value: each aligned word of the args that is an address in a block
 * is a pointer. If a word is any other address on the host, the check fails, because the operation
 * cannot access that memory. The field `drop` is an exception, because operations read it on the
 * host. TWIN_HOST sets its offset. */
#ifndef SEQD_TESTS_TWIN_H
#define SEQD_TESTS_TWIN_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "kernels/backend.h"
#include "tests/lib/test.h"

/* the size of device memory for the scratch and for the blocks of one call */
#define TWIN_SIZE ((int64_t)48 << 20)
/* the size of the scratch, which is at the beginning of the device's memory */
#define TWIN_SCRATCH ((int64_t)9 << 20)
#define TWIN_BLOCKS  1024
#define TWIN_WORDS   96 /* the largest number of words in an args struct */
#define TWIN_GUARD   64 /* the number of bytes after each block that no operation may write */
/* a byte that fills memory: read as a double or a float it is a tiny number, and read as an index
 * it is negative */
#define TWIN_MARK 0xa5

struct twin_block {
    char *at; /* the block on the host, which has size + TWIN_GUARD bytes */
    int64_t size, offset;
    bool packed;  /* the block was packed for the current call, and begins at `offset` */
    bool for_now; /* tells that twin_forget frees the block */
};

static struct twins {
    struct twin_block block[TWIN_BLOCKS];
    int n;
    /* the backend to which `device` belongs; NULL means that the device uses the host's memory */
    struct be *be;
    char *device; /* TWIN_SIZE bytes of the device's memory */
    int64_t used;
    /* the bytes that are copied to the device and back; they begin with the scratch, which is
     * NaN */
    char stage[TWIN_SIZE];
    uint64_t args[TWIN_WORDS];
} twins;

/* ---- blocks ---------------------------------------------------------------------------------- */

static inline void *twin_new(int64_t size)
{
    char *p = malloc((size_t)(size + TWIN_GUARD));
    if (!p) test_die("no memory for a block of %lld bytes", (long long)size);
    if (twins.n == TWIN_BLOCKS) test_die("more than %d blocks", TWIN_BLOCKS);
    memset(p + size, TWIN_MARK, TWIN_GUARD);
    twins.block[twins.n++] = (struct twin_block){.at = p, .size = size};
    return p;
}

static inline void twin_drop(int i)
{
    const struct twin_block b = twins.block[i];
    int64_t n_bad = 0;
    for (int k = 0; k < TWIN_GUARD; k++) n_bad += (unsigned char)b.at[b.size + k] != TWIN_MARK;
    CHECK_MSG(n_bad == 0, "%lld bytes after a buffer of %lld were written", (long long)n_bad,
              (long long)b.size);
    free(b.at);
    twins.block[i] = twins.block[--twins.n];
}

static inline void twin_free(void *p)
{
    for (int i = 0; i < twins.n; i++)
        if (twins.block[i].at == p) {
            twin_drop(i);
            return;
        }
    if (p) test_die("%p is in no block", p);
}

/* Allocates an array of n elements. It exists until twin_forget is called at the end of the
 * check. */
#define ARRAY(type, n) ((type *)twin_array((int64_t)(n) * (int64_t)sizeof(type)))
static inline void *twin_array(int64_t size)
{
    void *p = twin_new(size);
    twins.block[twins.n - 1].for_now = true;
    return p;
}

static inline void twin_forget(void)
{
    for (int i = twins.n; i-- > 0;)
        if (twins.block[i].for_now) twin_drop(i);
}

/* ---- the device's side ----------------------------------------------------------------------- */

/* Allocates the device memory for calls on b's device. */
static inline void twin_open(struct be *b)
{
    struct err e = {0};
    if (!b->own_memory) return;
    twins.be = b;
    twins.device = b->ops->alloc(b, TWIN_SIZE, &e);
    if (!twins.device) test_die("%s", e.text);
    memset(twins.stage, 0xff, TWIN_SCRATCH);
}

static inline void twin_close(void)
{
    if (twins.be) twins.be->ops->free(twins.be, twins.device, TWIN_SIZE);
    twins.be = NULL;
}

/* Allocates scratch on the host, as a private mapping of a file that is full of NaN. When a call
 * writes to a page, the kernel makes a copy of the page. The copies are dropped before the next
 * call. As calls usually write only a few pages, this is faster than writing megabytes of NaN
 * before each call. */
static inline void *twin_host_scratch(int64_t size)
{
    const int fd = memfd_create("scratch", 0);
    if (fd < 0 || ftruncate(fd, size) < 0)
        test_die("a file of %lld bytes of scratch: %s", (long long)size, strerror(errno));
    void *nan = mmap(NULL, (size_t)size, PROT_WRITE, MAP_SHARED, fd, 0);
    void *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (nan == MAP_FAILED || p == MAP_FAILED)
        test_die("a mapping of %lld bytes of scratch: %s", (long long)size, strerror(errno));
    memset(nan, 0xff, (size_t)size);
    munmap(nan, (size_t)size);
    close(fd);
    return p;
}

/* Gives b its scratch memory. Calls run one at a time, so that all open backends of a device may
 * use the same scratch. */
static inline void twin_give_scratch(struct be *b)
{
    const int64_t size = b->n_threads * (b->own_memory ? TWIN_SCRATCH / 3 : BE_SCRATCH_PER_THREAD);
    if (b->own_memory && size > TWIN_SCRATCH)
        test_die("scratch of %d threads is larger than TWIN_SCRATCH", b->n_threads);
    be_give_scratch(b, b->own_memory ? twins.device : twin_host_scratch(size), size);
}

static inline void twin_take_scratch(struct be *b)
{
    if (!b->own_memory) munmap(b->scratch, (size_t)b->scratch_size);
}

/* Clears the padding between the fields of args, because the padding may hold an old address. If
 * the compiler has no builtin to clear padding, twin_in does not check for other addresses on the
 * host. */
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
#define TWIN_CLEAR(args) __builtin_clear_padding(args)
#define TWIN_STRICT      1
#else
#define TWIN_CLEAR(args) (void)(args)
#define TWIN_STRICT      0
#endif

/* Tells whether the word is an address in this process, which means that the page at this address
 * is mapped. */
static inline bool twin_is_address(uint64_t word)
{
    unsigned char seen;
    return word >= 4096 && word < (uint64_t)1 << 47 &&
           mincore((void *)(uintptr_t)(word & ~(uint64_t)4095), 1, &seen) == 0;
}

/* Packs a block. Its address in device memory and its address on the host have the same remainder
 * modulo 64. */
static inline void twin_pack(struct twin_block *k)
{
    if (k->packed) return;
    k->packed = true;
    k->offset = (twins.used + 63) / 64 * 64 + (int64_t)((uintptr_t)k->at % 64);
    twins.used = k->offset + k->size + TWIN_GUARD;
    if (twins.used > TWIN_SIZE)
        test_die("the blocks of one call take %lld bytes, TWIN_SIZE is %lld", (long long)twins.used,
                 (long long)TWIN_SIZE);
    memcpy(twins.stage + k->offset, k->at, (size_t)(k->size + TWIN_GUARD));
}

static inline uint64_t twin_word(uint64_t word)
{
    for (int i = 0; i < twins.n; i++) {
        struct twin_block *k = &twins.block[i];
        const uint64_t at = word - (uint64_t)(uintptr_t)k->at;
        if (at >= (uint64_t)k->size + TWIN_GUARD) continue;
        twin_pack(k);
        return (uint64_t)(uintptr_t)twins.device + (uint64_t)k->offset + at;
    }
    CHECK_MSG(!TWIN_STRICT || !twin_is_address(word), "the host's %#llx is given to a device",
              (unsigned long long)word);
    return word;
}

/* The offset of the field in the args that may point to the host's memory. It is -1 if there is no
 * such field. */
#define TWIN_HOST(...)                                                                             \
    _Generic(*(__VA_ARGS__), struct attn_fwd_args                                                  \
             : (int64_t)offsetof(struct attn_fwd_args, drop), struct attn_bwd_args                 \
             : (int64_t)offsetof(struct attn_bwd_args, drop), struct dropout_args                  \
             : (int64_t)offsetof(struct dropout_args, drop), default                               \
             : (int64_t)-1)

/* Returns the args to pass to the call, which are valid until the next call. Also fills the
 * scratch with NaN. */
static inline const void *twin_in(struct be *b, const void *args, size_t size, int64_t host)
{
    if (!b->own_memory) {
        if (madvise(b->scratch, (size_t)b->scratch_size, MADV_DONTNEED) < 0)
            test_die("pages of scratch are not dropped: %s", strerror(errno));
        return args;
    }
    if (size > sizeof twins.args) test_die("an args struct of %zu bytes", size);
    memcpy(twins.args, args, size);
    twins.used = TWIN_SCRATCH;
    for (size_t i = 0; i < size / 8; i++)
        if (host != (int64_t)i * 8) twins.args[i] = twin_word(twins.args[i]);
    b->ops->upload(b, twins.device, twins.stage, twins.used);
    return twins.args;
}

static inline void twin_back(struct be *b)
{
    struct err e = {0};
    if (!b->own_memory) return;
    b->ops->download(b, twins.stage + TWIN_SCRATCH, twins.device + TWIN_SCRATCH,
                     twins.used - TWIN_SCRATCH);
    CHECK_MSG(b->ops->sync(b, &e) == 0, "%s", e.text);
    for (int i = 0; i < twins.n; i++) {
        struct twin_block *k = &twins.block[i];
        if (k->packed) memcpy(k->at, twins.stage + k->offset, (size_t)(k->size + TWIN_GUARD));
        k->packed = false;
    }
}

#endif
