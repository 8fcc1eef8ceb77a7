/* safetensors_write.c: writes the header, then each tensor piece by piece. If asked, it hashes the
 * file and its tensors at the same time. */
#include "worker/hf/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/jwrite.h"
#include "kernels/cpu/pool.h"

static int64_t size_of(const struct st_out *o)
{
    int64_t n = st_dtype_size(o->dtype);
    for (int i = 0; i < o->n_dims; i++) n *= o->dims[i];
    return n;
}

/* Compares as the official writer does: by type, the last one first, then by name. */
static int by_rule(const void *a, const void *b)
{
    const struct st_out *x = *(const struct st_out *const *)a,
                        *y = *(const struct st_out *const *)b;
    if (x->dtype != y->dtype) return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Writes the header; size 0 only measures it. Returns the length. */
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

struct st_writer {
    struct file_out out;
    struct pool *pool; /* runs the tasks of a piece; NULL: they run one after the other */
    bool hashed;       /* digests are asked for */
    bool of_tensors;   /* the digest of tensors is asked for, too */
    struct sha256 file, tensors;
    /* The piece that is being written, and the result. */
    const void *at;
    int64_t size;
    int rc;
    struct err *e;
};

/* Tasks of a piece. They only read it, so they can run at the same time. */
enum piece_task { PIECE_HASH, PIECE_WRITE, PIECE_TENSORS };

static void piece_task(void *arg, int64_t task, int worker)
{
    struct st_writer *w = arg;
    (void)worker;
    switch ((enum piece_task)task) {
    case PIECE_HASH: sha256_add(&w->file, w->at, (size_t)w->size); break;
    case PIECE_WRITE: w->rc = file_out_add(&w->out, w->at, (size_t)w->size, w->e); break;
    case PIECE_TENSORS: sha256_add(&w->tensors, w->at, (size_t)w->size); break;
    }
}

static int write_piece(struct st_writer *w, const void *at, int64_t size, bool of_tensor,
                       struct err *e)
{
    if (!w->hashed) return file_out_add(&w->out, at, (size_t)size, e);
    w->at = at;
    w->size = size;
    w->e = e;
    pool_run(w->pool, piece_task, w, of_tensor && w->of_tensors ? 3 : 2);
    return w->rc;
}

static int write_header(struct st_writer *w, const struct st_out *const *items, int n,
                        struct err *e)
{
    int64_t len = header_json(items, n, NULL, 0), padded = (len + 7) / 8 * 8;
    uint8_t head[8];
    char *text = malloc((size_t)padded + 1);
    if (!text) return err_set(e, ERR_IO, "%s: out of memory", w->out.path);
    header_json(items, n, text, (size_t)len + 1);
    memset(text + len, ' ', (size_t)(padded - len));
    for (int i = 0; i < 8; i++) head[i] = (uint8_t)((uint64_t)padded >> 8 * i);
    int64_t all = 8 + padded;
    for (int i = 0; i < n; i++) all += size_of(items[i]);
    int rc = file_out_expect(&w->out, all, e);
    if (rc == 0) rc = write_piece(w, head, 8, false, e);
    if (rc == 0) rc = write_piece(w, text, padded, false, e);
    free(text);
    return rc;
}

/* Writes a tensor piece by piece, so that one pass over memory serves all tasks. If the tensor has
 * no data, o->read fills `piece`. */
static int write_tensor(struct st_writer *w, const struct st_out *o, char *piece, struct err *e)
{
    const int64_t unit = st_dtype_size(o->dtype), count = size_of(o) / unit;
    for (int64_t at = 0; at < count; at += ST_CHUNK) {
        const int64_t n = count - at < ST_CHUNK ? count - at : ST_CHUNK;
        const char *from = o->data ? (const char *)o->data + at * unit : piece;
        if (!o->data && o->read(o->arg, at, n, piece, e) < 0) return -1;
        if (write_piece(w, from, n * unit, !o->passed, e) < 0) return -1;
    }
    return 0;
}

static int write_all(struct st_writer *w, const struct st_out *const *items, int n, struct err *e)
{
    char *piece = malloc(ST_CHUNK * sizeof(int64_t));
    int rc = piece ? 0 : err_set(e, ERR_IO, "%s: out of memory", w->out.path);
    if (rc == 0) rc = write_header(w, items, n, e);
    for (int i = 0; rc == 0 && i < n; i++) rc = write_tensor(w, items[i], piece, e);
    free(piece);
    return rc == 0 ? file_out_close(&w->out, NULL, e) : rc;
}

static int write_file(struct st_writer *w, const char *path, const struct st_out *const *items,
                      int n, struct err *e)
{
    char tmp[FILE_PATH_SIZE];
    if (file_join(tmp, e, "%s.tmp", path) < 0 || file_out_open(&w->out, tmp, e) < 0) return -1;
    w->out.unhashed = true; /* st_writer hashes instead, if asked */
    if (write_all(w, items, n, e) < 0) {
        file_out_abort(&w->out);
        return -1;
    }
    if (rename(tmp, path) == 0) return 0;
    err_errno(e, "rename %s", path);
    unlink(tmp);
    return -1;
}

int st_write_hashed(const char *path, const struct st_out *items, int n, struct st_digest *out,
                    struct err *e)
{
    struct st_writer w = {.hashed = out, .of_tensors = out && out->of_tensors};
    const struct st_out **sorted = calloc(n ? (size_t)n : 1, sizeof *sorted);
    if (!sorted) return err_set(e, ERR_IO, "%s: out of memory", path);
    for (int i = 0; i < n; i++) sorted[i] = &items[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_rule);
    sha256_init(&w.file);
    sha256_init(&w.tensors);
    if (w.hashed) w.pool = pool_open(w.of_tensors ? 3 : 2, NULL, NULL);
    const int rc = write_file(&w, path, sorted, n, e);
    pool_close(w.pool);
    free(sorted);
    if (!out) return rc;
    sha256_hex(&w.file, out->file);
    sha256_hex(&w.tensors, out->tensors);
    out->size = w.out.size;
    return rc;
}

int st_write(const char *path, const struct st_out *items, int n, struct err *e)
{
    return st_write_hashed(path, items, n, NULL, e);
}
