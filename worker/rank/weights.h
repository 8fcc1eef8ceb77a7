/* weights.h: finds and loads a job's weights. Rank 0 decides and reads; the others get the same
 * bytes over the ring, so that all ranks agree even if files change meanwhile or exist on rank 0's
 * node alone. The sources are tried in this order:
 *
 *   train   the newest whole checkpoint of this job (unless checkpoint.resume is "none"), then
 *           checkpoint.resume's directory, then as the others
 *   others  random where spec_random_weights(), else model.path */
#ifndef SEQD_RANK_WEIGHTS_H
#define SEQD_RANK_WEIGHTS_H

#include "api/core/file.h"
#include "worker/ckpt/ckpt.h"
#include "worker/rank/run.h"
#include "worker/train/sharded_state.h"

struct weights_start {
    struct ckpt_state state; /* zero unless resumed; the same on every rank */
    struct ckpt_info info;   /* rank 0: the checkpoint resumed from; path "" when none */
    /* beside, on rank 0: JOB/beside, a copy of the files beside the weights, which checkpoints
     * take over. The copy stays whatever becomes of the directory or checkpoint of the weights.
     * "": there is no such directory.
     * left names the files that were left out (struct hf_files). */
    char beside[FILE_PATH_SIZE];
    int n_left;
    char left[256];
};

/* Fills the arrays of h. Collective. fails: ERR_CONFLICT when a checkpoint belongs to another job
 * or other data; the errors of hf_load, ckpt_check and ckpt_load_checked. */
int weights_start(struct run *r, struct sharded_state *h, struct weights_start *out, struct err *e);

/* Loads the weights of a model that is not trained: all of them, or this rank's slices and stages.
 * No checkpoint is looked for. Collective. */
int weights_load(struct run *r, struct model *m, struct err *e);

/* Fills all weights of a proof's reference, on rank 0, from where weights_load has them
 * (struct verify_args). run: struct run. fails: as weights_load. */
int weights_reference(void *run, struct model *reference, struct err *e);

#endif
