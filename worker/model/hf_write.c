/* The writing half of hf.h, and digests of what is written. */
#include "worker/model/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include "api/core/file.h"
#include "api/core/sha256.h"
#include "kernels/bf16.h"
#include "worker/model/safetensors.h"
#include "worker/model/tokenizer.h"

int hf_write_flat(const char *path, const struct model_shape *m, const char *prefix,
                  const float *flat, struct err *e)
{
    const struct hf_flat one = {prefix, flat, DT_F32};
    return hf_write_flats(path, m, &one, 1, e);
}

static const void *element(const struct hf_flat *f, int64_t i)
{
    return (const char *)f->data + i * dtype_size(f->dtype);
}

struct named { /* one tensor of one flat array, for the writer */
    char text[ST_NAME_SIZE];
    const struct hf_flat *flat;
    int64_t offset;
};

static int read_named(void *arg, int64_t at, int64_t n, void *out, struct err *e)
{
    const struct named *t = arg;
    if (t->flat->dtype == DT_F32) return t->flat->read(t->flat->arg, t->offset + at, n, out, e);
    float *x = malloc((size_t)n * sizeof *x);
    int rc = x ? t->flat->read(t->flat->arg, t->offset + at, n, x, e)
               : err_set(e, ERR_IO, "out of memory for a piece of %s", t->text);
    for (int64_t i = 0; rc == 0 && i < n; i++) ((uint16_t *)out)[i] = bf16_round(x[i]);
    free(x);
    return rc;
}

static struct st_out item_of(struct named *t, const struct param *p)
{
    const struct hf_flat *f = t->flat;
    t->offset = p->offset;
    snprintf(t->text, sizeof t->text, "%s%s", f->prefix, p->name);
    return (struct st_out){.name = t->text,
                           .dtype = f->dtype == DT_BF16 ? ST_BF16 : ST_F32,
                           .n_dims = p->cols ? 2 : 1,
                           .dims = {p->rows, p->cols},
                           .data = f->data ? element(f, p->offset) : NULL,
                           .read = read_named,
                           .arg = t};
}

int hf_write_flats(const char *path, const struct model_shape *m, const struct hf_flat *flats,
                   int n_flats, struct err *e)
{
    int n, rc = -1;
    struct param *params = hf_sorted(m, &n, e);
    if (!params) return -1;
    struct st_out *items = calloc((size_t)n * (size_t)n_flats, sizeof *items);
    struct named *names = calloc((size_t)n * (size_t)n_flats, sizeof *names);
    if (items && names) {
        for (int i = 0; i < n * n_flats; i++) {
            names[i].flat = &flats[i / n];
            items[i] = item_of(&names[i], &params[i % n]);
        }
        rc = st_write(path, items, n * n_flats, e);
    } else {
        err_set(e, ERR_IO, "%s: out of memory", path);
    }
    free(names);
    free(items);
    free(params);
    return rc;
}

int hf_save(const char *dir, const struct model_shape *m, enum dtype dtype, const void *params,
            struct err *e)
{
    return hf_save_flat(dir, m, &(struct hf_flat){"", params, dtype}, e);
}

int hf_save_flat(const char *dir, const struct model_shape *m, const struct hf_flat *weights,
                 struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_make_dir(dir, e) < 0 || hf_config_write(dir, m, weights->dtype, e) < 0) return -1;
    if (tokenizer_write(dir, e) < 0) return -1;
    if (file_join(path, e, "%s/model.safetensors", dir) < 0) return -1;
    if (hf_write_flats(path, m, weights, 1, e) < 0) return -1;
    return file_sync_dir(dir, e);
}

int hf_file_digest(const char *path, char out[65], struct err *e)
{
    struct st_file *f = st_open(path, e);
    struct sha256 sha;
    if (!f) return -1;
    sha256_init(&sha);
    for (int i = 0; i < st_count(f); i++) /* ascending by name */
        sha256_add(&sha, st_data(f, st_at(f, i)), (size_t)st_at(f, i)->size);
    sha256_hex(&sha, out);
    st_close(f);
    return 0;
}

int hf_weights_digest(const struct model_shape *m, enum dtype dtype, const void *params,
                      char out[65], struct err *e)
{
    const struct hf_flat all = {"", params, dtype};
    int n;
    struct sha256 sha;
    struct param *p = hf_sorted(m, &n, e);
    if (!p) return -1;
    sha256_init(&sha);
    for (int i = 0; i < n; i++)
        sha256_add(&sha, element(&all, p[i].offset), (size_t)(p[i].count * dtype_size(dtype)));
    sha256_hex(&sha, out);
    free(p);
    return 0;
}
