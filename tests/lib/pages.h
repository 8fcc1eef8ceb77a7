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
 * tell which parts were touched. The pages may have been those of a closed model, unless
 * test_fresh_memory is set. `size` is a multiple of PLAN_PAGE. */
void *engine_pages(int64_t size);

/* Frees pages of engine_pages, or keeps them for a later model. A later access causes a fault. */
void engine_unpage(void *p, int64_t size);

/* Do the same with pages that processes can share. `memfd` is their descriptor, which belongs to
 * the pages, and `p` is the begin of its file. The file may be larger than `size`. */
void *engine_shared(int64_t size, int *memfd);

void engine_unshare(void *p, int64_t size, int memfd);

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
    CHECK(test_fresh_memory); /* otherwise a closed model may have touched them */
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
