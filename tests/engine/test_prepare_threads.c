/* Checks that several threads prepare data in the same way as one thread: the files and the error
 * must be the same. A text that is divided into parts must have the same tokens as the undivided
 * text. A record of JSONL is never divided, so the test compares texts with records that contain
 * them.
 * tests: needs golden/tokenizers */
#include "api/core/jwrite.h"
#include "tests/lib/datadir.h"
#include "worker/text/tokenizer.h"

static const char chat_template[] = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ "
                                    "m.content }}{{ eos_token }}{% endfor %}";
enum { RECORDS = 1500 }; /* several times the number of records that are in memory at a time */

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

/* Writes records of all kinds that the job reads, from a few bytes to a few thousand. Line `bad`
 * is not a record. If there is such a line, the last line is not a record, either. */
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
    /* The data already exists, so preparation makes none and reports no rate. */
    CHECK(prepare_by(3, own, &more) == 0 && more.made_mb_s == 0);
}

/* Returns the number of bytes of those tokens of a sample that are learnt, which are added one by
 * one. */
static int64_t bytes_of(const struct data *d, const struct data_order *o, int64_t n)
{
    struct sample s;
    int64_t sum = 0;
    data_sample(o, n, &s);
    for (int64_t k = 0; k < s.n_fragments; k++) {
        struct fragment f;
        data_fragment(o, &s, k, &f);
        for (int64_t i = 1; i < f.length; i++) {
            uint32_t bytes;
            uint8_t learn;
            CHECK(!data_read_bytes(d, f.token + i, 1, &bytes, &e) &&
                  !data_read_mask(d, f.token + i, 1, &learn, &e));
            sum += learn ? bytes : 0;
        }
    }
    return sum;
}

/* Checks the bytes of targets. One document has several times as many tokens as are read at a
 * time. */
static void test_target_bytes(void)
{
    static char text[40000];
    uint32_t x = 5;
    struct data_stats st;
    const int n = snprintf(text, sizeof text, "{\"prompt\":\"one\",\"completion\":\"");
    const int m = n + words(text + n, sizeof text - 64, &x, 5000);
    snprintf(text + m, sizeof text - (size_t)m, "\"}\n{\"text\":\"the last\"}\n");
    puts_file("records.jsonl", text);
    CHECK_MSG(!prepare_by(2, true, &st), "%s", e.text);
    struct data *d = data_open(in_dir("by2-1"), st.id, DATA_TRUST, &e);
    CHECK_MSG(d, "%s", e.text);
    struct order_options oo = data_order_options(spec, SET_TRAIN, 8000);
    oo.packing = PACKING_CONCAT;
    struct data_order *o = order_open(d, &oo);
    int64_t all = 0;
    for (int64_t k = 0; k < data_order_samples(o); k++) {
        const int64_t want = bytes_of(d, o, k), got = data_target_bytes(o, k, &e);
        CHECK_MSG(got == want, "sample %lld: %lld bytes, want %lld", (long long)k, (long long)got,
                  (long long)want);
        all += want;
    }
    CHECK_MSG(all > 15000, "%lld bytes", (long long)all);
    data_order_close(o);
    data_close(d);
}

static void test_own_files(void)
{
    check_files(true);
}

static void test_byte_files(void)
{
    check_files(false);
}

/* Checks that the error names the first wrong line. It must not depend on the thread that reads
 * the line or on the lines after it. */
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

/* ---- several files -------------------------------------------------------------------------- */

enum { FILES = 300 }; /* more files than are hashed in one run */

static int prepare_many(int threads, struct data_stats *st, struct told *told)
{
    const char *const roots[] = {in_dir("many")};
    sources_begin();
    spec->model.shape.vocab = 258;
    spec->resources.threads = threads;
    source_add("*", DATA_TEXT, NULL);
    e = (struct err){0};
    told_open(told);
    return data_prepare(spec, NULL, roots, 1, in_dir("of_many"), &told->p, st, &e);
}

/* Checks that the id depends on all digests, and that the error names the first file that cannot
 * be read. */
static void test_many_files(void)
{
    static const int bad[] = {270, 299, 17, 3};
    struct data_stats one, more;
    struct told told;
    char path[64], want[sizeof e.text] = "";
    uint32_t x = 3;
    CHECK(!file_make_dir(in_dir("many"), &e));
    for (int i = 0; i < FILES; i++) {
        static char text[100000];
        const size_t n = next(&x) % (i % 50 ? 500 : sizeof text);
        memset(text, 'a' + i % 26, n);
        snprintf(path, sizeof path, "many/file%03d", i);
        put(path, text, n);
    }
    CHECK_MSG(!prepare_many(1, &one, &told), "%s", e.text);
    for (int threads = 2; threads <= 5; threads++) {
        CHECK(!file_remove(in_dir("of_many"), &e) && !prepare_many(threads, &more, &told));
        CHECK(!strcmp(one.id, more.id) && one.n_tokens == more.n_tokens && !told.fell);
        CHECK(!told.beyond && told.at.done == told.at.total && told.at.total > 2e5);
    }
    puts_file("outside", "no");
    for (int k = 0; k < 4; k++) { /* a link that leads out of the root, instead of a file */
        snprintf(path, sizeof path, "many/file%03d", bad[k]);
        CHECK(!unlink(in_dir(path)) && !symlink(in_dir("outside"), in_dir(path)));
        for (int threads = 1; threads <= 5; threads++) {
            CHECK(prepare_many(threads, &more, &told) == -1);
            CHECK_STR(e.field, "data.train.0.path");
            if (threads == 1) strcpy(want, e.text);
            CHECK_STR(e.text, want);
            CHECK_MSG(strstr(want, k < 2 ? "file270 leads" : path + 5), "%s", want);
        }
    }
    for (int i = 0; i < 3; i++) { /* several files at the beginning fail at the same time */
        snprintf(path, sizeof path, "many/file%03d", i);
        CHECK(!unlink(in_dir(path)) && !symlink(in_dir("outside"), in_dir(path)));
    }
    for (int i = 0; i < 200; i++)
        CHECK_MSG(prepare_many(2 + i % 2, &more, &told) && strstr(e.text, "file000"), "%s", e.text);
}

/* ---- one text -------------------------------------------------------------------------------- */

/* format_text.c searches from offset CUT on for a place to divide a text */
enum { CUT = 1 << 16, TEXT_ROOM = 1 << 20 };

struct letters { /* a text to which words are being added */
    char *at;    /* [TEXT_ROOM] */
    size_t n;
};

static void add(struct letters *t, const char *s)
{
    memcpy(t->at + t->n, s, strlen(s) + 1);
    t->n += strlen(s);
}

/* Adds words until the text has exactly `end` bytes. Characters have all sizes, and few of them
 * are followed by a space. */
static void add_words(struct letters *t, size_t end, uint32_t *x)
{
    static const char *const some[] = {"the ",          "w\u00f6rld ",   "Hello,", " of\n",
                                       "\u4e2d\u6587 ", "\u3042\u3044",  "  42 ",  "\U0001f600 ",
                                       "e\u0301 ",      "</s>",          "can't ", "\n\n\tx",
                                       "[SEP] ",        "\u2581\u2581 ", "be\r\n", "... "};
    while (t->n + 16 < end) add(t, some[next(x) % (sizeof some / sizeof *some)]);
    while (t->n < end) add(t, "a");
}

/* Writes a text. `before` bytes before offset CUT, characters and spaces of many kinds begin,
 * which decide where the text can be divided. */
static void write_text(struct letters *t, size_t before, size_t size)
{
    uint32_t x = 11;
    t->n = 0;
    add_words(t, CUT - before, &x);
    add(t, "\u00f6\u4e2d\U0001f600e\u0301 \u00f6 a\n\u4e2d \u6587  b's \n c");
    if (size > t->n) add_words(t, size, &x);
}

static void put_text(const struct letters *t)
{
    static char json[2 * TEXT_ROOM];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "text", t->at);
    jwrite_end(&w);
    const int64_t n = jwrite_finish(&w);
    CHECK(n > 0);
    put("text.txt", t->at, t->n);
    put("text.jsonl", json, (size_t)n);
}

static int prepare_text(const char *model, const char *file, int threads, struct data_stats *st)
{
    const char *const roots[] = {dir};
    const struct data_model of = {in_dir(model), 0};
    char parent[64];
    sources_begin();
    spec->model.shape.vocab = 32000;
    spec->model.shape.tokenizer = TOKENIZER_OWN;
    spec->resources.threads = threads;
    source_add(in_dir(file), strstr(file, "jsonl") ? DATA_JSONL : DATA_TEXT, NULL);
    snprintf(parent, sizeof parent, "text%d", threads);
    e = (struct err){0};
    return data_prepare(spec, &of, roots, 1, in_dir(parent), NULL, st, &e);
}

/* Checks that a text has the same tokens if it is read undivided and if it is read in parts.
 * origins.bin and meta.json are not compared, because they name the file and its line. */
static void check_one_text(const char *model, const struct letters *t)
{
    static const char *const files[] = {"tokens.bin", "bytes.bin", "documents.bin", "loss.bin"};
    struct data_stats whole, parts;
    char a[160], b[160];
    put_text(t);
    CHECK_MSG(!prepare_text(model, "text.jsonl", 1, &whole), "%s", e.text);
    for (int threads = 1; threads <= 5; threads += 1 + (threads == 3)) {
        CHECK_MSG(!prepare_text(model, "text.txt", threads, &parts), "%s", e.text);
        CHECK(whole.n_tokens == parts.n_tokens && whole.n_bytes == parts.n_bytes);
        for (int i = 0; i < 4; i++) {
            snprintf(a, sizeof a, "text1/%s/%s", whole.id, files[i]);
            snprintf(b, sizeof b, "text%d/%s/%s", threads, parts.id, files[i]);
            CHECK_MSG(i == 3 || file_exists(in_dir(a)), "%s", a);
            CHECK_MSG(same_file(in_dir(a), in_dir(b)), "%s, %d threads, %zu bytes: %s", model,
                      threads, t->n, files[i]);
        }
    }
    for (int threads = 1; threads <= 5; threads++) {
        snprintf(a, sizeof a, "text%d", threads);
        CHECK(!file_remove(in_dir(a), &e));
    }
}

/* Makes a directory with a tokenizer of tests/golden. If plain is set, the tokenizer adds no ids
 * around a text. Returns false if this build has no patterns. */
static bool make_model(const char *name, bool plain)
{
    size_t n;
    char path[128];
    snprintf(path, sizeof path, "tests/golden/tokenizers/%s.json", name);
    char *json = file_read(path, 64 << 20, &n, &e);
    CHECK_MSG(json && !file_make_dir(in_dir(name), &e), "%s", e.text);
    if (!json) return false;
    char *around = plain ? strstr(json, "post_processor") : NULL;
    if (around) memcpy(around, "none", 4);
    struct tokenizer *t = tokenizer_open_text(json, n, &e);
    CHECK_MSG(t || strstr(e.text, "no PCRE2"), "%s", e.text);
    const bool known = t != NULL;
    tokenizer_destroy(t);
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    put(path, json, n);
    free(json);
    return known;
}

/* Checks texts with each kind of tokenizer. If a tokenizer does not allow texts to be divided, the
 * text must be read undivided. */
static void test_text_kinds(void)
{
    static const char *const kinds[] = {"gpt2",    "llama3", "o200k",         "qwen",  "gemma",
                                        "mistral", "bert",   "unigram_bytes", "words", "charsmap"};
    struct letters t = {.at = calloc(1, TEXT_ROOM)};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!make_model(kinds[i], false)) continue;
        write_text(&t, 3, small_tests() ? 3 * CUT : 13 * CUT + 5);
        check_one_text(kinds[i], &t);
    }
    free(t.at);
}

/* Checks texts in which the first place where they can be divided is at, before or after the place
 * where the search begins. Also checks texts that end at these places. */
static void test_text_lengths(void)
{
    struct letters t = {.at = calloc(1, TEXT_ROOM)};
    for (size_t before = 0; before < 30; before += small_tests() ? 7 : 1) {
        write_text(&t, before, 0);
        check_one_text("model", &t);
    }
    write_text(&t, 0, 0);
    for (size_t n = CUT - 2; n <= CUT + 2; n++) {
        memset(t.at + n, 0, 8);
        memset(t.at + CUT - 8, 'a', n - CUT + 8);
        t.n = n;
        check_one_text("model", &t);
    }
    for (t.n = 0; t.n < 3 * CUT;) add(&t, "abcdefghijklmno"); /* nowhere */
    check_one_text("model", &t);
    free(t.at);
}

/* Checks parts that consist only of spaces and have no token. The bytes of such a part must belong
 * to the token before or after it. */
static void test_text_spaces(void)
{
    struct letters t = {.at = calloc(1, TEXT_ROOM)};
    uint32_t x = 5;
    CHECK(!file_remove(in_dir("unigram_bytes"), &e) && make_model("unigram_bytes", true));
    for (int where = 0; where < 3; where++) {
        t.n = 0;
        if (where > 0) add_words(&t, CUT / 2, &x);
        memset(t.at + t.n, ' ', 7 * CUT);
        t.n += 7 * CUT;
        t.at[t.n] = 0;
        if (where < 2) add_words(&t, t.n + CUT / 2, &x);
        check_one_text("unigram_bytes", &t);
    }
    free(t.at);
}

/* Checks that the error names the offset of the bad byte in the file, and not its offset in a
 * part. */
static void test_text_error(void)
{
    struct letters t = {.at = calloc(1, TEXT_ROOM)};
    struct data_stats st;
    write_text(&t, 3, 6 * CUT);
    t.at[5 * CUT + 77] = '\xff';
    put("text.txt", t.at, t.n);
    for (int threads = 1; threads <= 3; threads++) {
        CHECK(prepare_text("model", "text.txt", threads, &st) == -1);
        CHECK_MSG(strstr(e.text, "text.txt: byte 327757 of the text is not UTF-8") &&
                      !strcmp(e.field, "data.train.0.path"),
                  "%s: %s", e.field, e.text);
    }
    free(t.at);
}

/* ---- many texts ------------------------------------------------------------------------------ */

/* TEXTS is several times the number of texts that are in memory at a time. HELD is the number of
 * bytes for each worker that are in memory at a time. */
enum { TEXTS = 700, HELD = 4 * CUT, BIGGEST = 13 * CUT + 5 };

/* Returns the size of text i. Most texts are small. Some large texts fit into the allowed memory
 * only if there are several workers. */
static size_t text_size(int i)
{
    switch (i) {
    case 3: return BIGGEST;
    /* this text is read in parts, because it does not fit into HELD bytes together with the small
     * texts around it */
    case 40: return 2 * CUT + CUT / 2;
    case 41: return HELD - 1; /* one worker can hold it, but not the next text */
    case 42: return HELD;
    case 300: return CUT;
    case 301: return CUT + 1;
    case TEXTS - 2: return 5 * CUT;
    default: return i % 5 == 0 ? 0 : i % 7 == 0 ? 1 : (size_t)(i * 131) % 1400 + 16;
    }
}

/* Writes the files texts/000 to 699, and a record of JSONL for each of them. */
static void put_texts(void)
{
    struct letters t = {.at = calloc(1, TEXT_ROOM)};
    static char json[2 * TEXT_ROOM];
    struct jwrite w;
    struct file_out f;
    char name[32];
    uint32_t x = 17;
    CHECK(!file_make_dir(in_dir("texts"), &e) && !file_out_open(&f, in_dir("texts.jsonl"), &e));
    for (int i = 0; i < TEXTS; i++) {
        t.n = 0;
        t.at[0] = 0;
        add_words(&t, text_size(i), &x);
        snprintf(name, sizeof name, "texts/%03d", i);
        put(name, t.at, t.n);
        jwrite_init(&w, json, sizeof json);
        jwrite_object(&w, NULL);
        jwrite_str(&w, "text", t.at);
        jwrite_end(&w);
        const int64_t n = jwrite_finish(&w);
        CHECK(n > 0 && !file_out_add(&f, json, (size_t)n, &e) && !file_out_add(&f, "\n", 1, &e));
    }
    CHECK(!file_out_close(&f, NULL, &e));
    free(t.at);
}

/* Prepares texts. If model is NULL, tokens are bytes. */
static int prepare_texts(const char *model, const char *files, int threads, struct progress *p,
                         struct data_stats *st)
{
    const char *const roots[] = {dir};
    const struct data_model of = {in_dir(model ? model : "none"), 0};
    char parent[64];
    sources_begin();
    spec->model.shape.vocab = model ? 201000 : 258;
    spec->model.shape.tokenizer = model ? TOKENIZER_OWN : TOKENIZER_BYTE;
    spec->resources.threads = threads;
    source_add(in_dir(files), strstr(files, "jsonl") ? DATA_JSONL : DATA_TEXT, NULL);
    snprintf(parent, sizeof parent, "texts%d", threads);
    e = (struct err){0};
    return data_prepare(spec, &of, roots, 1, in_dir(parent), p, st, &e);
}

/* Checks texts with any number of workers. The files must be the same as those made from the
 * records. */
static void check_texts(const char *model)
{
    static const char *const files[] = {"tokens.bin", "bytes.bin",   "documents.bin",
                                        "loss.bin",   "origins.bin", "meta.json"};
    struct data_stats records, one, more;
    struct told told;
    char a[160], b[160];
    CHECK_MSG(!prepare_texts(model, "texts.jsonl", 1, NULL, &records), "%s", e.text);
    for (int threads = 1; threads <= 3; threads++) {
        told_open(&told);
        CHECK_MSG(!prepare_texts(model, "texts/*", threads, &told.p, &more), "%s", e.text);
        CHECK(!told.fell && !told.beyond && told.at.done == told.at.total && told.n_inside > TEXTS);
        if (threads == 1) one = more;
        CHECK(!strcmp(one.id, more.id) && more.n_skipped == records.n_skipped);
        CHECK(more.n_documents == records.n_documents && more.n_bytes == records.n_bytes);
        /* the last two files contain the names of the sources, so they are compared with the files
         * that one thread makes from the texts */
        for (int i = 0; i < 6; i++) {
            if (i < 4)
                snprintf(a, sizeof a, "texts1/%s/%s", records.id, files[i]);
            else
                snprintf(a, sizeof a, "texts1/%s/%s", one.id, files[i]);
            snprintf(b, sizeof b, "texts%d/%s/%s", threads, more.id, files[i]);
            CHECK_MSG((i == 1 && !model) || i == 3 || file_exists(in_dir(a)), "%s", a);
            CHECK_MSG(same_file(in_dir(a), in_dir(b)), "%s, %d threads: %s", model, threads,
                      files[i]);
        }
    }
    for (int threads = 1; threads <= 3; threads++) {
        snprintf(a, sizeof a, "texts%d", threads);
        CHECK(!file_remove(in_dir(a), &e));
    }
}

/* Checks texts with several tokenizers. Some ids of o200k need 4 bytes. When the first of them is
 * found, all ids before it are written again with 4 bytes. */
static void test_texts(void)
{
    put_texts();
    check_texts("model");
    check_texts("o200k");
    check_texts(NULL);
}

/* Checks that the error names the first file with a fault and the byte of the fault. It must not
 * depend on the files after it. */
static void test_texts_error(void)
{
    static const struct {
        int file;
        size_t at;
    } bad[] = {{TEXTS - 1, 11}, {TEXTS - 2, 4 * CUT + 9}, {301, CUT}, {42, 7},
               {41, 3 * CUT},   {40, CUT + 99},           {4, 3},     {3, 12 * CUT},
               {1, 0}};
    struct data_stats st;
    char name[32], want[64];
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        size_t n;
        snprintf(name, sizeof name, "texts/%03d", bad[k].file);
        char *text = file_read(in_dir(name), 64 << 20, &n, &e);
        size_t at = bad[k].at;
        CHECK(text && at < n);
        while ((text[at] & 0xc0) == 0x80) at--; /* moves to the first byte of a character */
        text[at] = '\xff';
        put(name, text, n);
        free(text);
        for (int threads = 1; threads <= 3; threads++) {
            CHECK(prepare_texts("model", "texts/*", threads, NULL, &st) == -1);
            snprintf(want, sizeof want, "%s: byte %zu of", name, at);
            CHECK_MSG(strstr(e.text, want) && !strcmp(e.field, "data.train.0.path"), "%s: %s, %s",
                      e.field, e.text, want);
        }
    }
    /* if tokens are bytes, every byte is valid */
    CHECK(prepare_texts(NULL, "texts/*", 2, NULL, &st) == 0);
    for (int threads = 1; threads <= 3; threads++) {
        CHECK(prepare_texts("none", "texts/*", threads, NULL, &st) == -1);
        CHECK_MSG(strstr(e.text, "texts/000: ") && !strcmp(e.field, "model.path"), "%s: %s",
                  e.field, e.text);
    }
}

struct change { /* changes one file when the second pass reads the first file */
    struct progress p;
    const char *name, *to;
    bool done;
};

static void change_it(void *arg, const struct rank_progress *now)
{
    struct change *c = arg;
    if (c->done || 2 * now->done <= now->total) return;
    c->done = true;
    puts_file(c->name, c->to);
}

/* Checks a text that has changed between the pass that hashes it and the pass that reads it. */
static void test_texts_changed(void)
{
    static const char *const to[] = {"another", "a text grew", "short", ""};
    struct letters t = {.at = calloc(1, TEXT_ROOM)};
    struct data_stats st;
    uint32_t x = 23;
    char name[32];
    add_words(&t, BIGGEST, &x);
    CHECK(!file_make_dir(in_dir("changed"), &e));
    put("changed/00", t.at, t.n);
    for (int k = 0; k < 24; k++) {
        for (int i = 1; i < 10; i++) {
            snprintf(name, sizeof name, "changed/%02d", i);
            puts_file(name, "a text.");
        }
        snprintf(name, sizeof name, "changed/%02d", k / 4 % 2 ? 1 : 8);
        struct change c = {.p = {.tell = change_it}, .name = name, .to = to[k % 4]};
        c.p.arg = &c;
        CHECK(prepare_texts(k % 3 ? "model" : NULL, "changed/*", 1 + k / 8, &c.p, &st) == -1);
        CHECK_MSG(c.done && e.code == ERR_CONFLICT && strstr(e.text, name) &&
                      strstr(e.text, "changed while it was read"),
                  "%s to \"%s\": %s", name, c.to, e.text);
    }
    free(t.at);
}

int main(void)
{
    datadir_begin("threads");
    if (!make_model("llama2", false) || rename(in_dir("llama2"), in_dir("model")) < 0)
        return datadir_end("prepare_threads");
    puts_file("model/tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    puts_file("model/chat_template.jinja", chat_template);
    RUN(test_own_files);
    RUN(test_target_bytes);
    RUN(test_byte_files);
    RUN(test_first_error);
    RUN(test_many_files);
    RUN(test_text_kinds);
    RUN(test_text_lengths);
    RUN(test_text_spaces);
    RUN(test_text_error);
    RUN(test_texts);
    RUN(test_texts_error);
    RUN(test_texts_changed);
    return datadir_end("prepare_threads");
}
