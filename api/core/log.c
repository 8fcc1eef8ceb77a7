/* log.c: formats a line into a buffer of 1 KiB, turns line breaks inside the line into spaces, and
 * writes the line with one call. */
#include "api/core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

/* These are set once by log_init before any thread starts, and only read afterwards. */
static const char *log_program = "seqd";
static enum log_level log_initial = LOG_INFO;
static _Atomic int log_threshold = LOG_INFO;

static enum log_level level_of(const char *word, enum log_level otherwise)
{
    for (int i = 0; word && log_levels[i]; i++)
        if (!strcmp(word, log_levels[i])) return (enum log_level)i;
    return otherwise;
}

void log_init(const char *program)
{
    log_program = program;
    log_initial = level_of(getenv("SEQD_LOG"), LOG_INFO);
    log_threshold = (int)log_initial;
}

void log_level_set(const char *level)
{
    log_threshold = (int)level_of(level, log_initial);
}

void log_line(enum log_level level, const char *name, const char *fmt, ...)
{
    if ((int)level < log_threshold) return;
    char line[1024];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s %s ",
                     tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                     now.tv_nsec / 1000000, log_levels[level], log_program, name);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    size_t len = (size_t)n + (m < 0 ? 0 : (size_t)m);
    if (len > sizeof line - 2) len = sizeof line - 2;
    for (size_t i = (size_t)n; i < len; i++)
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
    line[len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, len);
    (void)ignored;
}
