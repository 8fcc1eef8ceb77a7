/* test_api_fields: compares the fields of the job spec with those of the previous version. A field
 * of the previous version is always sent. The row of every other field must have the ABI since
 * which the field exists. tests/previous_fields.sh writes the list of the previous version's
 * fields. The test must be run in the root of the tree.
 * tests: needs previous previous.fields */
#include <math.h>
#include <stdarg.h>
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/rank.h"
#include "api/wire.h"
#include "tests/lib/test.h"

enum { LISTED = 512, WORDS = 32, TEXT = 512 };

static const char *const types[] = {
    [FIELD_INT] = "int",   [FIELD_INT32] = "int", [FIELD_DOUBLE] = "real",
    [FIELD_BOOL] = "bool", [FIELD_ENUM] = "enum", [FIELD_STRING] = "text",
};

static const struct table {
    const char *name;
    const struct field *fields;
} tables[] = {{"spec", spec_fields}, {"source", source_fields}, {"stage", stage_fields}};

/* Fields of the list whose default has changed, each with the WIRE_ABI with which the default
 * changed. */
static const struct {
    const char *path;
    uint32_t abi;
} changed[] = {{"parallel.tls", 7}};

static struct listed {
    char table[16], path[64], type[8], fallback[32], words[160];
} listed[LISTED];
static int n_listed;
static struct {
    char version[16], commit[64];
    unsigned wire, rank;
} before;

static void list_read(void)
{
    FILE *f = fopen("tests/previous.fields", "r");
    char line[TEXT];
    CHECK(f != NULL);
    if (!f) return;
    CHECK(fscanf(f, "version %15s commit %63s wire %u rank %u ", before.version, before.commit,
                 &before.wire, &before.rank) == 4);
    while (n_listed < LISTED && fgets(line, sizeof line, f)) {
        struct listed *l = &listed[n_listed++];
        const int n = sscanf(line, "%15s %63s %7s %31s %159s", l->table, l->path, l->type,
                             l->fallback, l->words);
        CHECK_MSG(n == (strcmp(l->type, "enum") ? 4 : 5), "%s", line);
    }
    fclose(f);
    CHECK(n_listed > 100 && n_listed < LISTED);
}

static const struct listed *list_find(const char *table, const char *path)
{
    for (int i = 0; i < n_listed; i++)
        if (!strcmp(listed[i].table, table) && !strcmp(listed[i].path, path)) return &listed[i];
    return NULL;
}

/* ---- one row: a check returns NULL or a sentence --------------------------------------------- */

static char said[TEXT];

static const char *say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(said, sizeof said, fmt, args);
    va_end(args);
    return said;
}

static bool list_has_word(const struct listed *l, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = l->words; *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, word, n) && (at[n] == ',' || !at[n])) return true;
    return false;
}

static bool is_new(uint32_t since)
{
    return since > WIRE_ABI_BEFORE && since <= WIRE_ABI;
}

static const struct field_word *newer(const struct field *f, const char *word)
{
    for (const struct field_word *w = f->newer; w && w->word; w++)
        if (!strcmp(w->word, word)) return w;
    return NULL;
}

static const char *word_wrong(const struct field *f, const struct listed *l, const char *word)
{
    const struct field_word *w = newer(f, word);
    char text[128];
    if (list_has_word(l, word))
        return w ? say("%s: %s has the word %s, it always travels", f->path, before.version, word)
                 : NULL;
    if (!w || !is_new(w->since))
        return say("%s: the word %s is not in tests/previous.fields: it needs a since of %u beside "
                   "its list",
                   f->path, word, WIRE_ABI);
    snprintf(text, sizeof text, "%s \"%s\"", f->path, word);
    return strcmp(text, w->text) ? say("%s: the word %s is said as %s", f->path, word, w->text)
                                 : NULL;
}

static bool field_has_word(const struct field *f, const char *word, size_t n)
{
    for (int i = 0; f->words[i]; i++)
        if (!strncmp(f->words[i], word, n) && !f->words[i][n]) return true;
    return false;
}

static const char *words_wrong(const struct field *f, const struct listed *l)
{
    const char *why = NULL;
    for (int i = 0; !why && f->words[i]; i++) why = word_wrong(f, l, f->words[i]);
    for (const struct field_word *w = f->newer; !why && w && w->word; w++)
        if (!field_has_word(f, w->word, strlen(w->word)))
            why = say("%s: the word %s has a since and is not in the list", f->path, w->word);
    for (const char *at = l->words; !why && *at; at += strcspn(at, ","), at += *at == ',')
        if (!field_has_word(f, at, strcspn(at, ",")))
            why = say("%s: the word %.*s of %s is gone", f->path, (int)strcspn(at, ","), at,
                      before.version);
    return why;
}

static bool may_change(const char *path)
{
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++)
        if (!strcmp(changed[i].path, path)) return is_new(changed[i].abi);
    return false;
}

static const char *default_wrong(const struct field *f, const struct listed *l)
{
    char text[64];
    if (f->type == FIELD_STRING)
        snprintf(text, sizeof text, "%s", f->text && *f->text ? f->text : "-");
    else if (f->type == FIELD_ENUM)
        snprintf(text, sizeof text, "%s", f->words[(int)f->fallback]);
    else
        snprintf(text, sizeof text, "%.17g", f->fallback);
    if (!strcmp(text, l->fallback) || may_change(f->path)) return NULL;
    return say("%s: its default was %s in %s and is %s: that needs a new WIRE_ABI", f->path,
               l->fallback, before.version, text);
}

static const char *field_wrong(const char *table, const struct field *f)
{
    const struct listed *l = list_find(table, f->path);
    if (!l)
        return is_new(f->since)
                   ? NULL
                   : say("%s: the field is not in tests/previous.fields: its row needs "
                         "a since of %u",
                         f->path, WIRE_ABI);
    if (f->since) return say("%s: %s has the field, it always travels", f->path, before.version);
    if (strcmp(types[f->type], l->type))
        return say("%s: its type was %s in %s and is %s", f->path, l->type, before.version,
                   types[f->type]);
    const char *why = default_wrong(f, l);
    return why || f->type != FIELD_ENUM ? why : words_wrong(f, l);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_list(void)
{
    char commit[64] = "", version[16] = "";
    FILE *f = fopen("tests/previous", "r");
    CHECK(f && fscanf(f, "%63s %15s", commit, version) == 2);
    if (f) fclose(f);
    list_read();
    CHECK_MSG(!strcmp(commit, before.commit) && !strcmp(version, before.version),
              "tests/previous.fields is of %s: write it with tests/previous_fields.sh",
              before.version);
    CHECK(before.wire == WIRE_ABI_BEFORE && WIRE_ABI == WIRE_ABI_BEFORE + 1);
    CHECK(before.rank == RANK_ABI);
}

static void test_fields(void)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct field *f = tables[t].fields; f->path; f++) {
            const char *why = field_wrong(tables[t].name, f);
            CHECK_MSG(!why, "%s", why ? why : "");
        }
}

static void test_none_is_gone(void)
{
    for (int i = 0; i < n_listed; i++)
        for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
            const struct field *f = tables[t].fields;
            if (strcmp(tables[t].name, listed[i].table)) continue;
            while (f->path && strcmp(f->path, listed[i].path)) f++;
            CHECK_MSG(f->path, "the field %s of %s is gone", listed[i].path, before.version);
        }
}

/* Checks one row of each kind that must be refused, and how the text of its error begins. */
static void test_refuses(void)
{
    static const char *const words[] = {"auto", "contiguous", "zigzag", "spiral", NULL};
    static const char *const fewer[] = {"auto", "contiguous", NULL};
    static const struct field_word bare[] = {{"spiral", 0, "parallel.layout \"spiral\""}, {NULL}};
    static const struct field_word ahead[] = {{"spiral", WIRE_ABI + 1, ""}, {NULL}};
    static const struct field_word good[] = {{"spiral", WIRE_ABI, "parallel.layout \"spiral\""},
                                             {NULL}};
    static const struct field_word known[] = {
        {"spiral", WIRE_ABI, "parallel.layout \"spiral\""}, {"zigzag", WIRE_ABI, ""}, {NULL}};
    static const struct field_word stray[] = {
        {"spiral", WIRE_ABI, "parallel.layout \"spiral\""}, {"zigzga", WIRE_ABI, ""}, {NULL}};
    const struct {
        struct field f;
        const char *why;
    } rows[] = {
        {{.path = "data.colour", .type = FIELD_INT}, "data.colour: the field is not in"},
        {{.path = "data.colour", .type = FIELD_INT, .since = WIRE_ABI_BEFORE},
         "data.colour: the field is not in"},
        {{.path = "data.colour", .type = FIELD_INT, .since = WIRE_ABI}, NULL},
        {{.path = "data.seq_len", .type = FIELD_INT, .since = WIRE_ABI}, "data.seq_len: 0.2.0 has"},
        {{.path = "data.seq_len", .type = FIELD_DOUBLE}, "data.seq_len: its type was int"},
        {{.path = "priority", .type = FIELD_INT32, .fallback = 49}, "priority: its default was 50"},
        {{.path = "parallel.layout", .type = FIELD_ENUM, .words = words},
         "parallel.layout: the word spiral is not in"},
        {{.path = "parallel.layout", .type = FIELD_ENUM, .words = words, .newer = bare},
         "parallel.layout: the word spiral is not in"},
        {{.path = "parallel.layout", .type = FIELD_ENUM, .words = words, .newer = ahead},
         "parallel.layout: the word spiral is not in"},
        {{.path = "parallel.layout", .type = FIELD_ENUM, .words = words, .newer = good}, NULL},
        {{.path = "parallel.layout", .type = FIELD_ENUM, .words = words, .newer = known},
         "parallel.layout: 0.2.0 has the word zigzag"},
        {{.path = "parallel.layout", .type = FIELD_ENUM, .words = words, .newer = stray},
         "parallel.layout: the word zigzga has a since and is not in the list"},
        {{.path = "parallel.layout", .type = FIELD_ENUM, .words = fewer},
         "parallel.layout: the word zigzag of 0.2.0 is gone"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = field_wrong("spec", &rows[i].f), *want = rows[i].why;
        CHECK_MSG(!want == !why && (!want || !strncmp(why, want, strlen(want))), "row %zu: %s", i,
                  why ? why : "it passes");
    }
}

/* Checks a job that uses a newer word. It must not be sent to a peer of the previous ABI, whatever
 * its other fields are. */
static void test_words_are_needs(void)
{
    static struct job_spec s;
    int n = 0;
    for (const struct field *f = spec_fields; f->path; f++)
        for (const struct field_word *w = f->newer; w && w->word; w++, n++) {
            int i = 0;
            while (strcmp(f->words[i], w->word)) i++;
            spec_defaults(&s);
            CHECK(!spec_needs(&s, WIRE_ABI_BEFORE));
            *(int32_t *)((char *)&s + f->offset) = i;
            const char *needs = spec_needs(&s, WIRE_ABI_BEFORE);
            CHECK_MSG(needs && !strcmp(needs, w->text), "%s", needs ? needs : "it needs nothing");
            CHECK(!spec_needs(&s, w->since));
        }
    CHECK(n >= 2); /* iddpm, usp */
}

int main(void)
{
    RUN(test_list);
    RUN(test_fields);
    RUN(test_none_is_gone);
    RUN(test_refuses);
    RUN(test_words_are_needs);
    return test_done("fields");
}
