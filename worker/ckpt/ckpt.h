/* ckpt.h: checkpoints, which have everything that training needs to continue, independent of the
 * number of ranks.
 *
 *   <job_dir>/checkpoints/step-00000500/
 *     hf/...              config.json, model.safetensors, generation_config.json, tokenizer.json:
 *                         a directory that can be a model.path; struct hf_beside tells which files
 *                         are written beside the weights
 *     optim.safetensors   "exp_avg:<name>", "exp_avg_sq:<name>", fp32, whole tensors; with 16-bit
 *                         weights also "master:<name>", fp32, of which hf/ has the rounded copy;
 *                         frozen tensors (train.freeze) have none of these
 *     hf_ema/...          with ema.decay: the averaged weights in fp32, a model.path like hf/
 *     train_state.json    struct ckpt_state
 *     MANIFEST.json       {"version":1,"step":..,"epoch":..,"weights_sha256":..,"files":[{"path",
 *                         "size","sha256"}],"sha256":digest of the text before this member}
 *
 * To save a checkpoint, everything is written into step-00000500.e<epoch>.tmp/, with MANIFEST.json
 * last. Each file and then the directories are fsynced. Then the directory is renamed to its final
 * name, and checkpoints/ is fsynced. So a directory under its final name is complete unless the
 * disk lost a write; ckpt_check compares every digest to make sure. If a valid directory already
 * has the final name, an attempt of another epoch has saved this step. Then this directory is
 * kept, and the new directory, which has the same bits, is removed. An invalid directory with the
 * final name is renamed to step-N.bad.
 *
 * No rank number appears in anything that is saved; rank 0 writes. Unlike a step, saving a
 * checkpoint may allocate memory, but only a few MiB, independent of the model's size. */
#ifndef SEQD_CKPT_CKPT_H
#define SEQD_CKPT_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"
#include "api/core/sha256.h"
#include "kernels/backend.h"
#include "worker/train/guard.h"
#include "worker/train/scale.h"

struct job_spec;

#define CKPT_PATH_SIZE 1280
#define CKPT_SPEC_SIZE 16384 /* size of ckpt_spec_json */

struct hf_beside; /* worker/hf/hf.h */

struct ckpt_state {
    int64_t step; /* optimizer steps done; the next step is step + 1 */
    int64_t tokens_seen;
    int64_t next_sample; /* data cursor: number of the first sample of the next step, in the order
                          * of samples for the sequence length of its stage
                          * (worker/plan/stage.h) */
    int64_t seed;
    int64_t adam_t;               /* updates so far, not counting skipped, overflowed and empty
                                   * steps */
    double lr;                    /* learning rate of the last step; it is only for information,
                                   * because the rate follows from the step */
    double loss;                  /* loss of the last step, only for information */
    char data_id[80];             /* id of the prepared data in which next_sample counts */
    char spec_digest[SHA256_HEX]; /* result of ckpt_spec_digest for the job */
    const char *spec_json;        /* from ckpt_spec_json, borrowed; NULL if there is none, and
                                   * always NULL in a loaded state */
    int32_t n_ranks;              /* informational */
    int32_t layout;               /* informational: enum layout_id */
    struct guard_state guard;     /* judges the next steps */
    struct scale_state scale;     /* fp16 training: scale of the loss in the next steps */
    int64_t n_evals, eval_step;   /* number of evaluations so far, and step and loss of the last
                                   * one */
    double eval_loss;
    int32_t has_best; /* true if there is a best checkpoint, of which best_step and best_loss are
                       * the step and the loss */
    int64_t best_step;
    double best_loss;
    int64_t steps_without_target; /* steps so far that had no target and so updated nothing */
};

/* A flow moves the arrays of a checkpoint between its files and the device or the ranks that hold
 * them. Arrays are flat, in the order of param_list. A call moves elements [offset, offset + n) in
 * fp32. All elements of a call belong to one tensor, and n is at most ST_CHUNK. If weights have 16
 * bits, read gives the fp32 master weights from which they are rounded. */
enum ckpt_array { CKPT_WEIGHTS, CKPT_M, CKPT_V, CKPT_EMA };
struct ckpt_flow {
    int (*read)(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *e);
    int (*write)(void *arg, int which, int64_t offset, int64_t n, const float *x, struct err *e);
    void (*still)(
        void *arg); /* called at intervals while rank 0 does long work, so that ranks that wait for
                     * it do not time out; NULL if no rank waits */
    void *arg;
    struct be *be; /* as in struct hf_sink; only for write */
    bool any_order;
};

/* The arrays are flat, in the order of param_list. m and v may be NULL if only weights are loaded.
 * params are the model's weights, of type dtype. master is NULL, or the fp32 weights from which
 * params are rounded; it is saved beside params, and loaded instead of them. If flow.arg is not
 * NULL, the flow moves all arrays, and the pointers are NULL. In that case dtype is the type in
 * which weights are saved, and if it has 16 bits, there are master weights, too. */
struct ckpt_arrays {
    void *params;
    enum dtype dtype;
    float *master, *m, *v;
    struct ckpt_flow flow;
    bool average; /* with a flow: true if there is the array CKPT_EMA, which is saved to hf_ema/
                   * and loaded from there */
    const struct hf_beside *beside; /* files of hf/ beside its weights; NULL means the byte
                                     * tokenizer */
};

struct ckpt_info {
    char path[CKPT_PATH_SIZE]; /* the step directory */
    int64_t step, epoch;
    int64_t size;                    /* bytes of all files */
    int64_t save_ms;                 /* time that writing took, which the caller of ckpt_save fills
                                      * in; 0 if it is not known */
    char weights_sha256[SHA256_HEX]; /* digest of the bytes of all tensors in the order of their
                                      * names (hf_flat_digest) */
};

/* Writes, fsyncs and renames one checkpoint. Fills *info, with save_ms 0; info may be NULL. Fails
 * with ERR_IO, with ERR_NO_SPACE, or with ERR_TOO_LARGE if a file would exceed the limit on file
 * sizes; the error names the file. Also fails with the errors of the flow. After a failure the
 * .tmp directory is removed, and older checkpoints are unchanged. */
int ckpt_save(const char *job_dir, int64_t epoch, const struct model_shape *shape,
              const struct ckpt_arrays *a, const struct ckpt_state *s, struct ckpt_info *info,
              struct err *e);

/* Finds the newest directory in job_dir/checkpoints that passes ckpt_check and whose contents are
 * of the step in its name. Fills *info as ckpt_check does. Directories that fail are logged and
 * skipped, but not removed. Returns 1 if it found one, 0 if there is none, -1 after an error. */
int ckpt_find_latest(const char *job_dir, struct ckpt_info *info, struct err *e);

/* Checks manifest, sizes and digests of a step directory, and that it has every file of a
 * checkpoint. Large files are hashed in parallel. Fills *info, with save_ms 0. Fails with
 * ERR_CORRUPT, which names the first damaged file and its fault; with ERR_NOT_FOUND if there is no
 * such directory; or with ERR_IO. */
int ckpt_check(const char *step_dir, struct ckpt_info *info, struct err *e);

/* Reads a checkpoint into those arrays that are not NULL. ckpt_find_latest or ckpt_check must have
 * checked it just before, because its files are not hashed again. s, which may be NULL, is filled
 * before the arrays, so that the caller can compare the checkpoint's job with this job even if the
 * checkpoint lacks data that this job needs. Fails with ERR_INVALID if the checkpoint has another
 * shape than `shape`; the error names the first difference. Fails with ERR_CORRUPT if the size of
 * a file differs from that in the manifest, or if the manifest's weights are not those of info.
 * Also fails with ERR_IO. */
int ckpt_load_checked(const struct ckpt_info *info, const struct model_shape *shape,
                      const struct ckpt_arrays *a, struct ckpt_state *s, struct err *e);

/* Computes a digest of the spec fields that must be the same when a job resumes: model shape,
 * rope, data, train, optimizer, schedule, stages, precision, objective, ema, seed. It omits ranks,
 * layout and memory, and fields at their defaults. It also omits the paths and the tokenizer of
 * the data, because data_id covers their effect. */
void ckpt_spec_digest(const struct job_spec *spec, char out[SHA256_HEX]);
/* Writes the same fields with their values, as an object of strings. Returns -1 if it exceeds
 * CKPT_SPEC_SIZE. */
int ckpt_spec_json(const struct job_spec *spec, char out[CKPT_SPEC_SIZE]);
/* Explains the difference from a checkpoint whose spec_digest is not that of this job. Sets
 * ERR_CONFLICT and returns -1; the error names the first field that differs, with both values if
 * the checkpoint has its value. Returns 0 if checkpoint.changes allows every difference. */
int ckpt_spec_refuse(const char *step_dir, const struct job_spec *spec, struct err *e);

/* Returns the speed in MB/s at which the checkpoint was written, or 0 if it is not known. */
double ckpt_mb_s(const struct ckpt_info *info);

/* Writes the payload of EV_CHECKPOINT: {"step":..,"path":..,"size":..,"weights_sha256":..}, and
 * "save_ms" and "mb_s" if they are known. Returns its length, or -1. */
int64_t ckpt_json(const struct ckpt_info *info, char *out, size_t size);

#endif
