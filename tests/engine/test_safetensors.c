/* test_safetensors: checks the file format, hostile files, and model directories. */
#include "tests/lib/hf_save.h"
#include "tests/lib/scratch.h"
#include "api/core/job.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "kernels/half.h"
#include "worker/family/family.h"
#include "worker/family/config.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/hf/tokenizer.h"

static char dir[64];
static struct err e;

static const char *in_dir(const char *name)
{
    static char path[4][FILE_PATH_SIZE];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

static void put(const char *name, const void *data, size_t size)
{
    struct err x = {0};
    if (file_write(in_dir(name), data, size, &x) < 0) {
        printf("%s\n", x.text);
        abort();
    }
}

/* Writes a file with this header and n zero bytes of data. If header_size is -1, the true size of
 * the header is written. */
static void put_st(const char *name, const char *header, int64_t header_size, size_t n)
{
    size_t len = strlen(header);
    char *text = calloc(1, 8 + len + n);
    uint64_t N = header_size == -1 ? len : (uint64_t)header_size;
    for (int i = 0; i < 8; i++) text[i] = (char)(N >> 8 * i);
    memcpy(text + 8, header, len);
    put(name, text, 8 + len + n);
    free(text);
}

static struct st_file *open_st(const char *header, int64_t header_size, size_t n)
{
    put_st("x.safetensors", header, header_size, n);
    e = (struct err){0};
    return st_open(in_dir("x.safetensors"), &e);
}

static void test_valid(void)
{
    static const struct {
        const char *header;
        size_t n;
        int count;
    } v[] = {
        {"{}", 0, 0},
        {"{}      ", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\",\"x\":\"\"}}", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24, 1},
        {"{\"a\":{\"data_offsets\":[0,8],\"x\":[{}],\"shape\":[],\"dtype\":\"I64\"}}", 8, 1},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]},"
         "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         7, 2},
        {"{\"z\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
         "\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},"
         "\"y\":{\"dtype\":\"F32\",\"shape\":[4,0],\"data_offsets\":[2,2]}}",
         2, 3},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct st_file *f = open_st(v[i].header, -1, v[i].n);
        CHECK_MSG(f && st_count(f) == v[i].count, "%s: %s", v[i].header, e.text);
        if (f && v[i].count) {
            const struct st_tensor *t = st_find(f, "a");
            CHECK(t && st_data(f, t) && !st_find(f, "aa") && !st_find(f, ""));
            CHECK(t->offset + t->size <= 8 + (int64_t)strlen(v[i].header) + (int64_t)v[i].n);
            for (int k = 1; k < st_count(f); k++)
                CHECK(strcmp(st_at(f, k - 1)->name, st_at(f, k)->name) < 0);
        }
        st_close(f);
    }
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_invalid(void)
{
    static const struct {
        const char *header;
        int64_t header_size;
        size_t n;
        enum err_code code;
    } v[] = {
        {"", -1, 0, ERR_CORRUPT},
        {"{", -1, 0, ERR_CORRUPT},
        {"[]", -1, 0, ERR_CORRUPT},
        {" {}", -1, 0, ERR_CORRUPT},
        {"{}x", -1, 0, ERR_CORRUPT},
        {"{}", 3, 0, ERR_CORRUPT},
        {"{}", 1, 1, ERR_CORRUPT},
        {"{}", 0, 0, ERR_CORRUPT},
        {"{}", INT64_MAX, 0, ERR_CORRUPT},
        {"{}", INT64_MIN, 0, ERR_CORRUPT},
        {"{}", 100000001, 0, ERR_CORRUPT},
        {"{}", -1, 1, ERR_CORRUPT}, /* has bytes that belong to no tensor */
        {"{\"a\":5}", -1, 0, ERR_CORRUPT},
        {"{\"a\":{}}", -1, 0, ERR_CORRUPT},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F33", "[1]", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F8_E4M3", "[4]", "[0,4]") "}", -1, 4, ERR_UNSUPPORTED},
        {"{\"a\":" T("F4", "[8]", "[0,4]") "}", -1, 4, ERR_UNSUPPORTED},
        {"{\"a\":" T("F32", "[1]", "[0,5]") "}", -1, 5, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[2]", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", -1, 3, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", -1, 5, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[1]", "[1,5]") "}", -1, 5, ERR_CORRUPT}, /* a hole */
        {"{\"a\":" T("F32", "[1]", "[0,4,8]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[1.0]", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[\"1\"]", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "1", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[4294967296,4294967296]", "[0,0]") "}", -1, 0, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[9223372036854775807]", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("U8", "[9223372036854775807]", "[0,9223372036854775807]") "}", -1, 4,
         ERR_CORRUPT},
        {"{\"a\":" T("U8", "[4000000000000]", "[0,4000000000000]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("U8", "[9223372036854775808]", "[0,4]") "}", -1, 4, ERR_CORRUPT},
        {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[1,3]") "}", -1, 3,
         ERR_CORRUPT},
        {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[3,5]") "}", -1, 5,
         ERR_CORRUPT},
        {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"a\":" T("U8", "[2]", "[2,4]") "}", -1, 4,
         ERR_CORRUPT},
        {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"\\u0061\":" T("U8", "[1]", "[2,3]") "}", -1, 3,
         ERR_CORRUPT},
        {"{\"a\\u0000\":" T("U8", "[2]", "[0,2]") "}", -1, 2, ERR_TOO_LARGE},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", -1, 1,
         ERR_CORRUPT},
        {"{\"__metadata__\":{\"a\":1}}", -1, 0, ERR_CORRUPT},
        {"{\"__metadata__\":[]}", -1, 0, ERR_CORRUPT},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", -1, 0, ERR_CORRUPT},
        {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", -1, 0, ERR_CORRUPT},
        {"{\"a\":" T("F32", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "[0,4]") "}", -1, 4,
         ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct st_file *f = open_st(v[i].header, v[i].header_size, v[i].n);
        CHECK_MSG(!f && e.code == v[i].code && strstr(e.text, "x.safetensors"), "%zu: %s: %s", i,
                  v[i].header, e.text);
        st_close(f);
    }
    put("x.safetensors", "1234567", 7);
    CHECK(!st_open(in_dir("x.safetensors"), &e) && e.code == ERR_CORRUPT);
    CHECK(!st_open(in_dir("nothing"), &e) && e.code == ERR_NOT_FOUND);
    CHECK(!st_open(dir, &e) && e.code == ERR_INVALID);
}

/* Checks that a huge number in a header does not cause a huge allocation. Only 64 MiB of address
 * space are allowed in addition to the current use. */
static void test_bounded(void)
{
    struct rlimit old, tight;
    char name[400], header[1024];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    snprintf(header, sizeof header, "{\"%s\":" T("U8", "[1]", "[0,1]") "}", name);
    CHECK(!open_st(header, -1, 1) && e.code == ERR_TOO_LARGE);
    /* a valid file that has more tensors than are accepted; all of them have size zero */
    size_t size = (size_t)(ST_TENSORS + 1) * 64 + 16, n = 1;
    char *many = malloc(size);
    many[0] = '{';
    for (int i = 0; i <= ST_TENSORS; i++)
        n += (size_t)snprintf(many + n, size - n, "%s\"%d\":" T("U8", "[0]", "[0,0]"), i ? "," : "",
                              i);
    many[n++] = '}';
    many[n] = 0;
    CHECK(!open_st(many, -1, 0) && e.code == ERR_TOO_LARGE);
    free(many);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    getrlimit(RLIMIT_AS, &old);
    tight = old;
    tight.rlim_cur = (rlim_t)1 << 30;
    /* the file is sparse, and its header is shorter than the given size */
    put_st("x.safetensors", "{}", 99999999, 0);
    CHECK(truncate(in_dir("x.safetensors"), 50000000) == 0);
    setrlimit(RLIMIT_AS, &tight);
    CHECK(!st_open(in_dir("x.safetensors"), &e) && e.code == ERR_CORRUPT);
    setrlimit(RLIMIT_AS, &old);
#else
    (void)old;
    (void)tight;
#endif
}

/* ---- writing --------------------------------------------------------------------------------- */

static void test_write(void)
{
    static const float a[6] = {1, -2, 3.5f, 0, 1e-40f, 5}, b[2] = {7, 8};
    static const int64_t ids[1] = {42};
    static const uint8_t u[3] = {1, 2, 3};
    const struct st_out items[] = {
        {"zeta", ST_U8, 1, {3}, u},      {"b", ST_F32, 1, {2}, b},     {"a", ST_F32, 2, {2, 3}, a},
        {"empty", ST_F32, 2, {0, 3}, a}, {"ids", ST_I64, 0, {0}, ids},
    };
    CHECK(st_write(in_dir("w.safetensors"), items, 5, &e) == 0);
    CHECK(!file_exists(in_dir("w.safetensors.tmp")));
    size_t size, size2;
    char *text = file_read(in_dir("w.safetensors"), 1 << 20, &size, &e);
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"ids\":" T("I64", "[]", "[0,8]") ",\"a\":" T("F32", "[2,3]", "[8,32]") ",\"b\":" T(
            "F32", "[2]", "[32,40]") ",\"empty\":" T("F32", "[0,3]",
                                                     "[40,40]") ",\"zeta\":" T("U8", "[3]",
                                                                               "[40,43]") "}";
    int64_t N = 0;
    memcpy(&N, text, 8);
    CHECK(N % 8 == 0 && N - (int64_t)strlen(want) < 8 && size == (size_t)(8 + N + 43));
    CHECK(!memcmp(text + 8, want, strlen(want)));
    for (int64_t i = (int64_t)strlen(want); i < N; i++) CHECK(text[8 + i] == ' ');
    struct st_file *f = st_open(in_dir("w.safetensors"), &e);
    CHECK(f && st_count(f) == 5);
    float back[6];
    CHECK(st_read_f32(f, st_find(f, "a"), back, &e) == 0 && !memcmp(back, a, sizeof a));
    CHECK(!memcmp(st_data(f, st_find(f, "ids")), ids, 8));
    CHECK(st_read_f32(f, st_find(f, "ids"), back, &e) == -1 && e.code == ERR_UNSUPPORTED);
    st_close(f);
    /* The order of the items does not matter. */
    struct st_out turned[5];
    for (int i = 0; i < 5; i++) turned[i] = items[4 - i];
    CHECK(st_write(in_dir("w2.safetensors"), turned, 5, &e) == 0);
    char *text2 = file_read(in_dir("w2.safetensors"), 1 << 20, &size2, &e);
    CHECK(size == size2 && !memcmp(text, text2, size));
    free(text2);
    /* no truncation and no change of a byte in the header may cause a crash; the file is refused,
     * or is still valid */
    int n_refused = 0;
    for (size_t i = 0; i < size; i++) {
        put("x.safetensors", text, i);
        CHECK_MSG(!st_open(in_dir("x.safetensors"), &e), "%zu bytes accepted", i);
    }
    for (size_t i = 0; i < 8 + (size_t)N; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            text[i] ^= (char)(1 << bit);
            put("x.safetensors", text, size);
            f = st_open(in_dir("x.safetensors"), &e);
            n_refused += !f;
            st_close(f);
            text[i] ^= (char)(1 << bit);
        }
    CHECK(n_refused > 100);
    free(text);
}

static void test_write_errors(void)
{
    static const float a[1];
    const struct st_out item = {"a", ST_F32, 1, {1}, a};
    CHECK(st_write(in_dir("no/such/dir.safetensors"), &item, 1, &e) == -1 &&
          e.code == ERR_NOT_FOUND);
    CHECK(strstr(e.text, "no/such/dir.safetensors") != NULL);
    if (access("/dev/full", W_OK) == 0) {
        /* "full.tmp" is a link to a device that is always full. */
        CHECK(symlink("/dev/full", in_dir("full.tmp")) == 0);
        CHECK(st_write(in_dir("full"), &item, 1, &e) == -1 && e.code == ERR_NO_SPACE);
        CHECK_MSG(strstr(e.text, "No space left") && strstr(e.text, "full"), "%s", e.text);
        CHECK(!file_exists(in_dir("full.tmp")) && !file_exists(in_dir("full")));
    }
}

/* ---- writing and hashing by threads ---------------------------------------------------------- */

/* elements of a tensor that has more pieces than are computed in advance */
enum { LONG = 40 * ST_CHUNK + 7 };

struct made { /* a tensor that is computed while it is read, until a read fails */
    int64_t fails_at;
};

static int read_made(void *arg, int64_t at, int64_t n, void *out, struct err *why)
{
    const struct made *m = arg;
    if (at >= m->fails_at) return err_set(why, ERR_PEER, "element %lld is away", (long long)at);
    for (int64_t i = 0; i < n; i++) ((float *)out)[i] = sinf((float)(at + i));
    return 0;
}

static int write_made(const char *name, struct made *m, const uint16_t *half,
                      struct st_digest *digest)
{
    static const uint8_t left[3] = {1, 2, 3};
    const struct st_out items[] = {
        {.name = "half", .dtype = ST_BF16, .n_dims = 1, .dims = {3 * ST_CHUNK}, .data = half},
        {.name = "left", .dtype = ST_U8, .n_dims = 1, .dims = {3}, .data = left, .passed = true},
        {.name = "made", .dtype = ST_F32, .n_dims = 1, .dims = {LONG}, .read = read_made, .arg = m},
    };
    e = (struct err){0};
    return st_write_hashed(in_dir(name), items, 3, digest, &e);
}

/* Checks a writer that computes digests. The file must be the same as without digests, and the
 * digests must be the digests of the file. */
static void test_write_hashed(void)
{
    struct made m = {INT64_MAX};
    struct st_digest d = {.of_tensors = true}, plain = {.of_tensors = false};
    char hex[SHA256_HEX];
    struct sha256 tensors;
    size_t size, size2;
    uint16_t *half = malloc(3 * ST_CHUNK * sizeof *half);
    for (int i = 0; i < 3 * ST_CHUNK; i++) half[i] = (uint16_t)(i * 31);
    CHECK_MSG(!write_made("t.safetensors", &m, half, NULL), "%s", e.text);
    CHECK_MSG(!write_made("t1.safetensors", &m, half, &plain), "%s", e.text);
    CHECK_MSG(!write_made("t2.safetensors", &m, half, &d), "%s", e.text);
    char *want = file_read(in_dir("t.safetensors"), 64 << 20, &size, &e);
    char *got = file_read(in_dir("t2.safetensors"), 64 << 20, &size2, &e);
    CHECK(want && got && size == size2 && !memcmp(want, got, size));
    CHECK(!sha256_file(in_dir("t.safetensors"), hex, NULL, &e) && d.size == (int64_t)size);
    CHECK_STR(d.file, hex);
    CHECK_STR(plain.file, hex);
    const size_t n = LONG * sizeof(float) + 3 * ST_CHUNK * sizeof *half;
    sha256_init(&tensors);
    sha256_add(&tensors, want + size - 3 - n, n);
    sha256_hex(&tensors, hex);
    CHECK_STR(d.tensors, hex);
    free(want);
    free(got);
    free(half);
}

/* Checks that if a read or a write fails in one thread, all threads end and no file is left. */
static void test_write_hashed_errors(void)
{
    uint16_t *half = calloc(3 * ST_CHUNK, sizeof *half);
    struct st_digest d = {.of_tensors = true};
    for (int64_t at = 0; at < LONG; at += 13 * ST_CHUNK) {
        struct made m = {at};
        CHECK(write_made("gone.safetensors", &m, half, &d) == -1 && e.code == ERR_PEER);
        CHECK(strstr(e.text, "is away") != NULL);
        CHECK(!file_exists(in_dir("gone.safetensors")) &&
              !file_exists(in_dir("gone.safetensors.tmp")));
    }
    if (access("/dev/full", W_OK) == 0) {
        struct made m = {INT64_MAX};
        CHECK(symlink("/dev/full", in_dir("full2.tmp")) == 0);
        CHECK(write_made("full2", &m, half, &d) == -1 && e.code == ERR_NO_SPACE);
        CHECK_MSG(strstr(e.text, "No space left") && strstr(e.text, "full2"), "%s", e.text);
        CHECK(!file_exists(in_dir("full2.tmp")) && !file_exists(in_dir("full2")));
    }
    free(half);
}

/* ---- halves ---------------------------------------------------------------------------------- */

/* Compares all 65536 numbers of both 16-bit types with the definition. */
static void test_halves(void)
{
    uint16_t *h = malloc(65536 * 2);
    float *x = malloc(65536 * sizeof *x);
    for (int i = 0; i < 65536; i++) h[i] = (uint16_t)i;
    const struct st_out items[] = {{"bf16", ST_BF16, 1, {65536}, h},
                                   {"f16", ST_F16, 2, {256, 256}, h}};
    CHECK(st_write(in_dir("h.safetensors"), items, 2, &e) == 0);
    struct st_file *f = st_open(in_dir("h.safetensors"), &e);
    CHECK(f != NULL && st_read_f32(f, st_find(f, "bf16"), x, &e) == 0);
    int bad = 0;
    for (int i = 0; i < 65536; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        bad += bits != (uint32_t)i << 16;
    }
    CHECK(bad == 0);
    CHECK(st_read_f32(f, st_find(f, "f16"), x, &e) == 0);
    for (int i = 0; i < 65536; i++) {
        int ex = i >> 10 & 31, m = i & 1023;
        double want = ex ? ldexp(1024 + m, ex - 25) : ldexp(m, -24);
        if (ex == 31) want = m ? NAN : INFINITY;
        if (i & 0x8000) want = -want;
        bad += isnan(want) ? !isnan(x[i])
                           : (double)x[i] != want || !signbit(x[i]) != !signbit(want);
    }
    CHECK_MSG(bad == 0, "%d", bad);
    st_close(f);
    /* a file that is truncated after it was opened and checked causes an error, not a signal */
    f = st_open(in_dir("h.safetensors"), &e);
    CHECK(truncate(in_dir("h.safetensors"), 70000) == 0);
    CHECK(f && st_read_f32(f, st_find(f, "f16"), x, &e) == -1 && e.code == ERR_CORRUPT);
    st_close(f);
    free(x);
    free(h);
}

/* Rounds to bf16 or fp16 by the definition. The result has 8 significant bits for bf16, and 11 for
 * fp16. Ties are rounded to even. Numbers beyond the largest number of the type become inf. */
static double nearest(enum st_dtype type, double x)
{
    const bool half = type == ST_F16;
    const int least = half ? -14 : -126;
    if (x == 0 || !isfinite(x)) return x;
    const int exponent = ilogb(x), last = (exponent < least ? least : exponent) - (half ? 10 : 7);
    const double y = ldexp(nearbyint(ldexp(x, -last)), last);
    return fabs(y) >= (half ? 0x1p16 : 0x1p128) ? copysign(INFINITY, y) : y;
}

static int not_nearest(enum st_dtype type, const uint16_t *got, const float *want, int n)
{
    int bad = 0;
    for (int i = 0; i < n; i++) {
        const double y = type == ST_F16 ? f16_value(got[i]) : bf16_value(got[i]);
        const double x = nearest(type, want[i]);
        bad += isnan(x) ? !isnan(y) : y != x || !signbit(y) != !signbit(x);
    }
    return bad;
}

/* Checks every exponent and sign with mantissas on both sides of a tie, all 16-bit numbers, and
 * values that are stored in the type, bit by bit. */
static void test_read_as(enum st_dtype type, const uint32_t *low)
{
    const bool half = type == ST_F16;
    enum { N = 65536 };
    float *x = malloc(N * sizeof *x), *wide = malloc(N * sizeof *wide);
    uint16_t *h = malloc(N * 2), *got = malloc(N * 2);
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t bits = (i << 16 & 0xfffe0000) | low[i * 2654435761u >> 29];
        memcpy(&x[i], &bits, 4);
        h[i] = (uint16_t)i;
    }
    const struct st_out items[] = {{"f32", ST_F32, 1, {N}, x},
                                   {"f16", ST_F16, 1, {N}, h},
                                   {"bf16", ST_BF16, 1, {N}, h},
                                   {"i16", ST_I16, 1, {N}, h}};
    CHECK(st_write(in_dir("to.safetensors"), items, 4, &e) == 0);
    struct st_file *f = st_open(in_dir("to.safetensors"), &e);
    CHECK(f && st_read_half(f, st_find(f, "f32"), type, got, &e) == 0);
    CHECK(not_nearest(type, got, x, N) == 0);
    CHECK(f && st_read_f32(f, st_find(f, half ? "bf16" : "f16"), wide, &e) == 0);
    CHECK(f && st_read_half(f, st_find(f, half ? "bf16" : "f16"), type, got, &e) == 0);
    CHECK(not_nearest(type, got, wide, N) == 0);
    CHECK(f && st_read_half(f, st_find(f, half ? "f16" : "bf16"), type, got, &e) == 0);
    CHECK(!memcmp(got, h, N * 2));
    CHECK(f && st_read_half(f, st_find(f, "i16"), type, got, &e) == -1);
    CHECK(e.code == ERR_UNSUPPORTED);
    st_close(f);
    free(x), free(wide), free(h), free(got);
}

static void test_read_half(void)
{
    static const uint32_t bf16[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0x17fff, 0x18000, 0x18001};
    static const uint32_t f16[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001};
    test_read_as(ST_BF16, bf16), test_read_as(ST_F16, f16);
}

/* ---- config.json ----------------------------------------------------------------------------- */

#define SIZES                                                                                      \
    "\"vocab_size\":300,\"hidden_size\":48,\"intermediate_size\":80,\"num_hidden_layers\":2,"      \
    "\"num_attention_heads\":4"
#define LLAMA "\"model_type\":\"llama\","
#define QWEN3 "\"model_type\":\"qwen3\","
#define EIGHT                                                                                      \
    "\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":80,\"num_hidden_layers\":2,"      \
    "\"num_attention_heads\":64"
#define MISTRAL "\"model_type\":\"mistral\",\"num_key_value_heads\":4,"

static int parse(const char *text, struct model_shape *m)
{
    e = (struct err){0};
    return config_parse(text, strlen(text), "config.json", m, &e);
}

static void test_config_good(void)
{
    struct model_shape m, n;
    char out[1024];
    CHECK(parse("{" LLAMA SIZES "}", &m) == 0);
    CHECK(m.vocab == 300 && m.width == 48 && m.ffn_width == 80 && m.n_layers == 2 &&
          m.n_heads == 4);
    CHECK(m.n_kv_heads == 4 && m.head_dim == 12 && m.max_pos == 2048 && m.tied == 0);
    CHECK(m.norm_eps == 1e-6 && m.rope_theta == 10000);
    /* v4 */
    CHECK_MSG(parse("{\"architectures\":[\"LlamaForCausalLM\"]," LLAMA SIZES
                    ",\"rope_theta\":500000.0,"
                    "\"rope_scaling\":null,\"torch_dtype\":\"bfloat16\",\"num_key_value_heads\":2,"
                    "\"head_dim\":16,\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":true,"
                    "\"attention_bias\":false,\"mlp_bias\":false,\"hidden_act\":\"silu\","
                    "\"eos_token_id\":[1,2],\"attention_dropout\":0.0,\"sliding_window\":null,"
                    "\"max_position_embeddings\":4096,\"pretraining_tp\":1}",
                    &m) == 0,
              "%s", e.text);
    CHECK(m.rope_theta == 500000 && m.n_kv_heads == 2 && m.head_dim == 16 && m.norm_eps == 1e-5);
    CHECK(m.tied == 1 && m.max_pos == 4096);
    /* v5 */
    CHECK_MSG(
        parse("{" LLAMA SIZES ",\"dtype\":\"float32\",\"rope_parameters\":{\"rope_type\":"
              "\"default\",\"rope_theta\":500000.0},\"num_key_value_heads\":2,\"head_dim\":16,"
              "\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":true,\"layer_types\":"
              "[\"full_attention\",\"full_attention\"],\"max_position_embeddings\":4096}",
              &n) == 0,
        "%s", e.text);
    CHECK(!hf_shape_diff(&m, &n) && !memcmp(&m, &n, sizeof m));
    /* the output of describe can be read again */
    static struct job_spec s;
    spec_defaults(&s);
    CHECK(!spec_intern(&s, "/m", 2, &s.model.path));
    CHECK(hf_shape_json(&m, s.model.config, sizeof s.model.config) > 0 && !config_open(&s, &e));
    CHECK(!memcmp(&m, &s.model.shape, sizeof m));
    CHECK(hf_shape_json(&m, out, 20) == -1);
    n.n_kv_heads = 4;
    CHECK_STR(hf_shape_diff(&m, &n), "num_key_value_heads");
    n = m;
    n.rope_theta = 1e4;
    CHECK_STR(hf_shape_diff(&m, &n), "rope_theta");
    n = m;
    n.max_pos = 1;
    CHECK(!hf_shape_diff(&m, &n));
}

/* Checks that a key, or its absence, has the same effect as in transformers 5.23 for each
 * model_type (configuration_*.py, modeling_*.py). */
static void test_config_meaning(void)
{
    static const struct {
        const char *text;
        int64_t window, kv, head;
    } v[] = {
        /* LlamaConfig has none of the keys that define a window, and LlamaAttention has no
         * window. */
        {LLAMA SIZES ",\"sliding_window\":8", 0, 4, 12},
        {LLAMA SIZES ",\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":0", 0,
         4, 12},
        {LLAMA SIZES ",\"sliding_window\":8,\"layer_types\":[\"sliding_attention\","
                     "\"full_attention\"]",
         0, 4, 12},
        /* only trainings use this key, and the job sets its value */
        {LLAMA SIZES ",\"attention_dropout\":0.1", 0, 4, 12},
        {MISTRAL SIZES, 4096, 4, 12},
        {MISTRAL SIZES ",\"sliding_window\":8,\"use_sliding_window\":false", 8, 4, 12},
        {MISTRAL SIZES ",\"sliding_window\":8,\"max_window_layers\":1", 8, 4, 12},
        {MISTRAL SIZES ",\"sliding_window\":null", 0, 4, 12},
        {QWEN3 EIGHT, 0, 32, 128},
        {QWEN3 EIGHT ",\"head_dim\":16,\"num_key_value_heads\":null", 0, 64, 16},
        /* layers from 28 on have a window, but the model has only 2 layers */
        {QWEN3 EIGHT ",\"use_sliding_window\":true", 0, 32, 128},
        {QWEN3 EIGHT ",\"use_sliding_window\":true,\"max_window_layers\":0", 4096, 32, 128},
        {QWEN3 EIGHT ",\"use_sliding_window\":true,\"sliding_window\":8,\"layer_types\":"
                     "[\"sliding_attention\",\"sliding_attention\"]",
         8, 32, 128},
        {QWEN3 EIGHT ",\"sliding_window\":8,\"max_window_layers\":0", 0, 32, 128},
    };
    struct model_shape m;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s}", v[i].text);
        CHECK_MSG(parse(text, &m) == 0, "%s: %s", text, e.text);
        CHECK_MSG(m.window == v[i].window && m.n_kv_heads == v[i].kv && m.head_dim == v[i].head,
                  "%s: window %lld, %lld KV heads of %lld", text, (long long)m.window,
                  (long long)m.n_kv_heads, (long long)m.head_dim);
    }
}

/* Checks that a single error names all features that a file requires and that are not supported.
 * Errors of other kinds must be reported first. */
static void test_config_all_at_once(void)
{
    struct model_shape m;
    CHECK(parse("{" LLAMA SIZES ",\"use_mrope\":true,\"rope_scaling\":{\"rope_type\":\"mrope\","
                "\"factor\":4},\"quantization_config\":{\"bits\":[4,{\"a\":1}]},\"partial_rotary_"
                "factor\":0.5,"
                "\"hidden_act\":\"gelu\",\"rope_parameters\":{\"full_attention\":{\"x\":1}}}",
                &m) == -1);
    CHECK(e.code == ERR_UNSUPPORTED);
    static const char *const all[] = {"6 things",
                                      "use_mrope",
                                      "rope_scaling",
                                      "quantization",
                                      "partial_rotary_factor",
                                      "hidden_act",
                                      "rope_parameters: parameters by layer type"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK_MSG(strstr(e.text, all[i]), "%s is not in: %s", all[i], e.text);
    CHECK(parse("{\"model_type\":\"qwen3\"," EIGHT ",\"sliding_window\":8,\"use_mrope\":true,"
                "\"layer_types\":[\"sliding_attention\",\"x\",\"x\"]}",
                &m) == -1);
    CHECK_MSG(e.code == ERR_UNSUPPORTED && strstr(e.text, "2 things") &&
                  strstr(e.text, "use_mrope") && strstr(e.text, "layer_types"),
              "%s", e.text);
    CHECK(parse("{" LLAMA SIZES ",\"attention_bias\":true,\"head_dim\":\"x\"}", &m) == -1);
    CHECK(e.code == ERR_INVALID && strstr(e.text, "head_dim"));
    /* There are more requirements than an error's text can hold. The error names as many of them
     * as fit, and has their total number. */
    CHECK(parse("{\"model_type\":\"minimax\",\"num_key_value_heads\":4," SIZES
                ",\"quantization_config\":1,\"text_config\":1,\"postnorm\":false,"
                "\"shared_intermediate_size\":5,\"sliding_window\":9,\"hidden_act\":\"gelu\","
                "\"router_jitter_noise\":1,\"partial_rotary_factor\":0.5,\"rope_scaling\":"
                "{\"rope_type\":\"yarn\"},\"rope_parameters\":{\"rope_type\":\"yarn\"},"
                "\"layer_types\":[\"full_attention\",\"full_attention\"]}",
                &m) == -1);
    CHECK_MSG(e.code == ERR_UNSUPPORTED && strstr(e.text, "11 things"), "%s", e.text);
}

static void test_config_bad(void)
{
    static const struct {
        const char *text;
        enum err_code code;
        const char *names;
    } v[] = {
        {"", ERR_INVALID, "JSON"},
        {"[]", ERR_INVALID, "object"},
        {"{" LLAMA SIZES, ERR_INVALID, "JSON"},
        {"{" LLAMA SIZES "} x", ERR_INVALID, "JSON"},
        {"{" SIZES "}", ERR_INVALID, "model_type"},
        {"{\"model_type\":\"transnormer\",\"vocab_size\":300}", ERR_INVALID, "decoder_embed_dim"},
        {"{\"model_type\":\"gptj\"," SIZES "}", ERR_UNSUPPORTED, "model_type"},
        {"{\"model_type\":5," SIZES "}", ERR_INVALID, "model_type"},
        {"{" LLAMA SIZES ",\"attention_bias\":1}", ERR_INVALID, "attention_bias"},
        {"{" MISTRAL SIZES ",\"attention_bias\":true}", ERR_UNSUPPORTED, "attention_bias"},
        {"{" LLAMA SIZES ",\"hidden_act\":\"gelu\"}", ERR_UNSUPPORTED, "hidden_act"},
        {"{" MISTRAL SIZES ",\"sliding_window\":-1}", ERR_INVALID, "sliding_window"},
        {"{" LLAMA SIZES ",\"quantization_config\":{\"bits\":4}}", ERR_UNSUPPORTED,
         "quantization_config"},
        {"{" LLAMA SIZES ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", ERR_INVALID,
         "low_freq_factor"},
        {"{" LLAMA SIZES ",\"rope_scaling\":{\"type\":\"linear\"}}", ERR_INVALID, "factor"},
        {"{" LLAMA SIZES ",\"rope_scaling\":{\"type\":\"mrope\"}}", ERR_UNSUPPORTED,
         "rope_scaling"},
        {"{" LLAMA SIZES ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", ERR_INVALID, "factor"},
        {"{" LLAMA SIZES ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
         "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":3}}",
         ERR_UNSUPPORTED, "rope_parameters"},
        {"{" LLAMA SIZES ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2,"
         "\"original_max_position_embeddings\":64,\"short_factor\":[1],\"long_factor\":[1]}}",
         ERR_INVALID, "rope_short_factor"},
        {"{" LLAMA SIZES ",\"rope_parameters\":{\"full_attention\":{}}}", ERR_UNSUPPORTED,
         "rope_parameters"},
        {"{" LLAMA SIZES ",\"partial_rotary_factor\":0.5}", ERR_UNSUPPORTED,
         "partial_rotary_factor"},
        {"{" MISTRAL SIZES ",\"layer_types\":[\"chunked_attention\"]}", ERR_UNSUPPORTED,
         "layer_types"},
        {"{" LLAMA SIZES ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":5e5}}",
         ERR_INVALID, "rope_theta"},
        {"{" LLAMA SIZES ",\"vocab_size\":300}", ERR_INVALID, "vocab_size"},
        {"{" LLAMA SIZES ",\"head_dim\":15}", ERR_INVALID, "head_dim"},
        {"{" LLAMA SIZES ",\"num_key_value_heads\":3}", ERR_INVALID, "num_key_value_heads"},
        {"{" LLAMA SIZES ",\"num_key_value_heads\":0}", ERR_INVALID, "num_key_value_heads"},
        {"{" LLAMA SIZES ",\"num_key_value_heads\":-1}", ERR_INVALID, "num_key_value_heads"},
        {"{" LLAMA SIZES ",\"num_key_value_heads\":1e99}", ERR_INVALID, "num_key_value_heads"},
        {"{" LLAMA SIZES ",\"rms_norm_eps\":-1}", ERR_INVALID, "rms_norm_eps"},
        {"{" LLAMA SIZES ",\"rms_norm_eps\":\"1\"}", ERR_INVALID, "rms_norm_eps"},
        {"{" LLAMA SIZES ",\"tie_word_embeddings\":1}", ERR_INVALID, "tie_word_embeddings"},
        {"{" LLAMA "\"vocab_size\":300,\"hidden_size\":50,\"intermediate_size\":80,"
         "\"num_hidden_layers\":2,\"num_attention_heads\":4}",
         ERR_INVALID, "hidden_size"},
        {"{" LLAMA "\"vocab_size\":1,\"hidden_size\":48,\"intermediate_size\":80,"
         "\"num_hidden_layers\":2,\"num_attention_heads\":4}",
         ERR_INVALID, "vocab_size"},
        {"{" LLAMA "\"vocab_size\":300,\"hidden_size\":48,\"intermediate_size\":80,"
         "\"num_hidden_layers\":null,\"num_attention_heads\":4}",
         ERR_INVALID, "null"},
    };
    struct model_shape m;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        CHECK_MSG(parse(v[i].text, &m) == -1 && e.code == v[i].code && strstr(e.text, v[i].names) &&
                      strstr(e.text, "config.json"),
                  "%s: %s %s", v[i].text, err_name(e.code), e.text);
    static const char good[] = "{" LLAMA SIZES ",\"rope_scaling\":null,\"head_dim\":16}";
    char text[sizeof good];
    for (size_t n = 0; n + 1 < sizeof good; n++) CHECK(config_parse(good, n, "c", &m, &e) == -1);
    for (size_t n = 0; n + 1 < sizeof good; n++) /* a change of any byte must cause no crash */
        for (int c = 0; c < 256; c += 7) {
            memcpy(text, good, sizeof good);
            text[n] = (char)c;
            config_parse(text, sizeof good - 1, "c", &m, &e);
        }
}

/* ---- model directories ----------------------------------------------------------------------- */

static const struct model_shape small = {.family = FAMILY_LLAMA,
                                         .n_layers = 2,
                                         .width = 24,
                                         .n_heads = 3,
                                         .n_kv_heads = 1,
                                         .head_dim = 10,
                                         .ffn_width = 36,
                                         .vocab = 263,
                                         .max_pos = 128,
                                         .norm_eps = 1e-5,
                                         .rope_theta = 10000};

/* Makes weights in which the value of an element depends on its place. Gaps have a value that must
 * never be written or read. */
static float *make_params(const struct model_shape *m)
{
    float *x = malloc((size_t)param_count(m) * sizeof *x);
    struct param p;
    for (int64_t i = 0; i < param_count(m); i++) x[i] = NAN;
    for (int k = 0; k < param_tensors(m); k++) {
        param_get(m, k, &p);
        for (int64_t i = 0; i < p.count; i++) x[p.offset + i] = (float)(k * 1000) + (float)i / 7;
    }
    return x;
}

/* Tells whether tensors are equal bit by bit, and the gaps of `got` are zero. */
static bool same_params(const struct model_shape *m, const float *got, const float *want)
{
    struct param p;
    int64_t at = 0;
    for (int k = 0; k < param_tensors(m); k++) {
        param_get(m, k, &p);
        for (; at < p.offset; at++)
            if (got[at] != 0) return false;
        if (memcmp(got + p.offset, want + p.offset, (size_t)p.count * sizeof *got)) return false;
        at = p.offset + p.count;
    }
    return true;
}

static void test_model_round_trip(void)
{
    for (int tied = 0; tied < 2; tied++) {
        struct model_shape m = small, back;
        char a[SHA256_HEX], b[SHA256_HEX], text[1024];
        m.tied = tied;
        float *x = make_params(&m), *y = make_params(&m);
        for (int64_t i = 0; i < param_count(&m); i++) y[i] = -1;
        CHECK(hf_save(in_dir("model"), &m, DT_F32, x, &e) == 0);
        CHECK(config_read_dir(in_dir("model"), &back, &e) == 0 && !memcmp(&m, &back, sizeof m));
        CHECK_MSG(hf_load(in_dir("model"), &back, DT_F32, y, &e) == 0, "%s", e.text);
        CHECK(same_params(&m, y, x));
        CHECK(hf_weights_digest(&m, DT_F32, x, a, &e) == 0 &&
              hf_weights_digest(&m, DT_F32, y, b, &e) == 0);
        CHECK_STR(a, b); /* gaps are in neither of the two digests */
        /* The same values in a different format (model.weights) count as a different model. */
        char word[WEIGHTS_N][SHA256_HEX];
        for (int w = 0; w < WEIGHTS_N; w++) {
            struct model_shape stored = m;
            stored.quant = w;
            CHECK(!hf_weights_digest(&stored, DT_F32, x, word[w], &e));
            for (int before = 0; before < w; before++) CHECK(strcmp(word[before], word[w]));
        }
        CHECK_STR(word[WEIGHTS_MODEL], a);
        y[0] += 1;
        CHECK(hf_weights_digest(&m, DT_F32, y, b, &e) == 0 && strcmp(a, b));
        CHECK(hf_describe(in_dir("model"), text, sizeof text, &e) > 0);
        CHECK(strstr(text, tied ? "\"n_params\":15456" : "\"n_params\":21768") != NULL);
        /* The same parameters give the same bytes. */
        char h1[SHA256_HEX], h2[SHA256_HEX];
        CHECK(sha256_file(in_dir("model/model.safetensors"), h1, NULL, &e) == 0);
        CHECK(hf_load(in_dir("model"), &back, DT_F32, y, &e) == 0);
        CHECK(hf_save(in_dir("model2"), &m, DT_F32, y, &e) == 0);
        CHECK(sha256_file(in_dir("model2/model.safetensors"), h2, NULL, &e) == 0);
        CHECK_STR(h1, h2);
        free(x);
        free(y);
    }
}

/* Writes the untied model again with changed tensors, for tests that expect one error. */
static struct st_out *all_items(const struct model_shape *m, const float *x, struct param *params)
{
    int n = param_list(m, params, FAMILY_TENSORS);
    struct st_out *items = calloc((size_t)n + 2, sizeof *items);
    for (int i = 0; i < n; i++)
        items[i] = (struct st_out){params[i].name,
                                   ST_F32,
                                   params[i].cols ? 2 : 1,
                                   {params[i].rows, params[i].cols},
                                   x + params[i].offset};
    return items;
}

static void test_model_wrong(void)
{
    struct model_shape m = small;
    struct param *params = malloc(FAMILY_TENSORS * sizeof *params);
    int n = param_tensors(&m);
    float *x = make_params(&m), *y = make_params(&m);
    struct st_out *items = all_items(&m, x, params), keep;
    file_remove(in_dir("model"), NULL);
    CHECK(hf_save(in_dir("model"), &m, DT_F32, x, &e) == 0);
    char path[100];
    snprintf(path, sizeof path, "%s/model/model.safetensors", dir);
    /* a missing, an unexpected and a misshapen tensor at the same time */
    keep = items[3];
    items[3].name = "model.layers.9.odd";
    items[5].dims[0] = 8;
    items[5].dims[1] = 3;
    items[5].n_dims = 2;
    CHECK(st_write(path, items, n, &e) == 0);
    CHECK(hf_load(in_dir("model"), &m, DT_F32, y, &e) == -1 && e.code == ERR_INVALID);
    CHECK_MSG(strstr(e.text, keep.name) && strstr(e.text, "missing") &&
                  strstr(e.text, "[8,3], want") &&
                  strstr(e.text, "model.layers.9.odd is unexpected"),
              "%s", e.text);
    char text[1024];
    CHECK(hf_describe(in_dir("model"), text, sizeof text, &e) == -1 && strstr(e.text, keep.name));
    free(items);
    /* every tensor is missing, and they are counted */
    CHECK(st_write(path, NULL, 0, &e) == 0);
    CHECK(hf_load(in_dir("model"), &m, DT_F32, y, &e) == -1 && strstr(e.text, "in 21 tensors"));
    /* an integer tensor where floats are expected, and an obsolete buffer, which is ignored */
    static const int32_t zeros[24];
    items = all_items(&m, x, params);
    items[n] = (struct st_out){"model.layers.0.self_attn.rotary_emb.inv_freq", ST_F32, 1, {5}, x};
    CHECK(st_write(path, items, n + 1, &e) == 0 &&
          hf_load(in_dir("model"), &m, DT_F32, y, &e) == 0);
    CHECK(same_params(&m, y, x));
    items[1].dtype = ST_I32;
    items[1].data = zeros;
    CHECK(st_write(path, items, n, &e) == 0);
    CHECK(hf_load(in_dir("model"), &m, DT_F32, y, &e) == -1 && e.code == ERR_INVALID);
    CHECK_MSG(strstr(e.text, items[1].name) && strstr(e.text, "has element type I32"), "%s",
              e.text);
    free(items);
    /* first without weights, then without a directory */
    CHECK(unlink(path) == 0 && hf_load(in_dir("model"), &m, DT_F32, y, &e) == -1 &&
          e.code == ERR_INVALID);
    CHECK(hf_describe(in_dir("nowhere"), text, sizeof text, &e) == -1 && e.code == ERR_NOT_FOUND);
    free(params);
    free(x);
    free(y);
}

static void test_model_tied_head(void)
{
    struct model_shape m = small;
    m.tied = 1;
    struct param *params = malloc(FAMILY_TENSORS * sizeof *params);
    int n = param_tensors(&m);
    float *x = make_params(&m), *y = make_params(&m);
    CHECK(hf_save(in_dir("tied"), &m, DT_F32, x, &e) == 0);
    struct st_out *items = all_items(&m, x, params);
    items[n] = items[0];
    items[n].name = "lm_head.weight";
    CHECK(st_write(in_dir("tied/model.safetensors"), items, n + 1, &e) == 0);
    CHECK_MSG(hf_load(in_dir("tied"), &m, DT_F32, y, &e) == 0 && same_params(&m, y, x), "%s",
              e.text);
    items[n].data = x + 16;
    CHECK(st_write(in_dir("tied/model.safetensors"), items, n + 1, &e) == 0);
    CHECK(hf_load(in_dir("tied"), &m, DT_F32, y, &e) == -1 &&
          strstr(e.text, "lm_head.weight differs"));
    free(items);
    free(params);
    free(x);
    free(y);
}

/* Checks two shards in BF16 with an index, and then everything that can be wrong with an index. */
static void test_model_sharded(void)
{
    struct model_shape m = small;
    struct param *params = malloc(FAMILY_TENSORS * sizeof *params);
    int n = param_tensors(&m);
    float *x = make_params(&m), *y = make_params(&m);
    uint16_t *half = malloc((size_t)param_count(&m) * 2);
    for (int64_t i = 0; i < param_count(&m); i++) { /* values that BF16 holds exactly */
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        half[i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000;
        memcpy(&x[i], &bits, 4);
    }
    struct st_out *items = all_items(&m, x, params);
    for (int i = 0; i < n; i++) {
        items[i].dtype = ST_BF16;
        items[i].data = half + params[i].offset;
    }
    CHECK(file_make_dir(in_dir("sharded"), &e) == 0 &&
          hf_config_write(in_dir("sharded"), &m, DT_F32, NULL, &e) == 0);
    CHECK(st_write(in_dir("sharded/model-00001-of-00002.safetensors"), items, 10, &e) == 0);
    CHECK(st_write(in_dir("sharded/model-00002-of-00002.safetensors"), items + 8, n - 8, &e) == 0);
    char *index = malloc(16384);
    size_t len = (size_t)snprintf(index, 16384,
                                  "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (int i = 0; i < n; i++)
        len += (size_t)snprintf(index + len, 16384 - len,
                                "%s\"%s\":\"model-0000%d-of-00002.safetensors\"", i ? "," : "",
                                params[i].name, i < 10 ? 1 : 2);
    len += (size_t)snprintf(index + len, 16384 - len, "}}");
    put("sharded/model.safetensors.index.json", index, len);
    CHECK_MSG(hf_load(in_dir("sharded"), &m, DT_F32, y, &e) == 0 && same_params(&m, y, x), "%s",
              e.text);
    for (size_t i = 0; i < len; i += 11) {
        put("sharded/model.safetensors.index.json", index, i);
        CHECK(hf_load(in_dir("sharded"), &m, DT_F32, y, &e) == -1);
    }
    static const char *const bad[] = {"{\"weight_map\":{\"a\":\"../x\"}}",
                                      "{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
                                      "{}",
                                      "{\"weight_map\":{\"a\":\"\"}}",
                                      "{\"weight_map\":{\"a\":3}}",
                                      "{\"weight_map\":[]}",
                                      "{\"weight_map\":{},\"weight_map\":{}}",
                                      "{\"weight_map\":{\"a\":\"gone.safetensors\"}}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("sharded/model.safetensors.index.json", bad[i], strlen(bad[i]));
        CHECK_MSG(hf_load(in_dir("sharded"), &m, DT_F32, y, &e) == -1, "%s", bad[i]);
    }
    put("sharded/model.safetensors.index.json", index, len);
    CHECK(truncate(in_dir("sharded/model-00002-of-00002.safetensors"), 1000) == 0);
    CHECK(hf_load(in_dir("sharded"), &m, DT_F32, y, &e) == -1 && e.code == ERR_CORRUPT);
    CHECK(strstr(e.text, "model-00002-of-00002") != NULL);
    free(index);
    free(items);
    free(half);
    free(params);
    free(x);
    free(y);
}

int main(void)
{
    scratch_dir(dir, sizeof dir, "st");
    RUN(test_valid);
    RUN(test_invalid);
    RUN(test_bounded);
    RUN(test_write);
    RUN(test_write_errors);
    RUN(test_write_hashed);
    RUN(test_write_hashed_errors);
    RUN(test_halves);
    RUN(test_read_half);
    RUN(test_config_good);
    RUN(test_config_meaning);
    RUN(test_config_all_at_once);
    RUN(test_config_bad);
    RUN(test_model_round_trip);
    RUN(test_model_wrong);
    RUN(test_model_tied_head);
    RUN(test_model_sharded);
    file_remove(dir, NULL);
    return test_done("safetensors");
}
