/* write.c: writes weights of the flat layout as tensors of a file, block by block, and computes
 * digests of weights. */
#include "worker/hf/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/sha256.h"
#include "kernels/half.h"
#include "worker/family/family.h"
#include "worker/hf/files.h"
#include "worker/hf/halves.h"
#include "worker/hf/safetensors.h"
#include "worker/hf/tokenizer.h"

static const void *element(const struct hf_flat *f, int64_t i)
{
    return (const char *)f->data + i * dtype_size(f->dtype);
}

struct named { /* one tensor of a flat array, for the writer */
    char text[ST_NAME_SIZE];
    const struct hf_flat *flat;
    const struct param *param;
    char *block;    /* a block in the file's order; used if the tensor is written by blocks. It is
                     * owned unless the array brings memory for blocks */
    int64_t number; /* index of the block that is in `block` */
};

/* Reads elements [offset, offset + n) of the flat layout, in the array's dtype. */
static int read_here(const struct named *t, int64_t offset, int64_t n, void *out, struct err *e)
{
    const struct hf_flat *f = t->flat;
    if (f->data) {
        memcpy(out, element(f, offset), (size_t)(n * dtype_size(f->dtype)));
        return 0;
    }
    if (f->dtype == DT_F32) return f->read(f->arg, offset, n, out, e);
    float *x = malloc((size_t)n * sizeof *x);
    int rc = x ? f->read(f->arg, offset, n, x, e)
               : err_set(e, ERR_IO, "out of memory for a piece of %s", t->text);
    if (rc == 0) half_narrow(f->dtype, x, out, n);
    free(x);
    return rc;
}

static void free_block(struct named *t)
{
    if (t->flat && !t->flat->blocks) free(t->block);
    t->block = NULL;
}

/* Loads block b, in the file's order, into t->block. */
static int load_block(struct named *t, int64_t b, struct err *e)
{
    const struct param *p = t->param;
    const int64_t unit = dtype_size(t->flat->dtype), size = hf_block_size(p);
    char *const room = t->flat->blocks;
    char *ours = room ? room + size * unit : malloc((size_t)(size * unit));
    int rc = 0;
    if (!t->block) t->block = room ? room : malloc((size_t)(size * unit));
    if (!ours || !t->block) rc = err_set(e, ERR_IO, "out of memory for %s", t->text);
    for (int64_t at = 0; rc == 0 && at < size; at += ST_CHUNK) {
        const int64_t n = size - at < ST_CHUNK ? size - at : ST_CHUNK;
        rc = read_here(t, p->offset + b * size + at, n, ours + at * unit, e);
    }
    if (rc == 0) hf_block_in_file(p, ours, t->block, unit);
    t->number = b;
    if (!room) free(ours);
    return rc;
}

static int read_blocks(struct named *t, int64_t at, int64_t n, char *out, struct err *e)
{
    const int64_t unit = dtype_size(t->flat->dtype), size = hf_block_size(t->param);
    for (int64_t done = 0; done < n;) {
        const int64_t b = (at + done) / size, from = (at + done) % size;
        const int64_t k = n - done < size - from ? n - done : size - from;
        if ((!t->block || t->number != b) && load_block(t, b, e) < 0) return -1;
        memcpy(out + done * unit, t->block + from * unit, (size_t)(k * unit));
        done += k;
    }
    if (at + n >= t->param->count) free_block(t);
    return 0;
}

/* Reads elements [at, at + n) of the tensor in the file's order. */
static int read_named(void *arg, int64_t at, int64_t n, void *out, struct err *e)
{
    struct named *t = arg;
    if (hf_by_blocks(t->param)) return read_blocks(arg, at, n, out, e);
    const int64_t size = hf_run_size(t->param), unit = dtype_size(t->flat->dtype);
    for (int64_t done = 0; done < n;) {
        const int64_t run = (at + done) / size, in_run = (at + done) % size;
        const int64_t k = n - done < size - in_run ? n - done : size - in_run;
        const int64_t here = t->param->offset + hf_run_here(t->param, run) * size + in_run;
        if (read_here(t, here, k, (char *)out + done * unit, e) < 0) return -1;
        done += k;
    }
    return 0;
}

/* Makes the item of a tensor. The parameter `base` is the number of bytes to remove from the
 * beginning of the tensor's name. */
static struct st_out item_of(struct named *t, const struct param *p, size_t base)
{
    static const enum st_dtype stored[] = {
        [DT_F32] = ST_F32, [DT_BF16] = ST_BF16, [DT_F16] = ST_F16};
    const struct hf_flat *f = t->flat;
    struct st_out item = {.name = t->text,
                          .dtype = stored[f->dtype],
                          .n_dims = p->n_dims ? p->n_dims
                                    : p->cols ? 2
                                              : 1,
                          .dims = {p->rows, p->cols},
                          .read = read_named,
                          .arg = t};
    t->param = p;
    snprintf(t->text, sizeof t->text, "%s%s", !base && f->outer ? f->outer : f->prefix,
             p->name + base);
    if (p->n_dims) memcpy(item.dims, p->dims, sizeof p->dims);
    if (!p->head_major_parts && !hf_by_blocks(p) && f->data) item.data = element(f, p->offset);
    return item;
}

/* Returns the number of bytes to remove from the beginning of a weight's name, so that weights
 * have the names that they had in the directory from which they were read. */
static size_t left_out(const struct model_shape *m, const struct hf_flat *f, const struct param *p)
{
    const char *base = family_base(m);
    const bool bare = f->bare || (m->unprefixed && !*f->prefix);
    return bare && !strncmp(p->name, base, strlen(base)) ? strlen(base) : 0;
}

int hf_write_flats(const char *path, const struct model_shape *m, const struct hf_flat *flats,
                   int n_flats, struct st_digest *written, struct err *e)
{
    int n, rc = -1;
    struct param *params = hf_sorted(m, &n, e);
    if (!params) return -1;
    if (flats->trained) n = hf_trained(params, n);
    if (flats->of_base) n = hf_of_base(params, n);
    for (int i = 0; i < n && flats->gradient; i++) params[i].offset = params[i].grad_offset;
    const struct hf_halves *h = flats->halves;
    const int n_ours = n * n_flats, n_passed = hf_halves_count(h);
    struct st_out *items = calloc((size_t)n_ours + (size_t)n_passed, sizeof *items);
    struct named *names = calloc((size_t)n * (size_t)n_flats, sizeof *names);
    if (items && names) {
        for (int i = 0; i < n * n_flats; i++) {
            names[i].flat = &flats[i / n];
            items[i] = item_of(&names[i], &params[i % n],
                               left_out(m, &flats[i / n], &params[i % n]));
        }
        for (int i = 0; h && i < n_ours; i++) items[i].name = hf_halves_name(h, params[i].name);
        for (int i = 0; i < n_passed; i++) items[n_ours + i] = hf_halves_item(h, i);
        rc = st_write_hashed(path, items, n_ours + n_passed, written, e);
    } else {
        err_set(e, ERR_IO, "%s: out of memory", path);
    }
    /* after a failure, a block may not have been freed yet */
    for (int i = 0; names && i < n * n_flats; i++) free_block(&names[i]);
    free(names);
    free(items);
    free(params);
    return rc;
}

static int write_beside(const char *dir, const struct model_shape *m, enum dtype dtype,
                        const struct hf_beside *b, struct err *e)
{
    struct hf_beside is = b ? *b : (struct hf_beside){.bytes = true};
    struct hf_files files;
    int32_t tokenizer = TOKENIZER_NONE;
    if (is.from && hf_tokenizer_of(is.from, &tokenizer, e) < 0) return -1;
    is.bytes = is.bytes && tokenizer != TOKENIZER_BYTE && m->vocab >= JOB_BYTE_VOCAB;
    const struct hf_take take = {is.from, dir, !is.bytes, is.still, is.arg};
    if (is.from && hf_take_files(&take, &files, e) < 0) return -1;
    if (hf_config_write(dir, m, dtype, &is, e) < 0) return -1;
    return is.bytes ? tokenizer_write(dir, e) : 0;
}

int hf_save_flat(const char *dir, const struct model_shape *m, const struct hf_flat *weights,
                 const struct hf_beside *b, struct st_digest *written, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct hf_halves *halves = NULL;
    struct hf_flat flat = *weights;
    if (written) written->of_tensors = true;
    if (file_make_dir(dir, e) < 0 || write_beside(dir, m, weights->dtype, b, e) < 0) return -1;
    if (file_join(path, e, "%s/model.safetensors", dir) < 0) return -1;
    if (b && b->from && hf_halves_open(b->from, m, b->still, b->arg, &halves, e) < 0) return -1;
    flat.halves = halves;
    flat.of_base = true;
    const int rc = hf_write_flats(path, m, &flat, 1, written, e);
    hf_halves_close(halves);
    return rc < 0 ? -1 : file_sync_dir(dir, e);
}

int hf_flat_digest(const struct model_shape *m, const struct hf_flat *weights, char out[65],
                   struct err *e)
{
    const int64_t unit = dtype_size(weights->dtype);
    int n;
    struct sha256 sha;
    struct param *p = hf_sorted(m, &n, e);
    char *piece = p ? malloc(ST_CHUNK * sizeof(float)) : NULL;
    int rc = piece ? 0 : err_set(e, ERR_IO, "out of memory for a digest");
    sha256_init(&sha);
    for (int i = 0; rc == 0 && i < n; i++) {
        struct named t = {.flat = weights, .param = &p[i]};
        for (int64_t at = 0; rc == 0 && at < p[i].count; at += ST_CHUNK) {
            const int64_t k = p[i].count - at < ST_CHUNK ? p[i].count - at : ST_CHUNK;
            rc = read_named(&t, at, k, piece, e);
            if (rc == 0) sha256_add(&sha, piece, (size_t)(k * unit));
        }
        free_block(&t); /* after a failure, the block may not have been freed yet */
    }
    if (m->quant) { /* a product with weights in blocks does not have the same bits as a
                     * product with equal weights in fp32, so the digests of the two models
                     * must differ */
        const char *word = spec_weights_words[m->quant];
        sha256_add(&sha, word, strlen(word));
    }
    if (rc == 0) sha256_hex(&sha, out);
    free(piece);
    free(p);
    return rc;
}
