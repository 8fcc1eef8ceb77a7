/* pages.h: allocates memory for which a test can count the pages that were touched. */
#ifndef SEQD_TESTS_PAGES_H
#define SEQD_TESTS_PAGES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "tests/lib/test.h"
#include "worker/plan/plan.h"

/* Allocates whole pages of zeros between two guard pages. Small pages are used, so that a test can
 * tell which parts were touched. */
static inline void *engine_pages(int64_t size)
{
    char *p = mmap(NULL, (size_t)(size + 2 * PLAN_PAGE), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || size % PLAN_PAGE) abort();
    madvise(p, (size_t)(size + 2 * PLAN_PAGE), MADV_NOHUGEPAGE);
    if (mprotect(p, PLAN_PAGE, PROT_NONE) || mprotect(p + PLAN_PAGE + size, PLAN_PAGE, PROT_NONE))
        abort();
    return p + PLAN_PAGE;
}

static inline void engine_unpage(void *p, int64_t size)
{
    munmap((char *)p - PLAN_PAGE, (size_t)(size + 2 * PLAN_PAGE));
}

static inline bool pages_inside(const struct plan_item *it, int64_t at)
{
    return it->name && at + PLAN_PAGE > it->offset && at < it->offset + it->size;
}

/* Counts the pages of the `size` bytes at `base` that were touched, and returns their size in
 * bytes. Checks that every other page is in the item `spare` of the plan. */
static inline int64_t pages_touched(void *base, int64_t size, const struct plan_item *spare)
{
    const int64_t n = size / PLAN_PAGE;
    unsigned char *seen = calloc((size_t)n, 1);
    int64_t bad = 0, touched = 0;
    if (!seen) abort();
    CHECK(mincore(base, (size_t)size, seen) == 0);
    for (int64_t i = 0; i < n; i++) {
        touched += seen[i] & 1;
        bad += !(seen[i] & 1) && !pages_inside(spare, i * PLAN_PAGE);
    }
    CHECK_MSG(bad == 0, "%lld pages were planned and never touched", (long long)bad);
    free(seen);
    return touched * PLAN_PAGE;
}

/* Returns the number of resident bytes of this process's anonymous memory. */
static inline int64_t pages_anonymous(void)
{
    char line[128];
    long long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %lld", &kib) == 1) break;
    if (f) fclose(f);
    return kib * 1024;
}

#endif
