/* training.h: one training job on one rank, and its work between two steps.
 *   task_train.c       runs the job: open, verify the first step, steps, the end
 *   training_save.c    checkpoints: when to save, the best, pruning, disks that are full
 *   training_bad.c     steps without an update, and returning to a checkpoint
 *   training_references.c  the references of answers, before the first step
 *   training_eval.c    held-out evaluation, and the proof before the first step
 *   training_report.c  reports: notes and the result
 *   training_curves.c  reports in files that TensorBoard reads
 *
 * All ranks make the same decisions. Some decisions depend only on numbers that are the same
 * on all ranks. Every other decision is made by rank 0, which sends it to the other ranks. */
#ifndef SEQD_RANK_TRAINING_H
#define SEQD_RANK_TRAINING_H

#include "api/core/artifact.h"
#include "api/core/file.h"
#include "worker/ckpt/references.h"
#include "worker/rank/feed.h"
#include "worker/rank/run.h"
#include "worker/rank/tfevents.h"
#include "worker/rank/weights.h"
#include "worker/train/eval.h"
#include "worker/train/train.h"

struct curves { /* rank 0's */
    struct tfevents file;
    char name[ARTIFACT_NAME]; /* "" if no file is written */
    /* Step of the START that must be written before the next record; 0 if no START must be
     * written. */
    int64_t start;
    int64_t flushed_us; /* time at which the file was last flushed; 0 means never */
    bool any;           /* set when a record has been added */
    /* Set after a failed write. The next write is tried at the next checkpoint or at the end. */
    bool failed;
    /* set when a failed write was reported; cleared after a successful write */
    bool said;
    bool listed; /* set when the file has been listed as an artifact that is still growing */
};

struct training {
    struct run *r;
    struct train train;
    struct guard guard;
    struct feed feed;
    int stage; /* stage for which the model was set up; STAGE_NONE if it was not set up for a
                * stage yet */
    struct comm_count want[SPEC_STAGES + 1][PURPOSE_N]; /* for each stage, the counts of
                                                         * messages and bytes that a step
                                                         * should cause on this rank */
    struct comm_count eval_want[PURPOSE_N];
    struct ckpt_state state;
    char spec_json[CKPT_SPEC_SIZE]; /* the text to which state.spec_json points */
    /* the newest checkpoint, on rank 0; its path is "" if there is no checkpoint */
    struct ckpt_info last;
    struct ckpt_info best; /* the checkpoint with the lowest held-out loss, on rank 0; its path
                            * is "" if there is no such checkpoint */
    struct rank_step step; /* the newest report */
    /* the newest evaluation; its n windows is 0 before this attempt's first evaluation */
    struct eval eval;
    /* on rank 0, the time at which the last checkpoint was completed; before the first
     * checkpoint, the time at which the attempt began */
    int64_t saved_us;
    int64_t retry_us; /* on rank 0, the time of the next attempt to save; 0 if no checkpoint is
                       * owed */
    bool owed;        /* set if a checkpoint could not be written and must be tried again */
    bool ledger_equal;
    char beside[FILE_PATH_SIZE]; /* rank 0: the member `beside` of struct weights_start */
    struct base_id base;         /* rank 0: the member `base` of struct weights_start */
    bool wrapped;                /* rank 0: the member `wrapped` of struct weights_start */
    /* The references of answers, on every rank; x is owned. n is 0 if no preferences are learnt. */
    struct references references;
    struct train_source held; /* the pairs of eval.data, whose references are computed, too */
    struct curves curves;
};
#define STAGE_NONE (-2)

/* ---- saving (training_save.c) ---------------------------------------------------------------- */

/* Sends a note that lists those files of the model's directory that are not copied into
 * checkpoints. */
int training_say_left(struct training *t, const struct weights_start *from, struct err *e);
/* On rank 0, sets the request for a save if a save is due or must be tried again, and the
 * request to leave if SAVE was received. Call this function before a step, because the step
 * sends both requests to the other ranks. */
void training_ask(struct training *t);
/* Saves a checkpoint of the last completed step. The parameter `best` is true if the held-out
 * loss of this step is the lowest so far. The parameter `must` is true if this is the last
 * checkpoint of the attempt. If `must` is set and the disk is full, the ranks wait, and fail
 * if the disk remains full. If `must` is not set, an error of the disk only causes a note, and
 * the checkpoint is tried again later. If `must` is not set and the checkpoint is too large,
 * this also causes only a note, but the checkpoint is not tried again. All other errors are
 * returned. Collective. */
int training_save(struct training *t, bool must, bool best, struct err *e);
/* Finds the checkpoint to which the link `best` on disk points. If that checkpoint is not the
 * best checkpoint that the state names, or if it is damaged, removes the best checkpoint from
 * the state. Collective. */
int training_find_best(struct training *t, struct err *e);

/* ---- references (training_references.c) ------------------------------------------------------ */

/* If preferences are learnt, reads the references of the answers from the checkpoint from which the
 * job resumed, or computes them with the weights that the model has now, and reports progress. They
 * are those of the answers that the steps and the evaluations draw. Collective. Fails with
 * ERR_CONFLICT if a checkpoint has none, or too few. */
int training_references(struct training *t, struct err *e);

/* ---- bad steps (training_bad.c) -------------------------------------------------------------- */

/* Reads the guard's rollbacks and marks from guard.json. Collective. */
int training_load_guard(struct training *t, struct err *e);
/* Acts on a step that the guard did not accept. Collective. */
int training_bad_step(struct training *t, struct err *e);
/* Continues with the state of a checkpoint, or with the state of a new training. */
void training_adopt(struct training *t, const struct weights_start *from);

/* ---- evaluation (training_eval.c) ------------------------------------------------------------ */

bool training_eval_due(const struct training *t);
/* Evaluates. *improved becomes true if the loss is the lowest so far and the job asks to keep the
 * best checkpoint (checkpoint.best). If the evaluation ends the training (eval.patience), sends a
 * note with the reason. Collective. */
int training_eval(struct training *t, bool *improved, struct err *e);
/* Returns true if the exponential of the loss has a meaning. The loss of latents is a mean squared
 * error, and that of pairs of answers is no likelihood of tokens. */
bool training_has_ppl(const struct training *t);
/* Writes the member "preferences", with the means over the pairs of this attempt's newest
 * evaluation. Writes nothing if no preferences are learnt, or before the first evaluation. */
void training_write_pairs(struct jwrite *w, const struct training *t);
/* Returns true if the evaluations so far have ended the training (eval.patience). The state of a
 * checkpoint decides it, so it is the same on all ranks and in all attempts. */
bool training_ended_early(const struct training *t);
/* Counts an evaluation after this step in st->low. A loss that is NaN or infinite is not below any,
 * and every finite loss is below it. */
void training_count(struct ckpt_state *st, int64_t step, double loss);
/* If the evaluations so far have ended the training, sends a note with the reason. */
int training_say_ended(struct training *t, struct err *e);
/* Returns true if it is known how many bytes the targets of the newest evaluation have. */
bool training_eval_in_bytes(const struct training *t);
int training_verify_first(struct training *t, struct err *e);

/* ---- words (training_report.c) --------------------------------------------------------------- */

/* A note is an EV_NOTE. Rank 0 sends it, and all other ranks send no note. `from` is the step
 * of the checkpoint to which a rollback returns. It is -1 if there is no rollback. */
struct training_note {
    const char *code, *text;
    int64_t step; /* 1-based */
    int64_t from;
    const struct rank_step *numbers; /* loss and norm of the step; NULL if the note has no such
                                      * numbers */
};
int training_note(struct training *t, const struct training_note *n, struct err *e);
int training_result(struct training *t, struct err *e);

/* ---- curves (training_curves.c): only rank 0 writes them ------------------------------------ */

/* Each attempt writes a separate file among the job's artifacts:
 *
 *   artifacts/events.out.tfevents.<seconds since 1970>.<host>.<epoch>
 *
 * The file is written at most once a second, and before each checkpoint. It is listed as an
 * artifact as soon as it exists. While it grows, it is listed without a digest. At the end of
 * the attempt it is listed again with its digest. If the attempt was killed, the next attempt
 * lists the file with its digest. A file that is listed with a digest is read-only. If the
 * disk is full, rank 0 sends a note, and tries again at the next checkpoint and at the end. If
 * the buffer becomes full in the meantime, further records are lost. The functions fail only
 * with the errors of the link. */

/* Chooses the name of the file. Call this function after the job was opened and before the
 * first step. */
void training_curves_open(struct training *t);
/* Returns true if the values of the step must be written. The values of all steps up to 16,383
 * and of the last step are written. Between steps 8,192 * 2^k and 8,192 * 2^(k + 1), 8,192
 * steps at equal distances are written. The record of a step takes less than 256 bytes, so a
 * file has at most 17 MB for a million steps, and 38 MB for a thousand million steps. With pairs of
 * answers a record takes less than 384 bytes. This
 * function does not apply to evaluations: every evaluation is written, because each evaluation
 * is also an event. */
bool training_curves_has(int64_t step, int64_t n_steps);
/* training_curves_step writes the values of a step, after the report of the step.
 * training_curves_eval writes the values of an evaluation. */
int training_curves_step(struct training *t, struct err *e);
int training_curves_eval(struct training *t, struct err *e);
/* Syncs the written records, so that they survive a power failure. Call this function before a
 * checkpoint is saved. */
int training_curves_keep(struct training *t, struct err *e);
/* Records that a rollback has undone steps. Because of this record, TensorBoard drops its
 * earlier records of the steps that are repeated. */
void training_curves_back(struct training *t);
/* Ends the file. A second call does nothing. */
void training_curves_end(struct training *t);

#endif
