/* keep.c: writes verify.json, and the gradients of both sides as safetensors. */
#include "worker/verify/keep.h"

#include <stdio.h>
#include <stdlib.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/hf/hf.h"
#include "worker/model/host_copy.h"
#include "worker/plan/slice.h"

static int write_grads(const struct verify_args *a, float *grad, const char *name,
                       struct artifact_done *done, struct err *e)
{
    struct device_array there = {a->model->be, DT_F32, grad};
    const struct hf_flat flat = {
        "", NULL, DT_F32, device_array_read, &there, .trained = true, .gradient = true};
    if (artifact_path(a->job_dir, name, done, e)) return -1;
    const struct model_shape whole = slice_whole(&a->model->shape);
    if (hf_write_flats(done->path, &whole, &flat, 1, NULL, e)) return -1;
    return artifact_describe(done, e);
}

static void write_rows(struct jwrite *w, const struct verify *v)
{
    jwrite_array(w, "tensors");
    for (int i = 0; i < v->n_rows; i++) {
        const struct verify_row *r = &v->row[i];
        jwrite_object(w, NULL);
        jwrite_str(w, "name", r->name);
        if (v->n_stages > 1) jwrite_int(w, "stage", r->stage);
        jwrite_double(w, "rel_l2", r->rel_l2);
        jwrite_double(w, "allowed", r->allowed);
        jwrite_double(w, "cosine", r->cosine);
        jwrite_double(w, "norm_sp1", r->norm_1);
        jwrite_double(w, "norm_spP", r->norm_p);
        jwrite_end(w);
    }
    jwrite_end(w);
}

/* Writes the counts of the choices of experts: the number of rows that chose, the number of rows
 * with different choices, and the gap. */
static void write_routes(struct jwrite *w, const struct verify *v)
{
    jwrite_object(w, "routes");
    jwrite_int(w, "rows", v->routes.rows);
    jwrite_int(w, "turned", v->routes.turned);
    jwrite_double(w, "gap", v->routes.gap);
    jwrite_double(w, "allowed_gap", v->allowed_gap);
    jwrite_end(w);
}

/* Writes the number of pairs, and how far references, sums and factors differ. */
static void write_pairs(struct jwrite *w, const struct verify *v)
{
    static const char *const name[VERIFY_PAIR_PARTS][2] = {
        {"sums_rel_l2", "allowed_sums_rel_l2"},
        {"references_rel_l2", "allowed_references_rel_l2"},
        {"factors_rel_l2", "allowed_factors_rel_l2"}};
    jwrite_object(w, "pairs");
    jwrite_int(w, "pairs_sp1", v->pairs.n_1);
    jwrite_int(w, "pairs_spP", v->pairs.n_p);
    for (int i = 0; i < VERIFY_PAIR_PARTS; i++) {
        jwrite_double(w, name[i][0], v->pairs.part[i].rel_l2);
        jwrite_double(w, name[i][1], v->pairs.part[i].allowed);
    }
    jwrite_end(w);
}

int verify_keep_json(const struct verify_args *a, struct verify *v, struct err *e)
{
    struct artifact out = {0};
    size_t room = 4096 + (size_t)v->n_rows * 384; /* a name and five numbers of 25 characters */
    char *buf = malloc(room);
    struct jwrite w;
    int rc = -1;
    if (!buf) return err_set(e, ERR_IO, "out of memory for verify.json");
    jwrite_init(&w, buf, room);
    jwrite_object(&w, NULL);
    jwrite_bool(&w, "equal", v->equal);
    jwrite_int(&w, "ranks", v->n_ranks);
    if (v->n_stages > 1) jwrite_int(&w, "stages", v->n_stages);
    if (v->n_samples > 1) jwrite_int(&w, "samples", v->n_samples);
    jwrite_int(&w, "tokens", v->n_tokens);
    jwrite_int(&w, "targets_sp1", v->targets_1);
    jwrite_int(&w, "targets_spP", v->targets_p);
    jwrite_double(&w, "loss_sp1", v->loss_1);
    jwrite_double(&w, "loss_spP", v->loss_p);
    jwrite_double(&w, "loss_rel", v->loss_rel);
    jwrite_double(&w, "allowed_loss_rel", v->allowed_loss_rel);
    jwrite_double(&w, "logits_max_abs", v->logits_max_abs);
    jwrite_double(&w, "logits_rel_l2", v->logits_rel_l2);
    jwrite_double(&w, "allowed_logits_rel_l2", v->allowed_logits_rel_l2);
    jwrite_double(&w, "allowed_rel_l2", a->spec->verify.grad_rel_l2);
    jwrite_bool(&w, "controlled", v->controlled);
    if (v->nearest >= 0) jwrite_str(&w, "nearest", v->row[v->nearest].name);
    if (v->routes.rows) write_routes(&w, v);
    if (v->pairs.n_1) write_pairs(&w, v);
    write_rows(&w, v);
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    assert(n > 0);
    buf[n] = '\n';
    if (!artifact_open(&out, a->job_dir, "verify.json", e) &&
        !artifact_write(&out, buf, (size_t)n + 1, e) && !artifact_finish(&out, e))
        rc = 0;
    v->artifact[2] = out.done;
    artifact_drop(&out);
    free(buf);
    return rc;
}

int verify_keep_grads(const struct verify_args *a, float *reference, struct verify *v,
                      struct err *e)
{
    char name[ARTIFACT_NAME];
    snprintf(name, sizeof name, "grads-sp%d.safetensors", v->n_ranks);
    /* If one rank is compared with itself, the two files still need different names. */
    if (v->n_ranks == 1) snprintf(name, sizeof name, "grads-sp1-packed.safetensors");
    if (write_grads(a, reference, "grads-sp1.safetensors", &v->artifact[0], e)) return -1;
    return write_grads(a, v->grad, name, &v->artifact[1], e);
}
