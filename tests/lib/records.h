/* records.h: compares the texts of records that are stored or sent with files in
 * tests/golden/records. Each line of a file is "NAME TEXT", and the lines are in the order in
 * which the test reads them. A test that is called with --write writes its files instead; run it
 * in the root of the tree. */
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

/* Reads the next line and returns its TEXT. If the NAME of the line is not `name`, it reports a
 * failure and returns NULL. */
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

/* Compares the text with the next line of the file, or writes a new line if the test was called
 * with --write. Returns the text of the line, which is valid until the next call. */
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

/* Returns the JSON object `text` with an additional member at its end. The name of that member is
 * unknown to all readers. */
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
