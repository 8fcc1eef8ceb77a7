/* told.h: records every progress report of a task. */
#ifndef SEQD_TESTS_TOLD_H
#define SEQD_TESTS_TOLD_H

#include "api/core/progress.h"
#include "tests/lib/test.h"

struct told {
    struct progress p;
    int n; /* reports */
    /* the number of reports that are neither at the beginning nor at the end */
    int n_inside;
    struct rank_progress at, was; /* `at` is the last report, and `was` is the first one */
    /* `fell` means that a report was lower than the one before it; `beyond` means that a report
     * exceeded the total */
    bool fell, beyond, parted; /* `parted`: a report had a part of a unit */
};

static inline void told_take(void *arg, const struct rank_progress *now)
{
    struct told *t = arg;
    t->fell |= t->n && now->done < t->at.done;
    t->beyond |= now->total > 0 && now->done > now->total;
    t->parted |= now->done != (double)(int64_t)now->done;
    t->n_inside += now->done > now->from && now->done < now->total;
    if (!t->n++) t->was = *now;
    t->at = *now;
}

static inline void told_open(struct told *t)
{
    *t = (struct told){.p = {.tell = told_take}};
    t->p.arg = t;
}

/* Checks that the first report is `from`, that reports never decrease, and that the last report is
 * `total`. */
static inline void told_check(const struct told *t, int unit, double from, double total)
{
    CHECK_MSG(t->at.unit == unit && t->was.done == from && t->was.from == from, "unit %d from %g",
              t->at.unit, t->was.done);
    CHECK_MSG(t->at.done == total && t->at.total == total, "ends at %g of %g, want %g", t->at.done,
              t->at.total, total);
    CHECK_MSG(!t->fell && !t->beyond, "of %d times once backwards or too far", t->n);
}

#endif
