/* wire_spec.c: packs and unpacks the job spec by its tables of fields. A new field needs a new row
 * of a table, but no code here. */
#include <math.h>
#include "api/core/assert.h"
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/wire_pack.h"

/* ---- the job spec, by its tables of fields --------------------------------------------------- */

static Seqd__Field *field_pack(const struct field *f, const struct job_spec *s, const char *base,
                               struct arena *a)
{
    Seqd__Field *w = message_new(a, &seqd__field__descriptor);
    if (!w) return NULL;
    const void *member = base + f->offset;
    int64_t v64;
    int32_t v32;
    spec_ref ref;
    w->path = (char *)f->path;
    w->value_case = SEQD__FIELD__VALUE_NUMBER;
    switch (f->type) {
    case FIELD_INT:
        memcpy(&v64, member, sizeof v64);
        w->number = v64;
        break;
    case FIELD_INT32:
    case FIELD_BOOL:
        memcpy(&v32, member, sizeof v32);
        w->number = v32;
        break;
    case FIELD_DOUBLE:
        w->value_case = SEQD__FIELD__VALUE_REAL;
        memcpy(&w->real, member, sizeof w->real);
        break;
    case FIELD_ENUM:
        w->value_case = SEQD__FIELD__VALUE_TEXT;
        memcpy(&v32, member, sizeof v32);
        w->text = (char *)f->words[v32];
        break;
    case FIELD_STRING:
        w->value_case = SEQD__FIELD__VALUE_TEXT;
        memcpy(&ref, member, sizeof ref);
        w->text = (char *)spec_text(s, ref);
        break;
    default: return NULL;
    }
    return w;
}

static int fields_pack(const struct field *table, const struct job_spec *s, const void *base,
                       struct arena *a, size_t *n, Seqd__Field ***out)
{
    for (*n = 0; table[*n].path;) ++*n;
    *out = pointers_new(a, *n);
    if (!*out) return -1;
    for (size_t i = 0; i < *n; i++) {
        (*out)[i] = field_pack(&table[i], s, base, a);
        if (!(*out)[i]) return -1;
    }
    return 0;
}

static int word_find(const char *const *words, const char *word)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], word)) return i;
    return -1;
}

static int field_wrong(const struct field *f, const char *want, struct err *e)
{
    return err_field(e, ERR_INVALID, f->path, "%s: want %s", f->path, want);
}

static int field_unpack(const struct field *f, const Seqd__Field *w, struct job_spec *s, char *base,
                        struct err *e)
{
    bool number = w->value_case == SEQD__FIELD__VALUE_NUMBER;
    bool text = w->value_case == SEQD__FIELD__VALUE_TEXT;
    void *member = base + f->offset;
    int32_t v32 = 0;
    spec_ref ref;
    switch (f->type) {
    case FIELD_INT:
        if (!number) return field_wrong(f, "an integer", e);
        memcpy(member, &w->number, sizeof w->number);
        return 0;
    case FIELD_INT32:
        if (!number || w->number < INT32_MIN || w->number > INT32_MAX)
            return field_wrong(f, "an integer of 32 bits", e);
        v32 = (int32_t)w->number;
        break;
    case FIELD_BOOL:
        if (!number || w->number < 0 || w->number > 1) return field_wrong(f, "0 or 1", e);
        v32 = (int32_t)w->number;
        break;
    case FIELD_DOUBLE:
        if (w->value_case != SEQD__FIELD__VALUE_REAL || !isfinite(w->real))
            return field_wrong(f, "a finite number", e);
        memcpy(member, &w->real, sizeof w->real);
        return 0;
    case FIELD_ENUM:
        v32 = text ? word_find(f->words, w->text) : -1;
        if (v32 < 0) return field_wrong(f, "a word this version knows: upgrade this node", e);
        break;
    case FIELD_STRING:
        if (!text) return field_wrong(f, "a string", e);
        if (spec_intern(s, w->text, strlen(w->text), &ref) < 0)
            return err_field(e, ERR_TOO_LARGE, f->path, "the spec's strings exceed %d bytes at %s",
                             SPEC_TEXT_SIZE, f->path);
        memcpy(member, &ref, sizeof ref);
        return 0;
    default: return field_wrong(f, "a scalar", e);
    }
    memcpy(member, &v32, sizeof v32);
    return 0;
}

static const struct field *field_find(const struct field *table, const char *path)
{
    for (; table->path; table++)
        if (!strcmp(table->path, path)) return table;
    return NULL;
}

static int fields_unpack(const struct field *table, size_t n, Seqd__Field **in, struct job_spec *s,
                         void *base, struct err *e)
{
    if (range_check((int64_t)n, 0, 512, "spec.fields", e) < 0) return -1;
    for (const struct field *f = table; f->path; f++)
        if (f->since) spec_set_default(s, f, base);
    for (size_t i = 0; i < n; i++) {
        const struct field *f = field_find(table, in[i]->path);
        if (!f)
            return err_field(e, ERR_INVALID, "spec",
                             "this version has no job field '%.64s': upgrade this node",
                             in[i]->path);
        if (field_unpack(f, in[i], s, base, e) < 0) return -1;
    }
    return 0;
}

/* ---- sources, stages, labels ----------------------------------------------------------------- */

static Seqd__Source *source_pack(const struct job_spec *s, const struct spec_source *source,
                                 struct arena *a)
{
    Seqd__Source *w = message_new(a, &seqd__source__descriptor);
    if (!w || fields_pack(source_fields, s, source, a, &w->n_fields, &w->fields) < 0) return NULL;
    return w;
}

/* Packs n sources into *out, which is memory of the arena. */
static int sources_pack(const struct job_spec *s, const struct spec_source *source, int32_t n,
                        struct arena *a, size_t *n_out, Seqd__Source ***out)
{
    assert(n >= 0 && n <= SPEC_SOURCES);
    *n_out = (size_t)n;
    if (!(*out = pointers_new(a, *n_out))) return -1;
    for (int32_t i = 0; i < n; i++)
        if (!((*out)[i] = source_pack(s, &source[i], a))) return -1;
    return 0;
}

static int stages_pack(const struct job_spec *s, struct arena *a, Seqd__Spec *w)
{
    assert(s->n_stages >= 0 && s->n_stages <= SPEC_STAGES);
    w->n_stages = (size_t)s->n_stages;
    if (!(w->stages = pointers_new(a, w->n_stages))) return -1;
    for (size_t i = 0; i < w->n_stages; i++) {
        Seqd__Stage *stage = message_new(a, &seqd__stage__descriptor);
        if (!stage ||
            fields_pack(stage_fields, s, &s->stages[i], a, &stage->n_fields, &stage->fields) < 0)
            return -1;
        w->stages[i] = stage;
    }
    return 0;
}

static Seqd__Label *label_pack(const struct job_spec *s, const struct spec_label *l,
                               struct arena *a)
{
    Seqd__Label *w = message_new(a, &seqd__label__descriptor);
    if (!w) return NULL;
    w->key = (char *)spec_text(s, l->key);
    w->value = (char *)spec_text(s, l->value);
    return w;
}

Seqd__Spec *wire_spec_pack(const struct job_spec *s, struct arena *a)
{
    assert(s->n_labels >= 0 && s->n_labels <= SPEC_LABELS);
    Seqd__Spec *w = message_new(a, &seqd__spec__descriptor);
    if (!w || fields_pack(spec_fields, s, s, a, &w->n_fields, &w->fields) < 0) return NULL;
    w->n_labels = (size_t)s->n_labels;
    w->labels = pointers_new(a, w->n_labels);
    w->input = source_pack(s, &s->input.source, a);
    w->config = (char *)s->model.config;
    if (!w->labels || !w->input) return NULL;
    for (size_t i = 0; i < w->n_labels; i++)
        if (!(w->labels[i] = label_pack(s, &s->labels[i], a))) return NULL;
    if (sources_pack(s, s->data.train, s->data.n_train, a, &w->n_train, &w->train) < 0 ||
        sources_pack(s, s->eval.data, s->eval.n_data, a, &w->n_eval, &w->eval) < 0 ||
        stages_pack(s, a, w) < 0)
        return NULL;
    return w;
}

static void fields_cut(const struct field *table, uint32_t abi, size_t *n, Seqd__Field **list)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (field_find(table, list[i]->path)->since <= abi) list[kept++] = list[i];
    *n = kept;
}

static void sources_cut(uint32_t abi, size_t n, Seqd__Source **list)
{
    for (size_t i = 0; i < n; i++)
        fields_cut(source_fields, abi, &list[i]->n_fields, list[i]->fields);
}

void wire_spec_cut(Seqd__Spec *w, uint32_t abi)
{
    fields_cut(spec_fields, abi, &w->n_fields, w->fields);
    sources_cut(abi, w->n_train, w->train);
    sources_cut(abi, w->n_eval, w->eval);
    sources_cut(abi, 1, &w->input);
    for (size_t i = 0; i < w->n_stages; i++)
        fields_cut(stage_fields, abi, &w->stages[i]->n_fields, w->stages[i]->fields);
}

static int sources_unpack(const char *field, size_t n, Seqd__Source **in, struct job_spec *s,
                          struct spec_source *out, int32_t *n_out, struct err *e)
{
    if (range_check((int64_t)n, 0, SPEC_SOURCES, field, e) < 0) return -1;
    *n_out = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        if (fields_unpack(source_fields, in[i]->n_fields, in[i]->fields, s, &out[i], e) < 0)
            return -1;
    return 0;
}

static int stages_unpack(const Seqd__Spec *w, struct job_spec *s, struct err *e)
{
    if (range_check((int64_t)w->n_stages, 0, SPEC_STAGES, "stages", e) < 0) return -1;
    s->n_stages = (int32_t)w->n_stages;
    for (size_t i = 0; i < w->n_stages; i++)
        if (fields_unpack(stage_fields, w->stages[i]->n_fields, w->stages[i]->fields, s,
                          &s->stages[i], e) < 0)
            return -1;
    return 0;
}

static int labels_unpack(const Seqd__Spec *w, struct job_spec *s, struct err *e)
{
    if (range_check((int64_t)w->n_labels, 0, SPEC_LABELS, "labels", e) < 0) return -1;
    s->n_labels = (int32_t)w->n_labels;
    for (size_t i = 0; i < w->n_labels; i++) {
        const Seqd__Label *l = w->labels[i];
        if (spec_intern(s, l->key, strlen(l->key), &s->labels[i].key) < 0 ||
            spec_intern(s, l->value, strlen(l->value), &s->labels[i].value) < 0)
            return err_field(e, ERR_TOO_LARGE, "labels", "the spec's strings exceed %d bytes",
                             SPEC_TEXT_SIZE);
    }
    return 0;
}

int wire_spec_unpack(const Seqd__Spec *w, struct arena *a, const struct job_spec **out,
                     struct err *e)
{
    if (!w) return err_field(e, ERR_INVALID, "spec", "the message has no job spec");
    struct job_spec *s = arena_alloc(a, sizeof *s);
    if (!s) return err_set(e, ERR_TOO_LARGE, "there is no memory for the message's job spec");
    s->text_used = 1;
    if (fields_unpack(spec_fields, w->n_fields, w->fields, s, s, e) < 0) return -1;
    if (labels_unpack(w, s, e) < 0) return -1;
    if (sources_unpack("data.train", w->n_train, w->train, s, s->data.train, &s->data.n_train, e) <
            0 ||
        sources_unpack("eval.data", w->n_eval, w->eval, s, s->eval.data, &s->eval.n_data, e) < 0 ||
        stages_unpack(w, s, e) < 0)
        return -1;
    if (w->input && fields_unpack(source_fields, w->input->n_fields, w->input->fields, s,
                                  &s->input.source, e) < 0)
        return -1;
    if (text_copy(s->model.config, sizeof s->model.config, w->config, "model.config", e) < 0)
        return -1;
    *out = s;
    return 0;
}
