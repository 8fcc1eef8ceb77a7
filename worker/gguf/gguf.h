/* gguf.h: the header of a GGUF file: its keys with their values, and its tensors.
 *
 * A file is: "GGUF", u32 version, u64 tensors, u64 keys, all little-endian; per key a name, a type
 * and a value; per tensor a name, dimensions from the innermost one, a type and an offset; then the
 * tensors' bytes, each at a multiple of general.alignment. gguf_open checks all of it: every count
 * and length against the bytes that are left, every string (UTF-8, no NUL), names that occur
 * twice, offsets, overlaps and holes. The header's size and the limits below bound the memory that
 * is allocated; no number in the file does. The bytes of tensors are not read here.
 *
 * tested: tests/engine/test_gguf.c, tests/fuzz/fuzz_gguf.c
 * from: github.com/ggml-org/ggml, docs/gguf.md and src/gguf.cpp */
#ifndef SEQD_GGUF_GGUF_H
#define SEQD_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

#define GGUF_KEYS        4096
#define GGUF_TENSORS     65536
#define GGUF_NAME_SIZE   128 /* bytes of a key or of a tensor's name, its NUL included */
#define GGUF_DIMS        4
#define GGUF_HEADER_SIZE ((int64_t)256 << 20) /* most bytes before those of the tensors */

/* Types of values, by their numbers in files. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};
/* Types of tensors that are read. */
enum gguf_dtype {
    GGUF_DT_F32,
    GGUF_DT_F16,
    GGUF_DT_BF16,
    GGUF_DT_Q8_0,
    GGUF_DT_Q4_0,
    GGUF_DT_Q4_1,
    GGUF_DTYPES
};
#define GGUF_BLOCK 32 /* values of a block of Q8_0, Q4_0 and Q4_1 */

struct gguf_key {
    char name[GGUF_NAME_SIZE];
    enum gguf_type type; /* type of the value, or of the elements of an array */
    bool array;          /* the value is an array of n elements; else n is 1 */
    int64_t n;
    const uint8_t *at; /* the first element; borrowed from the file */
};
struct gguf_tensor {
    char name[GGUF_NAME_SIZE];
    enum gguf_dtype dtype;
    int n_dims;
    int64_t dims[GGUF_DIMS]; /* as in safetensors: the outermost first */
    int64_t offset, size;    /* bytes, from the start of the file */
};

struct gguf; /* an open, checked header */

/* Opens a file. fails: ERR_NOT_FOUND, ERR_IO, ERR_INVALID for a file that is not regular or that
 * jobs may not read; ERR_CORRUPT naming the file and the key or tensor; ERR_UNSUPPORTED for another
 * version, a part of a split file or a type of tensors that is not read, with the line that
 * converts it; ERR_TOO_LARGE over the limits above. */
struct gguf *gguf_open(const char *path, struct err *e);
void gguf_close(struct gguf *g); /* NULL allowed */
/* Keeps a file's header: until gguf_leave, gguf_open of the same path by this thread returns it
 * without reading it again. Calls nest. Returns NULL if this thread keeps another file, or if the
 * file cannot be opened: the next gguf_open of it has the error. */
struct gguf *gguf_keep(const char *path);
void gguf_leave(struct gguf *g); /* NULL allowed */
const char *gguf_path(const struct gguf *g);
int gguf_fd(const struct gguf *g);              /* borrowed */
int64_t gguf_header_size(const struct gguf *g); /* bytes before the tensors' */

int gguf_keys(const struct gguf *g);
const struct gguf_key *gguf_key(const struct gguf *g, int i);             /* ascending by name */
const struct gguf_key *gguf_find(const struct gguf *g, const char *name); /* NULL: none */
int gguf_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, int i); /* ascending by name */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* gguf_int gets element i of a value of any integer type. It returns false for another type, or a
 * number that int64_t cannot hold. */
bool gguf_int(const struct gguf_key *k, int64_t i, int64_t *out);
bool gguf_real(const struct gguf_key *k, int64_t i, double *out); /* any number type; false unless
                                                                   * finite */
/* Steps through the strings of a value: *at is NULL before the first one. The string is not
 * NUL-terminated, and is borrowed from the file. */
void gguf_string(const struct gguf_key *k, const uint8_t **at, const char **s, size_t *n);
/* Tells whether a value is a single string, and returns it in *s and *n. */
bool gguf_text(const struct gguf_key *k, const char **s, size_t *n);
/* Copies the string of a key, with a NUL, into out. Returns false if there is no such key, if its
 * value is not a string, or if the string does not fit. */
bool gguf_word(const struct gguf *g, const char *name, char *out, size_t size);

#endif
