/* test_client_yaml: tests YAML and CSV. Accepted texts of YAML are compared with JSON, the errors
 * of refused texts must name the position of the error, and reading a printed text must give the
 * value that was printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/csv.h"
#include "client/yaml.h"
#include "tests/lib/test.h"

static void reads(const char *yaml, const char *json)
{
    struct err e = {0};
    struct jv *v = yaml_parse(yaml, strlen(yaml), &e);
    CHECK_MSG(v != NULL, "%s: %s", yaml, e.text);
    if (!v) return;
    char *text = jv_dump(v, JV_COMPACT);
    CHECK_STR(text, json);
    free(text);
    jv_free(v);
}

static void test_reads(void)
{
    reads("kind: train # a comment\ntrain:\n  steps: 20\n",
          "{\"kind\": \"train\", \"train\": {\"steps\": 20}}");
    reads("- a\n- [1, 2.5, -3e2]\n- {b: null}\n", "[\"a\", [1, 2.5, -300.0], {\"b\": null}]");
    reads("{\"a\": [true], \"b\": \"c\"}", "{\"a\": [true], \"b\": \"c\"}"); /* JSON is YAML */
}

static void test_plain(void)
{
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"true", "true"},
        {"false", "false"},
        {"null", "null"},
        {"7", "7"},
        {"-0.5", "-0.5"},
        {"1e3", "1000.0"},
        {"no", "\"no\""},
        {"on", "\"on\""},
        {"Yes", "\"Yes\""},
        {"True", "\"True\""},
        {"NULL", "\"NULL\""},
        {"~", "\"~\""},
        {"0x10", "\"0x10\""},
        {"1_000", "\"1_000\""},
        {"+1", "\"+1\""},
        {".5", "\".5\""},
        {"5.", "\"5.\""},
        {"007", "\"007\""},
        {"12:30", "\"12:30\""},
        {".inf", "\".inf\""},
        {"nan", "\"nan\""},
        {"1 2", "\"1 2\""},
        {"-", NULL},
        {"-a", "\"-a\""},
        {"2026-11-23", "\"2026-11-23\""},
        {"'7'", "\"7\""},
        {"\"true\"", "\"true\""},
        {"99999999999999999999", "\"99999999999999999999\""},
        {"\"\"", "\"\""},
        {"|\n  a\n  b\n", "\"a\\nb\\n\""},
        {">\n  a\n  b\n", "\"a b\\n\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char yaml[64], json[64];
        if (!cases[i].json) continue;
        snprintf(yaml, sizeof yaml, "x: %s", cases[i].yaml);
        snprintf(json, sizeof json, "{\"x\": %s}", cases[i].json);
        reads(yaml, json);
    }
}

static void test_refuses(void)
{
    static const struct {
        const char *yaml, *says;
    } cases[] = {
        {"", "line 1, column 1: nothing is written here"},
        {"# only a comment\n", "nothing is written"},
        {"a: 1\nb: 2\na: 3\n", "line 3, column 1: \"a\" is there twice"},
        {"a: 1\n\"a\": 3\n", "line 2, column 1: \"a\" is there twice"},
        {"a:\nb: 1\n", "line 1, column 3: there is no value"},
        {"a: &x 1\nb: 2\n", "line 1, column 4: anchors"},
        {"a: *x\n", "column 4: anchors"},
        {"a: &x [1]\n", "anchors"},
        {"a: &x {b: 1}\n", "anchors"},
        {"a: !!str 1\n", "line 1, column 4: tags"},
        {"a: !x [1]\n", "tags"},
        {"a: !x {b: 1}\n", "tags"},
        {"!!str a: 1\n", "a key must be a text"},
        {"[1]: 2\n", "line 1, column 1: a key must be a text"},
        {"\"\": 2\n", "a key must be a text"},
        {"\"a\\0b\": 2\n", "a key must be a text"},
        {"a: \"b\\0c\"\n", "has a NUL"},
        {"a: 1\n---\nb: 1\n", "line 2, column 1: a second document"},
        {"a: 1\n  b: 2\n", "line 2, column 4"},
        {"a: [1, 2\n", "line 2, column 1"},
        {"a:\t1\n\tb: 2", "line 2"},
        {"a: \xff\n", "line 1, column 1"},
        {"a: @b\n", "line 1, column 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct jv *v = yaml_parse(cases[i].yaml, strlen(cases[i].yaml), &e);
        CHECK_MSG(!v && strstr(e.text, cases[i].says), "case %zu: %s", i, v ? "read" : e.text);
        jv_free(v);
    }
}

/* Checks that the depth, the number of values and the time are all limited. */
static void test_limits(void)
{
    static char text[1 << 20];
    struct err e = {0};
    memset(text, '[', sizeof text);
    CHECK(!yaml_parse(text, sizeof text, &e));
    CHECK_MSG(e.code == ERR_TOO_LARGE, "%s", e.text);
    size_t n = 0;
    for (int i = 0; i <= YAML_NODES; i++) n += (size_t)sprintf(text + n, "- 1\n");
    CHECK(!yaml_parse(text, n, &e));
    CHECK_MSG(e.code == ERR_TOO_LARGE && strstr(e.text, "line 100000"), "%s", e.text);
    struct jv *v = yaml_parse(text, n - 12, &e);
    CHECK(v && jv_len(v) == YAML_NODES - 2);
    jv_free(v);
}

static char *printed(void (*print)(FILE *, const struct jv *, bool), const char *json, bool clean)
{
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    struct jv *v = jv_parse(json, strlen(json), NULL);
    CHECK(v != NULL);
    print(f, v, clean);
    fclose(f);
    jv_free(v);
    return out;
}

static void test_prints(void)
{
    static const char json[] =
        "{\"a\": 1, \"b\": {\"c\": [1, [2, 3], {\"d\": \"x\", \"e\": []}], \"f\": {}}, \"g\": "
        "\"no\", "
        "\"h\": \"a: b\", \"i\": \"\", \"j\": \"1\", \"k\": null, \"y\": \"- x\\n\\\"\", \"l/m\": "
        "\"\\u009b\", \"n\": 0.1}";
    char *out = printed(yaml_print, json, false);
    CHECK_STR(out,
              "a: 1\nb:\n  c:\n    - 1\n    - - 2\n      - 3\n    - d: x\n      e: []\n  f: {}\n"
              "g: \"no\"\nh: \"a: b\"\ni: \"\"\nj: \"1\"\nk: null\n\"y\": \"- x\\n\\\"\"\n"
              "l/m: \"\xc2\x9b\"\n\"n\": 0.1\n");
    struct jv *v = jv_parse(json, strlen(json), NULL);
    char *want = jv_dump(v, JV_COMPACT);
    struct err e = {0};
    /* A text for a terminal must have no control character, and reading the text must give the
     * value that was printed. */
    free(out);
    out = printed(yaml_print, json, true);
    for (const char *p = out; *p; p++) CHECK(*p == '\n' || (*p >= 0x20 && *p < 0x7f));
    struct jv *back = yaml_parse(out, strlen(out), &e);
    CHECK_MSG(back != NULL, "%s", e.text);
    char *got = jv_dump(back, JV_COMPACT);
    CHECK_STR(got, want);
    free(got);
    free(want);
    free(out);
    jv_free(v);
    jv_free(back);
    out = printed(yaml_print, "[]", false);
    CHECK_STR(out, "[]\n");
    free(out);
}

static void test_csv(void)
{
    char *out = printed(
        csv_print,
        "[{\"id\": 1, \"p\": null, \"name\": \"a,\\\"b\\\"\\n\"}, {\"id\": 2, \"p\": {\"done\": "
        "0.5, \"q\": {\"r\": 1}}, \"nodes\": [1, 2], \"labels\": {\"a.b\": \"c\"}}]",
        false);
    CHECK_STR(out, "id,name,p.done,p.q.r,nodes,labels\r\n1,\"a,\"\"b\"\"\n\",,,,\r\n"
                   "2,,0.5,1,\"[1, 2]\",\"{\"\"a.b\"\": \"\"c\"\"}\"\r\n");
    free(out);
    out = printed(csv_print, "{\"a\": \"\\u001b[2J\", \"b\": true}", true);
    CHECK_STR(out, "a,b\r\n?[2J,true\r\n");
    free(out);
    out = printed(csv_print, "[]", false);
    CHECK_STR(out, "");
    free(out);
    out = printed(csv_print,
                  "{\"=a\": \"=1+1\", \"b\": \"@x\", \"c\": \"-2\", \"d\": -2.5, \"e\": \"+\", "
                  "\"f\": \"a\\u001b\\r\", \"g\": \"\\tx\", \"h\": \"a-b\", \"i\": [-1]}",
                  false);
    CHECK_STR(out, "'=a,b,c,d,e,f,g,h,i\r\n'=1+1,'@x,'-2,-2.5,'+,a\\x1b\\x0d,'\tx,a-b,[-1]\r\n");
    free(out);
}

int main(void)
{
    RUN(test_reads);
    RUN(test_plain);
    RUN(test_refuses);
    RUN(test_limits);
    RUN(test_prints);
    RUN(test_csv);
    return test_done("client_yaml");
}
