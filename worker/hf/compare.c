/* compare.c: compares the tensors of files with the tensors of a shape. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/faults.h"
#include "worker/family/family.h"
#include "worker/hf/mxfp4.h"
#include "worker/hf/weights.h"

/* Collects complaints about tensors, either as one text or as separate faults. The text has
 * the first few complaints and the number of all complaints. */
struct complaint {
    struct faults *faults;      /* if it is NULL, complaints are added to text */
    const struct st_file *gguf; /* the GGUF file, or NULL if the files are safetensors */
    char text[384];
    int n;
};

/* Returns a tensor's name in its file. */
static const char *named(const struct complaint *c, const char *name, char room[GGUF_NAME_SIZE])
{
    return c->gguf ? st_named(c->gguf, name, room) : name;
}

static const char
    *const of_two = "config.json and weights are of two models: fetch both again",
           *const of_gguf = "its keys and its tensors do not fit: fetch the file again";

/* Adds a complaint. The parameters `file` and `fix` are used only for faults: `file` is the
 * file that has the error, and `fix` is the remedy. */
static void complain(struct complaint *c, const char *file, const char *fix, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void complain(struct complaint *c, const char *file, const char *fix, const char *fmt, ...)
{
    char what[256];
    size_t n = strlen(c->text);
    struct err e;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (c->faults) { /* shorten a long path at its start, so that the name of the file remains
                      * complete */
        const size_t size = strlen(file), cut = size > 160 ? size - 160 : 0;
        err_set(&e, ERR_INVALID, "%s%s: %s: %s", cut ? "..." : "", file + cut, what, fix);
        faults_add(c->faults, &e);
    } else if (c->n < 6) {
        snprintf(c->text + n, sizeof c->text - n, "%s%s", c->n ? ", " : "", what);
    }
    c->n++;
}

/* Writes the dimensions that a tensor has in files. Returns their number. */
static int dims_of(const struct param *p, int64_t dims[ST_DIMS])
{
    if (!p->n_dims) {
        dims[0] = p->rows;
        dims[1] = p->cols;
        return p->cols ? 2 : 1;
    }
    memcpy(dims, p->dims, sizeof p->dims);
    return p->n_dims;
}

bool hf_same_shape(const struct st_tensor *t, const struct param *p)
{
    int64_t dims[ST_DIMS];
    const int n = dims_of(p, dims);
    return t->n_dims == n && !memcmp(t->dims, dims, (size_t)n * sizeof *dims);
}

static void dims_text(const int64_t *dims, int n_dims, char out[64])
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < n_dims && n < 40; i++)
        n += (size_t)snprintf(out + n, 64 - n, "%s%lld", i ? "," : "", (long long)dims[i]);
}

/* Returns the path for errors about a tensor that no file has. */
static const char *index_path(const struct hf_weights *w)
{
    return w->n_shards == 1 && w->file[0] && !*w->shard_name[0] ? st_path(w->file[0]) : w->path;
}

static void missing(const struct hf_weights *w, struct complaint *c, const char *name)
{
    char room[GGUF_NAME_SIZE];
    const struct hf_entry *x = hf_entry_of(w, name);
    if (x && *w->shard_name[x->shard])
        complain(c, w->path, "fetch both again", "%s is not in %s, where the index has it", name,
                 w->shard_name[x->shard]);
    else
        complain(c, index_path(w),
                 c->gguf ? of_gguf : "fetch the file that has it, or mend config.json",
                 "%s is missing", named(c, name, room));
}

static int compare_params(const struct hf_weights *w, struct complaint *c, struct err *e)
{
    int n;
    struct st_file *f;
    struct param *params = hf_list(w->m, &n, e);
    if (params) n = hf_of_base(params, n);
    for (int i = 0; params && i < n; i++) {
        if (hf_unreadable(w, params[i].name)) continue;
        const struct st_tensor *t = hf_lookup(w, params[i].name, &f);
        char have[64], want[64], room[GGUF_NAME_SIZE];
        int64_t dims[ST_DIMS];
        struct mxfp4 x;
        if (!t) {
            if (!mxfp4_find(w, &params[i], &x))
                missing(w, c, params[i].name);
            else if (!mxfp4_fits(&x, &params[i]))
                complain(c, st_path(x.block_file), of_two, "%s has another shape or type",
                         x.blocks->name);
            continue;
        }
        if (!st_dtype_reads(t->dtype))
            complain(c, st_path(f), "convert it to F32, BF16 or F16", "%s has element type %s",
                     params[i].name, st_dtype_name(t->dtype));
        if (hf_same_shape(t, &params[i])) continue;
        dims_text(t->dims, t->n_dims, have);
        dims_text(dims, dims_of(&params[i], dims), want);
        complain(c, st_path(f), c->gguf ? of_gguf : of_two, "%s is [%s], want [%s]",
                 named(c, params[i].name, room), have, want);
    }
    free(params);
    return params ? 0 : -1;
}

bool hf_skipped(const struct model_shape *m, const char *name)
{
    const struct family_row *row = family_row(m);
    if (hf_ends_with(name, ".rotary_emb.inv_freq")) return true;
    if (m->tied && !strcmp(name, family_head(m))) return true;
    for (const char *const *b = row->passed; b && *b; b++)
        if (hf_starts_with(name, *b)) return true;
    for (const char *const *b = row->beside; b && *b; b++)
        if (**b == '.' ? hf_ends_with(name, *b) : hf_starts_with(name, *b)) return true;
    return false;
}

/* Returns true if `name` is the name of the MXFP4 blocks or scales of one of the n sorted
 * params. */
static bool packed(const struct hf_weights *w, const char *name, const struct param *params, int n)
{
    char whole[sizeof((struct param *)0)->name];
    struct st_file *f;
    if (!mxfp4_part(name, whole, sizeof whole) || hf_lookup(w, whole, &f)) return false;
    const struct param *p = hf_find_param(params, n, whole);
    return p && p->stack;
}

static int compare_unexpected(const struct hf_weights *w, const struct model_shape *m,
                              struct complaint *c, struct err *e)
{
    int n;
    struct param *params = hf_sorted_whole(m, &n, e); /* this list includes the tensors of a
                                                       * head even if the model has no head */
    if (!params) return -1;
    for (int i = 0; i < w->n; i++) {
        const char *name = w->entry[i].name;
        if (i && !strcmp(name, w->entry[i - 1].name))
            complain(c, w->path, "fetch it again", "%s is named twice", w->entry[i].stored);
        if (hf_find_param(params, n, name) || hf_skipped(m, name) || packed(w, name, params, n))
            continue;
        const struct st_file *f = w->file[w->entry[i].shard];
        char room[GGUF_NAME_SIZE];
        complain(c, f ? st_path(f) : w->path,
                 c->gguf ? "no key of the file says anything of it: give the published directory "
                           "with its safetensors"
                         : "config.json says nothing of it: fetch both again",
                 "%s is unexpected", named(c, w->entry[i].stored, room));
    }
    free(params);
    return 0;
}

int hf_compare(const struct hf_weights *w, const char *dir, const struct model_shape *m,
               struct err *e)
{
    struct complaint c = {.faults = w->faults};
    if (w->n_shards && w->file[0] && st_arch(w->file[0])) c.gguf = w->file[0];
    if (compare_params(w, &c, e) < 0 || compare_unexpected(w, m, &c, e) < 0) return -1;
    if (!c.n || c.faults) return 0;
    if (c.gguf)
        return err_set(e, ERR_INVALID,
                       "%s: its tensors do not fit its keys: %s%s: fetch the file "
                       "again",
                       dir, c.text, c.n > 6 ? ", ..." : "");
    if (c.n <= 6)
        return err_set(e, ERR_INVALID, "%s does not fit its config.json: %s: fetch both again", dir,
                       c.text);
    return err_set(e, ERR_INVALID,
                   "%s does not fit its config.json in %d tensors: %s, ...: fetch both again", dir,
                   c.n, c.text);
}

/* Checks that the file has every tensor of the list, with the shape that the list gives. The
 * name of a tensor in the file is the prefix followed by the tensor's name in the list. */
int hf_compare_flat(const struct st_file *f, const struct param *list, int n, const char *prefix,
                    struct err *e)
{
    struct complaint c = {0};
    for (int i = 0; i < n; i++) {
        char name[ST_NAME_SIZE];
        snprintf(name, sizeof name, "%s%s", prefix, list[i].name);
        const struct st_tensor *t = st_find(f, name);
        if (!t)
            complain(&c, "", "", "%s is missing", name);
        else if (!hf_same_shape(t, &list[i]))
            complain(&c, "", "", "%s has another shape", name);
    }
    return c.n ? err_set(e, ERR_INVALID, "%s: %s", st_path(f), c.text) : 0;
}
