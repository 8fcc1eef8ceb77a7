/* training.h: one training job on one rank, and its work between two steps.
 *
 *   task_train.c       its life: open, first step verified, steps, the end
 *   training_save.c    checkpoints: when, the best, pruning, disks that are full
 *   training_bad.c     steps without an update, and going back
 *   training_eval.c    held-out evaluation, and the proof before the first step
 *   training_report.c  reports: notes and the result
 *   training_curves.c  reports in files that TensorBoard reads
 *
 * Every rank takes every decision: from numbers that are the same on all of them, or after rank 0
 * has told the others. */
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
    char name[ARTIFACT_NAME]; /* "": no file is written */
    int64_t start;            /* a START of this step comes before the next record; 0: none */
    int64_t flushed_us;       /* when the file was last flushed; 0: never */
    bool any;                 /* there was a record */
    bool failed;              /* no write is tried before the next checkpoint or the end */
    bool said;                /* the failure was reported; false again after a success */
    bool listed;              /* the file is listed, as an artifact that grows */
};

struct training {
    struct run *r;
    struct train train;
    struct guard guard;
    struct feed feed;
    int stage; /* the model is set for this stage; STAGE_NONE: none yet */
    struct comm_count want[SPEC_STAGES + 1][PURPOSE_N]; /* counts of a step in each stage */
    struct comm_count eval_want[PURPOSE_N];
    struct ckpt_state state;
    char spec_json[CKPT_SPEC_SIZE]; /* the text at state.spec_json */
    struct ckpt_info last;          /* rank 0: the newest checkpoint; path "" before the first */
    struct ckpt_info best;          /* rank 0: its held-out loss is the lowest; path "" when none */
    struct rank_step step;          /* the newest report */
    struct eval eval;               /* the newest evaluation; windows 0: none in this attempt */
    int64_t saved_us; /* rank 0: when the last checkpoint was complete, or the attempt began */
    int64_t retry_us; /* rank 0: when to try again to save; 0: no checkpoint is owed */
    bool owed;        /* a checkpoint could not be written and is still due */
    bool ledger_equal;
    char beside[FILE_PATH_SIZE]; /* rank 0: as in struct weights_start */
    struct curves curves;
};
#define STAGE_NONE (-2)

/* ---- saving (training_save.c) ---------------------------------------------------------------- */

/* Sends a note that lists the files of the model's directory that checkpoints go without. */
int training_say_left(struct training *t, const struct weights_start *from, struct err *e);
/* Asks, on rank 0, for a save when the clock calls for one or for another try, and for leaving
 * when SAVE was received. Call it before a step, which tells the others. */
void training_ask(struct training *t);
/* Saves a checkpoint of the last completed step. best: its held-out loss is the lowest so far.
 * must: it is the attempt's last one, so the ranks wait while the disk is full, and fail in the
 * end. Otherwise an error of the disk gives a note, and the checkpoint is owed; a checkpoint that
 * is too large gives a note alone. Collective. fails: all other errors. */
int training_save(struct training *t, bool must, bool best, struct err *e);
/* Finds the checkpoint that `best` names on disk, if the state that the job resumed from names it
 * too; else the state has no best any more. Collective. */
int training_find_best(struct training *t, struct err *e);

/* ---- bad steps (training_bad.c) -------------------------------------------------------------- */

/* Reads the guard's rollbacks and marks from guard.json. Collective. */
int training_load_guard(struct training *t, struct err *e);
/* Acts on a step that was not accepted. Collective. */
int training_bad_step(struct training *t, struct err *e);
/* Takes over the state of a checkpoint or of a fresh start. */
void training_adopt(struct training *t, const struct weights_start *from);

/* ---- evaluation (training_eval.c) ------------------------------------------------------------ */

bool training_eval_due(const struct training *t);
/* Evaluates. *improved: the loss is the lowest so far, and checkpoint.best wants it kept.
 * Collective. */
int training_eval(struct training *t, bool *improved, struct err *e);
/* Tells whether the bytes of the newest evaluation's targets are known. */
bool training_eval_in_bytes(const struct training *t);
int training_verify_first(struct training *t, struct err *e);

/* ---- words (training_report.c) --------------------------------------------------------------- */

/* A note is an EV_NOTE by rank 0; the others send none. from: the checkpoint's step of a rollback,
 * else -1. */
struct training_note {
    const char *code, *text;
    int64_t step; /* 1-based */
    int64_t from;
    const struct rank_step *numbers; /* loss and norm; NULL: none */
};
int training_note(struct training *t, const struct training_note *n, struct err *e);
int training_result(struct training *t, struct err *e);

/* ---- curves (training_curves.c): written by rank 0 alone ------------------------------------- */

/* Each attempt writes a file of its own among the job's artifacts:
 *
 *   artifacts/events.out.tfevents.<seconds since 1970>.<host>.<epoch>
 *
 * at most once a second, and before a checkpoint. It is listed when it exists, without a digest
 * while it grows, and again with its digest at the end of the attempt; the next attempt lists the
 * file of an attempt that was killed. A listed file with a digest is read-only. If the disk is full
 * rank 0 sends a note and tries again at the next checkpoint and at the end: records without room
 * in the buffer until then are missing. fails: the link's errors alone. */

/* Names the file. Call it between opening and the first step. */
void training_curves_open(struct training *t);
/* Tells whether the step is written. All up to 16,383 are, and the last. Between 8,192 * 2^k and
 * 8,192 * 2^(k + 1) there are 8,192 at equal distances. A record of a step takes less than 256
 * bytes: 17 MB for a million steps, 38 MB for a thousand million. Every evaluation is written, as
 * each is an event. */
bool training_curves_has(int64_t step, int64_t n_steps);
/* Write the values of a step after its report, and those of an evaluation. */
int training_curves_step(struct training *t, struct err *e);
int training_curves_eval(struct training *t, struct err *e);
/* Makes the written records as durable as the checkpoint that follows. */
int training_curves_keep(struct training *t, struct err *e);
/* Notes that steps were taken back: TensorBoard drops the steps that come again. */
void training_curves_back(struct training *t);
/* Ends the file; a second call does nothing. */
void training_curves_end(struct training *t);

#endif
