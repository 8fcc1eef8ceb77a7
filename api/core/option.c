/* option.c: reads values of the command line and of the file by the type of their row, and prints
 * --help from the same rows. */
#include "api/core/option.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/nearest.h"

enum { HELP_COLUMN = 26, HELP_WIDTH = 100 };

static void *place(void *target, const struct option_entry *r)
{
    return (char *)target + r->offset;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int not_a_word(const struct option_entry *r, const char *text, struct err *e)
{
    char all[256] = "";
    for (const char *const *w = r->words; *w; w++) {
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", *w);
    }
    return err_set(e, ERR_INVALID, "%s %s: want one of %s", r->name, text, all);
}

static int set_text(const struct option_entry *r, char *to, size_t size, const char *text,
                    struct err *e)
{
    const char *const *w = r->words;
    while (w && *w && strcmp(*w, text)) w++;
    if (w && !*w) return not_a_word(r, text, e);
    if (strlen(text) >= size)
        return err_set(e, ERR_INVALID, "%s %.80s... is longer than %zu bytes", r->name, text,
                       size - 1);
    memset(to, 0, size);
    memcpy(to, text, strlen(text));
    return 0;
}

static int set_number(const struct option_entry *r, void *target, int64_t number, struct err *e)
{
    if (number < r->min || number > r->max)
        return err_set(e, ERR_INVALID, "%s %lld: want a number from %lld to %lld", r->name,
                       (long long)number, (long long)r->min, (long long)r->max);
    memcpy(place(target, r), &number, sizeof number);
    return 0;
}

static int read_number(const struct option_entry *r, const char *text, int64_t *out, struct err *e)
{
    char *end;
    *out = strtoll(text, &end, 10);
    if (*text && !*end) return 0;
    return err_set(e, ERR_INVALID, "%s %s: want a number from %lld to %lld", r->name, text,
                   (long long)r->min, (long long)r->max);
}

static int add_text(const struct option_entry *r, struct option_list *l, const char *text,
                    struct err *e)
{
    if (l->n == OPTION_LIST)
        return err_set(e, ERR_INVALID, "%s may be given %d times: leave some out", r->name,
                       OPTION_LIST);
    if (set_text(r, l->text[l->n], OPTION_TEXT_SIZE, text, e)) return -1;
    l->n++;
    return 0;
}

/* Sets a value from its text, which comes from the command line or is the default of the row. */
static int set(const struct option_entry *r, void *target, const char *text, struct err *e)
{
    int64_t number;
    switch (r->type) {
    case OPTION_TEXT: return set_text(r, place(target, r), r->size, text, e);
    case OPTION_TEXTS: return add_text(r, place(target, r), text, e);
    case OPTION_NUMBER:
        return read_number(r, text, &number, e) || set_number(r, target, number, e) ? -1 : 0;
    default: *(bool *)place(target, r) = true; return 0;
    }
}

void option_defaults(const struct option_table *t, void *target, struct option_sources *from)
{
    assert(t->n_rows <= OPTION_ROWS);
    memset(target, 0, t->size);
    memset(from, 0, sizeof *from);
    for (int i = 0; i < t->n_rows; i++) {
        const struct option_entry *r = &t->rows[i];
        struct err e;
        const int bad = r->otherwise && set(r, target, r->otherwise, &e);
        assert(!bad);
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

static const char *nearest(const struct option_table *t, const char *word, bool of_file)
{
    const char *best = NULL;
    int least = nearest_most(word) + 1;
    for (int i = 0; i < t->n_rows; i++) {
        const int d = nearest_distance(word, t->rows[i].name);
        if (of_file && (t->rows[i].reload == OPTION_COMMAND || t->rows[i].type == OPTION_ANSWER))
            continue;
        if (d < least) least = d, best = t->rows[i].name;
    }
    return best;
}

static int unknown(const struct option_table *t, const char *arg, struct err *e)
{
    char word[NEAREST_FAR];
    while (*arg == '-') arg++;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(arg, "="), arg);
    const char *near = nearest(t, word, false);
    if (near)
        return err_set(e, ERR_INVALID, "unknown option --%s: did you mean --%s? See %s --help",
                       word, near, t->program);
    return err_set(e, ERR_INVALID, "unknown option --%s: see %s --help", word, t->program);
}

static int answer(const struct option_table *t, const struct option_entry *r)
{
    if (!strcmp(r->name, "help")) option_help(t, stdout);
    return 1;
}

/* Returns whether getopt_long must find a value. */
static int takes(const struct option_entry *r)
{
    if (!r->value) return no_argument;
    return *r->value == '[' ? optional_argument : required_argument;
}

int option_line(const struct option_table *t, int argc, char **argv, void *target,
                struct option_sources *from, struct err *e)
{
    struct option longs[OPTION_ROWS + 1] = {{0}};
    for (int i = 0; i < t->n_rows; i++)
        longs[i] = (struct option){t->rows[i].name, takes(&t->rows[i]), NULL, i};
    opterr = 0;
    optind = 0; /* restarts getopt_long, also in later calls */
    for (int c, at = -1; (c = getopt_long(argc, argv, ":", longs, &at)) != -1; at = -1) {
        if (c == ':')
            return err_set(e, ERR_INVALID, "%s needs a value: see %s --help", argv[optind - 1],
                           t->program);
        if (at < 0) return unknown(t, argv[optind - 1], e);
        const struct option_entry *r = &t->rows[at];
        struct err bad;
        if (set(r, target, optarg ? optarg : "", &bad))
            return err_set(e, bad.code, "--%s", bad.text);
        from->of[at] = OPTION_LINE;
        if (r->type == OPTION_ANSWER) return answer(t, r);
    }
    if (optind == argc) return 0;
    return err_set(e, ERR_INVALID, "%s is not an option: see %s --help", argv[optind], t->program);
}

bool option_given(const struct option_table *t, const struct option_sources *from, const char *name)
{
    int i = 0;
    while (i < t->n_rows && strcmp(t->rows[i].name, name)) i++;
    assert(i < t->n_rows);
    return from->of[i] != OPTION_DEFAULT;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int wrong_kind(const struct option_entry *r, struct err *e)
{
    static const char *const wanted[] = {
        [OPTION_FLAG] = "true or false",
        [OPTION_TEXT] = "a string",
        [OPTION_NUMBER] = "a whole number",
        [OPTION_TEXTS] = "an array of strings",
        [OPTION_ANSWER] = "",
    };
    return err_set(e, ERR_INVALID, "%s: want %s", r->name, wanted[r->type]);
}

static int take(const struct option_entry *r, const struct option_value *v, void *target,
                struct err *e)
{
    static const enum option_kind kinds[] = {
        [OPTION_FLAG] = OPTION_IS_BOOL,     [OPTION_TEXT] = OPTION_IS_TEXT,
        [OPTION_NUMBER] = OPTION_IS_NUMBER, [OPTION_TEXTS] = OPTION_IS_TEXT,
        [OPTION_ANSWER] = OPTION_IS_OTHER,
    };
    const bool in_array = v->index >= 0;
    if (in_array != (r->type == OPTION_TEXTS)) return wrong_kind(r, e);
    if (in_array && !v->index) memset(place(target, r), 0, r->size);
    if (in_array && !v->n) return 0;
    if (v->kind != kinds[r->type]) return wrong_kind(r, e);
    if (r->type == OPTION_NUMBER) return set_number(r, target, v->number, e);
    if (r->type != OPTION_FLAG) return set(r, target, v->text, e);
    *(bool *)place(target, r) = v->number != 0;
    return 0;
}

int option_key(const struct option_table *t, const char *key, const struct option_value *v,
               void *target, struct option_sources *from, struct err *e)
{
    int i = 0;
    while (i < t->n_rows && strcmp(t->rows[i].name, key)) i++;
    const struct option_entry *r = &t->rows[i];
    if (i == t->n_rows) {
        const char *near = nearest(t, key, true);
        return near ? err_set(e, ERR_INVALID, "unknown key %s: did you mean %s?", key, near)
                    : err_set(e, ERR_INVALID,
                              "unknown key %s: the keys are the options of %s "
                              "--help",
                              key, t->program);
    }
    if (r->reload == OPTION_COMMAND || r->type == OPTION_ANSWER)
        return err_set(e, ERR_INVALID, "%s belongs to the command line", key);
    if (from->of[i] != OPTION_LINE) {
        from->of[i] = OPTION_FILE;
        return take(r, v, target, e);
    }
    /* Check the value even if the command line overrides it, because the file must be valid by
     * itself. */
    void *unused = calloc(1, t->size);
    assert(unused);
    int rc = take(r, v, unused, e);
    free(unused);
    return rc;
}

int option_adopt(const struct option_table *t, void *now, const void *fresh, option_changed *call,
                 void *arg)
{
    int n = 0;
    for (int i = 0; i < t->n_rows; i++) {
        const struct option_entry *r = &t->rows[i];
        void *to = place(now, r);
        const void *new = (const char *)fresh + r->offset;
        if (!memcmp(to, new, r->size)) continue;
        const bool taken = r->reload == OPTION_RELOADS;
        if (taken) memcpy(to, new, r->size), n++;
        call(arg, r, taken);
    }
    return n;
}

/* ---- help ------------------------------------------------------------------------------------ */

/* Writes the words of `text` in lines from HELP_COLUMN to HELP_WIDTH. *at is the column that the
 * output has reached. */
static void wrap(FILE *out, const char *text, int *at)
{
    while (*text) {
        const int n = (int)strcspn(text, " ");
        if (*at + 1 + n > HELP_WIDTH) *at = fprintf(out, "\n%*s", HELP_COLUMN, "") - 1;
        if (*at > HELP_COLUMN) *at += fprintf(out, " ");
        *at += fprintf(out, "%.*s", n, text);
        text += n;
        text += strspn(text, " ");
    }
}

static void help_row(FILE *out, const struct option_entry *r)
{
    char left[64], tail[128] = "";
    snprintf(left, sizeof left, "  --%s%s%s", r->name, r->value && *r->value != '[' ? " " : "",
             r->value ? r->value : "");
    int at = fprintf(out, "%-*s", HELP_COLUMN, left);
    if (at > HELP_COLUMN) at = fprintf(out, "\n%*s", HELP_COLUMN, "") - 1;
    wrap(out, r->help, &at);
    if (r->otherwise) snprintf(tail, sizeof tail, "(default %s)", r->otherwise);
    wrap(out, tail, &at);
    if (r->reload == OPTION_RELOADS) wrap(out, "[SIGHUP]", &at);
    fputc('\n', out);
}

void option_help(const struct option_table *t, FILE *out)
{
    fputs(t->usage, out);
    for (int i = 0; i < t->n_rows; i++) help_row(out, &t->rows[i]);
    fputs(t->notes, out);
}
