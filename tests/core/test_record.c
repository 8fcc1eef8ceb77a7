/* test_record: tests a record with a member of every type, which is written and read back. The
 * reader must refuse damage. */
#include "api/core/record.h"

#include <math.h>
#include "tests/lib/test.h"

enum { MOST = 3 };

struct pair {
    int32_t a;
    double b;
};

struct every {
    int64_t whole;
    int32_t small, yes, strict, lenient, n;
    double real, maybe;
    bool flag;
    char text[6], raw[16];
    char *owned;
    struct pair pair[MOST];
    char name[MOST][4];
};

static bool has_text(const void *record)
{
    return *((const struct every *)record)->text;
}

static const void *pair_get(const void *record, int i)
{
    const struct every *r = record;
    return i < r->n ? &r->pair[i] : NULL;
}

static void *pair_add(void *record, int i)
{
    struct every *r = record;
    if (i == MOST) return NULL;
    r->n = i + 1;
    return &r->pair[i];
}

static bool pair_holds(const void *record, int i)
{
    const struct every *r = record;
    return r->pair[i].a > (i ? r->pair[i - 1].a : 0);
}

static const void *name_get(const void *record, int i)
{
    const struct every *r = record;
    return i < MOST && *r->name[i] ? r->name[i] : NULL;
}

static void *name_add(void *record, int i)
{
    struct every *r = record;
    return i < MOST ? r->name[i] : NULL;
}

static const char *const strict[] = {"none", "one", "two", NULL};
static const char *const lenient[] = {"three", "four", NULL};
#define AT(member) offsetof(struct pair, member)
static const struct field pair_rows[] = {
    {"a", FIELD_INT32, AT(a), 0, 9, .when = record_always},
    {"b", FIELD_DOUBLE, AT(b), -1, 1},
    {NULL},
};
#undef AT
#define AT(member) offsetof(struct every, member)
static const struct field name_rows[] = {{"", FIELD_TEXT, .size = 4}, {NULL}};
static const struct field inner_rows[] = {
    {"small", FIELD_INT32, AT(small), INT32_MIN, INT32_MAX},
    {"yes", FIELD_BOOL, AT(yes)},
    {NULL},
};
static const struct field_list pairs = {pair_rows, pair_get, pair_add, pair_holds};
static const struct field_list names = {name_rows, name_get, name_add, NULL};
static const struct field rows[] = {
    {"version", FIELD_FIXED, 0, 2, 2, .needed = true},
    {"whole", FIELD_INT, AT(whole), INT64_MIN, INT64_MAX},
    {"inner", FIELD_OBJECT, .of = inner_rows, .when = has_text},
    {"real", FIELD_DOUBLE, AT(real), -1e300, 1e300},
    {"maybe", FIELD_DOUBLE, AT(maybe), 0, 9, .or_null = true},
    {"flag", FIELD_FLAG, AT(flag)},
    {"strict", FIELD_ENUM, AT(strict), .words = strict},
    {"lenient", FIELD_WORD, AT(lenient), .min = 3, .words = lenient, .fallback = 9},
    {"text", FIELD_TEXT, AT(text), .size = 6},
    {"raw", FIELD_RAW, AT(raw), .size = 16},
    {"owned", FIELD_OWNED, AT(owned)},
    {"pairs", FIELD_LIST, .list = &pairs},
    {"names", FIELD_LIST, .list = &names},
    {NULL},
};

static int read_text(const char *text, struct every *r, struct err *e)
{
    struct jread j;
    *r = (struct every){0};
    *e = (struct err){0};
    jread_init(&j, text, strlen(text));
    CHECK(jread_next(&j) == J_OBJECT);
    return record_read(&j, rows, r, e);
}

static const char *written(const struct every *r)
{
    static char out[1024];
    struct jwrite w;
    jwrite_init(&w, out, sizeof out);
    record_write(&w, NULL, rows, r);
    CHECK(jwrite_finish(&w) > 0);
    return out;
}

static void test_round_trip(void)
{
    static const char all[] =
        "{\"version\":2,\"whole\":-9223372036854775808,\"inner\":{\"small\":-2147483648,\"yes\":"
        "true},"
        "\"real\":0.5,\"flag\":true,\"strict\":\"two\",\"lenient\":\"four\",\"text\":\"a\\\"b\","
        "\"raw\":[{\"a\":\"]\"}],\"owned\":\"\xC3\xA9\",\"pairs\":[{\"a\":1,\"b\":-1},{\"a\":2}],"
        "\"names\":[\"x\",\"yyy\"]}";
    struct every r;
    struct err e;
    CHECK_MSG(!read_text(all, &r, &e), "%s", e.text);
    CHECK(r.whole == INT64_MIN && r.small == INT32_MIN && r.yes == 1 && r.real == 0.5 && r.flag);
    CHECK(r.strict == 2 && r.lenient == 4 && r.n == 2 && r.pair[0].b == -1 && r.pair[1].a == 2);
    CHECK_STR(r.text, "a\"b");
    CHECK_STR(r.raw, "[{\"a\":\"]\"}]");
    CHECK_STR(written(&r), all);
    free(r.owned);
    CHECK(!read_text("{\"version\":2}", &r, &e));
    r.lenient = 3;
    CHECK_STR(written(&r), "{\"version\":2,\"lenient\":\"three\"}");
}

/* Checks that the reader accepts members in a different order, blanks, an unknown member in every
 * object, and an unknown word. */
static void test_tolerates(void)
{
    struct every r;
    struct err e;
    CHECK_MSG(
        !read_text(
            "{ \"new\" : [{}, 1], \"version\" : 2, \"raw\" : { \"a\" : 1 } , \"lenient\":\"five\", "
            "\"pairs\":[ {\"new\":{\"a\":[]},\"a\":1} ], \"whole\":7,\"names\":[],"
            "\"inner\":{\"new\":null}}",
            &r, &e),
        "%s", e.text);
    CHECK(r.whole == 7 && r.lenient == 9 && r.n == 1 && r.pair[0].a == 1 && !*r.name[0]);
    CHECK_STR(r.raw, "{ \"a\" : 1 }");
}

/* Checks that NaN is written as null. If a member may be null, reading null must leave the
 * member's value unchanged. */
static void test_null(void)
{
    static const char text[] = "{\"version\":2,\"maybe\":null}";
    struct every r = {.lenient = 3, .maybe = 4};
    struct err e = {0};
    CHECK_MSG(!record_parse(text, sizeof text - 1, rows, &r, &e), "%s", e.text);
    CHECK(r.maybe == 4);
    r.maybe = NAN;
    CHECK_STR(written(&r), "{\"version\":2,\"maybe\":null,\"lenient\":\"three\"}");
    CHECK(read_text("{\"version\":2,\"maybe\":10}", &r, &e) == -1);
    CHECK(read_text("{\"version\":2,\"maybe\":\"1\"}", &r, &e) == -1);
}

/* Checks an owned text that may be null. A NULL pointer must be written as null, and read back as
 * NULL. */
static void test_null_text(void)
{
    static const struct field lone[] = {
        {"owned", FIELD_OWNED, AT(owned), .when = record_always, .or_null = true}, {NULL}};
    static const char *const texts[] = {"{\"owned\":null}", "{\"owned\":\"a\"}"};
    for (int i = 0; i < 2; i++) {
        struct every r = {0};
        struct err e = {0};
        struct jwrite w;
        char out[64];
        CHECK_MSG(!record_parse(texts[i], strlen(texts[i]), lone, &r, &e), "%s", e.text);
        CHECK(!r.owned == !i);
        jwrite_init(&w, out, sizeof out);
        record_write(&w, NULL, lone, &r);
        CHECK(jwrite_finish(&w) > 0);
        CHECK_STR(out, texts[i]);
        free(r.owned);
    }
    struct every r = {0};
    CHECK(read_text("{\"version\":2,\"owned\":null}", &r, &(struct err){0}) == -1);
}

/* Checks a text that is not an object, and a text with more than one object. */
static void test_parse(void)
{
    static const char *const bad[] = {
        "",  " ", "[]", "7", "null", "{\"version\":2", "{\"version\":2}}", "{\"version\":2} {}",
        "{}"};
    struct every r = {0};
    struct err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e = (struct err){0};
        CHECK_MSG(record_parse(bad[i], strlen(bad[i]), rows, &r, &e) == -1, "%s", bad[i]);
        CHECK_MSG(e.code == ERR_CORRUPT && *e.text, "%s", bad[i]);
    }
    CHECK(!record_parse(" {\"version\":2}\n", 15, rows, &r, &e));
}

/* Checks which member the error names, and that it shows the beginning of the member's value. */
static void test_refuses(void)
{
    static const char *const bad[][2] = {
        {"whole", "\"1\"}"},
        {"whole", "1.5}"},
        {"whole", "9223372036854775808}"},
        {"real", "null}"},
        {"real", "1e301}"},
        {"flag", "1}"},
        {"strict", "\"three\"}"},
        {"strict", "1}"},
        {"lenient", "null}"},
        {"text", "\"123456\"}"},
        {"text", "\"a\\u0000\"}"},
        {"text", "[]}"},
        {"raw", "\"a\"}"},
        {"raw", "[12345678901234]}"},
        {"owned", "7}"},
        {"inner", "[]}"},
        {"pairs", "{}}"},
        {"pairs", "[1]}"},
        {"pairs", "[{\"a\":2},{\"a\":1}]}"},
        {"pairs", "[{\"a\":1},{\"a\":2},{\"a\":3},{\"a\":4}]}"},
        {"pairs", "[{\"a\":1}"},
        {"names", "\"x\"}"},
        {"names", "[\"1\",\"2\",\"3\",\"4\"]}"},
        {"whole", ""},
        {"version", "3}"},
        {"version", "\"2\"}"},
    };
    struct every r;
    struct err e;
    char text[128];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "{\"version\":2,\"%s\":%s", bad[i][0], bad[i][1]);
        CHECK_MSG(read_text(text, &r, &e) == -1 && e.code == ERR_CORRUPT, "%s", text);
        CHECK_MSG(!strcmp(e.field, bad[i][0]) && strstr(e.text, bad[i][0]), "%s: %s", text, e.text);
        free(r.owned);
    }
    CHECK(read_text("{\"version\":2,\"owned\":\"a\",\"owned\":\"b\"}", &r, &e) ==
          -1); /* the first text would leak */
    free(r.owned);
    CHECK(read_text("{\"version\":2,\"pairs\":[{\"a\":10}]}", &r, &e) == -1 &&
          strstr(e.text, "between 0 and 9"));
    CHECK(read_text("{\"names\":[3]}", &r, &e) == -1 && e.code == ERR_CORRUPT);
    CHECK(read_text("{\"whole\":1", &r, &e) == -1 && read_text("{\"new\":[1", &r, &e) == -1);
    CHECK(e.code == ERR_CORRUPT && *e.text);
    CHECK(read_text("{\"whole\":1}", &r, &e) == -1 && !strcmp(e.field, "version"));
}

static const struct field closed_rows[] = {
    {"a", FIELD_INT32, offsetof(struct pair, a), 0, 9},
    {"b", FIELD_DOUBLE, offsetof(struct pair, b), -1, 1},
    RECORD_CLOSED,
};

/* Checks that a closed table refuses every member for which it has no row, at any depth. */
static void test_closed(void)
{
    static const char *const bad[] = {"{\"c\":1}", "{\"a\":1,\"c\":null,\"b\":0}", "{\"\":{}}"};
    struct pair r = {0};
    struct err e = {0};
    CHECK_MSG(!record_parse("{\"b\":1,\"a\":2}", 13, closed_rows, &r, &e), "%s", e.text);
    CHECK(r.a == 2 && r.b == 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(record_parse(bad[i], strlen(bad[i]), closed_rows, &r, &e) && e.code == ERR_CORRUPT);
        CHECK_STR(e.text, "an object has a member that is none of a, b");
        CHECK(record_parse(bad[i], strlen(bad[i]), closed_rows, &r, NULL));
    }
}

/* Checks the field of an error about a member of a list's element. The field must contain the
 * index of the element. */
static void test_place(void)
{
    struct every r;
    struct err e;
    CHECK(read_text("{\"version\":2,\"pairs\":[{\"a\":1},{\"a\":10}]}", &r, &e));
    CHECK_STR(e.field, "pairs.1.a");
    CHECK(read_text("{\"version\":2,\"names\":[1]}", &r, &e));
    CHECK_STR(e.field, "names.0");
    CHECK(read_text("{\"version\":2,\"pairs\":[{\"a\" 1}]}", &r, &e));
    CHECK_STR(e.field, "pairs.0");
}

int main(void)
{
    RUN(test_round_trip);
    RUN(test_tolerates);
    RUN(test_null);
    RUN(test_null_text);
    RUN(test_parse);
    RUN(test_refuses);
    RUN(test_closed);
    RUN(test_place);
    return test_done("record");
}
