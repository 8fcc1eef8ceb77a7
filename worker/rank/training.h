/* training.h: one training job on one rank, and its work between two steps.
 *   task_train.c       runs the job: open, verify the first step, steps, the end
 *   training_save.c    checkpoints: when to save, the best, pruning, disks that are full
 *   training_bad.c     steps without an update, and returning to a checkpoint
 *   training_eval.c    held-out evaluation, and the proof before the first step
 *   training_report.c  reports: notes and the result
 *   training_curves.c  reports in files that TensorBoard reads
 *
 * Every rank makes every decision, either from numbers that are the same on all ranks, or after
 * rank 0 has told the other ranks. */
#ifndef SEQD_RANK_TRAINING_H
#define SEQD_RANK_TRAINING_H

#include "api/core/artifact.h"
#include "api/core/file.h"
#include "worker/rank/feed.h"
#include "worker/rank/run.h"
#include "worker/rank/tfevents.h"
#include "worker/rank/weights.h"
#include "worker/train/eval.h"
#include "worker/train/train.h"

struct curves { /* rank 0's */
    struct tfevents file;
    char name[ARTIFACT_NAME]; /* "" if no file is written */
    int64_t start;            /* step of a START that must be written before the next record; 0
                               * means that no START is due */
    int64_t flushed_us;       /* time at which the file was last flushed; 0 means never */
    bool any;                 /* there was a record */
    bool failed;              /* set after a failed write; the next write is tried at the next
                               * checkpoint or at the end */
    bool said;                /* the failure was reported; false again after a success */
    bool listed;              /* set once the file is listed as an artifact that is still
                               * growing */
};

struct training {
    struct run *r;
    struct train train;
    struct guard guard;
    struct feed feed;
    int stage; /* stage for which the model is set; STAGE_NONE if it is not set yet */
    struct comm_count want[SPEC_STAGES + 1][PURPOSE_N]; /* for each stage, the counts that a step
                                                         * is expected to have */
    struct comm_count eval_want[PURPOSE_N];
    struct ckpt_state state;
    char spec_json[CKPT_SPEC_SIZE]; /* the text to which state.spec_json points */
    struct ckpt_info last;          /* rank 0: the newest checkpoint; its path is "" before the
                                     * first */
    struct ckpt_info best;          /* rank 0: the checkpoint with the lowest held-out loss; its
                                     * path is "" if there is none */
    struct rank_step step;          /* the newest report */
    struct eval eval;               /* the newest evaluation; its member windows is 0 if this
                                     * attempt has made no evaluation yet */
    int64_t saved_us; /* rank 0: time at which the last checkpoint was completed or, before that,
                       * the attempt began */
    int64_t retry_us; /* rank 0: time of the next attempt to save; 0 if no checkpoint is owed */
    bool owed;        /* a checkpoint could not be written and is still due */
    bool ledger_equal;
    char beside[FILE_PATH_SIZE]; /* rank 0: the same as in struct weights_start */
    struct curves curves;
};
#define STAGE_NONE (-2)

/* ---- saving (training_save.c) ---------------------------------------------------------------- */

/* Sends a note that lists those files of the model's directory that checkpoints do not contain. */
int training_say_left(struct training *t, const struct weights_start *from, struct err *e);
/* On rank 0, asks for a save if a save is due or must be tried again, and asks to leave if SAVE
 * was received. Call it before a step, because the step carries these requests to the other
 * ranks. */
void training_ask(struct training *t);
/* Saves a checkpoint of the last completed step. `best` means that its held-out loss is the lowest
 * so far. `must` means that it is the last checkpoint of the attempt, so the ranks wait while the
 * disk is full, and fail in the end. If `must` is false, an error of the disk only causes a note,
 * and the checkpoint is tried again later. If the checkpoint is too large, it also causes only a
 * note, but is not tried again. Collective. Fails with all other errors. */
int training_save(struct training *t, bool must, bool best, struct err *e);
/* Finds the checkpoint to which the link `best` on disk points. The state has no best checkpoint
 * from then on if its best checkpoint is another one, or if the checkpoint on disk is damaged.
 * Collective. */
int training_find_best(struct training *t, struct err *e);

/* ---- bad steps (training_bad.c) -------------------------------------------------------------- */

/* Reads the guard's rollbacks and marks from guard.json. Collective. */
int training_load_guard(struct training *t, struct err *e);
/* Acts on a step that the guard did not accept. Collective. */
int training_bad_step(struct training *t, struct err *e);
/* Adopts the state of a checkpoint or of a fresh start. */
void training_adopt(struct training *t, const struct weights_start *from);

/* ---- evaluation (training_eval.c) ------------------------------------------------------------ */

bool training_eval_due(const struct training *t);
/* Evaluates. *improved becomes true if the loss is the lowest so far and checkpoint.best asks to
 * keep the checkpoint with the lowest loss. Collective. */
int training_eval(struct training *t, bool *improved, struct err *e);
/* Tells whether the number of bytes of the newest evaluation's targets is known. */
bool training_eval_in_bytes(const struct training *t);
int training_verify_first(struct training *t, struct err *e);

/* ---- words (training_report.c) --------------------------------------------------------------- */

/* A note is an EV_NOTE that rank 0 sends; the other ranks send none. `from` is the step of the
 * checkpoint to which a rollback returns, otherwise -1. */
struct training_note {
    const char *code, *text;
    int64_t step; /* 1-based */
    int64_t from;
    const struct rank_step *numbers; /* loss and norm; NULL if there are none */
};
int training_note(struct training *t, const struct training_note *n, struct err *e);
int training_result(struct training *t, struct err *e);

/* ---- curves (training_curves.c): only rank 0 writes them ------------------------------------ */

/* Each attempt writes a file of its own among the job's artifacts:
 *
 *   artifacts/events.out.tfevents.<seconds since 1970>.<host>.<epoch>
 *
 * It is written at most once a second, and before a checkpoint. The file is listed as an artifact
 * as soon as it exists. While it grows, it is listed without a digest. At the end of the attempt
 * it is listed again with its digest or, if the attempt was killed, the next attempt does this. A
 * listed file with a digest is read-only. If the disk is full, rank 0 sends a note, and tries
 * again at the next checkpoint and at the end. If the buffer becomes full in the meantime, further
 * records are lost. Fails only with the errors of the link. */

/* Names the file. Call it after opening the job and before its first step. */
void training_curves_open(struct training *t);
/* Tells whether the values of the step are written. The values of the last step and of all steps
 * up to 16,383 are written. Between 8,192 * 2^k and 8,192 * 2^(k + 1), those of 8,192 steps at
 * equal distances are written. A record of a step takes less than 256 bytes, which makes 17 MB for
 * a million steps, and 38 MB for a thousand million. Every evaluation is written, because each is
 * also an event. */
bool training_curves_has(int64_t step, int64_t n_steps);
/* Write the values of a step after its report, and the values of an evaluation. */
int training_curves_step(struct training *t, struct err *e);
int training_curves_eval(struct training *t, struct err *e);
/* Syncs the written records, so that they are as durable as the checkpoint that is saved next. */
int training_curves_keep(struct training *t, struct err *e);
/* Records that a rollback has undone steps. TensorBoard then drops the earlier records of the
 * steps that are repeated. */
void training_curves_back(struct training *t);
/* Ends the file. A second call does nothing. */
void training_curves_end(struct training *t);

#endif
