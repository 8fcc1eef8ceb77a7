/* test_core_records: compares stored manifests of checkpoints and stored contexts of seqctl with
 * tests/golden/records/manifest.txt and context.txt, byte by byte.
 * tests: needs golden/records */
#include "tests/lib/records.h"

#include "api/core/context.h"
#include "api/core/file.h"
#include "api/core/manifest.h"
#include "tests/lib/scratch.h"

static char dir[64];

static const char *stored(const char *name)
{
    static char text[8192];
    char path[FILE_PATH_SIZE];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *got = file_read(path, sizeof text - 1, &size, NULL);
    CHECK_MSG(got, "%s", path);
    snprintf(text, sizeof text, "%s", got ? got : "");
    free(got);
    return text;
}

static void digits(char hex[SHA256_HEX], char digit)
{
    memset(hex, digit, SHA256_HEX - 1);
    hex[SHA256_HEX - 1] = 0;
}

/* Writes a manifest's text with an unknown member before its digest, which covers all bytes before
 * it. */
static const char *manifest_unknown(const char *text)
{
    static char out[8192];
    char hex[SHA256_HEX];
    struct sha256 sha;
    const char *tail = strstr(text, ",\"sha256\":\"");
    for (const char *next = tail; next; next = strstr(tail + 1, ",\"sha256\":\"")) tail = next;
    const int n = snprintf(out, sizeof out, "%.*s,\"of_a_later_version\":[{}]", (int)(tail - text),
                           text);
    sha256_init(&sha);
    sha256_add(&sha, out, (size_t)n);
    sha256_hex(&sha, hex);
    snprintf(out + n, sizeof out - (size_t)n, ",\"sha256\":\"%s\"}", hex);
    return out;
}

static void check_manifest(const char *text, const struct manifest *want)
{
    static struct manifest got;
    struct err e = {0};
    if (!text) return;
    CHECK_MSG(!manifest_parse(&got, text, strlen(text), "m", &e), "%s: %s", text, e.text);
    CHECK_MSG(!memcmp(&got, want, sizeof got), "%s: it reads back as another one", text);
}

static void test_manifest(void)
{
    static struct manifest m, none;
    char hex[SHA256_HEX];
    m.step = INT64_MAX, m.epoch = 3;
    digits(m.weights_sha256, 'a');
    digits(hex, '0');
    manifest_put(&m, "hf/config.json", MANIFEST_FILE_MAX, hex);
    digits(hex, 'f');
    manifest_put(&m, "a \"b\"/\xC3\xA9.bin", 0, hex);
    records_open("tests/golden/records/manifest.txt");
    CHECK(!manifest_write(&m, dir, NULL));
    check_manifest(records_hold("all", stored(MANIFEST_NAME)), &m);
    check_manifest(records_hold("unknown", manifest_unknown(stored(MANIFEST_NAME))), &m);
    CHECK(!manifest_write(&none, dir, NULL));
    check_manifest(records_hold("none", stored(MANIFEST_NAME)), &none);
    records_close();
}

static void test_context(void)
{
    static const char file[] = "seqctl/http_3a_2f_2fa_3a8080.json";
    static const struct server_context all = {"http://a:8080", "seqt_\"1\\", "/etc/a b.pem"},
                                       none = {.url = "http://a:8080"};
    const struct server_context *const each[] = {&all, &none};
    setenv("XDG_CONFIG_HOME", dir, 1);
    records_open("tests/golden/records/context.txt");
    for (int i = 0; i < 4; i++) {
        const struct server_context *c = each[i / 2];
        struct server_context got;
        struct err e = {0};
        char path[FILE_PATH_SIZE];
        CHECK_MSG(!context_write(c, &e), "%s", e.text);
        const char *text = i % 2 ? records_unknown(stored(file)) : stored(file);
        const char *kept = records_hold(i % 2 ? "unknown" : i ? "none" : "all", text);
        if (!kept) continue;
        snprintf(path, sizeof path, "%s/%s", dir, file);
        CHECK(!file_write_private(path, kept, strlen(kept), NULL));
        CHECK_MSG(!context_read(c->url, &got, &e), "%s: %s", kept, e.text);
        CHECK_MSG(!memcmp(&got, c, sizeof got), "%s: it reads back as another one", kept);
    }
    records_close();
}

/* Checks a member of a wrong type, a token of two lines, and a value that ends in the middle. */
static void test_context_damaged(void)
{
    static const char *const damaged[] = {
        "", "[]", "{\"url\":1}", "{\"token\":\"a\\nb\"}", "{\"token\":\"a\"", "{\"ca\":null}"};
    struct server_context got;
    char path[FILE_PATH_SIZE];
    snprintf(path, sizeof path, "%s/seqctl/a.json", dir);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct err e = {0};
        CHECK(!file_write_private(path, damaged[i], strlen(damaged[i]), NULL));
        CHECK_MSG(context_read("a", &got, &e) && e.code == ERR_CORRUPT, "%s", damaged[i]);
    }
}

int main(int argc, char **argv)
{
    char gone[128];
    records_args(argc, argv);
    scratch_dir(dir, sizeof dir, "records");
    RUN(test_manifest);
    RUN(test_context);
    RUN(test_context_damaged);
    snprintf(gone, sizeof gone, "rm -rf %s", dir);
    CHECK(!system(gone));
    return test_done("core_records");
}
