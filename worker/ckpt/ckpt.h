/* ckpt.h: checkpoints: everything that training needs to continue, independent of the ranks.
 *
 *   <job_dir>/checkpoints/step-00000500/
 *     hf/...              config.json, model.safetensors, generation_config.json, tokenizer.json:
 *                         usable as a model.path; struct hf_beside has the files beside the
 *                         weights
 *     optim.safetensors   "exp_avg:<name>", "exp_avg_sq:<name>", fp32, whole tensors; with 16-bit
 *                         weights also "master:<name>", fp32, of which hf/ has the rounded copy
 *     hf_ema/...          with ema.decay: the averaged weights in fp32, a model.path like hf/
 *     train_state.json    struct ckpt_state
 *     MANIFEST.json       {"version":1,"step":..,"epoch":..,"weights_sha256":..,"files":[{"path",
 *                         "size","sha256"}],"sha256":digest of the text before this member}
 *
 * Protocol: everything is written into step-00000500.e<epoch>.tmp/, each file fsynced,
 * MANIFEST.json last, the directories fsynced, then one rename to the final name and an fsync of
 * checkpoints/. So a directory under its final name is complete unless the disk lost a write;
 * ckpt_check compares every digest to make sure. If a valid directory has the final name already,
 * an attempt of another epoch has saved this step: that directory stays, and the new one, which
 * has the same bits, is removed. An invalid directory of that name is renamed to step-N.bad.
 *
 * No rank number appears in anything that is saved; rank 0 writes. Checkpointing is not a step: it
 * may allocate, at most a few MiB, independent of the model's size. */
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
    int64_t next_sample; /* data cursor: number of the next step's first sample, in the order of
                          * samples of its stage's length (worker/plan/stage.h) */
    int64_t seed;
    int64_t adam_t;               /* updates so far, without skipped, overflowed and empty steps */
    double lr;                    /* rate of the last step; informational: a function of step */
    double loss;                  /* loss of the last step; informational */
    char data_id[80];             /* id of the prepared data that next_sample indexes */
    char spec_digest[SHA256_HEX]; /* ckpt_spec_digest of the job */
    const char *spec_json;        /* from ckpt_spec_json, borrowed; NULL: none, and in a loaded
                                   * state */
    int32_t n_ranks;              /* informational */
    int32_t layout;               /* informational: enum layout_id */
    struct guard_state guard;     /* judges the next steps */
    struct scale_state scale;     /* fp16 training: scale of the loss in the next steps */
    int64_t n_evals, eval_step;   /* evaluations so far, and step and loss of the last one */
    double eval_loss;
    int32_t has_best; /* a checkpoint has the lowest loss so far: best_step, best_loss */
    int64_t best_step;
    double best_loss;
    int64_t steps_without_target; /* steps so far without a target: they updated nothing */
};

/* A flow moves the arrays of a checkpoint between its files and the device or the ranks that hold
 * them. Arrays are flat, in the order of param_list. A call moves elements [offset, offset + n) in
 * fp32. All are of one tensor, and n is at most ST_CHUNK. If weights have 16 bits, read gives the
 * fp32 master weights from which they are rounded. */
enum ckpt_array { CKPT_WEIGHTS, CKPT_M, CKPT_V, CKPT_EMA };
struct ckpt_flow {
    int (*read)(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *e);
    int (*write)(void *arg, int which, int64_t offset, int64_t n, const float *x, struct err *e);
    void (*still)(
        void *arg); /* called during work that takes long, so that waiting ranks do not time out;
                     * NULL: no rank waits */
    void *arg;
    struct be *be; /* as in struct hf_sink, for write */
    bool any_order;
};

/* The arrays are flat, in the order of param_list. To load only weights, m and v may be NULL.
 * params: the model's weights, of dtype. master: NULL, or the fp32 weights from which params are
 * rounded; it is saved beside params, and loaded instead of them. If flow.arg is not NULL, the
 * flow moves all arrays, and the pointers are NULL. dtype is then the type in which weights are
 * saved, and 16 bits imply a master. */
struct ckpt_arrays {
    void *params;
    enum dtype dtype;
    float *master, *m, *v;
    struct ckpt_flow flow;
    bool average; /* with flow: there is a CKPT_EMA, saved as hf_ema/ and loaded from it */
    const struct hf_beside *beside; /* files of hf/ beside its weights; NULL: the byte tokenizer */
};

struct ckpt_info {
    char path[CKPT_PATH_SIZE]; /* the step directory */
    int64_t step, epoch;
    int64_t size;                    /* bytes of all files */
    int64_t save_ms;                 /* time to write it, from ckpt_save's caller; 0: unknown */
    char weights_sha256[SHA256_HEX]; /* over the bytes of all tensors, in the order of their names:
                                      * hf_flat_digest */
};

/* Writes, fsyncs and renames one checkpoint. Fills *info, with save_ms 0; info may be NULL.
 * fails: ERR_IO, ERR_NO_SPACE, or ERR_TOO_LARGE over the limit on file sizes, naming the file; the
 * flow's errors. After a failure the .tmp directory is removed, and older checkpoints are
 * unchanged. */
int ckpt_save(const char *job_dir, int64_t epoch, const struct model_shape *shape,
              const struct ckpt_arrays *a, const struct ckpt_state *s, struct ckpt_info *info,
              struct err *e);

/* Finds the newest directory under job_dir/checkpoints that passes ckpt_check and has the step of
 * its name, and fills *info as ckpt_check does. Directories that fail are logged, skipped and left
 * in place. Returns 1 if it found one, 0 if there is none, -1 after an error. */
int ckpt_find_latest(const char *job_dir, struct ckpt_info *info, struct err *e);

/* Checks manifest, sizes and digests of a step directory, and that it has every file of a
 * checkpoint. Large files are hashed in parallel. Fills *info, with save_ms 0.
 * fails: ERR_CORRUPT naming the first damaged file and its fault; ERR_NOT_FOUND: there is no such
 * directory; ERR_IO. */
int ckpt_check(const char *step_dir, struct ckpt_info *info, struct err *e);

/* Reads a checkpoint that ckpt_find_latest or ckpt_check has just checked, into the arrays that
 * are not NULL. Its files are not hashed again. s may be NULL. It is filled before the arrays, so
 * that the caller can compare the two jobs even if the checkpoint lacks data that this job needs.
 * fails: ERR_INVALID naming the first difference if the checkpoint's shape is not `shape`;
 * ERR_CORRUPT if a size differs from the manifest's, or if the manifest's weights are not those of
 * info; ERR_IO. */
int ckpt_load_checked(const struct ckpt_info *info, const struct model_shape *shape,
                      const struct ckpt_arrays *a, struct ckpt_state *s, struct err *e);

/* Digests the spec fields that must be the same when a job resumes: model shape, rope, data,
 * train, optimizer, schedule, stages, precision, objective, ema, seed. It omits ranks, layout and
 * memory, and the data's paths and tokenizer, whose effect data_id covers. It also omits fields at
 * their defaults. */
void ckpt_spec_digest(const struct job_spec *spec, char out[SHA256_HEX]);
/* Writes the same fields with their values, as an object of strings. Returns -1 if it exceeds
 * CKPT_SPEC_SIZE. */
int ckpt_spec_json(const struct job_spec *spec, char out[CKPT_SPEC_SIZE]);
/* Explains the difference from a checkpoint whose spec_digest is not this job's. Sets ERR_CONFLICT
 * naming the first field that differs, with both values if the checkpoint has its value, and
 * returns -1. Returns 0 if checkpoint.changes allows every difference. */
int ckpt_spec_refuse(const char *step_dir, const struct job_spec *spec, struct err *e);

/* Returns the MB a second at which the checkpoint was written; 0: not known. */
double ckpt_mb_s(const struct ckpt_info *info);

/* Writes the payload of EV_CHECKPOINT: {"step":..,"path":..,"size":..,"weights_sha256":..}, and
 * "save_ms" and "mb_s" if they are known. Returns its length, or -1. */
int64_t ckpt_json(const struct ckpt_info *info, char *out, size_t size);

#endif
