/* ckpt.h: checkpoints: everything that training needs to continue, independent of the ranks.
 *
 *   <job_dir>/checkpoints/step-00000500/
 *     hf/...              config.json, model.safetensors, generation_config.json, tokenizer.json:
 *                         usable as a model.path; files beside the weights: struct hf_beside
 *     optim.safetensors   "exp_avg:<name>", "exp_avg_sq:<name>", fp32, whole tensors; with 16-bit
 *                         weights also "master:<name>": fp32, hf/ has the rounded copy
 *     hf_ema/...          with ema.decay: the averaged weights in fp32, a model.path like hf/
 *     train_state.json    struct ckpt_state
 *     MANIFEST.json       {"version":1,"step":..,"epoch":..,"weights_sha256":..,"files":[{"path",
 *                         "size","sha256"}],"sha256":digest of the text before this member}
 *
 * Protocol: everything is written into step-00000500.e<epoch>.tmp/, each file fsynced,
 * MANIFEST.json last, the directories fsynced, then one rename to the final name and an fsync of
 * checkpoints/. So a directory under its final name is complete unless a disk lied, and ckpt_check
 * compares every digest anyway. If a valid directory has the final name already, another epoch was
 * faster: it stays, and ours, with the same bits, is dropped. An invalid one is moved aside to
 * step-N.bad.
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
    int64_t step; /* optimizer steps done; the next one is step + 1 */
    int64_t tokens_seen;
    int64_t next_sample; /* data cursor: number of the next step's first sample, in the order of its
                          * stage's length (worker/plan/stage.h) */
    int64_t seed;
    int64_t adam_t;               /* updates so far: no skipped, overflowed or empty step counts */
    double lr;                    /* rate of the last step; informational: a function of step */
    double loss;                  /* loss of the last step; informational */
    char data_id[80];             /* prepared data in which next_sample counts */
    char spec_digest[SHA256_HEX]; /* fields that must stay between attempts: ckpt_spec_digest */
    const char *spec_json;        /* from ckpt_spec_json, borrowed; NULL: none, or loaded */
    int32_t n_ranks;              /* informational */
    int32_t layout;               /* informational: enum layout_id */
    struct guard_state guard;     /* judges the next steps */
    struct scale_state scale;     /* scale of the loss in the next steps, in fp16 */
    int64_t n_evals, eval_step;   /* evaluations so far, and the last one's step and loss */
    double eval_loss;
    int32_t has_best; /* a checkpoint has the lowest loss so far: best_step, best_loss */
    int64_t best_step;
    double best_loss;
    int64_t steps_without_target; /* steps so far without a target: they updated nothing */
};

/* A flow moves the arrays of a checkpoint if they are too large to lie in one place. Arrays are
 * flat, in the order of param_list. A call moves elements [offset, offset + n) in fp32: all are of
 * one tensor, and n is at most ST_CHUNK. If weights have 16 bits, read gives the fp32 master
 * weights that they are rounded from. */
enum ckpt_array { CKPT_WEIGHTS, CKPT_M, CKPT_V, CKPT_EMA };
struct ckpt_flow {
    int (*read)(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *e);
    int (*write)(void *arg, int which, int64_t offset, int64_t n, const float *x, struct err *e);
    void (*still)(
        void *arg); /* called between pieces of work that take long; NULL: no rank waits */
    void *arg;
    struct be *be; /* as in struct hf_sink, for write */
    bool any_order;
};

/* Pointers are of flat arrays in the order of param_list; m and v may be NULL when loading
 * (weights only). params: the model's weights, of dtype. master: NULL, or the fp32 weights that
 * params are rounded from; it is saved beside them, and loaded instead of them. If flow.arg is not
 * NULL, the flow moves all arrays, and the pointers are NULL. dtype is then the type in which
 * weights are saved, and 16 bits imply a master. */
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
    char weights_sha256[SHA256_HEX]; /* tensor bytes in name order: hf_flat_digest */
};

/* Writes, fsyncs and renames one checkpoint. Fills *info but for save_ms, which becomes 0; info
 * may be NULL.
 * fails: ERR_IO, ERR_NO_SPACE, or ERR_TOO_LARGE over the limit on file sizes, naming the file; the
 * flow's errors. The .tmp directory is then removed, and older checkpoints are untouched. */
int ckpt_save(const char *job_dir, int64_t epoch, const struct model_shape *shape,
              const struct ckpt_arrays *a, const struct ckpt_state *s, struct ckpt_info *info,
              struct err *e);

/* Finds the newest directory under job_dir/checkpoints that passes ckpt_check and has the step of
 * its name, and fills *info as ckpt_check does. Directories that fail are logged and passed over
 * (they stay where they are). Returns 1 found, 0 none, -1 error. */
int ckpt_find_latest(const char *job_dir, struct ckpt_info *info, struct err *e);

/* Checks manifest, sizes and digests of a step directory, and that it has every file of a
 * checkpoint. Large files are hashed in parallel. Fills *info but for save_ms, which becomes 0.
 * fails: ERR_CORRUPT naming the first damaged file and its fault; ERR_NOT_FOUND: there is no such
 * directory; ERR_IO. */
int ckpt_check(const char *step_dir, struct ckpt_info *info, struct err *e);

/* Reads the arrays that are not NULL of a checkpoint that ckpt_find_latest or ckpt_check has just
 * checked: its files are not hashed again. The checkpoint's shape must equal `shape`: else
 * ERR_INVALID naming the first difference. s may be NULL. It is filled before the arrays: if a
 * checkpoint lacks data that this job needs, the caller can still compare the two jobs. fails: also
 * ERR_CORRUPT if a size is not the manifest's, or if the manifest is of other weights than info
 * says; ERR_IO. */
int ckpt_load_checked(const struct ckpt_info *info, const struct model_shape *shape,
                      const struct ckpt_arrays *a, struct ckpt_state *s, struct err *e);

/* Digests the spec fields that must be the same when a job resumes: model shape, rope, data,
 * train, optimizer, schedule, stages, precision, objective, ema, seed. It omits ranks, layout and
 * memory, and the data's paths and tokenizer, whose effect data_id covers. A field with its
 * default does not count. */
void ckpt_spec_digest(const struct job_spec *spec, char out[SHA256_HEX]);
/* Writes the same fields with their values, as an object of strings. -1: it exceeds
 * CKPT_SPEC_SIZE. */
int ckpt_spec_json(const struct job_spec *spec, char out[CKPT_SPEC_SIZE]);
/* Explains why a checkpoint whose digest differs is not this job's: sets ERR_CONFLICT naming the
 * first field that differs, with both values as far as the checkpoint has them. Returns -1, or 0
 * if checkpoint.changes allows every difference. */
int ckpt_spec_refuse(const char *step_dir, const struct job_spec *spec, struct err *e);

/* Returns the MB a second at which the checkpoint was written; 0: not known. */
double ckpt_mb_s(const struct ckpt_info *info);

/* Writes the payload of EV_CHECKPOINT: {"step":..,"path":..,"size":..,"weights_sha256":..}, and
 * "save_ms" and "mb_s" if they are known. Returns its length, or -1. */
int64_t ckpt_json(const struct ckpt_info *info, char *out, size_t size);

#endif
