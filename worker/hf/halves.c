/* halves.c: finds the tensors of a wrapper's other half, and writes these tensors and the names of
 * the text model's tensors to model.safetensors. */
#include "worker/hf/halves.h"

#include <stdlib.h>
#include <string.h>
#include "worker/family/family.h"
#include "worker/hf/files.h"
#include "worker/hf/weights.h"

struct passed { /* a tensor of the other half */
    const struct hf_halves *all;
    struct st_file *file;
    const struct st_tensor *tensor;
};

struct hf_halves {
    struct hf_weights *w;  /* owned */
    struct passed *passed; /* owned */
    int n;
    void (*still)(void *arg);
    void *arg;
};

static bool passes(const struct family_row *row, const char *stored)
{
    for (const char *const *start = row->passed; start && *start; start++)
        if (hf_starts_with(stored, *start)) return true;
    return false;
}

static int add_passed(struct hf_halves *h, const struct hf_entry *x, struct err *e)
{
    struct passed *p = &h->passed[h->n];
    p->all = h;
    p->file = h->w->file[x->shard];
    p->tensor = p->file ? st_find(p->file, x->stored) : NULL;
    if (!p->tensor)
        return err_set(e, ERR_INVALID, "%s: %s is not in the file that the index names", h->w->path,
                       x->stored);
    h->n++;
    return 0;
}

static int find_passed(struct hf_halves *h, const struct family_row *row, struct err *e)
{
    h->passed = calloc((size_t)h->w->n + 1, sizeof *h->passed);
    if (!h->passed) return err_set(e, ERR_IO, "out of memory for %s", h->w->path);
    for (int i = 0; i < h->w->n; i++)
        if (passes(row, h->w->entry[i].stored) && add_passed(h, &h->w->entry[i], e) < 0) return -1;
    return 0;
}

int hf_halves_open(const char *dir, const struct model_shape *m, void (*still)(void *arg),
                   void *arg, struct hf_halves **out, struct err *e)
{
    const struct family_row *row = family_row(m);
    bool weightless = true;
    *out = NULL;
    if (!row || !row->passed) return 0;
    if (hf_weightless(dir, &weightless, e) < 0) return -1;
    struct hf_halves *h = weightless ? NULL : calloc(1, sizeof *h);
    if (weightless) return 0;
    if (!h) return err_set(e, ERR_IO, "out of memory for %s", dir);
    h->still = still;
    h->arg = arg;
    int rc = (h->w = hf_weights_open(dir, m, e)) ? find_passed(h, row, e) : -1;
    if (rc < 0 || !h->n)
        hf_halves_close(h);
    else
        *out = h;
    return rc;
}

void hf_halves_close(struct hf_halves *h)
{
    if (!h) return;
    if (h->w) hf_weights_close(h->w);
    free(h->passed);
    free(h);
}

const char *hf_halves_name(const struct hf_halves *h, const char *name)
{
    const struct hf_entry *x = hf_entry_of(h->w, name);
    return x ? x->stored : name;
}

int hf_halves_count(const struct hf_halves *h)
{
    return h ? h->n : 0;
}

static int read_passed(void *arg, int64_t at, int64_t n, void *out, struct err *e)
{
    const struct passed *p = arg;
    const int64_t unit = st_dtype_size(p->tensor->dtype);
    if (p->all->still) p->all->still(p->all->arg);
    return st_read_bytes(p->file, p->tensor, at * unit, n * unit, out, e);
}

struct st_out hf_halves_item(const struct hf_halves *h, int i)
{
    const struct st_tensor *t = h->passed[i].tensor;
    struct st_out item = {.name = t->name,
                          .dtype = t->dtype,
                          .n_dims = t->n_dims,
                          .read = read_passed,
                          .arg = &h->passed[i],
                          .passed = true};
    memcpy(item.dims, t->dims, sizeof item.dims);
    return item;
}

/* Makes an empty tensor with this name. */
static struct st_out name_item(const char *name)
{
    static const uint8_t none;
    return (struct st_out){.name = name, .dtype = ST_U8, .n_dims = 1, .dims = {0}, .data = &none};
}

static int write_halves(const struct hf_halves *h, const char *path, struct err *e)
{
    struct st_out *items = calloc((size_t)h->w->n, sizeof *items);
    int n = 0;
    if (!items) return err_set(e, ERR_IO, "%s: out of memory", path);
    for (int i = 0; i < h->n; i++) items[n++] = hf_halves_item(h, i);
    for (int i = 0; i < h->w->n; i++)
        if (!passes(family_row(h->w->m), h->w->entry[i].stored))
            items[n++] = name_item(h->w->entry[i].stored);
    const int rc = st_write(path, items, n, e);
    free(items);
    return rc;
}

int hf_halves_take(const struct hf_take *t, const struct model_shape *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct hf_halves *h;
    if (hf_halves_open(t->from, m, t->still, t->arg, &h, e) < 0) return -1;
    if (!h) return 0;
    int rc = file_join(path, e, "%s/model.safetensors", t->to);
    if (rc == 0) rc = write_halves(h, path, e);
    hf_halves_close(h);
    return rc < 0 ? -1 : file_sync_dir(t->to, e);
}
