/* guard.h: decides which optimizer steps change the weights.
 *
 * guard_judge decides when the loss and the gradient norm of a step are known, before an update
 * that waits for the decision:
 *   NaN, infinite  guard.nonfinite says whether the job fails, skips the update, or rolls back. To
 *                  roll back, the job returns to its last checkpoint (or its initial weights),
 *                  repeats the same steps, and leaves out the update of the bad step
 *   an outlier     guard.loss_z, guard.grad_norm_z: the update is skipped if the value lies more
 *                  than z standard deviations above the mean of recent accepted steps
 * Loss and norm have the same bits on every rank, and so the verdict is the same.
 * worker/plan/update.h lists the fields that can cause a skipped update in a step that was not
 * marked.
 *
 * Mean and deviation are Welford's over the first GUARD_WINDOW accepted steps, and an exponential
 * window of that length after them (each new value has weight 1 / min(n, GUARD_WINDOW)). No step
 * is an outlier while there are fewer than GUARD_MIN values. Both start again when a stage begins,
 * because losses of another sequence length differ. After GUARD_STREAK skipped steps in a row,
 * finite values count as the new level, and the windows start again; if the values were NaN or
 * infinite, the job fails.
 *
 * The file train_state.json of a checkpoint has struct guard_state, so that a resumed run gives
 * the same verdicts as an uninterrupted run. A rollback returns to an older state, which has no
 * record of the rollback. So <job_dir>/guard.json also has the count of rollbacks and the marked
 * steps, and is written before the rollback. tested: tests/engine/test_guard.c */
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
    int64_t skipped; /* number of steps that the guard has skipped so far (train_updates) */
    int64_t streak;  /* number of skipped steps in a row, up to the last step */
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
    int64_t mark[GUARD_MARKS]; /* steps, counted from 0, whose updates rollbacks leave out */
    int n_marks;
    enum guard_reason reason; /* reason of the last verdict that was not ACCEPT */
    double z;                 /* for GUARD_LOSS, GUARD_NORM: standard deviations above the mean */
};

/* Clears the means and deviations if a stage begins at the next step, whose index is `step`. */
void guard_begin(struct guard *g, int64_t step);
/* Judges the step with 0-based index `step`, and updates the state. If the verdict is ROLLBACK,
 * counts the rollback and marks the step. The caller must then save the state (guard_save) and
 * return to the checkpoint. */
enum guard_verdict guard_judge(struct guard *g, int64_t step, double loss, double norm);

/* Tells whether a rollback has marked this step. The update of a marked step is left out, whatever
 * its loss and gradient are, so the answer is known before the step is computed. */
bool guard_marked(const struct guard *g, int64_t step);

/* Writes one sentence about the last verdict that was not ACCEPT. */
void guard_sentence(const struct guard *g, int64_t step, double loss, double norm, char *out,
                    size_t size);

/* Returns the number of standard deviations by which x lies above the window's mean. Returns 0
 * while there are too few values or if x is not above the mean, and infinity if all values were
 * equal. */
double guard_z(const struct guard_window *w, double x);

/* Write and read <job_dir>/guard.json: {"version":1,"rollbacks":..,"marks":[..]}. A missing file
 * means that there was no rollback yet. guard_load adds the file's contents to those of g. Both
 * fail as err_errno does, naming the file; guard_load also with ERR_CORRUPT. */
int guard_save(const struct guard *g, const char *job_dir, struct err *e);
int guard_load(struct guard *g, const char *job_dir, struct err *e);

#endif
