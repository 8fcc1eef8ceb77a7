/* safetensors.h: reads and writes safetensors, the file format of weights.
 *
 * A file consists of a u64 little-endian N; N bytes of JSON, padded with spaces; and the bytes of
 * the tensors. The reader maps the file and checks all of it before it returns: header sizes,
 * every shape and product, no overlap, no hole, no duplicate name, the last byte exactly at the
 * end of the file. The memory that is allocated is bounded by the header's size and ST_TENSORS,
 * and not by any number in the file.
 * tested: tests/engine/test_safetensors.c, tests/fuzz/fuzz_safetensors.c
 * from: github.com/huggingface/safetensors, safetensors/src/tensor.rs (accepts the same) */
#ifndef SEQD_HF_SAFETENSORS_H
#define SEQD_HF_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/sha256.h"
#include "worker/gguf/gguf.h"

#define ST_TENSORS     131072 /* most tensors in one file */
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
int64_t st_dtype_size(enum st_dtype d);     /* returns the bytes of an element, or 0 for the types
                                             * of GGUF's blocks */
bool st_dtype_reads(enum st_dtype d);       /* tells whether st_read_part reads it as fp32 */

struct st_tensor {
    char name[ST_NAME_SIZE];
    enum st_dtype dtype;
    int n_dims;
    int64_t dims[ST_DIMS];
    int64_t count;  /* elements */
    int64_t offset; /* offset of its first byte from the start of the file */
    int64_t size;   /* bytes */
    /* Set for tensors in a GGUF file. heads is the number of heads of a tensor in whose heads the
     * rows of the first and of the second half alternate. It is 0 for all other tensors. one_more
     * means that stored elements are 1 + the value. */
    int64_t heads;
    bool one_more;
};

struct faults;
struct gguf_arch;
struct st_file; /* a mapped, checked file */

/* Opens a file. Fails with ERR_CORRUPT if the file is damaged, naming the file and the tensor.
 * Fails with ERR_UNSUPPORTED for an element type of the format that seqd does not support (F8, F4,
 * C64, ...), and with ERR_INVALID for a file that is not regular or that jobs may not read. Also
 * fails with ERR_TOO_LARGE over a limit above, ERR_NOT_FOUND or ERR_IO. */
struct st_file *st_open(const char *path, struct err *e);
/* Opens a file as st_open does, and adds its faults to `faults`. If its entries have faults, all
 * of these are added. Otherwise only the first fault of the file is added. Returns NULL if there
 * is a fault. If faults is NULL, does the same as st_open. */
struct st_file *st_check(const char *path, struct faults *faults, struct err *e);
/* Makes a file of n tensors that lie in a file of another format. The caller has checked that
 * their types are readable and that they lie within the file. fd is duplicated. Takes ownership of
 * tensor (malloc'd), even after a failure. arch is a row of the table of architectures. Fails with
 * ERR_CORRUPT for a name that occurs twice, or with ERR_IO. */
struct st_file *st_adopt(const char *path, int fd, const struct gguf_arch *arch,
                         struct st_tensor *tensor, int n, struct err *e);
void st_close(struct st_file *f); /* accepts NULL */
const char *st_path(const struct st_file *f);
/* Returns the architecture of a GGUF file, or NULL for safetensors. */
const struct gguf_arch *st_arch(const struct st_file *f);
/* Returns the name that this file has for a tensor of transformers. The name may lie in room. */
const char *st_named(const struct st_file *f, const char *name, char room[GGUF_NAME_SIZE]);

int st_count(const struct st_file *f);
const struct st_tensor *st_at(const struct st_file *f, int i); /* ascending by name */
/* returns NULL if there is none */
const struct st_tensor *st_find(const struct st_file *f, const char *name);
const void *st_data(const struct st_file *f, const struct st_tensor *t); /* may be unaligned */

/* Tells whether the file stores the elements unchanged, without blocks and in the order of
 * transformers. */
bool st_is_plain(const struct st_tensor *t);
/* Reads the whole tensor as fp32. BF16 and F16 are widened exactly; F32 is copied bit by bit;
 * blocks are widened by worker/hf/blocks.h. Fails with ERR_UNSUPPORTED for any other type. Because
 * the bytes are read with pread, a file that was truncated after st_open gives ERR_CORRUPT instead
 * of SIGBUS. */
int st_read_f32(const struct st_file *f, const struct st_tensor *t, float *out, struct err *e);
/* Reads elements [at, at + n) of a tensor as fp32. */
int st_read_part(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                 float *out, struct err *e);
/* Tells whether blocks of format `to` (a word of model.weights other than "model") represent the
 * tensor's values exactly. This is so if the tensor is in a GGUF file, in blocks of the
 * corresponding format. (A scale beyond fp16's range becomes infinite.) */
bool st_has_blocks(const struct st_tensor *t, enum weights_id to);
/* Reads elements [at, at + n) of a tensor for which st_has_blocks is true, as consecutive blocks:
 * out [quant_row(to, n)] (api/core/quant.h). at and n must be multiples of QUANT_K. */
int st_read_blocks(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                   enum weights_id to, uint8_t *out, struct err *e);
/* Reads the stored bytes [at, at + n) of a tensor. */
int st_read_bytes(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                  uint8_t *out, struct err *e);
/* Reads the whole tensor as `type`, which is ST_BF16 or ST_F16. A tensor of that type is copied
 * bit by bit, and any other is rounded to nearest even. */
int st_read_half(const struct st_file *f, const struct st_tensor *t, enum st_dtype type,
                 uint16_t *out, struct err *e);

/* ---- writing --------------------------------------------------------------------------------- */

struct st_out { /* one tensor to write; borrows name and data for the call */
    const char *name;
    enum st_dtype dtype;
    int n_dims;
    int64_t dims[ST_DIMS];
    const void *data;
    /* Called if data is NULL: reads elements [at, at + n) of the tensor, in its dtype. n is at
     * most ST_CHUNK. */
    int (*read)(void *arg, int64_t at, int64_t n, void *out, struct err *e);
    void *arg;
    bool passed; /* whether it is left out of the digest of tensors */
};
#define ST_CHUNK 65536

/* Writes path with `__metadata__` {"format":"pt"}, by way of "<path>.tmp", which is fsynced and
 * renamed; the caller fsyncs the directory. The bytes of the file depend only on the items, and
 * not on their order. On failure the .tmp file is removed. Fails with ERR_IO, with ERR_NO_SPACE,
 * or with ERR_TOO_LARGE if the file would exceed the limit on file sizes; the error names the
 * file. Also fails with the error of an item's read. */
int st_write(const char *path, const struct st_out *items, int n, struct err *e);

struct st_digest {   /* digests of a file, computed while it is written */
    bool of_tensors; /* set by the caller to ask for `tensors` */
    char file[SHA256_HEX];
    char tensors[SHA256_HEX]; /* digest of the tensors in the order of the file: by type, then by
                               * name */
    int64_t size;             /* bytes of the file */
};
/* Writes as st_write does and hashes at the same time: the caller's thread reads the items, a
 * second thread hashes and a third writes. Memory is 4 MiB. Fills out on success. If out is NULL,
 * does the same as st_write. */
int st_write_hashed(const char *path, const struct st_out *items, int n, struct st_digest *out,
                    struct err *e);

#endif
