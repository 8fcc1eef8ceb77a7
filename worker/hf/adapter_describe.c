/* adapter_describe.c: reads an adapter's configuration, and finds its products by the names of its
 * tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/adapter.h"
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/jwrite.h"
#include "api/core/utf8.h"
#include "worker/hf/adapter.h"
#include "worker/hf/safetensors.h"

static const char weights_file[] = "adapter_model.safetensors";
static const char digits[] = "0123456789";

struct products {
    const char *path; /* of the file */
    int64_t rank;     /* of the configuration */
    int64_t layers;   /* number of layers, by the last layer that has a tensor */
    int n, n_saved;
    char name[SPEC_TARGETS][SPEC_TARGET_SIZE];
    char saved[SPEC_SAVED][SPEC_TARGET_SIZE]; /* modules that the file has whole */
};

static bool has_file(const char *dir, const char *name)
{
    char path[FILE_PATH_SIZE];
    struct err none;
    const int fd = file_join(path, &none, "%s/%s", dir, name) ? -1 : beneath_read(path, &none);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Replaces the error about a missing adapter_config.json, if the directory is of another kind. */
static int refuse_directory(const char *dir, struct err *e)
{
    if (has_file(dir, "adapter_config.json")) return -1;
    if (has_file(dir, "config.json"))
        return err_set(e, ERR_INVALID,
                       "%s is the directory of a model, and of no adapter: name it in model.path, "
                       "and leave model.adapter out",
                       dir);
    if (has_file(dir, "adapter/adapter_config.json"))
        return err_set(e, ERR_INVALID,
                       "%s is a checkpoint of an adapter: set model.adapter %s/adapter", dir, dir);
    if (access(dir, F_OK)) return -1;
    return err_set(
        e, ERR_INVALID,
        "%s has no adapter_config.json: name the directory of an adapter, as the package "
        "peft saves one",
        dir);
}

static int refuse_tensor(const struct products *p, const char *name, const char *why, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "%s has the tensor %.150s, %s", p->path,
                   utf8_plain(name) ? name : "(a name with control characters)", why);
}

/* Returns the part of a tensor's name that follows the number of the layer. Returns NULL if the
 * name has no part that is a number. */
static const char *in_layer(const char *name)
{
    for (const char *at = name; at; at = strchr(at, '.')) {
        at += *at == '.';
        const size_t n = strspn(at, digits);
        if (n && at[n] == '.') return at + n + 1;
    }
    return NULL;
}

int64_t hf_adapter_layer(const char *tensor)
{
    const char *after = in_layer(tensor), *at = after;
    if (!after) return -1;
    for (at--; at > tensor && strchr(digits, at[-1]);) at--;
    return after - at > 9 ? INT32_MAX - 1 : strtoll(at, NULL, 10);
}

/* Checks the type of a matrix, and its dimension that is the rank of the configuration. */
static int check_matrix(const struct products *p, const struct st_tensor *t, bool is_b,
                        struct err *e)
{
    if (!st_dtype_reads(t->dtype))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: %.150s has the type %s: save the adapter in float32, bfloat16 or "
                       "float16",
                       p->path, t->name, st_dtype_name(t->dtype));
    if (t->n_dims != 2)
        return err_set(e, ERR_INVALID,
                       "%s: %.150s has %d dimensions, and a matrix has 2: save the "
                       "adapter with peft",
                       p->path, t->name, t->n_dims);
    if (t->dims[is_b] == p->rank) return 0;
    return err_set(e, ERR_INVALID,
                   "%s: %.150s is of rank %lld, and r of adapter_config.json is %lld: fetch both "
                   "files of one adapter",
                   p->path, t->name, (long long)t->dims[is_b], (long long)p->rank);
}

/* Tells whether the module can be a target of a job. */
static bool is_module(const char *module, size_t size)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return size && size < SPEC_TARGET_SIZE && strspn(module, good) >= size;
}

static int add(struct products *p, const char *tensor, const char *module, size_t size,
               struct err *e)
{
    for (int i = 0; i < p->n; i++)
        if (!strncmp(p->name[i], module, size) && !p->name[i][size]) return 0;
    if (!is_module(module, size))
        return refuse_tensor(p, tensor, "which names no product: save the adapter with peft", e);
    if (p->n == SPEC_TARGETS)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has adapters of more than %d products of a layer: a job can name %d",
                       p->path, SPEC_TARGETS, SPEC_TARGETS);
    memcpy(p->name[p->n], module, size);
    p->name[p->n++][size] = 0;
    return 0;
}

/* Adds the module of a tensor that is of no adapter, by the last part of the module's name. */
static int add_saved(struct products *p, const char *tensor, struct err *e)
{
    const char *const end = strrchr(tensor, '.'), *start = end;
    const bool whole = !strcmp(end, ".weight") || !strcmp(end, ".bias");
    while (start > tensor && start[-1] != '.') start--;
    const size_t size = (size_t)(end - start);
    if (!whole || in_layer(tensor) || !is_module(start, size))
        return refuse_tensor(p, tensor,
                             "which is no matrix lora_A or lora_B of a layer, and no whole "
                             "embedding or head: only such an adapter is supported",
                             e);
    for (int i = 0; i < p->n_saved; i++)
        if (!strncmp(p->saved[i], start, size) && !p->saved[i][size]) return 0;
    if (p->n_saved == SPEC_SAVED)
        return refuse_tensor(p, tensor,
                             "which is neither embedding nor head: train an adapter without it", e);
    memcpy(p->saved[p->n_saved], start, size);
    p->saved[p->n_saved++][size] = 0;
    return 0;
}

static int find(struct products *p, const struct st_tensor *t, struct err *e)
{
    const char *const tensor = t->name;
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};
    const size_t k = sizeof ADAPTER_PREFIX - 1, size = strlen(tensor);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        if (strncmp(tensor, ADAPTER_PREFIX, k) || size < k + n ||
            strcmp(tensor + size - n, ends[i]))
            continue;
        const char *module = in_layer(tensor + k), *end = tensor + size - n;
        if (module && module < end) {
            const int64_t layer = hf_adapter_layer(tensor + k);
            if (layer >= p->layers) p->layers = layer + 1;
            if (add(p, tensor, module, (size_t)(end - module), e)) return -1;
            return check_matrix(p, t, i == 1, e);
        }
        return refuse_tensor(p, tensor,
                             "which is of no layer: only products of layers can have an adapter: "
                             "train it without that module",
                             e);
    }
    if (strncmp(tensor, ADAPTER_PREFIX, k) || strstr(tensor, ".lora_"))
        return refuse_tensor(p, tensor,
                             "which is no matrix lora_A or lora_B of a layer: only such an adapter "
                             "is supported",
                             e);
    return add_saved(p, tensor, e);
}

/* Fails if the configuration names a whole module of which the file has no tensor. */
static int check_saved(const struct products *p, const struct adapter_config *c, struct err *e)
{
    for (int i = 0; i < c->n_saved; i++) {
        const char *const dot = strrchr(c->saved[i], '.');
        int k = 0;
        while (k < p->n_saved && strcmp(p->saved[k], dot ? dot + 1 : c->saved[i])) k++;
        if (k == p->n_saved)
            return err_set(e, ERR_INVALID,
                           "%s: modules_to_save names %s, of which %s has no tensor: save the "
                           "adapter again",
                           c->path, c->saved[i], weights_file);
    }
    return 0;
}

static int refuse_missing(const char *dir, struct err *e)
{
    if (has_file(dir, "adapter_model.bin"))
        return err_set(e, ERR_NOT_FOUND,
                       "%s has adapter_model.bin, which is not read, and no %s: save the adapter "
                       "with safe_serialization=True",
                       dir, weights_file);
    return err_set(e, ERR_NOT_FOUND,
                   "%s has no %s: give the whole directory, as the package peft saves it", dir,
                   weights_file);
}

static int find_all(struct products *p, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    int rc = 0;
    if (file_join(path, e, "%s/%s", dir, weights_file)) return -1;
    if (access(path, F_OK)) return refuse_missing(dir, e);
    struct st_file *f = st_open(path, e);
    if (!f) return -1;
    p->path = path;
    for (int i = 0; i < st_count(f) && !rc; i++) rc = find(p, st_at(f, i), e);
    if (!rc && !p->n)
        rc = err_set(e, ERR_INVALID, "%s has no tensors: save the adapter again", path);
    if (!rc) rc = adapter_targets_check(dir, f, e);
    p->path = NULL;
    st_close(f);
    return rc;
}

int64_t adapter_describe(const char *dir, char *out, size_t size, struct err *e)
{
    struct adapter_config c;
    struct products p = {0};
    struct jwrite w;
    if (adapter_read_config(dir, &c, e)) return refuse_directory(dir, e);
    p.rank = c.rank;
    if (find_all(&p, dir, e) || check_saved(&p, &c, e)) return -1;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "rank", c.rank);
    jwrite_double(&w, "alpha", c.alpha);
    jwrite_bool(&w, "rslora", c.rslora);
    jwrite_double(&w, "dropout", c.dropout);
    jwrite_int(&w, "layers", p.layers);
    jwrite_array(&w, "targets");
    for (int i = 0; i < p.n; i++) jwrite_str(&w, NULL, p.name[i]);
    jwrite_end(&w);
    if (p.n_saved) jwrite_array(&w, "modules_to_save");
    for (int i = 0; i < p.n_saved; i++) jwrite_str(&w, NULL, p.saved[i]);
    if (p.n_saved) jwrite_end(&w);
    jwrite_end(&w);
    const int64_t n = jwrite_finish(&w);
    if (n < 0 || (size_t)n + 2 > size)
        return err_set(e, ERR_TOO_LARGE, "the description does not fit");
    out[n] = '\n';
    out[n + 1] = 0;
    return n + 1;
}
