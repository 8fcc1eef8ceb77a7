/* test_template: checks chat templates. The output of small templates, which together use every
 * construct, is compared with the output of jinja2 (tests/golden/make_template_golden.py). Refused
 * templates and every limit are checked, too.
 * tests: needs golden */
#include "worker/jinja/template.h"

#include "api/core/file.h"
#include "api/core/jread.h"
#include "tests/lib/test.h"
#include "worker/jinja/native.h"
#include "worker/jinja/run.h"

static const char *golden = "tests/golden/templates.jsonl";

struct row {
    char *source, *want;
    size_t n_source, n_want;
    char kind[16]; /* out, error, refused */
    int64_t span[64];
    int n_spans;
};

static char *copy_of(struct jread *j, size_t *n)
{
    char *p = malloc(j->len + 1);
    *n = jread_unescape(j, p);
    p[*n] = 0;
    return p;
}

static void read_row(struct row *w, const char *line, size_t size)
{
    struct jread j;
    *w = (struct row){0};
    jread_init(&j, line, size);
    jread_next(&j);
    while (jread_next(&j) == J_KEY) {
        char key[16];
        jread_copy(&j, key, sizeof key);
        enum jtok t = jread_next(&j);
        if (!strcmp(key, "template")) {
            w->source = copy_of(&j, &w->n_source);
        } else if (strcmp(key, "spans")) {
            strcpy(w->kind, key);
            w->want = copy_of(&j, &w->n_want);
        } else {
            for (int depth = 1; depth;) {
                t = jread_next(&j);
                depth += (t == J_ARRAY) - (t == J_ARRAY_END);
                if (t == J_NUMBER) jread_int(&j, &w->span[w->n_spans++]);
            }
        }
    }
}

static void check_out(const struct row *w, const struct template_output *o)
{
    CHECK_MSG(o->size == (int64_t)w->n_want && !memcmp(o->text, w->want, w->n_want),
              "%s: got \"%.*s\", want \"%s\"", w->source, (int)o->size, o->text, w->want);
    CHECK_MSG(2 * o->n_spans == w->n_spans, "%s: %d spans", w->source, (int)o->n_spans);
    for (int i = 0; i < w->n_spans / 2 && i < o->n_spans; i++)
        CHECK(o->span[i].begin == w->span[2 * i] && o->span[i].end == w->span[2 * i + 1]);
}

static void check_row(const struct row *w, const char *vars, size_t n_vars,
                      struct template_output *o)
{
    struct err e = {0};
    struct template *t = jinja_create(w->source, (int64_t)w->n_source, &e);
    if (!strcmp(w->kind, "refused") || !t) {
        CHECK_MSG(!t && !strcmp(w->kind, "refused"), "%s: %s", w->source, e.text);
        CHECK(t || (e.code != ERR_NONE && strstr(e.text, "line ")));
        jinja_destroy(t);
        return;
    }
    const int rc = jinja_render(t, vars, (int64_t)n_vars, 1753679229, o, &e);
    if (strcmp(w->kind, "error"))
        CHECK_MSG(!rc, "%s: %s", w->source, e.text);
    else
        CHECK_MSG(rc && strstr(e.text, w->want), "%s: %s", w->source, rc ? e.text : "no error");
    if (!rc) check_out(w, o);
    jinja_destroy(t);
}

static char *read_golden(size_t *n)
{
    struct err e = {0};
    char *text = file_read(golden, 1 << 20, n, &e);
    CHECK_MSG(text, "%s", e.text);
    return text;
}

static void test_golden(void)
{
    size_t n;
    int rows = 0;
    char *text = read_golden(&n), *line = text, *vars = NULL;
    size_t n_vars = 0;
    struct template_output o = {0};
    for (char *end; line && (end = strchr(line, '\n')) != NULL; line = end + 1, rows++) {
        if (!vars) {
            vars = line;
            n_vars = (size_t)(end - line);
            continue;
        }
        struct row w;
        read_row(&w, line, (size_t)(end - line));
        check_row(&w, vars, n_vars, &o);
        free(w.source);
        free(w.want);
    }
    CHECK_MSG(rows > 500, "%d rows", rows);
    jinja_output_fini(&o);
    free(text);
}

/* Checks that every row of the table is used in a golden template. A template uses a name in the
 * forms "| name", "is name", ".name(" and "name(", or passes the name to map or select. */
static void check_table(const char *text, const struct native *table, const char *before)
{
    for (; table->name; table++) {
        char use[3][64];
        snprintf(use[0], sizeof *use, "%s%s", before, table->name);
        snprintf(use[1], sizeof *use, "is not %s", table->name);
        snprintf(use[2], sizeof *use, "'%s'", table->name);
        CHECK_MSG(strstr(text, use[0]) || strstr(text, use[1]) || strstr(text, use[2]),
                  "no golden template uses \"%s\"", use[0]);
    }
}

static void test_tables(void)
{
    size_t n;
    char *text = read_golden(&n);
    check_table(text, jinja_native_filters_text, "| ");
    check_table(text, jinja_native_filters_seq, "| ");
    check_table(text, jinja_native_filters_map, "| ");
    check_table(text, jinja_native_tests, "is ");
    check_table(text, jinja_native_methods_str, ".");
    check_table(text, jinja_native_methods_list, ".");
    check_table(text, jinja_native_methods_dict, ".");
    check_table(text, jinja_native_methods_loop, ".");
    check_table(text, jinja_native_functions, "");
    free(text);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void check_refused(const char *source, enum err_code code, const char *why)
{
    struct err e = {0};
    struct template *t = jinja_create(source, (int64_t)strlen(source), &e);
    CHECK_MSG(!t && e.code == code && strstr(e.text, why), "%.60s: %s", source, e.text);
    jinja_destroy(t);
}

static void test_refused(void)
{
    static const char *const tag[] = {"include 'x'", "import 'x' as y", "from 'x' import y",
                                      "extends 'x'", "block x",         "autoescape true"};
    for (size_t i = 0; i < sizeof tag / sizeof *tag; i++) {
        char source[64], why[64];
        snprintf(source, sizeof source, "a\nb {%% %s %%}", tag[i]);
        snprintf(why, sizeof why, "line 2: the tag '%.*s' is not", (int)strcspn(tag[i], " "),
                 tag[i]);
        check_refused(source, ERR_UNSUPPORTED, why);
    }
    check_refused("\n\n{{ x | urlize }}", ERR_UNSUPPORTED, "line 3: the filter 'urlize'");
    check_refused("{% if 0 %}{{ x | xmlattr }}{% endif %}", ERR_UNSUPPORTED, "filter 'xmlattr'");
    check_refused("{{ x is escaped }}", ERR_UNSUPPORTED, "the test 'escaped'");
    check_refused("{{ x.encode() }}", ERR_UNSUPPORTED, "the method 'encode'");
    check_refused("{{ cycler(1) }}", ERR_UNSUPPORTED, "the function 'cycler'");
    check_refused("{{ a[1, 2] }}", ERR_UNSUPPORTED, "a subscript with a comma");
    check_refused("{{ '\\N{DASH}' }}", ERR_UNSUPPORTED, "\\N{...}");
    check_refused("{{ '\\ud800' }}", ERR_INVALID, "U+D800");
    check_refused("{{ 99999999999999999999 }}", ERR_INVALID, "64 bits");
    check_refused("ab\xff", ERR_INVALID, "0xff is not UTF-8");
    check_refused("{{ a \xc3\xa9 }}", ERR_INVALID, "unexpected character");
}

/* ---- limits --------------------------------------------------------------------------------- */

/* Renders a template. Returns the error's code, or ERR_NONE if it succeeds. */
static enum err_code render(const char *source, const char *vars, char *text, size_t room)
{
    struct err e = {0};
    struct template *t = jinja_create(source, (int64_t)strlen(source), &e);
    struct template_output o = {0};
    if (t && !jinja_render(t, vars, (int64_t)strlen(vars), 0, &o, &e))
        snprintf(text, room, "%.*s", (int)o.size, o.text);
    else
        snprintf(text, room, "%s", e.text);
    jinja_output_fini(&o);
    jinja_destroy(t);
    return e.code;
}

static void check_limit(const char *source, const char *why)
{
    char text[600];
    const enum err_code code = render(source, "{}", text, sizeof text);
    CHECK_MSG(code == ERR_TOO_LARGE && strstr(text, why), "%.60s: %s", source, text);
}

static void test_limits(void)
{
    check_limit("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
                "1000000 steps");
    check_limit(
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "16 MiB");
    check_limit(
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
        "{% endfor %}",
        "16 MiB");
    check_limit("{{ 'x' * 1000000000000 }}", "16 MiB");
    check_limit("{{ 'x' * 9223372036854775807 }}", "16 MiB");
    check_limit("{{ [1] * 9223372036854775807 }}", "steps");
    check_limit("{{ 'a' | center(9999999999) }}", "16 MiB");
    check_limit("{{ 'a'.zfill(9999999999) }}", "16 MiB");
    check_limit("{{ [] | tojson(indent=99999999999) }}", "16 MiB");
    check_limit("{{ 'a'.ljust(9999999999, 'é') }}", "16 MiB");
    check_limit("{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", "16 MiB");
    check_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "64 calls");
    check_limit("{% for x in [[1]] recursive %}{{ loop([1]) }}{% endfor %}", "evaluations");
    check_limit("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "evaluations");
    check_limit("{% set ns = namespace(a=1) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}"
                "{% endfor %}{{ ns.a | tojson }}",
                "evaluations");
    check_limit(
        "{% set ns = namespace(a=1, b=1) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a]"
        " %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "steps");
    check_limit(
        "{% set ns = namespace(a=[1]) %}{% for i in range(40) %}{% set ns.a = ns.a + ns.a %}"
        "{% endfor %}",
        "MiB of memory");
    check_limit("{{ 9223372036854775807 + 1 }}", "64 bits");
    check_limit("{{ -9223372036854775807 - 2 }}", "64 bits");
    check_limit("{{ 10 ** 19 }}", "64 bits");
    check_limit("{{ '9223372036854775808' | int }}", "64 bits");
}

/* Returns a text that consists of n copies of `before`, then `middle`, then n copies of
 * `after`. */
static char *nested(const char *before, const char *middle, const char *after, int n)
{
    char *text = malloc((strlen(before) + strlen(after)) * (size_t)n + strlen(middle) + 1),
         *p = text;
    for (int i = 0; i < n; i++) p = stpcpy(p, before);
    p = stpcpy(p, middle);
    for (int i = 0; i < n; i++) p = stpcpy(p, after);
    return text;
}

static void check_nest(const char *before, const char *middle, const char *after, int fits)
{
    char text[600];
    char *ok = nested(before, middle, after, fits),
         *bad = nested(before, middle, after, 100000 / 16);
    CHECK_MSG(render(ok, "{}", text, sizeof text) == ERR_NONE, "%s * %d: %s", before, fits, text);
    CHECK_MSG(render(bad, "{}", text, sizeof text) == ERR_TOO_LARGE, "%s: %s", before, text);
    free(ok);
    free(bad);
}

static void test_nesting(void)
{
    check_nest("{% if 1 %}", "x", "{% endif %}", 60);
    check_nest("{% for i in [1] %}", "x", "{% endfor %}", 60);
    check_nest("{% macro m() %}", "x", "{% endmacro %}", 60);
    char text[600];
    char *deep[] = {nested("(", "1", ")", 5000),    nested("[", "1", "]", 5000),
                    nested("not ", "1", "", 5000),  nested("- ", "1", "", 5000),
                    nested("{1: ", "1", "}", 5000), nested("1 if 1 else ", "1", "", 5000),
                    nested("f(", "1", ")", 5000)};
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        char *source = malloc(strlen(deep[i]) + 10);
        sprintf(source, "{{ %s }}", deep[i]);
        CHECK_MSG(render(source, "{}", text, sizeof text) == ERR_TOO_LARGE, "%.20s: %s", source,
                  text);
        free(source);
        free(deep[i]);
    }
}

/* Checks that a long chain of operators does not count as nested. Only the limit on the number of
 * evaluations limits its length. */
static void test_chains(void)
{
    char text[600];
    char *sum = nested("1 + ", "1", "", 1000), *too_long = nested("1 + ", "1", "", 20000);
    char *source = malloc(strlen(too_long) + 10);
    sprintf(source, "{{ %s }}", sum);
    CHECK(render(source, "{}", text, sizeof text) == ERR_NONE);
    CHECK_STR(text, "1001");
    sprintf(source, "{{ %s }}", too_long);
    CHECK(render(source, "{}", text, sizeof text) == ERR_TOO_LARGE);
    free(source);
    free(sum);
    free(too_long);
    char *filters = nested(" | trim", "", "", 100);
    source = malloc(strlen(filters) + 64);
    sprintf(source, "{%% set x%s %%} a {%% endset %%}{{ x }}", filters);
    CHECK(render(source, "{}", text, sizeof text) == ERR_NONE);
    CHECK_STR(text, "a");
    free(source);
    free(filters);
}

static void test_source_size(void)
{
    struct err e = {0};
    char *text = malloc(TEMPLATE_SOURCE + 1);
    memset(text, 'x', TEMPLATE_SOURCE + 1);
    struct template *t = jinja_create(text, TEMPLATE_SOURCE, &e);
    struct template_output o = {0};
    CHECK(t && !jinja_render(t, "{}", 2, 0, &o, &e) && o.size == TEMPLATE_SOURCE);
    jinja_destroy(t);
    CHECK(!jinja_create(text, TEMPLATE_SOURCE + 1, &e) && e.code == ERR_TOO_LARGE);
    for (int i = 0; i + 1 < TEMPLATE_SOURCE; i += 2) memcpy(text + i, "{{", 2);
    CHECK(!jinja_create(text, TEMPLATE_SOURCE, &e));
    jinja_output_fini(&o);
    free(text);
}

static void test_variables(void)
{
    char text[600];
    CHECK(render("{{ a }}", "{\"a\": 1, \"b\": 2, \"a\": 3}", text, sizeof text) == ERR_NONE);
    CHECK_STR(text, "3");
    CHECK(render("{{ range }}", "{\"range\": 1}", text, sizeof text) == ERR_NONE);
    CHECK_STR(text, "1");
    CHECK(render("{{ loop }}{{ a }}", "{\"loop\": 1}", text, sizeof text) == ERR_NONE);
    CHECK_STR(text, "1");
    CHECK(render("x", "[1]", text, sizeof text) == ERR_INVALID);
    CHECK(render("x", "{\"a\": 1", text, sizeof text) == ERR_INVALID);
    CHECK(render("x", "{\"a\": 123456789012345678901}", text, sizeof text) == ERR_INVALID);
    CHECK(strstr(text, "64 bits"));
}

/* Checks a dict with more keys than are searched one by one. Some of its keys are numbers that are
 * equal although their types differ. */
static void test_large_dict(void)
{
    char text[600];
    const char *source = "{% set ns = namespace(d={}) %}{% for i in range(300) %}"
                         "{% set ns.d = dict(ns.d, **{'k' ~ i: i}) %}{% endfor %}"
                         "{{ ns.d | length }} {{ ns.d.k299 }} {{ ns.d.k300 is defined }} "
                         "{{ dict(ns.d, k7=1).k7 }} {{ (ns.d | list)[5] }}";
    CHECK(render(source, "{}", text, sizeof text) == ERR_NONE);
    CHECK_STR(text, "300 299 False 1 k5");
}

int main(void)
{
    RUN(test_golden);
    RUN(test_tables);
    RUN(test_refused);
    RUN(test_limits);
    RUN(test_nesting);
    RUN(test_chains);
    RUN(test_source_size);
    RUN(test_variables);
    RUN(test_large_dict);
    return test_done("template");
}
