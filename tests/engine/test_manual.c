/* test_manual: checks that api/JOBS.md has the same rows as the tables of fields. `test_manual
 * --write` writes the rows of JOBS.md. tests/daemon/test_seqd_schema.c writes the lines of
 * openapi.yaml. Run it in the root of the tree.
 * tests: needs api/JOBS.md api/openapi.yaml */
#include <math.h>
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/plan/machine.h"

#define MANUAL "api/JOBS.md"
#define FIRST  "<!-- Written by build/release/tests/test_manual --write. -->\n"
#define LAST   "<!-- To here. -->\n"

static char rows[1 << 17];
static size_t n_rows;

static void add(const char *text)
{
    size_t n = strlen(text);
    if (n_rows + n >= sizeof rows) abort();
    memcpy(rows + n_rows, text, n + 1);
    n_rows += n;
}

static void add_number(double v)
{
    char text[32];
    snprintf(text, sizeof text, v == floor(v) && fabs(v) < 1e15 ? "%.0f" : "%g", v);
    add(text);
}

/* Adds a field's default. If the default is outside of the field's range, it means that the field
 * is not given. */
static void add_default(const struct field *f)
{
    if (f->unsaid) {
        add(f->unsaid);
        return;
    }
    switch (f->type) {
    case FIELD_ENUM: add(f->words[(int)f->fallback]); break;
    case FIELD_STRING: add(f->text && *f->text ? f->text : "-"); break;
    case FIELD_BOOL: add(f->fallback != 0 ? "true" : "false"); break;
    default:
        if (f->fallback >= f->min && f->fallback <= f->max)
            add_number(f->fallback);
        else
            add("-");
    }
}

static void add_values(const struct field *f)
{
    switch (f->type) {
    case FIELD_ENUM:
        for (int i = 0; f->words[i]; i++) add(i ? ", " : ""), add(f->words[i]);
        break;
    case FIELD_STRING: add("text"); break;
    case FIELD_BOOL: add("true, false"); break;
    default: add_number(f->min), add(" to "), add_number(f->max);
    }
}

static void add_kinds(const struct field *f)
{
    const struct field *kind = spec_field("kind");
    const unsigned all = (1u << JOB_KIND_N) - 1;
    bool first = true;
    if ((f->kinds & all) == all) {
        add("all");
        return;
    }
    for (int i = 0; i < JOB_KIND_N; i++)
        if (f->kinds >> i & 1) add(first ? "" : ", "), add(kind->words[i]), first = false;
}

/* Tells whether the manual leaves out a field: internal fields, the keys of config.json, and all
 * members of an array except the first one. */
static bool left_out(const struct field *f)
{
    const char *dot = strrchr(f->path, '.');
    return !f->kinds || !strncmp(f->path, "model.config.", 13) ||
           (dot && dot[1] >= '1' && dot[1] <= '9');
}

static void add_table(const char *heading, const struct field *table, const struct field *more)
{
    add("\n"), add(heading);
    add("\n\n| field | values | default | jobs | |\n|---|---|---|---|---|\n");
    for (int t = 0; t < 2; t++)
        for (const struct field *f = t ? more : table; f && f->path; f++) {
            if (left_out(f)) continue;
            add("| `"), add(f->path), add("` | "), add_values(f), add(" | "), add_default(f);
            add(" | "), add_kinds(f), add(" | "), add(f->help), add(" |\n");
        }
}

static void make_rows(void)
{
    add_table("### The spec", spec_fields, spec_constants);
    add_table("### A source of `data.train` and `eval.data`; `input`", source_fields, NULL);
    add_table("### A stage of `stages`", stage_fields, NULL);
    add_table("### `hardware` of a plan", hardware_fields, NULL);
    add("\n");
}

static char *read_file(const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    if (!f) return perror(path), NULL;
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static void test_manual_has_every_field(void)
{
    char *text = read_file(MANUAL), *at = text ? strstr(text, FIRST) : NULL;
    CHECK(at != NULL && strstr(at, LAST));
    if (!at) return;
    at += strlen(FIRST);
    *strstr(at, LAST) = 0;
    for (const char *want = rows; *want || *at;) {
        int n = (int)strcspn(want, "\n"), m = (int)strcspn(at, "\n");
        if (n != m || memcmp(want, at, (size_t)n)) {
            CHECK_MSG(false, "%s has\n    %.*s\n  and the tables\n    %.*s\n  write it again: %s",
                      MANUAL, m, at, n, want, FIRST);
            return;
        }
        want += n + (want[n] != 0), at += m + (at[m] != 0);
    }
}

static int write_manual(void)
{
    char *text = read_file(MANUAL), *at = text ? strstr(text, FIRST) : NULL;
    char *end = at ? strstr(at, LAST) : NULL;
    FILE *f = end ? fopen(MANUAL ".tmp", "w") : NULL;
    if (!f) return fprintf(stderr, "%s has no place for the rows\n", MANUAL), 1;
    fwrite(text, 1, (size_t)(at - text) + strlen(FIRST), f);
    fputs(rows, f);
    fputs(end, f);
    return fclose(f) || rename(MANUAL ".tmp", MANUAL) ? 1 : 0;
}

int main(int argc, char **argv)
{
    make_rows();
    if (argc == 2 && !strcmp(argv[1], "--write")) return write_manual();
    RUN(test_manual_has_every_field);
    return test_done("manual");
}
