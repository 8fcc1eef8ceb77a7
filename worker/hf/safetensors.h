/* safetensors.h: reads and writes the file format of weights.
 *
 * A file is: u64 little-endian N; N bytes of JSON, padded with spaces; the tensors' bytes. The
 * reader maps the file and checks all of it before it returns: header sizes, every shape and
 * product, no overlap, no hole, no duplicate name, the last byte exactly at the end of the file.
 * The header's size and ST_TENSORS bound the memory that is allocated; no number in the file does.
 *
 * tested: tests/engine/test_safetensors.c, tests/fuzz/fuzz_safetensors.c
 * from: github.com/huggingface/safetensors, safetensors/src/tensor.rs (accepts the same) */
#ifndef SEQD_HF_SAFETENSORS_H
#define SEQD_HF_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/sha256.h"

#define ST_TENSORS     131072 /* most tensors in one file */
#define ST_DIMS        8
#define ST_NAME_SIZE   192
#define ST_HEADER_SIZE ((int64_t)100000000)

/* Element types in the format's own order. Writers sort tensors by type, the last type first. */
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
    ST_DTYPE_N, /* number of the format's types; only GGUF files have the next types */
    ST_Q8_0 = ST_DTYPE_N,
    ST_Q4_0,
    ST_Q4_1,
    ST_ALL_N
};
const char *st_dtype_name(enum st_dtype d); /* returns a name such as "F32" */
int64_t st_dtype_size(enum st_dtype d);     /* bytes of an element; 0 for GGUF's blocks */
bool st_dtype_reads(enum st_dtype d);       /* tells whether st_read_part reads it as fp32 */

struct st_tensor {
    char name[ST_NAME_SIZE];
    enum st_dtype dtype;
    int n_dims;
    int64_t dims[ST_DIMS];
    int64_t count;  /* elements */
    int64_t offset; /* offset of its first byte from the start of the file */
    int64_t size;   /* bytes */
    /* Set for tensors in a GGUF file. heads: number of heads, in each of which rows of its first
     * and second half alternate; 0: they do not. one_more: stored elements are 1 + the value. */
    int64_t heads;
    bool one_more;
};

struct faults;
struct st_file; /* a mapped, checked file */

/* Opens a file. fails: ERR_NOT_FOUND, ERR_IO, ERR_CORRUPT naming the file and the tensor,
 * ERR_UNSUPPORTED for an element type of the format that is not supported (F8, F4, C64, ...),
 * ERR_TOO_LARGE over a limit above, ERR_INVALID for a file that is not regular or that jobs may
 * not read. */
struct st_file *st_open(const char *path, struct err *e);
/* Opens a file as st_open does, and adds its faults to `faults`. These are all faults of its
 * entries or, if the entries have none, the first fault of the file. Returns NULL if there is a
 * fault. faults NULL: as st_open. */
struct st_file *st_check(const char *path, struct faults *faults, struct err *e);
/* Takes n tensors of a file of another format. The caller has checked that their types are
 * readable and that they lie within the file. fd is duplicated. Takes ownership of tensor
 * (malloc'd), even after a failure. fails: ERR_CORRUPT for a name that occurs twice, ERR_IO. */
struct st_file *st_adopt(const char *path, int fd, struct st_tensor *tensor, int n, struct err *e);
void st_close(struct st_file *f); /* NULL allowed */
const char *st_path(const struct st_file *f);

int st_count(const struct st_file *f);
const struct st_tensor *st_at(const struct st_file *f, int i);              /* ascending by name */
const struct st_tensor *st_find(const struct st_file *f, const char *name); /* NULL: none */
const void *st_data(const struct st_file *f, const struct st_tensor *t);    /* may be unaligned */

/* Tells whether the file stores the elements unchanged: without blocks, and in the order of
 * transformers. */
bool st_is_plain(const struct st_tensor *t);
/* Reads the whole tensor as fp32. BF16 and F16 are widened exactly; F32 is copied bit by bit;
 * blocks are widened by worker/hf/blocks.h. fails: ERR_UNSUPPORTED for any other type. A file
 * truncated after st_open is ERR_CORRUPT, not SIGBUS: the bytes are read with pread. */
int st_read_f32(const struct st_file *f, const struct st_tensor *t, float *out, struct err *e);
/* Reads elements [at, at + n) of a tensor as fp32. */
int st_read_part(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                 float *out, struct err *e);
/* Tells whether blocks of format `to` (model.weights, not "model") hold the tensor's values
 * exactly: it is a tensor of a GGUF file with corresponding blocks. (A scale beyond fp16's range
 * becomes infinite.) */
bool st_has_blocks(const struct st_tensor *t, enum weights_id to);
/* Reads elements [at, at + n) of such a tensor, with at and n multiples of QUANT_K, as consecutive
 * blocks: out [quant_row(to, n)] (api/core/quant.h). */
int st_read_blocks(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                   enum weights_id to, uint8_t *out, struct err *e);
/* Reads the stored bytes [at, at + n) of a tensor. */
int st_read_bytes(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                  uint8_t *out, struct err *e);
/* Reads the whole tensor as `type`, ST_BF16 or ST_F16: a tensor of that type is copied bit by bit,
 * any other is rounded to nearest even. */
int st_read_half(const struct st_file *f, const struct st_tensor *t, enum st_dtype type,
                 uint16_t *out, struct err *e);

/* ---- writing --------------------------------------------------------------------------------- */

struct st_out { /* one tensor to write: borrows name and data for the call */
    const char *name;
    enum st_dtype dtype;
    int n_dims;
    int64_t dims[ST_DIMS];
    const void *data;
    /* Called if data is NULL: reads elements [at, at + n) of the tensor, in its dtype. n is at
     * most ST_CHUNK. */
    int (*read)(void *arg, int64_t at, int64_t n, void *out, struct err *e);
    void *arg;
    bool passed; /* left out of the digest of tensors */
};
#define ST_CHUNK 65536

/* Writes path with `__metadata__` {"format":"pt"}: to "<path>.tmp", fsynced, renamed; the caller
 * fsyncs the directory. The file's bytes depend on the items alone, not on their order. On failure
 * the .tmp file is removed. fails: ERR_IO, ERR_NO_SPACE, or ERR_TOO_LARGE over the limit on file
 * sizes, naming the file; as an item's read. */
int st_write(const char *path, const struct st_out *items, int n, struct err *e);

struct st_digest {   /* digests of a file, computed while it is written */
    bool of_tensors; /* set by the caller: asks for `tensors` */
    char file[SHA256_HEX];
    char tensors[SHA256_HEX]; /* digest of the tensors, in the file's order: by type, then name */
    int64_t size;             /* bytes of the file */
};
/* Writes as st_write does and hashes at the same time: the caller's thread reads the items, one
 * hashes and one writes. Memory: 4 MiB. Fills out on success. out NULL: as st_write. */
int st_write_hashed(const char *path, const struct st_out *items, int n, struct st_digest *out,
                    struct err *e);

#endif
