/* pages.c: keeps the pages of closed models and rings for later ones. A fault of a page takes 2
 * microseconds, and a test program may open thousands of models of megabytes. */
#include "tests/lib/pages.h"
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* A process keeps at most 24 mappings of at most 32 MiB. */
enum { KEPT = 24, KEPT_SIZE = 32 << 20 };

/* A mapping between two guard pages. Bytes that are not given away have no access. */
struct mapping {
    char *at;
    int64_t size; /* without the guard pages */
    int memfd;    /* -1 if the pages are private */
};

static struct kept {
    struct mapping m; /* m.at is NULL if the entry is empty */
    bool given;
} kept[KEPT];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Uses small pages, so that a test can tell which parts were touched. */
static struct mapping map(int64_t size, bool shared)
{
    struct mapping m = {.size = size, .memfd = -1};
    char *p = mmap(NULL, (size_t)(size + 2 * PLAN_PAGE), PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) abort();
    m.at = p + PLAN_PAGE;
    if (shared) {
        m.memfd = memfd_create("seqd-test", MFD_CLOEXEC);
        if (m.memfd < 0 || ftruncate(m.memfd, size)) abort();
        if (mmap(m.at, (size_t)size, PROT_NONE, MAP_SHARED | MAP_FIXED, m.memfd, 0) != m.at)
            abort();
    }
    madvise(m.at, (size_t)size, MADV_NOHUGEPAGE);
    return m;
}

static void unmap(const struct mapping *m)
{
    munmap(m->at - PLAN_PAGE, (size_t)(m->size + 2 * PLAN_PAGE));
    if (m->memfd >= 0) close(m->memfd);
}

static void set_access(char *p, int64_t size, int access)
{
    if (mprotect(p, (size_t)size, access)) abort();
}

/* Writes zeros to the pages that are resident, and drops the others, which were never touched or
 * were swapped out. */
static void clear(char *p, int64_t size, bool shared)
{
    static unsigned char seen[KEPT_SIZE / PLAN_PAGE];
    const int64_t pages = size / PLAN_PAGE;
    if (mincore(p, (size_t)size, seen)) abort();
    for (int64_t i = 0, n; i < pages; i += n) {
        for (n = 1; i + n < pages && !((seen[i + n] ^ seen[i]) & 1); n++)
            ;
        char *at = p + i * PLAN_PAGE;
        const size_t bytes = (size_t)(n * PLAN_PAGE);
        if (seen[i] & 1)
            memset(at, 0, bytes);
        else if (madvise(at, bytes, shared ? MADV_REMOVE : MADV_DONTNEED))
            abort();
    }
}

/* Returns the smallest free entry with room. If there is none, returns the free entry with the
 * smallest mapping, or none. NULL means that no entry is free. */
static struct kept *find(int64_t size, bool shared)
{
    struct kept *best = NULL;
    bool best_fits = false;
    for (struct kept *k = kept; k < kept + KEPT; k++) {
        if (k->given) continue;
        const bool fits = k->m.size >= size && (k->m.memfd >= 0) == shared;
        if (!best || (fits && !best_fits) || (fits == best_fits && k->m.size < best->m.size))
            best = k, best_fits = fits;
    }
    return best;
}

/* Gives the entry a mapping with room. */
static void prepare(struct kept *k, int64_t size, bool shared)
{
    const bool used = k->m.size >= size && (k->m.memfd >= 0) == shared;
    if (!used) {
        if (k->m.at) unmap(&k->m);
        k->m = map(size, shared);
    }
    set_access(k->m.at, size, PROT_READ | PROT_WRITE);
    if (used) clear(k->m.at, size, k->m.memfd >= 0);
    k->given = true;
}

static struct mapping take(int64_t size, bool shared)
{
    struct kept *k = NULL;
    if (size <= 0 || size % PLAN_PAGE) abort();
    if (!SANITIZED && !test_fresh_memory && size <= KEPT_SIZE) {
        pthread_mutex_lock(&lock);
        k = find(size, shared);
        if (k) prepare(k, size, shared);
        pthread_mutex_unlock(&lock);
        if (k) return k->m;
    }
    const struct mapping m = map(size, shared);
    set_access(m.at, size, PROT_READ | PROT_WRITE);
    return m;
}

/* Takes the access from pages that are kept, so that their use after the model's end causes a
 * fault. */
static void give_back(const struct mapping *m)
{
    pthread_mutex_lock(&lock);
    for (struct kept *k = kept; k < kept + KEPT; k++) {
        if (!k->given || k->m.at != m->at) continue;
        set_access(m->at, m->size, PROT_NONE);
        k->given = false;
        pthread_mutex_unlock(&lock);
        return;
    }
    pthread_mutex_unlock(&lock);
    unmap(m);
}

void *engine_pages(int64_t size)
{
    return take(size, false).at;
}

void engine_unpage(void *p, int64_t size)
{
    give_back(&(struct mapping){p, size, -1});
}

void *engine_shared(int64_t size, int *memfd)
{
    const struct mapping m = take(size, true);
    *memfd = m.memfd;
    return m.at;
}

void engine_unshare(void *p, int64_t size, int memfd)
{
    give_back(&(struct mapping){p, size, memfd});
}
