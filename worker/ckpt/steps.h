/* steps.h: the directories of a job's checkpoints/, by name: lists them, marks the best one, and
 * removes old ones.
 *
 *   step-00000500         a checkpoint, complete unless a disk lied (worker/ckpt/ckpt.h)
 *   step-00000500.e3.tmp  a checkpoint that attempt 3 was writing; e0: in removal
 *   step-00000500.bad     a damaged checkpoint, moved aside
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

/* Parses a name. Returns false if it is of none of these kinds. *epoch becomes -1 unless it is a
 * STEP_TMP; epoch may be NULL. */
bool steps_parse(const char *name, enum step_dir_kind *kind, int64_t *step, int64_t *epoch);

/* Lists the STEP_WHOLE directories of dir, newest first; the caller frees *out. Calls `aside`,
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
    int newest;    /* number of newest complete checkpoints that stay; at least 1 */
    int64_t every; /* checkpoints whose step it divides stay too; 0: none */
    /* Called before a complete checkpoint is removed: even after a kill, each removed one has had
     * its call. NULL: not called. If it fails, the checkpoint stays and the pruning ends. */
    int (*removing)(void *arg, int64_t step, const char *path, struct err *e);
    void *arg;
};

/* Removes three kinds of directories from <job_dir>/checkpoints: complete ones that `keep` does
 * not name and `best` does not point at; .tmp ones of epochs before `epoch`; .bad ones that are no
 * newer than the newest complete one. A directory is complete here if its manifest and the sizes
 * of its files are right. The newest complete one stays. So does an incomplete one, unless it is a
 * .tmp or a .bad as above. */
int ckpt_prune(const char *job_dir, const struct ckpt_keep *keep, int64_t epoch, struct err *e);

/* Points `best` at a step. */
int ckpt_mark_best(const char *job_dir, int64_t step, struct err *e);
/* Returns the step that `best` points at, if the step exists; -1: there is none. */
int64_t ckpt_best(const char *job_dir);

#endif
