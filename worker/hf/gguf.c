/* gguf.c: assigns to the tensors of a GGUF file the names, the shapes and the order of rows
 * that these tensors have in transformers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "worker/gguf/gguf_names.h"
#include "worker/hf/weights.h"

static const enum st_dtype dtypes[GGUF_DTYPES] = {
    [GGUF_DT_F32] = ST_F32,   [GGUF_DT_F16] = ST_F16,   [GGUF_DT_BF16] = ST_BF16,
    [GGUF_DT_Q8_0] = ST_Q8_0, [GGUF_DT_Q4_0] = ST_Q4_0, [GGUF_DT_Q4_1] = ST_Q4_1};

struct head_counts {
    int64_t q, k; /* numbers of query and key heads */
};

/* Reads the numbers of heads. They are valid, because the caller has made a config.json of the
 * same keys before, which refuses invalid numbers. */
static struct head_counts read_heads(const struct gguf *g, const struct gguf_arch *a)
{
    struct head_counts h = {0};
    char name[GGUF_NAME_SIZE];
    snprintf(name, sizeof name, "%s.attention.head_count", a->name);
    const struct gguf_key *q = gguf_find(g, name);
    snprintf(name, sizeof name, "%s.attention.head_count_kv", a->name);
    const struct gguf_key *k = gguf_find(g, name);
    if (!q || !gguf_int(q, 0, &h.q)) h.q = 0;
    if (!k || !gguf_int(k, 0, &h.k)) h.k = h.q;
    return h;
}

static int take(const struct gguf *g, const struct gguf_tensor *from, const struct gguf_place *at,
                const struct head_counts *heads, struct st_tensor *t, struct err *e)
{
    *t = (struct st_tensor){.dtype = dtypes[from->dtype],
                            .n_dims = from->n_dims,
                            .count = 1,
                            .offset = from->offset,
                            .size = from->size,
                            .one_more = at->one_more};
    memcpy(t->name, at->name, sizeof t->name);
    for (int i = 0; i < from->n_dims; i++) {
        t->dims[i] = from->dims[i];
        t->count *= from->dims[i]; /* this does not overflow, as gguf_open has checked */
    }
    t->heads = at->q ? heads->q : at->k ? heads->k : 0;
    if (!at->q && !at->k) return 0;
    if (t->heads > 0 && t->heads <= t->dims[0] && t->dims[0] % (2 * t->heads) == 0) return 0;
    return err_set(e, ERR_CORRUPT,
                   "%s: tensor %s has %lld rows, which %lld heads of two halves do not divide: "
                   "fetch the file again",
                   gguf_path(g), from->name, (long long)t->dims[0], (long long)t->heads);
}

struct st_file *hf_gguf_open(const char *path, struct err *e)
{
    struct gguf *g = gguf_open(path, e);
    const struct gguf_arch *a = g ? gguf_arch(g, e) : NULL;
    const int all = a ? gguf_tensors(g) : 0;
    struct st_tensor *list = a ? calloc((size_t)all + 1, sizeof *list) : NULL;
    const struct head_counts heads = a ? read_heads(g, a) : (struct head_counts){0};
    struct st_file *f = NULL;
    int n = 0, rc = a ? 0 : -1;
    if (a && !list) rc = err_set(e, ERR_IO, "out of memory for the tensors of %s", path);
    for (int i = 0; rc == 0 && i < all; i++) {
        const struct gguf_tensor *t = gguf_tensor(g, i);
        struct gguf_place place;
        gguf_place(a, t->name, &place);
        if (!place.passed) rc = take(g, t, &place, &heads, &list[n++], e);
    }
    if (rc == 0)
        f = st_adopt(path, gguf_fd(g), a, list, n, e);
    else
        free(list);
    gguf_close(g);
    return f;
}
