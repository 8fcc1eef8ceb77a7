/* csv.c: prints rows as CSV. It first collects the columns of all rows, in the order in which they
 * appear, and then prints a header and the rows. */
#include "client/csv.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "client/text.h"

enum { MOST_COLUMNS = 512, PATH = 256 };

struct columns {
    int n;
    char (*path)[PATH];
};

static void add_column(struct columns *c, const char *path)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->path[i], path)) return;
    if (c->n < MOST_COLUMNS) snprintf(c->path[c->n++], PATH, "%s", path);
}

/* Tells whether an object has a key that is empty or contains a dot. Such a key cannot be part of
 * a path, so its object is printed as one cell. */
static bool has_dotted_key(const struct jv *object)
{
    for (size_t i = 0; i < jv_len(object); i++) {
        const char *key = "";
        jv_at(object, i, &key);
        if (!*key || strchr(key, '.')) return true;
    }
    return false;
}

static void add_columns(struct columns *c, const struct jv *object, const char *prefix)
{
    for (size_t i = 0; i < jv_len(object); i++) {
        char path[PATH];
        const char *key = "";
        const struct jv *v = jv_at(object, i, &key);
        if ((size_t)snprintf(path, sizeof path, "%s%s", prefix, key) >= sizeof path - 1) continue;
        if (jv_is_object(v) && jv_len(v) && !has_dotted_key(v)) {
            strcat(path, ".");
            add_columns(c, v, path);
        } else {
            add_column(c, path);
        }
    }
}

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
}

/* Prints a cell. A spreadsheet would run a text that begins with one of =+-@ or with a control
 * character, so such a text gets an apostrophe before it. Other control characters than LF and tab
 * become \xNN. */
static void print_cell(FILE *out, const char *text, bool is_text, bool clean)
{
    const size_t n = strlen(text);
    char *s = malloc(n + 1);
    assert(s);
    memcpy(s, text, n + 1);
    if (clean) text_clean(s, n + 1, text, n, "\n\t");
    const bool quote = strpbrk(s, ",\"\n") != NULL;
    const bool formula = is_text && *s && (strchr("=+-@\t\n", *s) || is_control(*s));
    if (quote) fputc('"', out);
    if (formula) fputc('\'', out);
    for (const char *p = s; *p; p++) {
        if (*p == '"') fputc('"', out);
        if (is_control(*p))
            fprintf(out, "\\x%02x", (unsigned)(unsigned char)*p);
        else
            fputc(*p, out);
    }
    if (quote) fputc('"', out);
    free(s);
}

/* Prints the cell of a path. The cell is empty if the row has no value there, or has null. */
static void print_value(FILE *out, const struct jv *row, const char *path, bool clean)
{
    const struct jv *v = jv_get(row, path);
    char *text = v ? jv_text(v) : NULL;
    if (text) print_cell(out, text, jv_str(row, path, NULL) != NULL, clean);
    free(text);
}

static void print_row(FILE *out, const struct columns *c, const struct jv *row, bool clean)
{
    for (int i = 0; i < c->n; i++) {
        if (i) fputc(',', out);
        print_value(out, row, c->path[i], clean);
    }
    fputs("\r\n", out);
}

/* Drops a column such as "progress" if there is a column "progress.done". The column "progress"
 * comes from a row whose progress is null. */
static void drop_parents(struct columns *c)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const size_t len = strlen(c->path[i]);
        bool parent = false;
        for (int k = 0; k < c->n; k++)
            parent |= !strncmp(c->path[k], c->path[i], len) && c->path[k][len] == '.';
        if (!parent && n++ != i) memcpy(c->path[n - 1], c->path[i], PATH);
    }
    c->n = n;
}

void csv_print(FILE *out, const struct jv *rows, bool clean)
{
    const bool list = jv_is_array(rows);
    const size_t n = list ? jv_len(rows) : 1;
    struct columns c = {.path = calloc(MOST_COLUMNS, PATH)};
    assert(c.path);
    for (size_t i = 0; i < n; i++) add_columns(&c, list ? jv_at(rows, i, NULL) : rows, "");
    drop_parents(&c);
    for (int i = 0; i < c.n; i++) {
        if (i) fputc(',', out);
        print_cell(out, c.path[i], true, clean);
    }
    if (c.n) fputs("\r\n", out);
    for (size_t i = 0; c.n && i < n; i++)
        print_row(out, &c, list ? jv_at(rows, i, NULL) : rows, clean);
    free(c.path);
}
