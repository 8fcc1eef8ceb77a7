/* test_client_text: tests the text that seqctl shows, which includes cleaned strings, numbers,
 * tables, curves and JSON values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/curve.h"
#include "client/event.h"
#include "client/http.h"
#include "client/json.h"
#include "client/progress.h"
#include "client/spec.h"
#include "client/text.h"
#include "tests/lib/test.h"

static void test_clean(void)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"plain", "plain"},
        {"a\033[2Jb", "a?[2Jb"},                /* clear the screen */
        {"a\033]0;title\007b", "a?]0;title?b"}, /* set the title */
        {"a\xc2\x9b"
         "31mb",
         "a?31mb"}, /* C1 CSI as UTF-8 */
        {"a\x9b"
         "31mb",
         "a?31mb"}, /* the CSI of C1 as a single byte */
        {"a\rb\bc\x7f", "a?b?c?"},
        {"x\xe2\x80\xaetxt.exe", "x?txt.exe"}, /* right-to-left override */
        {"\xe2\x81\xa6y", "?y"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        /* an overlong form, a surrogate, and a byte that UTF-8 never uses */
        {"\xc0\xaf\xed\xa0\x80\xf5", "??????"},
        {"cut \xe2\x82", "cut ??"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"line\n\ttab", "line??tab"},
    };
    char out[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(text_safe(out, sizeof out, cases[i].in), cases[i].want);
    CHECK_STR(text_clean(out, sizeof out, "a\n\tb\r", 5, "\n\t"), "a\n\tb?");
    CHECK_STR(text_clean(out, sizeof out, "a\0b", 3, "\n"), "a?b");
}

/* Checks buffers of every size. The result must be a prefix that ends with a complete code point,
 * and no byte may be written past the end of the buffer. */
static void test_clean_sizes(void)
{
    const char *in = "ab\xe2\x82\xac\xf0\x9f\x98\x80z";
    for (size_t size = 1; size <= 12; size++) {
        char out[16];
        memset(out, 'X', sizeof out);
        text_safe(out, size, in);
        size_t n = strlen(out);
        CHECK_MSG(n < size && !memcmp(out, in, n), "size %zu gave %zu bytes", size, n);
        CHECK_MSG(((unsigned char)in[n] & 0xc0) != 0x80, "size %zu cut a code point", size);
        CHECK_MSG(out[size] == 'X', "size %zu wrote past the end", size);
    }
}

static void test_numbers(void)
{
    char out[TEXT_SHORT];
    CHECK_STR(text_bytes(out, 0), "0 B");
    CHECK_STR(text_bytes(out, 1023), "1023 B");
    CHECK_STR(text_bytes(out, 1536), "1.5 KiB");
    CHECK_STR(text_bytes(out, (int64_t)5 << 40), "5.0 TiB");
    CHECK_STR(text_count(out, 0), "0");
    CHECK_STR(text_count(out, 999), "999");
    CHECK_STR(text_count(out, 1000), "1,000");
    CHECK_STR(text_count(out, 1234567), "1,234,567");
    CHECK_STR(text_count(out, -1234), "-1,234");
    CHECK_STR(text_count(out, NAN), "nan");
    CHECK_STR(text_duration(out, 3.25), "3.2s");
    CHECK_STR(text_duration(out, 59.4), "59s");
    CHECK_STR(text_duration(out, 61), "1m 01s");
    CHECK_STR(text_duration(out, 7260), "2h 01m");
    CHECK_STR(text_duration(out, 90000), "1d 01h");
    CHECK_STR(text_duration(out, -1), "-");
    CHECK_STR(text_duration(out, NAN), "-");
    CHECK(text_width("a\xe2\x82\xac"
                     "b") == 3);
    CHECK(text_cut("a\xe2\x82\xac"
                   "b",
                   2) == 4);
    CHECK(text_cut("ab", 9) == 2);
}

static void test_progress(void)
{
    static const struct {
        const char *job, *percent, *rate, *eta, *line;
    } cases[] = {
        {"{\"progress\":null}", "-", "-", "-", ""},
        {"{\"progress\":\"no object\"}", "-", "-", "-", ""},
        {"{\"progress\":{\"unit\":\"tokens\",\"done\":12345,\"total\":36000,\"fraction\":0.3499,"
         "\"rate\":8123,\"tokens_s\":8123,\"eta_s\":90}}",
         "34%", "8,123 tokens/s", "1m 30s",
         "34%  12,345 of 36,000 tokens  8,123 tokens/s  ETA 1m 30s"},
        {"{\"progress\":{\"unit\":\"requests\",\"done\":1,\"total\":4,\"fraction\":0.25,"
         "\"rate\":0.08,\"tokens_s\":null,\"eta_s\":37.5}}",
         "25%", "12.5 s/request", "38s", "25%  1 of 4 requests  12.5 s/request  ETA 38s"},
        {"{\"progress\":{\"unit\":\"requests\",\"done\":4,\"total\":4,\"fraction\":1,"
         "\"rate\":null,\"tokens_s\":null,\"eta_s\":null}}",
         "100%", "-", "-", "100%  4 of 4 requests"},
        {"{\"phase\":\"running\",\"progress\":{\"unit\":\"requests\",\"done\":4,\"total\":4,"
         "\"fraction\":1,\"rate\":2,\"tokens_s\":null,\"eta_s\":0}}",
         "100%", "2.0 requests/s", "0.0s",
         "100%  4 of 4 requests  2.0 requests/s  writes what it made"},
        {"{\"phase\":\"running\",\"progress\":null}", "-", "-", "-", "reads its model and data"},
        {"{\"phase\":\"running\",\"spec\":{\"eval\":{\"at_start\":true}}}", "-", "-", "-",
         "evaluates before its first step"},
        {"{\"phase\":\"running\",\"spec\":{\"verify\":{\"first_step\":true}}}", "-", "-", "-",
         "proves its first step"},
        {"{\"phase\":\"starting\",\"progress\":null}", "-", "-", "-", ""},
        {"{\"phase\":\"reference\",\"progress\":{\"unit\":\"samples\",\"done\":3,\"total\":12,"
         "\"fraction\":0.25,\"rate\":0.5,\"tokens_s\":null,\"eta_s\":18}}",
         "25%", "2.0 s/sample", "18s", "25%  3 of 12 samples  2.0 s/sample  ETA 18s"},
        {"{\"phase\":\"running\",\"spec\":{\"eval\":{\"at_start\":true}},\"progress\":{\"unit\":"
         "\"samples\",\"done\":12,\"total\":12,\"fraction\":1}}",
         "100%", "-", "-", "100%  12 of 12 samples  evaluates before its first step"},
        {"{\"phase\":\"running\",\"progress\":{\"unit\":\"samples\",\"done\":12,\"total\":12,"
         "\"fraction\":1}}",
         "100%", "-", "-", "100%  12 of 12 samples  takes its first step"},
        {"{\"progress\":{\"unit\":\"bytes\",\"done\":1048576,\"total\":null,\"fraction\":null,"
         "\"rate\":2097152,\"tokens_s\":null,\"eta_s\":null}}",
         "-", "2.0 MiB/s", "-", "1.0 MiB  2.0 MiB/s"},
        {"{\"last_metrics\":{\"loss\":3.25},\"progress\":{\"unit\":\"steps\",\"done\":120,"
         "\"total\":1000,\"fraction\":0.12,\"rate\":2,\"tokens_s\":4096,\"eta_s\":440}}",
         "12%", "4,096 tokens/s", "7m 20s",
         "12%  120 of 1,000 steps  4,096 tokens/s  ETA 7m 20s  loss 3.2500"},
        {"{\"progress\":{\"unit\":\"a\\u001b[2J, and much too long\",\"done\":1e300,"
         "\"total\":1e301,\"fraction\":7,\"rate\":1e-9,\"tokens_s\":0,\"eta_s\":-1}}",
         "-", NULL, "-", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[256], some[TEXT_SHORT];
        struct jv *job = jv_parse(cases[i].job, strlen(cases[i].job), NULL);
        CHECK_STR(progress_percent(some, job), cases[i].percent);
        progress_rate(some, job);
        if (cases[i].rate) CHECK_STR(some, cases[i].rate);
        CHECK_STR(progress_eta(some, job), cases[i].eta);
        progress_line(out, sizeof out, job);
        if (cases[i].line) CHECK_STR(out, cases[i].line);
        CHECK(!strchr(out, '\033') && !strchr(some, '\033'));
        for (size_t size = 1; size < 60; size++) {
            memset(out, 'X', sizeof out);
            progress_line(out, size, job);
            CHECK(strlen(out) < size && out[size] == 'X');
        }
        jv_free(job);
    }
}

/* Checks the lines about one job, at times of a clock that the test sets. */
static void test_progress_lines(void)
{
#define AT(phase, fraction, eta)                                                                   \
    "{\"phase\":\"" phase "\",\"progress\":{\"unit\":\"steps\",\"done\":1,\"fraction\":" fraction  \
    ",\"eta_s\":" eta "}}"
    static const struct {
        int64_t ms;
        bool due;
        const char *job;
    } cases[] = {
        {0, true, "{\"phase\":\"queued\",\"progress\":null}"},
        /* there is no progress yet */
        {3600000, false, "{\"phase\":\"queued\",\"progress\":null}"},
        {3600001, true, AT("preparing", "0", "null")},
        {3600002, false, AT("preparing", "0.01", "null")},
        {3600003, true, AT("preparing", "0.02", "9")}, /* the first time left */
        {3600004, false, AT("preparing", "0.0699", "8")},
        {3600005, true, AT("preparing", "0.07001", "8")},
        {3660004, false, AT("preparing", "0.08", "8")},
        {3660005, true, AT("preparing", "0.08", "8")}, /* a minute is over */
        /* the figures go back when a new phase begins */
        {3660006, true, AT("running", "0", "null")},
        {3660007, true, AT("running", "1", "null")},
        {3660008, false, AT("running", "1", "null")},
    };
    struct progress_said said = {.at_ms = 0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jv *job = jv_parse(cases[i].job, strlen(cases[i].job), NULL);
        CHECK(job != NULL);
        CHECK_MSG(progress_due(&said, job, cases[i].ms) == cases[i].due, "case %zu", i);
        jv_free(job);
    }
}

static void test_table(void)
{
    static const char *const head[] = {"ID", "NAME", NULL};
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    struct table t;
    text_table_init(&t, head);
    text_table_add(&t, "1");
    text_table_add(&t, "gr\xc3\xbc\xc3\x9f");
    text_table_add(&t, "1000");
    text_table_add(&t, "a\033b");
    text_table_print(&t, f);
    fclose(f);
    CHECK_STR(out, "ID    NAME\n1     gr\xc3\xbc\xc3\x9f\n1000  a?b\n");
    free(out);
}

/* Checks that in every locale a wide letter has the width of two columns, and a combining mark has
 * no width. */
static void test_widths(void)
{
    static const struct {
        const char *text;
        int width;
    } cases[] = {
        {"", 0},
        {"abc", 3},
        {"gr\u00fc\u00df", 4},
        {"\u65e5\u672c", 4},
        {"e\u0301", 1},
        {"\uff21", 2},
        {"\U0001f600", 2},
        {"a\u200bb", 2},
        {"\ud55c\uae00", 4},
        {"\u20ac", 1},
        {"\xff\xfe", 2},
        {"\u2026", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_MSG(text_width(cases[i].text) == cases[i].width, "case %zu: %d", i,
                  text_width(cases[i].text));
    CHECK(text_cut("\u65e5\u672c", 3) == 3); /* a wide letter is dropped and not divided */
    CHECK(text_cut("e\u0301x", 1) == 3);     /* the mark belongs to the letter */
}

static const char *red_ok(const char *cell)
{
    return !strcmp(cell, "ok") ? "\033[31m" : NULL;
}

/* Checks a terminal of 12 columns. No line may be longer than 12 columns, and escape sequences of
 * colours must not be counted. */
static void test_table_cut(void)
{
    static const char *const head[] = {"ID", "STATE", "NAME", NULL};
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    struct table t;
    text_table_init(&t, head);
    t.columns = 12;
    t.color_column = 1;
    t.color = red_ok;
    for (int i = 0; i < 6; i++)
        text_table_add(
            &t, ((const char *const[]){"1", "ok", "x", "2", "bad", "\u65e5\u672c\u65e5\u672c"})[i]);
    text_table_print(&t, f);
    fclose(f);
    CHECK_MSG(strstr(out, "1   \033[31mok\033[0m"), "%s", out);
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
        char plain[128];
        size_t n = 0;
        for (const char *p = line; *p; p++) {
            if (*p == '\033')
                p = strchr(p, 'm');
            else
                plain[n++] = *p;
        }
        plain[n] = 0;
        CHECK_MSG(text_width(plain) <= 12, "%s", plain);
    }
    free(out);
}

/* ---- curve ----------------------------------------------------------------------------------- */

static char rows[CURVE_ROWS][CURVE_LINE];

static void test_curve_ascii(void)
{
    struct curve *c = malloc(sizeof *c);
    double low, high;
    curve_init(c);
    for (int i = 0; i <= 10; i++) curve_add(c, i, 10 - i);
    curve_draw(c, 11, 3, 10, false, rows, &low, &high);
    CHECK_MSG(low == 0 && high == 10, "%g %g", low, high);
    CHECK_STR(rows[0], "****       ");
    CHECK_STR(rows[1], "   ****    ");
    CHECK_STR(rows[2], "       ****");
    free(c);
}

static void test_curve_braille(void)
{
    struct curve *c = malloc(sizeof *c);
    double low, high;
    curve_init(c);
    curve_add(c, 0, 1);
    curve_add(c, 1, 0);
    curve_draw(c, 1, 1, 1, true, rows, &low, &high);
    /* The diagonal of 2 x 4 dots consists of dots 1 and 2 in the left column, and of dots 6 and 8
     * in the right column. */
    CHECK_STR(rows[0], "\xe2\xa2\xa3");
    free(c);
}

static void test_curve_edges(void)
{
    struct curve *c = malloc(sizeof *c);
    double low, high;
    curve_init(c);
    curve_draw(c, 20, 4, 100, true, rows, &low, &high); /* empty */
    CHECK(low < high && strspn(rows[0], " ") == 20);
    curve_add(c, 1, NAN);
    curve_add(c, 2, INFINITY);
    CHECK(c->n == 0);
    curve_add(c, 3, 2.5); /* for a single value, a range is made around it */
    curve_draw(c, 20, 4, 0, false, rows, &low, &high);
    CHECK_MSG(low < 2.5 && high > 2.5, "%g %g", low, high);
    CHECK(strchr(rows[1], '*') || strchr(rows[2], '*'));
    free(c);
}

/* Checks a resumed job, which repeats the steps after its checkpoint. The earlier points of these
 * steps must be dropped. */
static void test_curve_resume(void)
{
    struct curve *c = malloc(sizeof *c);
    curve_init(c);
    for (int i = 1; i <= 50; i++) curve_add(c, i, 100);
    curve_add(c, 31, 7);
    CHECK_MSG(c->n == 31 && c->x[30] == 31 && c->y[30] == 7, "n %d", c->n);
    CHECK(c->x[29] == 30);
    free(c);
}

static void test_curve_thins(void)
{
    struct curve *c = malloc(sizeof *c);
    double low, high, sum = 0;
    int n = 10 * CURVE_POINTS;
    curve_init(c);
    for (int i = 0; i < n; i++) curve_add(c, i, i);
    CHECK_MSG(c->n <= CURVE_POINTS && c->n >= CURVE_POINTS / 2, "%d points", c->n);
    for (int i = 1; i < c->n; i++) CHECK(c->x[i] > c->x[i - 1]);
    for (int i = 0; i < c->n; i++) sum += c->y[i] - c->x[i];
    CHECK_MSG(fabs(sum) < 1e-6, "averages moved by %g", sum);
    curve_draw(c, 100, 10, n, true, rows, &low, &high);
    for (int r = 0; r < 10; r++) CHECK_MSG(text_width(rows[r]) == 100, "%d", text_width(rows[r]));
    free(c);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static struct jv *parse(const char *text)
{
    struct err e = {0};
    return jv_parse(text, strlen(text), &e);
}

static void test_json_read(void)
{
    struct jv *v = parse("{\"a\":{\"b\":[1,2.0,\"x\"],\"n\":null},\"t\":true,\"i\":12}");
    CHECK(v != NULL);
    CHECK(jv_int(v, "a.b.0", -1) == 1);
    CHECK(jv_int(v, "a.b.1", -1) == 2);
    CHECK_STR(jv_str(v, "a.b.2", "?"), "x");
    CHECK(jv_int(v, "a.b.3", -1) == -1);
    CHECK(jv_get(v, "a.n") == NULL);
    CHECK(jv_get(v, "a.x.y") == NULL);
    static const char *const none[] = {"a.b.x", "a.b.0x", "a.b.-1",
                                       "a.b..", "a.b. 0", "a.b.99999999999999999999999"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK_MSG(!jv_get(v, none[i]), "\"%s\" is an element", none[i]);
    CHECK(jv_num(v, "i", 0) == 12);
    CHECK(jv_bool(v, "t", false));
    CHECK(!jv_bool(v, "i", false));
    CHECK(jv_int(v, "t", -7) == -7);
    CHECK(jv_len(jv_get(v, "a.b")) == 3);
    const char *key = "";
    CHECK(jv_at(v, 2, &key) && !strcmp(key, "i"));
    CHECK(jv_int(NULL, "x", 5) == 5);
    jv_free(v);
}

static void test_json_refuses(void)
{
    static const char *const bad[] = {"",         "{",    "{\"a\":1,\"a\":2}",
                                      "{} x",     "[1,]", "{\"a\":NaN}",
                                      "\"\xff\"", "nul",  "\"\\ud800\""};
    struct err e = {0};
    char deep[400];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct jv *v = parse(bad[i]);
        CHECK_MSG(!v, "%s was accepted", bad[i]);
        jv_free(v);
    }
    memset(deep, '[', 200);
    memset(deep + 200, ']', 200);
    CHECK(!jv_parse(deep, 400, &e));
    CHECK_MSG(e.code == ERR_TOO_LARGE, "%s", e.text);
}

static void test_json_set(void)
{
    struct err e = {0};
    struct jv *v = parse("{\"kind\":\"train\",\"train\":{\"steps\":5},\"x\":1}");
    CHECK(!jv_set(v, "train.steps", "20", &e));
    CHECK(!jv_set(v, "model.path", "/tmp/m", &e));
    CHECK(!jv_set(v, "data.train", "[{\"path\":\"a\"}]", &e));
    CHECK(!jv_set_str(v, "name", "12", &e));
    CHECK(jv_set(v, "x.y", "1", &e) < 0);
    CHECK_MSG(strstr(e.text, "x.y"), "%s", e.text);
    CHECK(jv_set(v, "", "1", &e) < 0);
    CHECK(jv_set(v, "data.train.x.path", "b", &e) < 0 &&
          jv_set(v, "data.train..path", "b", &e) < 0);
    CHECK(jv_unset(v, "data.train.x", &e) < 0 && jv_unset(v, "data.train.x.path", &e) < 0);
    char *s = jv_dump(v, JV_COMPACT);
    CHECK_STR(s,
              "{\"kind\": \"train\", \"train\": {\"steps\": 20}, \"x\": 1, \"model\": {\"path\": "
              "\"/tmp/m\"}, \"data\": {\"train\": [{\"path\": \"a\"}]}, \"name\": \"12\"}");
    free(s);
    jv_free(v);
}

static void test_json_text(void)
{
    struct jv *v = parse("{\"s\":\"a\\u009bb\",\"r\":0.1,\"o\":{\"k\":1}}");
    char *s = jv_text(jv_get(v, "s"));
    CHECK_STR(s, "a\xc2\x9b"
                 "b");
    free(s);
    s = jv_text(jv_get(v, "r"));
    CHECK_STR(s, "0.1");
    free(s);
    s = jv_text(jv_get(v, "o"));
    CHECK_STR(s, "{\"k\": 1}");
    free(s);
    s = jv_dump(v, JV_ASCII);
    CHECK_MSG(strstr(s, "\\u009B") || strstr(s, "\\u009b"), "%s", s);
    for (const char *p = s; *p; p++) CHECK((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f);
    double r = 0;
    CHECK(sscanf(strstr(s, "\"r\": ") + 5, "%lf", &r) == 1 && r == 0.1);
    free(s);
    jv_free(v);
}

static void test_event_line(void)
{
    char out[256];
    struct jv *v = parse("{\"seq\":7,\"job\":1,\"epoch\":2,\"at\":\"2026-11-21T12:03:11.123Z\","
                         "\"type\":\"rank_exit\",\"data\":{\"rank\":1,\"signal\":9,\"text\":"
                         "\"killed\\u001b[31m\",\"detail\":{\"sha256\":\"00\",\"size\":3}}}");
    CHECK_STR(event_line(v, out, sizeof out),
              "12:03:11  epoch 2  rank_exit   rank=1  signal=9  killed?[31m  size=3");
    char tiny[12];
    event_line(v, tiny, sizeof tiny);
    CHECK(strlen(tiny) < sizeof tiny);
    jv_free(v);
    v = parse(
        "{\"epoch\":2,\"at\":\"2026-11-21T12:03:11.123Z\",\"type\":\"eval\",\"data\":{\"step\":4,"
        "\"detail\":{\"step\":4,\"loss\":0.5,\"preferences\":{\"pairs\":3,\"margin\":0.25}}}}");
    CHECK_STR(event_line(v, out, sizeof out),
              "12:03:11  epoch 2  eval        step=4  loss=0.5  pairs=3  margin=0.25");
    jv_free(v);
}

/* Checks that paths are relative to the user's directory, and that absolute paths and other
 * strings are unchanged. */
static void test_spec_paths(void)
{
    static const char given[] =
        "{\"name\":\"a/b\",\"model\":{\"path\":\"./m\",\"adapter\":\"lora/"
        "a\",\"adapters\":{\"x.1\":\"./lora/x\",\"y\":\"job:7\",\"z\":\"/"
        "z\"}},\"input\":{\"path\":\"in.txt\"},"
        "\"context\":{\"load\":\"../c\"},\"checkpoint\":{\"resume\":\"step-1\"},\"data\":{"
        "\"train\":[{\"path\":\"worker/*/*.c\"},{\"path\":\"/abs/x\"}]}, "
        "\"eval\":{\"data\":[{\"path\":\"e\"}]}}";
    static const char want[] =
        "{\"name\": \"a/b\", \"model\": {\"path\": \"/home/u/m\", \"adapter\": "
        "\"/home/u/lora/a\", \"adapters\": {\"x.1\": \"/home/u/lora/x\", \"y\": \"job:7\", "
        "\"z\": \"/z\"}}, \"input\": {\"path\": \"/home/u/in.txt\"}, \"context\": {\"load\": "
        "\"/home/u/../c\"}, \"checkpoint\": {\"resume\": "
        "\"/home/u/"
        "step-1\"}, \"data\": {\"train\": [{\"path\": \"/home/u/worker/*/*.c\"}, {\"path\": "
        "\"/abs/x\"}]}, "
        "\"eval\": {\"data\": [{\"path\": \"/home/u/e\"}]}}";
    struct err e = {0};
    struct jv *v = jv_parse(given, sizeof given - 1, &e), *w;
    CHECK_MSG(!spec_make_absolute(v, NULL, "/home/u", &e), "%s", e.text);
    char *text = jv_dump(v, JV_COMPACT);
    CHECK_STR(text, want);
    free(text);
    jv_free(v);
    static const char words[] =
        "{\"checkpoint\": {\"resume\": \"auto\"}, \"model\": {\"config\": {}, \"adapter\": "
        "\"job:7\"}}";
    w = jv_parse(words, sizeof words - 1, &e);
    CHECK(!spec_make_absolute(w, NULL, "/", &e));
    text = jv_dump(w, JV_COMPACT);
    CHECK_STR(text, words);
    free(text);
    jv_free(w);
}

/* Checks that relative paths become absolute only if the URL is a URL of this machine. It is one
 * if it is a socket, or if it has exactly one of the names of this host. */
static void test_paths_of_this_machine(void)
{
    static const struct {
        const char *url;
        bool here;
    } cases[] = {{"unix:/run/seqd/seqd.sock", true},
                 {"http://127.0.0.1:7433", true},
                 {"http://127.1.2.3", true},
                 {"https://localhost:7433", true},
                 {"http://[::1]:7433", true},
                 {"http://0.0.0.0:7433", true},
                 {"http://192.0.2.1:7433", false},
                 {"http://unix:1", false},
                 {"http://localhost.example.invalid:1", false},
                 {"http://127.0.0.1.example.invalid:1", false},
                 {"http://127.example.invalid", false},
                 {"http://127.0.0.1:80@192.0.2.1:1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct cli c = {.http = http_create(cases[i].url, &e)};
        struct jv *v = parse("{\"input\":{\"path\":\"in.txt\"}}");
        CHECK_MSG(c.http && spec_apply(&c, v, NULL) == CLI_OK, "%s: %s", cases[i].url, e.text);
        const char *path = jv_str(v, "input.path", "?");
        CHECK_MSG((*path == '/') == cases[i].here, "%s: %s", cases[i].url, path);
        jv_free(v);
        http_destroy(c.http);
    }
}

int main(void)
{
    RUN(test_clean);
    RUN(test_clean_sizes);
    RUN(test_numbers);
    RUN(test_progress);
    RUN(test_progress_lines);
    RUN(test_table);
    RUN(test_widths);
    RUN(test_table_cut);
    RUN(test_curve_ascii);
    RUN(test_curve_braille);
    RUN(test_curve_edges);
    RUN(test_curve_resume);
    RUN(test_curve_thins);
    RUN(test_json_read);
    RUN(test_json_refuses);
    RUN(test_json_set);
    RUN(test_json_text);
    RUN(test_event_line);
    RUN(test_spec_paths);
    RUN(test_paths_of_this_machine);
    return test_done("client_text");
}
