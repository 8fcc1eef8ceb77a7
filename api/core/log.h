/* log.h: writes one logfmt line per event to stderr, with a single write(2).
 *     log_info("job.start", "job=%lld ranks=%d", id, n);
 *     2026-11-21T10:00:00.123Z info seqd job.start job=12 ranks=2
 *
 * The event's name is a constant of the form noun.verb, and pairs key=value follow it. The caller
 * puts quotes around a %s whose value may have spaces. Do not log in a hot path. Thread-safe. */
#ifndef SEQD_CORE_LOG_H
#define SEQD_CORE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Begins logging. `program` is the name in each line, such as "seqd", and is borrowed for the life
 * of the process. SEQD_LOG gives the level (debug, info, warn or error); the default is info. */
void log_init(const char *program);
extern const char *const log_levels[]; /* the words, up to a NULL */
/* Sets the level to one of log_levels. "" restores the level that log_init set. */
void log_level_set(const char *level);
void log_line(enum log_level level, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(name, ...) log_line(LOG_DEBUG, name, __VA_ARGS__)
#define log_info(name, ...)  log_line(LOG_INFO, name, __VA_ARGS__)
#define log_warn(name, ...)  log_line(LOG_WARN, name, __VA_ARGS__)
#define log_error(name, ...) log_line(LOG_ERROR, name, __VA_ARGS__)

#endif
