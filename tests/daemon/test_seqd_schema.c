/* test_seqd_schema: compares schemas of api/openapi.yaml with the tables of fields. The schemas
 * are Spec (with its model.config), Source, Stage, Hardware, Checkpoint and Event. Types, words,
 * ranges and sentences must agree. `test_seqd_schema --write` writes the lines of these schemas
 * again. For a new field, first add a line `NAME: {}` to its section. The test must be run in the
 * root of the tree.
 * tests: needs api/openapi.yaml */
#include <float.h>
#include <math.h>
#include "api/core/checkpoint.h"
#include "api/core/job.h"
#include "daemon/spec/rule.h"
#include "daemon/state/event.h"
#include "tests/lib/test.h"
#include "worker/family/config_table.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/machine.h"

#define OPENAPI "api/openapi.yaml"

enum { LINES = 4096, DEPTH = 16, LINE = 4096 };

static char *line[LINES]; /* the lines of the document */
static char *want[LINES]; /* the lines of the document as the tables give them */
static int n_lines, n_want;

/* ---- one field ------------------------------------------------------------------------------- */

static char out[LINE];

static void add(const char *text)
{
    const size_t n = strlen(out);
    if (n + strlen(text) >= sizeof out) abort();
    strcpy(out + n, text);
}

/* Writes a number in a form that every reader of YAML reads as a number, such as 1.0e-30. */
static void add_number(double v)
{
    char text[48], *e;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    if (v == floor(v) && fabs(v) < 1e16) snprintf(text, sizeof text, "%.0f", v);
    if (v != floor(v) && fabs(v) >= 1e-6 && strchr(text, 'e'))
        snprintf(text, sizeof text, "%.6f", v);
    if ((e = strchr(text, 'e')) && !strchr(text, '.')) {
        memmove(e + 2, e, strlen(e) + 1);
        memcpy(e, ".0", 2);
    }
    add(text);
}

static void add_type(const struct field *f)
{
    switch (f->type) {
    case FIELD_INT:
    case FIELD_INT32: add(rule_auto_field(f->path) ? "[integer, string]" : "integer"); break;
    case FIELD_DOUBLE: add("number"); break;
    case FIELD_BOOL:
    case FIELD_FLAG: add("boolean"); break;
    case FIELD_LIST: add("array"); break;
    case FIELD_RAW: add("object"); break;
    default: add("string"); break;
    }
}

static void add_range(const struct field *f)
{
    const bool real = f->type == FIELD_DOUBLE, small = f->type == FIELD_INT32;
    if (!real && !small && f->type != FIELD_INT) return;
    if (f->min > (real ? -DBL_MAX : small ? (double)INT32_MIN : (double)INT64_MIN))
        add(", minimum: "), add_number(f->min);
    if (f->max < (real ? DBL_MAX : small ? (double)INT32_MAX : (double)INT64_MAX))
        add(", maximum: "), add_number(f->max);
}

/* Adds the words of model_type: the words of every family, and the words of wrappers around a
 * family's models. */
static void add_model_types(void)
{
    const char *comma = "";
    add(", enum: [");
    for (int32_t id = 0; id < FAMILY_N; id++) {
        const struct model_shape m = {.family = id};
        for (const struct hf_model *model = family_row(&m)->config->models; model->type; model++)
            add(comma), add(model->type), comma = ", ";
    }
    for (const struct hf_wrapper *w = wrapper_rows; w->model.type; w++)
        add(comma), add(w->model.type);
    add("]");
}

/* Adds the words of a field. A device is text, because a plugin may bring another device. */
static void add_words(const struct field *f)
{
    if (!strcmp(f->path, "resources.device")) add(", enum: [cpu, cuda]");
    if (!strcmp(f->path, "model.config.model_type")) return add_model_types();
    if (f->type != FIELD_ENUM && f->type != FIELD_WORD) return;
    for (int i = 0; f->words[i]; i++) add(i ? ", " : ", enum: ["), add(f->words[i]);
    add("]");
}

static void add_schema(const struct field *f);

static void add_items(const struct field *f)
{
    if (f->type != FIELD_LIST) return;
    if (f->max) add(", maxItems: "), add_number(f->max);
    add(", items: ");
    if (!*f->list->of->path) {
        add_schema(f->list->of);
    } else {
        add("{type: object, properties: {");
        for (const struct field *of = f->list->of; of->path; of++)
            add(of == f->list->of ? "" : ", "), add(of->path), add(": "), add_schema(of);
        add("}}");
    }
}

static void add_quoted(const char *text)
{
    add("\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') add("\\");
        add((char[]){*text, 0});
    }
    add("\"");
}

static void add_schema(const struct field *f)
{
    add("{type: "), add_type(f), add_words(f), add_range(f), add_items(f);
    if (f->help) add(", description: "), add_quoted(f->help);
    add("}");
}

static const char *schema_line(int indent, const char *name, const struct field *f)
{
    snprintf(out, sizeof out, "%*s%s: ", indent, "", name);
    add_schema(f);
    return out;
}

/* ---- the document ---------------------------------------------------------------------------- */

static int indent_of(const char *text)
{
    return (int)strspn(text, " ");
}

static void want_line(const char *text)
{
    if (n_want == LINES || !(want[n_want++] = strdup(text))) abort();
}

static const struct field *find(const struct field *table, const char *path)
{
    while (table->path && strcmp(table->path, path)) table++;
    return table->path && table->kinds ? table : NULL;
}

static const struct field *find_member(const struct field *table, const char *path)
{
    while (table->path && strcmp(table->path, path)) table++;
    return table->path ? table : NULL;
}

/* Finds the field of a size of a model. If the size is an array, the table has a row for each
 * element, and the row of the first element is returned. */
static const struct field *find_size(const char *path)
{
    static struct field item, array;
    static const struct field_list list = {.of = &item};
    char first[96];
    const struct field *f = find(shape_fields, path);
    snprintf(first, sizeof first, "%.90s.0", path);
    if (f || !(f = find_member(shape_fields, first))) return f;
    item = array = *f;
    item.path = "";
    item.help = NULL;
    array.path = path;
    array.type = FIELD_LIST;
    array.list = &list;
    for (array.max = 0; f->path && !strncmp(f->path, path, strlen(path)); f++) array.max++;
    return &array;
}

/* Finds the field whose line is at `path` of a schema. */
static const struct field *field_at(const char *schema, const char *path)
{
    if (!strcmp(schema, "Source")) return find(source_fields, path);
    if (!strcmp(schema, "Stage")) return find(stage_fields, path);
    if (!strcmp(schema, "Hardware")) return find(hardware_fields, path);
    if (!strcmp(schema, "Checkpoint")) return find_member(checkpoint_fields, path);
    if (strcmp(schema, "Spec")) return NULL;
    const struct field *f = find(spec_fields, path);
    if (!strncmp(path, "model.config.", 13)) return find_size(path);
    if (!f && !strncmp(path, "input.", 6)) f = find(source_fields, path + 6);
    return f ? f : find(spec_constants, path);
}

static char said[LINES][96]; /* paths that have been seen, each after its schema */
static int n_said;

/* Reads a line of a schema, in which names are nested by indentation, and writes the line that the
 * tables require. */
static void schema_take(const char *schema, const char *text, char name[DEPTH][64])
{
    char path[96] = "";
    const int indent = indent_of(text), depth = indent / 2;
    const char *colon = strchr(text, ':');
    if (!colon || depth >= DEPTH) return want_line(text);
    snprintf(name[depth], sizeof name[depth], "%.*s", (int)(colon - text) - indent, text + indent);
    if (depth < 4 || strcmp(name[depth - 1], "properties")) return want_line(text);
    for (int d = 4; d <= depth; d += 2)
        snprintf(path + strlen(path), sizeof path - strlen(path), "%s%s", d > 4 ? "." : "",
                 name[d]);
    const struct field *f = field_at(schema, path);
    if (!f || colon[1] != ' ') return want_line(text);
    snprintf(said[n_said++], sizeof said[0], "%.16s %.78s", schema, path);
    want_line(schema_line(indent, name[depth], f));
}

/* Replaces the members of an event's data by those of the table. Returns the index of the line
 * after them. */
static int events_take(int i)
{
    const int indent = indent_of(line[i]);
    want_line(line[i++]);
    for (const struct field *f = event_fields; f->path; f++)
        want_line(schema_line(indent + 2, f->path, f));
    while (i < n_lines && indent_of(line[i]) > indent) i++;
    return i;
}

static void document_make(void)
{
    char schema[64] = "", name[DEPTH][64] = {""};
    bool schemas = false;
    for (int i = 0; i < n_lines;) {
        const int indent = indent_of(line[i]);
        if (indent == 2) schemas = !strcmp(line[i], "  schemas:");
        if (schemas && indent == 4)
            snprintf(schema, sizeof schema, "%.*s", (int)strcspn(line[i] + 4, ":"), line[i] + 4);
        const bool data = schemas && !strcmp(schema, "Event") && i &&
                          !strcmp(line[i], "          properties:");
        if (data)
            i = events_take(i);
        else if (schemas && indent > 4)
            schema_take(schema, line[i++], name);
        else
            want_line(line[i++]);
    }
}

static void document_read(void)
{
    static char text[LINE];
    FILE *f = fopen(OPENAPI, "r");
    if (!f) perror(OPENAPI), exit(1);
    while (n_lines < LINES && fgets(text, sizeof text, f)) {
        text[strcspn(text, "\n")] = 0;
        if (!(line[n_lines++] = strdup(text))) abort();
    }
    fclose(f);
}

static int document_write(void)
{
    FILE *f = fopen(OPENAPI ".tmp", "w");
    if (!f) return perror(OPENAPI ".tmp"), 1;
    for (int i = 0; i < n_want; i++) fprintf(f, "%s\n", want[i]);
    return fclose(f) || rename(OPENAPI ".tmp", OPENAPI) ? 1 : 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_lines(void)
{
    CHECK(n_lines > 1000 && n_lines < LINES);
    for (int i = 0; i < n_lines && i < n_want; i++)
        if (strcmp(line[i], want[i])) {
            CHECK_MSG(false,
                      OPENAPI
                      " has\n%s\n  and the tables\n%s\n  write it again: test_seqd_schema --write",
                      line[i], want[i]);
            return;
        }
    CHECK(n_lines == n_want);
}

/* Tells whether a field is left out of the document. A field is left out if it belongs to an
 * array's element and not to an object, or if only seqd writes it. Every member of a checkpoint is
 * shown. */
static bool left_out(const struct field *f, const struct field *table)
{
    const char *dot = strrchr(f->path, '.');
    return (!f->kinds && table != checkpoint_fields) || (dot && dot[1] >= '0' && dot[1] <= '9');
}

static void test_all_are_there(void)
{
    const struct {
        const char *schema;
        const struct field *fields;
    } tables[] = {{"Spec", spec_fields},         {"Spec", spec_constants},
                  {"Source", source_fields},     {"Stage", stage_fields},
                  {"Hardware", hardware_fields}, {"Checkpoint", checkpoint_fields},
                  {"Spec", shape_fields}};
    char path[96];
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct field *f = tables[t].fields; f->path; f++) {
            int i = 0;
            snprintf(path, sizeof path, "%s %s", tables[t].schema, f->path);
            while (i < n_said && strcmp(said[i], path)) i++;
            CHECK_MSG(left_out(f, tables[t].fields) || i < n_said,
                      "schema %s has no line: write `{}` there, and --write", path);
        }
}

int main(int argc, char **argv)
{
    document_read();
    document_make();
    if (argc == 2 && !strcmp(argv[1], "--write")) return document_write();
    RUN(test_lines);
    RUN(test_all_are_there);
    return test_done("seqd_schema");
}
