/* safetensors.c: maps a file, parses its header, checks its layout, and converts elements to
 * fp32. */
#include "worker/hf/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/beneath.h"
#include "api/core/faults.h"
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/mem.h"
#include "api/core/utf8.h"
#include "kernels/half.h"
#include "worker/gguf/gguf_names.h"
#include "worker/hf/blocks.h"

static const struct {
    const char *name;
    int size; /* bytes of an element */
} dtypes[ST_ALL_N] = {
    [ST_BOOL] = {"BOOL", 1}, [ST_U8] = {"U8", 1},     [ST_I8] = {"I8", 1},
    [ST_I16] = {"I16", 2},   [ST_U16] = {"U16", 2},   [ST_F16] = {"F16", 2},
    [ST_BF16] = {"BF16", 2}, [ST_I32] = {"I32", 4},   [ST_U32] = {"U32", 4},
    [ST_F32] = {"F32", 4},   [ST_F64] = {"F64", 8},   [ST_I64] = {"I64", 8},
    [ST_U64] = {"U64", 8},   [ST_Q8_0] = {"Q8_0", 0}, [ST_Q4_0] = {"Q4_0", 0},
    [ST_Q4_1] = {"Q4_1", 0},
};
/* Types of the format that are not supported here. */
static const char *const foreign[] = {"F4",      "F6_E2M3",     "F6_E3M2",     "F8_E5M2", "F8_E4M3",
                                      "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"};

const char *st_dtype_name(enum st_dtype d)
{
    return dtypes[d].name;
}

int64_t st_dtype_size(enum st_dtype d)
{
    return dtypes[d].size;
}

bool st_dtype_reads(enum st_dtype d)
{
    return d == ST_F32 || d == ST_F16 || d == ST_BF16 || d >= ST_DTYPE_N;
}

struct st_file {
    char path[FILE_PATH_SIZE];
    int fd;
    int64_t size;
    uint8_t *map;
    struct faults *faults; /* list to which the faults of tensors are added; if `faults` is
                            * NULL, reading stops at the first fault */
    /* owned; in ascending order of names after the file was checked */
    struct st_tensor *tensor;
    int n, room;
    bool bad;                     /* whether a fault of this file's tensors is in `faults` */
    const struct gguf_arch *arch; /* NULL if the file is safetensors */
};

/* ---- the header ------------------------------------------------------------------------------ */

static int corrupt(const struct st_file *f, const char *name, const char *what, struct err *e)
{
    char room[GGUF_NAME_SIZE];
    if (name)
        return err_set(e, ERR_CORRUPT, "%s: tensor \"%s\": %s", f->path, st_named(f, name, room),
                       what);
    return err_set(e, ERR_CORRUPT, "%s: %s", f->path, what);
}

static int parse_dtype(struct st_file *f, struct st_tensor *t, struct jread *j, struct err *e)
{
    if (jread_next(j) != J_STRING) return corrupt(f, t->name, "dtype is not a string", e);
    for (int d = 0; d < ST_DTYPE_N; d++)
        if (jread_is(j, dtypes[d].name)) {
            t->dtype = (enum st_dtype)d;
            return 0;
        }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (jread_is(j, foreign[i]))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: tensor \"%s\" has element type %s; convert to F32,"
                           " BF16 or F16",
                           f->path, t->name, foreign[i]);
    return corrupt(f, t->name, "dtype is none of the format", e);
}

/* Parses an array of at most max non-negative integers. Returns the number of integers, or -1
 * if the value is not such an array. */
static int parse_ints(struct jread *j, int64_t *out, int max)
{
    enum jtok t;
    int n = 0;
    if (jread_next(j) != J_ARRAY) return -1;
    while ((t = jread_next(j)) == J_NUMBER) {
        if (n == max || jread_int(j, &out[n]) < 0 || out[n] < 0) return -1;
        n++;
    }
    return t == J_ARRAY_END ? n : -1;
}

/* Computes count and size from shape and dtype, and checks that data_offsets [begin, end) have
 * this size. */
static int check_sizes(struct st_file *f, struct st_tensor *t, int64_t begin, int64_t end,
                       struct err *e)
{
    int64_t count = 1, size;
    for (int i = 0; i < t->n_dims; i++)
        if (mem_mul(count, t->dims[i], &count) < 0)
            return corrupt(f, t->name, "the product of its shape overflows", e);
    if (mem_mul(count, dtypes[t->dtype].size, &size) < 0)
        return corrupt(f, t->name, "its size overflows", e);
    if (end < begin || end - begin != size)
        return corrupt(f, t->name, "data_offsets do not agree with shape and dtype", e);
    t->count = count;
    t->size = size;
    t->offset = begin;
    return 0;
}

static int parse_tensor(struct st_file *f, struct st_tensor *t, struct jread *j, struct err *e)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    int64_t range[2];
    int seen = 0, bit;
    enum jtok tok;
    if (jread_next(j) != J_OBJECT) return corrupt(f, t->name, "its entry is not an object", e);
    while ((tok = jread_next(j)) == J_KEY) {
        bit = jread_is(j, "dtype")          ? DTYPE
              : jread_is(j, "shape")        ? SHAPE
              : jread_is(j, "data_offsets") ? OFFSETS
                                            : 0;
        if (seen & bit) return corrupt(f, t->name, "a member occurs twice", e);
        seen |= bit;
        if (bit == DTYPE) {
            if (parse_dtype(f, t, j, e) < 0) return -1;
        } else if (bit == SHAPE) {
            if ((t->n_dims = parse_ints(j, t->dims, ST_DIMS)) < 0)
                return corrupt(f, t->name, "shape is not an array of up to 8 sizes", e);
        } else if (bit == OFFSETS) {
            if (parse_ints(j, range, 2) != 2)
                return corrupt(f, t->name, "data_offsets are not two offsets", e);
        } else if (jread_skip(j) < 0) {
            break;
        }
    }
    if (tok != J_OBJECT_END || j->err.code) return corrupt(f, t->name, "its entry is malformed", e);
    if (seen != (DTYPE | SHAPE | OFFSETS))
        return corrupt(f, t->name, "dtype, shape or data_offsets are missing", e);
    return check_sizes(f, t, range[0], range[1], e);
}

static int parse_metadata(struct st_file *f, struct jread *j, struct err *e)
{
    enum jtok t = jread_next(j);
    while (t == J_OBJECT || t == J_STRING) {
        if ((t = jread_next(j)) == J_OBJECT_END) return 0;
        if (t != J_KEY || (t = jread_next(j)) != J_STRING) break;
    }
    return corrupt(f, NULL, "__metadata__ is not an object of strings", e);
}

static struct st_tensor *add_tensor(struct st_file *f, struct jread *j, struct err *e)
{
    if (f->n == ST_TENSORS) {
        err_set(e, ERR_TOO_LARGE, "%s has more than %d tensors", f->path, ST_TENSORS);
        return NULL;
    }
    if (f->n == f->room) {
        int room = f->room ? 2 * f->room : 64;
        struct st_tensor *more = realloc(f->tensor, (size_t)room * sizeof *more);
        if (!more) {
            err_set(e, ERR_IO, "%s: out of memory", f->path);
            return NULL;
        }
        f->tensor = more;
        f->room = room;
    }
    struct st_tensor *t = &f->tensor[f->n];
    memset(t, 0, sizeof *t);
    if (jread_copy(j, t->name, sizeof t->name) < 0) {
        err_set(e, ERR_TOO_LARGE, "%s: the name of tensor %d has more than %d bytes, or a NUL",
                f->path, f->n, ST_NAME_SIZE - 1);
        return NULL;
    }
    if (!utf8_plain(t->name)) {
        err_set(e, ERR_CORRUPT,
                "%s: the name of tensor %d holds a control character: fetch "
                "the file again",
                f->path, f->n);
        return NULL;
    }
    f->n++;
    return t;
}

static int parse_header(struct st_file *f, const char *text, size_t size, struct err *e)
{
    struct jread j;
    enum jtok t;
    bool metadata = false;
    if (text[0] != '{') return corrupt(f, NULL, "the header does not begin with '{'", e);
    jread_init(&j, text, size);
    jread_next(&j);
    while ((t = jread_next(&j)) == J_KEY) {
        if (jread_is(&j, "__metadata__")) {
            if (metadata) return corrupt(f, NULL, "__metadata__ occurs twice", e);
            metadata = true;
            if (parse_metadata(f, &j, e) < 0) return -1;
            continue;
        }
        struct st_tensor *tensor = add_tensor(f, &j, e);
        if (!tensor) return -1;
        const struct jread value = j;
        if (parse_tensor(f, tensor, &j, e) == 0) continue;
        if (faults_pass(f->faults, e)) return -1;
        j = value;
        f->bad = true;
        if (jread_skip(&j) < 0) break;
    }
    if (t == J_OBJECT_END && jread_next(&j) == J_END) return 0;
    return err_set(e, ERR_CORRUPT, "%s: header: %s", f->path,
                   j.err.code ? j.err.text : "it is not one object");
}

/* ---- the whole file -------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size); /* empty tensors come first */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* Sorts the tensors by name, and refuses a name that occurs twice. */
static int sort_names(struct st_file *f, struct err *e)
{
    if (f->n) qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_name);
    for (int i = 1; i < f->n; i++)
        if (!strcmp(f->tensor[i].name, f->tensor[i - 1].name))
            return corrupt(f, f->tensor[i].name, "the name occurs twice", e);
    return 0;
}

/* Checks that the tensors fill the bytes from the header to the end of the file without gaps,
 * and that each name occurs only once. */
static int check_layout(struct st_file *f, int64_t data_start, struct err *e)
{
    int64_t at = 0;
    if (f->n) qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_offset);
    for (int i = 0; i < f->n; i++) {
        struct st_tensor *t = &f->tensor[i];
        if (t->offset != at) return corrupt(f, t->name, "it overlaps another or leaves a hole", e);
        if (mem_add(at, t->size, &at) < 0) return corrupt(f, t->name, "its end overflows", e);
        t->offset += data_start;
        if (at > f->size - data_start)
            return corrupt(f, t->name, "its bytes lie beyond the end of the file", e);
    }
    if (at != f->size - data_start)
        return err_set(e, ERR_CORRUPT, "%s has %lld bytes of tensors, the header describes %lld",
                       f->path, (long long)(f->size - data_start), (long long)at);
    return sort_names(f, e);
}

static int read_at(const struct st_file *f, void *out, int64_t size, int64_t offset, struct err *e)
{
    uint8_t *p = out;
    while (size) {
        ssize_t n = pread(f->fd, p, (size_t)size, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, "read %s", f->path);
        if (n == 0) return corrupt(f, NULL, "it is truncated", e);
        p += n;
        size -= n;
        offset += n;
    }
    return 0;
}

static int check_file(struct st_file *f, struct err *e)
{
    uint8_t head[8];
    uint64_t n = 0;
    if (f->size < 8) return corrupt(f, NULL, "it is truncated: less than 8 bytes", e);
    if (read_at(f, head, 8, 0, e) < 0) return -1;
    for (int i = 7; i >= 0; i--) n = n << 8 | head[i];
    if (n > (uint64_t)ST_HEADER_SIZE)
        return err_set(e, ERR_CORRUPT, "%s: a header of %llu bytes; the format's limit is %lld",
                       f->path, (unsigned long long)n, (long long)ST_HEADER_SIZE);
    if ((int64_t)n > f->size - 8) return corrupt(f, NULL, "it is truncated inside its header", e);
    if (n < 2) return corrupt(f, NULL, "its header is empty", e);
    char *text = malloc((size_t)n);
    if (!text) return err_set(e, ERR_IO, "%s: out of memory", f->path);
    int rc = read_at(f, text, (int64_t)n, 8, e);
    if (rc == 0) rc = parse_header(f, text, (size_t)n, e);
    free(text);
    return rc < 0 || f->bad ? -1 : check_layout(f, 8 + (int64_t)n, e);
}

static int open_file(struct st_file *f, const char *path, struct err *e)
{
    struct stat st;
    f->fd = -1;
    if (file_join(f->path, e, "%s", path) < 0) return -1;
    f->fd = beneath_read(path, e);
    if (f->fd < 0) return -1;
    if (fstat(f->fd, &st) < 0) return err_errno(e, "stat %s", path);
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_INVALID, "%s is not a regular file", path);
    f->size = st.st_size;
    if (check_file(f, e) < 0) return -1;
    void *map = mmap(NULL, (size_t)f->size, PROT_READ, MAP_PRIVATE, f->fd, 0);
    if (map == MAP_FAILED) return err_errno(e, "map %s", path);
    f->map = map;
    return 0;
}

struct st_file *st_open(const char *path, struct err *e)
{
    return st_check(path, NULL, e);
}

struct st_file *st_check(const char *path, struct faults *faults, struct err *e)
{
    struct st_file *f = calloc(1, sizeof *f);
    if (!f) {
        err_set(e, ERR_IO, "%s: out of memory", path);
        if (faults) faults_add(faults, e);
        return NULL;
    }
    f->faults = faults;
    if (open_file(f, path, e) == 0) return f;
    if (faults && !f->bad) faults_add(faults, e);
    st_close(f);
    return NULL;
}

struct st_file *st_adopt(const char *path, int fd, const struct gguf_arch *arch,
                         struct st_tensor *tensor, int n, struct err *e)
{
    struct st_file *f = calloc(1, sizeof *f);
    if (!f) {
        free(tensor);
        err_set(e, ERR_IO, "%s: out of memory", path);
        return NULL;
    }
    f->arch = arch;
    f->tensor = tensor;
    f->n = f->room = n;
    f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int rc = f->fd < 0 ? err_errno(e, "open %s", path) : file_join(f->path, e, "%s", path);
    if (rc == 0) rc = sort_names(f, e);
    if (rc == 0) return f;
    st_close(f);
    return NULL;
}

void st_close(struct st_file *f)
{
    if (!f) return;
    if (f->map) munmap(f->map, (size_t)f->size);
    if (f->fd >= 0) close(f->fd);
    free(f->tensor);
    free(f);
}

const char *st_path(const struct st_file *f)
{
    return f->path;
}

const struct gguf_arch *st_arch(const struct st_file *f)
{
    return f->arch;
}

const char *st_named(const struct st_file *f, const char *name, char room[GGUF_NAME_SIZE])
{
    if (!f->arch) return name;
    gguf_name_of(f->arch, name, room);
    return room;
}

int st_count(const struct st_file *f)
{
    return f->n;
}

const struct st_tensor *st_at(const struct st_file *f, int i)
{
    assert(i >= 0 && i < f->n);
    return &f->tensor[i];
}

const struct st_tensor *st_find(const struct st_file *f, const char *name)
{
    int lo = 0, hi = f->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2, c = strcmp(f->tensor[mid].name, name);
        if (c == 0) return &f->tensor[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const void *st_data(const struct st_file *f, const struct st_tensor *t)
{
    return f->map + t->offset;
}

/* ---- reading numbers ------------------------------------------------------------------------- */

enum { CHUNK = 8192 }; /* number of elements of 16 bits that are read together */

static enum dtype half_of(enum st_dtype t)
{
    return t == ST_F16 ? DT_F16 : DT_BF16;
}

/* Reads n blocks of the file, beginning with block `first`. Refuses a scale or a least value
 * that is NaN or infinite, because with such a number the results of the model would be NaN.
 * Programs that write models do not write such numbers. */
static int take_blocks(const struct st_file *f, const struct st_tensor *t, uint8_t *out,
                       int64_t first, int64_t n, struct err *e)
{
    const struct block_kind *kind = block_kind(t->dtype - ST_DTYPE_N);
    const int64_t cols = t->dims[t->n_dims - 1];
    if (read_at(f, out, n * kind->size, t->offset + first * kind->size, e) < 0) return -1;
    const int64_t bad = block_not_finite(kind, out, n), at = (first + bad) * BLOCK_VALUES;
    char room[GGUF_NAME_SIZE];
    if (bad < 0) return 0;
    return err_set(
        e, ERR_CORRUPT,
        "%s: tensor \"%s\": a block (row %lld of the file, from column %lld) has a scale "
        "or a least value that is NaN or infinity: the file is damaged: fetch it again",
        f->path, st_named(f, t->name, room), (long long)(at / cols), (long long)(at % cols));
}

/* Reads elements [at, at + n) of a tensor that is stored in blocks. The range may begin and
 * end inside a block. */
static int read_blocks(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                       float *out, struct err *e)
{
    enum { BLOCKS = CHUNK / BLOCK_VALUES };
    uint8_t bytes[BLOCKS * BLOCK_MOST];
    float values[CHUNK];
    const struct block_kind *kind = block_kind(t->dtype - ST_DTYPE_N);
    for (int64_t i = 0; i < n;) {
        const int64_t first = (at + i) / BLOCK_VALUES, skip = (at + i) % BLOCK_VALUES;
        int64_t k = n - i < CHUNK - skip ? n - i : CHUNK - skip;
        const int64_t n_blocks = (skip + k + BLOCK_VALUES - 1) / BLOCK_VALUES;
        if (take_blocks(f, t, bytes, first, n_blocks, e) < 0) return -1;
        const bool whole = !skip && k % BLOCK_VALUES == 0;
        kind->widen(bytes, whole ? out + i : values, n_blocks);
        if (!whole) memcpy(out + i, values + skip, (size_t)k * sizeof *out);
        i += k;
    }
    return 0;
}

/* Reads elements [at, at + n) of a tensor, in the order of the file, as fp32. */
static int read_stored(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                       float *out, struct err *e)
{
    uint16_t half[CHUNK];
    if (t->dtype == ST_F32) return read_at(f, out, 4 * n, t->offset + 4 * at, e);
    if (t->dtype >= ST_DTYPE_N) return read_blocks(f, t, at, n, out, e);
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t k = n - i < CHUNK ? n - i : CHUNK;
        if (read_at(f, half, 2 * k, t->offset + 2 * (at + i), e) < 0) return -1;
        half_widen(half_of(t->dtype), half, out + i, k);
    }
    return 0;
}

/* Returns the index in the file of the row that has index `row` in the order of transformers. In
 * the file, the rows of a head are row 0 of its first half, row 0 of its second half, row 1 of its
 * first half, and so on. */
static int64_t row_in_file(const struct st_tensor *t, int64_t row)
{
    const int64_t size = t->dims[0] / t->heads, in_head = row % size;
    return row - in_head + in_head % (size / 2) * 2 + in_head / (size / 2);
}

static int read_rows(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                     float *out, struct err *e)
{
    const int64_t cols = t->count / t->dims[0];
    for (int64_t i = 0; i < n;) {
        const int64_t row = (at + i) / cols, col = (at + i) % cols;
        const int64_t k = n - i < cols - col ? n - i : cols - col;
        if (read_stored(f, t, row_in_file(t, row) * cols + col, k, out + i, e) < 0) return -1;
        i += k;
    }
    return 0;
}

/* Reads elements [at, at + n) as fp32. */
static int read_part(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                     float *out, struct err *e)
{
    if ((t->heads ? read_rows : read_stored)(f, t, at, n, out, e) < 0) return -1;
    for (int64_t i = 0; t->one_more && i < n; i++) out[i] -= 1;
    return 0;
}

bool st_has_blocks(const struct st_tensor *t, enum weights_id to)
{
    return t->dtype >= ST_DTYPE_N && !t->one_more && t->n_dims > 1 &&
           t->dims[t->n_dims - 1] % BLOCK_VALUES == 0 &&
           block_kind(t->dtype - ST_DTYPE_N)->pass[to];
}

/* Reads elements [at, at + n) of a tensor, in the order of the file, as blocks of the format
 * `to`. */
static int pass_blocks(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                       enum weights_id to, uint8_t *out, struct err *e)
{
    uint8_t bytes[CHUNK / BLOCK_VALUES * BLOCK_MOST];
    const struct block_kind *kind = block_kind(t->dtype - ST_DTYPE_N);
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t n_blocks = (n - i < CHUNK ? n - i : CHUNK) / BLOCK_VALUES;
        if (take_blocks(f, t, bytes, (at + i) / BLOCK_VALUES, n_blocks, e) < 0) return -1;
        kind->pass[to](bytes, out + quant_row(to, i), n_blocks);
    }
    return 0;
}

int st_read_blocks(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                   enum weights_id to, uint8_t *out, struct err *e)
{
    const int64_t cols = t->heads ? t->count / t->dims[0] : t->count;
    assert(at >= 0 && n >= 0 && at + n <= t->count && st_has_blocks(t, to));
    assert(at % BLOCK_VALUES == 0 && n % BLOCK_VALUES == 0);
    for (int64_t i = 0, k; i < n; i += k) {
        const int64_t row = (at + i) / cols, col = (at + i) % cols;
        const int64_t first = (t->heads ? row_in_file(t, row) : row) * cols + col;
        k = n - i < cols - col ? n - i : cols - col;
        if (pass_blocks(f, t, first, k, to, out + quant_row(to, i), e) < 0) return -1;
    }
    return 0;
}

bool st_is_plain(const struct st_tensor *t)
{
    return t->dtype < ST_DTYPE_N && !t->heads && !t->one_more;
}

static int check_dtype(const struct st_file *f, const struct st_tensor *t, struct err *e)
{
    if (st_dtype_reads(t->dtype)) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: tensor \"%s\" has element type %s; want F32, BF16 or "
                   "F16",
                   f->path, t->name, dtypes[t->dtype].name);
}

int st_read_f32(const struct st_file *f, const struct st_tensor *t, float *out, struct err *e)
{
    return st_read_part(f, t, 0, t->count, out, e);
}

int st_read_part(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                 float *out, struct err *e)
{
    assert(at >= 0 && n >= 0 && at + n <= t->count);
    return check_dtype(f, t, e) < 0 ? -1 : read_part(f, t, at, n, out, e);
}

int st_read_bytes(const struct st_file *f, const struct st_tensor *t, int64_t at, int64_t n,
                  uint8_t *out, struct err *e)
{
    assert(at >= 0 && n >= 0 && at + n <= t->size);
    return read_at(f, out, n, t->offset + at, e);
}

int st_read_half(const struct st_file *f, const struct st_tensor *t, enum st_dtype type,
                 uint16_t *out, struct err *e)
{
    float line[CHUNK / 2];
    if (check_dtype(f, t, e) < 0) return -1;
    if (t->dtype == type && st_is_plain(t)) return read_at(f, out, t->size, t->offset, e);
    for (int64_t at = 0; at < t->count; at += CHUNK / 2) {
        const int64_t n = t->count - at < CHUNK / 2 ? t->count - at : CHUNK / 2;
        if (read_part(f, t, at, n, line, e) < 0) return -1;
        half_narrow(half_of(type), line, out + at, n);
    }
    return 0;
}
