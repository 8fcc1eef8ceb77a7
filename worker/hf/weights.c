/* weights.c: opens model.safetensors, or the shards of its index, and finds a tensor by its name
 * in the flat layout. */
#include "worker/hf/weights.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/faults.h"
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/utf8.h"
#include "worker/gguf/model_file.h"

bool hf_starts_with(const char *s, const char *start)
{
    return !strncmp(s, start, strlen(start));
}

bool hf_ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* ---- finding the files ----------------------------------------------------------------------- */

static struct hf_entry *add_entry(struct hf_weights *w, const char *path, struct err *e)
{
    if (w->n == w->room) {
        int room = w->room ? 2 * w->room : 64;
        struct hf_entry *more = room > 2 * ST_TENSORS
                                    ? NULL
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

/* Adds all tensors of the only file. */
static int take_single(struct hf_weights *w, const char *path, struct err *e)
{
    w->n_shards = 1;
    for (int i = 0; i < st_count(w->file[0]); i++) {
        struct hf_entry *x = add_entry(w, path, e);
        if (!x) return -1;
        snprintf(x->stored, sizeof x->stored, "%s", st_at(w->file[0], i)->name);
        x->shard = 0;
    }
    return 0;
}

/* Result of a function that has found a fault and has added it to w->faults. Without w->faults
 * the function returns -1. */
enum { TOLD = 1 };

static int open_single(struct hf_weights *w, const char *path, struct err *e)
{
    if (!(w->file[0] = st_check(path, w->faults, e))) return w->faults ? TOLD : -1;
    return take_single(w, path, e);
}

static int open_gguf(struct hf_weights *w, const char *path, struct err *e)
{
    w->file[0] = hf_gguf_open(path, e);
    return w->file[0] ? take_single(w, path, e) : -1;
}

/* Returns the index of the shard whose file name was just read. */
static int shard_index(struct hf_weights *w, struct jread *j, const char *path, struct err *e)
{
    char name[96];
    if (jread_copy(j, name, sizeof name) < 0 || !name[0] || name[0] == '.' || strchr(name, '/') ||
        !utf8_plain(name))
        return err_set(e, ERR_CORRUPT, "%s: a shard's name is not a plain file name", path);
    for (int i = w->n_shards - 1; i >= 0; i--) /* search backwards, because neighbouring tensors
                                                * usually share a shard */
        if (!strcmp(w->shard_name[i], name)) return i;
    if (w->n_shards == HF_MAX_SHARDS)
        return err_set(e, ERR_TOO_LARGE, "%s names more than %d shards", path, HF_MAX_SHARDS);
    snprintf(w->shard_name[w->n_shards], sizeof name, "%s", name);
    return w->n_shards++;
}

static int parse_weight_map(struct hf_weights *w, struct jread *j, const char *path, struct err *e)
{
    enum jtok t;
    if (jread_next(j) != J_OBJECT)
        return err_set(e, ERR_CORRUPT, "%s: weight_map is no object", path);
    while ((t = jread_next(j)) == J_KEY) {
        struct hf_entry *x = add_entry(w, path, e);
        if (!x) return -1;
        if (jread_copy(j, x->stored, sizeof x->stored) < 0)
            return err_set(e, ERR_TOO_LARGE, "%s: a tensor's name is too long", path);
        if (!utf8_plain(x->stored))
            return err_set(e, ERR_CORRUPT, "%s: a tensor's name holds a control character", path);
        if (jread_next(j) != J_STRING)
            return err_set(e, ERR_CORRUPT, "%s: the file of %s is not a string", path, x->stored);
        if ((x->shard = shard_index(w, j, path, e)) < 0) return -1;
    }
    return t == J_OBJECT_END ? 0 : err_set(e, ERR_CORRUPT, "%s: %s", path, j->err.text);
}

static int parse_index(struct hf_weights *w, const char *text, size_t size, const char *path,
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

/* Largest number of tensors, counted over all shards. A tensor takes 300 bytes of memory, so
 * this also limits the memory that a directory can take. */
enum { MAX_TENSORS = 2 * ST_TENSORS };

static int open_sharded(struct hf_weights *w, const char *dir, const char *index, struct err *e)
{
    char path[FILE_PATH_SIZE];
    int64_t n_tensors = 0;
    size_t size;
    char *text = file_read(index, 64 << 20, &size, e);
    if (!text) return -1;
    int rc = parse_index(w, text, size, index, e);
    free(text);
    for (int i = 0; rc == 0 && i < w->n_shards; i++) {
        if (i && w->file[i - 1]) n_tensors += st_count(w->file[i - 1]);
        if (n_tensors > MAX_TENSORS)
            return err_set(e, ERR_TOO_LARGE, "%s: its shards have more than %d tensors together",
                           index, MAX_TENSORS);
        rc = file_join(path, e, "%s/%s", dir, w->shard_name[i]);
        if (rc == 0 && !(w->file[i] = st_check(path, w->faults, e)) && !w->faults) rc = -1;
    }
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hf_entry *)a)->name, ((const struct hf_entry *)b)->name);
}

void hf_weights_close(struct hf_weights *w)
{
    for (int i = 0; i < w->n_shards; i++) st_close(w->file[i]);
    free(w->entry);
    free(w);
}

/* Makes the paths of model.safetensors and of the index. Both arrays have room for
 * FILE_PATH_SIZE bytes. */
static int weight_paths(const char *dir, char *single, char *index, struct err *e)
{
    return file_join(single, e, "%s/model.safetensors", dir) ||
                   file_join(index, e, "%s/model.safetensors.index.json", dir)
               ? -1
               : 0;
}

int hf_weightless(const char *dir, bool *out, struct err *e)
{
    char path[FILE_PATH_SIZE], index[FILE_PATH_SIZE];
    const int gguf = model_file_gguf(dir, path, e);
    *out = false;
    if (gguf) return gguf < 0 ? -1 : 0;
    if (weight_paths(dir, path, index, e)) return -1;
    *out = !file_exists(path) && !file_exists(index);
    return 0;
}

/* Returns true if a name is the name of a file of weights that PyTorch has pickled. Older
 * versions of transformers saved weights in such files. */
static bool is_pickle(const char *name)
{
    return hf_starts_with(name, "pytorch_model") && hf_ends_with(name, ".bin");
}

/* Writes the names of the first files of a kind in a directory. Returns the number of all
 * files of this kind. */
static int list_names(const char *dir, bool (*is)(const char *), char *out, size_t size)
{
    enum { SHOWN = 3 };
    int n = 0;
    size_t at = 0;
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) {
        if (!is(x->d_name) || *x->d_name == '.' || !utf8_plain(x->d_name)) continue;
        if (n < SHOWN && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%.60s", n ? ", " : "", x->d_name);
        n++;
    }
    if (d) closedir(d);
    if (n > SHOWN && at < size) snprintf(out + at, size - at, ", ...");
    return n;
}

/* The command that makes model.safetensors from all pickles when it is run in the directory.
 * The command separates tensors that share memory. */
#define FROM_PICKLES                                                                               \
    "python3 -c \"import glob, torch, safetensors.torch as s; s.save_file({k: v.clone()."          \
    "contiguous() for f in glob.glob('pytorch_model*.bin') for k, v in torch.load(f, "             \
    "map_location='cpu', weights_only=True).items()}, 'model.safetensors')\""

static int no_weights(const char *dir, struct err *e)
{
    char names[256] = "";
    const int n = list_names(dir, model_file_is_gguf, names, sizeof names);
    if (n)
        return err_set(
            e, ERR_INVALID,
            "%.200s has no model.safetensors and no index of shards, but %d .gguf file%s beside "
            "its config.json (%s): name one in model.path",
            dir, n, n > 1 ? "s" : "", names);
    if (list_names(dir, is_pickle, names, sizeof names))
        return err_set(
            e, ERR_INVALID,
            "%.120s has no model.safetensors, but %.60s, which is not read: convert it once in "
            "that directory: " FROM_PICKLES,
            dir, names);
    return err_set(e, ERR_INVALID,
                   "%s has no model.safetensors and no index of shards: add them, or give "
                   "model.init \"random\" for a new model",
                   dir);
}

/* Opens the files of the directory. Returns 0 on success, -1 after a fault that is in *e, or
 * TOLD. */
static int open_files(struct hf_weights *w, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE], index[FILE_PATH_SIZE];
    const int gguf = model_file_gguf(dir, w->path, e);
    if (gguf < 0 || (!gguf && weight_paths(dir, path, index, e))) return -1;
    if (gguf) return open_gguf(w, w->path, e);
    snprintf(w->path, sizeof w->path, "%s", file_exists(path) ? path : index);
    if (file_exists(path)) return open_single(w, path, e);
    return file_exists(index) ? open_sharded(w, dir, index, e) : no_weights(dir, e);
}

struct hf_weights *hf_weights_open(const char *dir, const struct model_shape *m, struct err *e)
{
    return hf_weights_check(dir, m, NULL, e);
}

struct hf_weights *hf_weights_check(const char *dir, const struct model_shape *m,
                                    struct faults *faults, struct err *e)
{
    struct hf_weights *w = calloc(1, sizeof *w);
    int rc = w ? 0 : err_set(e, ERR_IO, "out of memory");
    if (w) {
        w->m = m;
        w->faults = faults;
        rc = open_files(w, dir, e);
    }
    if (rc == 0) rc = hf_name_entries(w, e);
    if (rc < 0 && faults) faults_add(faults, e);
    if (rc) {
        if (w) hf_weights_close(w);
        return NULL;
    }
    if (w->n) qsort(w->entry, (size_t)w->n, sizeof *w->entry, by_name);
    return w;
}

const struct hf_entry *hf_entry_of(const struct hf_weights *w, const char *name)
{
    int lo = 0, hi = w->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2, c = strcmp(w->entry[mid].name, name);
        if (c == 0) return &w->entry[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

bool hf_unreadable(const struct hf_weights *w, const char *name)
{
    const struct hf_entry *x = hf_entry_of(w, name);
    return x && !w->file[x->shard];
}

/* Finds the entry of this name in the directory's list, and then finds the tensor in the shard
 * of that entry. */
const struct st_tensor *hf_lookup(const struct hf_weights *w, const char *name, struct st_file **f)
{
    const struct hf_entry *x = hf_entry_of(w, name);
    if (!x || !w->file[x->shard]) return NULL;
    *f = w->file[x->shard];
    return st_find(*f, x->stored);
}
