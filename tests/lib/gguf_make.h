/* gguf_make.h: writes GGUF files for tests, value by value. The files may be valid or invalid. */
#ifndef SEQD_TESTS_GGUF_MAKE_H
#define SEQD_TESTS_GGUF_MAKE_H

#include "api/core/file.h"
#include "tests/lib/test.h"
#include "worker/gguf/gguf.h"

struct gguf_bytes {
    uint8_t *at; /* owned */
    size_t n, room;
};
struct gguf_make {
    struct gguf_bytes keys, infos, data;
    uint64_t n_keys, n_tensors;
    uint32_t version;
    /* numbers that are added to the counts in the file's header, so that the header may be
     * wrong */
    uint64_t more_keys, more_tensors;
};

static inline void bytes_put(struct gguf_bytes *b, const void *x, size_t n)
{
    if (b->n + n > b->room) {
        b->room = 2 * (b->n + n) + 64;
        if (!(b->at = realloc(b->at, b->room))) abort();
    }
    if (n) memcpy(b->at + b->n, x, n);
    b->n += n;
}

static inline void bytes_u32(struct gguf_bytes *b, uint32_t v)
{
    bytes_put(b, &v, 4);
}

static inline void bytes_u64(struct gguf_bytes *b, uint64_t v)
{
    bytes_put(b, &v, 8);
}

static inline void bytes_str(struct gguf_bytes *b, const char *s, size_t n)
{
    bytes_u64(b, n);
    bytes_put(b, s, n);
}

/* Writes the name and the type of a key. The caller has to write the key's value next. */
static inline struct gguf_bytes *make_key(struct gguf_make *g, const char *name, uint32_t type)
{
    g->n_keys++;
    bytes_str(&g->keys, name, strlen(name));
    bytes_u32(&g->keys, type);
    return &g->keys;
}

static inline void make_u32(struct gguf_make *g, const char *name, uint32_t v)
{
    bytes_u32(make_key(g, name, GGUF_U32), v);
}

static inline void make_f32(struct gguf_make *g, const char *name, float v)
{
    bytes_put(make_key(g, name, GGUF_F32), &v, 4);
}

static inline void make_bool(struct gguf_make *g, const char *name, uint8_t v)
{
    bytes_put(make_key(g, name, GGUF_BOOL), &v, 1);
}

static inline void make_str(struct gguf_make *g, const char *name, const char *v)
{
    bytes_str(make_key(g, name, GGUF_STRING), v, strlen(v));
}

/* Writes the beginning of an array. The caller has to write the array's elements next. */
static inline struct gguf_bytes *make_array(struct gguf_make *g, const char *name, uint32_t type,
                                            uint64_t n)
{
    struct gguf_bytes *b = make_key(g, name, GGUF_ARRAY);
    bytes_u32(b, type);
    bytes_u64(b, n);
    return b;
}

static inline void make_strs(struct gguf_make *g, const char *name, const char *const *v, int n)
{
    struct gguf_bytes *b = make_array(g, name, GGUF_STRING, (uint64_t)n);
    for (int i = 0; i < n; i++) bytes_str(b, v[i], strlen(v[i]));
}

/* Writes the entry of a tensor, without its values. dims begins with the outermost dimension. */
static inline void make_info(struct gguf_make *g, const char *name, uint32_t type, int n_dims,
                             const int64_t *dims, uint64_t offset)
{
    g->n_tensors++;
    bytes_str(&g->infos, name, strlen(name));
    bytes_u32(&g->infos, (uint32_t)n_dims);
    for (int i = n_dims - 1; i >= 0; i--) bytes_u64(&g->infos, (uint64_t)dims[i]);
    bytes_u32(&g->infos, type);
    bytes_u64(&g->infos, offset);
}

static inline void bytes_align(struct gguf_bytes *b, size_t from)
{
    while ((b->n + from) % 32) bytes_put(b, "", 1);
}

static inline void make_tensor(struct gguf_make *g, const char *name, uint32_t type, int n_dims,
                               const int64_t *dims, const void *data, size_t size)
{
    make_info(g, name, type, n_dims, dims, g->data.n);
    bytes_put(&g->data, data, size);
    bytes_align(&g->data, 0);
}

/* Returns all bytes of the file, which the caller owns. Frees g. */
static inline struct gguf_bytes make_finish(struct gguf_make *g)
{
    struct gguf_bytes b = {0};
    bytes_put(&b, "GGUF", 4);
    bytes_u32(&b, g->version ? g->version : 3);
    bytes_u64(&b, g->n_tensors + g->more_tensors);
    bytes_u64(&b, g->n_keys + g->more_keys);
    bytes_put(&b, g->keys.at, g->keys.n);
    bytes_put(&b, g->infos.at, g->infos.n);
    bytes_align(&b, 0);
    bytes_put(&b, g->data.at, g->data.n);
    free(g->keys.at);
    free(g->infos.at);
    free(g->data.at);
    *g = (struct gguf_make){0};
    return b;
}

static inline void make_file(struct gguf_make *g, const char *path)
{
    struct err e = {0};
    struct gguf_bytes b = make_finish(g);
    CHECK_MSG(!file_write(path, b.at, b.n, &e), "%s", e.text);
    free(b.at);
}

#endif
