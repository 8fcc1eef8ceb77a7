/* test_data: checks the preparation of data, the order of samples, and every rank's rows. The rows
 * are compared with a sequence that the test makes from the documents only. The test computes the
 * positions of rows itself. */
#include "tests/lib/mutant.h"
#include "api/core/job.h"
#include "tests/lib/datadir.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/sha256.h"
#include "worker/sp/sp.h"
#include "worker/data/reader.h"
#include "worker/data/data.h"
#include "api/core/beneath.h"
#include "worker/data/source.h"

/* Global sample n is a window of seq_len tokens of the concatenated documents. Returns the index
 * of that window. */
static int64_t window_of(const struct data_order *o, int64_t n)
{
    struct sample s;
    data_sample(o, n, &s);
    return s.index;
}

/* ---- preparation ----------------------------------------------------------------------------- */

static void test_text(void)
{
    sources_begin();
    puts_file("b.txt", "two");
    puts_file("a.txt", "one\xff");
    puts_file("empty.txt", "");
    source_add(in_dir("*.txt"), DATA_TEXT, NULL);
    struct data *d = prepare_open();
    static const uint16_t want[] = {'o', 'n', 'e', 255, 256, 't', 'w', 'o', 256};
    const struct data_stats *s = data_stats(d);
    CHECK(s->n_tokens == 9 && s->n_documents == 2 && s->n_bytes == 7);
    CHECK(tokens_are(d, want, sizeof want / sizeof *want));
    CHECK(data_documents(d)[0] == 5 && data_documents(d)[1] == 9);
    double h = 0; /* o and 256 occur twice, five tokens once */
    h -= 2 * (2.0 / 9) * log(2.0 / 9) + 5 * (1.0 / 9) * log(1.0 / 9);
    CHECK_MSG(fabs(s->unigram_entropy - h) < 1e-15, "%.17g %.17g", s->unigram_entropy, h);
    CHECK(strlen(s->id) == 32);
    data_close(d);
}

static void test_jsonl(void)
{
    static const char text[] =
        "\xef\xbb\xbf{\"id\":[1,{\"text\":\"not this\"}],\"body\":\"a\\u00e9\\n\",\"x\":null}\r\n"
        "\n   \n"
        "{\"body\":\"\"}\n"
        "{\"b\\u006fdy\":\"\\ud83d\\ude00\\u0000\"}"; /* no newline at the end */
    static const uint16_t want[] = {'a', 0xc3, 0xa9, '\n', 256, 0xf0, 0x9f, 0x98, 0x80, 0, 256};
    sources_begin();
    put("x.jsonl", text, sizeof text - 1);
    source_add("x.jsonl", DATA_JSONL, "body"); /* a relative path, found beneath the second root */
    struct data *d = prepare_open();
    CHECK(data_stats(d)->n_tokens == 11 && data_stats(d)->n_documents == 2);
    CHECK(tokens_are(d, want, sizeof want / sizeof *want));
    data_close(d);
}

/* Checks a line that is longer than any buffer, and lines that end at every offset in a read. */
static void test_jsonl_long(void)
{
    enum { LONG = 50000000, SHORT = 60000 };
    char *text = malloc(LONG + SHORT * 64);
    size_t n = 0;
    int64_t n_bytes = 0;
    memcpy(text, "{\"text\":\"", 9);
    n = 9;
    for (int i = 0; i < LONG / 2; i++, n += 2) memcpy(text + n, i % 3 ? "ab" : "\\n", 2);
    memcpy(text + n, "\"}\n", 3);
    n += 3;
    for (int i = 0; i < LONG / 2; i++) n_bytes += i % 3 ? 2 : 1;
    for (int i = 0; i < SHORT; i++) {
        n += (size_t)snprintf(text + n, 64, "{\"text\":\"%.*s\"}\n", i % 29,
                              "abcdefghijklmnopqrstuvwxyz123");
        n_bytes += i % 29;
    }
    put("long.jsonl", text, n);
    sources_begin();
    source_add("long.jsonl", DATA_JSONL, NULL);
    struct data *d = prepare_open();
    int64_t n_docs = 1 + SHORT - (SHORT + 28) / 29;
    CHECK(data_stats(d)->n_bytes == n_bytes && data_stats(d)->n_documents == n_docs);
    CHECK(data_stats(d)->n_tokens == n_bytes + n_docs);
    uint16_t start[60];
    for (int i = 0; i < 60; i++) start[i] = (uint16_t) "\nabab"[i % 5];
    CHECK(tokens_are(d, start, 60));
    data_close(d);
    free(text);
}

static void check_jsonl_error(const char *text, const char *want)
{
    struct data_stats st;
    sources_begin();
    puts_file("bad.jsonl", text);
    source_add(in_dir("bad.jsonl"), DATA_JSONL, NULL);
    CHECK(prepare(&st) == -1);
    CHECK(e.code == ERR_INVALID);
    CHECK_STR(e.field, "data.train.0.path");
    CHECK_MSG(strstr(e.text, want) && strstr(e.text, "bad.jsonl"), "%s: %s", want, e.text);
}

static void test_jsonl_errors(void)
{
    check_jsonl_error("{\"text\":\"a\"}\n{\"text\":\"b\"\n{}", "line 2: JSON byte 11");
    check_jsonl_error("{\"text\":\"a\"}\n\n[1]\n", "line 3: want an object");
    check_jsonl_error("{\"txt\":\"a\"}\n", "line 1: the member \"text\" is missing");
    check_jsonl_error("{\"text\":5}\n", "line 1: the member \"text\" is not a string");
    check_jsonl_error("{\"text\":\"a\",\"text\":\"b\"}\n",
                      "line 1: the member \"text\" occurs twice");
    check_jsonl_error("{\"text\":\"a\"} x\n", "line 1: JSON byte 13");
    check_jsonl_error("{\"text\":\"\\ud800\"}\n", "line 1: JSON byte 9");
    check_jsonl_error("{\"text\":\"\xff\"}\n", "line 1: JSON byte 9");
    check_jsonl_error("{\"a\":[[[", "line 1: JSON byte");
}

static void check_source_error(const char *path, enum err_code code, const char *want)
{
    struct data_stats st;
    sources_begin();
    source_add(in_dir("a.txt"), DATA_TEXT, NULL);
    source_add(path, DATA_TEXT, NULL);
    CHECK_MSG(prepare(&st) == -1 && e.code == code, "%s: %s %s", path, err_name(e.code), e.text);
    CHECK_STR(e.field, "data.train.1.path");
    CHECK_MSG(strstr(e.text, want) != NULL, "%s: %s", path, e.text);
}

static void test_source_errors(void)
{
    struct data_stats st;
    puts_file("a.txt", "one");
    puts_file("empty.txt", "");
    CHECK(mkdir(in_dir("sub"), 0755) == 0 && mkdir(in_dir("elsewhere"), 0755) == 0);
    puts_file("sub/c.md", "three");
    CHECK(symlink("/etc/passwd", in_dir("out.txt")) == 0);
    CHECK(symlink("/etc", in_dir("outdir")) == 0);
    CHECK(symlink("/nowhere/at/all", in_dir("outnone")) == 0);
    CHECK(symlink("sub/c.md", in_dir("inside.md")) == 0);
    CHECK(mkfifo(in_dir("fifo"), 0644) == 0);
    check_source_error(in_dir("*.nothing"), ERR_NOT_FOUND, "matches no file");
    check_source_error(in_dir("nothing.txt"), ERR_NOT_FOUND, "matches no file");
    check_source_error("nothing.txt", ERR_NOT_FOUND, "matches no file");
    check_source_error("/etc/passwd", ERR_INVALID, "beneath no data root");
    check_source_error("/etc/*", ERR_INVALID, "beneath no data root");
    check_source_error(in_dir("out.txt"), ERR_INVALID, "leads outside");
    check_source_error(in_dir("outdir/passwd"), ERR_INVALID, "leads outside");
    /* the error must not reveal whether the file exists */
    check_source_error(in_dir("outdir/nothing"), ERR_INVALID, "leads outside");
    check_source_error(in_dir("outdir/nothing/at/all"), ERR_INVALID, "leads outside");
    check_source_error(in_dir("outnone"), ERR_INVALID, "leads outside");
    CHECK(mkdir(in_dir("kept"), 0755) == 0 && !beneath_mark(in_dir("kept"), NULL));
    char kept[FILE_PATH_SIZE];
    snprintf(kept, sizeof kept, "%s", in_dir("kept"));
    CHECK(symlink(kept, in_dir("way")) == 0);
    puts_file("kept/x", "private");
    check_source_error(in_dir("kept/x"), ERR_INVALID, "that seqd keeps for itself");
    check_source_error(in_dir("kept/none"), ERR_INVALID, "that seqd keeps for itself");
    check_source_error(in_dir("way/x"), ERR_INVALID, "that seqd keeps for itself");
    check_source_error(in_dir("way/none"), ERR_INVALID, "that seqd keeps for itself");
    /* A relative name that does not exist is reported as missing, even if the second root is
     * private to seqd. Such a name is not treated as an attempt to read the private root. */
    const char *const beside[] = {dir, kept};
    struct source_list list = {0};
    struct err why = {0};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "x" : "nothing.txt"; /* kept/x exists */
        CHECK(source_expand(&list, name, beside, 2, 0, "input.path", &why) == -1);
        CHECK_MSG(why.code == ERR_NOT_FOUND && !strcmp(why.field, "input.path") &&
                      strstr(why.text, "matches no file beneath ") && strstr(why.text, dir) &&
                      strstr(why.text, "in which relative paths begin: give the file's whole path"),
                  "%s", why.text);
    }
    CHECK(source_expand(&list, in_dir("kept/x"), beside, 2, 0, "input.path", &why) == -1);
    CHECK_MSG(strstr(why.text, "that seqd keeps for itself"), "%s", why.text);
    source_list_fini(&list);
    check_source_error(in_dir("outdir/*"), ERR_NOT_FOUND, "matches no file");
    check_source_error(in_dir("sub/../a.txt"), ERR_INVALID, "..");
    check_source_error(in_dir("sub"), ERR_INVALID, "is a directory");
    check_source_error(in_dir("fifo"), ERR_INVALID, "not a regular file");
    check_source_error("", ERR_INVALID, "empty");
    char deep[4000] = "";
    for (int i = 0; i < 1900; i++) memcpy(deep + 2 * i, "a/", 3);
    check_source_error(deep, ERR_INVALID, "components");
    sources_begin();
    source_add(in_dir("empty.txt"), DATA_TEXT, NULL);
    CHECK(prepare(&st) == -1 && e.code == ERR_INVALID && !strcmp(e.field, "data.train"));
    sources_begin();
    CHECK(prepare(&st) == -1 && e.code == ERR_INVALID && !strcmp(e.field, "data.train"));
    sources_begin();
    /* a link that leads to a place beneath the root is accepted */
    source_add(in_dir("inside.md"), DATA_TEXT, NULL);
    source_add(in_dir("s*/*.md"), DATA_TEXT, NULL);
    CHECK(prepare(&st) == 0 && st.n_documents == 2 && st.n_bytes == 10);
    CHECK(!file_exists(in_dir("prepared/x.tmp")));
}

/* Checks the code for kernels without openat2. It must refuse the same paths. */
static void test_open_old(void)
{
    int fd = beneath_open_old(dir, in_dir("sub/c.md"), O_RDONLY);
    CHECK(fd >= 0);
    close(fd);
    CHECK((fd = beneath_open_old(dir, in_dir("inside.md"), O_RDONLY)) >= 0);
    close(fd);
    CHECK(beneath_open_old(dir, in_dir("out.txt"), O_RDONLY) == -1 && errno == EXDEV);
    CHECK(beneath_open_old(dir, in_dir("outdir/passwd"), O_RDONLY) == -1 && errno == EXDEV);
    CHECK(beneath_open_old(dir, "/etc/passwd", O_RDONLY) == -1 && errno == EXDEV);
    CHECK(beneath_open_old(dir, in_dir("sub/../../x"), O_RDONLY) == -1);
}

static ino_t inode(const char *path)
{
    struct stat st;
    return stat(path, &st) < 0 ? 0 : st.st_ino;
}

static void test_reuse(void)
{
    struct data_stats a, b, c;
    char tokens[200];
    sources_begin();
    puts_file("r1.txt", "some text");
    puts_file("r2.txt", "more");
    source_add("r?.txt", DATA_TEXT, NULL);
    CHECK(prepare(&a) == 0);
    snprintf(tokens, sizeof tokens, "prepared/%s/tokens.bin", a.id);
    ino_t before = inode(in_dir(tokens));
    CHECK(before && prepare(&b) == 0 && !strcmp(a.id, b.id));
    CHECK(inode(in_dir(tokens)) == before); /* the file was not made again */
    CHECK(a.made_mb_s > 0 && b.made_mb_s == 0);
    a.made_mb_s = 0;
    CHECK(!memcmp(&a, &b, sizeof a));
    puts_file("r2.txt", "mor2");
    CHECK(prepare(&c) == 0 && strcmp(a.id, c.id));
    sources_begin(); /* the same bytes in a different format must have a different id */
    puts_file("r1.txt", "{\"text\":\"a\",\"t2\":\"a\"}");
    source_add("r1.txt", DATA_JSONL, NULL);
    CHECK(prepare(&a) == 0);
    sources_begin();
    source_add("r1.txt", DATA_JSONL, "t2");
    CHECK(prepare(&b) == 0 && strcmp(a.id, b.id) && b.n_tokens == 2);
    sources_begin();
    source_add("r1.txt", DATA_TEXT, NULL);
    CHECK(prepare(&c) == 0 && strcmp(a.id, c.id) && strcmp(b.id, c.id));
    spec->kind = JOB_SCORE; /* this kind of job reads its input instead */
    spec->input.source = spec->data.train[0];
    spec->data.n_train = 0;
    CHECK(prepare(&b) == 0 && !strcmp(b.id, c.id));
}

/* Checks that damage is found when a prepared directory is opened, and that the error names the
 * file. Preparing the data again must repair it. */
static void check_damage(const char *id, const char *file, int64_t size, int64_t flip)
{
    char path[200];
    struct data_stats st;
    snprintf(path, sizeof path, "%s/prepared/%s/%s", dir, id, file);
    if (size >= 0) {
        CHECK(truncate(path, size) == 0);
    } else if (flip >= 0) {
        int fd = open(path, O_RDWR);
        char c;
        CHECK(pread(fd, &c, 1, flip) == 1);
        c ^= 1;
        CHECK(pwrite(fd, &c, 1, flip) == 1);
        close(fd);
    } else {
        CHECK(unlink(path) == 0);
    }
    e = (struct err){0};
    struct data *d = data_open(in_dir("prepared"), id, DATA_CHECK, &e);
    CHECK_MSG(!d && e.code == ERR_CORRUPT && strstr(e.text, file), "%s size %lld flip %lld: %s",
              file, (long long)size, (long long)flip, e.text);
    data_close(d);
    CHECK_MSG(prepare(&st) == 0 && !strcmp(st.id, id), "%s", e.text);
}

static void test_damage(void)
{
    struct data_stats st;
    char path[200];
    sources_begin();
    puts_file("r1.txt", "some text");
    puts_file("r2.txt", "more");
    source_add("r?.txt", DATA_TEXT, NULL);
    CHECK(prepare(&st) == 0);
    for (int64_t i = 0; i < 30; i++) check_damage(st.id, "tokens.bin", -1, i);
    for (int64_t i = 0; i < 30; i += 3) check_damage(st.id, "tokens.bin", i, -1);
    check_damage(st.id, "tokens.bin", 32, -1); /* longer */
    for (int64_t i = 0; i < 16; i++) check_damage(st.id, "documents.bin", -1, i);
    for (int64_t i = 0; i < 16; i += 5) check_damage(st.id, "documents.bin", i, -1);
    check_damage(st.id, "tokens.bin", -1, -1);
    check_damage(st.id, "documents.bin", -1, -1);
    check_damage(st.id, "meta.json", -1, -1);
    snprintf(path, sizeof path, "prepared/%s/meta.json", st.id);
    for (int64_t i = 0; i < 300; i += 7) check_damage(st.id, "meta.json", i, -1);
    e = (struct err){0};
    CHECK(!data_open(in_dir("prepared"), "0123", DATA_CHECK, &e) && e.code == ERR_NOT_FOUND);
}

/* Checks four preparations at the same time, of which some are killed. All preparations that are
 * not killed must report the same data. The data must be made only once. No file of a killed
 * preparation may remain. */
static void test_concurrent(void)
{
    struct data_stats st;
    char tmp[200];
    char *text = malloc(3000000);
    for (int i = 0; i < 3000000; i++) text[i] = (char)(i % 251);
    for (int round = 0; round < 6; round++) {
        pid_t pid[4];
        text[0] = (char)round;
        put("many.txt", text, 3000000);
        sources_begin();
        source_add("many.txt", DATA_TEXT, NULL);
        for (int k = 0; k < 4; k++)
            if ((pid[k] = fork()) == 0) _exit(prepare(&st) < 0);
        /* the moment of the kills is random, and every round must end in the same way */
        for (int k = 0; k < round % 4; k++) kill(pid[k], SIGKILL);
        for (int k = 0; k < 4; k++) {
            int status;
            CHECK(waitpid(pid[k], &status, 0) == pid[k]);
            CHECK(k < round % 4 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        }
        struct data *d = prepare_open();
        CHECK(data_stats(d)->n_bytes == 3000000);
        snprintf(tmp, sizeof tmp, "prepared/%s.tmp", data_stats(d)->id);
        CHECK(!file_exists(in_dir(tmp)));
        data_close(d);
    }
    free(text);
}

/* Checks the progress reports. Every byte of the sources is read twice, unless the data already
 * exists. */
static void test_progress(void)
{
    enum { MOST = 3 * READER_CHUNK };
    char *text = calloc(1, MOST + 1);
    struct data_stats st;
    memset(text, 'p', MOST);
    puts_file("long", text);
    puts_file("short", "short");
    sources_begin();
    source_add("long", DATA_TEXT, NULL);
    source_add("short", DATA_TEXT, NULL);
    CHECK(!prepare(&st));
    told_check(&preparing, PROGRESS_BYTES, 0, 2 * (MOST + 5));
    CHECK_MSG(preparing.n_inside > 6, "%d", preparing.n_inside);
    CHECK(!prepare(&st));
    told_check(&preparing, PROGRESS_BYTES, 0, 2 * (MOST + 5));
    CHECK(preparing.n_inside <= 6);
    /* If a link leads to a file outside of the roots, the progress must not tell the size of that
     * file, either. */
    CHECK(!symlink("/etc/passwd", in_dir("leaves")));
    sources_begin();
    source_add("leaves", DATA_TEXT, NULL);
    CHECK(prepare(&st) == -1);
    CHECK_MSG(preparing.at.total == 0, "%g", preparing.at.total);
    free(text);
}

/* Checks a directory in which nothing can be created. The error must name it, and no file may be
 * left. */
static void test_unwritable(void)
{
    struct data_stats st;
    const char *roots[] = {dir};
    puts_file("plain", "x");
    sources_begin();
    source_add("r1.txt", DATA_TEXT, NULL);
    e = (struct err){0};
    CHECK(data_prepare(spec, NULL, roots, 1, in_dir("plain/prepared"), NULL, &st, &e) == -1);
    CHECK_MSG(strstr(e.text, "plain") != NULL, "%s", e.text);
    e = (struct err){0};
    CHECK(data_prepare(spec, NULL, roots, 1, "/proc/seqd-no", NULL, &st, &e) == -1 &&
          strstr(e.text, "/proc/"));
}

/* ---- order ----------------------------------------------------------------------------------- */

static void test_order(void)
{
    sources_begin();
    char *text = malloc(3000);
    memset(text, 'x', 3000);
    for (int n = 1; n < 3000; n = n * 3 / 2 + 1) {
        put("order.txt", text, (size_t)n);
        sources_begin();
        source_add("order.txt", DATA_TEXT, NULL);
        struct data *d = prepare_open();
        struct order_options o7 = {.seq_len = 1, .seed = 7}, o8 = {.seq_len = 1, .seed = 8};
        struct data_order *seven = order_open(d, &o7), *eight = order_open(d, &o8);
        int64_t w = data_order_samples(seven);
        CHECK(w == n + 1);
        char *seen = calloc((size_t)w, 1);
        int64_t n_same_pass = 0, n_same_seed = 0, n_fixed = 0;
        for (int64_t i = 0; i < 2 * w; i++) {
            int64_t x = window_of(seven, i);
            if (x < 0 || x >= w) {
                CHECK_MSG(0, "window %lld of %lld", (long long)x, (long long)w);
                continue;
            }
            if (i < w) CHECK(!seen[x]); /* each window once per pass */
            seen[x] = 1;
            n_same_pass += x == window_of(seven, i + w);
            n_same_seed += x == window_of(eight, i);
            n_fixed += x == i % w;
        }
        for (int64_t i = 0; i < w; i++) CHECK(seen[i]);
        /* Two random permutations of any length have the same element in about 1 place. In 2 w
         * draws, there are about 2 such places. The probability of more than 20 places is below
         * 1e-13. */
        if (w > 30) CHECK(n_same_pass < 20 && n_same_seed < 20 && n_fixed < 20);
        free(seen);
        data_order_close(seven);
        data_order_close(eight);
        data_close(d);
    }
    free(text);
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct naive { /* one window, made from the documents */
    int32_t ids[256], targets[256];
    int64_t pos[256], lo[256], hi[256];
    int64_t n, n_fragments;
};

/* Writes the window of v that begins at start. For each token, `tokens` has its id, and `doc` the
 * index of its document. S is at most 256. */
static void naive_window(struct naive *v, const int *tokens, const int *doc, int64_t n_tokens,
                         int64_t start, const struct order_options *o)
{
    int64_t S = o->seq_len;
    v->n = n_tokens - start < S ? n_tokens - start : S;
    v->n_fragments = 0;
    for (int64_t i = 0; i < v->n; i++) {
        int64_t a = i, z = i;
        while (a > 0 && doc[start + a - 1] == doc[start + i]) a--;
        while (z < v->n && doc[start + z] == doc[start + i]) z++;
        v->ids[i] = tokens[start + i];
        v->targets[i] = i + 1 < z ? tokens[start + i + 1] : -1;
        v->pos[i] = o->reset_positions ? i - a : i;
        v->lo[i] = o->document_mask ? a : 0;
        v->hi[i] = o->causal ? i + 1 : o->document_mask ? z : v->n;
        v->n_fragments += a == i;
    }
}

/* Returns the position of a rank's row, computed from the description of the layouts. A position
 * >= S is padding. */
static int64_t naive_pos(int64_t S, int P, int r, enum layout_id layout, bool rank_bits,
                         int64_t row)
{
    if (rank_bits) return row + r * (LOGIC_CHUNKS / P) * ((S + LOGIC_CHUNKS - 1) / LOGIC_CHUNKS);
    if (layout == LAYOUT_CONTIGUOUS) return row + r * ((S + P - 1) / P);
    int64_t len = (S + 2 * P - 1) / (2 * P);
    return row < len ? r * len + row : (2 * P - 1 - r) * len + row - len;
}

struct rows {
    int32_t ids[512], targets[512];
    int64_t pos[512], lo[512], hi[512];
};

/* Compares all ranks' rows of sample n with the naive window. Returns the number of
 * differences. */
static int compare(const struct data_order *d, const struct order_options *o, const struct naive *v,
                   int64_t n, int P, enum layout_id layout, bool rank_bits)
{
    struct rows rows;
    struct batch b = {
        .ids = rows.ids, .targets = rows.targets, .pos = rows.pos, .lo = rows.lo, .hi = rows.hi};
    int bad = 0, covered[256] = {0};
    for (int r = 0; r < P; r++) {
        struct shard sh;
        if (shard_init(&sh, o->seq_len, P, r, layout, rank_bits, &e) < 0) return 1000;
        memset(&rows, 0x55, sizeof rows);
        if (data_batch(d, &sh, n, &b, &e) < 0) return 1000;
        bad += b.n_tokens != v->n || b.n_targets != v->n - v->n_fragments;
        for (int64_t row = 0; row < sh.T; row++) {
            int64_t i = naive_pos(o->seq_len, P, r, layout, rank_bits, row);
            bool pad = i >= v->n;
            if (!pad) covered[i]++;
            bad += b.ids[row] != (pad ? TOKEN_PAD : v->ids[i]);
            bad += b.targets[row] != (pad ? -1 : v->targets[i]);
            bad += b.pos[row] != (pad ? 0 : v->pos[i]);
            bad += b.lo[row] != (pad ? 0 : v->lo[i]);
            bad += b.hi[row] != (pad ? 0 : v->hi[i]);
        }
    }
    for (int64_t i = 0; i < v->n; i++) bad += covered[i] != 1;
    return bad;
}

struct corpus {
    struct data *d;
    int *tokens, *doc;
    int64_t n_tokens, n_docs;
};

/* Makes n_docs documents in JSONL, each with `each` to 2 * `each` bytes. The data is prepared from
 * them, so that preparation is tested, too. */
static void corpus_make(struct corpus *c, int n_docs, int each)
{
    char *text = malloc((size_t)(n_docs * (2 * each + 32)));
    size_t n = 0;
    c->tokens = malloc(sizeof(int) * (size_t)(n_docs * (2 * each + 1)));
    c->doc = malloc(sizeof(int) * (size_t)(n_docs * (2 * each + 1)));
    c->n_tokens = 0;
    c->n_docs = n_docs;
    for (int k = 0; k < n_docs; k++) {
        int len = each + (each > 1 ? k * 7 % each : 0);
        memcpy(text + n, "{\"text\":\"", 9);
        n += 9;
        for (int i = 0; i < len; i++) {
            char ch = (char)('a' + (k * 5 + i * i) % 26);
            text[n++] = ch;
            c->tokens[c->n_tokens] = ch;
            c->doc[c->n_tokens++] = k;
        }
        memcpy(text + n, "\"}\n", 3);
        n += 3;
        c->tokens[c->n_tokens] = TOKEN_EOD;
        c->doc[c->n_tokens++] = k;
    }
    put("corpus.jsonl", text, n);
    free(text);
    sources_begin();
    source_add("corpus.jsonl", DATA_JSONL, NULL);
    c->d = prepare_open();
    CHECK(data_stats(c->d)->n_tokens == c->n_tokens && data_stats(c->d)->n_documents == n_docs);
}

static void corpus_free(struct corpus *c)
{
    data_close(c->d);
    free(c->tokens);
    free(c->doc);
}

/* Compares every window for all ranks. Returns the number of differences. */
static int sweep(const struct corpus *c, struct order_options o, int P)
{
    struct naive v;
    int bad = 0;
    struct data_order *d = order_open(c->d, &o);
    int64_t n_targets = 0, windows = data_order_samples(d);
    for (int64_t n = 0; n < windows; n++) {
        int64_t w = window_of(d, n);
        if (o.in_order) bad += w != n;
        naive_window(&v, c->tokens, c->doc, c->n_tokens, w * o.seq_len, &o);
        bad += compare(d, &o, &v, n, P, LAYOUT_CONTIGUOUS, false);
        bad += compare(d, &o, &v, n, P, LAYOUT_ZIGZAG, false);
        if (P == 1 || P == 2 || P == 4 || P == 8)
            bad += compare(d, &o, &v, n, P, LAYOUT_CONTIGUOUS, true);
        n_targets += data_targets(d, n, &e);
        bad += data_targets(d, n, &e) != v.n - v.n_fragments;
    }
    /* In one pass every token has a target, with two exceptions: the last token of each document,
     * and the last token of each window that ends within a document. */
    int64_t cuts = 0;
    for (int64_t i = o.seq_len; i < c->n_tokens; i += o.seq_len) cuts += c->doc[i] == c->doc[i - 1];
    bad += n_targets != c->n_tokens - c->n_docs - cuts;
    data_order_close(d);
    return bad;
}

static const struct {
    int n_docs, each;
} corpora[] = {{1, 300}, {5, 60}, {150, 1}, {30, 5}};
static const int ranks[] = {1, 2, 3, 4, 5, 8};

static void test_rows(void)
{
    static const int64_t lens[] = {1, 8, 37, 100};
    for (size_t k = 0; k < sizeof corpora / sizeof *corpora; k++) {
        struct corpus c;
        corpus_make(&c, corpora[k].n_docs, corpora[k].each);
        for (size_t p = 0; p < sizeof ranks / sizeof *ranks; p++)
            for (size_t s = 0; s < sizeof lens / sizeof *lens; s++)
                for (int flags = 0; flags < 16; flags++) {
                    struct order_options o = {.seq_len = lens[s], .seed = 3};
                    o.document_mask = flags & 1;
                    o.reset_positions = flags & 2;
                    o.causal = flags & 4;
                    o.in_order = flags & 8;
                    int bad = sweep(&c, o, ranks[p]);
                    CHECK_MSG(bad == 0, "docs %d S %lld P %d flags %d: %d", corpora[k].n_docs,
                              (long long)lens[s], ranks[p], flags, bad);
                }
        corpus_free(&c);
    }
}

#ifdef SEQD_MUTANTS
/* Checks that the comparison finds each injected fault if there are several ranks. With one rank,
 * the faults must have no effect. */
static void test_mutants(void)
{
    static const int mutants[] = {MUTANT_LABEL_SHIFT, MUTANT_DOC_CROSSED, MUTANT_LOCAL_POSITION};
    struct corpus c;
    corpus_make(&c, 5, 60);
    for (size_t m = 0; m < 3; m++) {
        struct order_options o = {.seq_len = 100,
                                  .seed = 3,
                                  .document_mask = true,
                                  .reset_positions = true,
                                  .causal = true};
        mutant_choose(mutants[m]);
        CHECK(sweep(&c, o, 1) == 0);
        for (int P = 2; P <= 8; P++)
            mutant_report(mutants[m], sweep(&c, o, P) > 0, "rows of every rank");
        mutant_choose(MUTANT_NONE);
    }
    corpus_free(&c);
}
#endif

/* Checks a mapped file that is truncated while it is used, and an impossible token. Either must
 * cause an error, and no signal. */
static void test_batch_corrupt(void)
{
    struct corpus c;
    struct rows rows;
    struct batch b = {
        .ids = rows.ids, .targets = rows.targets, .pos = rows.pos, .lo = rows.lo, .hi = rows.hi};
    struct order_options o = {.seq_len = 100, .in_order = true};
    struct shard sh;
    char path[200];
    corpus_make(&c, 5, 60);
    CHECK(shard_init(&sh, 100, 1, 0, LAYOUT_CONTIGUOUS, false, &e) == 0);
    struct data_order *order = order_open(c.d, &o);
    CHECK(data_batch(order, &sh, 0, &b, &e) == 0);
    snprintf(path, sizeof path, "%s/prepared/%s/tokens.bin", dir, data_stats(c.d)->id);
    CHECK(truncate(path, 4) == 0);
    CHECK(data_batch(order, &sh, 1, &b, &e) == -1 && e.code == ERR_CORRUPT);
    CHECK(strstr(e.text, path) != NULL);
    data_order_close(order);
    corpus_free(&c);

    /* The digests are right, but a token is out of range, as if a faulty program or an attacker
     * had written the file. */
    corpus_make(&c, 5, 60);
    char sha[SHA256_HEX], old[SHA256_HEX];
    uint16_t token = 300;
    CHECK(sha256_file(path, old, NULL, &e) == 0);
    int fd = open(path, O_RDWR);
    CHECK(pwrite(fd, &token, 2, 20) == 2);
    close(fd);
    CHECK(sha256_file(path, sha, NULL, &e) == 0);
    char meta_path[200], id[80];
    snprintf(id, sizeof id, "%s", data_stats(c.d)->id);
    snprintf(meta_path, sizeof meta_path, "%s/prepared/%s/meta.json", dir, id);
    corpus_free(&c);
    size_t size;
    char *meta = file_read(meta_path, 1 << 20, &size, &e);
    char *at = strstr(meta, old);
    CHECK(at != NULL);
    if (at) memcpy(at, sha, 64);
    CHECK(file_write(meta_path, meta, size, &e) == 0);
    free(meta);
    struct data *d = data_open(in_dir("prepared"), id, DATA_CHECK, &e);
    CHECK(d != NULL);
    order = d ? order_open(d, &o) : NULL;
    CHECK(order && data_batch(order, &sh, 0, &b, &e) == -1 && e.code == ERR_CORRUPT);
    CHECK_MSG(strstr(e.text, "token"), "%s", e.text);
    data_order_close(order);
    data_close(d);
}

int main(void)
{
    datadir_begin("data");
    RUN(test_text);
    RUN(test_jsonl);
    RUN(test_jsonl_long);
    RUN(test_jsonl_errors);
    RUN(test_source_errors);
    RUN(test_open_old);
    RUN(test_reuse);
    RUN(test_damage);
    RUN(test_concurrent);
    RUN(test_progress);
    RUN(test_unwritable);
    RUN(test_order);
    RUN(test_rows);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    RUN(test_batch_corrupt);
    return datadir_end("data");
}
