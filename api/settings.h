/* settings.h: a program's options from its command line and its configuration file. */
#ifndef SEQD_API_SETTINGS_H
#define SEQD_API_SETTINGS_H

#include "api/core/option.h"

/* Returns the path of the configuration file, or NULL if there is none. It is called after the
 * command line was read into target. */
typedef const char *settings_path(const void *target);

/* Sets the defaults, reads the command line, and then reads the file. A value of the file is used
 * only if the command line does not give that option. `from`, which may be NULL, gets the source
 * of each row's value. Returns 0, or 1 if the command line asked for an answer (OPTION_ANSWER).
 * Returns -1 after a failure; *e names the option, or the file and line. */
int settings_read(const struct option_table *t, int argc, char **argv, settings_path *path,
                  void *target, struct option_sources *from, struct err *e);
/* Reads the options again at SIGHUP. If a changed row can be reloaded, copies its value into
 * `now`; otherwise logs the change. If the file is wrong, nothing changes. `check`, which may be
 * NULL, is a function that checks the newly read target as a whole. Returns the number of copied
 * rows, or -1. */
typedef int settings_check(const void *fresh, struct err *e);
int settings_reload(const struct option_table *t, int argc, char **argv, settings_path *path,
                    settings_check *check, void *now, struct err *e);

#endif
