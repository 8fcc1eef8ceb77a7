/* weights.h: finds and loads a job's weights. Rank 0 decides and reads; the other ranks get the
 * same bytes over the ring, so that all ranks agree even if files change in the meantime or exist
 * only on rank 0's node. The sources are tried in this order:
 *
 *   train   the newest whole checkpoint of this job (unless checkpoint.resume is "none"), then
 *           the directory of checkpoint.resume, then as for other kinds
 *   others  random weights if spec_random_weights() returns true, otherwise model.path */
#ifndef SEQD_RANK_WEIGHTS_H
#define SEQD_RANK_WEIGHTS_H

#include "api/core/file.h"
#include "worker/ckpt/ckpt.h"
#include "worker/rank/run.h"
#include "worker/train/sharded_state.h"

struct weights_start {
    struct ckpt_state state; /* state of the checkpoint from which the job resumed, the same on
                              * every rank; all zero if the job did not resume */
    struct ckpt_info info;   /* rank 0: the checkpoint from which the job resumed; its path is ""
                              * if there is none */
    /* beside is, on rank 0, JOB/beside, a copy of the files beside the weights, which are added to
     * checkpoints. The copy is kept even if the directory or checkpoint of the weights is removed.
     * It is "" if there is no such directory.
     * left names the files that were left out (struct hf_files). */
    char beside[FILE_PATH_SIZE];
    int n_left;
    char left[256];
};

/* Fills the arrays of h. Collective. Fails with ERR_CONFLICT if a checkpoint belongs to another
 * job or other data, or with the errors of hf_load, ckpt_check and ckpt_load_checked. */
int weights_start(struct run *r, struct sharded_state *h, struct weights_start *out, struct err *e);

/* Loads the weights of a model that is not trained: all of them, or this rank's slices and stages.
 * Does not look for checkpoints. Collective. */
int weights_load(struct run *r, struct model *m, struct err *e);

/* Fills all weights of the reference model of a proof, on rank 0 (struct verify_args). Reads them
 * from the source from which weights_load read its weights. run is a struct run. Fails as
 * weights_load does. */
int weights_reference(void *run, struct model *reference, struct err *e);

#endif
