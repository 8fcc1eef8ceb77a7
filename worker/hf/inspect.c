/* inspect.c: reads config.json, opens all shards, compares the tensors in the shards with the
 * tensors of the model, and stores each fault with its remedy. */
#include "worker/hf/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "worker/family/family.h"
#include "worker/gguf/gguf.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/files.h"
#include "worker/hf/weights.h"

/* Reads only model_type, because seqd may not know the family of the model. */
static void read_type(const char *dir, struct hf_summary *s)
{
    struct model_text t;
    struct err e;
    struct jread j;
    if (model_file_read(dir, "config.json", 4 << 20, &t, &e) < 0 || !t.text) return;
    jread_init(&j, t.text, t.size);
    jread_next(&j);
    while (jread_next(&j) == J_KEY) {
        if (jread_is(&j, "model_type") && jread_next(&j) == J_STRING) {
            if (jread_copy(&j, s->model_type, sizeof s->model_type) < 0) *s->model_type = 0;
            break;
        }
        if (jread_skip(&j) < 0) break;
    }
    model_file_free(&t);
}

static void add_dtype(struct hf_summary *s, enum st_dtype d)
{
    const char *name = st_dtype_name(d);
    const size_t n = strlen(s->dtypes);
    char list[40], word[12];
    snprintf(list, sizeof list, ", %s,", s->dtypes);
    snprintf(word, sizeof word, " %s,", name);
    if (strstr(list, word)) return;
    snprintf(s->dtypes + n, sizeof s->dtypes - n, "%s%s", n ? ", " : "", name);
}

static void add_sizes(struct hf_summary *s, const struct hf_weights *w)
{
    for (int i = 0; i < w->n_shards; i++)
        for (int k = 0; w->file[i] && k < st_count(w->file[i]); k++) {
            const struct st_tensor *t = st_at(w->file[i], k);
            s->weights_size += t->size;
            if (t->n_dims > 1) add_dtype(s, t->dtype);
        }
}

static void count_params(struct hf_summary *s, struct faults *f)
{
    struct err e;
    int n;
    struct param *p = hf_list(&s->shape, &n, &e);
    if (!p) faults_add(f, &e);
    for (int i = 0; p && i < n; i++) s->n_params += p[i].count;
    free(p);
}

/* Adds the remedy to each fault of a broken file. */
static void advise(struct faults *f)
{
    for (int i = 0; i < faults_kept(f); i++) {
        struct err *e = &f->fault[i];
        const size_t n = strlen(e->text);
        static const char fix[] = ": fetch the file again";
        if ((e->code == ERR_CORRUPT || e->code == ERR_NOT_FOUND) && !hf_ends_with(e->text, fix))
            snprintf(e->text + n, sizeof e->text - n, "%s", fix);
    }
}

/* Compares all tensors. The tensors of the head are compared only if the directory has them. */
static int compare(const struct hf_weights *w, const char *dir, struct model_shape *m,
                   struct err *e)
{
    bool headless = false;
    if (hf_find_head(w, &headless, e)) return -1;
    m->headless = m->no_head = headless;
    return hf_compare(w, dir, m, e);
}

static bool reads_all(const struct hf_weights *w)
{
    for (int i = 0; i < w->n_shards; i++)
        if (!w->file[i]) return false;
    return true;
}

/* Adds the faults of the weights to f. They are collected separately from the faults of
 * config.json, so that the first fault of the weights is known even if f is full. */
static void look_at_weights(const char *dir, struct hf_summary *s, struct faults *f)
{
    struct err e = {0};
    struct faults *own = calloc(1, sizeof *own);
    if (!own) {
        err_set(&s->weights_fault, ERR_IO, "out of memory for the faults of %.200s", dir);
        faults_add(f, &s->weights_fault);
        return;
    }
    struct hf_weights *w = hf_weights_check(dir, s->known ? &s->shape : NULL, own, &e);
    advise(own);
    if (own->n && (!w || !reads_all(w))) s->weights_fault = own->fault[0];
    if (w) add_sizes(s, w);
    if (w && s->known && compare(w, dir, &s->shape, &e)) faults_add(own, &e);
    if (w) hf_weights_close(w);
    for (int i = 0; i < faults_kept(own); i++) faults_add(f, &own->fault[i]);
    f->n += own->n - faults_kept(own);
    free(own);
}

static bool is_told(const struct faults *f, const struct err *e)
{
    for (int i = 0; i < faults_kept(f); i++)
        if (!strcmp(f->fault[i].text, e->text)) return true;
    return false;
}

static void look_at_ends(const char *dir, struct hf_summary *s, struct faults *f)
{
    struct err e = {0};
    s->ends_known = hf_check_ends(dir, &s->ends, &e) == 0;
    /* the fault may have been added when config.json was read */
    if (!s->ends_known && !is_told(f, &e)) faults_add(f, &e);
    for (int i = 0; s->known && i < s->ends.n; i++) {
        if (s->ends.id[i] < s->shape.vocab) continue;
        hf_unknown_end(&s->ends, i, s->shape.vocab, &e);
        err_prefix(&e, "%.200s", dir);
        faults_add(f, &e);
    }
}

/* Looks for the two faults that make all texts unreadable: a path that does not exist, and a fault
 * in the header of a GGUF file. */
static bool readable(const char *dir, bool *gguf, struct err *e)
{
    char path[FILE_PATH_SIZE];
    const int found = model_file_there(dir, e) < 0 ? -1 : model_file_gguf(dir, path, e);
    struct gguf *g = found > 0 ? gguf_open(path, e) : NULL;
    *gguf = g;
    gguf_close(g);
    return found >= 0 && (g || !found);
}

static void inspect(const char *dir, struct hf_summary *s, struct faults *f)
{
    const int before = f->n;
    struct err e = {0};
    bool gguf;
    *s = (struct hf_summary){0};
    s->unreadable = !readable(dir, &gguf, &e);
    if (s->unreadable) {
        s->weights_fault = s->tokenizer_fault = e;
        faults_add(f, &e);
        return;
    }
    read_type(dir, s);
    s->known = config_check(dir, &s->shape, f) == 0;
    if (s->known) snprintf(s->family, sizeof s->family, "%s", family_row(&s->shape)->name);
    /* The names in a GGUF file can be converted only if its sizes are known, and an adapter's
     * directory has no weights of a model. */
    if (s->known || !(gguf || model_file_is_adapter(dir)))
        look_at_weights(dir, s, f);
    else if (before < faults_kept(f))
        s->weights_fault = f->fault[before];
    if (s->known) count_params(s, f);
    s->loads = f->n == before;
    look_at_ends(dir, s, f);
    if (hf_tokenizer_of(dir, &s->tokenizer, &s->tokenizer_fault))
        faults_add(f, &s->tokenizer_fault);
}

void hf_inspect(const char *dir, struct hf_summary *s, struct faults *f)
{
    struct gguf *const kept = model_file_keep(dir);
    inspect(dir, s, f);
    model_file_leave(kept);
}
