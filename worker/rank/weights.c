/* weights.c: chooses the origin of the weights on rank 0, sends it to the other ranks, and
 * loads whole arrays, slices or pieces from it. */
#include "worker/rank/weights.h"

#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_paths.h"
#include "api/core/log.h"
#include "api/core/utf8.h"
#include "worker/ckpt/scatter.h"
#include "worker/hf/adapter.h"
#include "worker/hf/base_id.h"
#include "worker/hf/files.h"
#include "worker/hf/halves.h"
#include "worker/hf/hf.h"
#include "worker/model/host_copy.h"
#include "worker/model/stored.h"
#include "worker/plan/adapter_facts.h"
#include "worker/plan/stage.h"
#include "worker/rank/roots.h"

enum weights_origin { ORIGIN_RANDOM, ORIGIN_MODEL, ORIGIN_CHECKPOINT };

static int resolve(struct run *r, spec_ref ref, const char *field, char out[RANK_PATH_SIZE],
                   struct err *e)
{
    return roots_directory(spec_text(r->spec, ref), r->roots, r->n_roots, field, out, e);
}

/* Sets the field of an error to `field`, if the error has no field. This is the field of the
 * job that has the path of the file. */
static int about(struct err *e, const char *field)
{
    if (!e->field[0]) snprintf(e->field, sizeof e->field, "%s", field);
    return -1;
}

static int resolve_model(struct run *r, char dir[RANK_PATH_SIZE], struct err *e)
{
    return roots_model(spec_text(r->spec, r->spec->model.path), r->roots, r->n_roots, dir, e);
}

/* ---- the base of adapters -------------------------------------------------------------------- */

/* Finds the base of the job, on rank 0. The base has been loaded or drawn. */
static int find_base(struct run *r, struct base_id *out, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    const struct job_spec *s = r->spec;
    const struct model_shape whole = slice_whole(&s->model.shape);
    if (spec_random_weights(s)) {
        snprintf(out->name, sizeof out->name, "of random weights with seed %lld",
                 (long long)s->seed);
        out->field = ""; /* the seed or one of the sizes */
        return base_id_random(&whole, s->seed, out, e);
    }
    snprintf(out->name, sizeof out->name, "%s", spec_text(s, s->model.path));
    utf8_show(out->name);
    out->field = "model.path";
    if (resolve_model(r, dir, e)) return -1;
    return base_id_model(dir, &whole, out, e) ? about(e, "model.path") : 0;
}

/* Tells whether model.path and the adapter's directory are the parts hf/ and adapter/ of one
 * checkpoint, whose model has the adapter merged into it. */
static bool is_merged(struct run *r, const char *dir)
{
    char model[RANK_PATH_SIZE];
    struct err none;
    const char *const last = strrchr(dir, '/');
    const size_t n = last ? (size_t)(last + 1 - dir) : 0;
    return n && !spec_new_model(r->spec) && !resolve_model(r, model, &none) &&
           !strncmp(model, dir, n) && !strcmp(model + n, "hf");
}

/* Refuses the adapter of a directory if it was trained on another base than the job's, as far as
 * the directory names the base. *own is the base of the job; if it has no name yet, it is found
 * first. `field` is the field of the job that gives the directory. */
static int check_base(struct run *r, const char *dir, const char *field, struct base_id *own,
                      struct err *e)
{
    struct base_id made;
    const int known = base_id_read(dir, &made, e);
    if (known <= 0) return known;
    if (!own->name[0] && find_base(r, own, e)) return -1;
    const int rc = base_id_check(dir, own,
                                 "; if this is that model in another precision, name a copy of the "
                                 "adapter without " BASE_ID_FILE,
                                 e);
    if (!rc || e->code != ERR_CONFLICT || !is_merged(r, dir)) return rc;
    return err_field(e, ERR_CONFLICT, field,
                     "%s is merged into %s already: leave %s out, or give the base %s in "
                     "model.path",
                     dir, own->name, field, made.name);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Finds the checkpoint to resume from. Returns 1 if there is such a checkpoint, 0 if there is
 * no checkpoint to resume from, and -1 on an error. */
static int find_checkpoint(struct run *r, struct ckpt_info *info, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    if (r->spec->kind != JOB_TRAIN || r->spec->checkpoint.resume == RESUME_NONE) return 0;
    int found = ckpt_find_latest(r->args->job_dir, info, e);
    if (found || r->spec->checkpoint.resume != RESUME_PATH) return found;
    if (resolve(r, r->spec->checkpoint.resume_path, "checkpoint.resume", dir, e)) return -1;
    if (ckpt_check(dir, info, e)) return about(e, "checkpoint.resume");
    return 1;
}

bool weights_is_own(const struct run *r, const struct ckpt_info *info)
{
    const size_t n = strlen(r->args->job_dir);
    return !strncmp(info->path, r->args->job_dir, n) && info->path[n] == '/';
}

static int load_checkpoint(struct run *r, const struct ckpt_arrays *a, const struct ckpt_info *info,
                           struct ckpt_state *s, struct err *e)
{
    char digest[SHA256_HEX];
    struct model_shape shape = slice_whole(&r->spec->model.shape);
    /* Use the rope_theta of the stage to which the checkpoint's last step belongs. */
    shape.rope_theta = stage_rope_theta(r->spec, stage_at(r->spec, info->step - 1));
    const int rc = ckpt_load_checked(info, &shape, a, s, e);
    /* An error that names a field of the job is kept. */
    if (rc && e->field[0]) return -1;
    ckpt_spec_digest(r->spec, digest);
    if (s->spec_digest[0] && strcmp(digest, s->spec_digest) &&
        ckpt_spec_refuse(info->path, r->spec, e))
        return -1;
    if (rc) return -1;
    if (strcmp(r->args->prepared_id, s->data_id) && !r->spec->checkpoint.changes)
        return err_field(e, ERR_CONFLICT, "data.train",
                         "%s counts in data %s, this job has %s: the files have changed",
                         info->path, s->data_id, r->args->prepared_id);
    /* The losses of another job are not those of this one, whose data may differ. */
    if (r->spec->checkpoint.changes && !weights_is_own(r, info)) memset(&s->low, 0, sizeof s->low);
    log_info("rank.resume", "step=%lld path=\"%s\"", (long long)s->step, info->path);
    return 0;
}

/* Chooses the origin of the weights, on rank 0. */
static int choose(struct run *r, int64_t *origin, struct ckpt_info *info, struct err *e)
{
    const int found = find_checkpoint(r, info, e);
    if (found < 0) return -1;
    if (!found) info->path[0] = 0;
    *origin = found                          ? ORIGIN_CHECKPOINT
              : spec_random_weights(r->spec) ? ORIGIN_RANDOM
                                             : ORIGIN_MODEL;
    return 0;
}

static int share(struct run *r, struct model *m, void *x, int64_t size, struct err *e)
{
    if (!r->comm) return 0;
    return comm_broadcast(r->comm, PURPOSE_CONTROL, 0, x, size, m->bounce, e);
}

/* On rank 0, sends a note about the weights that were quantised a second time. */
static int note_again(struct run *r, const struct hf_requant *a, struct err *e)
{
    char text[400];
    if (!a->n) return 0;
    snprintf(
        text, sizeof text,
        "%d tensor%s of model.path %s in blocks that model.weights \"%s\" does not have there, "
        "and quantised again: %s%s",
        a->n, a->n == 1 ? "" : "s", a->n == 1 ? "was" : "were",
        spec_weights_words[r->spec->model.weights], a->names, a->n > 3 ? ", ..." : "");
    return link_send_note(r->link, "quantised_again", text, e);
}

/* ---- adapters -------------------------------------------------------------------------------- */

static bool has_adapters(const struct run *r)
{
    return shape_adapts(&r->spec->model.shape);
}

/* Tells whether the adapters are those of directories, and not new ones. */
static bool has_directory(const struct run *r)
{
    return has_adapters(r) && (r->spec->model.adapter || r->spec->model.adapters[0].path);
}

/* Loads the adapters of model.adapters, on rank 0. */
static int load_list(struct run *r, const struct model_shape *shape, const struct hf_sink *to,
                     struct err *e)
{
    char dir[RANK_PATH_SIZE], field[JOB_ADAPTER_FIELD];
    struct base_id own = {0};
    for (int i = 0; i < shape->adapters.n; i++) {
        job_adapter_field(r->spec, i, field);
        if (resolve(r, r->spec->model.adapters[i].path, field, dir, e)) return -1;
        if (check_base(r, dir, field, &own, e) || adapter_load_at(dir, shape, i, to, e)) {
            adapter_facts_changed(field, e);
            return -1;
        }
    }
    return 0;
}

/* Passes the adapters to a sink, on rank 0. They are read from model.adapter, or drawn if it is not
 * given. */
static int load_adapters(struct run *r, const struct model_shape *shape, const struct hf_sink *to,
                         struct err *e)
{
    char dir[RANK_PATH_SIZE];
    struct base_id own = {0};
    if (!has_adapters(r)) return 0;
    if (shape->adapters.n) return load_list(r, shape, to, e);
    if (!has_directory(r))
        return model_random_adapters(shape, r->spec->seed, &(struct random_sink){to->take, to->arg},
                                     e);
    if (resolve(r, r->spec->model.adapter, "model.adapter", dir, e)) return -1;
    if (check_base(r, dir, "model.adapter", &own, e) || adapter_load(dir, shape, to, e))
        return about(e, "model.adapter");
    return 0;
}

static int take_piece(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    const struct ckpt_arrays *a = arg;
    return a->flow.write(a->flow.arg, CKPT_WEIGHTS, offset, n, x, e);
}

/* Passes the adapters to all ranks that hold parts of them, on rank 0. */
static int scatter_adapters(struct run *r, struct sharded_state *h, struct err *e)
{
    struct ckpt_arrays a = scatter_arrays(h);
    const struct hf_sink to = {.take = take_piece, .arg = &a};
    const struct model_shape whole = slice_whole(&r->spec->model.shape);
    return load_adapters(r, &whole, &to, e);
}

/* ---- a model that is whole on every rank ----------------------------------------------------- */

/* Loads the weights as slices and stages. Rank 0 sends each slice, and the weights of each
 * stage, to the ranks that hold them. If the weights are random, every rank has drawn its own, and
 * only adapters of a directory are loaded. */
static int load_parts(struct run *r, struct model *m, bool random, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    struct sharded_state h;
    struct hf_requant again = {0};
    const struct model_shape whole = slice_whole(&m->shape);
    sharded_init(&h, r->spec, m, r->args->rank);
    if (!run_first(r)) return scatter_serve(&h, e);
    if (!random && resolve_model(r, dir, e)) return -1;
    if (!random && scatter_model(&h, dir, &whole, &again, e)) return about(e, "model.path");
    if (scatter_adapters(r, &h, e)) return -1;
    return scatter_end(&h, e) || note_again(r, &again, e) ? -1 : 0;
}

/* Reads all weights of a model on rank 0. If `random` is set, the model has random weights
 * already, and only adapters of a directory are read. The parameter `again` is NULL, or points to
 * a struct of zeros. */
static int read_whole(struct run *r, struct model *m, bool random, struct hf_requant *again,
                      struct err *e)
{
    char dir[RANK_PATH_SIZE];
    struct device_array there = {m->be, m->dtype, m->params};
    const struct hf_sink numbers = {.take = device_array_write,
                                    .arg = &there,
                                    .take_half = m->dtype == DT_F32 ? NULL
                                                                    : device_array_write_half,
                                    .half = m->dtype,
                                    .be = m->be,
                                    .any_order = !m->be->own_memory};
    const struct hf_sink blocks = {.take = stored_take,
                                   .arg = m,
                                   .format = stored_format,
                                   .take_blocks = stored_take_blocks,
                                   .again = again,
                                   .be = m->be,
                                   .any_order = !m->be->own_memory};
    const struct hf_sink *const sink = m->shape.quant ? &blocks : &numbers;
    if (!random && resolve_model(r, dir, e)) return -1;
    if (!random && hf_load_pieces(dir, &m->shape, sink, e)) return about(e, "model.path");
    return load_adapters(r, &m->shape, sink, e);
}

static int load_whole(struct run *r, struct model *m, bool random, struct err *e)
{
    struct hf_requant again = {0};
    if (run_first(r) && (read_whole(r, m, random, &again, e) || note_again(r, &again, e)))
        return -1;
    if (!r->comm) return 0;
    int64_t loaded = 1; /* the other ranks wait for this word before the transfer, because
                         * reading may take longer than the time limit for a transfer */
    if (share(r, m, &loaded, sizeof loaded, e)) return -1;
    return comm_broadcast_tensor(r->comm, PURPOSE_CONTROL, 0, m->params, plan_weights_size(m->plan),
                                 m->bounce, e);
}

int weights_load(struct run *r, struct model *m, struct err *e)
{
    struct ckpt_info none;
    int64_t origin = 0;
    if (run_first(r) && choose(r, &origin, &none, e)) return -1;
    if (share(r, m, &origin, sizeof origin, e)) return -1;
    const bool parts = m->plan->tp > 1 || m->plan->pp > 1, random = origin != ORIGIN_MODEL;
    if (random) model_random(m, r->spec->seed);
    if (random && !has_directory(r)) return 0;
    return parts ? load_parts(r, m, random, e) : load_whole(r, m, random, e);
}

int weights_reference(void *run, struct model *reference, struct err *e)
{
    struct run *r = run;
    const bool random = spec_random_weights(r->spec);
    if (random) model_random(reference, r->spec->seed);
    if (random && !has_directory(r)) return 0;
    return read_whole(r, reference, random, NULL, e);
}

/* ---- a training ------------------------------------------------------------------------------ */

/* Loads the model of model.path piece by piece, on rank 0. */
static int load_model(struct run *r, struct sharded_state *h, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    struct hf_requant again = {0};
    const struct model_shape whole = slice_whole(&r->spec->model.shape);
    if (resolve_model(r, dir, e)) return -1;
    if (scatter_model(h, dir, &whole, &again, e)) return about(e, "model.path");
    return note_again(r, &again, e);
}

/* Loads the weights piece by piece, on rank 0. If the weights are random, they exist already, and
 * only adapters of a directory are loaded. A checkpoint of adapters has no weights of their model,
 * which is loaded as at the start of the job unless it is `held`. */
static int load_pieces(struct run *r, struct sharded_state *h, int64_t origin,
                       const struct base_id *held, struct weights_start *out, struct err *e)
{
    struct ckpt_arrays a = scatter_arrays(h);
    const bool resumes = origin == ORIGIN_CHECKPOINT && has_adapters(r) && !held;
    const bool model = origin == ORIGIN_MODEL || (resumes && !spec_random_weights(r->spec));
    if (model && load_model(r, h, e)) return -1;
    const bool kept = held && !model; /* files that are read again may be others */
    if (has_adapters(r) && kept) out->base = *held;
    if (has_adapters(r) && !kept && find_base(r, &out->base, e)) return -1;
    if (has_adapters(r)) a.base_id = &out->base;
    if (origin == ORIGIN_CHECKPOINT) return load_checkpoint(r, &a, &out->info, &out->state, e);
    return model || has_directory(r) ? scatter_adapters(r, h, e) : 0;
}

static int find_wrapper(struct run *r, struct weights_start *out, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    if (spec_new_model(r->spec)) return 0;
    if (resolve_model(r, dir, e)) return -1;
    return config_wraps(dir, &out->wrapped, e) ? about(e, "model.path") : 0;
}

bool weights_left_text(const struct weights_left *left, const char *what, char *out, size_t size)
{
    if (!left->n) return false;
    snprintf(out, size, "%s without %d file%s of the model's directory: %s%s", what, left->n,
             left->n == 1 ? "" : "s", left->names, left->n > 4 ? ", ..." : "");
    return true;
}

/* Copies the files of the directory take->from that are not weights to take->to. */
static int copy_files(struct run *r, const struct hf_take *take, struct weights_left *left,
                      struct err *e)
{
    struct hf_files taken;
    const struct model_shape whole = slice_whole(&r->spec->model.shape);
    if (file_remove(take->to, e) || hf_take_files(take, &taken, e) ||
        config_copy(take->from, take->to, e) || hf_halves_take(take, &whole, e))
        return err_prefix(e, "files of %s", take->from);
    left->n = taken.n_left;
    memcpy(left->names, taken.left, sizeof left->names);
    return 0;
}

/* Copies the other files that are in the directory of the weights. While it copies, it tells
 * the other ranks that rank 0 is busy. */
static int take_files(struct run *r, struct sharded_state *h, int64_t origin,
                      struct weights_start *out, struct err *e)
{
    char from[FILE_PATH_SIZE], model[RANK_PATH_SIZE];
    const struct ckpt_arrays a = scatter_arrays(h);
    if (has_adapters(r) && find_wrapper(r, out, e)) return -1;
    /* A checkpoint of adapters has a model only if it is merged. Its files are those of the model
     * of model.path. */
    if (has_adapters(r) && (!r->spec->checkpoint.merge || spec_new_model(r->spec))) return 0;
    if (has_adapters(r)) origin = ORIGIN_MODEL;
    if (file_join(out->beside, e, "%s/beside", r->args->job_dir)) return -1;
    const struct hf_take take = {from, out->beside, true, a.flow.still, a.flow.arg};
    if (origin != ORIGIN_CHECKPOINT && resolve_model(r, model, e)) return -1;
    if (origin == ORIGIN_CHECKPOINT ? file_join(from, e, "%s/hf", out->info.path)
                                    : file_join(from, e, "%s", model))
        return -1;
    return copy_files(r, &take, &out->left, e);
}

/* Fills the arrays of h. If the ranks hold the base of adapters already, `held` identifies it;
 * otherwise `held` is NULL. */
static int fill(struct run *r, struct sharded_state *h, const struct base_id *held,
                struct weights_start *out, struct err *e)
{
    int64_t origin = 0;
    *out = (struct weights_start){0};
    if (run_first(r) && choose(r, &origin, &out->info, e)) return -1;
    if (share(r, h->model, &origin, sizeof origin, e)) return -1;
    const bool again = origin == ORIGIN_CHECKPOINT && has_adapters(r) && !held &&
                       spec_random_weights(r->spec);
    if (origin == ORIGIN_RANDOM || again) sharded_random(h, r->spec->seed);
    if (origin == ORIGIN_RANDOM && spec_new_model(r->spec) && !has_directory(r))
        return run_first(r) && has_adapters(r) ? find_base(r, &out->base, e) : 0;
    if (!run_first(r)) {
        if (scatter_serve(h, e)) return -1;
    } else if (load_pieces(r, h, origin, held, out, e) || take_files(r, h, origin, out, e) ||
               scatter_end(h, e)) {
        return -1;
    }
    return share(r, h->model, &out->state, sizeof out->state, e);
}

int weights_start(struct run *r, struct sharded_state *h, struct weights_start *out, struct err *e)
{
    return fill(r, h, NULL, out, e);
}

int weights_return(struct run *r, struct sharded_state *h, const struct base_id *base,
                   struct weights_start *out, struct err *e)
{
    return fill(r, h, base, out, e);
}

/* ---- a merge --------------------------------------------------------------------------------- */

int weights_merge(struct run *r, void (*still)(void *arg), void *arg, struct weights_merge *out,
                  struct err *e)
{
    struct base_id own = {0};
    *out = (struct weights_merge){0};
    if (resolve_model(r, out->model, e) ||
        resolve(r, r->spec->model.adapter, "model.adapter", out->adapter, e))
        return -1;
    if (check_base(r, out->adapter, "model.adapter", &own, e)) return about(e, "model.adapter");
    if (file_join(out->beside, e, "%s/beside", r->args->job_dir)) return -1;
    const struct hf_take take = {out->model, out->beside, true, still, arg};
    return copy_files(r, &take, &out->left, e);
}
