/* err.c: formats the sentence of an error, shortens it to the size of its array, appends the text
 * of errno or a file limit, and names each code. */
#include "api/core/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include "api/core/err_names.h"
#include "api/core/utf8.h"

const char *const err_names[ERR_N + 1] = {
    [ERR_NONE] = "none",
    [ERR_INVALID] = "invalid",
    [ERR_NOT_FOUND] = "not_found",
    [ERR_CONFLICT] = "conflict",
    [ERR_DOES_NOT_FIT] = "does_not_fit",
    [ERR_TOO_LARGE] = "too_large",
    [ERR_IO] = "io",
    [ERR_CORRUPT] = "corrupt",
    [ERR_PEER] = "peer",
    [ERR_TIMEOUT] = "timeout",
    [ERR_ABORTED] = "aborted",
    [ERR_UNSUPPORTED] = "unsupported",
    [ERR_INTERNAL] = "internal",
    [ERR_DEVICE] = "device",
    [ERR_NO_SPACE] = "no_space",
    [ERR_UNAUTHORIZED] = "unauthorized",
    [ERR_FORBIDDEN] = "forbidden",
    [ERR_WALL_LIMIT] = "wall_limit",
    [ERR_DEPENDENCY] = "dependency_failed",
};

static void fill(struct err *e, enum err_code code, const char *field, const char *fmt, va_list ap)
{
    e->code = code;
    snprintf(e->field, sizeof e->field, "%s", field);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (!e) return -1;
    va_list ap;
    va_start(ap, fmt);
    fill(e, code, "", fmt, ap);
    va_end(ap);
    return -1;
}

int err_field(struct err *e, enum err_code code, const char *field, const char *fmt, ...)
{
    if (!e) return -1;
    va_list ap;
    va_start(ap, fmt);
    fill(e, code, field, fmt, ap);
    va_end(ap);
    return -1;
}

static void append(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void append(struct err *e, const char *fmt, ...)
{
    const size_t n = strlen(e->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text + n, sizeof e->text - n, fmt, ap);
    va_end(ap);
}

/* Appends the limit and the size that the file needs. */
static void name_file_limit(struct err *e, int64_t needed)
{
    struct rlimit r;
    const bool limited = !getrlimit(RLIMIT_FSIZE, &r) && r.rlim_cur != RLIM_INFINITY;
    if (limited)
        append(e, ": RLIMIT_FSIZE (ulimit -f, LimitFSIZE=) is %llu bytes",
               (unsigned long long)r.rlim_cur);
    if (needed > 0)
        append(e, "%s the file needs %lld%s", limited ? " and" : ":", (long long)needed,
               limited ? "" : " bytes");
    if (limited) append(e, ": raise it where seqd, seqw or seqctl is started");
}

static enum err_code code_of(int number)
{
    switch (number) {
    case ENOENT: return ERR_NOT_FOUND;
    case EFBIG: return ERR_TOO_LARGE;
    case ENOSPC:
    case EDQUOT:
    case EROFS: return ERR_NO_SPACE;
    default: return ERR_IO;
    }
}

static int fill_errno(struct err *e, int saved, int64_t needed, const char *fmt, va_list ap)
{
    if (!e) return -1;
    fill(e, code_of(saved), "", fmt, ap);
    append(e, ": %s", strerror(saved));
    if (saved == EFBIG) name_file_limit(e, needed);
    return -1;
}

int err_errno(struct err *e, const char *fmt, ...)
{
    const int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    fill_errno(e, saved, 0, fmt, ap);
    va_end(ap);
    return -1;
}

int err_write(struct err *e, int64_t needed, const char *fmt, ...)
{
    const int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    fill_errno(e, saved, needed, fmt, ap);
    va_end(ap);
    return -1;
}

bool err_begins(const char *text, const char *name)
{
    const size_t n = strlen(name);
    return !strncmp(text, name, n) && text[n] && strchr(":,. [", text[n]);
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    if (!e) return -1;
    char old[sizeof e->text];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->text);
    if (err_begins(old, e->text))
        memcpy(e->text, old, sizeof old);
    else
        snprintf(e->text + n, sizeof e->text - n, ": %s", old);
    return -1;
}

int err_about(struct err *e, const char *field)
{
    if (!e) return -1;
    snprintf(e->field, sizeof e->field, "%s", field);
    return err_prefix(e, "%s", field);
}

void err_plain(struct err *e)
{
    utf8_show(e->text);
}

const char *err_name(enum err_code code)
{
    return code >= 0 && code < ERR_N ? err_names[code] : "internal";
}
