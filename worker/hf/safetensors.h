/* safetensors.h: reads and writes safetensors, the file format of weights.
 *
 * A file begins with a little-endian u64 N. N bytes of JSON follow, padded with spaces, and
 * then the bytes of the tensors. The reader maps the file and checks all of it before it
 * returns. It checks the sizes in the header and every shape and product. Tensors must not
 * overlap or leave holes, names must be unique, and the last tensor must end at the end of the
 * file. How much memory is allocated depends on the size of the header and on ST_TENSORS, but
 * not on the numbers that are in the file. tested: tests/engine/test_safetensors.c,
 * tests/fuzz/fuzz_safetensors.c from: github.com/huggingface/safetensors,
 * safetensors/src/tensor.rs (accepts the same files as this reader) */
#ifndef SEQD_HF_SAFETENSORS_H
#define SEQD_HF_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/sha256.h"
#include "worker/gguf/gguf.h"

#define ST_TENSORS     131072 /* largest number of tensors in one file */
#define ST_DIMS        8
#define ST_NAME_SIZE   192
#define ST_HEADER_SIZE ((int64_t)100000000)

/* Element types in the order of the format. Writers sort tensors by type, with the last type
 * first. */
enum st_dtype {
    ST_BOOL,
    ST_U8,
    ST_I8,
    ST_I16,
    ST_U16,
    ST_F16,
    ST_BF16,
    ST_I32,
    ST_U32,
    ST_F32,
    ST_F64,
    ST_I64,
    ST_U64,
    ST_DTYPE_N, /* number of types in the format; only GGUF files have the types that follow */
    ST_Q8_0 = ST_DTYPE_N,
    ST_Q4_0,
    ST_Q4_1,
    ST_ALL_N
};
const char *st_dtype_name(enum st_dtype d); /* returns a name such as "F32" */
int64_t st_dtype_size(enum st_dtype d);     /* returns the size of an element in bytes, or 0
                                             * for the types of GGUF's blocks */
bool st_dtype_reads(enum st_dtype d);       /* returns true if st_read_part can read elements
                                             * of type d as fp32 */

struct st_tensor {
    char name[ST_NAME_SIZE];
    enum st_dtype dtype;
    int n_dims;
    int64_t dims[ST_DIMS];
    int64_t count;  /* elements */
    int64_t offset; /* offset of the tensor's first byte from the start of the file */
    int64_t size;   /* bytes */
    /* Both members are set only for tensors in a GGUF file. In some of these tensors, rows of
     * the first half of a head and rows of its second half alternate. For a tensor with such
     * heads, `heads` is the number of heads. For all other tensors `heads` is 0. If one_more
     * is true, a stored element is 1 plus the tensor's value. */
    int64_t heads;
    bool one_more;
};

struct faults;
struct gguf_arch;
struct st_file; /* a mapped, checked file */

/* Opens a file. Fails with ERR_CORRUPT if the file is damaged; the error names the file and
 * the tensor. Fails with ERR_UNSUPPORTED if seqd does not support an element type of the file
 * (F8, F4, C64, ...). Fails with ERR_INVALID if the file is not regular or if jobs may not
 * read it. Fails with ERR_TOO_LARGE if the file exceeds ST_TENSORS or another limit of this
 * header. Also fails with ERR_NOT_FOUND or ERR_IO. */
struct st_file *st_open(const char *path, struct err *e);
/* Opens a file as st_open does, and adds the file's faults to `faults`. If entries of the header
 * have faults, the faults of all entries are added. Otherwise only the first fault of the file is
 * added. Returns NULL if there is a fault. If faults is NULL, does the same as st_open. */
struct st_file *st_check(const char *path, struct faults *faults, struct err *e);
/* Makes an st_file from n tensors that are stored in a file of another format. The caller has
 * checked that the types of the tensors are readable and that the bytes of the tensors are
 * within the file. fd is duplicated. Takes ownership of the array `tensor` (allocated by
 * malloc), even after a failure. The parameter `arch` is a row of the table of architectures.
 * Fails with ERR_CORRUPT for a name that occurs twice, or with ERR_IO. */
struct st_file *st_adopt(const char *path, int fd, const struct gguf_arch *arch,
                         struct st_tensor *tensor, int n, struct err *e);
void st_close(struct st_file *f); /* accepts NULL */
const char *st_path(const struct st_file *f);
/* Returns the architecture of a GGUF file, or NULL for safetensors. */
const struct gguf_arch *st_arch(const struct st_file *f);
/* Returns the name that this file has for a tensor of transformers. The name may be written to
 * `room`. */
const char *st_named(const struct st_file *f, const char *name, char room[GGUF_NAME_SIZE]);

int st_count(const struct st_file *f);
/* Tensors are in ascending order of their names. */
const struct st_tensor *st_at(const struct st_file *f, int i);
/* returns NULL if the file has no tensor of this name */
const struct st_tensor *st_find(const struct st_file *f, const char *name);
/* The returned address may be unaligned. */
const void *st_data(const struct st_file *f, const struct st_tensor *t);

/* Returns true if the file stores the elements of the tensor unchanged, without blocks and in
 * the order of transformers. */
bool st_is_plain(const struct st_tensor *t);
/* Reads the whole tensor as fp32. BF16 and F16 are widened exactly. F32 is copied bit by bit.
 * Blocks are widened by worker/hf/blocks.h. Fails with ERR_UNSUPPORTED for any other type. Because
 * the bytes are read with pread, a file that was truncated after st_open gives ERR_CORRUPT instead
 * of SIGBUS. */
int st_read_f32(const struct st_file *f, const struct st_tensor *t, float *out, struct err *e);
/* Reads elements [at, at + n) of a tensor as fp32. */
int st_read_part(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                 float *out, struct err *e);
/* Returns true if blocks of the format `to` can represent the tensor's values exactly. `to` is
 * a word of model.weights, but not "model". The result is true if the tensor is in a GGUF file
 * and is stored there in blocks of the corresponding format. A scale beyond the range of fp16
 * becomes infinite. */
bool st_has_blocks(const struct st_tensor *t, enum weights_id to);
/* Reads elements [at, at + n) of a tensor for which st_has_blocks is true. out [quant_row(to, n)]
 * gets consecutive blocks (api/core/quant.h). at and n must be multiples of QUANT_K. */
int st_read_blocks(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                   enum weights_id to, uint8_t *out, struct err *e);
/* Reads the stored bytes [at, at + n) of a tensor. */
int st_read_bytes(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                  uint8_t *out, struct err *e);
/* Reads the whole tensor as `type`, which is ST_BF16 or ST_F16. A tensor of that type is copied
 * bit by bit. The values of any other type are rounded to nearest even. */
int st_read_half(const struct st_file *f, const struct st_tensor *t, enum st_dtype type,
                 uint16_t *out, struct err *e);

/* ---- writing --------------------------------------------------------------------------------- */

struct st_out { /* One tensor to write. The members name and data are borrowed for the call. */
    const char *name;
    enum st_dtype dtype;
    int n_dims;
    int64_t dims[ST_DIMS];
    const void *data;
    /* Called if data is NULL, to read elements [at, at + n) of the tensor in its dtype. n is at
     * most ST_CHUNK. */
    int (*read)(void *arg, int64_t at, int64_t n, void *out, struct err *e);
    void *arg;
    bool passed; /* if true, this tensor is not part of the digest of tensors */
};
#define ST_CHUNK 65536

/* Writes the file `path`, with `__metadata__` {"format":"pt"}. Writes "<path>.tmp" first,
 * fsyncs it and renames it. The caller fsyncs the directory. The bytes of the file depend only
 * on the items, and not on their order. On failure the .tmp file is removed. Fails with ERR_IO,
 * with ERR_NO_SPACE, or with ERR_TOO_LARGE if the file would exceed the limit on file sizes.
 * These errors name the file. Also fails with the error of an item's read. */
int st_write(const char *path, const struct st_out *items, int n, struct err *e);

struct st_digest {   /* digests of a file, computed while it is written */
    bool of_tensors; /* the caller sets it if `tensors` must be computed */
    char file[SHA256_HEX];
    char tensors[SHA256_HEX]; /* digest of the tensors in the order of the file, which is by type
                               * and then by name */
    int64_t size;             /* bytes of the file */
};
/* Writes as st_write does, and hashes the bytes while it writes. The caller's thread reads the
 * items, a second thread hashes them, and a third thread writes them. The call takes 4 MiB of
 * memory. Fills *out on success. If out is NULL, does the same as st_write. */
int st_write_hashed(const char *path, const struct st_out *items, int n, struct st_digest *out,
                    struct err *e);

#endif
