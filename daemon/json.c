#include "daemon/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/family/config.h"

#define PATH_SIZE 96

/* Numbers that may also be the word "auto", and the value that stands for it. */
static const struct auto_field {
    const char *path;
    int value;
} auto_fields[] = {
    {"parallel.sp", 0},
    {"memory.loss_chunk_tokens", 0},
    {"memory.mlp_chunk_tokens", -1},
    {"limits.step_timeout_s", 0},
    {"schedule.warmup_steps", -1},
    {"infer.batch", 0},
    {NULL, 0},
};

static const struct auto_field *find_auto(const char *path)
{
    for (const struct auto_field *a = auto_fields; a->path; a++)
        if (!strcmp(a->path, path)) return a;
    return NULL;
}

struct spec_reader {
    struct job_spec *s;
    enum json_form form;
    bool has_batch, has_batch_tokens;
    int64_t batch_tokens;
    struct hardware *hardware; /* NULL: a job, which has none */
    const json_t *config;      /* model.config */
    struct err *e;
};

/* Jansson leaves out, in silence, what it has no memory for: a job would be stored without a member
 * of its spec, and acknowledged. */
static void *take_memory(size_t size)
{
    void *p = malloc(size);
    if (!p) abort();
    return p;
}

void json_init(void)
{
    json_set_alloc_funcs(take_memory, free);
    json_object_seed(0);
}

/* ---- reading --------------------------------------------------------------------------------- */

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    default: return "null";
    }
}

static int wrong_type(struct spec_reader *r, const char *path, const char *want, const json_t *v)
{
    return err_field(r->e, ERR_INVALID, path, "%s must be %s, not %s", path, want, type_name(v));
}

static int intern(struct spec_reader *r, const char *path, const json_t *v, spec_ref *ref)
{
    if (!json_is_string(v)) return wrong_type(r, path, "a string", v);
    if (spec_intern(r->s, json_string_value(v), json_string_length(v), ref))
        return err_field(r->e, ERR_TOO_LARGE, path,
                         "%s: the strings of a spec exceed %d bytes together", path,
                         SPEC_TEXT_SIZE);
    return 0;
}

static int word_index(struct spec_reader *r, const char *path, const char *const *words,
                      const json_t *v, int32_t *out)
{
    if (!json_is_string(v)) return wrong_type(r, path, "a word in quotes", v);
    char list[256] = "";
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], json_string_value(v))) {
            *out = i;
            return 0;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", words[i]);
    }
    return err_field(r->e, ERR_INVALID, path, "%s \"%.64s\" is not one of: %s", path,
                     json_string_value(v), list);
}

static int number(struct spec_reader *r, const struct field *f, const json_t *v, double *out)
{
    const struct auto_field *a = find_auto(f->path);
    if (a && json_is_string(v) && !strcmp(json_string_value(v), "auto")) {
        *out = a->value;
        return 0;
    }
    bool integer = f->type != FIELD_DOUBLE;
    if (!json_is_number(v)) {
        const char *want = integer ? "an integer" : "a number";
        if (a) want = "an integer or \"auto\"";
        return wrong_type(r, f->path, want, v);
    }
    double d = json_number_value(v);
    if (integer && d != floor(d)) return wrong_type(r, f->path, "an integer", v);
    bool in_range = d >= f->min && d <= f->max;
    if (!in_range && f->min == f->max)
        return err_field(r->e, ERR_INVALID, f->path, "%s is %.16g: this version takes only %.16g",
                         f->path, d, f->min);
    if (!in_range && !(a && d == a->value))
        return err_field(r->e, ERR_INVALID, f->path,
                         "%s is %.16g: it must lie between %.16g and %.16g", f->path, d, f->min,
                         f->max);
    *out = d;
    return 0;
}

static int set_field(struct spec_reader *r, const struct field *f, void *base, const char *path,
                     const json_t *v)
{
    char *at = (char *)base + f->offset;
    double d;
    switch (f->type) {
    case FIELD_INT:
        if (number(r, f, v, &d)) return -1;
        *(int64_t *)at = (int64_t)d;
        return 0;
    case FIELD_INT32:
        if (number(r, f, v, &d)) return -1;
        *(int32_t *)at = (int32_t)d;
        return 0;
    case FIELD_DOUBLE: return number(r, f, v, (double *)at);
    case FIELD_BOOL:
        if (!json_is_boolean(v)) return wrong_type(r, path, "true or false", v);
        *(int32_t *)at = json_is_true(v);
        return 0;
    case FIELD_ENUM: return word_index(r, path, f->words, v, (int32_t *)at);
    case FIELD_STRING: return intern(r, path, v, (spec_ref *)at);
    }
    return -1;
}

static int unknown(struct spec_reader *r, const char *path)
{
    if (r->form == JSON_STORED) return 0; /* of another version */
    const char *near = spec_suggest(path);
    if (near && strcmp(near, path))
        return err_field(r->e, ERR_INVALID, path, "unknown field %s: did you mean %s?", path, near);
    return err_field(r->e, ERR_INVALID, path, "unknown field %s", path);
}

static int32_t format_by_suffix(const char *file)
{
    static const struct {
        const char *suffix;
        int32_t format;
    } known[] = {
        {".jsonl", DATA_JSONL}, {".npy", DATA_NPY}, {".idx", DATA_MEGATRON}, {".bin", DATA_LLMC}};
    const char *dot = strrchr(file, '.');
    for (size_t i = 0; dot && i < sizeof known / sizeof *known; i++)
        if (!strcmp(dot, known[i].suffix)) return known[i].format;
    return DATA_TEXT;
}

/* Members of an element of an array, by the table of its fields. */
static const struct field *element_field(const struct field *table, const char *key)
{
    while (table->path && strcmp(table->path, key)) table++;
    return table->path ? table : NULL;
}

static int read_source(struct spec_reader *r, const char *prefix, const json_t *v,
                       struct spec_source *src)
{
    if (!json_is_object(v)) return wrong_type(r, prefix, "an object with a path", v);
    const char *key;
    json_t *member;
    bool has_format = json_object_get(v, "format") != NULL;
    spec_source_defaults(src);
    json_object_foreach((json_t *)v, key, member)
    {
        char path[PATH_SIZE];
        snprintf(path, sizeof path, "%s.%s", prefix, key);
        const struct field *f = element_field(source_fields, key);
        if (!f) {
            /* input.prompt lives beside the source but is a field of its own */
            if (!strcmp(path, "input.prompt")) continue;
            if (unknown(r, path)) return -1;
            continue;
        }
        if (set_field(r, f, src, path, member)) return -1;
    }
    if (!has_format) src->format = format_by_suffix(spec_text(r->s, src->path));
    if (!src->text_key && spec_intern(r->s, "text", 4, &src->text_key))
        return err_field(r->e, ERR_TOO_LARGE, prefix,
                         "the strings of a spec exceed %d bytes together", SPEC_TEXT_SIZE);
    return 0;
}

static int read_sources(struct spec_reader *r, const char *field, const json_t *v,
                        struct spec_source *out, int32_t *n)
{
    if (!json_is_array(v)) return wrong_type(r, field, "an array of sources", v);
    if (json_array_size(v) > SPEC_SOURCES)
        return err_field(r->e, ERR_INVALID, field, "%s has %zu sources, at most %d", field,
                         json_array_size(v), SPEC_SOURCES);
    for (size_t i = 0; i < json_array_size(v); i++) {
        char path[PATH_SIZE];
        snprintf(path, sizeof path, "%s.%zu", field, i);
        if (read_source(r, path, json_array_get(v, i), &out[i])) return -1;
        *n = (int32_t)i + 1;
    }
    return 0;
}

static int read_train_data(struct spec_reader *r, const json_t *v)
{
    return read_sources(r, "data.train", v, r->s->data.train, &r->s->data.n_train);
}

static int read_eval_data(struct spec_reader *r, const json_t *v)
{
    return read_sources(r, "eval.data", v, r->s->eval.data, &r->s->eval.n_data);
}

static int read_stage(struct spec_reader *r, const char *prefix, const json_t *v,
                      struct spec_stage *out)
{
    const char *key;
    json_t *member;
    if (!json_is_object(v)) return wrong_type(r, prefix, "an object with from_step", v);
    json_object_foreach((json_t *)v, key, member)
    {
        char path[2 * PATH_SIZE];
        snprintf(path, sizeof path, "%.32s.%.64s", prefix, key);
        const struct field *f = element_field(stage_fields, key);
        if (!f && unknown(r, path)) return -1;
        if (f && set_field(r, f, out, path, member)) return -1;
    }
    return 0;
}

static int read_stages(struct spec_reader *r, const json_t *v)
{
    if (!json_is_array(v)) return wrong_type(r, "stages", "an array of stages", v);
    if (json_array_size(v) > SPEC_STAGES)
        return err_field(r->e, ERR_INVALID, "stages", "stages: %zu given, at most %d",
                         json_array_size(v), SPEC_STAGES);
    for (size_t i = 0; i < json_array_size(v); i++) {
        char path[PATH_SIZE];
        snprintf(path, sizeof path, "stages.%zu", i);
        if (read_stage(r, path, json_array_get(v, i), &r->s->stages[i])) return -1;
        r->s->n_stages = (int32_t)i + 1;
    }
    return 0;
}

/* One string, or an array of at most SPEC_STOPS. */
static int read_stop(struct spec_reader *r, const json_t *v)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > SPEC_STOPS)
        return err_field(r->e, ERR_INVALID, "sampling.stop",
                         "sampling.stop has %zu strings, at most %d", n, SPEC_STOPS);
    for (size_t i = 0; i < n; i++)
        if (intern(r, "sampling.stop", json_is_array(v) ? json_array_get(v, i) : v,
                   &r->s->sampling.stop[i]))
            return -1;
    return 0;
}

/* Labels select jobs and do not hold data. Those that are stored are not checked again. */
static int check_label(struct spec_reader *r, const char *key, const json_t *value)
{
    static const char key_bytes[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-";
    const size_t n = strlen(key);
    if (r->form == JSON_STORED || !json_is_string(value)) return 0;
    if (!n || n > SPEC_LABEL_KEY || strspn(key, key_bytes) != n)
        return err_field(
            r->e, ERR_INVALID, "labels",
            "labels: the key \"%.40s\" must have 1 to %d of the characters a-z A-Z 0-9 "
            ". _ / -",
            key, SPEC_LABEL_KEY);
    if (json_string_length(value) > SPEC_LABEL_VALUE)
        return err_field(r->e, ERR_TOO_LARGE, "labels",
                         "labels: the value of \"%s\" has %zu bytes, at most %d", key,
                         json_string_length(value), SPEC_LABEL_VALUE);
    return 0;
}

static int read_labels(struct spec_reader *r, const json_t *v)
{
    if (!json_is_object(v)) return wrong_type(r, "labels", "an object of strings", v);
    if (json_object_size(v) > SPEC_LABELS)
        return err_field(r->e, ERR_INVALID, "labels", "labels: %zu given, at most %d",
                         json_object_size(v), SPEC_LABELS);
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)v, key, member)
    {
        struct spec_label *l = &r->s->labels[r->s->n_labels];
        if (check_label(r, key, member)) return -1;
        if (intern(r, "labels", member, &l->value)) return -1;
        if (spec_intern(r->s, key, strlen(key), &l->key))
            return err_field(r->e, ERR_TOO_LARGE, "labels", "labels are too long");
        r->s->n_labels++;
    }
    return 0;
}

/* Read when the whole spec has been: what its keys mean depends on model.path. */
static int read_config(struct spec_reader *r, const json_t *v)
{
    if (!json_is_object(v)) return wrong_type(r, "model.config", "an object", v);
    r->config = v;
    return 0;
}

static int take_config(struct spec_reader *r)
{
    if (!r->config || !json_object_size(r->config)) return 0;
    if (r->form != JSON_STORED && !spec_new_model(r->s))
        return err_field(r->e, ERR_INVALID, "model.config",
                         "model.path brings its own config.json: leave model.config out");
    char *text = json_dumps(r->config, JSON_COMPACT);
    if (!text) return err_field(r->e, ERR_TOO_LARGE, "model.config", "model.config is too large");
    const int rc = config_take(r->s, text, strlen(text),
                               r->form == JSON_STORED ? CONFIG_KEPT : CONFIG_JOB, r->e);
    free(text);
    return rc;
}

static int read_betas(struct spec_reader *r, const json_t *v)
{
    if (!json_is_array(v)) return wrong_type(r, "optim.betas", "an array of two numbers", v);
    if (json_array_size(v) != 2)
        return err_field(r->e, ERR_INVALID, "optim.betas",
                         "optim.betas has %zu numbers: it must have two", json_array_size(v));
    for (int i = 0; i < 2; i++) {
        const struct field *f = spec_field(i ? "optim.betas.1" : "optim.betas.0");
        if (set_field(r, f, r->s, f->path, json_array_get(v, (size_t)i))) return -1;
    }
    return 0;
}

/* "auto", "none" or the path of a step directory. */
static int read_resume(struct spec_reader *r, const json_t *v)
{
    if (!json_is_string(v)) return wrong_type(r, "checkpoint.resume", "a string", v);
    const char *text = json_string_value(v);
    if (!strcmp(text, "auto"))
        r->s->checkpoint.resume = RESUME_AUTO;
    else if (!strcmp(text, "none"))
        r->s->checkpoint.resume = RESUME_NONE;
    else
        r->s->checkpoint.resume = RESUME_PATH;
    if (r->s->checkpoint.resume != RESUME_PATH) return 0;
    return intern(r, "checkpoint.resume", v, &r->s->checkpoint.resume_path);
}

static int read_epochs(struct spec_reader *r, const json_t *v)
{
    if (r->s->train.passes)
        return err_field(r->e, ERR_INVALID, "train.epochs",
                         "train.epochs is another name of train.passes: give one");
    const struct field *f = spec_field("train.passes");
    return set_field(r, f, r->s, f->path, v);
}

static int read_batch_tokens(struct spec_reader *r, const json_t *v)
{
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return wrong_type(r, "train.global_batch_tokens", "a positive integer", v);
    r->has_batch_tokens = true;
    r->batch_tokens = json_integer_value(v);
    return 0;
}

static int read_object(struct spec_reader *r, const char *prefix, const json_t *o);

static int read_section(struct spec_reader *r, const char *path, const json_t *v)
{
    if (!json_is_object(v)) return wrong_type(r, path, "an object", v);
    return read_object(r, path, v);
}

static int read_input(struct spec_reader *r, const json_t *v)
{
    if (read_source(r, "input", v, &r->s->input.source)) return -1;
    const json_t *prompt = json_object_get(v, "prompt");
    const struct field *f = spec_field("input.prompt");
    if (!prompt) return 0;
    if (!(f->kinds & 1u << r->s->kind))
        return err_field(r->e, ERR_INVALID, f->path, "input.prompt does not belong to a %s job",
                         kind_name(r->s->kind));
    return set_field(r, f, r->s, f->path, prompt);
}

/* Machines that are not here: for a plan alone. */
static int read_hardware(struct spec_reader *r, const json_t *v)
{
    const char *key;
    json_t *member;
    if (!r->hardware)
        return err_field(r->e, ERR_INVALID, "hardware",
                         "hardware describes machines to plan for: POST /v1/plan takes it, a job "
                         "runs on the nodes that are here, leave it out");
    if (!json_is_object(v)) return wrong_type(r, "hardware", "an object with devices", v);
    r->hardware->given = 1;
    json_object_foreach((json_t *)v, key, member)
    {
        char path[PATH_SIZE];
        const struct field *f = element_field(hardware_fields, key);
        if (snprintf(path, sizeof path, "hardware.%s", key) >= (int)sizeof path || !f)
            return unknown(r, path);
        struct field named = *f; /* so that its errors say where it stands */
        named.path = path;
        if (set_field(r, &named, r->hardware, path, member)) return -1;
    }
    return hardware_check(r->hardware, r->e);
}

#define TRAINING (1u << JOB_TRAIN | 1u << JOB_VERIFY)
#define INPUT    (1u << JOB_SCORE | 1u << JOB_GENERATE | 1u << JOB_EMBED)

/* Everything that is not one scalar in one place. */
static const struct special {
    const char *path;
    int (*read)(struct spec_reader *, const json_t *);
    uint32_t kinds;
} specials[] = {
    {"labels", read_labels, ~0u},
    {"hardware", read_hardware, ~0u},
    {"data.train", read_train_data, TRAINING},
    {"eval.data", read_eval_data, TRAINING},
    {"stages", read_stages, TRAINING},
    {"sampling.stop", read_stop, 1u << JOB_GENERATE},
    {"input", read_input, INPUT},
    {"optim.betas", read_betas, TRAINING},
    {"model.config", read_config, ~0u},
    {"checkpoint.resume", read_resume, TRAINING},
    {"train.epochs", read_epochs, TRAINING},
    {"train.global_batch_tokens", read_batch_tokens, TRAINING},
    {NULL, NULL, 0},
};

static bool is_section(const char *path)
{
    const struct field *tables[] = {spec_fields, spec_constants};
    size_t n = strlen(path);
    for (int t = 0; t < 2; t++)
        for (const struct field *f = tables[t]; f->path; f++)
            if (!strncmp(f->path, path, n) && f->path[n] == '.') return true;
    return false;
}

static int check_kind(struct spec_reader *r, const char *path, uint32_t kinds)
{
    if (kinds & 1u << r->s->kind) return 0;
    return err_field(r->e, ERR_INVALID, path, "%s does not belong to a %s job: leave it out", path,
                     kind_name(r->s->kind));
}

/* Of another version, which knows the field in this kind of job. */
static bool other_kind(const struct spec_reader *r, uint32_t kinds)
{
    return r->form == JSON_STORED && !(kinds & 1u << r->s->kind);
}

static int read_member(struct spec_reader *r, const char *path, const json_t *v)
{
    if (json_is_null(v) && r->form == JSON_STORED) return 0;
    if (json_is_null(v))
        return err_field(r->e, ERR_INVALID, path, "%s is null: leave it out for its default", path);
    for (const struct special *sp = specials; sp->path; sp++) {
        if (strcmp(sp->path, path)) continue;
        if (other_kind(r, sp->kinds)) return unknown(r, path);
        return check_kind(r, path, sp->kinds) ? -1 : sp->read(r, v);
    }
    const struct field *f = spec_field(path);
    if (f && f->kinds) {
        if (other_kind(r, f->kinds)) return unknown(r, path);
        if (check_kind(r, path, f->kinds)) return -1;
        if (!strcmp(path, "train.global_batch")) r->has_batch = true;
        return set_field(r, f, r->s, path, v);
    }
    for (const struct field *c = spec_constants; c->path; c++) {
        int32_t word;
        if (strcmp(c->path, path)) continue;
        return check_kind(r, path, c->kinds) ? -1 : word_index(r, path, c->words, v, &word);
    }
    if (!f && is_section(path)) return read_section(r, path, v);
    return unknown(r, path);
}

static int read_object(struct spec_reader *r, const char *prefix, const json_t *o)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        char path[PATH_SIZE];
        int n = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        /* A dot in a key would make a second spelling of a nested field. */
        if (n >= (int)sizeof path || strchr(key, '.')) {
            if (unknown(r, path)) return -1;
            continue;
        }
        if (read_member(r, path, v)) return -1;
    }
    return 0;
}

static int read_kind(struct spec_reader *r, const json_t *root)
{
    const json_t *kind = json_object_get(root, "kind");
    const struct field *f = spec_field("kind");
    if (!kind)
        return err_field(r->e, ERR_INVALID, "kind",
                         "kind is missing: one of train, score, generate, verify, embed");
    return word_index(r, "kind", f->words, kind, &r->s->kind);
}

/* Where a name may stand, digits are an id. Those that are stored are not checked again. */
static int check_name(const struct spec_reader *r)
{
    const char *name = spec_text(r->s, r->s->name);
    if (!*name || name[strspn(name, "0123456789")]) return 0;
    return err_field(r->e, ERR_INVALID, "name",
                     "name \"%.40s\": digits alone are the id of a job, so nothing would find it "
                     "by this name: add a letter, as in run-%.40s",
                     name, name);
}

/* Rules between fields that only the reader sees: what was given, in which of several spellings. */
static int settle(struct spec_reader *r)
{
    struct job_spec *s = r->s;
    if (take_config(r)) return -1;
    if (r->form == JSON_STORED) return 0;
    if (check_name(r)) return -1;
    int n = (s->train.steps > 0) + (s->train.tokens > 0) + (s->train.passes > 0);
    if (n > 1)
        return err_field(
            r->e, ERR_INVALID, "train.steps",
            "train.steps, train.tokens and train.passes all say how long to train: give "
            "one");
    if (!r->has_batch_tokens) return 0;
    if (r->has_batch)
        return err_field(r->e, ERR_INVALID, "train.global_batch_tokens",
                         "train.global_batch and train.global_batch_tokens say the same: give one");
    if (!s->data.seq_len || r->batch_tokens % s->data.seq_len)
        return err_field(r->e, ERR_INVALID, "train.global_batch_tokens",
                         "train.global_batch_tokens %lld is not a multiple of data.seq_len %lld",
                         (long long)r->batch_tokens, (long long)s->data.seq_len);
    s->train.global_batch = r->batch_tokens / s->data.seq_len;
    return 0;
}

/* Jansson would recurse 2048 levels deep. */
static int check_depth(const char *text, size_t size, struct err *e)
{
    int depth = 0;
    bool string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                string = false;
            continue;
        }
        if (c == '"')
            string = true;
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        if (depth > JSON_DEPTH)
            return err_set(e, ERR_INVALID, "the body nests deeper than %d levels", JSON_DEPTH);
    }
    return 0;
}

static json_t *load(const char *text, size_t size, struct err *e)
{
    if (check_depth(text, size, e)) return NULL;
    json_error_t je;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        err_set(e, ERR_INVALID, "the body is not valid JSON: line %d column %d: %.160s", je.line,
                je.column, je.text);
        return NULL;
    }
    if (json_is_object(root)) return root;
    err_set(e, ERR_INVALID, "the body must be a JSON object");
    json_decref(root);
    return NULL;
}

static int read_spec(struct spec_reader *r, const char *text, size_t size)
{
    spec_defaults(r->s);
    json_t *root = load(text, size, r->e);
    if (!root) return -1;
    int rc = read_kind(r, root) || read_object(r, "", root) || settle(r) ? -1 : 0;
    json_decref(root);
    return rc;
}

int json_spec_read(const char *text, size_t size, enum json_form form, struct job_spec *s,
                   struct err *e)
{
    struct spec_reader r = {.s = s, .form = form, .e = e};
    return read_spec(&r, text, size);
}

int json_plan_read(const char *text, size_t size, struct job_spec *s, struct hardware *h,
                   struct err *e)
{
    struct spec_reader r = {.s = s, .form = JSON_FOR_PEOPLE, .hardware = h, .e = e};
    hardware_defaults(h);
    return read_spec(&r, text, size);
}

char *json_canonical(const char *text, size_t size, struct err *e)
{
    json_t *root = load(text, size, e);
    if (!root) return NULL;
    char *out = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    if (!out) err_set(e, ERR_TOO_LARGE, "the body is too large");
    return out;
}

static bool merge(json_t *into, json_t *old);

/* What `now` has no member for is taken from `old`; arrays are merged element by element. */
static bool merge_value(json_t *now, json_t *old)
{
    bool more = false;
    if (json_is_object(now) && json_is_object(old)) return merge(now, old);
    if (!json_is_array(now) || !json_is_array(old)) return false;
    for (size_t i = 0; i < json_array_size(now) && i < json_array_size(old); i++)
        more |= merge_value(json_array_get(now, i), json_array_get(old, i));
    return more;
}

static bool merge(json_t *into, json_t *old)
{
    const char *key;
    json_t *v;
    bool more = false;
    json_object_foreach(old, key, v)
    {
        json_t *now = json_object_get(into, key);
        if (now)
            more |= merge_value(now, v);
        else
            more |= !json_object_set(into, key, v);
    }
    return more;
}

char *json_spec_merge(const char *old, const char *now)
{
    struct err e;
    json_t *a = load(old, strlen(old), &e), *b = load(now, strlen(now), &e);
    char *out = a && b && merge(b, a) ? json_dumps(b, JSON_COMPACT) : NULL;
    json_decref(a);
    json_decref(b);
    return out;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Sets a.b.c, making the objects (or, before a digit, the arrays) on the way. Takes v. */
static void put(json_t *root, const char *path, json_t *v)
{
    char part[PATH_SIZE];
    for (;;) {
        const char *dot = strchr(path, '.');
        if (!dot) break;
        snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
        json_t *child = json_object_get(root, part);
        if (!child) {
            child = dot[1] >= '0' && dot[1] <= '9' ? json_array() : json_object();
            json_object_set_new(root, part, child);
        }
        root = child;
        path = dot + 1;
    }
    if (json_is_array(root))
        json_array_append_new(root, v);
    else
        json_object_set_new(root, path, v);
}

static json_t *value_of(const struct job_spec *s, const struct field *f, const void *base)
{
    const char *at = (const char *)base + f->offset;
    int64_t n = 0;
    switch (f->type) {
    case FIELD_INT: n = *(const int64_t *)at; break;
    case FIELD_INT32: n = *(const int32_t *)at; break;
    case FIELD_DOUBLE: return json_real(*(const double *)at);
    case FIELD_BOOL: return json_boolean(*(const int32_t *)at);
    case FIELD_ENUM: return json_string(f->words[*(const int32_t *)at]);
    case FIELD_STRING: return json_string(spec_text(s, *(const spec_ref *)at));
    }
    const struct auto_field *a = find_auto(f->path);
    return a && a->value == n ? json_string("auto") : json_integer((json_int_t)n);
}

static json_t *source_value(const struct job_spec *s, const struct spec_source *src)
{
    json_t *o = json_object();
    for (const struct field *f = source_fields; f->path; f++) {
        if (!(f->kinds & 1u << s->kind)) continue;
        if (!strcmp(f->path, "text_key") && src->format != DATA_JSONL) continue;
        if (!strcmp(f->path, "eod") && src->eod < 0) continue;
        json_object_set_new(o, f->path, value_of(s, f, src));
    }
    return o;
}

static json_t *sources_value(const struct job_spec *s, const struct spec_source *src, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, source_value(s, &src[i]));
    return list;
}

static json_t *stages_value(const struct job_spec *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->n_stages; i++) {
        json_t *o = json_object();
        for (const struct field *f = stage_fields; f->path; f++)
            json_object_set_new(o, f->path, value_of(s, f, &s->stages[i]));
        json_array_append_new(list, o);
    }
    return list;
}

/* A default outside of the range stands for "not given", and is never written down. */
static bool unsaid(const struct job_spec *s, const struct field *f)
{
    const char *at = (const char *)s + f->offset;
    double v;
    if (f->type == FIELD_INT)
        v = (double)*(const int64_t *)at;
    else if (f->type == FIELD_INT32)
        v = *(const int32_t *)at;
    else if (f->type == FIELD_DOUBLE)
        v = *(const double *)at;
    else
        return false;
    return v == f->fallback && (v < f->min || v > f->max) && !find_auto(f->path);
}

/* A parameter of model.rope that the job leaves to the model, as most do. */
static bool models_rope(const struct job_spec *s, const struct field *f)
{
    static const char prefix[] = "model.rope.";
    return !strncmp(f->path, prefix, sizeof prefix - 1) &&
           strcmp(f->path + sizeof prefix - 1, "compute") &&
           spec_is_default(s, f, (const char *)s + f->offset);
}

/* Fields that would not read back, or that say what another field already said. */
static bool hidden(const struct job_spec *s, const struct field *f, enum json_form form)
{
    if (!(f->kinds & 1u << s->kind) || unsaid(s, f) || models_rope(s, f)) return true;
    bool steps = !strcmp(f->path, "train.steps"), tokens = !strcmp(f->path, "train.tokens");
    if (tokens) return !s->train.tokens;
    if (!strcmp(f->path, "train.passes")) return !s->train.passes;
    if (steps && !s->train.steps) return true;
    if (steps) return form == JSON_FOR_PEOPLE && (s->train.tokens || s->train.passes);
    return f->type == FIELD_STRING &&
           !*spec_text(s, *(const spec_ref *)((const char *)s + f->offset));
}

static json_t *spec_value(const struct job_spec *s, enum json_form form)
{
    json_t *root = json_object();
    for (const struct field *f = spec_fields; f->path; f++)
        if (!hidden(s, f, form)) put(root, f->path, value_of(s, f, s));
    /* Of a directory it is what seqd found out. */
    if (*s->model.config && (form == JSON_STORED || spec_new_model(s)))
        put(root, "model.config", json_loads(s->model.config, 0, NULL));
    if (s->checkpoint.resume == RESUME_PATH && json_object_get(root, "checkpoint"))
        put(root, "checkpoint.resume", json_string(spec_text(s, s->checkpoint.resume_path)));
    for (const struct field *c = spec_constants; c->path; c++)
        if (c->kinds & 1u << s->kind) put(root, c->path, json_string(c->words[0]));
    if (s->data.n_train) put(root, "data.train", sources_value(s, s->data.train, s->data.n_train));
    if (s->eval.n_data) put(root, "eval.data", sources_value(s, s->eval.data, s->eval.n_data));
    if (s->n_stages) put(root, "stages", stages_value(s));
    if (*spec_text(s, s->input.source.path)) {
        json_t *src = source_value(s, &s->input.source);
        json_t *input = json_object_get(root, "input");
        if (input)
            json_object_update(input, src), json_decref(src);
        else
            json_object_set_new(root, "input", src);
    }
    if (s->n_labels) put(root, "labels", json_object());
    for (int i = 0; i < s->n_labels; i++)
        json_object_set_new(json_object_get(root, "labels"), spec_text(s, s->labels[i].key),
                            json_string(spec_text(s, s->labels[i].value)));
    return root;
}

/* Our own printer, because Jansson prints 0.1 as 0.10000000000000001. */
static void print(struct jwrite *w, const char *key, const json_t *v)
{
    const char *k;
    json_t *member;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        jwrite_object(w, key);
        json_object_foreach((json_t *)v, k, member) print(w, k, member);
        jwrite_end(w);
        break;
    case JSON_ARRAY:
        jwrite_array(w, key);
        json_array_foreach(v, i, member) print(w, NULL, member);
        jwrite_end(w);
        break;
    case JSON_STRING: jwrite_str(w, key, json_string_value(v)); break;
    case JSON_INTEGER: jwrite_int(w, key, json_integer_value(v)); break;
    case JSON_REAL: jwrite_double(w, key, json_real_value(v)); break;
    case JSON_TRUE:
    case JSON_FALSE: jwrite_bool(w, key, json_is_true(v)); break;
    case JSON_NULL: jwrite_null(w, key); break;
    }
}

int64_t json_spec_write(const struct job_spec *s, enum json_form form, char *out, size_t size)
{
    json_t *root = spec_value(s, form);
    struct jwrite w;
    jwrite_init(&w, out, size);
    print(&w, NULL, root);
    json_decref(root);
    return jwrite_finish(&w);
}

/* ---- changing -------------------------------------------------------------------------------- */

static int edit_labels(json_t *root, json_t *change, struct err *e)
{
    struct spec_reader r = {.form = JSON_FOR_PEOPLE, .e = e};
    const char *key;
    json_t *v, *labels = json_object_get(root, "labels");
    if (!json_is_object(change))
        return err_field(e, ERR_INVALID, "labels",
                         "labels must be an object: a string sets a label, null removes it");
    if (!labels) json_object_set_new(root, "labels", labels = json_object());
    json_object_foreach(change, key, v)
    {
        if (!json_is_null(v) && check_label(&r, key, v)) return -1;
        if (json_is_null(v))
            json_object_del(labels, key);
        else
            json_object_set(labels, key, v);
    }
    return 0;
}

static int edit(json_t *root, json_t *change, struct err *e)
{
    const char *key;
    json_t *v;
    if (!json_object_size(change))
        return err_set(e, ERR_INVALID, "nothing changes: give priority or labels");
    json_object_foreach(change, key, v)
    {
        if (!strcmp(key, "labels")) {
            if (edit_labels(root, v, e)) return -1;
        } else if (!strcmp(key, "priority")) {
            if (!json_is_integer(v))
                return err_field(e, ERR_INVALID, key, "priority must be an integer");
            json_object_set(root, "priority", v);
        } else {
            return err_field(e, ERR_INVALID, key,
                             "%.80s cannot be changed: of a job only priority and labels can", key);
        }
    }
    return 0;
}

char *json_spec_edit(const char *old, const char *change, size_t size, struct job_spec *s,
                     struct err *e)
{
    struct err why;
    json_t *root = load(old, strlen(old), e), *by = root ? load(change, size, e) : NULL;
    char *out = by && !edit(root, by, e) ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    json_decref(by);
    if (!out || !json_spec_read(out, strlen(out), JSON_STORED, s, &why)) return out;
    free(out);
    *e = why;
    return NULL;
}
