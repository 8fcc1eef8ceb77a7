/* ckpt.c: reads and writes train_state.json by a table of its members. Saves a checkpoint into a
 * .tmp directory and publishes it by a rename. Finds the newest valid checkpoint, and loads a
 * checkpoint. */
#include "worker/ckpt/ckpt.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/manifest.h"
#include "api/core/mem.h"
#include "api/core/record.h"
#include "worker/ckpt/digests.h"
#include "worker/ckpt/fence.h"
#include "worker/ckpt/merge.h"
#include "worker/ckpt/references.h"
#include "worker/ckpt/steps.h"
#include "worker/hf/adapter.h"
#include "worker/hf/base_id.h"
#include "worker/hf/files.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/stage.h"

/* Names of a checkpoint's files. Every checkpoint has the files of files[], or of adapter_files[].
 * The directory hf/ may have files that are not in files[]. */
static const char config_file[] = "hf/config.json", weights_file[] = "hf/model.safetensors";
static const char moments_file[] = "optim.safetensors", state_file[] = "train_state.json";
static const char average_file[] = "hf_ema/model.safetensors";
static const char adapter_config[] = "adapter/adapter_config.json";
static const char adapter_file[] = "adapter/adapter_model.safetensors";
static const char base_file[] = "adapter/" BASE_ID_FILE; /* only if the base is known */
static const char *const files[] = {config_file, weights_file, moments_file, state_file};
/* the files of a checkpoint of adapters, in place of files[] */
static const char *const adapter_files[] = {adapter_config, adapter_file, moments_file, state_file};
enum { N_FILES = sizeof files / sizeof *files };
_Static_assert(N_FILES + 1 + 2 * HF_FILES <= MANIFEST_FILES, "hf/ and hf_ema/ fit a manifest");

/* ---- train_state.json ------------------------------------------------------------------------ */

static bool has_pairs(const void *state)
{
    return ((const struct ckpt_state *)state)->preferences.pairs != 0;
}

static bool has_low(const void *state)
{
    return ((const struct ckpt_state *)state)->low.step != 0;
}

/* clang-format off */
#define AT(member)      offsetof(struct ckpt_state, member)
#define ALWAYS          .when = record_always
#define NEEDED          .needed = true
#define INT(m, ...)     {#m, FIELD_INT, AT(m), INT64_MIN, INT64_MAX, __VA_ARGS__}
#define INT32(m, ...)   {#m, FIELD_INT32, AT(m), INT32_MIN, INT32_MAX, ALWAYS, __VA_ARGS__}
#define REAL(m, ...)    {#m, FIELD_DOUBLE, AT(m), -DBL_MAX, DBL_MAX, ALWAYS, .or_null = true, __VA_ARGS__}
#define TEXT(m, ...)    {#m, FIELD_TEXT, AT(m), .size = sizeof ((struct ckpt_state *)0)->m, ALWAYS, __VA_ARGS__}
#define OF_PAIRS(m)     {#m, FIELD_DOUBLE, AT(m), -DBL_MAX, DBL_MAX, .when = has_pairs, .or_null = true}
static const struct field state_rows[] = {
    {"version", FIELD_FIXED, 0, 1, 1, NEEDED},
    INT(step, ALWAYS, NEEDED),
    INT(tokens_seen, ALWAYS, NEEDED),
    INT(next_sample, ALWAYS, NEEDED),
    INT(seed, ALWAYS, NEEDED),
    INT(adam_t, ALWAYS, NEEDED),
    REAL(lr, NEEDED),
    REAL(loss, NEEDED),
    TEXT(data_id, NEEDED),
    TEXT(spec_digest, NEEDED),
    INT32(n_ranks, NEEDED),
    INT32(layout, NEEDED),
    /* Checkpoints of early versions do not have these members. If a member is missing, it is 0. */
    INT(guard.skipped, ALWAYS),
    INT(guard.streak, ALWAYS),
    INT(guard.rollbacks, ALWAYS),
    INT(guard.loss.n, ALWAYS),
    REAL(guard.loss.mean), REAL(guard.loss.var),
    INT(guard.norm.n, ALWAYS),
    REAL(guard.norm.mean), REAL(guard.norm.var),
    INT(n_evals, ALWAYS),
    INT(eval_step, ALWAYS), REAL(eval_loss),
    INT(best_step, ALWAYS), REAL(best_loss),
    INT32(has_best),
    INT32(scale.up),
    INT32(scale.streak),
    INT(scale.good, ALWAYS),
    INT(scale.overflows, ALWAYS),
    /* These members are written only if they are not 0, and low.loss only if low.step is not. */
    INT(steps_without_target),
    INT(low.step),
    {"low.loss", FIELD_DOUBLE, AT(low.loss), -DBL_MAX, DBL_MAX, .when = has_low, .or_null = true},
    INT(low.since),
    INT(preferences.pairs),
    /* These members are written if there are pairs. */
    OF_PAIRS(preferences.chosen), OF_PAIRS(preferences.rejected),
    OF_PAIRS(preferences.margin), OF_PAIRS(preferences.accuracy),
    {NULL}
};
/* clang-format on */

static int write_state(const char *dir, const struct ckpt_state *s, struct err *e)
{
    char path[FILE_PATH_SIZE], text[4096 + CKPT_SPEC_SIZE];
    struct jwrite w;
    jwrite_init(&w, text, sizeof text);
    jwrite_object(&w, NULL);
    record_write_members(&w, state_rows, s);
    if (s->spec_json) jwrite_raw(&w, "spec", s->spec_json);
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    if (n < 0) return err_set(e, ERR_INTERNAL, "train_state.json needs %zu bytes", w.len);
    if (file_join(path, e, "%s/train_state.json", dir) < 0) return -1;
    return file_write(path, text, (size_t)n, e);
}

static int read_state(const char *dir, int64_t step, struct ckpt_state *s, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct err why = {0}; /* a separate error, because its field is a member of the file, and
                           * not a field of the job */
    size_t size;
    *s = (struct ckpt_state){0};
    s->eval_loss = s->low.loss = NAN; /* if they are null in the file */
    if (file_join(path, e, "%s/train_state.json", dir) < 0) return -1;
    s->preferences.chosen = s->preferences.rejected = NAN; /* null in the file */
    s->preferences.margin = s->preferences.accuracy = NAN;
    char *text = file_read(path, 65536, &size, e);
    if (!text) return -1;
    int rc = record_parse(text, size, state_rows, s, &why);
    if (!s->low.step) s->low.loss = 0;
    if (!s->n_evals) s->eval_loss = 0;
    free(text);
    if (!s->preferences.pairs) memset(&s->preferences, 0, sizeof s->preferences);
    if (rc) return err_set(e, why.code, "%s is not a train state of version 1: %s", path, why.text);
    if (s->step == step) return 0;
    return err_set(e, ERR_CORRUPT, "%s is of step %lld, the manifest of step %lld", path,
                   (long long)s->step, (long long)step);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static int fill_info(struct ckpt_info *info, const struct manifest *m, const char *dir,
                     struct err *e)
{
    if (!info) return 0;
    *info = (struct ckpt_info){.step = m->step, .epoch = m->epoch};
    memcpy(info->weights_sha256, m->weights_sha256, SHA256_HEX);
    for (int i = 0; i < m->n_files; i++) info->size += m->file[i].size;
    if (snprintf(info->path, sizeof info->path, "%s", dir) < (int)sizeof info->path) return 0;
    return err_set(e, ERR_TOO_LARGE, "a path has more than %d bytes", CKPT_PATH_SIZE - 1);
}

struct flow_array {
    const struct ckpt_flow *flow;
    int which;
};

static int flow_read(void *arg, int64_t offset, int64_t n, float *out, struct err *e)
{
    const struct flow_array *f = arg;
    return f->flow->read(f->flow->arg, f->which, offset, n, out, e);
}

static int flow_take(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    const struct flow_array *f = arg;
    return f->flow->write(f->flow->arg, f->which, offset, n, x, e);
}

static struct hf_sink sink_of(const struct flow_array *f)
{
    return (struct hf_sink){
        .take = flow_take, .arg = (void *)f, .be = f->flow->be, .any_order = f->flow->any_order};
}

static void still(const struct ckpt_arrays *a)
{
    if (a->flow.arg && a->flow.still) a->flow.still(a->flow.arg);
}

/* Digests of the files that write_arrays has written. They are computed during the writing. */
struct written {
    struct st_digest weights, merged, average, moments;
};

/* Writes adapters in fp32, so that nothing is lost and there need not be masters. */
static int write_adapter(const char *tmp, const struct model_shape *shape,
                         const struct ckpt_arrays *a, struct written *out, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct flow_array w = {&a->flow, CKPT_WEIGHTS};
    const void *data = a->master ? a->master : a->params;
    const bool wide = a->flow.arg || a->master;
    const struct hf_flat weights = {ADAPTER_PREFIX, data, wide ? DT_F32 : a->dtype,
                                    flow_read,      &w,   true};
    if (file_join(path, e, "%s/adapter", tmp) < 0) return -1;
    const struct adapter_base base = {a->base, a->wrapped};
    if (adapter_save(path, shape, &weights, &base, &out->weights, e)) return -1;
    if (!a->base_id) return 0;
    return base_id_write(path, a->base_id, e) || file_sync_dir(path, e) ? -1 : 0;
}

/* Writes the model with its adapters merged into it, in the job's precision. If `alone` is set, it
 * is all that is saved, and is not saved if the adapter makes elements that are not finite. */
static int write_merged(const char *tmp, const struct model_shape *shape,
                        const struct ckpt_arrays *a, bool alone, struct st_digest *out,
                        struct err *e)
{
    char path[FILE_PATH_SIZE];
    assert(a->flow.arg);
    if (file_join(path, e, "%s/hf", tmp) < 0) return -1;
    struct merge *g = merge_open(shape, &a->flow, a->room.adapter, e);
    if (!g) return -1;
    if (alone) merge_refuse(g, a->dtype);
    const struct hf_flat weights = {
        .prefix = "", .dtype = a->dtype, .read = merge_read, .arg = g, .blocks = a->room.blocks};
    const int rc = hf_save_flat(path, shape, &weights, a->beside, out, e);
    if (a->room.used) *a->room.used = merge_used(g);
    merge_close(g);
    return rc;
}

static int write_weights(const char *tmp, const struct model_shape *shape,
                         const struct ckpt_arrays *a, struct written *out, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct flow_array w = {&a->flow, CKPT_WEIGHTS};
    const struct hf_flat weights = {"", a->params, a->dtype, flow_read, &w};
    if (a->merge && write_merged(tmp, shape, a, false, &out->merged, e) < 0) return -1;
    if (shape->adapter.rank) return write_adapter(tmp, shape, a, out, e);
    if (file_join(path, e, "%s/hf", tmp) < 0) return -1;
    return hf_save_flat(path, shape, &weights, a->beside, &out->weights, e);
}

static int write_arrays(const char *tmp, const struct model_shape *shape,
                        const struct ckpt_arrays *a, struct written *out, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct flow_array w = {&a->flow, CKPT_WEIGHTS}, m = {&a->flow, CKPT_M}, v = {&a->flow, CKPT_V};
    struct flow_array ema = {&a->flow, CKPT_EMA};
    const struct hf_flat average = {"", NULL, DT_F32, flow_read, &ema};
    const struct hf_flat moments[] = {{"exp_avg:", a->m, DT_F32, flow_read, &m, true},
                                      {"exp_avg_sq:", a->v, DT_F32, flow_read, &v, true},
                                      {"master:", a->master, DT_F32, flow_read, &w, true}};
    const bool narrow = a->master || (a->flow.arg && a->dtype != DT_F32);
    const bool master = narrow && !shape->adapter.rank;
    if (write_weights(tmp, shape, a, out, e) < 0) return -1;
    if (a->average && (file_join(path, e, "%s/hf_ema", tmp) < 0 ||
                       hf_save_flat(path, shape, &average, a->beside, &out->average, e) < 0))
        return -1;
    if (file_join(path, e, "%s/optim.safetensors", tmp) < 0) return -1;
    return hf_write_flats(path, shape, moments, master ? 3 : 2, &out->moments, e);
}

/* Adds the files of a directory to the manifest. The files of the weights are not added here. */
static int add_files(struct manifest *m, const char *tmp, const char *sub,
                     const struct ckpt_arrays *a, struct err *e)
{
    char dir[FILE_PATH_SIZE], path[MANIFEST_PATH_SIZE];
    struct hf_files list;
    if (file_join(dir, e, "%s/%s", tmp, sub) < 0 || hf_list_files(dir, &list, e) < 0) return -1;
    for (int i = 0; i < list.n; i++) {
        still(a);
        snprintf(path, sizeof path, "%s/%s", sub, list.name[i]);
        if (!manifest_find(m, path) && manifest_add(m, tmp, path, e) < 0) return -1;
    }
    return 0;
}

/* Adds the file of an array to the manifest. The digest in the manifest is computed from the
 * bytes in memory while they are written, so a later check detects bytes that the disk has
 * changed. */
static void put_array(struct manifest *m, const char *path, const struct st_digest *d)
{
    manifest_put(m, path, d->size, d->file);
}

static int write_all(const char *tmp, const struct model_shape *shape, const struct ckpt_arrays *a,
                     const struct ckpt_state *s, struct manifest *m, struct err *e)
{
    struct written w = {0};
    if (write_arrays(tmp, shape, a, &w, e) < 0 || write_state(tmp, s, e) < 0) return -1;
    memcpy(m->weights_sha256, w.weights.tensors, SHA256_HEX);
    const bool adapted = shape->adapter.rank > 0;
    if (manifest_add(m, tmp, adapted ? adapter_config : config_file, e) < 0) return -1;
    if (adapted && a->base_id && manifest_add(m, tmp, base_file, e) < 0) return -1;
    put_array(m, adapted ? adapter_file : weights_file, &w.weights);
    if (a->merge && manifest_add(m, tmp, config_file, e) < 0) return -1;
    if (a->merge) put_array(m, weights_file, &w.merged);
    put_array(m, moments_file, &w.moments);
    if (a->average) put_array(m, average_file, &w.average);
    if (a->references && (references_write(tmp, a->references, e) < 0 ||
                          manifest_add(m, tmp, REFERENCES_FILE, e) < 0))
        return -1;
    if (manifest_add(m, tmp, state_file, e) < 0) return -1;
    if (((!adapted || a->merge) && add_files(m, tmp, "hf", a, e) < 0) ||
        (a->average && add_files(m, tmp, "hf_ema", a, e) < 0))
        return -1;
    if (manifest_write(m, tmp, e) < 0) return -1;
    return file_sync_dir(tmp, e);
}

/* Writes only the model with the adapters merged into it. */
static int write_model(const char *tmp, const struct model_shape *shape,
                       const struct ckpt_arrays *a, struct manifest *m, struct err *e)
{
    struct st_digest merged = {0};
    if (write_merged(tmp, shape, a, true, &merged, e) < 0) return -1;
    memcpy(m->weights_sha256, merged.tensors, SHA256_HEX);
    if (manifest_add(m, tmp, config_file, e) < 0) return -1;
    put_array(m, weights_file, &merged);
    if (add_files(m, tmp, "hf", a, e) < 0 || manifest_write(m, tmp, e) < 0) return -1;
    return file_sync_dir(tmp, e);
}

/* Renames tmp to its final name. If a valid checkpoint of that step already has this name,
 * returns 1. In that case the valid checkpoint is kept, and *m becomes the manifest of this
 * checkpoint. */
static int publish(const char *tmp, const char *final, struct manifest *m, struct err *e)
{
    struct err why = {0};
    if (file_exists(final)) {
        struct manifest *other = mem_scratch(sizeof *other);
        const bool same = !digests_check(other, final, &why) && other->step == m->step;
        if (same) *m = *other;
        free(other);
        if (same) return 1;
        char bad[FILE_PATH_SIZE];
        log_warn("ckpt.aside", "path=%s reason=\"%s\"", final, why.text);
        if (file_join(bad, e, "%s.bad", final) < 0 || file_remove(bad, e) < 0) return -1;
        if (rename(final, bad) < 0) return err_errno(e, "move %s aside", final);
    }
    return rename(tmp, final) < 0 ? err_errno(e, "rename %s", final) : 0;
}

/* Replaces the error of a save whose files a later attempt has moved aside. */
static void blame_fence(const char *job_dir, int64_t epoch, struct err *e)
{
    struct err why = {0};
    if (fence_check(job_dir, epoch, &why) && why.code == ERR_ABORTED && e) *e = why;
}

/* Saves a checkpoint, or only a merged model if s is NULL. The caller has set the step and the
 * epoch of m. */
static int save(const char *job_dir, struct manifest *m, const struct model_shape *shape,
                const struct ckpt_arrays *a, const struct ckpt_state *s, struct ckpt_info *info,
                struct err *e)
{
    char dir[FILE_PATH_SIZE], tmp[FILE_PATH_SIZE], final[FILE_PATH_SIZE];
    const long long step = m->step;
    if (a->fenced && fence_check(job_dir, m->epoch, e)) return -1;
    if (file_join(dir, e, "%s/checkpoints", job_dir) < 0 || file_make_dir(dir, e) < 0) return -1;
    if (file_join(final, e, "%s/" MANIFEST_STEP, dir, step) < 0) return -1;
    if (file_join(tmp, e, "%s.e%lld.tmp", final, (long long)m->epoch) < 0) return -1;
    if (file_remove(tmp, e) < 0 || file_make_dir(tmp, e) < 0) return -1;
    int rc = a->fenced ? fence_check(job_dir, m->epoch, e) : 0;
    if (rc == 0) rc = s ? write_all(tmp, shape, a, s, m, e) : write_model(tmp, shape, a, m, e);
    if (rc == 0 && a->fenced) rc = fence_check(job_dir, m->epoch, e);
    if (rc == 0) rc = publish(tmp, final, m, e);
    if (rc < 0 && a->fenced) blame_fence(job_dir, m->epoch, e);
    /* rc is not 0 if the save has failed, or if the step was already saved */
    if (rc != 0) file_remove(tmp, NULL);
    if (rc >= 0) rc = file_sync_dir(dir, e);
    return rc < 0 ? -1 : fill_info(info, m, final, e);
}

static int save_as(const char *job_dir, int64_t step, int64_t epoch,
                   const struct model_shape *shape, const struct ckpt_arrays *a,
                   const struct ckpt_state *s, struct ckpt_info *info, struct err *e)
{
    struct manifest *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->step = step;
    m->epoch = epoch;
    const int rc = save(job_dir, m, shape, a, s, info, e);
    free(m);
    return rc;
}

int ckpt_save(const char *job_dir, int64_t epoch, const struct model_shape *shape,
              const struct ckpt_arrays *a, const struct ckpt_state *s, struct ckpt_info *info,
              struct err *e)
{
    return save_as(job_dir, s->step, epoch, shape, a, s, info, e);
}

int ckpt_save_merged(const char *job_dir, int64_t epoch, const struct model_shape *shape,
                     const struct ckpt_arrays *a, struct ckpt_info *info, struct err *e)
{
    return save_as(job_dir, CKPT_MERGED_STEP, epoch, shape, a, NULL, info, e);
}

/* ---- finding --------------------------------------------------------------------------------- */

static int check_named(const char *dir, int64_t step, struct manifest *m, struct err *e)
{
    if (digests_check(m, dir, e) < 0) return -1;
    const char *const *all = manifest_find(m, adapter_config) ? adapter_files : files;
    for (int i = 0; i < N_FILES; i++)
        if (!manifest_find(m, all[i]))
            return err_set(e, ERR_CORRUPT, "%s: the manifest does not list %s", dir, all[i]);
    if (step < 0 || m->step == step) return 0;
    return err_set(e, ERR_CORRUPT, "%s: the manifest is of step %lld", dir, (long long)m->step);
}

int ckpt_find_latest(const char *job_dir, struct ckpt_info *info, struct err *e)
{
    char dir[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    struct step_dir *steps;
    struct manifest m;
    int n, rc = 0;
    if (file_join(dir, e, "%s/checkpoints", job_dir) < 0) return -1;
    if (steps_list(dir, NULL, &steps, &n, e) < 0) return -1;
    for (int i = 0; i < n && rc == 0; i++) {
        struct err why = {0};
        if ((rc = file_join(path, e, "%s/%s", dir, steps[i].name)) < 0) break;
        if (check_named(path, steps[i].step, &m, &why) < 0)
            log_warn("ckpt.skip", "path=%s reason=\"%s\"", path, why.text);
        else
            rc = fill_info(info, &m, path, e) < 0 ? -1 : 1;
    }
    free(steps);
    return rc;
}

int ckpt_find_merged(const char *job_dir, struct ckpt_info *info, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct manifest m;
    const long long step = CKPT_MERGED_STEP;
    if (file_join(path, e, "%s/checkpoints/" MANIFEST_STEP, job_dir, step) < 0) return -1;
    if (manifest_check(&m, path, MANIFEST_SIZES, NULL) || m.step != step ||
        !manifest_find(&m, config_file) || !manifest_find(&m, weights_file))
        return 0;
    return fill_info(info, &m, path, e) < 0 ? -1 : 1;
}

int ckpt_check(const char *step_dir, struct ckpt_info *info, struct err *e)
{
    struct manifest m;
    if (check_named(step_dir, -1, &m, e) < 0) return -1;
    return fill_info(info, &m, step_dir, e);
}

/* ---- loading --------------------------------------------------------------------------------- */

static int flow_moments(const struct st_file *f, const struct model_shape *shape,
                        const struct ckpt_arrays *a, struct err *e)
{
    struct flow_array w = {&a->flow, CKPT_WEIGHTS}, m = {&a->flow, CKPT_M}, v = {&a->flow, CKPT_V};
    const struct hf_sink to_w = sink_of(&w), to_m = sink_of(&m), to_v = sink_of(&v);
    if (hf_read_pieces(f, shape, "exp_avg:", &to_m, e) < 0) return -1;
    if (hf_read_pieces(f, shape, "exp_avg_sq:", &to_v, e) < 0) return -1;
    const bool masters = a->dtype != DT_F32 && !shape->adapter.rank;
    return masters ? hf_read_pieces(f, shape, "master:", &to_w, e) : 0;
}

/* Checks that the checkpoint has adapters if the job has them, and none if it has none. */
static int check_kind(const char *step_dir, const struct manifest *m,
                      const struct model_shape *shape, struct err *e)
{
    const bool adapted = manifest_find(m, adapter_config);
    if (adapted == (shape->adapter.rank > 0)) return 0;
    return err_field(e, ERR_CONFLICT, "checkpoint.resume",
                     adapted ? "%s is a checkpoint of adapters, and this job has none: set "
                               "adapter.type \"lora\" and what else its job had"
                             : "%s is a checkpoint of all weights, and this job trains adapters: "
                               "name its hf/ in model.path",
                     step_dir);
}

static int load_adapter(const char *step_dir, const struct model_shape *shape,
                        const struct ckpt_arrays *a, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct flow_array w = {&a->flow, CKPT_WEIGHTS};
    const struct hf_sink to = sink_of(&w);
    if (file_join(path, e, "%s/adapter", step_dir) < 0) return -1;
    if (a->base_id && base_id_check(path, a->base_id, "", e)) return -1;
    assert(a->flow.arg || (!a->params && !a->master));
    return a->flow.arg ? adapter_load(path, shape, &to, e) : adapter_check(path, shape, e);
}

static int load_weights(const char *hf, const struct model_shape *shape,
                        const struct ckpt_arrays *a, struct err *e)
{
    struct flow_array w = {&a->flow, CKPT_WEIGHTS};
    if (!a->flow.arg)
        return a->params && !a->master ? hf_load(hf, shape, a->dtype, a->params, e) : 0;
    const struct hf_sink to = sink_of(&w);
    /* If there are masters and no tensor is frozen, the masters are loaded later and replace
     * the weights of hf/. */
    const bool masters = a->dtype != DT_F32 && !shape->freeze.n_kinds;
    return masters ? 0 : hf_load_pieces(hf, shape, &to, e);
}

/* Loads the average. The weights must have been loaded before. If the checkpoint has no
 * average, the loaded weights become the average. */
static int load_average(const char *step_dir, const struct manifest *m,
                        const struct model_shape *shape, const struct ckpt_arrays *a, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct flow_array ema = {&a->flow, CKPT_EMA};
    if (!a->average || !manifest_find(m, average_file)) return 0;
    if (file_join(path, e, "%s/hf_ema", step_dir) < 0) return -1;
    const struct hf_sink to = sink_of(&ema);
    return hf_load_pieces(path, shape, &to, e);
}

static int load_moments(const char *step_dir, const struct model_shape *shape,
                        const struct ckpt_arrays *a, struct err *e)
{
    char path[FILE_PATH_SIZE];
    const bool flow = a->flow.arg != NULL;
    if (!flow && !a->m && !a->v && !a->master) return 0;
    if (file_join(path, e, "%s/optim.safetensors", step_dir) < 0) return -1;
    struct st_file *f = st_open(path, e);
    if (!f) return -1;
    if (flow) {
        int rc = flow_moments(f, shape, a, e);
        st_close(f);
        return rc;
    }
    int rc = a->m ? hf_read_flat(f, shape, "exp_avg:", a->m, e) : 0;
    if (rc == 0 && a->v) rc = hf_read_flat(f, shape, "exp_avg_sq:", a->v, e);
    if (rc == 0 && a->master) rc = hf_read_flat(f, shape, "master:", a->master, e);
    st_close(f);
    return rc;
}

static int load(const char *step_dir, const struct manifest *m, const struct model_shape *shape,
                const struct ckpt_arrays *a, struct ckpt_state *s, struct err *e)
{
    char hf[FILE_PATH_SIZE];
    struct model_shape own;
    struct ckpt_state state;
    if (read_state(step_dir, m->step, &state, e) < 0) return -1;
    if (s) *s = state;
    if (check_kind(step_dir, m, shape, e)) return -1;
    if (shape->adapter.rank)
        return load_adapter(step_dir, shape, a, e) || load_moments(step_dir, shape, a, e) ? -1 : 0;
    if (file_join(hf, e, "%s/hf", step_dir) < 0 || config_read_dir(hf, &own, e) < 0) return -1;
    const char *key = hf_shape_diff(&own, shape);
    if (key)
        return err_set(e, ERR_INVALID,
                       "%s/config.json: %s is not the job's: this checkpoint is of "
                       "another model",
                       hf, key);
    if (load_weights(hf, shape, a, e) < 0) return -1;
    if (load_moments(step_dir, shape, a, e) < 0) return -1;
    return load_average(step_dir, m, shape, a, e);
}

int ckpt_load_checked(const struct ckpt_info *info, const struct model_shape *shape,
                      const struct ckpt_arrays *a, struct ckpt_state *s, struct err *e)
{
    struct manifest m;
    if (manifest_check(&m, info->path, MANIFEST_SIZES, e) < 0) return -1;
    if (m.step == info->step && !strcmp(m.weights_sha256, info->weights_sha256))
        return load(info->path, &m, shape, a, s, e);
    return err_set(e, ERR_CORRUPT, "%s has changed since it was checked", info->path);
}
