/* weights.h: finds and loads a job's weights. Rank 0 chooses the source and reads it, and the
 * other ranks get the bytes from rank 0. For this reason all ranks have the same weights, even if
 * files change while they are read, or exist only on rank 0's node. The sources are tried in this
 * order:
 *
 *   train   the newest whole checkpoint of this job (unless checkpoint.resume is "none"), then
 *           the directory of checkpoint.resume, then as for other kinds
 *   others  random weights if spec_random_weights() returns true, otherwise model.path */
#ifndef SEQD_RANK_WEIGHTS_H
#define SEQD_RANK_WEIGHTS_H

#include "api/core/file.h"
#include "worker/ckpt/ckpt.h"
#include "worker/hf/base_id.h"
#include "worker/rank/run.h"
#include "worker/train/sharded_state.h"

/* The names of files that were not copied (struct hf_files), and their number. */
struct weights_left {
    int n;
    char names[256];
};

/* Writes a note about the files that were not copied, such as "checkpoints go without 1 file of the
 * model's directory: a.json (a link)". Returns false if there are none. */
bool weights_left_text(const struct weights_left *left, const char *what, char *out, size_t size);

struct weights_start {
    /* State of the checkpoint from which the job resumed. It is the same on every rank, and all
     * zeros if the job did not resume. */
    struct ckpt_state state;
    struct ckpt_info info; /* the checkpoint from which the job resumed, on rank 0; its path is
                            * "" if the job did not resume */
    /* On rank 0, `beside` is the path of the directory JOB/beside, or "" if there is no such
     * directory. It has copies of the other files that are in the directory of the weights.
     * The copies are added to checkpoints, and are kept even if the source of the weights is
     * removed. */
    char beside[FILE_PATH_SIZE];
    struct weights_left left;
    struct base_id base; /* with adapters: their base, on rank 0 */
    bool wrapped;        /* on rank 0, with adapters: their model is in a wrapper (config_wraps) */
};

/* Fills the arrays of h. Collective. Fails with ERR_CONFLICT if a checkpoint belongs to another
 * job or other data, or with the errors of hf_load, ckpt_check and ckpt_load_checked. */
int weights_start(struct run *r, struct sharded_state *h, struct weights_start *out, struct err *e);
/* Fills the arrays of h for a rollback, as weights_start does. If the checkpoint has only adapters,
 * their base is still there, so it is neither read nor drawn again. `base` is the member of an
 * earlier struct weights_start; only rank 0 reads it. Collective. */
int weights_return(struct run *r, struct sharded_state *h, const struct base_id *base,
                   struct weights_start *out, struct err *e);

/* Tells whether a checkpoint was made by this job. */
bool weights_is_own(const struct run *r, const struct ckpt_info *info);

/* Loads the weights of a model that is not trained. A rank gets either all weights, or only
 * the weights of its slices and of its stage. Checkpoints of the job are not used. Collective. */
int weights_load(struct run *r, struct model *m, struct err *e);

/* Fills all weights of the reference model of a proof, on rank 0 (struct verify_args). Reads
 * the weights from the source that weights_load uses. The parameter `run` points to a struct
 * run. Fails as weights_load does. */
int weights_reference(void *run, struct model *reference, struct err *e);

/* The directories of a merge's model and adapter, and the directory JOB/beside with copies of the
 * model's other files. */
struct weights_merge {
    char model[RANK_PATH_SIZE], adapter[RANK_PATH_SIZE], beside[FILE_PATH_SIZE];
    struct weights_left left;
};

/* Finds the directories that a merge job names, checks that the adapter was trained on the model,
 * as far as it names its base, and copies the model's other files. `still` is called while files
 * are copied. Fails with ERR_CONFLICT if the base is another, and as roots_directory and
 * hf_take_files do. */
int weights_merge(struct run *r, void (*still)(void *arg), void *arg, struct weights_merge *out,
                  struct err *e);

#endif
