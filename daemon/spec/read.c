/* read.c: reads a job's spec from JSON, field by field of the table. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "api/core/container.h"
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/job_paths.h"
#include "api/core/remote.h"
#include "daemon/spec/document.h"
#include "daemon/spec/json.h"
#include "daemon/spec/scalar.h"
#include "daemon/spec/rule.h"
#include "worker/family/config.h"

/* If a source does not give its format, guesses it from the suffix of the path. */
static int guess_format(struct spec_reader *r, const char *prefix, struct spec_source *src)
{
    static const struct {
        const char *suffix;
        int32_t format;
    } known[] = {
        {".jsonl", DATA_JSONL}, {".npy", DATA_NPY}, {".idx", DATA_MEGATRON}, {".bin", DATA_LLMC}};
    const char *file = spec_text(r->s, src->path), *suffix = container_suffix(file);
    const struct container *c = container_by_suffix(file);
    char field[PATH_SIZE];
    src->format = DATA_TEXT;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(suffix, known[i].suffix)) src->format = known[i].format;
    if (src->format != DATA_TEXT || r->form == JSON_STORED || !*file) return 0;
    snprintf(field, sizeof field, "%.80s.path", prefix);
    if (remote_refuse(file, field, true, r->e)) return -1;
    if (c) return container_refuse(c, field, file, c->magic ? "" : "; or set its format", r->e);
    if (container_is_text(file)) return 0;
    return err_field(
        r->e, ERR_INVALID, field,
        "%s %.200s: %s%.40s says no format: set %.80s.format to text, jsonl or another", field,
        file, *suffix ? "the suffix " : "a pattern without a suffix", suffix, prefix);
}

/* Finds the field `key` in the table of fields of an array's elements. */
static const struct field *element_field(const struct field *table, const char *key)
{
    while (table->path && strcmp(table->path, key)) table++;
    return table->path ? table : NULL;
}

static int read_source(struct spec_reader *r, const char *prefix, const json_t *v,
                       struct spec_source *src)
{
    if (!json_is_object(v)) return scalar_wrong_type(r, prefix, "an object with a path", v);
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
            /* input.prompt is a separate field, although it is in the same object as the
             * source. */
            if (!strcmp(path, "input.prompt")) continue;
            if (scalar_unknown(r, path)) return -1;
            continue;
        }
        if (scalar_set(r, f, src, path, member)) return -1;
    }
    if (!has_format && guess_format(r, prefix, src)) return -1;
    if (!src->text_key && spec_intern(r->s, "text", 4, &src->text_key))
        return err_field(r->e, ERR_TOO_LARGE, prefix,
                         "the strings of a spec exceed %d bytes together", SPEC_TEXT_SIZE);
    return 0;
}

static int read_sources(struct spec_reader *r, const char *field, const json_t *v,
                        struct spec_source *out, int32_t *n)
{
    if (!json_is_array(v))
        return scalar_wrong_type(r, field, "an array of sources, as [{\"path\": \"FILE\"}]", v);
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
    if (!json_is_object(v)) return scalar_wrong_type(r, prefix, "an object with from_step", v);
    json_object_foreach((json_t *)v, key, member)
    {
        char path[2 * PATH_SIZE];
        snprintf(path, sizeof path, "%.32s.%.64s", prefix, key);
        const struct field *f = element_field(stage_fields, key);
        if (!f && scalar_unknown(r, path)) return -1;
        if (f && scalar_set(r, f, out, path, member)) return -1;
    }
    return 0;
}

static int read_stages(struct spec_reader *r, const json_t *v)
{
    if (!json_is_array(v)) return scalar_wrong_type(r, "stages", "an array of stages", v);
    if (json_array_size(v) > SPEC_STAGES)
        return err_field(r->e, ERR_INVALID, "stages",
                         "stages has %zu members, at most %d are allowed", json_array_size(v),
                         SPEC_STAGES);
    for (size_t i = 0; i < json_array_size(v); i++) {
        char path[PATH_SIZE];
        snprintf(path, sizeof path, "stages.%zu", i);
        if (read_stage(r, path, json_array_get(v, i), &r->s->stages[i])) return -1;
        r->s->n_stages = (int32_t)i + 1;
    }
    return 0;
}

/* Reads a string, or an array of at most `most` strings. */
static int read_strings(struct spec_reader *r, const char *path, const json_t *v, size_t most,
                        spec_ref *out)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > most)
        return err_field(r->e, ERR_INVALID, path, "%s has %zu strings, at most %zu", path, n, most);
    for (size_t i = 0; i < n; i++) {
        char field[48];
        const json_t *x = json_is_array(v) ? json_array_get(v, i) : v;
        snprintf(field, sizeof field, json_is_array(v) ? "%s.%zu" : "%s", path, i);
        if (scalar_string(r, field, x, &out[i])) return -1;
    }
    return 0;
}

static int read_stop(struct spec_reader *r, const json_t *v)
{
    return read_strings(r, "sampling.stop", v, SPEC_STOPS, r->s->sampling.stop);
}

/* Reads names or patterns. An empty one would be taken for the end of the list. */
static int read_names(struct spec_reader *r, const char *path, const json_t *v, size_t most,
                      spec_ref *out)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < n && r->form != JSON_STORED; i++) {
        const json_t *x = json_is_array(v) ? json_array_get(v, i) : v;
        char field[48];
        if (!json_is_string(x) || json_string_length(x)) continue;
        snprintf(field, sizeof field, "%s.%zu", path, i);
        return err_field(r->e, ERR_INVALID, field, "%s is empty: leave it out", field);
    }
    return read_strings(r, path, v, most, out);
}

static int read_freeze(struct spec_reader *r, const json_t *v)
{
    return read_names(r, "train.freeze", v, SPEC_FREEZES, r->s->train.freeze);
}

static int read_targets(struct spec_reader *r, const json_t *v)
{
    if (json_is_array(v) && !json_array_size(v) && r->form != JSON_STORED)
        return err_field(r->e, ERR_INVALID, "adapter.targets",
                         "adapter.targets is an empty list: name products, or leave it out for "
                         "all-linear");
    return read_names(r, "adapter.targets", v, SPEC_TARGETS, r->s->adapter.targets);
}

static int read_saved(struct spec_reader *r, const json_t *v)
{
    r->s->adapter.said |= ADAPTER_SAID_SAVED;
    return read_names(r, "adapter.modules_to_save", v, SPEC_SAVED, r->s->adapter.modules_to_save);
}

/* Reads an adapter of model.adapters: its path or, in a stored spec, its path and its facts. */
static int read_adapter(struct spec_reader *r, const char *key, const json_t *v,
                        struct spec_adapter *out)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "model.adapters.%.64s", key);
    if (spec_intern(r->s, key, strlen(key), &out->name))
        return err_field(r->e, ERR_TOO_LARGE, "model.adapters", "model.adapters is too long");
    if (!json_is_object(v) || r->form != JSON_STORED) return scalar_string(r, path, v, &out->path);
    const json_t *facts = json_object_get(v, "facts"), *to = json_object_get(v, "path");
    if (to && scalar_string(r, path, to, &out->path)) return -1;
    return facts ? scalar_string(r, path, facts, &out->facts) : 0;
}

static int read_adapters(struct spec_reader *r, const json_t *v)
{
    static const char list[] = "model.adapters";
    const char *key;
    json_t *member;
    int n = 0;
    if (!json_is_object(v)) return scalar_wrong_type(r, list, "an object of paths by name", v);
    if (!json_object_size(v))
        return err_field(r->e, ERR_INVALID, list,
                         "%s is empty: give {\"NAME\": \"PATH\"}, or leave it out", list);
    if (json_object_size(v) > SPEC_ADAPTERS)
        return err_field(r->e, ERR_INVALID, list, "%s has %zu adapters, and at most %d: name fewer",
                         list, json_object_size(v), SPEC_ADAPTERS);
    json_object_foreach((json_t *)v, key, member)
    {
        if (!*key)
            return err_field(r->e, ERR_INVALID, list, "%s has an empty name: give it letters",
                             list);
        if (read_adapter(r, key, member, &r->s->model.adapters[n++])) return -1;
    }
    return 0;
}

static int read_labels(struct spec_reader *r, const json_t *v)
{
    if (!json_is_object(v)) return scalar_wrong_type(r, "labels", "an object of strings", v);
    if (json_object_size(v) > SPEC_LABELS)
        return err_field(r->e, ERR_INVALID, "labels",
                         "labels has %zu members, at most %d are allowed", json_object_size(v),
                         SPEC_LABELS);
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)v, key, member)
    {
        struct spec_label *l = &r->s->labels[r->s->n_labels];
        if (r->form != JSON_STORED && rule_label_check(key, member, r->e)) return -1;
        if (scalar_string(r, "labels", member, &l->value)) return -1;
        if (spec_intern(r->s, key, strlen(key), &l->key))
            return err_field(r->e, ERR_TOO_LARGE, "labels", "labels are too long");
        r->s->n_labels++;
    }
    return 0;
}

/* Stores model.config as text until the whole spec has been read, because the meaning of its keys
 * depends on model.path. */
static int read_config(struct spec_reader *r, const json_t *v)
{
    if (!json_is_object(v)) return scalar_wrong_type(r, "model.config", "an object", v);
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
    if (!json_is_array(v)) return scalar_wrong_type(r, "optim.betas", "an array of two numbers", v);
    if (json_array_size(v) != 2)
        return err_field(r->e, ERR_INVALID, "optim.betas",
                         "optim.betas has %zu numbers: it must have two", json_array_size(v));
    for (int i = 0; i < 2; i++) {
        const struct field *f = spec_field(i ? "optim.betas.1" : "optim.betas.0");
        if (scalar_set(r, f, r->s, f->path, json_array_get(v, (size_t)i))) return -1;
    }
    return 0;
}

/* Reads "auto", "none" or the path of a step directory. */
static int read_resume(struct spec_reader *r, const json_t *v)
{
    if (!json_is_string(v)) return scalar_wrong_type(r, "checkpoint.resume", "a string", v);
    const char *text = json_string_value(v);
    if (!strcmp(text, "auto"))
        r->s->checkpoint.resume = RESUME_AUTO;
    else if (!strcmp(text, "none"))
        r->s->checkpoint.resume = RESUME_NONE;
    else
        r->s->checkpoint.resume = RESUME_PATH;
    if (r->s->checkpoint.resume != RESUME_PATH) return 0;
    return scalar_string(r, "checkpoint.resume", v, &r->s->checkpoint.resume_path);
}

static int read_epochs(struct spec_reader *r, const json_t *v)
{
    if (r->s->train.passes)
        return err_field(r->e, ERR_INVALID, "train.epochs",
                         "train.epochs is another name of train.passes: give one");
    const struct field *f = spec_field("train.passes");
    return scalar_set(r, f, r->s, f->path, v);
}

static int read_batch_tokens(struct spec_reader *r, const json_t *v)
{
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return scalar_wrong_type(r, "train.global_batch_tokens", "a positive integer", v);
    r->has_batch_tokens = true;
    r->batch_tokens = json_integer_value(v);
    return 0;
}

static int read_object(struct spec_reader *r, const char *prefix, const json_t *o);

/* Returns the last part of the first field in the section `path`. */
static const char *first_of(const char *path)
{
    const size_t n = strlen(path);
    for (const struct field *f = spec_fields; f->path; f++)
        if (f->kinds && !strncmp(f->path, path, n) && f->path[n] == '.') return f->path + n + 1;
    return "name";
}

static int read_section(struct spec_reader *r, const char *path, const json_t *v)
{
    if (json_is_object(v)) return read_object(r, path, v);
    char want[PATH_SIZE + 32];
    snprintf(want, sizeof want, "an object, as {\"%s\": ...}", first_of(path));
    return scalar_wrong_type(r, path, want, v);
}

static int read_input(struct spec_reader *r, const json_t *v)
{
    if (read_source(r, "input", v, &r->s->input.source)) return -1;
    const json_t *prompt = json_object_get(v, "prompt");
    const struct field *f = spec_field("input.prompt");
    if (!prompt) return 0;
    if (!(f->kinds & 1u << r->s->kind))
        return err_field(r->e, ERR_INVALID, f->path, "input.prompt does not belong to a %s job",
                         spec_kind_name(r->s->kind));
    return scalar_set(r, f, r->s, f->path, prompt);
}

/* Reads "hardware", the machines of a plan. The cluster need not have them. A job has no such
 * member. */
static int read_hardware(struct spec_reader *r, const json_t *v)
{
    const char *key;
    json_t *member;
    if (!r->hardware)
        return err_field(r->e, ERR_INVALID, "hardware",
                         "hardware describes machines to plan for: POST /v1/plan takes it, a job "
                         "runs on the nodes that are here, leave it out");
    if (!json_is_object(v)) return scalar_wrong_type(r, "hardware", "an object with devices", v);
    r->hardware->given = 1;
    json_object_foreach((json_t *)v, key, member)
    {
        char path[PATH_SIZE];
        const struct field *f = element_field(hardware_fields, key);
        if (snprintf(path, sizeof path, "hardware.%s", key) >= (int)sizeof path || !f)
            return scalar_unknown(r, path);
        struct field named = *f; /* a copy of the row, with the whole path for use in errors */
        named.path = path;
        if (scalar_set(r, &named, r->hardware, path, member)) return -1;
    }
    return hardware_check(r->hardware, r->e);
}

/* Adds the ids of a list to the jobs that must have ended. */
static int read_jobs(struct spec_reader *r, const char *path, const json_t *v, bool any)
{
    if (!json_is_array(v)) return scalar_wrong_type(r, path, "a list of jobs' ids", v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id) || json_integer_value(id) < 1)
            return scalar_wrong_type(r, path, "a list of jobs' ids, numbers from 1 on", id);
        if (r->s->n_after == SPEC_AFTER)
            return err_field(r->e, ERR_INVALID, path,
                             "after and after_any have more than %d jobs in all: let a job that "
                             "does little wait for some of them, and name that one",
                             SPEC_AFTER);
        r->s->after[r->s->n_after++] = (struct spec_after){json_integer_value(id), any};
    }
    return 0;
}

static int read_after(struct spec_reader *r, const json_t *v)
{
    return read_jobs(r, "after", v, false);
}

static int read_after_any(struct spec_reader *r, const json_t *v)
{
    return read_jobs(r, "after_any", v, true);
}

#define TRAINING (1u << JOB_TRAIN | 1u << JOB_VERIFY)
#define INPUT    (1u << JOB_SCORE | 1u << JOB_GENERATE | 1u << JOB_EMBED)

/* Fields that are not a single scalar. Each has a function that reads it. */
static const struct special {
    const char *path;
    int (*read)(struct spec_reader *, const json_t *);
    uint32_t kinds;
} specials[] = {
    {"labels", read_labels, ~0u},
    {"after", read_after, ~0u},
    {"after_any", read_after_any, ~0u},
    {"hardware", read_hardware, ~0u},
    {"data.train", read_train_data, TRAINING},
    {"eval.data", read_eval_data, TRAINING},
    {"stages", read_stages, TRAINING},
    {"train.freeze", read_freeze, TRAINING},
    {"adapter.targets", read_targets, ~0u},
    {"adapter.modules_to_save", read_saved, ~0u},
    {"sampling.stop", read_stop, 1u << JOB_GENERATE | 1u << JOB_SERVE},
    {"input", read_input, INPUT},
    {"optim.betas", read_betas, TRAINING},
    {"model.config", read_config, ~0u},
    {"model.adapters", read_adapters, ~0u},
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
                     spec_kind_name(r->s->kind));
}

/* Tells whether a stored spec has a field that its kind of job does not have, because a different
 * version wrote the spec. `kinds` are the kinds of job that have the field. */
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
        if (other_kind(r, sp->kinds)) return scalar_unknown(r, path);
        return check_kind(r, path, sp->kinds) ? -1 : sp->read(r, v);
    }
    const struct field *f = spec_field(path);
    if (f && f->kinds) {
        if (other_kind(r, f->kinds)) return scalar_unknown(r, path);
        if (check_kind(r, path, f->kinds)) return -1;
        if (!strcmp(path, "train.global_batch")) r->has_batch = true;
        if (!strcmp(path, "sampling.max_tokens")) r->has_max_tokens = true;
        if (!strcmp(path, "data.packing")) r->has_packing = true;
        if (!strcmp(path, "adapter.type")) r->s->adapter.said |= ADAPTER_SAID_TYPE;
        if (!strcmp(path, "adapter.rslora")) r->s->adapter.said |= ADAPTER_SAID_RSLORA;
        if (!strcmp(path, "adapter.dropout")) r->s->adapter.said |= ADAPTER_SAID_DROPOUT;
        if (!strcmp(path, "embed.pooling")) r->s->embed.unsaid &= ~EMBED_POOLING;
        if (!strcmp(path, "embed.normalize")) r->s->embed.unsaid &= ~EMBED_NORMALIZE;
        return scalar_set(r, f, r->s, path, v);
    }
    for (const struct field *c = spec_constants; c->path; c++) {
        int32_t word;
        if (strcmp(c->path, path)) continue;
        return check_kind(r, path, c->kinds) ? -1 : scalar_word(r, path, c->words, v, &word);
    }
    if (!f && is_section(path)) return read_section(r, path, v);
    return scalar_unknown(r, path);
}

static int read_object(struct spec_reader *r, const char *prefix, const json_t *o)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        char path[PATH_SIZE];
        int n = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        /* Refuse a dot in a key, which would be a second spelling of a nested field. */
        if (n >= (int)sizeof path || strchr(key, '.')) {
            if (scalar_unknown(r, path)) return -1;
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
                         "kind is missing: one of train, score, generate, verify, embed, merge, "
                         "serve");
    return scalar_word(r, "kind", f->words, kind, &r->s->kind);
}

/* Refuses a name that would be read as an id or as an option. The names of stored jobs are not
 * checked again. */
static int check_name(const struct spec_reader *r)
{
    const char *name = spec_text(r->s, r->s->name);
    if (*name == '-')
        return err_field(r->e, ERR_INVALID, "name",
                         "name \"%.40s\": a command would read it as an option, so a name begins "
                         "with no \"-\": leave it out",
                         name);
    const char mark = name[strcspn(name, ":/")];
    if (mark && r->s->kind == JOB_SERVE)
        return err_field(r->e, ERR_INVALID, "name",
                         "name \"%.40s\": requests name an adapter after a colon and an owner "
                         "before a slash, so a serve job's name has no \"%c\": leave it out",
                         name, mark);
    if (!*name || name[strspn(name, "0123456789")]) return 0;
    return err_field(r->e, ERR_INVALID, "name",
                     "name \"%.40s\": digits alone are the id of a job, so nothing would find it "
                     "by this name: add a letter, as in run-%.40s",
                     name, name);
}

/* Refuses paths that are addresses of the network. */
static int check_paths(struct spec_reader *r)
{
    struct spec_path path[SPEC_PATHS];
    const int n = job_paths(r->s, path);
    for (int i = 0; i < n; i++) {
        const bool data = path[i].source != NULL;
        if (remote_refuse(spec_text(r->s, *path[i].ref), path[i].field, data, r->e)) return -1;
    }
    return 0;
}

/* If a batch or a serve job does not limit the tokens of a request, sets the limit so that there is
 * room for a prompt. Each request has its own number of tokens, and the default may be longer than
 * the sequence. */
static void bound_tokens(struct spec_reader *r)
{
    struct job_spec *s = r->s;
    if (!job_generates(s) || r->has_max_tokens || !job_has_bodies(s) || s->data.seq_len < 2 ||
        s->data.seq_len > s->sampling.max_tokens)
        return;
    s->sampling.max_tokens = s->data.seq_len - 1;
}

/* Applies the rules that depend on the members that the text has and on their spelling. Only the
 * reader knows these. */
static int settle(struct spec_reader *r)
{
    struct job_spec *s = r->s;
    if (s->kind != JOB_EMBED && s->kind != JOB_SERVE) s->embed.unsaid = 0;
    if (take_config(r)) return -1;
    if (r->form == JSON_STORED) return 0;
    if (check_name(r) || check_paths(r)) return -1;
    bound_tokens(r);
    /* the default cuts documents, and answers must be whole */
    if (job_learns_pairs(s) && !r->has_packing) s->data.packing = PACKING_BEST_FIT;
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

/* Sets a field that a person has left out, if its value then differs from the value that a missing
 * field has in a stored spec. */
static int leave_unsaid(struct spec_reader *r)
{
    int rc = 0;
    if (r->form != JSON_STORED) r->s->embed.unsaid = EMBED_POOLING | EMBED_NORMALIZE;
    for (const struct field *f = spec_fields; f->path && r->form != JSON_STORED && !rc; f++) {
        if (!f->unsaid || !(f->kinds & 1u << r->s->kind)) continue;
        json_t *word = json_string(f->unsaid);
        rc = scalar_set(r, f, r->s, f->path, word);
        json_decref(word);
    }
    return rc;
}

static int read_spec(struct spec_reader *r, const char *text, size_t size)
{
    spec_defaults(r->s);
    json_t *root = document_load(text, size, r->e);
    if (!root) return -1;
    int rc = read_kind(r, root) || leave_unsaid(r) || read_object(r, "", root) || settle(r) ? -1
                                                                                            : 0;
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
