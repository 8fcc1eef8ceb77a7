#include "worker/rank/weights.h"

#include <stdio.h>
#include <string.h>

#include "api/core/log.h"
#include "worker/model/hf.h"
#include "worker/train/roots.h"

enum origin { ORIGIN_RANDOM, ORIGIN_MODEL, ORIGIN_CHECKPOINT };

struct choice { /* what rank 0 broadcasts */
    int64_t origin;
    struct ckpt_state state;
};

static int resolve(struct run *r, spec_ref ref, const char *field, char out[RANK_PATH_SIZE],
                   struct err *e)
{
    return roots_directory(spec_text(r->spec, ref), r->roots, r->args->n_roots, field, out, e);
}

/* Says which field of the job led to the file that the sentence is about. */
static int about(struct err *e, const char *field)
{
    if (!e->field[0]) snprintf(e->field, sizeof e->field, "%s", field);
    return -1;
}

/* Which checkpoint to go on from: 1 found, 0 none, -1. */
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

static int load_checkpoint(struct run *r, const struct ckpt_arrays *a, const struct ckpt_info *info,
                           struct ckpt_state *s, struct err *e)
{
    char digest[SHA256_HEX];
    const int rc = ckpt_load(info->path, &r->spec->model.shape, a, s, e);
    ckpt_spec_digest(r->spec, digest);
    if (s->spec_digest[0] && strcmp(digest, s->spec_digest))
        return err_field(
            e, ERR_CONFLICT, "checkpoint.resume",
            "%s was made by a job with another model, data, schedule or precision; to start from "
            "its weights alone set model.path to %s/hf",
            info->path, info->path);
    if (rc) return -1;
    if (strcmp(r->args->prepared_id, s->data_id))
        return err_field(e, ERR_CONFLICT, "data.train",
                         "%s counts in data %s, this job has %s: the files have changed",
                         info->path, s->data_id, r->args->prepared_id);
    log_info("rank.resume", "step=%lld path=\"%s\"", (long long)s->step, info->path);
    return 0;
}

/* Where files are read to: the master weights, of which the model's are then the rounded copy. */
static struct tensor loaded(const struct ckpt_arrays *a)
{
    return a->master ? tensor_f32(a->master, 1, 0, 0) : tensor_of(a->dtype, a->params, 1, 0, 0);
}

/* Rank 0 alone. */
static int choose(struct run *r, const struct ckpt_arrays *a, struct choice *c,
                  struct ckpt_info *info, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    int found = find_checkpoint(r, info, e);
    if (found < 0) return -1;
    if (found) {
        c->origin = ORIGIN_CHECKPOINT;
        return load_checkpoint(r, a, info, &c->state, e);
    }
    info->path[0] = 0;
    if (!*spec_text(r->spec, r->spec->model.path)) {
        c->origin = ORIGIN_RANDOM;
        return 0;
    }
    c->origin = ORIGIN_MODEL;
    if (resolve(r, r->spec->model.path, "model.path", dir, e)) return -1;
    const struct tensor w = loaded(a);
    if (hf_load(dir, &r->spec->model.shape, w.dtype, w.data, e)) return about(e, "model.path");
    return 0;
}

static int share(struct model *m, void *x, int64_t size, struct err *e)
{
    if (!m->comm || !x) return 0;
    return comm_broadcast(m->comm, PURPOSE_CONTROL, 0, x, size, m->bounce, e);
}

static void make_random(struct model *m, const struct ckpt_arrays *a, int64_t seed)
{
    struct tensor w = loaded(a);
    w.cols = w.ld = m->plan->n_params;
    model_random_part(m->be, &m->shape, seed, 0, w);
}

static void round_master(struct model *m, const struct ckpt_arrays *a)
{
    const int64_t n = m->plan->n_params;
    if (a->master)
        m->be->ops->cast(m->be, &(struct cast_args){.dst = model_weight(m, 0, 1, n),
                                                    .src = tensor_f32(a->master, 1, n, n)});
}

int weights_load(struct run *r, struct model *m, const struct ckpt_arrays *a,
                 struct weights_start *out, struct err *e)
{
    struct choice c = {0};
    const struct tensor w = loaded(a);
    const int64_t n = m->plan->n_params, size = n * 4;
    *out = (struct weights_start){0};
    if (run_first(r) && choose(r, a, &c, &out->info, e)) return -1;
    if (share(m, &c, sizeof c, e)) return -1;
    out->state = c.state;
    if (c.origin == ORIGIN_RANDOM) {
        make_random(m, a, r->spec->seed);
        round_master(m, a);
        return 0;
    }
    if (share(m, w.data, n * dtype_size(w.dtype), e)) return -1;
    round_master(m, a);
    if (c.origin != ORIGIN_CHECKPOINT) return 0;
    return share(m, a->m, size, e) || share(m, a->v, size, e) ? -1 : 0;
}
