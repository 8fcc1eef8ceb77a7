/* steps.h: lists the directories of a job's checkpoints/ by name, marks the best one, and removes
 * old ones.
 *
 *   step-00000500         a checkpoint, complete unless the disk lost a write (worker/ckpt/ckpt.h)
 *   step-00000500.e3.tmp  a checkpoint that the attempt of epoch 3 was writing; with e0, one that
 *                         is being removed
 *   step-00000500.bad     a damaged checkpoint
 *   best -> step-00000500 a symbolic link to the checkpoint with the lowest held-out loss; it is
 *                         replaced by a rename
 *
 * tested: tests/engine/test_ckpt.c */
#ifndef SEQD_CKPT_STEPS_H
#define SEQD_CKPT_STEPS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

enum step_dir_kind { STEP_WHOLE, STEP_TMP, STEP_BAD };

struct step_dir {
    int64_t step, epoch; /* epoch: set for a STEP_TMP */
    char name[64];
};

/* Parses a name. Returns false if the name is of none of these kinds. *epoch, which may be NULL,
 * becomes -1 unless the kind is STEP_TMP. */
bool steps_parse(const char *name, enum step_dir_kind *kind, int64_t *step, int64_t *epoch);

/* Lists the STEP_WHOLE directories of dir, newest first. The caller frees *out. Calls `aside`,
 * unless it is NULL, with the path of each STEP_TMP and STEP_BAD. A missing directory counts as
 * empty. */
struct steps_aside {
    int (*call)(void *arg, enum step_dir_kind kind, const struct step_dir *d, const char *path,
                struct err *e);
    void *arg;
};
int steps_list(const char *dir, const struct steps_aside *aside, struct step_dir **out, int *n,
               struct err *e);

struct ckpt_keep {
    int newest;    /* number of the newest complete checkpoints that are kept, at least 1 */
    int64_t every; /* checkpoints whose step is a multiple of this are also kept; 0 means none */
    /* Called before each removal of a complete checkpoint, so that no checkpoint is removed
     * without this call even if the process is killed. May be NULL. If the call fails, the
     * checkpoint is not removed and the pruning ends. */
    int (*removing)(void *arg, int64_t step, const char *path, struct err *e);
    void *arg;
};

/* Removes three kinds of directories from <job_dir>/checkpoints: complete checkpoints that `keep`
 * does not keep and `best` does not point to; .tmp directories of epochs before `epoch`; .bad
 * directories whose step is not newer than the newest complete one. Here a checkpoint counts as
 * complete if its manifest and the sizes of its files are right. The newest complete checkpoint is
 * never removed, nor are incomplete ones under a final name. */
int ckpt_prune(const char *job_dir, const struct ckpt_keep *keep, int64_t epoch, struct err *e);

/* Points `best` at a step. */
int ckpt_mark_best(const char *job_dir, int64_t step, struct err *e);
/* Returns the step that `best` points to, if that step exists, or -1 if there is none. */
int64_t ckpt_best(const char *job_dir);

#endif
