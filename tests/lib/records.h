/* records.h: texts of records as they are stored or sent, in files of tests/golden/records: a line
 * for each, "NAME TEXT", in the order in which the test asks for them. A test that is called with
 * --write writes its files again. Run it in the root of the tree. */
#ifndef SEQD_TESTS_RECORDS_H
#define SEQD_TESTS_RECORDS_H

#include "api/core/assert.h"
#include "tests/lib/test.h"

static struct records {
    bool writes;
    const char *path;
    FILE *file;
    char *line;
    size_t room;
} records;

static inline void records_args(int argc, char **argv)
{
    records.writes = argc == 2 && !strcmp(argv[1], "--write");
}

static inline void records_open(const char *path)
{
    records.path = path;
    records.file = fopen(path, records.writes ? "w" : "r");
    if (!records.file) perror(path), exit(1);
}

/* Returns the TEXT of the next line, whose NAME must be `name`; NULL: it is another. */
static inline const char *records_next(const char *name)
{
    const size_t n = strlen(name);
    const ssize_t got = getline(&records.line, &records.room, records.file);
    const bool right = got > (ssize_t)n && !strncmp(records.line, name, n) &&
                       records.line[n] == ' ';
    CHECK_MSG(right, "%s has no line %s in this place", records.path, name);
    if (!right) return NULL;
    records.line[got - 1] = 0;
    return records.line + n + 1;
}

/* Writes the line, or compares it with the committed line. Returns the committed text, until
 * the next call. */
static inline const char *records_hold(const char *name, const char *text)
{
    if (records.writes) return fprintf(records.file, "%s %s\n", name, text), text;
    const char *want = records_next(name);
    if (want) CHECK_MSG(!strcmp(text, want), "%s: %s\n  is\n%s", records.path, name, text);
    return want;
}

static inline void records_close(void)
{
    if (!records.writes)
        CHECK_MSG(getline(&records.line, &records.room, records.file) < 0,
                  "%s has a line that no test asks for: %s", records.path, records.line);
    fclose(records.file);
    free(records.line);
    records = (struct records){.writes = records.writes};
}

/* Writes `text`, a JSON object, with one member more at its end. */
static inline const char *records_unknown(const char *text)
{
    static char out[1 << 16];
    const size_t n = strlen(text);
    assert(n >= 2 && n + 64 < sizeof out && text[n - 1] == '}');
    snprintf(out, sizeof out, "%.*s%s\"of_a_later_version\":{\"a\":[1,\"}\"]}}", (int)n - 1, text,
             n > 2 ? "," : "");
    return out;
}

#endif
