/* guard.h: decides which optimizer steps change the weights.
 *
 * guard_judge decides when the loss and the gradient norm of a step are known. An update that can
 * be skipped waits for the decision:
 *   NaN, infinite  guard.nonfinite says whether the job fails, skips the update, or rolls back. To
 *                  roll back, the job returns to its last checkpoint (or its initial weights),
 *                  repeats the same steps, and leaves out the update of the bad step
 *   an outlier     guard.loss_z, guard.grad_norm_z: the update is skipped if the value is more
 *                  than z standard deviations above the mean of recent accepted steps
 * Loss and norm have the same bits on every rank, so every rank gets the same verdict. A step can
 * be skipped although no rollback has marked it; worker/plan/update.h lists the fields of the job
 * that make this possible.
 *
 * Mean and deviation come from the accepted steps. Value n has the weight 1 / min(n,
 * GUARD_WINDOW): this is Welford's recurrence for the first GUARD_WINDOW values, and an
 * exponential window of that length afterwards. No step is an outlier while there are fewer than
 * GUARD_MIN values. Mean and deviation start again when a stage begins, because the loss changes
 * with the sequence length. After GUARD_STREAK skipped steps in a row, a finite value counts as
 * the new level, and mean and deviation start again with it. If the value is NaN or infinite, the
 * job fails.
 *
 * The file train_state.json of a checkpoint has struct guard_state, so that a resumed run gives
 * the same verdicts as an uninterrupted run. A rollback returns to an older state, which does not
 * record the rollback. So the count of rollbacks and the marked steps are also in
 * <job_dir>/guard.json, which is written before the rollback. tested: tests/engine/test_guard.c */
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
    int64_t n; /* number of values that were accepted so far */
    double mean, var;
};

struct guard_state {
    int64_t skipped; /* number of steps that the guard has skipped so far (train_updates) */
    int64_t streak;  /* number of skipped steps in a row, counted back from the last step */
    int64_t rollbacks;
    struct guard_window loss, norm;
};

enum guard_verdict { GUARD_ACCEPT, GUARD_SKIP, GUARD_ROLLBACK, GUARD_FAIL };
enum guard_reason {
    GUARD_NO_REASON,
    GUARD_NONFINITE,
    GUARD_LOSS,   /* an outlier */
    GUARD_NORM,   /* an outlier */
    GUARD_MARKED, /* a rollback has marked this step, whose update must be left out */
};

struct guard {
    const struct job_spec *spec; /* borrowed */
    struct guard_state state;
    int64_t mark[GUARD_MARKS]; /* indices, from 0, of the steps whose updates are left out */
    int n_marks;
    enum guard_reason reason; /* reason of the last verdict that was not ACCEPT */
    double z;                 /* GUARD_LOSS, GUARD_NORM: standard deviations above the mean */
};

/* Clears the means and deviations if the next step is the first of a stage. `step` is the index of
 * the next step. */
void guard_begin(struct guard *g, int64_t step);
/* Judges the step with 0-based index `step`, and updates the state. If the verdict is ROLLBACK,
 * counts the rollback and marks the step. The caller must then save the state (guard_save) and
 * return to the checkpoint. */
enum guard_verdict guard_judge(struct guard *g, int64_t step, double loss, double norm);

/* Tells whether a rollback has marked this step. The update of a marked step is left out, whatever
 * its loss and gradient are. So the answer is known before the step is computed. */
bool guard_marked(const struct guard *g, int64_t step);

/* Writes one sentence about the last verdict that was not ACCEPT. */
void guard_sentence(const struct guard *g, int64_t step, double loss, double norm, char *out,
                    size_t size);

/* Returns how many standard deviations x is above the window's mean. Returns 0 if there are too
 * few values, or if x is not above the mean. Returns infinity if x is above the mean and all
 * values were equal. */
double guard_z(const struct guard_window *w, double x);

/* Write and read <job_dir>/guard.json: {"version":1,"rollbacks":..,"marks":[..]}. A missing file
 * means that there was no rollback yet. guard_load adds the rollbacks and marks of the file to the
 * rollbacks and marks in g. Both functions fail as err_errno does, and the error names the file.
 * guard_load also fails with ERR_CORRUPT. */
int guard_save(const struct guard *g, const char *job_dir, struct err *e);
int guard_load(struct guard *g, const char *job_dir, struct err *e);

#endif
