/* adapter.c: writes adapter_config.json, and writes and reads the tensors of adapters. In files of
 * the package a module has the name that it has in the class of the model, which may be a base
 * class (family_base) or a wrapper (worker/family/wrapper.h). All of these names are read. */
#include "worker/hf/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/jwrite.h"
#include "worker/family/family.h"
#include "worker/hf/safetensors.h"
#include "worker/hf/weights.h"
#include "worker/program/adapt.h"

static const char config_file[] = "adapter_config.json";
static const char weights_file[] = "adapter_model.safetensors";

enum { CONFIG_SIZE = 65536 };

/* Stands before the names of tensors in an adapter of a wrapper. Their names after it do not have
 * family_base. */
#define WRAPPED_PREFIX ADAPTER_PREFIX "model.language_model."

/* ---- writing --------------------------------------------------------------------------------- */

/* Copies the name of a weight's module in a layer. Returns false if the weight has no module of its
 * own. */
static bool module_of(const struct weight *w, char out[sizeof w->name])
{
    const int n = prog_module_size(w);
    if (n > 0) snprintf(out, sizeof w->name, "%.*s", n, w->name);
    return n > 0;
}

/* Writes the name of each product of a program that has an adapter, as a part of the package's name
 * of the module. */
static void write_targets(struct jwrite *w, const struct program *p, const uint64_t *on)
{
    char module[sizeof p->weight->name];
    for (int i = 0; i < p->n_weights; i++)
        if (!p->weight[i].adapter && freeze_has(on, i) && module_of(&p->weight[i], module))
            jwrite_str(w, NULL, module);
}

/* Tells whether the package takes the module for one that target_modules names, because its name
 * ends with that of a product of the program that has an adapter. */
static bool is_taken(const struct program *p, const uint64_t *on, const char *module)
{
    char name[sizeof p->weight->name], end[sizeof name + 1];
    for (int i = 0; i < p->n_weights; i++) {
        if (!freeze_has(on, i) || !module_of(&p->weight[i], name)) continue;
        snprintf(end, sizeof end, ".%s", name);
        if (hf_ends_with(module, end)) return true;
    }
    return false;
}

/* Writes the names of the modules that have no adapter and that target_modules seems to name, or
 * null if there are none. */
static void write_excluded(struct jwrite *w, const struct model_shape *m, const struct family *f)
{
    int n = 0;
    for (int k = 0; k < f->n_kinds; k++) {
        const struct program *p = &f->layer[k];
        const uint64_t *on = m->adapter.on[k];
        char module[sizeof p->weight->name];
        for (int i = 0; i < p->n_weights; i++) {
            if (freeze_has(on, i) || !module_of(&p->weight[i], module)) continue;
            if (!is_taken(p, on, module)) continue;
            if (!n++) jwrite_array(w, "exclude_modules");
            jwrite_str(w, NULL, module);
        }
    }
    if (n)
        jwrite_end(w);
    else
        jwrite_null(w, "exclude_modules");
}

/* Writes a pattern of the modules of a wrapper's other half, whose names may end as those of the
 * text model do. */
static void write_half(struct jwrite *w, const struct model_shape *m)
{
    char text[512] = "(";
    size_t n = 1;
    for (const char *const *start = family_row(m)->passed; start && *start; start++) {
        if (n > 1) text[n++] = '|';
        for (const char *c = *start; *c; c++) {
            assert(n + 8 < sizeof text);
            if (*c == '.') text[n++] = '\\';
            text[n++] = *c;
        }
    }
    snprintf(text + n, sizeof text - n, ").*");
    jwrite_str(w, "exclude_modules", text);
}

/* Tells whether an earlier kind of layer has all products of kind k. */
static bool is_listed(const struct model_shape *m, const struct family *f, int k)
{
    for (int j = 0; j < k; j++) {
        bool same = !memcmp(m->adapter.on[j], m->adapter.on[k], sizeof m->adapter.on[j]);
        for (int i = 0; same && i < f->layer[k].n_weights; i++)
            same = i >= f->layer[j].n_weights ||
                   !strcmp(f->layer[j].weight[i].name, f->layer[k].weight[i].name);
        if (same) return true;
    }
    return false;
}

static bool is_transposed(const struct program *p, const uint64_t *on)
{
    for (int i = 0; i < p->n_weights; i++)
        if (freeze_has(on, i) && p->weight[i].transposed) return true;
    return false;
}

static void write_config(struct jwrite *w, const struct model_shape *m,
                         const struct adapter_base *base)
{
    struct model_shape plain = *m;
    plain.adapter.rank = plain.freeze.n_kinds = 0;
    struct family *f = family_new(&plain);
    const bool causal = family_row(m)->task == MODEL_CAUSAL_LM;
    bool turned = false;
    jwrite_object(w, NULL);
    jwrite_str(w, "peft_type", "LORA");
    /* For a causal model the package may load another class than the wrapper's. */
    if (causal && !base->wrapped) jwrite_str(w, "task_type", "CAUSAL_LM");
    if (base->name && *base->name)
        jwrite_str(w, "base_model_name_or_path", base->name);
    else
        jwrite_null(w, "base_model_name_or_path");
    jwrite_int(w, "r", m->adapter.rank);
    jwrite_double(w, "lora_alpha", m->adapter.alpha);
    jwrite_double(w, "lora_dropout", m->adapter.dropout);
    jwrite_bool(w, "use_rslora", m->adapter.rslora);
    jwrite_bool(w, "use_dora", false);
    jwrite_str(w, "bias", "none");
    jwrite_array(w, "target_modules");
    for (int k = 0; k < f->n_kinds; k++) {
        turned |= is_transposed(&f->layer[k], m->adapter.on[k]);
        if (!is_listed(m, f, k)) write_targets(w, &f->layer[k], m->adapter.on[k]);
    }
    jwrite_end(w);
    if (base->wrapped)
        write_half(w, m);
    else
        write_excluded(w, m, f);
    jwrite_bool(w, "fan_in_fan_out", turned);
    jwrite_bool(w, "init_lora_weights", true);
    jwrite_bool(w, "inference_mode", true);
    adapter_saved_write(w, m);
    jwrite_end(w);
    family_free(f);
}

static int save_config(const char *dir, const struct model_shape *m,
                       const struct adapter_base *base, struct err *e)
{
    char path[FILE_PATH_SIZE], *text = malloc(CONFIG_SIZE);
    struct jwrite w;
    if (!text) return err_set(e, ERR_IO, "out of memory for %s", config_file);
    jwrite_init(&w, text, CONFIG_SIZE);
    write_config(&w, m, base);
    const int64_t n = jwrite_finish(&w);
    int rc = n < 0 ? err_set(e, ERR_INTERNAL, "%s needs %zu bytes", config_file, w.len)
                   : file_join(path, e, "%s/%s", dir, config_file);
    if (!rc) rc = file_write(path, text, (size_t)n, e);
    free(text);
    return rc;
}

int adapter_save(const char *dir, const struct model_shape *m, const struct hf_flat *weights,
                 const struct adapter_base *base, struct st_digest *written, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct hf_flat flat = *weights;
    if (base->wrapped) flat.prefix = WRAPPED_PREFIX, flat.outer = ADAPTER_PREFIX, flat.bare = true;
    if (written) written->of_tensors = true;
    if (file_make_dir(dir, e) < 0 || save_config(dir, m, base, e) < 0) return -1;
    if (file_join(path, e, "%s/%s", dir, weights_file) < 0) return -1;
    return hf_write_flats(path, m, &flat, 1, written, e) < 0 ? -1 : file_sync_dir(dir, e);
}

/* ---- tensors --------------------------------------------------------------------------------- */

enum { NAMES_SIZE = 400 };

/* The tensors of an adapter, and the tensors of a file that have them. */
struct adapter_reading {
    struct st_file *own; /* owned */
    const struct st_file *f;
    const struct model_shape *m;
    int k;                           /* the index of the adapter */
    struct param *list;              /* owned: sorted by name */
    const struct st_tensor **stored; /* owned: NULL for a tensor that the file does not have */
    int n;
};

enum { NOT_THERE = -1, NOT_USED = -2 };

/* Finds a tensor of the file in the list by the name that it has in one of the model's classes.
 * Returns its index. Returns NOT_USED if it is of a head that the model does not compute, and
 * NOT_THERE if no tensor has the name. */
static int index_of(const struct adapter_reading *r, const char *stored)
{
    const struct family_row *row = family_row(r->m);
    const struct param *p;
    char name[ST_NAME_SIZE], whole[ST_NAME_SIZE + 32];
    if (!hf_starts_with(stored, ADAPTER_PREFIX)) return NOT_THERE;
    stored += sizeof ADAPTER_PREFIX - 1;
    snprintf(name, sizeof name, "%s", stored);
    if (row->rename) row->rename(stored, name, sizeof name);
    snprintf(whole, sizeof whole, "%s%s", family_base(r->m), name);
    p = hf_find_param(r->list, r->n, name);
    if (!p) p = hf_find_param(r->list, r->n, whole);
    if (!p) return adapter_saved_unused(r->m, name) ? NOT_USED : NOT_THERE;
    return (int)(p - r->list);
}

static int place(struct adapter_reading *r, const struct st_tensor *t, struct err *e)
{
    const int i = index_of(r, t->name);
    if (i == NOT_USED) return 0;
    if (i < 0 && !strstr(t->name, ".lora_"))
        return adapter_saved_unknown(st_path(r->f), t->name, e);
    if (i < 0 && hf_adapter_layer(t->name) >= r->m->n_layers)
        return err_set(e, ERR_INVALID,
                       "%s has the tensor %.120s, and the model has %d layers: give the model that "
                       "the adapter was trained on",
                       st_path(r->f), t->name, r->m->n_layers);
    if (i < 0)
        return err_field(
            e, ERR_INVALID, "adapter.targets",
            "%s has the tensor %.120s, of which the job's adapter.targets say nothing: "
            "name its module there, or train an adapter without it if it is no product of a layer",
            st_path(r->f), t->name);
    if (r->stored[i])
        return err_set(e, ERR_INVALID,
                       "%s: %.120s and %.120s are one tensor: save the adapter again",
                       st_path(r->f), r->stored[i]->name, t->name);
    const bool fits = hf_same_shape(t, &r->list[i]);
    if (!fits && r->list[i].saved) return adapter_saved_misfit(st_path(r->f), t, &r->list[i], e);
    if (!fits)
        return err_set(e, ERR_INVALID,
                       "%s: %.120s has %lld elements in %d dimensions, and the model's product "
                       "needs [%lld, %lld]: give an adapter of this model",
                       st_path(r->f), t->name, (long long)t->count, t->n_dims,
                       (long long)r->list[i].rows, (long long)r->list[i].cols);
    r->stored[i] = t;
    return 0;
}

/* Copies the name that a tensor's module has in its layer. */
static void copy_module(const char *name, char out[64])
{
    const char *end = strstr(name, ".lora_"), *start = name;
    for (const char *c = name; (c = strchr(c, '.')) && c < end;) {
        const size_t digits = strspn(++c, "0123456789");
        if (digits && c[digits] == '.') start = c + digits + 1;
    }
    snprintf(out, 64, "%.*s", (int)(end - start), start);
}

/* Adds a name in quotes to a list of names, unless it is there. Returns whether it was there. */
static bool add_name(char names[NAMES_SIZE], const char *module)
{
    char word[72];
    const size_t n = strlen(names);
    snprintf(word, sizeof word, "\"%s\"", module);
    if (strstr(names, word)) return true;
    if (n + strlen(word) + 3 < NAMES_SIZE)
        snprintf(names + n, NAMES_SIZE - n, "%s%s", n ? ", " : "", word);
    return false;
}

static int check_missing(const struct adapter_reading *r, struct err *e)
{
    char names[NAMES_SIZE] = "", here[NAMES_SIZE], module[64];
    int lacks = 0;
    while (lacks < r->n && r->stored[lacks]) lacks++;
    if (lacks == r->n) return 0;
    if (r->list[lacks].saved) return adapter_saved_missing(st_path(r->f), &r->list[lacks], e);
    for (int i = 0; i < r->n; i++) {
        if (!r->stored[i] || r->list[i].saved) continue;
        copy_module(r->list[i].name, module);
        add_name(names, module);
    }
    copy_module(r->list[lacks].name, module);
    memcpy(here, names, sizeof here);
    if (!*names)
        return err_set(e, ERR_INVALID, "%s has no tensors: fetch the file again", st_path(r->f));
    if (add_name(names, module))
        return err_set(e, ERR_INVALID,
                       "%s: " ADAPTER_PREFIX "%s is missing, and other tensors of %s are there: "
                       "fetch the file again, or give an adapter of this model",
                       st_path(r->f), r->list[lacks].name, module);
    return err_field(e, ERR_INVALID, "adapter.targets",
                     "%s has no adapter of %s, which the job's adapter.targets name: set "
                     "adapter.targets to [%s]",
                     st_path(r->f), module, here);
}

static const struct st_tensor *find_stored(void *arg, const struct param *p)
{
    const struct adapter_reading *r = arg;
    return r->stored[hf_find_param(r->list, r->n, p->name) - r->list];
}

static int find_all(struct adapter_reading *r, struct err *e)
{
    for (int i = 0; i < st_count(r->f); i++)
        if (place(r, st_at(r->f, i), e)) return -1;
    return check_missing(r, e);
}

/* Keeps only the tensors of adapter k. Returns their number. */
static int keep_of(struct param *list, int n, int k)
{
    int kept = 0;
    n = hf_of_adapter(list, n);
    for (int i = 0; i < n; i++)
        if (list[i].of_adapter == k) list[kept++] = list[i];
    return kept;
}

void adapter_close(struct adapter_reading *r)
{
    if (!r) return;
    free(r->stored);
    free(r->list);
    st_close(r->own);
    free(r);
}

static int open_tensors(struct adapter_reading *r, const char *path, struct err *e)
{
    if (!(r->own = st_open(path, e))) return -1;
    r->f = r->own;
    if (!(r->list = hf_sorted(r->m, &r->n, e))) return -1;
    r->n = keep_of(r->list, r->n, r->k);
    r->stored = calloc((size_t)r->n + 1, sizeof *r->stored);
    if (!r->stored) return err_set(e, ERR_IO, "out of memory for %s", path);
    return find_all(r, e);
}

static struct adapter_reading *open_at(const char *dir, const struct model_shape *m, int k,
                                       struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (adapter_check_at(dir, m, k, e)) return NULL;
    if (file_join(path, e, "%s/%s", dir, weights_file) < 0) return NULL;
    struct adapter_reading *r = calloc(1, sizeof *r);
    if (!r) {
        err_set(e, ERR_IO, "out of memory for %s", path);
        return NULL;
    }
    r->m = m;
    r->k = k;
    if (!open_tensors(r, path, e)) return r;
    adapter_close(r);
    return NULL;
}

struct adapter_reading *adapter_open(const char *dir, const struct model_shape *m, struct err *e)
{
    return open_at(dir, m, 0, e);
}

const struct st_tensor *adapter_find(const struct adapter_reading *r, const struct param *p,
                                     const struct st_file **f)
{
    const struct param *own = hf_find_param(r->list, r->n, p->name);
    *f = r->f;
    return own ? r->stored[own - r->list] : NULL;
}

int adapter_load(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                 struct err *e)
{
    return adapter_load_at(dir, m, 0, to, e);
}

int adapter_load_at(const char *dir, const struct model_shape *m, int k, const struct hf_sink *to,
                    struct err *e)
{
    int n;
    struct adapter_reading *r = open_at(dir, m, k, e);
    struct param *list = r ? hf_list(m, &n, e) : NULL;
    const struct hf_found from = {r ? r->f : NULL, find_stored, r};
    if (list) n = keep_of(list, n, k);
    const int rc = list ? hf_read_found(&from, list, n, to, e) : -1;
    free(list);
    adapter_close(r);
    return rc;
}
