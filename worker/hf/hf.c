/* Reads and writes the weights of a model directory. worker/family/config.c reads its
 * config.json. */
#include "worker/hf/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/half.h"
#include "worker/family/family.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/embedding.h"
#include "worker/hf/files.h"
#include "worker/hf/stored.h"
#include "worker/hf/weights.h"
#include "worker/text/tokenizer.h"

/* ---- reading --------------------------------------------------------------------------------- */

static int read_as(const struct st_file *f, const struct st_tensor *t, enum dtype dtype, void *out,
                   struct err *e)
{
    if (dtype == DT_F32) return st_read_f32(f, t, out, e);
    return st_read_half(f, t, dtype == DT_F16 ? ST_F16 : ST_BF16, out, e);
}

/* Reads block b of a tensor as fp32, in the order of the flat layout. room is scratch memory for
 * one block. */
static int read_block(const struct hf_stored *x, const struct param *p, int64_t b, float *room,
                      float *out, struct err *e)
{
    const int64_t size = hf_block_size(p);
    const int rc = hf_stored_read(x, b * size, size, room, e);
    if (rc == 0) hf_block_here(p, room, out, sizeof *out, x->t && p->transposed);
    return rc;
}

/* Rounds n elements of x to dtype, and writes the results to `to`. */
static void put(void *to, enum dtype dtype, const float *x, int64_t n)
{
    if (dtype == DT_F32)
        memcpy(to, x, (size_t)n * sizeof *x);
    else
        half_narrow(dtype, x, to, n);
}

static int read_blocks(const struct hf_stored *x, const struct param *p, enum dtype dtype,
                       char *out, struct err *e)
{
    const int64_t size = hf_block_size(p);
    float *room = malloc((size_t)size * 2 * sizeof *room);
    int rc = room ? 0 : err_set(e, ERR_IO, "out of memory for %s", p->name);
    for (int64_t b = 0; rc == 0 && b * size < p->count; b++) {
        rc = read_block(x, p, b, room, room + size, e);
        if (rc == 0) put(out + b * size * dtype_size(dtype), dtype, room + size, size);
    }
    free(room);
    return rc;
}

/* Reads a tensor, and stores its rows in the order of the flat layout. */
static int read_param(const struct hf_stored *x, const struct param *p, enum dtype dtype, char *out,
                      struct err *e)
{
    if (hf_by_blocks(p)) return read_blocks(x, p, dtype, out, e);
    if (!p->head_major_parts) return read_as(x->f, x->t, dtype, out, e);
    const int64_t size = hf_run_size(p) * dtype_size(dtype);
    char *file = malloc((size_t)(p->count * dtype_size(dtype)));
    int rc = file ? read_as(x->f, x->t, dtype, file, e)
                  : err_set(e, ERR_IO, "out of memory for %s", p->name);
    for (int64_t i = 0; rc == 0 && i * hf_run_size(p) < p->count; i++)
        memcpy(out + i * size, file + hf_run_in_file(p, i) * size, (size_t)size);
    free(file);
    return rc;
}

/* Checks the head that the file of a tied model may have in addition to the embedding. Head
 * and embedding must be equal. */
static int check_tied_head(const struct hf_weights *w, const struct model_shape *m,
                           enum dtype dtype, const char *params, struct err *e)
{
    struct st_file *f;
    struct param p;
    const struct st_tensor *t = m->tied ? hf_lookup(w, family_head(m), &f) : NULL;
    if (!t) return 0;
    param_get(m, 0, &p);
    const int64_t unit = dtype_size(dtype);
    void *head = hf_same_shape(t, &p) ? malloc((size_t)(p.count * unit)) : NULL;
    int rc = head ? read_as(f, t, dtype, head, e) : 0;
    if (rc == 0 && (!head || memcmp(head, params + p.offset * unit, (size_t)(p.count * unit))))
        rc = hf_tied_differs(f, family_head(m), e);
    free(head);
    return rc;
}

static int read_params(const struct hf_weights *w, const struct model_shape *m, enum dtype dtype,
                       char *params, struct err *e)
{
    const int64_t unit = dtype_size(dtype);
    int64_t at = 0;
    int n, rc = 0;
    struct param *list = hf_list(m, &n, e);
    if (!list) return -1;
    n = hf_of_base(list, n);
    for (int i = 0; rc == 0 && i < n; i++) { /* offsets are in ascending order */
        const struct param *p = &list[i];
        memset(params + at * unit, 0, (size_t)((p->offset - at) * unit));
        const struct hf_stored x = hf_stored_find(w, p);
        rc = read_param(&x, p, dtype, params + p->offset * unit, e);
        at = p->offset + p->count;
    }
    free(list);
    memset(params + at * unit, 0, (size_t)((param_count(m) - at) * unit));
    return rc ? rc : check_tied_head(w, m, dtype, params, e);
}

int hf_read_flat(const struct st_file *f, const struct model_shape *m, const char *prefix,
                 float *flat, struct err *e)
{
    int64_t at = 0;
    int n;
    struct param *list = hf_list(m, &n, e);
    if (!list) return -1;
    n = hf_trained(list, n);
    int rc = hf_compare_flat(f, list, n, prefix, e);
    for (int i = 0; rc == 0 && i < n; i++) {
        const struct param *p = &list[i];
        char name[ST_NAME_SIZE];
        snprintf(name, sizeof name, "%s%s", prefix, p->name);
        memset(flat + at, 0, (size_t)(p->offset - at) * sizeof *flat);
        at = p->offset + p->count;
        const struct hf_stored x = {.f = f, .t = st_find(f, name)};
        rc = read_param(&x, p, DT_F32, (char *)(flat + p->offset), e);
    }
    free(list);
    if (rc == 0) memset(flat + at, 0, (size_t)(param_count(m) - at) * sizeof *flat);
    return rc;
}

static int load(const char *dir, const struct model_shape *m, enum dtype dtype, void *params,
                struct err *e)
{
    struct hf_weights *w = hf_weights_open(dir, m, e);
    if (!w) return -1;
    int rc = hf_compare(w, dir, m, e);
    if (rc == 0) rc = read_params(w, m, dtype, params, e);
    hf_weights_close(w);
    return rc;
}

int hf_load(const char *dir, const struct model_shape *m, enum dtype dtype, void *params,
            struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = load(dir, m, dtype, params, e);
    model_file_leave(kept);
    return rc;
}

/* Returns 1 + the id of the mask token, or 0 if there is no mask token. If the tokenizer
 * cannot be opened, returns 0, because the code that needs the tokenizer reports this error
 * later. */
static int32_t find_mask(const char *dir)
{
    struct err none;
    struct tokenizer *t = tokenizer_open(dir, &none);
    const int32_t mask = t ? tokenizer_special(t)->mask : -1;
    tokenizer_destroy(t);
    return mask + 1;
}

/* Reads the properties that only the tensors' names show. */
static int look_at_names(const char *dir, struct model_shape *m, struct err *e)
{
    bool headless = false;
    struct hf_weights *w = hf_weights_open(dir, m, e);
    if (!w) return -1;
    const int rc = hf_find_head(w, &headless, e);
    m->headless = headless;
    m->unprefixed = w->unprefixed;
    hf_weights_close(w);
    return rc;
}

static int read_dir(const char *dir, struct model_shape *m, struct err *e)
{
    bool weightless = false;
    if (config_read_dir(dir, m, e) < 0 || hf_tokenizer_of(dir, &m->tokenizer, e) < 0 ||
        hf_weightless(dir, &weightless, e) < 0)
        return -1;
    m->weightless = weightless;
    if (hf_embedding_read(dir, m, e) < 0) return -1;
    if (!weightless && look_at_names(dir, m, e) < 0) return -1;
    if (m->tokenizer == TOKENIZER_OWN && family_masked(m)) m->mask = find_mask(dir);
    return 0;
}

int hf_read_dir(const char *dir, struct model_shape *m, struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = read_dir(dir, m, e);
    model_file_leave(kept);
    return rc;
}

static int check_weights(const char *dir, const struct model_shape *m, struct err *e)
{
    struct hf_weights *w = hf_weights_open(dir, m, e);
    if (!w) return -1;
    const int rc = hf_compare(w, dir, m, e);
    hf_weights_close(w);
    return rc;
}

static int64_t describe(const char *dir, char *out, size_t size, struct err *e)
{
    struct model_shape m;
    if (hf_read_dir(dir, &m, e) < 0) return -1;
    m.no_head = m.headless;
    if (!m.weightless && check_weights(dir, &m, e) < 0) return -1;
    int64_t n = hf_shape_json(&m, out, size);
    return n < 0 ? err_set(e, ERR_TOO_LARGE, "the description does not fit") : n;
}

int64_t hf_describe(const char *dir, char *out, size_t size, struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int64_t rc = describe(dir, out, size, e);
    model_file_leave(kept);
    return rc;
}
