/* ckpt_spec.c: collects the fields of a job that must be the same when the job resumes from a
 * checkpoint. These fields are stored in two forms: as a digest, which decides whether the job
 * may resume, and as a text, from which a difference is explained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/field.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "worker/ckpt/ckpt.h"
#include "worker/family/shape.h"
#include "worker/plan/stage.h"

#define STATE_FILE_SIZE 65536
/* Largest size in bytes of a value as text. The text of the stages is the longest text of a
 * value. */
#define VALUE_SIZE 1024

static bool is_size(const struct field *f)
{
    return !strncmp(f->path, "model.config.", 13);
}

static const void *value_of(const struct job_spec *spec, const struct field *f)
{
    return (is_size(f) ? (const char *)&spec->model.shape : (const char *)spec) + f->offset;
}

/* The rank and the alpha of adapters may be left out. The shape has the values that are used in
 * place of them. is_resolved tells whether a field is one of these two, and the shape has its
 * value. int_of and double_of return the value that is used. */
static bool is_resolved(const struct job_spec *spec, const struct field *f)
{
    return spec->model.shape.adapter.rank &&
           (!strcmp(f->path, "adapter.rank") || !strcmp(f->path, "adapter.alpha"));
}

static int64_t int_of(const struct job_spec *spec, const struct field *f)
{
    return is_resolved(spec, f) ? spec->model.shape.adapter.rank
                                : *(const int64_t *)value_of(spec, f);
}

static double double_of(const struct job_spec *spec, const struct field *f)
{
    return is_resolved(spec, f) ? spec->model.shape.adapter.alpha
                                : *(const double *)value_of(spec, f);
}

/* Returns the row after f in a list of a job's fields. The sizes of the model come first in this
 * list. Returns NULL after the last row. */
static const struct field *next_row(const struct field *f)
{
    const bool size = !f || is_size(f);
    f = f ? f + 1 : shape_fields;
    if (!f->path && size) f = spec_fields;
    return f->path ? f : NULL;
}

/* Returns true if a field has its default. Fields with their defaults are left out, so that a
 * field that a later version adds does not change the digests of older jobs. */
static bool is_default(const struct job_spec *spec, const struct field *f)
{
    return !is_resolved(spec, f) && spec_is_default(spec, f, value_of(spec, f));
}

static void digest_field(struct sha256 *sha, const struct job_spec *spec, const struct field *f)
{
    const void *v = value_of(spec, f);
    char number[32];
    const char *text = number;
    switch (f->type) {
    case FIELD_INT: snprintf(number, sizeof number, "%lld", (long long)int_of(spec, f)); break;
    case FIELD_DOUBLE: jwrite_number(number, double_of(spec, f)); break;
    case FIELD_STRING: text = spec_text(spec, *(const spec_ref *)v); break;
    default: snprintf(number, sizeof number, "%d", *(const int32_t *)v); break;
    }
    sha256_add(sha, f->path, strlen(f->path) + 1);
    sha256_add(sha, text, strlen(text) + 1);
}

/* Adds the meaning of the stages to the digest. For this reason two spellings of the same
 * stages result in the same digest. */
static void digest_stages(struct sha256 *sha, const struct job_spec *spec)
{
    for (int i = 0; i < spec->n_stages; i++) {
        const double v[] = {(double)spec->stages[i].from_step, (double)stage_seq_len(spec, i),
                            stage_lr(spec, i), stage_rope_theta(spec, i)};
        for (size_t k = 0; k < sizeof v / sizeof *v; k++) {
            char number[32];
            jwrite_number(number, v[k]);
            sha256_add(sha, number, strlen(number) + 1);
        }
    }
}

static bool is_governed(const struct field *f)
{
    static const char *const parts[] = {"model.rope.", "model.weights", "data.",     "train.",
                                        "adapter.",    "optim.",        "schedule.", "precision.",
                                        "objective.",  "ema.",          "seed"};
    /* Skips the sizes that only a model directory has (kinds 0). Also skips the choice of the
     * tokenizer, because data_id depends on the ids that the tokenizer makes, and the names of the
     * products that have adapters and of whole modules, because the checkpoint has their tensors.
     * The base of adapters is compared by its digest (worker/hf/base_id.h), whatever its path is.
     */
    if (is_size(f)) return f->kinds != 0;
    if (!strcmp(f->path, "data.tokenizer") || !strncmp(f->path, "adapter.targets", 15) ||
        !strncmp(f->path, "adapter.modules_to_save", 23))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strncmp(f->path, parts[i], strlen(parts[i]))) return true;
    return false;
}

void ckpt_spec_digest(const struct job_spec *spec, char out[SHA256_HEX])
{
    struct sha256 sha;
    sha256_init(&sha);
    for (const struct field *f = next_row(NULL); f; f = next_row(f))
        if (is_governed(f) && !is_default(spec, f)) digest_field(&sha, spec, f);
    if (spec->n_stages) digest_stages(&sha, spec);
    sha256_hex(&sha, out);
}

/* ---- as text --------------------------------------------------------------------------------- */

static void value_text(const struct job_spec *spec, const struct field *f, char out[VALUE_SIZE])
{
    const void *v = value_of(spec, f);
    switch (f->type) {
    case FIELD_INT: snprintf(out, VALUE_SIZE, "%lld", (long long)int_of(spec, f)); break;
    case FIELD_DOUBLE: jwrite_number(out, double_of(spec, f)); break;
    case FIELD_STRING:
        snprintf(out, VALUE_SIZE, "\"%.200s\"", spec_text(spec, *(const spec_ref *)v));
        break;
    case FIELD_BOOL: snprintf(out, VALUE_SIZE, *(const int32_t *)v ? "true" : "false"); break;
    case FIELD_ENUM: snprintf(out, VALUE_SIZE, "\"%s\"", f->words[*(const int32_t *)v]); break;
    default: snprintf(out, VALUE_SIZE, "%d", *(const int32_t *)v); break;
    }
}

static void stages_text(const struct job_spec *spec, char out[VALUE_SIZE])
{
    size_t n = 0;
    if (!spec->n_stages) snprintf(out, VALUE_SIZE, "none");
    for (int i = 0; i < spec->n_stages; i++) {
        char lr[32], theta[32];
        jwrite_number(lr, stage_lr(spec, i));
        jwrite_number(theta, stage_rope_theta(spec, i));
        n += (size_t)snprintf(out + n, VALUE_SIZE - n,
                              "%sfrom step %lld: seq_len %lld, lr %s, rope_theta %s", i ? "; " : "",
                              (long long)spec->stages[i].from_step,
                              (long long)stage_seq_len(spec, i), lr, theta);
    }
}

int ckpt_spec_json(const struct job_spec *spec, char out[CKPT_SPEC_SIZE])
{
    char text[VALUE_SIZE];
    struct jwrite w;
    jwrite_init(&w, out, CKPT_SPEC_SIZE);
    jwrite_object(&w, NULL);
    for (const struct field *f = next_row(NULL); f; f = next_row(f)) {
        if (!is_governed(f) || is_default(spec, f)) continue;
        value_text(spec, f, text);
        jwrite_str(&w, f->path, text);
    }
    stages_text(spec, text);
    jwrite_str(&w, "stages", text);
    jwrite_end(&w);
    return jwrite_finish(&w) < 0 ? -1 : 0;
}

/* Reads the text of one field from the object "spec" of the state file. Returns 1 if it has found
 * the field, 0 if the object has no such field, and -1 if the file has no such object. */
static int stored_text(const char *state, size_t size, const char *path, char out[VALUE_SIZE])
{
    struct jread j;
    jread_init(&j, state, size);
    if (jread_next(&j) != J_OBJECT) return -1;
    while (jread_next(&j) == J_KEY) {
        if (!jread_is(&j, "spec")) {
            if (jread_skip(&j)) return -1;
            continue;
        }
        if (jread_next(&j) != J_OBJECT) return -1;
        while (jread_next(&j) == J_KEY) {
            const bool found = jread_is(&j, path);
            if (jread_next(&j) != J_STRING) return -1;
            if (found) return jread_copy(&j, out, VALUE_SIZE) ? -1 : 1;
        }
        return 0;
    }
    return -1;
}

struct ckpt_start ckpt_start_of(const char *step_dir)
{
    char path[CKPT_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/adapter", step_dir);
    return file_exists(path) ? (struct ckpt_start){"adapter", "model.adapter", "adapter"}
                             : (struct ckpt_start){"weights", "model.path", "hf"};
}

/* Tells whether a field may differ between the job and the checkpoint with checkpoint.changes,
 * because the shape of a learnt array does not depend on it. */
static bool may_change(const char *path)
{
    static const char *const parts[] = {
        "data.",     "train.", "optim.lr",       "optim.weight_decay",
        "schedule.", "stages", "adapter.dropout"};
    if (!strncmp(path, "train.freeze.", 13)) return false; /* only trained tensors have moments */
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strncmp(path, parts[i], strlen(parts[i]))) return true;
    return false;
}

static bool is_free(const struct job_spec *spec, const char *path)
{
    return spec->checkpoint.changes && may_change(path);
}

static int refuse(struct err *e, const char *dir, const char *field, const char *made,
                  const char *has)
{
    const struct ckpt_start s = ckpt_start_of(dir);
    if (may_change(field))
        return err_field(e, ERR_CONFLICT, field,
                         "%s was made with %s %s, this job has %s: give the same, or set "
                         "checkpoint.changes to true, as seqctl continue does, to keep the "
                         "optimizer state; %s %s/%s starts from its %s alone",
                         dir, field, made, has, s.field, dir, s.below, s.what);
    if (!strncmp(field, "adapter.", 8)) /* no other adapter begins with the tensors of this one */
        return err_field(e, ERR_CONFLICT, field,
                         "%s was made with %s %s, this job has %s: give the same, or begin again "
                         "with checkpoint.resume \"none\"",
                         dir, field, made, has);
    return err_field(e, ERR_CONFLICT, field,
                     "%s was made with %s %s, this job has %s: give the same, or start from its "
                     "%s alone with %s %s/%s",
                     dir, field, made, has, s.what, s.field, dir, s.below);
}

/* Finds the first field that differs. If there is such a field, returns 1, and the error e
 * names it. Returns 0 if no field of the table differs, and -1 if the checkpoint does not have
 * its job's fields. */
static int name_difference(const char *dir, const char *state, size_t size,
                           const struct job_spec *spec, struct err *e)
{
    char made[VALUE_SIZE], has[VALUE_SIZE];
    struct job_spec *defaults = malloc(sizeof *defaults);
    int rc = 0;
    if (!defaults) abort();
    spec_defaults(defaults);
    shape_defaults(&defaults->model.shape);
    for (const struct field *f = next_row(NULL); f && !rc; f = next_row(f)) {
        if (!is_governed(f) || is_free(spec, f->path)) continue;
        const int found = stored_text(state, size, f->path, made);
        if (found < 0) rc = -1;
        if (!found) value_text(defaults, f, made);
        value_text(spec, f, has);
        if (found >= 0 && strcmp(made, has)) rc = 1, refuse(e, dir, f->path, made, has);
    }
    stages_text(spec, has);
    if (!rc && !is_free(spec, "stages") && stored_text(state, size, "stages", made) == 1 &&
        strcmp(made, has))
        rc = 1, refuse(e, dir, "stages", made, has);
    free(defaults);
    return rc;
}

int ckpt_spec_refuse(const char *step_dir, const struct job_spec *spec, struct err *e)
{
    char path[CKPT_PATH_SIZE + 32];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/train_state.json", step_dir);
    char *state = file_read(path, STATE_FILE_SIZE, &size, NULL);
    const int named = state ? name_difference(step_dir, state, size, spec, e) : -1;
    free(state);
    if (named > 0) return -1;
    /* checkpoint.changes allows the difference. */
    if (!named && spec->checkpoint.changes) return 0;
    const struct ckpt_start s = ckpt_start_of(step_dir);
    return err_field(e, ERR_CONFLICT, "checkpoint.resume",
                     "%s was made by a job with another model, data, schedule or precision; to "
                     "start from its %s alone set %s to %s/%s",
                     step_dir, s.what, s.field, step_dir, s.below);
}
