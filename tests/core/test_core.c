/* test_core: tests errors, arenas, digests, and reading and writing JSON. */
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/core/duration.h"
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/hmac.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/mem.h"
#include "api/core/process.h"
#include "api/core/sha256.h"
#include "api/core/utf8.h"

/* Checks that a sentence has its field or its prefix once. */
static void test_err_about(void)
{
    static const struct {
        const char *says, *want;
    } rows[] = {{"/a: it is damaged", "model.adapter: /a: it is damaged"},
                {"model.adapter: /a: it is damaged", "model.adapter: /a: it is damaged"},
                {"model.adapter /a has none", "model.adapter /a has none"},
                {"model.adapter.x is odd", "model.adapter.x is odd"},
                {"model.adapter[1] is odd", "model.adapter[1] is odd"},
                {"model.adapter, a list, is odd", "model.adapter, a list, is odd"},
                {"model.adapters has none", "model.adapter: model.adapters has none"},
                {"model.adapter", "model.adapter: model.adapter"},
                {"", "model.adapter: "}};
    struct err e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err_field(&e, ERR_CORRUPT, "adapter.rank", "%s", rows[i].says);
        CHECK(err_about(&e, "model.adapter") == -1 && e.code == ERR_CORRUPT);
        CHECK_STR(e.field, "model.adapter");
        CHECK_STR(e.text, rows[i].want);
        err_set(&e, ERR_IO, "%s", rows[i].says);
        CHECK(err_prefix(&e, "model.%s", "adapter") == -1 && !*e.field);
        CHECK_STR(e.text, rows[i].want);
    }
    CHECK(err_about(NULL, "name") == -1);
}

static void test_err(void)
{
    struct err e = {0};
    CHECK(err_field(&e, ERR_INVALID, "data.seq_len", "%d is odd", 3) == -1);
    CHECK(e.code == ERR_INVALID);
    CHECK_STR(e.field, "data.seq_len");
    CHECK(err_prefix(&e, "%s", "job 7") == -1);
    CHECK_STR(e.text, "job 7: 3 is odd");
    CHECK_STR(e.field, "data.seq_len");
    test_err_about();
    errno = ENOENT;
    CHECK(err_errno(&e, "open %s", "/x") == -1 && e.code == ERR_NOT_FOUND);
    CHECK_STR(e.text, "open /x: No such file or directory");
    static const int full[] = {ENOSPC, EDQUOT, EROFS};
    for (int i = 0; i < 3; i++) {
        errno = full[i];
        err_errno(&e, "write");
        CHECK(e.code == ERR_NO_SPACE && strstr(e.text, strerror(full[i])));
        errno = full[i];
        err_write(&e, 5, "write");
        CHECK(e.code == ERR_NO_SPACE);
    }
    errno = EIO;
    err_errno(&e, "write");
    CHECK(e.code == ERR_IO);
    CHECK(err_set(NULL, ERR_IO, "without an err") == -1);
    for (int c = 0; c < ERR_N; c++)
        for (int d = 0; d < c; d++)
            CHECK(strcmp(err_name((enum err_code)c), err_name((enum err_code)d)));
    CHECK(!strcmp(err_name(ERR_N), "internal"));
}

static void test_err_long(void)
{
    struct err e;
    char *big = malloc(5000);
    memset(big, 'x', 4999);
    big[4999] = 0;
    err_field(&e, ERR_INVALID, big, "%s", big);
    CHECK(strlen(e.text) == sizeof e.text - 1 && strlen(e.field) == sizeof e.field - 1);
    err_prefix(&e, "%s", big);
    CHECK(strlen(e.text) == sizeof e.text - 1);
    free(big);
}

static void test_arena(void)
{
    struct arena a;
    arena_init(&a, 100000);
    char *p = arena_alloc(&a, 100), *q = arena_alloc(&a, 40000);
    CHECK(p && q && (uintptr_t)p % 16 == 0 && (uintptr_t)q % 16 == 0);
    for (int i = 0; i < 40000; i++) CHECK(q[i] == 0);
    memset(q, 1, 40000);
    CHECK(!arena_alloc(&a, 60000));
    CHECK(!arena_alloc(&a, SIZE_MAX - 3));
    arena_reset(&a);
    CHECK(a.used_size == 0);
    char *r = arena_alloc(&a, 90000);
    CHECK(r && r[0] == 0 && r[89999] == 0);
    arena_fini(&a);
    int64_t v;
    CHECK(mem_mul(INT64_MAX, 2, &v) == -1 && mem_mul(-1, 2, &v) == -1);
    CHECK(mem_mul(3, 4, &v) == 0 && v == 12);
    CHECK(mem_add(INT64_MAX, 1, &v) == -1 && mem_add(1, 2, &v) == 0 && v == 3);
}

static void check_sha(const char *text, size_t n, size_t step, const char *want)
{
    struct sha256 s;
    char hex[SHA256_HEX];
    sha256_init(&s);
    for (size_t i = 0; i < n; i += step) sha256_add(&s, text + i, n - i < step ? n - i : step);
    sha256_hex(&s, hex);
    CHECK_STR(hex, want);
}

static void test_sha256(void)
{
    static const struct {
        const char *text, *hex;
    } v[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
         "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (size_t step = 1; step < 130; step++)
            check_sha(v[i].text, strlen(v[i].text), step, v[i].hex);
    char *a = malloc(1000000);
    memset(a, 'a', 1000000);
    const char *million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
    check_sha(a, 1000000, 1000000, million);
    check_sha(a, 1000000, 977, million);
    free(a);
}

/* Compares the fast code for blocks, if this machine has it, with the plain code. */
static void check_hmac(const char *key, size_t key_size, const char *data, size_t size,
                       const char *want, size_t want_digits)
{
    uint8_t mac[HMAC_SIZE], other[HMAC_SIZE];
    char hex[2 * HMAC_SIZE + 1];
    hmac_sha256(key, key_size, data, size, mac);
    for (int i = 0; i < HMAC_SIZE; i++) snprintf(hex + 2 * i, 3, "%02x", mac[i]);
    hex[want_digits] = 0;
    CHECK_STR(hex, want);
    memcpy(other, mac, sizeof other);
    CHECK(hmac_equal(mac, other));
    other[HMAC_SIZE - 1] ^= 1;
    CHECK(!hmac_equal(mac, other));
}

/* Checks cases 1 to 7 of RFC 4231. */
static void test_hmac(void)
{
    char key[131], data[50];
    const char *long_key = "This is a test using a larger than block-size key and a larger than "
                           "block-size data. The key needs to be hashed before being used by the "
                           "HMAC algorithm.";
    memset(key, 0x0b, 20);
    check_hmac(key, 20, "Hi There", 8,
               "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7", 64);
    check_hmac("Jefe", 4, "what do ya want for nothing?", 28,
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", 64);
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, sizeof data);
    check_hmac(key, 20, data, 50,
               "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe", 64);
    check_hmac(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", 64);
    check_hmac(key, 131, long_key, strlen(long_key),
               "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2", 64);
    for (int i = 0; i < 25; i++) key[i] = (char)(i + 1);
    memset(data, 0xcd, sizeof data);
    check_hmac(key, 25, data, 50,
               "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b", 64);
    memset(key, 0x0c, 20);
    check_hmac(key, 20, "Test With Truncation", 20, "a3b6167473100ee06e0c796c2955552b", 32);
}

static void test_sha256_portable(void)
{
    uint8_t block[64 * 5];
    uint32_t h[8] = {1, 2, 3, 4, 5, 6, 7, 0xffffffff};
    struct sha256 s;
    for (int i = 0; i < (int)sizeof block; i++) block[i] = (uint8_t)(i * 37 ^ i >> 3);
    sha256_init(&s);
    memcpy(s.h, h, sizeof h);
    sha256_add(&s, block, sizeof block);
    sha256_blocks_portable(h, block, 5);
    CHECK(!memcmp(s.h, h, sizeof h));
}

/* Checks sha256_add_two, which adds the same bytes to two digests. The two digests begin at
 * different positions in a block. All pairs of positions and many sizes are checked. */
static void test_sha256_two(void)
{
    uint8_t bytes[330];
    char got[2][SHA256_HEX], want[2][SHA256_HEX];
    for (int i = 0; i < (int)sizeof bytes; i++) bytes[i] = (uint8_t)(i * 41 ^ i >> 2);
    for (size_t at = 0; at < 130; at += at < 66 ? 1 : 9)
        for (size_t size = 0; size <= 200; size += size < 66 ? 1 : 7) {
            const size_t begun[2] = {at * 7 % 130, at};
            struct sha256 s[2], one[2];
            for (int k = 0; k < 2; k++) {
                sha256_init(&s[k]);
                sha256_init(&one[k]);
                sha256_add(&s[k], bytes, begun[k]);
                sha256_add(&one[k], bytes, begun[k]);
                sha256_add(&one[k], bytes + 130, size);
                sha256_hex(&one[k], want[k]);
            }
            sha256_add_two(&s[0], &s[1], bytes + 130, size);
            for (int k = 0; k < 2; k++) {
                sha256_hex(&s[k], got[k]);
                CHECK_MSG(!strcmp(got[k], want[k]), "digest %d, %zu bytes after %zu", k, size,
                          begun[k]);
            }
        }
}

static void test_sha256_file(void)
{
    char path[] = "/tmp/seqd-core-XXXXXX", hex[SHA256_HEX];
    struct err e = {0};
    int64_t size = -1;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "abc", 3) == 3);
    close(fd);
    CHECK(sha256_file(path, hex, &size, &e) == 0 && size == 3);
    CHECK_STR(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    unlink(path);
    CHECK(sha256_file(path, hex, NULL, &e) == -1 && e.code == ERR_NOT_FOUND);
    CHECK(strstr(e.text, path) != NULL);
}

/* Reads to the end of a heap copy of exactly n bytes, so that a sanitizer detects an overrun.
 * Returns the number of tokens, or -1. */
static int read_all(const char *text, size_t n)
{
    char *copy = malloc(n ? n : 1);
    memcpy(copy, text, n);
    struct jread j;
    jread_init(&j, copy, n);
    enum jtok t;
    int count = 0;
    while ((t = jread_next(&j)) > J_END) count++;
    if (t == J_ERROR) {
        CHECK(jread_next(&j) == J_ERROR && jread_skip(&j) == -1); /* sticky */
        CHECK(strstr(j.err.text, "JSON byte") == j.err.text);
        count = -1;
    } else {
        CHECK(jread_next(&j) == J_END);
    }
    free(copy);
    return count;
}

/* Checks the position in an error. If the fault is not in the first line, the position is the line
 * and the column, as editors count them. */
static void test_jread_place(void)
{
    static const struct {
        const char *text, *says;
    } v[] = {{"{\"a\": x}", "JSON byte 6: a value"},
             {"{\n  \"a\": x}", "JSON byte 9 (line 2, column 8): a value"},
             {"[1,\n2,\n\n  3 4]", "JSON byte 12 (line 4, column 5): a comma"},
             {"{\n", "JSON byte 2 (line 2, column 1): a key"}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct jread j;
        jread_init(&j, v[i].text, strlen(v[i].text));
        while (jread_next(&j) > J_END) continue;
        CHECK_MSG(!strncmp(j.err.text, v[i].says, strlen(v[i].says)), "%s", j.err.text);
    }
}

/* Checks texts with control characters, which a terminal would execute. */
static void test_plain(void)
{
    struct err e;
    err_set(&e, ERR_CORRUPT, "a\nb\x1b[2J \xc2\x9b \xc3\xa9");
    err_plain(&e);
    CHECK_STR(e.text, "a?b?[2J ?? \xc3\xa9");
    char s[] = "\xc2\x80\xc2\x9f\xc2\xa0\xc2";
    utf8_show(s);
    CHECK_STR(s, "????\xc2\xa0\xc2");
    CHECK(utf8_control("") == 0 && utf8_control("\t") == 1 && utf8_control("\xc2\x85") == 2);
    CHECK(utf8_plain("a \xc3\xa9 \xc2\xa0") && !utf8_plain("\x1b") && !utf8_plain("a\x7f") &&
          !utf8_plain("\xc2\x9b"));
}

static void test_jread_valid(void)
{
    static const struct {
        const char *text;
        int n_tokens;
    } v[] = {
        {"{}", 2},
        {"[]", 2},
        {" \t\r\n[ ] ", 2},
        {"0", 1},
        {"-0", 1},
        {"-0.0e-0", 1},
        {"1E+5", 1},
        {"123456789012345678901234567890", 1},
        {"true", 1},
        {"false", 1},
        {"null", 1},
        {"\"\"", 1},
        {"{\"a\":1}", 4},
        {"{\"a\":[1,2,{\"b\":null}],\"\":\"x\"}", 13},
        {"[[],[[]],{}]", 10},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\"", 1},
        {"\"\\ud83d\\ude00\"", 1},
        {"\"\\u0000\"", 1},
        {"\"\x7f\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"", 1},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        int n = read_all(v[i].text, strlen(v[i].text));
        CHECK_MSG(n == v[i].n_tokens, "%s gave %d tokens", v[i].text, n);
    }
}

static void test_jread_invalid(void)
{
    static const char *const v[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "{]",
        "[}",
        "[1,]",
        "{\"a\":1,}",
        "[,1]",
        "{,}",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":}",
        "{\"a\"}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "{} {}",
        "1 2",
        "01",
        "-01",
        "00",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "-",
        "--1",
        "0x10",
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "nul",
        "nulll",
        "True",
        "tru",
        "falsee",
        "'a'",
        "\"",
        "\"a",
        "\"\\",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u123g\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800\\ud800\"",
        "\"\\ud800x\"",
        "\"\\ud83d\\ude0\"",
        "\"\\udc00\\ud800\"",
        "\"a\nb\"",
        "\"\t\"",
        "\"\x1f\"",
        "\"\x80\"",
        "\"\xc0\xaf\"",
        "\"\xc1\xbf\"",
        "\"\xe0\x80\xaf\"",
        "\"\xed\xa0\x80\"",
        "\"\xed\xbf\xbf\"",
        "\"\xf0\x80\x80\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xf5\x80\x80\x80\"",
        "\"\xff\"",
        "\"\xc3\"",
        "\"\xe2\x82\"",
        "\"\xe2\x28\xa1\"",
        "\xef\xbb\xbf{}",
        "/**/1",
        "[1]//",
        "\f1",
        "[1}",
        "{\"a\":[}",
        "\"a\"\"b\"",
        "{\"a\":1}}",
        "[1]]",
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        CHECK_MSG(read_all(v[i], strlen(v[i])) == -1, "accepted: %s", v[i]);
    CHECK(read_all("1\0", 2) == -1); /* a NUL is not white space */
    CHECK(read_all("\"a\0b\"", 5) == -1);
}

static void test_jread_depth(void)
{
    char text[2 * JREAD_DEPTH + 3];
    for (int d = 1; d <= JREAD_DEPTH + 1; d++) {
        memset(text, '[', (size_t)d);
        memset(text + d, ']', (size_t)d);
        CHECK(read_all(text, (size_t)(2 * d)) == (d <= JREAD_DEPTH ? 2 * d : -1));
    }
    char *bomb = malloc(1000000);
    memset(bomb, '[', 1000000);
    CHECK(read_all(bomb, 1000000) == -1);
    free(bomb);
}

/* Checks values that end with a bracket or a quote. Every proper prefix of such a value must be
 * refused, and so must the value followed by one more byte. */
static void test_jread_truncated(void)
{
    static const char sample[] =
        "{\"model_type\":\"llama\",\"n\":[1,-2.5e+10,true,false,null,{}],"
        "\"s\":\"\\u00e9\\ud83d\\ude00\xc3\xa9\\n\",\"deep\":[[[{\"x\":[]}]]]}";
    size_t n = sizeof sample - 1;
    CHECK(read_all(sample, n) > 0);
    for (size_t i = 0; i < n; i++) CHECK_MSG(read_all(sample, i) == -1, "prefix %zu", i);
    CHECK(read_all(sample, n + 1) == -1); /* with its NUL */
}

/* Replaces each byte by each value. No such text may cause a crash. If a text is accepted, it must
 * be consistent. */
static void test_jread_mutated(void)
{
    char sample[] = "{\"a\":[1,-2e3,\"\\ud83d\\ude00x\\n\"],\"b\":{\"c\":null,\"d\":true}}";
    size_t n = sizeof sample - 1;
    int n_ok = 0, n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        char keep = sample[i];
        for (int c = 0; c < 256; c++) {
            sample[i] = (char)c;
            if (read_all(sample, n) > 0)
                n_ok++;
            else
                n_bad++;
        }
        sample[i] = keep;
    }
    CHECK(n_ok > 500 && n_bad > 5000);
}

static void test_jread_values(void)
{
    const char *text = "{\"k\\u00e9y\": \"a\\u0041\\ud83d\\ude00\", \"i\": -9223372036854775808, "
                       "\"d\": 2.5e-3, \"big\": 9223372036854775808, \"huge\": 1e999, \"f\": 1.0, "
                       "\"nul\": \"\\u0000\"}";
    struct jread j;
    char buf[64];
    int64_t i;
    double d;
    jread_init(&j, text, strlen(text));
    CHECK(jread_next(&j) == J_OBJECT && jread_next(&j) == J_KEY);
    CHECK(jread_is(&j, "k\xc3\xa9y") && !jread_is(&j, "k\xc3\xa9") && !jread_is(&j, "key"));
    CHECK(!jread_is(&j, "k\xc3\xa9yz") && !jread_is(&j, ""));
    CHECK(jread_next(&j) == J_STRING && jread_copy(&j, buf, sizeof buf) == 0);
    CHECK_STR(buf, "aA\xf0\x9f\x98\x80");
    CHECK(jread_copy(&j, buf, 7) == 0 && jread_copy(&j, buf, 6) == -1 &&
          jread_copy(&j, buf, 1) == -1);
    CHECK(jread_unescape(&j, buf) == 6 && j.len >= 6);
    CHECK(jread_next(&j) == J_KEY && jread_is(&j, "i") && !jread_is(&j, "ii") && !jread_is(&j, ""));
    CHECK(jread_next(&j) == J_NUMBER && jread_int(&j, &i) == 0 && i == INT64_MIN);
    CHECK(jread_next(&j) == J_KEY && jread_next(&j) == J_NUMBER && jread_int(&j, &i) == -1);
    CHECK(jread_double(&j, &d) == 0 && d == 2.5e-3);
    CHECK(jread_next(&j) == J_KEY && jread_next(&j) == J_NUMBER && jread_int(&j, &i) == -1);
    CHECK(jread_double(&j, &d) == 0 && d == 9223372036854775808.0);
    CHECK(jread_next(&j) == J_KEY && jread_next(&j) == J_NUMBER && jread_double(&j, &d) == -1);
    CHECK(jread_next(&j) == J_KEY && jread_next(&j) == J_NUMBER && jread_int(&j, &i) == -1);
    CHECK(jread_next(&j) == J_KEY && jread_next(&j) == J_STRING && jread_copy(&j, buf, 64) == -1);
    CHECK(jread_unescape(&j, buf) == 1 && buf[0] == 0);
    CHECK(jread_next(&j) == J_OBJECT_END && jread_next(&j) == J_END);
}

static void test_jread_skip(void)
{
    const char *text = "{\"a\":{\"x\":[1,{\"y\":[]}]},\"b\":3,\"c\":[[],[1]],\"d\":\"s\"}";
    struct jread j;
    jread_init(&j, text, strlen(text));
    CHECK(jread_next(&j) == J_OBJECT && jread_next(&j) == J_KEY);
    CHECK(jread_skip(&j) == 0 && jread_next(&j) == J_KEY && jread_is(&j, "b"));
    CHECK(jread_skip(&j) == 0 && jread_next(&j) == J_KEY && jread_is(&j, "c"));
    CHECK(jread_next(&j) == J_ARRAY && jread_skip(&j) == 0);
    CHECK(jread_next(&j) == J_KEY && jread_is(&j, "d"));
    /* a string has no further tokens to skip */
    CHECK(jread_next(&j) == J_STRING && jread_skip(&j) == 0);
    CHECK(jread_next(&j) == J_OBJECT_END && jread_next(&j) == J_END);
    jread_init(&j, "[1,[2,", 6);
    CHECK(jread_skip(&j) == -1 && j.err.code == ERR_INVALID);
    jread_init(&j, text, strlen(text));
    CHECK(jread_skip(&j) == 0 && jread_next(&j) == J_END); /* the whole text */
}

static void test_jwrite(void)
{
    struct jwrite w;
    char buf[512], small[40];
    jwrite_init(&w, buf, sizeof buf);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "step", INT64_MIN);
    jwrite_array(&w, "a");
    jwrite_double(&w, NULL, 0.1);
    jwrite_double(&w, NULL, NAN);
    jwrite_bool(&w, NULL, true);
    jwrite_null(&w, NULL);
    jwrite_object(&w, NULL);
    jwrite_end(&w);
    jwrite_end(&w);
    jwrite_str(&w, "s\"", "q\"\\\n\x01\xc3\xa9\xff\xed\xa0\x80");
    jwrite_strn(&w, "n", "a\0b", 3);
    jwrite_raw(&w, "r", "[1]");
    jwrite_end(&w);
    const char *want = "{\"step\":-9223372036854775808,\"a\":[0.1,null,true,null,{}],"
                       "\"s\\\"\":\"q\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                       "\xef\xbf\xbd\",\"n\":\"a\\u0000b\",\"r\":[1]}";
    CHECK(jwrite_finish(&w) == (int64_t)strlen(want));
    CHECK_STR(buf, want);
    CHECK(read_all(buf, strlen(buf)) > 0);

    for (size_t size = 0; size <= sizeof small; size++) {
        memset(small, 'Z', sizeof small);
        jwrite_init(&w, small, size);
        jwrite_object(&w, NULL);
        jwrite_str(&w, "key", "0123456789");
        jwrite_end(&w);
        CHECK(jwrite_finish(&w) == (size > 20 ? 20 : -1) && w.len == 20);
        for (size_t i = size; i < sizeof small; i++) CHECK(small[i] == 'Z');
    }
}

/* Checks texts with all 256 byte values and their neighbours. If a text is UTF-8, it must be read
 * back unchanged. */
static void test_jwrite_round_trip(void)
{
    char in[3], buf[64], out[64];
    struct jwrite w;
    struct jread j;
    for (int a = 0; a < 128; a++)
        for (int b = 0; b < 128; b++) {
            in[0] = (char)a;
            in[1] = (char)b;
            jwrite_init(&w, buf, sizeof buf);
            jwrite_strn(&w, NULL, in, 2);
            jread_init(&j, buf, (size_t)jwrite_finish(&w));
            CHECK(jread_next(&j) == J_STRING && jread_unescape(&j, out) == 2 &&
                  !memcmp(in, out, 2));
            CHECK(jread_next(&j) == J_END);
        }
}

static void test_number(void)
{
    static const struct {
        double v;
        const char *text;
    } v[] = {{0, "0"},
             {1, "1"},
             {0.1, "0.1"},
             {1.0 / 3, "0.3333333333333333"},
             {-0.0, "-0"},
             {1e22, "1e+22"},
             {5e-324, "5e-324"},
             {123456789, "123456789"},
             {1e-5, "1e-05"},
             {1.7976931348623157e308, "1.7976931348623157e+308"},
             {INFINITY, "null"},
             {4000, "4000"},
             {-1e14, "-100000000000000"},
             {1e15, "1e+15"}};
    char out[32];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        CHECK_STR(jwrite_number(out, v[i].v), v[i].text);
    uint64_t x = 88172645463325252ull;
    for (int i = 0; i < 20000; i++) {
        double d, back;
        struct jread j;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(&d, &x, sizeof d);
        if (!isfinite(d)) continue;
        jwrite_number(out, d);
        jread_init(&j, out, strlen(out));
        CHECK(jread_next(&j) == J_NUMBER && jread_double(&j, &back) == 0);
        CHECK_MSG(!memcmp(&d, &back, sizeof d), "%s", out);
    }
}

static void test_file(void)
{
    char dir[] = "/tmp/seqd-core-XXXXXX", path[200], deep[300], other[200], hex[SHA256_HEX];
    struct err e = {0};
    struct file_out f;
    size_t n;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/a", dir);
    CHECK(file_write(path, "hello", 5, &e) == 0);
    char *text = file_read(path, 5, &n, &e);
    CHECK(text && n == 5 && !strcmp(text, "hello"));
    free(text);
    CHECK(!file_read(path, 4, &n, &e) && e.code == ERR_TOO_LARGE && strstr(e.text, path));
    CHECK(!file_read(dir, 1000, &n, &e) && e.code == ERR_INVALID);
    snprintf(deep, sizeof deep, "%s/x/y//z", dir);
    CHECK(file_make_dir(deep, &e) == 0 && file_make_dir(deep, &e) == 0 &&
          file_sync_dir(deep, &e) == 0);
    snprintf(deep, sizeof deep, "%s/a/b", dir);
    CHECK(file_make_dir(deep, &e) == -1 && strstr(e.text, "/a"));
    CHECK(!file_read(deep, 10, &n, &e) && strstr(e.text, deep));
    /* The digest of a large file must not depend on the sizes of the pieces in which it is
     * passed. */
    snprintf(path, sizeof path, "%s/big", dir);
    char *big = malloc(700001);
    for (int i = 0; i < 700001; i++) big[i] = (char)(i * 31);
    CHECK(file_out_open(&f, path, &e) == 0);
    for (int i = 0; i < 700001; i += 99991)
        CHECK(file_out_add(&f, big + i, (size_t)(700001 - i < 99991 ? 700001 - i : 99991), &e) ==
              0);
    char want[SHA256_HEX];
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, big, 700001);
    sha256_hex(&sha, want);
    CHECK(file_out_close(&f, hex, &e) == 0 && f.size == 700001);
    CHECK_STR(hex, want);
    CHECK(sha256_file(path, hex, NULL, &e) == 0);
    CHECK_STR(hex, want);
    file_out_abort(&f); /* does nothing after a success */
    CHECK(file_exists(path));
    /* an abandoned file no longer exists */
    CHECK(file_out_open(&f, path, &e) == 0 && file_out_add(&f, big, 700001, &e) == 0);
    file_out_abort(&f);
    CHECK(!file_exists(path));
    free(big);
    /* A removal does not follow symlinks. */
    snprintf(other, sizeof other, "%s/keep", dir);
    CHECK(file_make_dir(other, &e) == 0);
    snprintf(path, sizeof path, "%s/keep/file", dir);
    CHECK(file_write(path, "", 0, &e) == 0);
    snprintf(deep, sizeof deep, "%s/x/y/link", dir);
    CHECK(symlink(other, deep) == 0);
    snprintf(deep, sizeof deep, "%s/x", dir);
    CHECK(file_remove(deep, &e) == 0 && !file_exists(deep) && file_exists(path));
    CHECK(file_remove(deep, &e) == 0); /* a missing file is no error */
    CHECK(file_remove(dir, &e) == 0 && !file_exists(dir));
    char *longer = malloc(FILE_PATH_SIZE + 10);
    memset(longer, 'p', FILE_PATH_SIZE + 9);
    longer[FILE_PATH_SIZE + 9] = 0;
    CHECK(file_write(longer, "", 0, &e) == -1 && e.code == ERR_TOO_LARGE);
    free(longer);
}

/* Checks that other users cannot reach a file in the directory, whatever the umask was and however
 * the directory was made. */
static void test_private_dir(void)
{
    char dir[] = "/tmp/seqd-core-XXXXXX", path[200], file[220], own[220];
    struct err e = {0};
    struct stat st;
    int n = -1;
    const mode_t before = umask(0);
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/x/state", dir);
    CHECK(file_make_private_dir(path, &n, &e) == 0 && n == 0);
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0700);
    snprintf(file, sizeof file, "%s/seqd.db", path);
    snprintf(own, sizeof own, "%s/jobs", path);
    CHECK(file_write(file, "x", 1, &e) == 0 && chmod(file, 0664) == 0 && mkdir(own, 0755) == 0);
    CHECK(chmod(path, 0777) == 0);
    CHECK(file_make_private_dir(path, &n, &e) == 0 && n == 3);
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0700);
    CHECK(!stat(file, &st) && (st.st_mode & 0777) == 0600);
    CHECK(!stat(own, &st) && (st.st_mode & 0777) == 0700);
    CHECK(file_make_private_dir(path, &n, &e) == 0 && n == 0);
    /* Checks a directory that belongs to a different user. If the test runs as root, it makes one.
     * If not, it uses a directory of root. */
    const bool root = geteuid() == 0;
    if (root && chown(path, 12345, (gid_t)-1)) abort();
    CHECK(file_make_private_dir(root ? path : "/usr", &n, &e) == -1 && e.code == ERR_INVALID);
    CHECK_MSG(strstr(e.text, "belongs to user"), "%s", e.text);
    CHECK(file_make_private_dir(file, &n, &e) == -1);
    umask(before);
    file_remove(dir, NULL);
}

/* Checks a lock that a child has inherited, as every child does before its exec. file_lock must
 * wait until the child has ended. If the lock is not released, file_lock must not wait forever. */
static void test_file_lock(void)
{
    char dir[] = "/tmp/seqd-core-XXXXXX", path[200];
    int go[2];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/lock", dir);
    const int mine = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int other = open(path, O_RDWR | O_CLOEXEC);
    CHECK(mine >= 0 && other >= 0 && !pipe(go) && !file_lock(mine));
    CHECK(file_lock(other) < 0 && errno == EWOULDBLOCK);
    const pid_t child = fork();
    if (child == 0) {
        const struct timespec moment = {.tv_nsec = 50 * 1000 * 1000};
        char byte;
        close(go[1]);
        if (read(go[0], &byte, 1) == 0) nanosleep(&moment, NULL);
        _exit(0);
    }
    close(mine);
    close(go[0]), close(go[1]); /* the child still holds the lock for a moment */
    CHECK(!file_lock(other));
    CHECK(waitpid(child, NULL, 0) == child);
    close(other);
    file_remove(dir, NULL);
}

/* Lets each step of a write fail as on a full disk. The error must name the file, and the file
 * must be removed. */
static void test_file_full(void)
{
    char dir[] = "/tmp/seqd-core-XXXXXX", path[200], tmp[300];
    struct err e = {0};
    if (access("/dev/full", W_OK) < 0) return;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/full", dir);
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    char *big = calloc(1, 1000000);
    for (size_t n = 1; n <= 1000000; n *= 1000) {
        CHECK(symlink("/dev/full", tmp) == 0);
        CHECK(file_write(path, big, n, &e) == -1 && e.code == ERR_NO_SPACE);
        CHECK_MSG(strstr(e.text, "No space left") && strstr(e.text, path), "%s", e.text);
        CHECK(!file_exists(tmp) && !file_exists(path));
    }
    free(big);
    CHECK(file_remove(dir, &e) == 0);
}

/* Runs in a child whose files may have 10,000 bytes. Returns 0 if each write is refused with the
 * expected text and leaves no file. */
static int try_limited(const char *path)
{
    const struct rlimit limit = {10000, 10000};
    char *big = calloc(1, 1000000);
    struct err e = {0};
    struct file_out f;
    process_begin();
    if (setrlimit(RLIMIT_FSIZE, &limit) || file_limit() != 10000) return 1;
    if (file_write(path, big, 10000, &e)) return 2;
    if (!file_write(path, big, 10001, &e) || e.code != ERR_TOO_LARGE) return 3;
    if (!strstr(e.text,
                ": File too large: RLIMIT_FSIZE (ulimit -f, LimitFSIZE=) is 10000 bytes and "
                "the file needs 10001: raise it where "))
        return 4;
    if (file_out_open(&f, path, &e) || !file_out_add(&f, big, 1000000, &e)) return 5;
    if (e.code != ERR_TOO_LARGE || !strstr(e.text, "the file needs 1000000:")) return 6;
    file_out_abort(&f);
    if (file_exists(path)) return 7;
    if (file_out_open(&f, path, &e) || file_out_expect(&f, 10000, &e)) return 8;
    if (!file_out_expect(&f, 10001, &e) || e.code != ERR_TOO_LARGE) return 9;
    file_out_abort(&f);
    errno = EFBIG;
    err_errno(&e, "write it");
    if (e.code != ERR_TOO_LARGE || strstr(e.text, "needs") || !strstr(e.text, "10000 bytes: raise"))
        return 10;
    return 0;
}

static void test_file_limit(void)
{
    char dir[] = "/tmp/seqd-core-XXXXXX", path[200];
    struct err e;
    int status = -1;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/limited", dir);
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid) _exit(try_limited(path));
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
    CHECK(file_remove(dir, &e) == 0);
}

static void test_duration(void)
{
    static const struct {
        const char *text;
        int64_t s; /* -1 if it is refused */
    } rows[] = {{"90", 90},     {"90s", 90},
                {"30m", 1800},  {"24h", 86400},
                {"7d", 604800}, {"0", -1},
                {"", -1},       {"d", -1},
                {"-1", -1},     {"1w", -1},
                {"1hh", -1},    {"1 h", -1},
                {"1.5h", -1},   {"99999999999999999", -1},
                {"8d", -1},     {"999999999999d", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e = {0};
        int64_t s = -1;
        const int rc = duration_parse(rows[i].text, 1, 604800, &s, &e);
        CHECK_MSG(rc ? rows[i].s < 0 && e.code == ERR_INVALID : s == rows[i].s, "%s: %lld",
                  rows[i].text, (long long)s);
    }
}

int main(void)
{
    RUN(test_err);
    RUN(test_err_long);
    RUN(test_arena);
    RUN(test_sha256);
    RUN(test_hmac);
    RUN(test_sha256_portable);
    RUN(test_sha256_two);
    RUN(test_sha256_file);
    RUN(test_file);
    RUN(test_private_dir);
    RUN(test_file_lock);
    RUN(test_file_full);
    RUN(test_file_limit);
    RUN(test_jread_place);
    RUN(test_plain);
    RUN(test_jread_valid);
    RUN(test_jread_invalid);
    RUN(test_jread_depth);
    RUN(test_jread_truncated);
    RUN(test_jread_mutated);
    RUN(test_jread_values);
    RUN(test_jread_skip);
    RUN(test_jwrite);
    RUN(test_jwrite_round_trip);
    RUN(test_number);
    RUN(test_duration);
    return test_done("core");
}
