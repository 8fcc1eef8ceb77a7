/* ckpt.h: saves and loads checkpoints. A checkpoint has everything that a training needs to
 * continue with any number of ranks.
 *
 *   <job_dir>/checkpoints/step-00000500/
 *     hf/...              config.json, model.safetensors, generation_config.json, tokenizer.json:
 *                         a directory that can be a model.path. struct hf_beside describes the
 *                         files that are written in addition to the weights
 *     optim.safetensors   "exp_avg:<name>" and "exp_avg_sq:<name>", fp32, whole tensors. With
 *                         16-bit weights also "master:<name>" in fp32; hf/ then has the rounded
 *                         weights. Frozen tensors (train.freeze) have none of these
 *     adapter/...         in place of hf/, if the model has adapters: adapter_config.json and
 *                         adapter_model.safetensors, which peft loads (worker/hf/adapter.h), and
 *                         seqd.json with the digest of their base (worker/hf/base_id.h). The
 *                         weights are in fp32, so there are no masters then. With
 *                         checkpoint.merge there is hf/, too: the model with the adapters merged
 *                         into it (merge.h)
 *     hf_ema/...          with ema.decay: the averaged weights in fp32; it can be a model.path
 *     references.bin      if preferences are learnt: the references of all answers (references.h)
 *     train_state.json    struct ckpt_state
 *     MANIFEST.json       {"version":1,"step":..,"epoch":..,"weights_sha256":..,"files":[{"path",
 *                         "size","sha256"}],"sha256":digest of the text before this member}
 *
 * To save a checkpoint, everything is written into step-00000500.e<epoch>.tmp/, with
 * MANIFEST.json last. Each file and then the directories are fsynced. Then the directory is
 * renamed to its final name, and checkpoints/ is fsynced. For this reason a directory with its
 * final name is complete, unless the disk has lost a write; ckpt_check compares every digest to
 * make sure. If a valid directory already has the final name, an attempt of another epoch has
 * already saved this step, and the bits of the two directories are the same. In that case the
 * valid directory is kept, and the new directory is removed. If an invalid directory has the
 * final name, it is renamed to step-N.bad.
 *
 * The contents of a checkpoint do not depend on the number of ranks. Rank 0 writes the files. A
 * step allocates no memory, but saving a checkpoint may allocate a few MiB, whatever the model's
 * size is. */
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
#define CKPT_SPEC_SIZE 16384 /* largest size of the text of ckpt_spec_json */

struct hf_beside;  /* worker/hf/hf.h */
struct base_id;    /* worker/hf/base_id.h */
struct references; /* worker/ckpt/references.h */

struct ckpt_state {
    int64_t step; /* number of optimizer steps that are done */
    int64_t tokens_seen;
    /* Index of the first sample of the next step. The index counts samples in the order for
     * the sequence length of that step's stage (worker/plan/stage.h). */
    int64_t next_sample;
    int64_t seed;
    /* number of updates so far; skipped, overflowed and empty steps are not counted */
    int64_t adam_t;
    /* Learning rate of the last step, stored only for information, because a resumed run
     * computes the rate from the step. */
    double lr;
    double loss;                  /* loss of the last step, only for information */
    char data_id[80];             /* id of the prepared data to which next_sample belongs */
    char spec_digest[SHA256_HEX]; /* result of ckpt_spec_digest for this job */
    /* Borrowed: the result of ckpt_spec_json. NULL if the state has no such text. It is always
     * NULL in a state that was loaded. */
    const char *spec_json;
    int32_t n_ranks;          /* informational */
    int32_t layout;           /* informational: enum layout_id */
    struct guard_state guard; /* state of the guard, which judges the next steps */
    struct scale_state scale; /* scale of the loss for the next steps; used by training in fp16 */
    /* n_evals is the number of evaluations so far; eval_step and the next member are the step
     * and the loss of the last evaluation */
    int64_t n_evals, eval_step;
    double eval_loss;
    /* With pairs: number of pairs of the last evaluation, which is 0 before it, and means over
     * them. */
    struct {
        int64_t pairs;
        double chosen, rejected, margin, accuracy;
    } preferences;
    /* set if there is a best checkpoint; best_step and best_loss are its step and loss */
    int32_t has_best;
    int64_t best_step;
    double best_loss;
    /* number of steps so far that had no target, and for that reason made no update */
    int64_t steps_without_target;
    /* With eval.patience: the lowest loss of an evaluation after a step, that step, which is 0
     * before the first such evaluation, and the number of evaluations since then. Unlike the best
     * checkpoint, they do not depend on what could be saved. */
    struct {
        int64_t step;
        double loss;
        int64_t since;
    } low;
};

/* A flow copies the arrays of a checkpoint between the files and the device, or between the
 * files and the ranks that hold the arrays. Arrays are flat, in the order of param_list. A
 * call moves elements [offset, offset + n) in fp32. All elements of one call belong to one
 * tensor, and n is at most ST_CHUNK. If weights have 16 bits, the function read returns the
 * fp32 master weights from which the weights are rounded. */
enum ckpt_array { CKPT_WEIGHTS, CKPT_M, CKPT_V, CKPT_EMA };
struct ckpt_flow {
    int (*read)(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *e);
    int (*write)(void *arg, int which, int64_t offset, int64_t n, const float *x, struct err *e);
    void (*still)(
        /* Called at intervals while rank 0 does long work, so that the ranks that wait for
         * rank 0 do not time out. The pointer is NULL if no rank waits. */
        void *arg);
    void *arg;
    struct be *be; /* has the meaning of `be` in struct hf_sink; used only when arrays are
                    * written */
    bool any_order;
};

/* The arrays are flat, in the order of param_list. params are the model's weights, of type
 * dtype. master is NULL, or has the fp32 weights from which params are rounded. If master is
 * not NULL, it is saved in addition to params, and it is loaded instead of params. m and v may
 * be NULL if only weights are loaded. If flow.arg is not NULL, the flow copies all arrays, and
 * the pointers here are NULL. In this case dtype is the type in which weights are saved, and
 * if dtype has 16 bits, the flow also has master weights. */
struct ckpt_arrays {
    void *params;
    enum dtype dtype;
    float *master, *m, *v;
    struct ckpt_flow flow;
    /* used only with a flow: set if the flow has the array CKPT_EMA, which is saved to hf_ema/
     * and loaded from there */
    bool average;
    /* the files of hf/ that are not weights; NULL means the files of the byte tokenizer */
    const struct hf_beside *beside;
    const char *base; /* with adapters: the name of their model; NULL if it has none */
    /* With adapters: the digest of their model, which is saved, and is compared with that of a
     * checkpoint that is loaded. NULL if it is not known. */
    const struct base_id *base_id;
    /* with adapters and a flow: their model is saved, too, with the adapters merged into it */
    bool merge;
    const struct references *references; /* saved, too; NULL if there are none */
    /* The attempt has raised the fence (fence.h), which is checked before anything is published. */
    bool fenced;
    bool wrapped; /* with adapters: their model is in a wrapper (worker/hf/adapter.h) */
    /* Borrowed memory for merging, of the sizes that merge_sizes gives. If a pointer is NULL, that
     * memory is allocated. */
    struct {
        float *adapter; /* A and B of a product */
        void *blocks;   /* two blocks, in dtype */
        /* gets the largest number of elements of `adapter` that were in use; NULL allowed */
        int64_t *used;
    } room;
};

struct ckpt_info {
    char path[CKPT_PATH_SIZE]; /* the step directory */
    int64_t step, epoch;
    int64_t size; /* bytes of all files together */
    /* Time in ms that was needed to write the checkpoint. The caller of ckpt_save fills it in.
     * It is 0 if the time is not known. */
    int64_t save_ms;
    /* digest of the bytes of all tensors, in the order of the tensors' names (hf_flat_digest) */
    char weights_sha256[SHA256_HEX];
};

/* Writes a checkpoint, syncs it, and renames it to its final name. The parameter `info` may be
 * NULL. If it is not NULL, *info is filled, and info->save_ms is set to 0. Fails with ERR_IO
 * or ERR_NO_SPACE. Fails with ERR_TOO_LARGE if a file would exceed the limit on file sizes;
 * the error names the file. Also fails with the errors of the flow and, with a->fenced,
 * as fence_check does. After a failure the .tmp
 * directory is removed, and older checkpoints are unchanged. */
int ckpt_save(const char *job_dir, int64_t epoch, const struct model_shape *shape,
              const struct ckpt_arrays *a, const struct ckpt_state *s, struct ckpt_info *info,
              struct err *e);

/* Writes a directory that has only hf/, the model with its adapters merged into it, and the
 * manifest, as the checkpoint of step CKPT_MERGED_STEP. No job can be resumed from it. a->flow has
 * the model and its adapters. Fails as merge_read does after merge_refuse (merge.h). Otherwise does
 * the same as ckpt_save. */
#define CKPT_MERGED_STEP 1
int ckpt_save_merged(const char *job_dir, int64_t epoch, const struct model_shape *shape,
                     const struct ckpt_arrays *a, struct ckpt_info *info, struct err *e);
/* Finds the directory that ckpt_save_merged has written, by its manifest and the sizes of its
 * files, and fills *info as ckpt_check does. Returns 1 if it has found the directory, 0 if there is
 * none or if it is damaged, and -1 after an error. */
int ckpt_find_merged(const char *job_dir, struct ckpt_info *info, struct err *e);

/* Finds, in job_dir/checkpoints, the newest directory that passes ckpt_check and whose
 * contents belong to the step in its name. Fills *info as ckpt_check does. Newer directories
 * that do not pass are logged and skipped, but not removed. Returns 1 if it has found a
 * directory, 0 if there is no such directory, and -1 after an error. */
int ckpt_find_latest(const char *job_dir, struct ckpt_info *info, struct err *e);

/* Checks manifest, sizes and digests of a step directory, and that the directory has every
 * file of a checkpoint. Large files are hashed in parallel. Fills *info, and sets
 * info->save_ms to 0. Fails with ERR_CORRUPT if a file is damaged; the error names the first
 * damaged file and its fault. Fails with ERR_NOT_FOUND if there is no such directory. Also
 * fails with ERR_IO. */
int ckpt_check(const char *step_dir, struct ckpt_info *info, struct err *e);

/* Reads a checkpoint into the arrays that are not NULL. ckpt_find_latest or ckpt_check must
 * have checked it just before, because its files are not hashed again. The parameter `s` may
 * be NULL. If it is not NULL, *s is filled before the arrays, so that the caller can compare
 * the checkpoint's job with this job even if the checkpoint does not have data that this job
 * needs. Fails with ERR_INVALID if the shape of the checkpoint's model is not `shape`; the
 * error names the first difference. Fails with ERR_CORRUPT if the size of a file differs from
 * the size in the manifest, or if the weights in the manifest are not those of info. Fails with
 * ERR_CONFLICT if a checkpoint of adapters is that of another base. Also fails with ERR_IO. */
int ckpt_load_checked(const struct ckpt_info *info, const struct model_shape *shape,
                      const struct ckpt_arrays *a, struct ckpt_state *s, struct err *e);

/* Computes a digest of the fields of the spec that must be the same when a job resumes: model
 * shape, rope, storage of weights, data, train, adapter, optimizer, schedule, stages, precision,
 * objective, ema, seed. The digest does not include ranks, layout and memory, and no fields that
 * have their defaults. A rank and an alpha of adapters that are left out count as the values that
 * are used. The digest also does not include the paths and the tokenizer of the data, because
 * data_id depends on them, and the path of the model, because a checkpoint has its weights or their
 * digest. */
void ckpt_spec_digest(const struct job_spec *spec, char out[SHA256_HEX]);
/* Writes the fields of ckpt_spec_digest with their values, as an object of strings. Returns -1 if
 * the text exceeds CKPT_SPEC_SIZE. */
int ckpt_spec_json(const struct job_spec *spec, char out[CKPT_SPEC_SIZE]);
/* Explains why the spec_digest of a checkpoint is not that of this job. Sets ERR_CONFLICT and
 * returns -1. The error names the first field that differs, and the value of this field in
 * this job. If the checkpoint has the value of its job, the error also has that value. Returns
 * 0 if checkpoint.changes allows every difference. */
int ckpt_spec_refuse(const char *step_dir, const struct job_spec *spec, struct err *e);

/* The part of a checkpoint with which another job can begin, the field of that job, and the folder
 * of the checkpoint that the field names. */
struct ckpt_start {
    const char *what, *field, *below;
};
struct ckpt_start ckpt_start_of(const char *step_dir);

/* Returns the speed in MB/s at which the checkpoint was written, or 0 if it is not known. */
double ckpt_mb_s(const struct ckpt_info *info);

/* Writes the payload of EV_CHECKPOINT: {"step":..,"path":..,"size":..,"weights_sha256":..}. If
 * the time of saving is known, the payload also has "save_ms" and "mb_s". Returns the length
 * of the payload, or -1 if it does not fit. */
int64_t ckpt_json(const struct ckpt_info *info, char *out, size_t size);

#endif
