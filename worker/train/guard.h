/* guard.h: decides which optimizer steps change the weights.
 *
 * After loss and gradient norm of a step are known, and before an update that waits, guard_judge
 * decides:
 *   no number      guard.nonfinite: fail, skip the update, or roll back: the job goes back to its
 *                  last checkpoint (or its initial weights), does the same steps again and leaves
 *                  out the update of the bad one
 *   an outlier     guard.loss_z, guard.grad_norm_z: the update is skipped when the value lies more
 *                  than z deviations above the mean of recent accepted steps
 * Loss and norm are the same bits on every rank, and so is the verdict. worker/plan/update.h tells
 * which fields can skip the update of a step that was not marked.
 *
 * Mean and deviation are Welford's over the first GUARD_WINDOW accepted steps, and an exponential
 * window of that length after them (each new value has weight 1 / min(n, GUARD_WINDOW)); no step is
 * an outlier among fewer than GUARD_MIN. They start again with a stage, whose losses are of another
 * length. GUARD_STREAK skipped steps in a row are no accident: if their values were numbers, they
 * are the new level, and the windows start again; if not, the job fails.
 *
 * The state that is kept: struct guard_state travels in train_state.json, so that a resumed run
 * judges as the undisturbed one. A rollback goes to an older train state, which knows nothing of
 * it; therefore the count of rollbacks and the marked steps also lie in <job_dir>/guard.json,
 * written before the rollback happens. tested: tests/engine/test_guard.c */
#ifndef SEQD_TRAIN_GUARD_H
#define SEQD_TRAIN_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct job_spec;

#define GUARD_WINDOW 64
#define GUARD_MIN    16
#define GUARD_STREAK 32
#define GUARD_MARKS  1000 /* highest value of guard.rollbacks */

struct guard_window {
    int64_t n; /* accepted values so far */
    double mean, var;
};

struct guard_state {
    int64_t skipped; /* steps that the guard has skipped so far (train_updates) */
    int64_t streak;  /* skipped steps in a row up to now */
    int64_t rollbacks;
    struct guard_window loss, norm;
};

enum guard_verdict { GUARD_ACCEPT, GUARD_SKIP, GUARD_ROLLBACK, GUARD_FAIL };
enum guard_reason {
    GUARD_NO_REASON,
    GUARD_NONFINITE,
    GUARD_LOSS,   /* an outlier */
    GUARD_NORM,   /* an outlier */
    GUARD_MARKED, /* a rollback left this step out */
};

struct guard {
    const struct job_spec *spec; /* borrowed */
    struct guard_state state;
    int64_t mark[GUARD_MARKS]; /* 0-based steps that rollbacks leave out */
    int n_marks;
    enum guard_reason reason; /* reason of the last verdict that was not ACCEPT */
    double z;                 /* GUARD_LOSS, GUARD_NORM: deviations above the mean */
};

/* Forgets the means if a stage begins at `step`, the step that comes next. */
void guard_begin(struct guard *g, int64_t step);
/* Judges the step with 0-based index `step` and takes it into account. A ROLLBACK is counted and
 * marked on return; the caller saves (guard_save) and goes back. */
enum guard_verdict guard_judge(struct guard *g, int64_t step, double loss, double norm);

/* Tells whether a rollback leaves this step out, whatever its values. This is known before the step
 * is computed. */
bool guard_marked(const struct guard *g, int64_t step);

/* Writes one sentence about the last verdict that was not ACCEPT. */
void guard_sentence(const struct guard *g, int64_t step, double loss, double norm, char *out,
                    size_t size);

/* Returns the deviations of x above the window's mean: 0 while there are too few values or x is
 * not above it, infinite if the values have not varied. */
double guard_z(const struct guard_window *w, double x);

/* Write and read <job_dir>/guard.json: {"version":1,"rollbacks":..,"marks":[..]}. A missing file
 * means that there was no rollback yet; loading adds to g. fails: as err_errno, naming the
 * file; guard_load: ERR_CORRUPT. */
int guard_save(const struct guard *g, const char *job_dir, struct err *e);
int guard_load(struct guard *g, const char *job_dir, struct err *e);

#endif
