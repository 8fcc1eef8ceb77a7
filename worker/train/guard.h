/* guard.h: decides which optimizer steps change the weights.
 *
 * guard_judge decides when loss and gradient norm of a step are known, before an update that waits
 * for it:
 *   NaN, infinite  guard.nonfinite: fail, skip the update, or roll back: the job returns to its
 *                  last checkpoint (or its initial weights), repeats the same steps, and leaves
 *                  out the update of the bad step
 *   an outlier     guard.loss_z, guard.grad_norm_z: the update is skipped when the value lies more
 *                  than z standard deviations above the mean of recent accepted steps
 * Loss and norm are the same bits on every rank, and so is the verdict. worker/plan/update.h tells
 * which fields can skip the update of a step that was not marked.
 *
 * Mean and deviation are Welford's over the first GUARD_WINDOW accepted steps, and an exponential
 * window of that length after them (each new value has weight 1 / min(n, GUARD_WINDOW)); no step
 * is an outlier among fewer than GUARD_MIN. They start again when a stage begins, since losses of
 * another sequence length differ. After GUARD_STREAK skipped steps in a row, finite values count
 * as the new level, and the windows start again; if the values were NaN or infinite, the job
 * fails.
 *
 * train_state.json of a checkpoint has struct guard_state, so that a resumed run judges like an
 * uninterrupted one. A rollback returns to an older state, which has no record of it. So
 * <job_dir>/guard.json also has the count of rollbacks and the marked steps, and is written before
 * the rollback. tested: tests/engine/test_guard.c */
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
    int64_t streak;  /* skipped steps in a row, up to the last one */
    int64_t rollbacks;
    struct guard_window loss, norm;
};

enum guard_verdict { GUARD_ACCEPT, GUARD_SKIP, GUARD_ROLLBACK, GUARD_FAIL };
enum guard_reason {
    GUARD_NO_REASON,
    GUARD_NONFINITE,
    GUARD_LOSS,   /* an outlier */
    GUARD_NORM,   /* an outlier */
    GUARD_MARKED, /* a rollback has marked this step to be left out */
};

struct guard {
    const struct job_spec *spec; /* borrowed */
    struct guard_state state;
    int64_t mark[GUARD_MARKS]; /* 0-based steps that rollbacks leave out */
    int n_marks;
    enum guard_reason reason; /* reason of the last verdict that was not ACCEPT */
    double z;                 /* GUARD_LOSS, GUARD_NORM: standard deviations above the mean */
};

/* Clears the means if a stage begins at `step`, the next step. */
void guard_begin(struct guard *g, int64_t step);
/* Judges the step with 0-based index `step`, and updates the state. On ROLLBACK the rollback is
 * counted and the step marked; the caller saves (guard_save) and returns to the checkpoint. */
enum guard_verdict guard_judge(struct guard *g, int64_t step, double loss, double norm);

/* Tells whether a rollback leaves this step out, whatever its values. The answer is known before
 * the step is computed. */
bool guard_marked(const struct guard *g, int64_t step);

/* Writes one sentence about the last verdict that was not ACCEPT. */
void guard_sentence(const struct guard *g, int64_t step, double loss, double norm, char *out,
                    size_t size);

/* Returns how many standard deviations x lies above the window's mean: 0 while there are too few
 * values or if x is not above the mean, infinite if all values were equal. */
double guard_z(const struct guard_window *w, double x);

/* Write and read <job_dir>/guard.json: {"version":1,"rollbacks":..,"marks":[..]}. A missing file
 * means that there was no rollback yet. guard_load adds to the contents of g. fails: as err_errno,
 * naming the file; guard_load: ERR_CORRUPT. */
int guard_save(const struct guard *g, const char *job_dir, struct err *e);
int guard_load(struct guard *g, const char *job_dir, struct err *e);

#endif
