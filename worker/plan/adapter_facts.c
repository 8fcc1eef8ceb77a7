/* adapter_facts.c: reads the text member by member, and compares each with the job's field. */
#include "worker/plan/adapter_facts.h"

#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/room.h"
#include "worker/plan/check.h"
#include "worker/plan/sentence.h"

/* ---- reading --------------------------------------------------------------------------------- */

static int read_number(struct jread *j, double *out)
{
    return jread_next(j) == J_NUMBER ? jread_double(j, out) : -1;
}

/* Reads a list of at most `most` names. */
static int read_names(struct jread *j, char (*name)[SPEC_TARGET_SIZE], int most, int *n)
{
    enum jtok t = jread_next(j);
    if (t != J_ARRAY) return -1;
    for (*n = 0; (t = jread_next(j)) == J_STRING; ++*n)
        if (*n == most || jread_copy(j, name[*n], SPEC_TARGET_SIZE) || !*name[*n]) return -1;
    return t == J_ARRAY_END ? 0 : -1;
}

static int read_member(struct jread *j, struct adapter_facts *out)
{
    if (jread_is(j, "rank")) return jread_next(j) == J_NUMBER ? jread_int(j, &out->rank) : -1;
    if (jread_is(j, "alpha")) return read_number(j, &out->alpha);
    if (jread_is(j, "dropout")) return read_number(j, &out->dropout);
    if (jread_is(j, "layers")) return jread_next(j) == J_NUMBER ? jread_int(j, &out->layers) : -1;
    if (jread_is(j, "targets")) return read_names(j, out->target, SPEC_TARGETS, &out->n);
    if (jread_is(j, "modules_to_save")) return read_names(j, out->saved, SPEC_SAVED, &out->n_saved);
    if (!jread_is(j, "rslora")) return jread_skip(j); /* a newer node may tell more */
    const enum jtok t = jread_next(j);
    out->rslora = t == J_TRUE;
    return t == J_TRUE || t == J_FALSE ? 0 : -1;
}

/* Checks that a job can have the value. */
static int check(const char *path, const char *key, double v, struct err *e)
{
    const struct field *f = spec_field(path);
    char number[32], min[32], max[32];
    if (field_allows(f, v)) return 0;
    return err_field(e, ERR_UNSUPPORTED, "model.adapter",
                     "model.adapter has %s %s, and %s lies between %s and %s: train another "
                     "adapter",
                     key, jwrite_number(number, v), path, jwrite_number(min, f->min),
                     jwrite_number(max, f->max));
}

int adapter_facts_read(const char *json, size_t size, struct adapter_facts *out, struct err *e)
{
    struct jread j;
    enum jtok t = J_ERROR;
    *out = (struct adapter_facts){0};
    jread_init(&j, json, size);
    if (jread_next(&j) == J_OBJECT)
        while ((t = jread_next(&j)) == J_KEY)
            if (read_member(&j, out)) break;
    if (t != J_OBJECT_END || jread_next(&j) != J_END || out->rank < 1 || !(out->alpha > 0) ||
        !(out->dropout >= 0 && out->dropout <= 1) || out->layers < 0 || !out->n)
        return err_set(e, ERR_PEER, "the description of an adapter is none: upgrade seqw");
    return check("adapter.rank", "rank", (double)out->rank, e) ||
                   check("adapter.alpha", "alpha", out->alpha, e)
               ? -1
               : 0;
}

static void write_names(struct jwrite *w, const char *key, const char (*name)[SPEC_TARGET_SIZE],
                        int n)
{
    jwrite_array(w, key);
    for (int i = 0; i < n; i++) jwrite_str(w, NULL, name[i]);
    jwrite_end(w);
}

int64_t adapter_facts_write(const struct adapter_facts *f, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "rank", f->rank);
    jwrite_double(&w, "alpha", f->alpha);
    jwrite_bool(&w, "rslora", f->rslora);
    jwrite_double(&w, "dropout", f->dropout);
    jwrite_int(&w, "layers", f->layers);
    write_names(&w, "targets", f->target, f->n);
    if (f->n_saved) write_names(&w, "modules_to_save", f->saved, f->n_saved);
    jwrite_end(&w);
    return jwrite_finish(&w);
}

/* ---- the job's fields ------------------------------------------------------------------------ */

static int refuse(const char *field, const char *is, const char *of, struct err *e)
{
    return err_field(e, ERR_INVALID, field,
                     "%s is %s, and that of model.adapter is %s: leave %s out, which then has the "
                     "value of the directory",
                     field, is, of, field);
}

static int refuse_number(const char *field, double is, double of, struct err *e)
{
    char a[32], b[32];
    return refuse(field, jwrite_number(a, is), jwrite_number(b, of), e);
}

int adapter_facts_named(const struct job_spec *s)
{
    const bool saved = s->adapter.said & ADAPTER_SAID_SAVED || s->adapter.modules_to_save[0];
    return (s->adapter.targets[0] ? ADAPTER_NAMES_TARGETS : 0) | (saved ? ADAPTER_NAMES_SAVED : 0);
}

static int fill_names(struct job_spec *s, const char (*name)[SPEC_TARGET_SIZE], int n, spec_ref *to,
                      struct err *e)
{
    for (int i = 0; i < n; i++)
        if (spec_intern(s, name[i], strlen(name[i]), &to[i]))
            return err_field(e, ERR_TOO_LARGE, "model.adapter",
                             "the strings of the job and the modules of model.adapter exceed %d "
                             "bytes together: make the strings shorter",
                             SPEC_TEXT_SIZE);
    return 0;
}

/* Fills the lists that the job does not name. */
static int fill_lists(struct job_spec *s, const struct adapter_facts *f, int named, struct err *e)
{
    if (!(named & ADAPTER_NAMES_TARGETS) && fill_names(s, f->target, f->n, s->adapter.targets, e))
        return -1;
    if (named & ADAPTER_NAMES_SAVED) return 0;
    return fill_names(s, f->saved, f->n_saved, s->adapter.modules_to_save, e);
}

static int fill_dropout(struct job_spec *s, const struct adapter_facts *f, struct err *e)
{
    const bool said = s->adapter.said & ADAPTER_SAID_DROPOUT || s->adapter.dropout > 0;
    char number[32];
    if (s->kind != JOB_TRAIN || said) return 0;
    if (!field_allows(spec_field("adapter.dropout"), f->dropout))
        return err_field(e, ERR_INVALID, "adapter.dropout",
                         "model.adapter was trained with dropout %s, which would drop all: set "
                         "adapter.dropout",
                         jwrite_number(number, f->dropout));
    s->adapter.dropout = f->dropout;
    return 0;
}

int adapter_facts_fill(struct job_spec *s, const struct adapter_facts *f, struct err *e)
{
    const int said = s->adapter.said;
    if (said & ADAPTER_SAID_TYPE && s->adapter.type == ADAPTER_NONE)
        return refuse("adapter.type", "\"none\"", "\"lora\"", e);
    if (s->adapter.rank && s->adapter.rank != f->rank)
        return refuse_number("adapter.rank", (double)s->adapter.rank, (double)f->rank, e);
    if (s->adapter.alpha > 0 && s->adapter.alpha != f->alpha)
        return refuse_number("adapter.alpha", s->adapter.alpha, f->alpha, e);
    if ((said & ADAPTER_SAID_RSLORA || s->adapter.rslora) && s->adapter.rslora != f->rslora)
        return refuse("adapter.rslora", f->rslora ? "false" : "true", f->rslora ? "true" : "false",
                      e);
    s->adapter.type = ADAPTER_LORA;
    s->adapter.rank = f->rank;
    s->adapter.alpha = f->alpha;
    s->adapter.rslora = f->rslora;
    return fill_dropout(s, f, e) || fill_lists(s, f, adapter_facts_named(s), e) ? -1 : 0;
}

/* Writes names into a list for an error, as many as have room. */
static char *list(const char (*name)[SPEC_TARGET_SIZE], int n_names, char *out, size_t size)
{
    size_t n = 0;
    snprintf(out, size, "none");
    for (int i = 0; i < n_names && n + SPEC_TARGET_SIZE + 8 < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", name[i]);
    return out;
}

/* Puts another fix in place of an error's, which follows the last colon. */
static void set_fix(struct err *e, const char *fix)
{
    size_t n = strlen(e->text);
    for (const char *c = e->text; (c = strstr(c, ": ")); c += 2) n = (size_t)(c - e->text);
    snprintf(e->text + n, sizeof e->text - n, ": %s", fix);
}

/* Makes an error about adapter.modules_to_save one about the directory, from which they are. An
 * error about the whole list is that the directory has modules at all. */
static void blame_saved(struct err *e)
{
    set_fix(e, strcmp(e->field, "adapter.modules_to_save")
                   ? "save the adapter again without it (peft: save_embedding_layers=False), or "
                     "train one without it"
                   : "name a merged model in model.path, and leave model.adapter out");
    err_prefix(e, "model.adapter, the whole modules of which are the job's "
                  "adapter.modules_to_save");
}

void adapter_facts_blame(const struct job_spec *s, const struct adapter_facts *f, int named,
                         struct err *e)
{
    static const struct {
        const char *field;
        int named;
    } lists[] = {{"adapter.targets", ADAPTER_NAMES_TARGETS},
                 {"adapter.modules_to_save", ADAPTER_NAMES_SAVED}};
    const size_t n = strlen(e->text);
    if (!strcmp(e->field, "adapter.dropout") && !(s->adapter.said & ADAPTER_SAID_DROPOUT) &&
        f->dropout > 0)
        snprintf(e->text + n, sizeof e->text - n,
                 "; it is the dropout of model.adapter: adapter.dropout 0 trains without");
    for (int i = 0; i < 2; i++) {
        if (named & lists[i].named || strncmp(e->field, lists[i].field, strlen(lists[i].field)))
            continue;
        if (i)
            blame_saved(e);
        else
            err_prefix(e, "model.adapter, the products of which are the job's adapter.targets");
        snprintf(e->field, sizeof e->field, "model.adapter");
    }
}

void adapter_facts_listed(const char *field, struct err *e)
{
    static const char one[] = "model.adapter";
    char text[sizeof e->text];
    struct sentence w = sentence_in(text, sizeof text);
    const char *from = e->text, *at = from;
    while ((at = strstr(at, one))) {
        at += sizeof one - 1;
        if (*at == 's') continue;
        sentence_add(&w, "%.*s%s", (int)(at - from) - (int)sizeof one + 1, from, field);
        from = at;
    }
    sentence_add(&w, "%s", from);
    memcpy(e->text, text, sizeof text);
    err_about(e, field);
}

void adapter_facts_changed(const char *field, struct err *e)
{
    if (!strncmp(e->field, "adapter.", 8))
        set_fix(e, "the directory has changed since the job was submitted: submit the job again");
    adapter_facts_listed(field, e);
}

static int refuse_list(const char *field, const char *things, const char *names, struct err *e)
{
    return err_field(e, ERR_INVALID, field,
                     "%s names other %s than model.adapter has, which are %s: leave %s out", field,
                     things, names, field);
}

int adapter_facts_check(const struct job_spec *s, const struct adapter_facts *f, struct err *e)
{
    struct job_spec *own = room_take(sizeof *own);
    char names[400];
    *own = *s;
    memset(own->adapter.targets, 0, sizeof own->adapter.targets);
    memset(own->adapter.modules_to_save, 0, sizeof own->adapter.modules_to_save);
    const struct shape_adapter *is = &s->model.shape.adapter, *of = &own->model.shape.adapter;
    int rc = fill_lists(own, f, 0, e);
    if (!rc && !f->n_saved) own->optim.lr_saved = 0;
    if (!rc && (rc = family_check(own, e))) adapter_facts_blame(own, f, 0, e);
    if (!rc && memcmp(of->on, is->on, sizeof of->on))
        rc = refuse_list("adapter.targets", "products", list(f->target, f->n, names, sizeof names),
                         e);
    if (!rc && of->saves != is->saves)
        rc = refuse_list("adapter.modules_to_save", "modules",
                         list(f->saved, f->n_saved, names, sizeof names), e);
    room_give(own);
    return rc;
}

int adapter_facts_check_layers(const struct job_spec *s, const struct adapter_facts *f,
                               struct err *e)
{
    if (f->layers <= s->model.shape.n_layers) return 0;
    return err_field(
        e, ERR_INVALID, "model.adapter",
        "model.adapter has an adapter of layer %lld, counted from 0, and the model has "
        "%d layers: give the model that the adapter was trained on",
        (long long)f->layers - 1, s->model.shape.n_layers);
}
