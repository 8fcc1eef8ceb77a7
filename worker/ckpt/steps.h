/* steps.h: lists the directories in a job's checkpoints/ by name, marks the best checkpoint, and
 * removes old checkpoints.
 *
 *   step-00000500         a checkpoint; it is complete unless the disk has lost a write (ckpt.h)
 *   step-00000500.e3.tmp  a checkpoint that the attempt of epoch 3 was writing; with e0, a
 *                         checkpoint that is being removed
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
    int64_t step, epoch; /* epoch is set for a STEP_TMP */
    char name[64];
};

/* Parses a name. Returns false if the name has none of the forms above. The parameter `epoch`
 * may be NULL. If it is not NULL, *epoch becomes the epoch in the name of a STEP_TMP, and -1
 * for all other kinds. */
bool steps_parse(const char *name, enum step_dir_kind *kind, int64_t *step, int64_t *epoch);

/* Lists the STEP_WHOLE directories of dir, newest first. The caller frees *out. If `aside` is
 * not NULL, calls it with the path of each STEP_TMP and STEP_BAD. A directory that does not
 * exist is treated as an empty directory. */
struct steps_aside {
    int (*call)(void *arg, enum step_dir_kind kind, const struct step_dir *d, const char *path,
                struct err *e);
    void *arg;
};
int steps_list(const char *dir, const struct steps_aside *aside, struct step_dir **out, int *n,
               struct err *e);

struct ckpt_keep {
    int newest; /* number of the newest complete checkpoints to keep, at least 1 */
    /* checkpoints whose step is a multiple of `every` are kept, too; 0 means that no further
     * checkpoints are kept */
    int64_t every;
    /* Called before each removal of a complete checkpoint. Because the call comes first, no
     * checkpoint is removed without it, even if the process is killed. The pointer may be
     * NULL. If the call fails, the checkpoint is not removed and the pruning ends. */
    int (*removing)(void *arg, int64_t step, const char *path, struct err *e);
    void *arg;
};

/* Removes three kinds of directories from <job_dir>/checkpoints. The first kind is complete
 * checkpoints that `keep` does not keep, except the checkpoint to which the link `best`
 * points. The second kind is .tmp directories of epochs before `epoch`. The third kind is .bad
 * directories whose step is not newer than the newest complete checkpoint. This function
 * treats a checkpoint as complete if its manifest and the sizes of its files are right. The
 * newest complete checkpoint is never removed. An incomplete checkpoint with a final name is
 * never removed either. */
int ckpt_prune(const char *job_dir, const struct ckpt_keep *keep, int64_t epoch, struct err *e);

/* Points `best` at a step. */
int ckpt_mark_best(const char *job_dir, int64_t step, struct err *e);
/* Returns the step of the checkpoint to which the link `best` points. Returns -1 if there is
 * no such checkpoint. */
int64_t ckpt_best(const char *job_dir);

#endif
