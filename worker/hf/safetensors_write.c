/* The writing half of safetensors.h. */
#include "worker/hf/safetensors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/jwrite.h"

static int64_t size_of(const struct st_out *o)
{
    int64_t n = st_dtype_size(o->dtype);
    for (int i = 0; i < o->n_dims; i++) n *= o->dims[i];
    return n;
}

/* The official writer's order: wide types first, then by name. */
static int by_rule(const void *a, const void *b)
{
    const struct st_out *x = *(const struct st_out *const *)a,
                        *y = *(const struct st_out *const *)b;
    if (x->dtype != y->dtype) return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* With size 0 it only measures. Returns the length. */
static int64_t header_json(const struct st_out *const *items, int n, char *out, size_t size)
{
    struct jwrite w;
    int64_t at = 0;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_object(&w, "__metadata__");
    jwrite_str(&w, "format", "pt");
    jwrite_end(&w);
    for (int i = 0; i < n; i++) {
        jwrite_object(&w, items[i]->name);
        jwrite_str(&w, "dtype", st_dtype_name(items[i]->dtype));
        jwrite_array(&w, "shape");
        for (int d = 0; d < items[i]->n_dims; d++) jwrite_int(&w, NULL, items[i]->dims[d]);
        jwrite_end(&w);
        jwrite_array(&w, "data_offsets");
        jwrite_int(&w, NULL, at);
        jwrite_int(&w, NULL, at += size_of(items[i]));
        jwrite_end(&w);
        jwrite_end(&w);
    }
    jwrite_end(&w);
    jwrite_finish(&w);
    return (int64_t)w.len;
}

static int write_header(struct file_out *f, const struct st_out *const *items, int n, struct err *e)
{
    int64_t len = header_json(items, n, NULL, 0), padded = (len + 7) / 8 * 8;
    uint8_t head[8];
    char *text = malloc((size_t)padded + 1);
    if (!text) return err_set(e, ERR_IO, "%s: out of memory", f->path);
    header_json(items, n, text, (size_t)len + 1);
    memset(text + len, ' ', (size_t)(padded - len));
    for (int i = 0; i < 8; i++) head[i] = (uint8_t)((uint64_t)padded >> 8 * i);
    int rc = file_out_add(f, head, 8, e);
    if (rc == 0) rc = file_out_add(f, text, (size_t)padded, e);
    free(text);
    return rc;
}

/* What does not lie here is asked for, a piece at a time. */
static int write_pieces(struct file_out *f, const struct st_out *o, struct err *e)
{
    const int64_t unit = st_dtype_size(o->dtype), count = size_of(o) / unit;
    char *piece = malloc((size_t)(ST_CHUNK * unit));
    int rc = piece ? 0 : err_set(e, ERR_IO, "%s: out of memory", f->path);
    for (int64_t at = 0; rc == 0 && at < count; at += ST_CHUNK) {
        const int64_t n = count - at < ST_CHUNK ? count - at : ST_CHUNK;
        rc = o->read(o->arg, at, n, piece, e);
        if (rc == 0) rc = file_out_add(f, piece, (size_t)(n * unit), e);
    }
    free(piece);
    return rc;
}

static int write_tensor(struct file_out *f, const struct st_out *o, struct err *e)
{
    return o->data ? file_out_add(f, o->data, (size_t)size_of(o), e) : write_pieces(f, o, e);
}

static int write_all(struct file_out *f, const struct st_out *const *items, int n, struct err *e)
{
    if (write_header(f, items, n, e) < 0) return -1;
    for (int i = 0; i < n; i++)
        if (write_tensor(f, items[i], e) < 0) return -1;
    return file_out_close(f, NULL, e);
}

int st_write(const char *path, const struct st_out *items, int n, struct err *e)
{
    struct file_out f;
    char tmp[FILE_PATH_SIZE];
    int rc = -1;
    const struct st_out **sorted = calloc(n ? (size_t)n : 1, sizeof *sorted);
    if (!sorted) return err_set(e, ERR_IO, "%s: out of memory", path);
    for (int i = 0; i < n; i++) sorted[i] = &items[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_rule);
    if (file_join(tmp, e, "%s.tmp", path) == 0 && file_out_open(&f, tmp, e) == 0) {
        rc = write_all(&f, sorted, n, e);
        if (rc < 0)
            file_out_abort(&f);
        else if (rename(tmp, path) < 0) {
            rc = err_errno(e, "rename %s", path);
            unlink(tmp);
        }
    }
    free(sorted);
    return rc;
}
