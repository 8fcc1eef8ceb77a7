/* progress.h: the progress of a rank. It is reported when work begins and when it ends. Between
 * these reports it is reported at most once in every_us.
 *
 *     progress_begin(p, PROGRESS_TOKENS, total, from)     starts the clock; is always reported
 *     progress_piece(p, at, size)                         the next piece is units [at, at + size)
 *     progress_part(p, 0.3)                               three tenths of that piece are done
 *     progress_at(p, n)                                   n units are done, at most the total
 *     progress_end(p)                                     all units are done; is always reported
 *
 * Reported progress never falls. If some work is repeated, reports show the old value until the
 * work is past that value.
 *
 * Every function accepts NULL for p, and reports only after progress_begin. So callers need not
 * know whether progress is reported. No function allocates memory. tested:
 * tests/core/test_progress.c */
#ifndef SEQD_CORE_PROGRESS_H
#define SEQD_CORE_PROGRESS_H

#include <stdbool.h>
#include "api/core/rank.h"

#define PROGRESS_EVERY_US 1000000

struct progress {
    /* if it is NULL, progress is only counted */
    void (*tell)(void *arg, const struct rank_progress *now);
    void *arg;
    int64_t every_us; /* shortest time between two reports */
    /* ---- the rest is progress.c's ---- */
    bool begun;
    struct rank_progress now;
    double at;              /* units done so far; now.done is the largest value that `at` has
                             * had */
    double piece_at, piece; /* units */
    int64_t begun_us, told_us;
};

/* Begins work, and reports immediately. `total` is 0 if the total is not known yet. `from` is the
 * number of units that earlier attempts have done. */
void progress_begin(struct progress *p, enum progress_unit unit, double total, double from);
void progress_total(struct progress *p, double total); /* sets the total once it is known */
void progress_at(struct progress *p, double done);
void progress_add(struct progress *p, double units);
double progress_done(const struct progress *p); /* units done; unlike the reported progress, this
                                                 * may fall */
void progress_piece(struct progress *p, double at, double size);
void progress_part(struct progress *p, double part); /* part is the share of the piece that is
                                                      * done, 0 .. 1 */
void progress_tokens(struct progress *p, int64_t n); /* n more tokens were generated */
void progress_end(struct progress *p);

#endif
