/* test_grammar.c: draws schemas, lets a vocabulary of bytes or of longer tokens choose texts at
 * random under their masks, and checks each complete text with a slow validator of its own, which
 * reads schema and text again. Checks the exact texts of some schemas, and the refusals. */
#include <math.h>
#include <stdarg.h>

#include "api/core/jread.h"
#include "tests/lib/test.h"
#include "worker/infer/vocabulary.h"

static uint64_t seed = 1;

static uint32_t draw(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

/* ---- the validator --------------------------------------------------------------------------- */

static const char *root; /* the schema with $defs */

static enum jtok begin(struct jread *j, const char *at)
{
    jread_init(j, at, strlen(at));
    return jread_next(j);
}

/* Returns the value of a member of the object at `at`, or NULL. */
static const char *member(const char *at, const char *key)
{
    struct jread j;
    if (begin(&j, at) != J_OBJECT) return NULL;
    while (jread_next(&j) == J_KEY) {
        if (jread_is(&j, key)) {
            while (*j.p == ' ' || *j.p == '\n') j.p++;
            return j.p;
        }
        jread_skip(&j);
    }
    return NULL;
}

/* Compares values, which are written alike but for white space. */
static bool same(const char *x, const char *y)
{
    struct jread a, b;
    enum jtok s = begin(&a, x), t = begin(&b, y);
    for (;; s = jread_next(&a), t = jread_next(&b)) {
        if (s != t) return false;
        if ((s == J_STRING || s == J_KEY || s == J_NUMBER) &&
            (a.len != b.len || memcmp(a.text, b.text, a.len)))
            return false;
        if (!a.depth && s != J_KEY) return true;
    }
}

static bool is_type(enum jtok t, const struct jread *doc, const char *name)
{
    static const char *const names[] = {
        [J_OBJECT] = "object", [J_ARRAY] = "array",   [J_STRING] = "string", [J_NUMBER] = "number",
        [J_TRUE] = "boolean",  [J_FALSE] = "boolean", [J_NULL] = "null"};
    const double v = t == J_NUMBER ? strtod(doc->text, NULL) : 0;
    if (t == J_NUMBER && !strcmp(name, "integer")) return v == floor(v);
    return names[t] && !strcmp(names[t], name);
}

static bool fits(const char *schema, const char *doc);

static bool fits_any(const char *list, const char *doc, bool whole)
{
    struct jread j;
    begin(&j, list);
    for (;;) {
        const char *at = j.p + (*j.p == ',');
        while (*at == ' ') at++;
        const enum jtok t = jread_next(&j);
        if (t == J_ARRAY_END) return false;
        if (whole ? same(at, doc) : fits(at, doc)) return true;
        jread_skip(&j);
    }
}

static bool fits_type(const char *type, const char *doc)
{
    struct jread j, d;
    char name[16];
    const enum jtok t = begin(&d, doc);
    if (begin(&j, type) == J_STRING)
        return !jread_copy(&j, name, sizeof name) && is_type(t, &d, name);
    while (jread_next(&j) == J_STRING)
        if (!jread_copy(&j, name, sizeof name) && is_type(t, &d, name)) return true;
    return false;
}

static bool fits_array(const char *schema, const char *doc)
{
    const char *items = member(schema, "items"), *min = member(schema, "minItems"),
               *max = member(schema, "maxItems");
    struct jread j;
    int n = 0;
    begin(&j, doc);
    for (;; n++) {
        const char *at = j.p + (*j.p == ',');
        while (*at == ' ' || *at == '\n') at++;
        if (jread_next(&j) == J_ARRAY_END) break;
        if (items && !fits(items, at)) return false;
        jread_skip(&j);
    }
    return n >= (min ? atoi(min) : 0) && (!max || n <= atoi(max));
}

static bool fits_object(const char *schema, const char *doc)
{
    const char *properties = member(schema, "properties"), *required = member(schema, "required"),
               *others = member(schema, "additionalProperties");
    struct jread j;
    char name[512];
    begin(&j, doc);
    while (jread_next(&j) == J_KEY) {
        const char *of = jread_copy(&j, name, sizeof name) || !properties
                             ? NULL
                             : member(properties, name);
        const char *at = j.p;
        while (*at == ' ' || *at == '\n') at++;
        if (of ? !fits(of, at) : others && !fits(others, at)) return false;
        jread_skip(&j);
    }
    if (!required) return true;
    begin(&j, required);
    while (jread_next(&j) == J_STRING)
        if (jread_copy(&j, name, sizeof name) || !member(doc, name)) return false;
    return true;
}

/* Checks the number of characters of a string. */
static bool fits_length(const char *schema, const char *doc)
{
    const char *min = member(schema, "minLength"), *max = member(schema, "maxLength");
    struct jread j;
    int64_t n = 0, most = 0;
    if (begin(&j, doc) != J_STRING) return true;
    char *s = malloc(j.len + 1);
    for (size_t i = jread_unescape(&j, s); i-- > 0;) n += (s[i] & 0xc0) != 0x80;
    free(s);
    if (min && (begin(&j, min), jread_int(&j, &most) || n < most)) return false;
    return !max || (begin(&j, max), !jread_int(&j, &most) && n <= most);
}

static bool fits(const char *schema, const char *doc)
{
    struct jread j;
    char name[64];
    if (*schema != '{') return !strncmp(schema, "true", 4);
    const char *ref = member(schema, "$ref"), *any = member(schema, "anyOf"),
               *values = member(schema, "enum"), *one = member(schema, "const"),
               *type = member(schema, "type");
    if (ref) {
        begin(&j, ref);
        jread_copy(&j, name, sizeof name);
        return fits(member(member(root, "$defs"), name + strlen("#/$defs/")), doc);
    }
    if (any && !fits_any(any, doc, false)) return false;
    if (values && !fits_any(values, doc, true)) return false;
    if (one && !same(one, doc)) return false;
    if (type && !fits_type(type, doc)) return false;
    if (!fits_length(schema, doc)) return false;
    if (*doc == '{' && !fits_object(schema, doc)) return false;
    return *doc != '[' || fits_array(schema, doc);
}

static bool is_json(const char *text)
{
    struct jread j;
    jread_init(&j, text, strlen(text));
    while (jread_next(&j) > J_END) continue;
    return j.err.code == ERR_NONE;
}

/* ---- drawn schemas --------------------------------------------------------------------------- */

static char schema[1 << 16];
static size_t schema_n;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
    va_list a;
    va_start(a, format);
    schema_n += (size_t)vsnprintf(schema + schema_n, sizeof schema - schema_n, format, a);
    va_end(a);
}

static void put_schema(int depth, int defs, bool object);

static void put_object(int depth, int defs)
{
    static const char *const names[] = {"a", "ab", "abc", "b", "\xc3\xa9", "", "name"};
    uint32_t has = draw(128);
    bool comma = false;
    put("{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 7; i++) {
        if (!(has >> i & 1) || draw(2)) {
            has &= ~(1u << i);
            continue;
        }
        put("%s\"%s\":", comma ? "," : "", names[i]);
        put_schema(depth - 1, defs, false);
        comma = true;
    }
    put("},\"required\":[");
    comma = false;
    for (int i = 0; i < 7; i++) {
        if (!(has >> i & 1) || draw(2)) continue;
        put("%s\"%s\"", comma ? "," : "", names[i]);
        comma = true;
    }
    put("]");
    const uint32_t others = draw(4);
    if (others) put(",\"additionalProperties\":");
    if (others == 3) put_schema(depth - 1, defs, true);
    if (others && others < 3) put("%s", others == 1 ? "false" : "true");
    put("}");
}

static void put_schema(int depth, int defs, bool object)
{
    static const char *const plain[] = {"{\"type\":\"string\"}",
                                        "{\"type\":\"integer\"}",
                                        "{\"type\":\"number\"}",
                                        "{\"type\":\"boolean\"}",
                                        "{\"type\":\"null\"}",
                                        "{\"type\":[\"integer\",\"null\"]}",
                                        "{\"enum\":[1,12,\"a\",\"ab\",null,{\"k\":[1]},1.5]}",
                                        "{\"type\":[\"integer\",\"boolean\",\"array\"],\"enum\":"
                                        "[[{}],2.0,true,{\"k\":[1]},null,\"a\",1.5,25e-1,1e1]}",
                                        "{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}",
                                        "{\"const\":\"x y\"}",
                                        "{}",
                                        "true"};
    const uint32_t kind = depth <= 0 ? 0 : draw(8);
    if (kind < 3)
        put("%s", plain[draw(object ? 11 : 12)]);
    else if (kind == 3 && defs)
        put("{\"$ref\":\"#/$defs/d%d\",\"title\":\"t\"}", (int)draw((uint32_t)defs));
    else if (kind == 4) {
        put("{\"anyOf\":[");
        for (uint32_t i = draw(3), first = i;; i--) {
            if (i != first) put(",");
            put_schema(depth - 1, defs, true);
            if (!i) break;
        }
        put("]}");
    } else if (kind == 5) {
        const uint32_t min = draw(3);
        put("{\"type\":\"array\",\"items\":");
        put_schema(depth - 1, defs, false);
        put(",\"minItems\":%d", (int)min);
        if (draw(2)) put(",\"maxItems\":%d", (int)(min + draw(3)));
        put("}");
    } else {
        put_object(depth, defs);
    }
}

static void draw_schema(void)
{
    const int defs = (int)draw(3);
    schema_n = 0;
    put("{\"$defs\":{");
    for (int i = 0; i < defs; i++) {
        put("%s\"d%d\":", i ? "," : "", i);
        put_schema(2, i, true);
    }
    put("},\"anyOf\":[");
    put_schema(4, defs, true);
    put("]}");
    root = schema;
}

/* ---- texts ----------------------------------------------------------------------------------- */

#define V 300
static struct vocabulary words;
static struct grammar_state state;

/* Chooses tokens until the text may end and a draw ends it. Returns false if the text is too
 * long. */
static bool choose(const struct grammar *g, char *text, size_t size)
{
    uint64_t mask[(V + 63) / 64];
    struct err e = {0};
    size_t n = 0;
    grammar_begin(g, &state);
    for (;;) {
        int ids[V], n_ids = 0;
        vocabulary_mask(&words, g, &state, mask);
        for (int i = 0; i < V; i++)
            if (mask[i / 64] >> i % 64 & 1) ids[n_ids++] = i;
        const bool complete = grammar_complete(g, &state);
        text[n] = 0;
        CHECK_MSG(n_ids || complete, "nothing follows %s in %s", text, schema);
        CHECK(!grammar_ended(&state) || (complete && !n_ids));
        if (!n_ids || (complete && !draw(3))) return complete;
        int id = ids[draw((uint32_t)n_ids)];
        for (int i = 0; i < n_ids && draw(3); i++) /* so that strings and lists end */
            if (strchr("\"]}", ids[i])) id = ids[i];
        if (n + 2 > size) return false;
        CHECK(!vocabulary_take(&words, NULL, g, &state, id, &e));
        text[n++] = (char)id;
    }
}

static void test_drawn(void)
{
    static char text[4096];
    struct err e = {0};
    int n_texts = 0, n_refused = 0;
    const int n = small_tests() ? 150 : 1500;
    CHECK_MSG(!vocabulary_prepare(&words, NULL, V, &e), "%s", e.text);
    for (int i = 0; i < n; i++) {
        draw_schema();
        struct grammar *g = grammar_of_schema(schema, (int64_t)schema_n, &e);
        if (!g) {
            /* a drawn schema may only have too many ways */
            CHECK_MSG(e.code == ERR_TOO_LARGE && strstr(e.text, "anyOf"), "%s: %s", schema, e.text);
            n_refused++;
            continue;
        }
        for (int k = 0; k < 6; k++) {
            if (!choose(g, text, sizeof text)) continue;
            CHECK_MSG(is_json(text) && fits(schema, text), "%s in %s", text, schema);
            n_texts++;
        }
        grammar_destroy(g);
    }
    CHECK_MSG(n_texts > 5 * (n - n_refused) && n_refused < n / 5, "%d texts of %d, %d refused",
              n_texts, n, n_refused);
    vocabulary_fini(&words);
}

/* ---- exact texts ----------------------------------------------------------------------------- */

/* Tells how far a grammar takes a text: 0 not, 1 with more to come, 2 as a whole text. */
static int takes(const struct grammar *g, const char *text)
{
    static struct grammar_state next;
    grammar_begin(g, &state);
    for (; *text; text++) {
        if (!grammar_step(g, &state, (unsigned char)*text, &next)) return 0;
        state = next;
    }
    return grammar_complete(g, &state) ? 2 : 1;
}

#define SPACE32 "                                "
static const struct {
    const char *schema; /* NULL: any object */
    const char *text;
    int taken;
} texts[] = {
    {NULL, "{}", 2},
    {NULL, "{\"a\": [1, -0.5e+10, null]}", 2},
    {NULL, "[]", 0},
    {NULL, " {}", 0},
    {NULL, "{\n  \"a\": {\n    \"b\": [\n    ]\n  }\n}", 2},
    {NULL, "{} ", 0},
    {NULL, "{\n\n", 0},
    {NULL, "{ \n", 0},
    {NULL, "{" SPACE32 "}", 2},
    {NULL, "{" SPACE32 " ", 0},
    {NULL, "{\t", 0},
    {NULL, "{\"a\" :", 0},
    {NULL, "{\"a\":1 ,", 0},
    {NULL, "{\"a\":1, ", 1},
    {NULL, "{\"a\":1,}", 0},
    {NULL, "{\"a\":01", 0},
    {NULL, "{\"a\":1.}", 0},
    {NULL, "{\"a\":-}", 0},
    {NULL, "{\"a\":+1", 0},
    {NULL, "{\"a\":123456789012345678", 1},
    {NULL, "{\"a\":1234567890123456789", 0},
    {NULL, "{\"a\":1e99}", 2},
    {NULL, "{\"a\":1e999", 0},
    {NULL, "{\"a\":\"\\u00e9\\n\"}", 2},
    {NULL, "{\"a\":\"\\ud8", 0},
    {NULL, "{\"a\":\"\\u0000", 0},
    {NULL, "{\"a\":\"\n", 0},
    {NULL, "{\"a\":\"\xc3\xa9\"}", 2},
    {NULL, "{\"a\":\"\xc3\"", 0},
    {NULL, "{\"a\":\"\xe0\x80", 0},
    {NULL, "{\"a\":\"\xed\xa0", 0},
    {NULL, "{\"a\":\"\xf4\x90", 0},
    {NULL, "{\"\\", 0},
    {NULL, "{\"a\":tru", 1},
    {NULL, "{\"a\":trua", 0},
    {"{\"type\":\"integer\"}", "12", 2},
    {"{\"type\":\"integer\"}", "1.", 0},
    {"{\"type\":\"integer\"}", "-", 1},
    {"{\"enum\":[1,12,13]}", "1", 2},
    {"{\"enum\":[1,12,13]}", "13", 2},
    {"{\"enum\":[1,12,13]}", "14", 0},
    {"{\"minLength\":1,\"maxLength\":2}", "\"\"", 0},
    {"{\"minLength\":1,\"maxLength\":2}", "\"\xf0\x9f\x98\x80\\n\"", 2},
    {"{\"minLength\":1,\"maxLength\":2}", "\"\\u00e9\xc3\xa9", 1},
    {"{\"minLength\":1,\"maxLength\":2}", "\"aba", 0},
    {"{\"minLength\":1,\"maxLength\":2}", "\"ab\\", 0},
    {"{\"type\":[\"string\",\"null\"],\"maxLength\":0}", "\"\"", 2},
    {"{\"minLength\":2}", "\"abc\"", 2},
    {"{\"minLength\":2}", "\"a\"", 0},
    {"{\"type\":\"integer\",\"const\":2.0}", "2.0", 2},
    {"{\"type\":\"integer\",\"enum\":[1e-1,120e-2,1.50e1,0.0e-9,7]}", "1.50e1", 2},
    {"{\"type\":\"integer\",\"enum\":[1e-1,120e-2,1.50e1,0.0e-9,7]}", "0.0e-9", 2},
    {"{\"type\":\"integer\",\"enum\":[1e-1,120e-2,1.50e1,0.0e-9,7]}", "1e", 0},
    {"{\"type\":\"integer\",\"enum\":[1e-1,120e-2,1.50e1,0.0e-9,7]}", "12", 0},
    {"{\"type\":\"boolean\",\"enum\":[null,true]}", "true", 2},
    {"{\"type\":\"boolean\",\"enum\":[null,true]}", "n", 0},
    {"{\"type\":[\"string\",\"null\"],\"enum\":[[\"b\",{}],\"a\",null,1]}", "null", 2},
    {"{\"type\":[\"string\",\"null\"],\"enum\":[[\"b\",{}],\"a\",null,1]}", "[", 0},
    {"{\"enum\":[\"a\",2,null,true]}", "null", 2},
    {"{\"const\":\"a\\\"\\u00e9\"}", "\"a\\\"\xc3\xa9\"", 2},
    {"{\"const\":[1, {\"a\" : null}]}", "[1,{\"a\":null}]", 2},
    {"{\"type\":[\"null\",\"boolean\"]}", "false", 2},
    {"{\"type\":\"boolean\"}", "null", 0},
    {"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"b\":1,\"a\":2}", 0},
    {"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"b\":1}", 2},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"a\"]}", "{\"b", 0},
    {"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"c", 0},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":true}",
     "{\"b\":1,\"c\":2,\"d\":3}", 2},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":true}", "{\"b\":1,\"a\"", 0},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":true}", "{\"b\":1,\"ab\":1}", 2},
    {"{\"required\":[\"z\"]}", "{\"z\":[]}", 2},
    {"{\"required\":[\"z\"]}", "{}", 0},
    {"{\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}", "[]", 0},
    {"{\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}", "[null, null]", 2},
    {"{\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}", "[null,null,", 0},
    {"{\"maxItems\":0}", "[ ]", 2},
    {"{\"maxItems\":0}", "[1", 0},
    {"{\"anyOf\":[{\"const\":\"ab\"},{\"type\":\"integer\"},{\"const\":\"ac\"}]}", "\"ac\"", 2},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"null\"}}}", "null", 2},
};

static void test_texts(void)
{
    struct err e = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *s = texts[i].schema;
        struct grammar *g = s ? grammar_of_schema(s, (int64_t)strlen(s), &e)
                              : grammar_of_object(&e);
        CHECK_MSG(g, "%s: %s", s, e.text);
        const int got = g ? takes(g, texts[i].text) : -1;
        CHECK_MSG(got == texts[i].taken, "%s, %s: %d", s ? s : "object", texts[i].text, got);
        grammar_destroy(g);
    }
}

/* Values without a schema nest to a limit, and each can then end. */
static void test_depth(void)
{
    char text[160] = "{\"a\":";
    struct err e = {0};
    struct grammar *g = grammar_of_object(&e);
    size_t n = 5;
    while (n < 120 && (text[n] = '[', text[n + 1] = 0, takes(g, text))) n++;
    CHECK_MSG(n == 5 + GRAMMAR_DEPTH - 3, "%d", (int)n);
    for (size_t i = 5; i < 5 + GRAMMAR_DEPTH - 3; i++) text[n++] = ']';
    strcpy(text + n, "}");
    CHECK_MSG(takes(g, text) == 2, "%s", text);
    grammar_destroy(g);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuses(const char *text, enum err_code code, const char *says)
{
    struct err e = {0};
    struct grammar *g = grammar_of_schema(text, (int64_t)strlen(text), &e);
    CHECK_MSG(!g && e.code == code && strstr(e.text, says), "%.200s: %d %s", text, e.code, e.text);
    grammar_destroy(g);
}

static void test_refused(void)
{
    static const struct {
        const char *schema, *says;
        enum err_code code;
    } rows[] = {
        {"{\"type\":\"string\",\"pattern\":\"a\"}", "schema: \"pattern\" is not", ERR_UNSUPPORTED},
        {"{\"properties\":{\"a\":{\"format\":\"date\"}}}", "schema.properties.a: \"format\"",
         ERR_UNSUPPORTED},
        {"{\"oneOf\":[]}", "\"oneOf\"", ERR_UNSUPPORTED},
        {"{\"allOf\":[]}", "\"allOf\"", ERR_UNSUPPORTED},
        {"{\"minLength\":2,\"maxLength\":1}", "no string fits", ERR_INVALID},
        {"{\"type\":\"null\",\"minLength\":2}", "minLength does not belong", ERR_INVALID},
        {"{\"const\":\"a\",\"maxLength\":2}", "maxLength is not supported beside", ERR_INVALID},
        {"{\"maximum\":1}", "\"maximum\"", ERR_UNSUPPORTED},
        {"{\"anyOf\":[]}", "no value fits", ERR_INVALID},
        {"{\"anyOf\":[1]}", "a list of schemas", ERR_INVALID},
        {"{\"anyOf\":[{}],\"type\":\"null\"}", "beside anyOf", ERR_INVALID},
        {"{\"$ref\":\"#/$defs/a\"}", "names nothing", ERR_INVALID},
        {"{\"$ref\":\"http://x\"}", "#/$defs/NAME", ERR_INVALID},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"items\":{\"$ref\":\"#/$defs/a\"}}}}",
         "recursion", ERR_INVALID},
        {"{\"items\":{\"$defs\":{}}}", "outermost", ERR_INVALID},
        {"{\"type\":\"text\"}", "type must be", ERR_INVALID},
        {"{\"type\":[]}", "empty list", ERR_INVALID},
        {"{\"type\":\"string\",\"items\":{}}", "items does not belong", ERR_INVALID},
        {"{\"type\":\"string\",\"enum\":[1,[\"a\"]]}", "schema: enum has no value that type allows",
         ERR_INVALID},
        {"{\"properties\":{\"a\":{\"type\":\"integer\",\"const\":2.5}}}",
         "schema.properties.a: const has no value that type allows", ERR_INVALID},
        {"{\"enum\":[]}", "no value fits", ERR_INVALID},
        {"{\"enum\":[1],\"const\":1}", "says it twice", ERR_INVALID},
        {"{\"minItems\":2,\"maxItems\":1}", "no list fits", ERR_INVALID},
        {"{\"minItems\":-1}", "minItems must be", ERR_INVALID},
        {"{\"items\":false}", "must be an object", ERR_INVALID},
        {"{\"properties\":{},\"required\":[\"a\"],\"additionalProperties\":false}", "required has",
         ERR_INVALID},
        {"{\"properties\":{\"a\":{},\"a\":{}}}", "a name twice", ERR_INVALID},
        {"{\"properties\":{\"a\\\"\":{}}}", "has a quote", ERR_UNSUPPORTED},
        {"{\"type\":\"null\",\"type\":\"null\"}", "type occurs twice", ERR_INVALID},
        {"[]", "must be an object", ERR_INVALID},
        {"{\"type\":\"null\"", "schema: ", ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuses(rows[i].schema, rows[i].code, rows[i].says);
}

/* Schemas that would grow without bounds are refused or compiled once. */
static void test_hostile(void)
{
    static char text[GRAMMAR_TEXT + 64];
    struct err e = {0};
    for (int kind = 0; kind < 2; kind++) { /* each name of $defs has the next one twice */
        size_t n = (size_t)sprintf(text, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
        for (int i = 0; i < 25; i++)
            n += (size_t)sprintf(
                text + n,
                kind ? "\"%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]},"
                     : "\"%d\":{\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
                       "%d\"},\"b\":{\"$ref\":\"#/$defs/%d\"}}},",
                i, i + 1, i + 1);
        sprintf(text + n, "\"25\":{\"type\":\"null\"}}}");
        if (kind) {
            refuses(text, ERR_TOO_LARGE, "anyOf");
            continue;
        }
        struct grammar *g = grammar_of_schema(text, (int64_t)strlen(text), &e);
        CHECK_MSG(g, "%s", e.text);
        grammar_destroy(g);
    }
    size_t n = (size_t)sprintf(text, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 70; i++)
        n += (size_t)sprintf(text + n, "\"%d\":{\"items\":{\"$ref\":\"#/$defs/%d\"}},", i, i + 1);
    sprintf(text + n, "\"70\":{}}}");
    refuses(text, ERR_TOO_LARGE, "nested too deeply");
    n = (size_t)sprintf(text, "{\"properties\":{\"0\":{}");
    for (int i = 1; i < 300; i++) n += (size_t)sprintf(text + n, ",\"%d\":{}", i);
    strcpy(text + n, "}}");
    refuses(text, ERR_TOO_LARGE, "256 properties");
    n = (size_t)sprintf(text, "{\"enum\":[0");
    for (int i = 1; i < 5000; i++) n += (size_t)sprintf(text + n, ",%d", i);
    strcpy(text + n, "]}");
    refuses(text, ERR_TOO_LARGE, "too large");
    memset(text, ' ', sizeof text - 1);
    memcpy(text, "{}", 2);
    refuses(text, ERR_TOO_LARGE, "bytes: at most");
}

/* ---- bounds of the work of a byte ------------------------------------------------------------ */

/* Writes a schema of `depth` lists around an anyOf of GRAMMAR_WAYS lists. */
static const char *put_nested(int depth)
{
    schema_n = 0;
    put("{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < depth; i++) put("\"%d\":{\"items\":{\"$ref\":\"#/$defs/%d\"}},", i, i + 1);
    put("\"%d\":{\"anyOf\":[", depth);
    for (int i = 0; i < GRAMMAR_WAYS; i++)
        put("%s{\"maxItems\":%d,\"items\":{\"type\":\"string\"}}", i ? "," : "", 9 + i);
    put("]}}}");
    return schema;
}

static int32_t frames(void)
{
    int32_t n = 0;
    for (int32_t i = 0; i < state.n; i++) n += state.way[i].depth;
    return n;
}

/* The frames of all ways together are bounded: by a refusal if the schema asks for them, and else
 * by the text. */
static void test_frames(void)
{
    static const char lists[] = "[[[[[[[[[", closed[] = "[[[[[[[]]]]]]]";
    const int deepest = GRAMMAR_FRAMES / GRAMMAR_WAYS - 2;
    struct err e = {0};
    const char *text = put_nested(deepest);
    struct grammar *g = grammar_of_schema(text, (int64_t)schema_n, &e);
    CHECK_MSG(g && takes(g, lists + 8 - deepest) == 1, "%s", e.text);
    CHECK(state.n == GRAMMAR_WAYS && frames() == GRAMMAR_FRAMES);
    grammar_destroy(g);
    refuses(put_nested(deepest + 1), ERR_TOO_LARGE, "144 deep in sum, at most 128");
    refuses(put_nested(29), ERR_TOO_LARGE, "in sum");
    schema_n = 0;
    put("{\"anyOf\":[");
    for (int i = 0; i < GRAMMAR_WAYS; i++) put("%s{\"maxItems\":%d}", i ? "," : "", 9 + i);
    put("]}");
    g = grammar_of_schema(schema, (int64_t)schema_n, &e);
    CHECK_MSG(g && !takes(g, lists), "%s", e.text);
    CHECK_MSG(frames() == GRAMMAR_FRAMES, "%d frames", frames());
    CHECK(takes(g, closed) == 2 && takes(g, "[[[[[[[1,\"a\"") == 1);
    grammar_destroy(g);
}

/* A request has room for its most tools with parameters of each type. */
static void test_tools(void)
{
    static const char parameters[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":"
        "\"integer\"},\"c\":{\"type\":\"boolean\"},\"d\":{\"type\":\"array\",\"items\":{\"type\":"
        "\"number\"}},\"e\":{\"type\":\"object\"}},\"required\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}";
    static struct grammar_tool tools[128];
    static char names[128][8];
    struct err e = {0};
    for (int i = 0; i < 128; i++)
        tools[i] = (struct grammar_tool){names[i], parameters, sprintf(names[i], "tool%d", i),
                                         (int64_t)sizeof parameters - 1};
    struct grammar *g = grammar_of_calls(tools, 128, &e);
    CHECK_MSG(g, "%s", e.text);
    grammar_destroy(g);
}

/* ---- bytes without tokens -------------------------------------------------------------------- */

static void covers(const char *text, const char *says)
{
    struct err e = {0};
    struct grammar *g = grammar_of_schema(text, (int64_t)strlen(text), &e);
    const int rc = g ? vocabulary_covers(&words, g, &e) : -1;
    CHECK_MSG((rc == 0) == (says == NULL), "%s: %s", text, e.text);
    CHECK_MSG(!says || (e.code == ERR_UNSUPPORTED && strstr(e.text, says)), "%s: %s", text, e.text);
    grammar_destroy(g);
}

/* A vocabulary that lacks bytes refuses the grammars that need them. A vocabulary that cannot be
 * made is not made again. */
static void test_bytes(void)
{
    struct err e = {0};
    CHECK(!vocabulary_prepare(&words, NULL, 0xc0, &e));
    covers("{\"properties\":{\"a\":{\"const\":\"x\\n\\u007f\"}}}", NULL);
    covers("{\"const\":\"\\u00e9\"}", "0xc3");
    covers("{\"enum\":[1,\"\\ud83d\\ude00\"]}", "0xf0");
    covers("{\"properties\":{\"\\u00e9\":{}}}", "0xc3");
    covers("{\"required\":[\"\\u00e9\"]}", "0xc3");
    covers("{\"properties\":{\"a\":{\"type\":\"string\",\"description\":\"\\u00e9\"}}}", NULL);
    vocabulary_fini(&words);
    CHECK(!vocabulary_prepare(&words, NULL, 0x7f, &e));
    covers("{\"const\":\"\\u007f\"}", "0x7f");
    vocabulary_fini(&words);
    for (int64_t n = 100; n <= V; n += V - 100) {
        CHECK(vocabulary_prepare(&words, NULL, n, &e) && e.code == ERR_UNSUPPORTED);
        CHECK_MSG(strstr(e.text, "\"d\" alone"), "%s", e.text);
        e = (struct err){0};
    }
    vocabulary_fini(&words);
    CHECK(!vocabulary_prepare(&words, NULL, 0xd0, &e));
    covers("{\"const\":\"\\u00e9\"}", NULL);
    vocabulary_fini(&words);
}

/* A character is covered by a token of its own if its bytes have none. */
static void test_characters(void)
{
    struct err e = {0};
    char json[4096];
    int n = sprintf(json, "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
                          "\"decoder\":{\"type\":\"Fuse\"},\"post_processor\":null,"
                          "\"model\":{\"type\":\"BPE\","
                          "\"merges\":[],\"vocab\":{\"\xc3\xa9\":0");
    for (int c = ' '; c < 0x7f; c++) n += sprintf(json + n, ",\"\\u%04x\":%d", c, c - 31);
    strcpy(json + n, "}}}");
    struct tokenizer *t = tokenizer_open_text(json, strlen(json), &e);
    CHECK_MSG(t && !vocabulary_prepare(&words, t, V, &e), "%s", e.text);
    covers("{\"const\":\"\\u00e9\"}", NULL);
    covers("{\"const\":\"\\u00e8\"}", "0xc3");
    covers("{\"const\":\"\\u007f\"}", "0x7f");
    vocabulary_fini(&words);
    tokenizer_destroy(t);
}

/* Opens a tokenizer with a token for each character of ASCII that can be printed, and with tokens
 * of up to 6 characters. */
static struct tokenizer *open_words(void)
{
    static const char *const many[] = {"ab",    "abc",      "abcd",      "abcde", "abcdef",
                                       "x y",   "\\u00e9a", "a\\u00e9b", "b\\\"", "\\\",\\\"",
                                       "\\\\n", "a\\\"}",   "\\u20ac",   "true",  "12"};
    struct err e = {0};
    char json[4096];
    int n = sprintf(json, "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
                          "\"decoder\":{\"type\":\"Fuse\"},\"post_processor\":null,"
                          "\"model\":{\"type\":\"BPE\","
                          "\"merges\":[],\"vocab\":{\"\xc3\xa9\":0");
    for (int c = ' '; c < 0x7f; c++) n += sprintf(json + n, ",\"\\u%04x\":%d", c, c - 31);
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        n += sprintf(json + n, ",\"%s\":%d", many[i], 96 + (int)i);
    strcpy(json + n, "}}}");
    struct tokenizer *t = tokenizer_open_text(json, strlen(json), &e);
    CHECK_MSG(t && !vocabulary_prepare(&words, t, V, &e), "%s", e.text);
    return t;
}

/* Tells whether the grammar takes all bytes of a token after the state. */
static bool takes_token(struct tokenizer *t, const struct grammar *g, int32_t id)
{
    static struct grammar_state at[2];
    struct text bytes = {0};
    struct err e = {0};
    bool good = id < tokenizer_size(t) && tokenizer_piece(t, id, &bytes, &e) == 0 && bytes.n > 0;
    at[0] = state;
    for (int64_t i = 0; good && i < bytes.n; i++)
        good = grammar_step(g, &at[i % 2], (unsigned char)bytes.data[i], &at[(i + 1) % 2]);
    text_fini(&bytes);
    return good;
}

/* Compares the mask after each byte of a text with the tokens that the grammar takes. */
static void compare_masks(struct tokenizer *t, const char *text_of_schema, const char *text)
{
    uint64_t mask[(V + 63) / 64];
    struct err e = {0};
    struct grammar *g = grammar_of_schema(text_of_schema, (int64_t)strlen(text_of_schema), &e);
    CHECK_MSG(g, "%s", e.text);
    grammar_begin(g, &state);
    for (const char *at = text; g && *at; at++) {
        static struct grammar_state next;
        CHECK_MSG(grammar_step(g, &state, (unsigned char)*at, &next), "%s in %s", at, text);
        state = next;
        vocabulary_mask(&words, g, &state, mask);
        for (int32_t id = 0; id < V; id++)
            CHECK_MSG((mask[id / 64] >> id % 64 & 1) == takes_token(t, g, id),
                      "token %d before %s of %s", id, at + 1, text_of_schema);
    }
    grammar_destroy(g);
}

/* A mask has the tokens that the grammar takes, wherever a string with a largest length stands. */
static void test_lengths(void)
{
    struct tokenizer *t = open_words();
    CHECK(words.n_plain == 6);
    compare_masks(t, "{\"type\":\"string\",\"maxLength\":7}", "\"a\xc3\xa9\\nb\\u00e9 c\"");
    compare_masks(t, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":4}", "\"abc\"");
    compare_masks(t, "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"const\":\"abcdef\"}]}",
                  "\"abcdef\"");
    compare_masks(t,
                  "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"string\","
                  "\"maxLength\":5}]}",
                  "\"abcde\"");
    compare_masks(t, "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"string\"}]}",
                  "\"abcde\"");
    compare_masks(t,
                  "{\"properties\":{\"ab\":{\"type\":\"string\",\"maxLength\":3}},"
                  "\"additionalProperties\":{}}",
                  "{\"ab\":\"a\xe2\x82\xac\",\"abc\":\"abcdef\"}");
    vocabulary_fini(&words);
    tokenizer_destroy(t);
}

int main(void)
{
    RUN(test_texts);
    RUN(test_depth);
    RUN(test_refused);
    RUN(test_hostile);
    RUN(test_frames);
    RUN(test_tools);
    RUN(test_bytes);
    RUN(test_characters);
    RUN(test_lengths);
    RUN(test_drawn);
    return test_done("grammar");
}
