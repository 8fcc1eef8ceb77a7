/* gguf.c: reads a header into memory piece by piece, checks each value as soon as it is read, and
 * sorts keys and tensors by name. */
#include "worker/gguf/gguf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/mem.h"
#include "api/core/utf8.h"

enum {
    READ = 1 << 20, /* bytes that are read at a time */
    ALIGNMENT = 32, /* value of general.alignment if the key is absent */
    MOST_ALIGNED = 1 << 16
};

struct gguf {
    char path[FILE_PATH_SIZE];
    /* `users` is the number of calls of gguf_open that were not followed by a close yet;
     * `keepers` is the number of calls of gguf_keep that were not followed by a leave yet */
    int users, keepers;
    int fd;
    int64_t size;  /* bytes of the file */
    uint8_t *text; /* owned: bytes [0, loaded) of the file */
    int64_t at, loaded, room;
    /* owned; has room for n_keys keys and for the key that is being read */
    struct gguf_key *key;
    struct gguf_tensor *tensor; /* owned */
    int n_keys, n_tensors;
    char what[GGUF_NAME_SIZE + 16]; /* the key or tensor that is being read, as error messages
                                     * name it */
};

static _Thread_local struct gguf *kept; /* NULL if no file is kept */

/* ---- bytes ----------------------------------------------------------------------------------- */

static int corrupt(const struct gguf *g, const char *why, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: %s%s%s: fetch the file again", g->path, g->what,
                   *g->what ? ": " : "", why);
}

/* Makes the buffer of the text larger, and updates the keys' pointers into it. */
static int move(struct gguf *g, int64_t room)
{
    uint8_t *more = malloc((size_t)room);
    if (!more) return -1;
    if (g->loaded) memcpy(more, g->text, (size_t)g->loaded);
    for (int i = 0; g->key && i <= g->n_keys; i++)
        if (g->key[i].at) g->key[i].at = more + (g->key[i].at - g->text);
    free(g->text);
    g->text = more;
    g->room = room;
    return 0;
}

/* Loads the file up to byte `until`, unless these bytes are loaded already. */
static int load(struct gguf *g, int64_t until, struct err *e)
{
    if (until <= g->loaded) return 0;
    if (until > GGUF_HEADER_SIZE)
        return err_set(e, ERR_TOO_LARGE, "%s: %s: the header has more than %lld bytes", g->path,
                       g->what, (long long)GGUF_HEADER_SIZE);
    int64_t want = mem_round(until, READ);
    if (want > g->size) want = g->size;
    if (want > g->room) {
        const int64_t room = want > 2 * g->room ? want : 2 * g->room;
        if (move(g, room) < 0)
            return err_set(e, ERR_IO, "out of memory for the header of %s", g->path);
    }
    while (g->loaded < want) {
        const ssize_t n = pread(g->fd, g->text + g->loaded, (size_t)(want - g->loaded), g->loaded);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, "read %s", g->path);
        if (n == 0) return corrupt(g, "the file became shorter", e);
        g->loaded += n;
    }
    return 0;
}

/* Checks that the file has n bytes after the present position, and loads these bytes. */
static int need(struct gguf *g, uint64_t n, struct err *e)
{
    if (n > (uint64_t)(g->size - g->at)) return corrupt(g, "the file is truncated here", e);
    return load(g, g->at + (int64_t)n, e);
}

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t v = 0;
    while (n--) v = v << 8 | p[n];
    return v;
}

static int take(struct gguf *g, int n, uint64_t *out, struct err *e)
{
    if (need(g, (uint64_t)n, e) < 0) return -1;
    *out = little(g->text + g->at, n);
    g->at += n;
    return 0;
}

/* Reads a string. *at gets its offset in g->text, and *size the number of its bytes. */
static int take_string(struct gguf *g, int64_t *at, int64_t *size, struct err *e)
{
    uint64_t n;
    if (take(g, 8, &n, e) < 0 || need(g, n, e) < 0) return -1;
    *at = g->at;
    *size = (int64_t)n;
    g->at += (int64_t)n;
    const char *s = (const char *)g->text + *at, *end = s + n;
    while (s < end) {
        const int len = *s ? utf8_len(s, end) : 0;
        if (!len) return corrupt(g, *s ? "a string is not UTF-8" : "a string holds a NUL", e);
        s += len;
    }
    return 0;
}

/* Reads the name of a key or tensor, which has index i among n keys or tensors. After the
 * call, errors name this key or tensor. */
static int take_name(struct gguf *g, const char *kind, int64_t i, int64_t n,
                     char out[GGUF_NAME_SIZE], struct err *e)
{
    int64_t at, size;
    snprintf(g->what, sizeof g->what, "%s %lld of %lld", kind, (long long)i + 1, (long long)n);
    if (take_string(g, &at, &size, e) < 0) return -1;
    if (size < 1 || size >= GGUF_NAME_SIZE) return corrupt(g, "its name has not 1 to 127 bytes", e);
    for (int64_t k = 0; k < size; k++)
        if (g->text[at + k] <= ' ' || g->text[at + k] > '~')
            return corrupt(g, "its name is not a word of printable ASCII", e);
    memcpy(out, g->text + at, (size_t)size);
    out[size] = 0;
    snprintf(g->what, sizeof g->what, "%s %s", kind, out);
    return 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static const uint8_t widths[GGUF_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};

static int take_type(struct gguf *g, enum gguf_type *out, struct err *e)
{
    uint64_t t;
    if (take(g, 4, &t, e) < 0) return -1;
    if (t >= GGUF_TYPES) return corrupt(g, "its value has a type that the format lacks", e);
    *out = (enum gguf_type)t;
    return 0;
}

static int take_elements(struct gguf *g, struct gguf_key *k, uint64_t n, struct err *e)
{
    int64_t at, size;
    const int width = widths[k->type];
    /* Every element takes at least 1 byte. A string takes at least the 8 bytes of its length. */
    if (n > (uint64_t)(g->size - g->at) / (width ? (unsigned)width : 8u))
        return corrupt(g, "its array is longer than the file", e);
    k->n = (int64_t)n;
    for (int64_t i = 0; !width && i < k->n; i++)
        if (take_string(g, &at, &size, e) < 0) return -1;
    if (!width) return 0;
    if (need(g, n * (unsigned)width, e) < 0) return -1;
    for (int64_t i = 0; k->type == GGUF_BOOL && i < k->n; i++)
        if (g->text[g->at + i] > 1) return corrupt(g, "a bool is neither 0 nor 1", e);
    g->at += k->n * width;
    return 0;
}

static int take_key(struct gguf *g, struct gguf_key *k, int64_t i, int64_t n, struct err *e)
{
    uint64_t count = 1;
    if (take_name(g, "key", i, n, k->name, e) < 0 || take_type(g, &k->type, e) < 0) return -1;
    k->array = k->type == GGUF_ARRAY;
    if (k->array && (take_type(g, &k->type, e) < 0 || take(g, 8, &count, e) < 0)) return -1;
    if (k->type == GGUF_ARRAY) return corrupt(g, "its value is an array of arrays", e);
    k->at = g->text + g->at;
    return take_elements(g, k, count, e);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct gguf_key *)a)->name, ((const struct gguf_key *)b)->name);
}

static int twice(const struct gguf *g, const char *kind, const char *name, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: %s %s occurs twice: fetch the file again", g->path, kind,
                   name);
}

static int take_keys(struct gguf *g, uint64_t n, struct err *e)
{
    if (n > GGUF_KEYS)
        return err_set(e, ERR_TOO_LARGE, "%s: its header counts %llu keys, at most %d are read",
                       g->path, (unsigned long long)n, GGUF_KEYS);
    g->key = calloc((size_t)n + 1, sizeof *g->key);
    if (!g->key) return err_set(e, ERR_IO, "out of memory for the keys of %s", g->path);
    for (; g->n_keys < (int)n; g->n_keys++)
        if (take_key(g, &g->key[g->n_keys], g->n_keys, (int64_t)n, e) < 0) return -1;
    if (n) qsort(g->key, (size_t)n, sizeof *g->key, by_key);
    for (int i = 1; i < g->n_keys; i++)
        if (!by_key(&g->key[i - 1], &g->key[i])) return twice(g, "key", g->key[i].name, e);
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Types with their numbers in files. A type without a size is refused, and the error names it. */
static const struct {
    const char *name;
    enum gguf_dtype dtype;
    uint8_t block, size; /* number of values and of bytes of a block */
} dtypes[] = {
    [0] = {"F32", GGUF_DT_F32, 1, 4},
    [1] = {"F16", GGUF_DT_F16, 1, 2},
    [2] = {"Q4_0", GGUF_DT_Q4_0, GGUF_BLOCK, 18},
    [3] = {"Q4_1", GGUF_DT_Q4_1, GGUF_BLOCK, 20},
    [6] = {.name = "Q5_0"},
    [7] = {.name = "Q5_1"},
    [8] = {"Q8_0", GGUF_DT_Q8_0, GGUF_BLOCK, 34},
    [9] = {.name = "Q8_1"},
    [10] = {.name = "Q2_K"},
    [11] = {.name = "Q3_K"},
    [12] = {.name = "Q4_K"},
    [13] = {.name = "Q5_K"},
    [14] = {.name = "Q6_K"},
    [15] = {.name = "Q8_K"},
    [16] = {.name = "IQ2_XXS"},
    [17] = {.name = "IQ2_XS"},
    [18] = {.name = "IQ3_XXS"},
    [19] = {.name = "IQ1_S"},
    [20] = {.name = "IQ4_NL"},
    [21] = {.name = "IQ3_S"},
    [22] = {.name = "IQ2_S"},
    [23] = {.name = "IQ4_XS"},
    [24] = {.name = "I8"},
    [25] = {.name = "I16"},
    [26] = {.name = "I32"},
    [27] = {.name = "I64"},
    [28] = {.name = "F64"},
    [29] = {.name = "IQ1_M"},
    [30] = {"BF16", GGUF_DT_BF16, 1, 2},
    [34] = {.name = "TQ1_0"},
    [35] = {.name = "TQ2_0"},
    [39] = {.name = "MXFP4"},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

static int take_dtype(struct gguf *g, struct gguf_tensor *t, int *row, struct err *e)
{
    uint64_t type;
    if (take(g, 4, &type, e) < 0) return -1;
    if (type >= N_DTYPES || !dtypes[type].size)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: %s has type %s (%llu), and F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are "
                       "read: convert it by llama-quantize --allow-requantize --pure IN.gguf "
                       "OUT.gguf Q8_0",
                       g->path, g->what,
                       type < N_DTYPES && dtypes[type].name ? dtypes[type].name : "unknown",
                       (unsigned long long)type);
    *row = (int)type;
    t->dtype = dtypes[type].dtype;
    return 0;
}

/* Reads the dimensions. In the file, the innermost dimension comes first. */
static int take_dims(struct gguf *g, struct gguf_tensor *t, int64_t *count, struct err *e)
{
    uint64_t n, d;
    *count = 1;
    if (take(g, 4, &n, e) < 0) return -1;
    if (n < 1 || n > GGUF_DIMS) return corrupt(g, "it has not 1 to 4 dimensions", e);
    t->n_dims = (int)n;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        if (take(g, 8, &d, e) < 0) return -1;
        if (d < 1 || d > INT64_MAX || mem_mul(*count, (int64_t)d, count) < 0)
            return corrupt(g, "its dimensions are 0 or overflow", e);
        t->dims[i] = (int64_t)d;
    }
    return 0;
}

static int take_tensor(struct gguf *g, struct gguf_tensor *t, int64_t i, int64_t n, int64_t align,
                       int64_t *end, struct err *e)
{
    int64_t count;
    uint64_t offset;
    int row = 0;
    if (take_name(g, "tensor", i, n, t->name, e) < 0 || take_dims(g, t, &count, e) < 0 ||
        take_dtype(g, t, &row, e) < 0 || take(g, 8, &offset, e) < 0)
        return -1;
    if (t->dims[t->n_dims - 1] % dtypes[row].block)
        return corrupt(g, "its rows are not whole blocks of 32", e);
    if (mem_mul(count / dtypes[row].block, dtypes[row].size, &t->size) < 0)
        return corrupt(g, "its size overflows", e);
    if (offset != (uint64_t)*end)
        return corrupt(g,
                       "its offset is not where the tensor before it ends: it overlaps another "
                       "or leaves a hole, or is not aligned",
                       e);
    t->offset = *end;
    if (t->size > INT64_MAX - *end - align) return corrupt(g, "its end overflows", e);
    *end = mem_round(*end + t->size, align);
    return 0;
}

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int read_alignment(struct gguf *g, int64_t *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, "general.alignment");
    *out = ALIGNMENT;
    if (!k || (!k->array && gguf_int(k, 0, out) && *out >= 1 && *out <= MOST_ALIGNED &&
               !(*out & (*out - 1))))
        return 0;
    return err_set(e, ERR_CORRUPT,
                   "%s: general.alignment is %lld, want a power of two up to %d: fetch the file "
                   "again",
                   g->path, (long long)*out, MOST_ALIGNED);
}

static int take_tensors(struct gguf *g, uint64_t n, struct err *e)
{
    int64_t align, end = 0;
    if (n > GGUF_TENSORS)
        return err_set(e, ERR_TOO_LARGE, "%s: its header counts %llu tensors, at most %d are read",
                       g->path, (unsigned long long)n, GGUF_TENSORS);
    if (read_alignment(g, &align, e) < 0) return -1;
    g->tensor = calloc((size_t)n + 1, sizeof *g->tensor);
    if (!g->tensor) return err_set(e, ERR_IO, "out of memory for the tensors of %s", g->path);
    for (; g->n_tensors < (int)n; g->n_tensors++)
        if (take_tensor(g, &g->tensor[g->n_tensors], g->n_tensors, (int64_t)n, align, &end, e) < 0)
            return -1;
    const int64_t data = mem_round(g->at, align);
    for (int i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensor[i];
        snprintf(g->what, sizeof g->what, "tensor %s", t->name);
        if (data > g->size || t->offset > g->size - data || t->size > g->size - data - t->offset)
            return corrupt(g, "its bytes lie beyond the end of the file", e);
        t->offset += data;
    }
    if (n) qsort(g->tensor, (size_t)n, sizeof *g->tensor, by_tensor);
    for (int i = 1; i < g->n_tensors; i++)
        if (!by_tensor(&g->tensor[i - 1], &g->tensor[i]))
            return twice(g, "tensor", g->tensor[i].name, e);
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Sets the error for a file that is not a GGUF file. The parameter `magic` has the first four
 * bytes of the file. */
static int no_gguf(const struct gguf *g, uint64_t magic, struct err *e)
{
    /* the marks of ggml, ggmf, ggjt and ggla */
    static const char *const older[] = {"lmgg", "fmgg", "tjgg", "algg"};
    const char *const name = strrchr(g->path, '/'), *const end = strrchr(g->path, '.');
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        if (magic == little((const uint8_t *)older[i], 4))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s is of a format of llama.cpp before GGUF: make it again from the "
                           "published model by convert_hf_to_gguf.py",
                           g->path);
    if (end && (!name || end > name) &&
        (!strcmp(end, ".safetensors") || !strcmp(end, ".json") || !strcmp(end, ".bin")))
        return err_set(e, ERR_INVALID,
                       "%s does not begin with \"GGUF\": it is one file of a model: give the "
                       "directory that it lies in",
                       g->path);
    return err_set(e, ERR_CORRUPT,
                   "%s does not begin with \"GGUF\": give a GGUF file, or the directory that has "
                   "the model's config.json and safetensors",
                   g->path);
}

static int check_version(struct gguf *g, struct err *e)
{
    uint64_t magic, version;
    if (take(g, 4, &magic, e) < 0) return -1;
    if (magic != 0x46554747) return no_gguf(g, magic, e);
    if (take(g, 4, &version, e) < 0) return -1;
    if (version == 2 || version == 3) return 0;
    const bool swapped = !(version & 0xffff);
    return err_set(e, ERR_UNSUPPORTED,
                   "%s has version %llu%s of GGUF, and 2 and 3 are read: make it again from the "
                   "published model by convert_hf_to_gguf.py",
                   g->path, (unsigned long long)(swapped ? version >> 24 : version),
                   swapped ? " (big-endian)" : "");
}

static int check_parts(const struct gguf *g, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, "split.count");
    int64_t n = 0;
    if (!k || (gguf_int(k, 0, &n) && n < 2)) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: split.count is %lld, and whole files are read: join its parts by "
                   "llama-gguf-split --merge FIRST-PART.gguf OUT.gguf",
                   g->path, (long long)n);
}

static int read_header(struct gguf *g, struct err *e)
{
    uint64_t n_tensors, n_keys;
    if (check_version(g, e) < 0 || take(g, 8, &n_tensors, e) < 0 || take(g, 8, &n_keys, e) < 0 ||
        take_keys(g, n_keys, e) < 0)
        return -1;
    return check_parts(g, e) < 0 ? -1 : take_tensors(g, n_tensors, e);
}

static int open_file(struct gguf *g, const char *path, struct err *e)
{
    struct stat st;
    g->fd = -1;
    if (file_join(g->path, e, "%s", path) < 0) return -1;
    g->fd = beneath_read(path, e);
    if (g->fd < 0) return -1;
    if (fstat(g->fd, &st) < 0) return err_errno(e, "stat %s", path);
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_INVALID, "%s is not a regular file", path);
    g->size = st.st_size;
    return read_header(g, e);
}

struct gguf *gguf_open(const char *path, struct err *e)
{
    if (kept && !strcmp(kept->path, path)) return kept->users++, kept;
    struct gguf *g = calloc(1, sizeof *g);
    if (!g) {
        err_set(e, ERR_IO, "%s: out of memory", path);
        return NULL;
    }
    g->users = 1;
    if (open_file(g, path, e) == 0) return g;
    gguf_close(g);
    return NULL;
}

void gguf_close(struct gguf *g)
{
    if (!g || --g->users > 0) return;
    if (g->fd >= 0) close(g->fd);
    free(g->text);
    free(g->key);
    free(g->tensor);
    free(g);
}

struct gguf *gguf_keep(const char *path)
{
    struct err none;
    struct gguf *g = kept && strcmp(kept->path, path) ? NULL : gguf_open(path, &none);
    if (g) g->keepers++, kept = g;
    return g;
}

void gguf_leave(struct gguf *g)
{
    if (!g) return;
    if (!--g->keepers) kept = NULL;
    gguf_close(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

int64_t gguf_header_size(const struct gguf *g)
{
    return g->at;
}

int gguf_fd(const struct gguf *g)
{
    return g->fd;
}

/* ---- values ---------------------------------------------------------------------------------- */

int gguf_keys(const struct gguf *g)
{
    return g->n_keys;
}

const struct gguf_key *gguf_key(const struct gguf *g, int i)
{
    assert(i >= 0 && i < g->n_keys);
    return &g->key[i];
}

const struct gguf_key *gguf_find(const struct gguf *g, const char *name)
{
    struct gguf_key want;
    if (!g->n_keys || snprintf(want.name, sizeof want.name, "%s", name) >= (int)sizeof want.name)
        return NULL;
    return bsearch(&want, g->key, (size_t)g->n_keys, sizeof *g->key, by_key);
}

int gguf_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, int i)
{
    assert(i >= 0 && i < g->n_tensors);
    return &g->tensor[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    struct gguf_tensor want;
    if (!g->n_tensors || snprintf(want.name, sizeof want.name, "%s", name) >= (int)sizeof want.name)
        return NULL;
    return bsearch(&want, g->tensor, (size_t)g->n_tensors, sizeof *g->tensor, by_tensor);
}

bool gguf_int(const struct gguf_key *k, int64_t i, int64_t *out)
{
    const int width = widths[k->type];
    if (i < 0 || i >= k->n) return false;
    const uint64_t v = width ? little(k->at + i * width, width) : 0;
    switch (k->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32: *out = (int64_t)v; return true;
    case GGUF_I8: *out = (int8_t)v; return true;
    case GGUF_I16: *out = (int16_t)v; return true;
    case GGUF_I32: *out = (int32_t)v; return true;
    case GGUF_I64: *out = (int64_t)v; return true;
    case GGUF_U64: *out = (int64_t)v; return v <= INT64_MAX;
    default: return false;
    }
}

bool gguf_real(const struct gguf_key *k, int64_t i, double *out)
{
    int64_t whole;
    float single;
    if (i < 0 || i >= k->n) return false;
    if (gguf_int(k, i, &whole)) {
        *out = (double)whole;
        return true;
    }
    if (k->type == GGUF_F64) {
        memcpy(out, k->at + 8 * i, 8);
    } else if (k->type == GGUF_F32) {
        char text[32];
        memcpy(&single, k->at + 4 * i, 4);
        /* Write the smallest number of digits from which the same float is read back. With
         * more digits, the float nearest to 1e-6 would be written as 9.99999997e-7. */
        for (int digits = 6; digits <= 9; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, (double)single);
            if (strtof(text, NULL) == single) break;
        }
        *out = strtod(text, NULL);
    } else {
        return false;
    }
    return *out - *out == 0;
}

void gguf_string(const struct gguf_key *k, const uint8_t **at, const char **s, size_t *n)
{
    assert(k->type == GGUF_STRING);
    const uint8_t *p = *at ? *at : k->at;
    *n = (size_t)little(p, 8);
    *s = (const char *)p + 8;
    *at = p + 8 + *n;
}

bool gguf_text(const struct gguf_key *k, const char **s, size_t *n)
{
    const uint8_t *at = NULL;
    if (!k || k->array || k->type != GGUF_STRING) return false;
    gguf_string(k, &at, s, n);
    return true;
}

bool gguf_word(const struct gguf *g, const char *name, char *out, size_t size)
{
    const char *s;
    size_t n;
    if (!gguf_text(gguf_find(g, name), &s, &n) || n >= size) return false;
    memcpy(out, s, n);
    out[n] = 0;
    if (utf8_plain(out)) return true;
    *out = 0; /* an error could not show it */
    return false;
}
