#include "worker/train/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "worker/model/hf.h"
#include "worker/model/safetensors.h"
#include "worker/train/manifest.h"

static const char *const files[] = {"hf/config.json",           "hf/generation_config.json",
                                    "hf/model.safetensors",     "hf/tokenizer.json",
                                    "hf/tokenizer_config.json", "optim.safetensors",
                                    "train_state.json"};
enum { N_FILES = sizeof files / sizeof *files };

/* ---- train_state.json ------------------------------------------------------------------------ */

enum state_type { STATE_INT, STATE_INT32, STATE_DOUBLE, STATE_TEXT };

static const struct {
    const char *key;
    enum state_type type;
    size_t offset, size;
} state_fields[] = {
#define STATE(member, type)                                                                        \
    {                                                                                              \
#member, type, offsetof(struct ckpt_state, member),                                        \
            sizeof(((struct ckpt_state *)0)->member)                                               \
    }
    STATE(step, STATE_INT),      STATE(tokens_seen, STATE_INT), STATE(next_sample, STATE_INT),
    STATE(seed, STATE_INT),      STATE(adam_t, STATE_INT),      STATE(lr, STATE_DOUBLE),
    STATE(loss, STATE_DOUBLE),   STATE(data_id, STATE_TEXT),    STATE(spec_digest, STATE_TEXT),
    STATE(n_ranks, STATE_INT32), STATE(layout, STATE_INT32),
};
enum { N_STATE = sizeof state_fields / sizeof *state_fields };

static int write_state(const char *dir, const struct ckpt_state *s, struct err *e)
{
    char path[FILE_PATH_SIZE], text[2048];
    struct jwrite w;
    jwrite_init(&w, text, sizeof text);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "version", 1);
    for (int i = 0; i < N_STATE; i++) {
        const void *v = (const char *)s + state_fields[i].offset;
        const char *key = state_fields[i].key;
        switch (state_fields[i].type) {
        case STATE_INT: jwrite_int(&w, key, *(const int64_t *)v); break;
        case STATE_INT32: jwrite_int(&w, key, *(const int32_t *)v); break;
        case STATE_DOUBLE: jwrite_double(&w, key, *(const double *)v); break;
        case STATE_TEXT: jwrite_str(&w, key, v); break;
        }
    }
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    if (n < 0) return err_set(e, ERR_INTERNAL, "train_state.json needs %zu bytes", w.len);
    if (file_join(path, e, "%s/train_state.json", dir) < 0) return -1;
    return file_write(path, text, (size_t)n, e);
}

static int read_state_value(struct jread *j, int i, struct ckpt_state *s)
{
    void *v = (char *)s + state_fields[i].offset;
    enum jtok t = jread_next(j);
    int64_t n;
    switch (state_fields[i].type) {
    case STATE_INT: return t == J_NUMBER ? jread_int(j, v) : -1;
    case STATE_INT32:
        if (t != J_NUMBER || jread_int(j, &n) < 0 || n != (int32_t)n) return -1;
        *(int32_t *)v = (int32_t)n;
        return 0;
    case STATE_DOUBLE: return t == J_NULL ? 0 : t == J_NUMBER ? jread_double(j, v) : -1;
    default: return t == J_STRING ? jread_copy(j, v, state_fields[i].size) : -1;
    }
}

static int parse_state(const char *text, size_t size, struct ckpt_state *s, unsigned *seen)
{
    struct jread j;
    enum jtok t;
    int64_t version = 0;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return -1;
    while ((t = jread_next(&j)) == J_KEY) {
        int i = 0;
        while (i < N_STATE && !jread_is(&j, state_fields[i].key)) i++;
        if (i < N_STATE) {
            if (read_state_value(&j, i, s) < 0) return -1;
            *seen |= 1u << i;
        } else if (jread_is(&j, "version")) {
            if (jread_next(&j) != J_NUMBER || jread_int(&j, &version) < 0) return -1;
        } else if (jread_skip(&j) < 0) {
            return -1;
        }
    }
    return t == J_OBJECT_END && jread_next(&j) == J_END && version == 1 ? 0 : -1;
}

static int read_state(const char *dir, int64_t step, struct ckpt_state *s, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size;
    unsigned seen = 0;
    *s = (struct ckpt_state){0};
    if (file_join(path, e, "%s/train_state.json", dir) < 0) return -1;
    char *text = file_read(path, 65536, &size, e);
    if (!text) return -1;
    int rc = parse_state(text, size, s, &seen);
    free(text);
    if (rc < 0) return err_set(e, ERR_CORRUPT, "%s is not a train state of version 1", path);
    for (int i = 0; i < N_STATE; i++)
        if (!(seen & 1u << i))
            return err_set(e, ERR_CORRUPT, "%s lacks %s", path, state_fields[i].key);
    if (s->step == step) return 0;
    return err_set(e, ERR_CORRUPT, "%s is of step %lld, the manifest of step %lld", path,
                   (long long)s->step, (long long)step);
}

/* ---- saving --------------------------------------------------------------------------------- */

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

static int write_all(const char *tmp, const struct model_shape *shape, const struct ckpt_arrays *a,
                     const struct ckpt_state *s, struct manifest *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    const struct hf_flat moments[] = {
        {"exp_avg:", a->m, DT_F32}, {"exp_avg_sq:", a->v, DT_F32}, {"master:", a->master, DT_F32}};
    if (file_join(path, e, "%s/hf", tmp) < 0 || hf_save(path, shape, a->dtype, a->params, e) < 0)
        return -1;
    if (file_join(path, e, "%s/optim.safetensors", tmp) < 0) return -1;
    if (hf_write_flats(path, shape, moments, a->master ? 3 : 2, e) < 0) return -1;
    if (write_state(tmp, s, e) < 0) return -1;
    if (hf_weights_digest(shape, a->dtype, a->params, m->weights_sha256, e) < 0) return -1;
    for (int i = 0; i < N_FILES; i++)
        if (manifest_add(m, tmp, files[i], e) < 0) return -1;
    if (manifest_write(m, tmp, e) < 0) return -1;
    return file_sync_dir(tmp, e);
}

/* Gives tmp its final name; 1: a valid checkpoint has it already, and stays. */
static int publish(const char *tmp, const char *final, struct manifest *m, struct err *e)
{
    struct manifest other;
    struct err why = {0};
    if (file_exists(final)) {
        if (manifest_check(&other, final, MANIFEST_DIGESTS, &why) == 0 && other.step == m->step) {
            *m = other;
            return 1;
        }
        char bad[FILE_PATH_SIZE];
        log_warn("ckpt.aside", "path=%s reason=\"%s\"", final, why.text);
        if (file_join(bad, e, "%s.bad", final) < 0 || file_remove(bad, e) < 0) return -1;
        if (rename(final, bad) < 0) return err_errno(e, "move %s aside", final);
    }
    return rename(tmp, final) < 0 ? err_errno(e, "rename %s", final) : 0;
}

int ckpt_save(const char *job_dir, int64_t epoch, const struct model_shape *shape,
              const struct ckpt_arrays *a, const struct ckpt_state *s, struct ckpt_info *info,
              struct err *e)
{
    char dir[FILE_PATH_SIZE], tmp[FILE_PATH_SIZE], final[FILE_PATH_SIZE];
    struct manifest m = {.step = s->step, .epoch = epoch};
    long long step = s->step;
    if (file_join(dir, e, "%s/checkpoints", job_dir) < 0 || file_make_dir(dir, e) < 0) return -1;
    if (file_join(final, e, "%s/step-%08lld", dir, step) < 0) return -1;
    if (file_join(tmp, e, "%s.e%lld.tmp", final, (long long)epoch) < 0) return -1;
    if (file_remove(tmp, e) < 0 || file_make_dir(tmp, e) < 0) return -1;
    int rc = write_all(tmp, shape, a, s, &m, e);
    if (rc == 0) rc = publish(tmp, final, &m, e);
    if (rc != 0) file_remove(tmp, NULL); /* failed, or not needed */
    if (rc >= 0) rc = file_sync_dir(dir, e);
    return rc < 0 ? -1 : fill_info(info, &m, final, e);
}

/* ---- finding -------------------------------------------------------------------------------- */

struct step_dir {
    int64_t step;
    char name[64];
};

static int newest_first(const void *a, const void *b)
{
    const struct step_dir *x = a, *y = b;
    return (x->step < y->step) - (x->step > y->step);
}

/* "step-00000500" or, with epoch, "step-00000500.e3.tmp". */
static bool parse_name(const char *name, int64_t *step, int64_t *epoch)
{
    char *end;
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return false;
    errno = 0;
    *step = strtoll(name + 5, &end, 10);
    *epoch = -1;
    if (errno) return false;
    if (!*end) return true;
    if (end[0] != '.' || end[1] != 'e' || end[2] < '0' || end[2] > '9') return false;
    *epoch = strtoll(end + 2, &end, 10);
    return !errno && !strcmp(end, ".tmp");
}

enum { MAX_STEPS = 65536 };

/* The step directories, newest first; the caller frees. tmp_before: also removes .tmp directories
 * of older epochs. A missing directory is an empty one. */
static int list_steps(const char *dir, int64_t tmp_before, struct step_dir **out, int *n,
                      struct err *e)
{
    DIR *d = opendir(dir);
    struct dirent *ent;
    int rc = 0, room = 0;
    *out = NULL;
    *n = 0;
    if (!d) return errno == ENOENT ? 0 : err_errno(e, "open %s", dir);
    while (rc == 0 && (ent = readdir(d))) {
        int64_t step, epoch;
        char path[FILE_PATH_SIZE];
        if (!parse_name(ent->d_name, &step, &epoch)) continue;
        if (epoch >= 0) {
            if (epoch >= tmp_before) continue;
            rc = file_join(path, e, "%s/%s", dir, ent->d_name);
            if (rc == 0) rc = file_remove(path, e);
            continue;
        }
        if (*n == room) {
            room = room ? 2 * room : 32;
            void *more = room > MAX_STEPS ? NULL : realloc(*out, (size_t)room * sizeof **out);
            if (!more) {
                rc = err_set(e, ERR_TOO_LARGE, "%s holds too many checkpoints", dir);
                break;
            }
            *out = more;
        }
        (*out)[*n].step = step;
        snprintf((*out)[(*n)++].name, sizeof(*out)->name, "%.63s", ent->d_name);
    }
    closedir(d);
    if (rc == 0 && *n) qsort(*out, (size_t)*n, sizeof **out, newest_first);
    if (rc < 0) free(*out);
    return rc;
}

static int check_named(const char *dir, int64_t step, enum manifest_depth depth, struct manifest *m,
                       struct err *e)
{
    if (manifest_check(m, dir, depth, e) < 0) return -1;
    for (int i = 0; i < N_FILES; i++)
        if (!manifest_find(m, files[i]))
            return err_set(e, ERR_CORRUPT, "%s: the manifest does not list %s", dir, files[i]);
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
    if (list_steps(dir, -1, &steps, &n, e) < 0) return -1;
    for (int i = 0; i < n && rc == 0; i++) {
        struct err why = {0};
        if ((rc = file_join(path, e, "%s/%s", dir, steps[i].name)) < 0) break;
        if (check_named(path, steps[i].step, MANIFEST_DIGESTS, &m, &why) < 0)
            log_warn("ckpt.skip", "path=%s reason=\"%s\"", path, why.text);
        else
            rc = fill_info(info, &m, path, e) < 0 ? -1 : 1;
    }
    free(steps);
    return rc;
}

int ckpt_check(const char *step_dir, struct ckpt_info *info, struct err *e)
{
    struct manifest m;
    if (check_named(step_dir, -1, MANIFEST_DIGESTS, &m, e) < 0) return -1;
    return fill_info(info, &m, step_dir, e);
}

int ckpt_prune(const char *job_dir, int keep, int64_t epoch, struct err *e)
{
    char dir[FILE_PATH_SIZE], path[FILE_PATH_SIZE], gone[FILE_PATH_SIZE];
    struct step_dir *steps;
    struct manifest m;
    int n, rc = 0, n_complete = 0;
    if (keep < 1) keep = 1;
    if (file_join(dir, e, "%s/checkpoints", job_dir) < 0) return -1;
    if (list_steps(dir, epoch, &steps, &n, e) < 0) return -1;
    for (int i = 0; i < n && rc == 0; i++) {
        struct err why;
        if ((rc = file_join(path, e, "%s/%s", dir, steps[i].name)) < 0) break;
        if (check_named(path, steps[i].step, MANIFEST_SIZES, &m, &why) < 0) continue;
        if (++n_complete <= keep) continue;
        /* First it stops being a checkpoint, then it goes: a kill between leaves a .tmp. */
        rc = file_join(gone, e, "%s.e0.tmp", path);
        if (rc == 0) rc = file_remove(gone, e);
        if (rc == 0 && rename(path, gone) < 0) rc = err_errno(e, "rename %s", path);
        if (rc == 0) rc = file_remove(gone, e);
    }
    free(steps);
    return rc;
}

/* ---- loading -------------------------------------------------------------------------------- */

static int load_moments(const char *step_dir, const struct model_shape *shape,
                        const struct ckpt_arrays *a, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (!a->m && !a->v && !a->master) return 0;
    if (file_join(path, e, "%s/optim.safetensors", step_dir) < 0) return -1;
    struct st_file *f = st_open(path, e);
    if (!f) return -1;
    int rc = a->m ? hf_read_flat(f, shape, "exp_avg:", a->m, e) : 0;
    if (rc == 0 && a->v) rc = hf_read_flat(f, shape, "exp_avg_sq:", a->v, e);
    if (rc == 0 && a->master) rc = hf_read_flat(f, shape, "master:", a->master, e);
    st_close(f);
    return rc;
}

int ckpt_load(const char *step_dir, const struct model_shape *shape, const struct ckpt_arrays *a,
              struct ckpt_state *s, struct err *e)
{
    char hf[FILE_PATH_SIZE];
    struct manifest m;
    struct model_shape own;
    struct ckpt_state state;
    if (check_named(step_dir, -1, MANIFEST_DIGESTS, &m, e) < 0) return -1;
    if (read_state(step_dir, m.step, &state, e) < 0) return -1;
    if (s) *s = state;
    if (file_join(hf, e, "%s/hf", step_dir) < 0 || hf_config_read(hf, &own, e) < 0) return -1;
    const char *key = hf_shape_diff(&own, shape);
    if (key)
        return err_set(e, ERR_INVALID,
                       "%s/config.json: %s is not the job's: this checkpoint is of "
                       "another model",
                       hf, key);
    if (a->params && !a->master && hf_load(hf, shape, a->dtype, a->params, e) < 0) return -1;
    return load_moments(step_dir, shape, a, e);
}

int ckpt_load_state(const char *step_dir, struct ckpt_state *s, struct err *e)
{
    struct manifest m;
    if (check_named(step_dir, -1, MANIFEST_DIGESTS, &m, e) < 0) return -1;
    return read_state(step_dir, m.step, s, e);
}

/* ---- what must stay the same ----------------------------------------------------------------- */

static void digest_field(struct sha256 *sha, const struct job_spec *spec, const struct field *f)
{
    const void *v = (const char *)spec + f->offset;
    char number[32];
    const char *text = number;
    switch (f->type) {
    case FIELD_INT: snprintf(number, sizeof number, "%lld", (long long)*(const int64_t *)v); break;
    case FIELD_DOUBLE: jwrite_number(number, *(const double *)v); break;
    case FIELD_STRING: text = spec_text(spec, *(const spec_ref *)v); break;
    default: snprintf(number, sizeof number, "%d", *(const int32_t *)v); break;
    }
    sha256_add(sha, f->path, strlen(f->path) + 1);
    sha256_add(sha, text, strlen(text) + 1);
}

void ckpt_spec_digest(const struct job_spec *spec, char out[SHA256_HEX])
{
    static const char *const parts[] = {"model.config.", "data.",      "train.", "optim.",
                                        "schedule.",     "precision.", "seed"};
    struct sha256 sha;
    sha256_init(&sha);
    for (const struct field *f = spec_fields; f->path; f++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (!strncmp(f->path, parts[i], strlen(parts[i]))) digest_field(&sha, spec, f);
    sha256_hex(&sha, out);
}

int64_t ckpt_json(const struct ckpt_info *info, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "step", info->step);
    jwrite_str(&w, "path", info->path);
    jwrite_int(&w, "size", info->size);
    jwrite_str(&w, "weights_sha256", info->weights_sha256);
    jwrite_end(&w);
    return jwrite_finish(&w);
}
