/* Preparation by several threads: the files that they write and the error that they report are
 * those of one. */
#include "tests/lib/datadir.h"

static const char chat_template[] = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ "
                                    "m.content }}{{ eos_token }}{% endfor %}";
enum { RECORDS = 1500 }; /* several times what is held at one time */

static uint32_t next(uint32_t *x)
{
    return (*x = *x * 1664525u + 1013904223u) >> 8;
}

static int words(char *out, size_t size, uint32_t *x, int n)
{
    static const char *const some[] = {"the", "w\\u00f6rld", "Hello", "of", "be", "on", "e", "42"};
    int at = 0;
    for (int i = 0; i < n && at + 16 < (int)size; i++)
        at += snprintf(out + at, size - (size_t)at, "%s%s", i ? " " : "", some[next(x) % 8]);
    out[at] = 0;
    return at;
}

/* Of all kinds that the job reads, of a few bytes to a few thousand. bad: that line is no record,
 * nor is the last one. */
static void put_records(bool own, int bad)
{
    struct file_out f;
    uint32_t x = 7;
    static char a[16384], b[256], line[20000];
    CHECK(!file_out_open(&f, in_dir("records.jsonl"), &e));
    for (int i = 1; i <= RECORDS; i++) {
        words(a, sizeof a, &x, (int)(next(&x) % 16 ? next(&x) % 40 : next(&x) % 2000));
        words(b, sizeof b, &x, 1 + (int)(next(&x) % 9));
        const char *how = i == bad || (bad && i == RECORDS) ? "{\"text\":%.0s%.0s 7}\n"
                          : i % 11 == 0                     ? "%.0s%.0s \n"
                          : i % 5 == 0 ? "{\"prompt\":\"%s\",\"completion\":\" %s\"}\n"
                          : i % 7 == 0 && own
                              ? "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},"
                                "{\"role\":\"assistant\",\"content\":\"%s\"}]}\n"
                          : i % 7 == 0 ? "{\"input_ids\":[1,2,3],\"id\":\"%s%s\"}\n"
                                       : "{\"text\":\"%s\",\"id\":\"%s\"}\n";
        const int n = snprintf(line, sizeof line, how, a, b);
        CHECK(!file_out_add(&f, line, (size_t)n, &e));
    }
    CHECK(!file_out_close(&f, NULL, &e));
}

static int prepare_by(int threads, bool own, struct data_stats *st)
{
    const char *const roots[] = {dir};
    const struct data_model model = {in_dir("model"), 0};
    char parent[64];
    sources_begin();
    spec->model.shape.vocab = 32000;
    spec->model.shape.tokenizer = own ? TOKENIZER_OWN : TOKENIZER_BYTE;
    spec->resources.threads = threads;
    source_add(in_dir("records.jsonl"), DATA_JSONL, NULL);
    snprintf(parent, sizeof parent, "by%d-%d", threads, own);
    e = (struct err){0};
    return data_prepare(spec, &model, roots, 1, in_dir(parent), NULL, st, &e);
}

static bool same_file(const char *a, const char *b)
{
    size_t n = 0, m = 0;
    struct err none;
    char *x = file_read(a, 64 << 20, &n, &none), *y = file_read(b, 64 << 20, &m, &none);
    const bool same = !x == !y && n == m && (!x || !memcmp(x, y, n));
    free(x);
    free(y);
    return same;
}

static void check_files(bool own)
{
    static const char *const files[] = {"tokens.bin",  "documents.bin", "loss.bin",
                                        "origins.bin", "bytes.bin",     "meta.json"};
    struct data_stats one, more;
    char a[128], b[128];
    put_records(own, 0);
    CHECK_MSG(prepare_by(1, own, &one) == 0, "%s", e.text);
    CHECK(one.n_documents > RECORDS / 2 && one.n_skipped >= 0);
    for (int threads = 2; threads <= 3; threads++) {
        CHECK_MSG(prepare_by(threads, own, &more) == 0, "%s", e.text);
        CHECK(more.made_mb_s > 0 && !strcmp(one.id, more.id));
        for (int i = 0; i < 6; i++) {
            snprintf(a, sizeof a, "by1-%d/%s/%s", own, one.id, files[i]);
            snprintf(b, sizeof b, "by%d-%d/%s/%s", threads, own, one.id, files[i]);
            CHECK_MSG(i != 5 || file_exists(in_dir(a)), "%s", a);
            CHECK_MSG(same_file(in_dir(a), in_dir(b)), "%s and %s", a, b);
        }
    }
    /* There already: nothing was made, so there is no rate. */
    CHECK(prepare_by(3, own, &more) == 0 && more.made_mb_s == 0);
}

static void test_own_files(void)
{
    check_files(true);
}

static void test_byte_files(void)
{
    check_files(false);
}

/* The first line that is wrong, whatever thread had it, and whatever comes after. */
static void test_first_error(void)
{
    struct data_stats st;
    char want[sizeof e.text];
    for (int bad = 1; bad <= RECORDS; bad += 499) {
        if (bad % 11 == 0) continue;
        put_records(true, bad);
        CHECK(prepare_by(1, true, &st) == -1);
        memcpy(want, e.text, sizeof want);
        CHECK_MSG(strstr(want, "line") && !strcmp(e.field, "data.train.0.path"), "%s: %s", e.field,
                  want);
        for (int threads = 2; threads <= 3; threads++) {
            CHECK(prepare_by(threads, true, &st) == -1);
            CHECK_STR(e.text, want);
        }
    }
}

int main(void)
{
    size_t n;
    datadir_begin("threads");
    char *tokenizer = file_read("tests/golden/tokenizers/llama2.json", 64 << 20, &n, &e);
    CHECK_MSG(tokenizer && !file_make_dir(in_dir("model"), &e), "%s", e.text);
    if (!tokenizer) return datadir_end("prepare_threads");
    put("model/tokenizer.json", tokenizer, n);
    puts_file("model/tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    puts_file("model/chat_template.jinja", chat_template);
    free(tokenizer);
    RUN(test_own_files);
    RUN(test_byte_files);
    RUN(test_first_error);
    return datadir_end("prepare_threads");
}
