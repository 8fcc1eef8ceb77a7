/* elements.c: finds the tensor of an element, and reads runs or blocks of it. */
#include "worker/hf/elements.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/adapter.h"
#include "worker/hf/stored.h"

struct hf_elements {
    struct gguf *kept;               /* owned */
    struct hf_weights *w;            /* owned */
    struct adapter_reading *adapter; /* owned */
    struct param *list;              /* owned: in the order of offsets */
    int n;
    const struct param *at; /* the tensor that was read last, and its elements in the files */
    struct hf_stored stored;
    float *room;   /* a block in the file's order, then a block in the flat layout's order */
    int64_t block; /* index of the block in room; -1 if there is none */
    int64_t used;
};

static int open_all(struct hf_elements *x, const char *dir, const char *adapter,
                    const struct model_shape *m, struct err *e)
{
    if (!(x->list = hf_list(m, &x->n, e)) || !(x->w = hf_weights_open(dir, m, e))) return -1;
    if (hf_compare(x->w, dir, m, e) || hf_check_tied(x->w, m, NULL, e)) return -1;
    x->adapter = adapter_open(adapter, m, e);
    return x->adapter ? 0 : -1;
}

struct hf_elements *hf_elements_open(const char *dir, const char *adapter,
                                     const struct model_shape *m, float *room, struct err *e)
{
    struct hf_elements *x = calloc(1, sizeof *x);
    if (!x) {
        err_set(e, ERR_IO, "out of memory for %s", dir);
        return NULL;
    }
    x->kept = model_file_keep(dir);
    x->room = room;
    x->block = -1;
    if (!open_all(x, dir, adapter, m, e)) return x;
    hf_elements_close(x);
    return NULL;
}

void hf_elements_close(struct hf_elements *x)
{
    if (!x) return;
    adapter_close(x->adapter);
    if (x->w) hf_weights_close(x->w);
    model_file_leave(x->kept);
    free(x->list);
    free(x);
}

int64_t hf_elements_used(const struct hf_elements *x)
{
    return x->used;
}

static int compare(const void *key, const void *element)
{
    const int64_t offset = *(const int64_t *)key;
    const struct param *p = element;
    return offset < p->offset ? -1 : offset >= p->offset + p->count;
}

/* Turns to the tensor that has element `offset`. */
static void turn(struct hf_elements *x, int64_t offset)
{
    if (x->at && !compare(&offset, x->at)) return;
    x->at = bsearch(&offset, x->list, (size_t)x->n, sizeof *x->list, compare);
    assert(x->at);
    x->block = -1;
    x->stored = (struct hf_stored){0};
    x->stored.t = adapter_find(x->adapter, x->at, &x->stored.f);
    if (!x->stored.t) x->stored = hf_stored_find(x->w, x->at);
}

/* Reads a block, and puts it into the order of the flat layout. */
static int load_block(struct hf_elements *x, int64_t b, struct err *e)
{
    const int64_t size = hf_block_size(x->at);
    x->block = -1;
    if (hf_stored_read(&x->stored, b * size, size, x->room, e)) return -1;
    hf_block_here(x->at, x->room, x->room + size, sizeof *x->room,
                  x->stored.t && x->at->transposed);
    x->block = b;
    if (2 * size > x->used) x->used = 2 * size;
    return 0;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Reads elements [at, at + n) of a tensor that is read by blocks. */
static int read_blocks(struct hf_elements *x, int64_t at, int64_t n, float *out, struct err *e)
{
    const int64_t size = hf_block_size(x->at);
    assert(x->room);
    for (int64_t done = 0; done < n;) {
        const int64_t b = (at + done) / size, from = (at + done) % size;
        const int64_t k = least(n - done, size - from);
        if (b != x->block && load_block(x, b, e)) return -1;
        memcpy(out + done, x->room + size + from, (size_t)k * sizeof *out);
        done += k;
    }
    return 0;
}

int hf_elements_read(struct hf_elements *x, int64_t offset, int64_t n, float *out, struct err *e)
{
    turn(x, offset);
    const int64_t at = offset - x->at->offset, size = hf_run_size(x->at);
    assert(at + n <= x->at->count);
    if (hf_by_blocks(x->at)) return read_blocks(x, at, n, out, e);
    for (int64_t done = 0; done < n;) {
        const int64_t run = (at + done) / size, in_run = (at + done) % size;
        const int64_t k = least(n - done, size - in_run);
        const int64_t from = hf_run_in_file(x->at, run) * size + in_run;
        if (hf_stored_read(&x->stored, from, k, out + done, e)) return -1;
        done += k;
    }
    return 0;
}
