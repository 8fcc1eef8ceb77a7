/* gguf.h: reads the header of a GGUF file. The header has the file's keys with their values, and
 * its tensors.
 *
 * A file consists of these parts, all of them little-endian:
 *   "GGUF", u32 version, u64 number of tensors, u64 number of keys
 *   for each key, a name, a type and a value
 *   for each tensor, a name, dimensions from the innermost one, a type and an offset
 *   the bytes of the tensors, each at a multiple of general.alignment
 *
 * gguf_open checks the whole header. It compares every count and length with the bytes that
 * are left in the file. It checks that every string is UTF-8 without a NUL, that no name
 * occurs twice, that the offsets of tensors are right, and that tensors neither overlap nor
 * leave holes. How much memory is allocated is limited by the size of the header and by the
 * limits below, but does not depend on any other number in the file. The bytes of tensors are
 * not read here. tested: tests/engine/test_gguf.c, tests/fuzz/fuzz_gguf.c from:
 * github.com/ggml-org/ggml, docs/gguf.md and src/gguf.cpp */
#ifndef SEQD_GGUF_GGUF_H
#define SEQD_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

#define GGUF_KEYS    4096
#define GGUF_TENSORS 65536
/* Largest size in bytes of the name of a key or tensor, including its NUL. */
#define GGUF_NAME_SIZE 128
#define GGUF_DIMS      4
/* Largest number of bytes before the bytes of the first tensor. */
#define GGUF_HEADER_SIZE ((int64_t)256 << 20)

/* Types of values, with their numbers in files. */
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
/* Types of tensors that can be read. */
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
    enum gguf_type type; /* type of the value; for an array, the type of its elements */
    bool array;          /* set if the value is an array of n elements; otherwise n is 1 */
    int64_t n;
    const uint8_t *at; /* the first element; borrowed from the file */
};
struct gguf_tensor {
    char name[GGUF_NAME_SIZE];
    enum gguf_dtype dtype;
    int n_dims;
    int64_t dims[GGUF_DIMS]; /* dimensions, of which the outermost comes first, as in
                              * safetensors */
    int64_t offset, size;    /* both are in bytes; the offset is counted from the start of the
                              * file */
};

struct gguf; /* an open, checked header */

/* Opens a file. Fails with ERR_INVALID if the file is not regular, or if jobs may not read it.
 * Fails with ERR_CORRUPT if the file is damaged; the error names the file and the key or
 * tensor. Fails with ERR_UNSUPPORTED if this version of the format is not supported, if the
 * file is a part of a split file, or if a tensor has a type that cannot be read; the error has
 * the command that converts the file. Fails with ERR_TOO_LARGE if a limit of this header is
 * exceeded. Also fails with ERR_NOT_FOUND or ERR_IO. */
struct gguf *gguf_open(const char *path, struct err *e);
void gguf_close(struct gguf *g); /* accepts NULL */
/* Keeps the header of a file until gguf_leave. Until then, if this thread calls gguf_open with
 * the same path, gguf_open returns the kept header and does not read the file again. Calls may
 * be nested. Returns NULL if this thread already keeps the header of another file, or if the
 * file cannot be opened. In the second case the next gguf_open of the file reports the error. */
struct gguf *gguf_keep(const char *path);
void gguf_leave(struct gguf *g); /* accepts NULL */
const char *gguf_path(const struct gguf *g);
int gguf_fd(const struct gguf *g); /* borrowed */
/* number of bytes before the first tensor's bytes */
int64_t gguf_header_size(const struct gguf *g);

int gguf_keys(const struct gguf *g);
const struct gguf_key *gguf_key(const struct gguf *g, int i); /* keys are in ascending order of
                                                               * their names */
/* returns NULL if the file does not have the key */
const struct gguf_key *gguf_find(const struct gguf *g, const char *name);
int gguf_tensors(const struct gguf *g);
/* Tensors are in ascending order of their names. */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, int i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* gguf_int sets *out to element i of a value of an integer type. It returns false if the type is
 * not an integer type, or if int64_t cannot represent the number. */
bool gguf_int(const struct gguf_key *k, int64_t i, int64_t *out);
/* accepts every type of number; returns false if the number is not finite */
bool gguf_real(const struct gguf_key *k, int64_t i, double *out);
/* Returns the next string of a value. *at must be NULL before the first call. The string has no
 * NUL, and is borrowed from the file. */
void gguf_string(const struct gguf_key *k, const uint8_t **at, const char **s, size_t *n);
/* Returns true if a value is a single string. In that case *s and *n are set to the string and
 * its length. */
bool gguf_text(const struct gguf_key *k, const char **s, size_t *n);
/* Copies the string of a key into out, with a NUL. Returns false if the file does not have the
 * key, if its value is not a string, or if the string does not fit. */
bool gguf_word(const struct gguf *g, const char *name, char *out, size_t size);

#endif
