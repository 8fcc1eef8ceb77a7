/* stored.h: helper functions for tests of files that the engine stores. The files in `dir` are
 * exactly as the engine wrote them. */
#ifndef SEQD_TESTS_STORED_H
#define SEQD_TESTS_STORED_H

#include "api/core/file.h"
#include "api/core/sha256.h"
#include "tests/lib/records.h"
#include "tests/lib/scratch.h"

enum { TEXT_SIZE = 16384 };

static char dir[64];

static inline const char *in_dir(const char *name)
{
    static char path[4][FILE_PATH_SIZE];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

static inline const char *stored(const char *name)
{
    static char text[TEXT_SIZE];
    size_t size = 0;
    char *got = file_read(in_dir(name), sizeof text - 1, &size, NULL);
    CHECK_MSG(got, "%s", name);
    snprintf(text, sizeof text, "%s", got ? got : "");
    free(got);
    return text;
}

static inline void put(const char *name, const char *text)
{
    CHECK(!file_write(in_dir(name), text, strlen(text), NULL));
}

static inline void digits(char hex[SHA256_HEX], char digit)
{
    memset(hex, digit, SHA256_HEX - 1);
    hex[SHA256_HEX - 1] = 0;
}

/* Returns a copy of `text` in which the text `from` is replaced by the text `to`. If `all` is set,
 * every occurrence is replaced, and otherwise only the first. */
static inline const char *edited(const char *text, const char *from, const char *to, bool all)
{
    static char each[2][TEXT_SIZE];
    static int k;
    char *out = each[k ^= 1];
    size_t n = 0;
    const char *at = strstr(text, from);
    CHECK_MSG(at, "%s is not in %s", from, text);
    for (; at; at = all ? strstr(text, from) : NULL) {
        n += (size_t)snprintf(out + n, TEXT_SIZE - n, "%.*s%s", (int)(at - text), text, to);
        text = at + strlen(from);
    }
    snprintf(out + n, TEXT_SIZE - n, "%s", text);
    return out;
}

#define STORED_UNKNOWN ",\"of_a_later_version\":[{},\"\\\"]\"]}"

/* Returns a copy of the text. Each object that is not empty gets one more member, whose name is
 * unknown to readers. */
static inline const char *with_unknown(const char *text)
{
    return edited(text, "}", STORED_UNKNOWN, true);
}

/* Returns the name of an error's code, followed by the error's text, in which DIR replaces the
 * path of the test's folder. If rc reports no error, it returns "read". */
static inline const char *said(int rc, const struct err *e)
{
    static char text[TEXT_SIZE];
    if (rc >= 0) return "read";
    const char *why = strstr(e->text, dir) ? edited(e->text, dir, "DIR", true) : e->text;
    snprintf(text, sizeof text, "%s: %s", err_name(e->code), why);
    return text;
}

/* An edit that damages a text, or removes a member from it. The line of the golden file whose NAME
 * is `name` holds the error with which a reader refuses the edited text. */
struct edit {
    const char *name, *from, *to;
};

#endif
