/* write.c: writes a job's spec as JSON, field by field of the table of fields. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "daemon/spec/json.h"
#include "daemon/spec/rule.h"

/* Sets the member at a path a.b.c to v. Makes missing objects of the path; a part that is followed
 * by a number becomes an array. Takes ownership of v. */
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
    default: return NULL;
    }
    const struct auto_field *a = rule_auto_field(f->path);
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

/* Tells whether the field has its default and the default is outside of the field's range. Such a
 * default means "not given", and is never written. */
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
    return v == f->fallback && !field_allows(f, v) && !rule_auto_field(f->path);
}

/* Tells whether the field is a parameter of model.rope and the job leaves RoPE to the model, as
 * most jobs do. */
static bool models_rope(const struct job_spec *s, const struct field *f)
{
    static const char prefix[] = "model.rope.";
    return !strncmp(f->path, prefix, sizeof prefix - 1) &&
           strcmp(f->path + sizeof prefix - 1, "compute") &&
           spec_is_default(s, f, (const char *)s + f->offset);
}

/* Tells whether the field is not written, because it could not be read back or because a second
 * field has the same information. */
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

static json_t *adapters_value(const struct job_spec *s, enum json_form form)
{
    json_t *o = json_object();
    for (int i = 0; i < spec_n_adapters(s); i++) {
        const struct spec_adapter *a = &s->model.adapters[i];
        json_t *v = json_string(spec_text(s, a->path));
        if (form == JSON_STORED && a->facts)
            v = json_pack("{s:o, s:s}", "path", v, "facts", spec_text(s, a->facts));
        json_object_set_new(o, spec_text(s, a->name), v);
    }
    return o;
}

static void put_after(json_t *root, const struct spec_after *a)
{
    const char *key = a->any ? "after_any" : "after";
    if (!json_object_get(root, key)) json_object_set_new(root, key, json_array());
    json_array_append_new(json_object_get(root, key), json_integer(a->job));
}

static json_t *spec_value(const struct job_spec *s, enum json_form form)
{
    json_t *root = json_object();
    for (const struct field *f = spec_fields; f->path; f++)
        if (!hidden(s, f, form)) put(root, f->path, value_of(s, f, s));
    /* Only a stored spec has the config of a model directory, which seqd has found out. */
    if (*s->model.config && (form == JSON_STORED || spec_new_model(s)))
        put(root, "model.config", json_loads(s->model.config, 0, NULL));
    if (s->model.adapters[0].name) put(root, "model.adapters", adapters_value(s, form));
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
    for (int i = 0; i < s->n_after; i++) put_after(root, &s->after[i]);
    if (s->n_labels) put(root, "labels", json_object());
    for (int i = 0; i < s->n_labels; i++)
        json_object_set_new(json_object_get(root, "labels"), spec_text(s, s->labels[i].key),
                            json_string(spec_text(s, s->labels[i].value)));
    return root;
}

/* Prints a value. Jansson is not used for this, because it prints 0.1 as 0.10000000000000001. */
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
