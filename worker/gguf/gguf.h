/* gguf.h: reads the header of a GGUF file, which has its keys with their values, and its tensors.
 * A file consists of "GGUF", u32 version, u64 tensors, u64 keys, all little-endian; per key a
 * name, a type and a value; per tensor a name, dimensions from the innermost one, a type and an
 * offset; then the bytes of the tensors, each at a multiple of general.alignment. gguf_open checks
 * the whole header: every count and length against the bytes that are left in the file, every
 * string (UTF-8, no NUL), that no name occurs twice, and that the tensors have no wrong offsets,
 * overlaps or holes. The memory that is allocated is bounded by the header's size and the limits
 * below, and not by any number in the file. The bytes of tensors are not read here.
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
#define GGUF_NAME_SIZE   128 /* bytes of the name of a key or tensor, including its NUL */
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
    bool array;          /* whether the value is an array of n elements; otherwise n is 1 */
    int64_t n;
    const uint8_t *at; /* the first element; borrowed from the file */
};
struct gguf_tensor {
    char name[GGUF_NAME_SIZE];
    enum gguf_dtype dtype;
    int n_dims;
    int64_t dims[GGUF_DIMS]; /* as in safetensors, with the outermost first */
    int64_t offset, size;    /* both in bytes; the offset is relative to the start of the file */
};

struct gguf; /* an open, checked header */

/* Opens a file. Fails with ERR_INVALID if the file is not regular or if jobs may not read it.
 * Fails with ERR_CORRUPT if the file is damaged, naming the file and the key or tensor. Fails with
 * ERR_UNSUPPORTED for another version, for a part of a split file, and for a type of tensors that
 * is not read; the error has the command that converts the file. Also fails with ERR_TOO_LARGE
 * over the limits above, ERR_NOT_FOUND or ERR_IO. */
struct gguf *gguf_open(const char *path, struct err *e);
void gguf_close(struct gguf *g); /* accepts NULL */
/* Keeps the header of a file. Until gguf_leave, gguf_open of the same path by this thread returns
 * this header without reading it again. Calls may be nested. Returns NULL if this thread keeps
 * another file, or if the file cannot be opened. In the second case the next gguf_open of the file
 * reports the error. */
struct gguf *gguf_keep(const char *path);
void gguf_leave(struct gguf *g); /* accepts NULL */
const char *gguf_path(const struct gguf *g);
int gguf_fd(const struct gguf *g);              /* borrowed */
int64_t gguf_header_size(const struct gguf *g); /* bytes before the tensors' */

int gguf_keys(const struct gguf *g);
const struct gguf_key *gguf_key(const struct gguf *g, int i); /* ascending by name */
/* returns NULL if there is none */
const struct gguf_key *gguf_find(const struct gguf *g, const char *name);
int gguf_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, int i); /* ascending by name */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* gguf_int gets element i of a value whose type is an integer type. It returns false for other
 * types, and for a number that int64_t cannot represent. */
bool gguf_int(const struct gguf_key *k, int64_t i, int64_t *out);
/* accepts any type of number; returns false unless the number is finite */
bool gguf_real(const struct gguf_key *k, int64_t i, double *out);
/* Steps through the strings of a value. *at must be NULL before the first one. The string is not
 * NUL-terminated, and is borrowed from the file. */
void gguf_string(const struct gguf_key *k, const uint8_t **at, const char **s, size_t *n);
/* Tells whether a value is a single string, and returns it in *s and *n. */
bool gguf_text(const struct gguf_key *k, const char **s, size_t *n);
/* Copies the string of a key, with a NUL, into out. Returns false if there is no such key, if its
 * value is not a string, or if the string does not fit. */
bool gguf_word(const struct gguf *g, const char *name, char *out, size_t size);

#endif
