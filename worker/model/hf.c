/* Weights of a model directory; its config.json is hf_config.c's. */
#include "worker/model/hf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "worker/model/safetensors.h"
#include "worker/model/tokenizer.h"

enum { MAX_SHARDS = 1024 };

/* Where the directory says each tensor is: weight_map, or the one file's own list. */
struct entry {
    char name[ST_NAME_SIZE];
    int shard;
};

struct weights {
    struct st_file *file[MAX_SHARDS]; /* owned */
    char shard_name[MAX_SHARDS][96];
    int n_shards;
    struct entry *entry; /* owned; ascending by name once opened */
    int n, room;
};

/* ---- finding the files ---------------------------------------------------------------------- */

static struct entry *add_entry(struct weights *w, const char *path, struct err *e)
{
    if (w->n == w->room) {
        int room = w->room ? 2 * w->room : 64;
        struct entry *more = room > 2 * ST_TENSORS ? NULL
                                                   : realloc(w->entry, (size_t)room * sizeof *more);
        if (!more) {
            err_set(e, ERR_TOO_LARGE, "%s names too many tensors", path);
            return NULL;
        }
        w->entry = more;
        w->room = room;
    }
    return &w->entry[w->n++];
}

static int open_single(struct weights *w, const char *path, struct err *e)
{
    if (!(w->file[0] = st_open(path, e))) return -1;
    w->n_shards = 1;
    for (int i = 0; i < st_count(w->file[0]); i++) {
        struct entry *x = add_entry(w, path, e);
        if (!x) return -1;
        snprintf(x->name, sizeof x->name, "%s", st_at(w->file[0], i)->name);
        x->shard = 0;
    }
    return 0;
}

/* The number of the shard whose file name was just read. */
static int shard_index(struct weights *w, struct jread *j, const char *path, struct err *e)
{
    char name[96];
    if (jread_copy(j, name, sizeof name) < 0 || !name[0] || name[0] == '.' || strchr(name, '/'))
        return err_set(e, ERR_CORRUPT, "%s: a shard's name is not a plain file name", path);
    for (int i = w->n_shards - 1; i >= 0; i--) /* neighbours share a shard */
        if (!strcmp(w->shard_name[i], name)) return i;
    if (w->n_shards == MAX_SHARDS)
        return err_set(e, ERR_TOO_LARGE, "%s names more than %d shards", path, MAX_SHARDS);
    snprintf(w->shard_name[w->n_shards], sizeof name, "%s", name);
    return w->n_shards++;
}

static int parse_weight_map(struct weights *w, struct jread *j, const char *path, struct err *e)
{
    enum jtok t;
    if (jread_next(j) != J_OBJECT)
        return err_set(e, ERR_CORRUPT, "%s: weight_map is no object", path);
    while ((t = jread_next(j)) == J_KEY) {
        struct entry *x = add_entry(w, path, e);
        if (!x) return -1;
        if (jread_copy(j, x->name, sizeof x->name) < 0)
            return err_set(e, ERR_TOO_LARGE, "%s: a tensor's name is too long", path);
        if (jread_next(j) != J_STRING)
            return err_set(e, ERR_CORRUPT, "%s: the file of %s is not a string", path, x->name);
        if ((x->shard = shard_index(w, j, path, e)) < 0) return -1;
    }
    return t == J_OBJECT_END ? 0 : err_set(e, ERR_CORRUPT, "%s: %s", path, j->err.text);
}

static int parse_index(struct weights *w, const char *text, size_t size, const char *path,
                       struct err *e)
{
    struct jread j;
    enum jtok t;
    bool found = false;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return err_set(e, ERR_CORRUPT, "%s is not a JSON object", path);
    while ((t = jread_next(&j)) == J_KEY) {
        if (jread_is(&j, "weight_map")) {
            if (found) return err_set(e, ERR_CORRUPT, "%s: weight_map occurs twice", path);
            found = true;
            if (parse_weight_map(w, &j, path, e) < 0) return -1;
        } else if (jread_skip(&j) < 0) {
            break;
        }
    }
    if (j.err.code || t != J_OBJECT_END || jread_next(&j) != J_END)
        return err_set(e, ERR_CORRUPT, "%s: %s", path, j.err.text);
    return found ? 0 : err_set(e, ERR_CORRUPT, "%s has no weight_map", path);
}

static int open_sharded(struct weights *w, const char *dir, const char *index, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size;
    char *text = file_read(index, 64 << 20, &size, e);
    if (!text) return -1;
    int rc = parse_index(w, text, size, index, e);
    free(text);
    for (int i = 0; rc == 0 && i < w->n_shards; i++) {
        rc = file_join(path, e, "%s/%s", dir, w->shard_name[i]);
        if (rc == 0 && !(w->file[i] = st_open(path, e))) rc = -1;
    }
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void weights_fini(struct weights *w)
{
    for (int i = 0; i < w->n_shards; i++) st_close(w->file[i]);
    free(w->entry);
    free(w);
}

/* transformers' own order: one file if it is there, else the index. */
static struct weights *weights_open(const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE], index[FILE_PATH_SIZE];
    int rc = -1;
    struct weights *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    if (file_join(path, e, "%s/model.safetensors", dir) == 0 &&
        file_join(index, e, "%s/model.safetensors.index.json", dir) == 0) {
        if (file_exists(path))
            rc = open_single(w, path, e);
        else if (file_exists(index))
            rc = open_sharded(w, dir, index, e);
        else
            err_set(e, ERR_NOT_FOUND, "%s has no model.safetensors and no index of shards", dir);
    }
    if (rc < 0) {
        weights_fini(w);
        return NULL;
    }
    if (w->n) qsort(w->entry, (size_t)w->n, sizeof *w->entry, by_name);
    return w;
}

/* ---- comparing with the shape ---------------------------------------------------------------- */

/* Collects what is wrong: the first few by name, all by number. */
struct complaint {
    char text[384];
    int n;
};

static void complain(struct complaint *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void complain(struct complaint *c, const char *fmt, ...)
{
    size_t n = strlen(c->text);
    va_list ap;
    va_start(ap, fmt);
    if (c->n < 6) {
        if (c->n) snprintf(c->text + n, sizeof c->text - n, ", ");
        n = strlen(c->text);
        vsnprintf(c->text + n, sizeof c->text - n, fmt, ap);
    }
    va_end(ap);
    c->n++;
}

/* The tensor of that name: by the directory's own map, then in its shard. */
static const struct st_tensor *lookup(const struct weights *w, const char *name, struct st_file **f)
{
    int lo = 0, hi = w->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2, c = strcmp(w->entry[mid].name, name);
        if (c == 0) {
            *f = w->file[w->entry[mid].shard];
            return st_find(*f, name);
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static void shape_text(const struct st_tensor *t, char out[64])
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < t->n_dims && n < 40; i++)
        n += (size_t)snprintf(out + n, 64 - n, "%s%lld", i ? "," : "", (long long)t->dims[i]);
}

static bool same_shape(const struct st_tensor *t, const struct param *p)
{
    if (t->dims[0] != p->rows) return false;
    return p->cols ? t->n_dims == 2 && t->dims[1] == p->cols : t->n_dims == 1;
}

static void compare_params(const struct weights *w, const struct model_shape *m,
                           struct complaint *c)
{
    struct param p;
    struct st_file *f;
    for (int i = 0; i < param_tensors(m); i++) {
        char have[64];
        param_get(m, i, &p);
        const struct st_tensor *t = lookup(w, p.name, &f);
        if (!t) {
            complain(c, "%s is missing", p.name);
        } else if (!same_shape(t, &p)) {
            shape_text(t, have);
            if (p.cols)
                complain(c, "%s is [%s], want [%lld,%lld]", p.name, have, (long long)p.rows,
                         (long long)p.cols);
            else
                complain(c, "%s is [%s], want [%lld]", p.name, have, (long long)p.rows);
        }
    }
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static bool tied_head(const struct model_shape *m, const char *name)
{
    return m->tied && !strcmp(name, "lm_head.weight");
}

static int by_param_name(const void *a, const void *b)
{
    return strcmp(((const struct param *)a)->name, ((const struct param *)b)->name);
}

struct param *hf_sorted(const struct model_shape *m, int *n, struct err *e)
{
    *n = param_tensors(m);
    struct param *p = *n > HF_MAX_PARAMS ? NULL : malloc((size_t)*n * sizeof *p);
    if (!p) {
        err_set(e, ERR_TOO_LARGE, "a model of %d tensors; the limit is %d", *n, HF_MAX_PARAMS);
        return NULL;
    }
    param_list(m, p, *n);
    qsort(p, (size_t)*n, sizeof *p, by_param_name);
    return p;
}

static int compare_unexpected(const struct weights *w, const struct model_shape *m,
                              struct complaint *c, struct err *e)
{
    int n;
    struct param *params = hf_sorted(m, &n, e);
    if (!params) return -1;
    for (int i = 0; i < w->n; i++) {
        const char *name = w->entry[i].name;
        struct param key;
        if (i && !strcmp(name, w->entry[i - 1].name)) complain(c, "%s is named twice", name);
        size_t len = strlen(name);
        if (len < sizeof key.name) {
            memcpy(key.name, name, len + 1);
            if (bsearch(&key, params, (size_t)n, sizeof *params, by_param_name)) continue;
        }
        if (!tied_head(m, name) && !ends_with(name, ".rotary_emb.inv_freq"))
            complain(c, "%s is unexpected", name);
    }
    free(params);
    return 0;
}

static int compare(const struct weights *w, const char *dir, const struct model_shape *m,
                   struct err *e)
{
    struct complaint c = {0};
    compare_params(w, m, &c);
    if (compare_unexpected(w, m, &c, e) < 0) return -1;
    if (!c.n) return 0;
    if (c.n <= 6)
        return err_set(e, ERR_INVALID, "%s does not fit its config.json: %s", dir, c.text);
    return err_set(e, ERR_INVALID, "%s does not fit its config.json in %d tensors: %s, ...", dir,
                   c.n, c.text);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int read_as(const struct st_file *f, const struct st_tensor *t, enum dtype dtype, void *out,
                   struct err *e)
{
    return dtype == DT_BF16 ? st_read_bf16(f, t, out, e) : st_read_f32(f, t, out, e);
}

static int tied_differs(const struct st_file *f, struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "%s: lm_head.weight differs from the embedding, but config.json "
                   "has tie_word_embeddings",
                   st_path(f));
}

/* A tied model may carry its head all the same; it must be the embedding. */
static int check_tied_head(const struct weights *w, const struct model_shape *m, enum dtype dtype,
                           const char *params, struct err *e)
{
    struct st_file *f;
    struct param p;
    const struct st_tensor *t = m->tied ? lookup(w, "lm_head.weight", &f) : NULL;
    if (!t) return 0;
    param_get(m, 0, &p);
    const int64_t unit = dtype_size(dtype);
    void *head = same_shape(t, &p) ? malloc((size_t)(p.count * unit)) : NULL;
    int rc = head ? read_as(f, t, dtype, head, e) : 0;
    if (rc == 0 && (!head || memcmp(head, params + p.offset * unit, (size_t)(p.count * unit))))
        rc = tied_differs(f, e);
    free(head);
    return rc;
}

static int read_params(const struct weights *w, const struct model_shape *m, enum dtype dtype,
                       char *params, struct err *e)
{
    const int64_t unit = dtype_size(dtype);
    int64_t at = 0;
    struct param p;
    for (int i = 0; i < param_tensors(m); i++) {
        struct st_file *f;
        param_get(m, i, &p); /* ascending offsets */
        memset(params + at * unit, 0, (size_t)((p.offset - at) * unit));
        const struct st_tensor *t = lookup(w, p.name, &f);
        if (read_as(f, t, dtype, params + p.offset * unit, e) < 0) return -1;
        at = p.offset + p.count;
    }
    memset(params + at * unit, 0, (size_t)((param_count(m) - at) * unit));
    return check_tied_head(w, m, dtype, params, e);
}

/* Every tensor is there under its prefixed name, in its shape. */
static int compare_flat(const struct st_file *f, const struct model_shape *m, const char *prefix,
                        struct err *e)
{
    struct complaint c = {0};
    struct param p;
    for (int i = 0; i < param_tensors(m); i++) {
        char name[ST_NAME_SIZE];
        param_get(m, i, &p);
        snprintf(name, sizeof name, "%s%s", prefix, p.name);
        const struct st_tensor *t = st_find(f, name);
        if (!t)
            complain(&c, "%s is missing", name);
        else if (!same_shape(t, &p))
            complain(&c, "%s has another shape", name);
    }
    return c.n ? err_set(e, ERR_INVALID, "%s: %s", st_path(f), c.text) : 0;
}

int hf_read_flat(const struct st_file *f, const struct model_shape *m, const char *prefix,
                 float *flat, struct err *e)
{
    struct param p;
    int64_t at = 0;
    if (compare_flat(f, m, prefix, e) < 0) return -1;
    for (int i = 0; i < param_tensors(m); i++) {
        char name[ST_NAME_SIZE];
        param_get(m, i, &p);
        snprintf(name, sizeof name, "%s%s", prefix, p.name);
        memset(flat + at, 0, (size_t)(p.offset - at) * sizeof *flat);
        at = p.offset + p.count;
        if (st_read_f32(f, st_find(f, name), flat + p.offset, e) < 0) return -1;
    }
    memset(flat + at, 0, (size_t)(param_count(m) - at) * sizeof *flat);
    return 0;
}

/* ---- reading piece by piece ------------------------------------------------------------------- */

static int read_pieces(const struct st_file *f, const struct st_tensor *t, int64_t offset,
                       const struct hf_sink *to, float *piece, struct err *e)
{
    for (int64_t at = 0; at < t->count; at += ST_CHUNK) {
        const int64_t n = t->count - at < ST_CHUNK ? t->count - at : ST_CHUNK;
        if (st_read_part(f, t, at, n, piece, e) < 0) return -1;
        if (to->take(to->arg, offset + at, n, piece, e)) return -1;
    }
    return 0;
}

struct tied_check { /* a sink that compares with a tensor */
    const struct st_file *f;
    const struct st_tensor *t;
    float *piece;
};

static int take_equal(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    const struct tied_check *c = arg;
    if (st_read_part(c->f, c->t, offset, n, c->piece, e) < 0) return -1;
    if (!memcmp(c->piece, x, (size_t)n * sizeof *x)) return 0;
    return tied_differs(c->f, e);
}

/* A tied model may carry its head all the same; it must be the embedding. pieces: two. */
static int check_tied_pieces(const struct weights *w, const struct model_shape *m, float *pieces,
                             struct err *e)
{
    struct st_file *head_file, *f;
    struct param p;
    const struct st_tensor *head = m->tied ? lookup(w, "lm_head.weight", &head_file) : NULL;
    if (!head) return 0;
    param_get(m, 0, &p);
    if (!same_shape(head, &p)) return tied_differs(head_file, e);
    struct tied_check c = {head_file, head, pieces + ST_CHUNK};
    const struct st_tensor *embed = lookup(w, p.name, &f);
    return read_pieces(f, embed, 0, &(struct hf_sink){take_equal, &c}, pieces, e);
}

static float *new_pieces(int n, struct err *e)
{
    float *x = malloc((size_t)n * ST_CHUNK * sizeof *x);
    if (!x) err_set(e, ERR_IO, "out of memory for %d pieces", n);
    return x;
}

int hf_load_pieces(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                   struct err *e)
{
    struct weights *w = weights_open(dir, e);
    float *pieces = w ? new_pieces(2, e) : NULL;
    int rc = pieces ? compare(w, dir, m, e) : -1;
    if (rc == 0) rc = check_tied_pieces(w, m, pieces, e);
    for (int i = 0; rc == 0 && i < param_tensors(m); i++) {
        struct st_file *f;
        struct param p;
        param_get(m, i, &p);
        const struct st_tensor *t = lookup(w, p.name, &f);
        rc = read_pieces(f, t, p.offset, to, pieces, e);
    }
    free(pieces);
    weights_fini(w);
    return rc;
}

int hf_read_pieces(const struct st_file *f, const struct model_shape *m, const char *prefix,
                   const struct hf_sink *to, struct err *e)
{
    float *piece = NULL;
    if (compare_flat(f, m, prefix, e) < 0) return -1;
    piece = new_pieces(1, e);
    int rc = piece ? 0 : -1;
    for (int i = 0; rc == 0 && i < param_tensors(m); i++) {
        char name[ST_NAME_SIZE];
        struct param p;
        param_get(m, i, &p);
        snprintf(name, sizeof name, "%s%s", prefix, p.name);
        rc = read_pieces(f, st_find(f, name), p.offset, to, piece, e);
    }
    free(piece);
    return rc;
}

int hf_load(const char *dir, const struct model_shape *m, enum dtype dtype, void *params,
            struct err *e)
{
    struct weights *w = weights_open(dir, e);
    if (!w) return -1;
    int rc = compare(w, dir, m, e);
    if (rc == 0) rc = read_params(w, m, dtype, params, e);
    weights_fini(w);
    return rc;
}

int64_t hf_describe(const char *dir, char *out, size_t size, struct err *e)
{
    struct model_shape m;
    if (hf_config_read(dir, &m, e) < 0) return -1;
    struct weights *w = weights_open(dir, e);
    if (!w) return -1;
    int rc = compare(w, dir, &m, e);
    weights_fini(w);
    if (rc < 0) return -1;
    int64_t n = hf_shape_json(&m, out, size);
    return n < 0 ? err_set(e, ERR_TOO_LARGE, "the description does not fit") : n;
}
