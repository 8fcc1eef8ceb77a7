/* steps.h: the directories of a job's checkpoints/, by name: lists them, marks the best one, and
 * removes old ones.
 *
 *   step-00000500         a checkpoint, complete unless a disk lied (worker/ckpt/ckpt.h)
 *   step-00000500.e3.tmp  one that attempt 3 was writing
 *   step-00000500.bad     one that was found damaged and moved aside
 *   best -> step-00000500 a symbolic link, replaced by a rename: the lowest held-out loss
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

/* Parses a name. False: it is of none of these kinds. epoch (may be NULL): set for a STEP_TMP. */
bool steps_parse(const char *name, enum step_dir_kind *kind, int64_t *step, int64_t *epoch);

/* Lists the STEP_WHOLE directories of dir, newest first; the caller frees. Each other one is given
 * to `aside` with its path (NULL: passed over). A missing directory counts as empty. */
struct steps_aside {
    int (*call)(void *arg, enum step_dir_kind kind, const struct step_dir *d, const char *path,
                struct err *e);
    void *arg;
};
int steps_list(const char *dir, const struct steps_aside *aside, struct step_dir **out, int *n,
               struct err *e);

struct ckpt_keep {
    int newest;    /* complete ones that stay, at least 1 */
    int64_t every; /* and those whose step is divisible by it; 0: none */
    /* Called for each complete one before it is removed, so that no kill leaves one removed without
     * a call. NULL: no caller asks. A failure keeps it, and ends the pruning. */
    int (*removing)(void *arg, int64_t step, const char *path, struct err *e);
    void *arg;
};

/* Removes from <job_dir>/checkpoints the complete step directories that `keep` does not name and
 * `best` does not point at, .tmp directories of epochs before `epoch`, and .bad ones that are no
 * newer than the newest complete one. Completeness here is manifest and sizes; the newest complete
 * one is never removed, nor is anything newer than it. */
int ckpt_prune(const char *job_dir, const struct ckpt_keep *keep, int64_t epoch, struct err *e);

/* Points `best` at a step. */
int ckpt_mark_best(const char *job_dir, int64_t step, struct err *e);
/* Returns the step that `best` points at, if the step exists; -1: there is none. */
int64_t ckpt_best(const char *job_dir);

#endif
