/* settings.h: a program's options from its command line and its configuration file. */
#ifndef SEQD_API_SETTINGS_H
#define SEQD_API_SETTINGS_H

#include "api/core/option.h"

/* Returns the file to read, now that the command line is known, or NULL if there is none. */
typedef const char *settings_path(const void *target);

/* Reads the defaults, then the command line, and then the file, from which only those values are
 * used that the command line does not give. `from`, which may be NULL, gets the source of each
 * row's value. Returns 0, or 1 if the command line asked for an answer (OPTION_ANSWER). Returns -1
 * after a failure; *e names the option, or the file and line. */
int settings_read(const struct option_table *t, int argc, char **argv, settings_path *path,
                  void *target, struct option_sources *from, struct err *e);
/* Reads the options again at SIGHUP. Copies the changed rows that can be reloaded into `now`, and
 * logs changes of other rows. A file that is wrong changes nothing. check, which may be NULL,
 * checks the newly read target as a whole. Returns the number of copied rows, or -1. */
typedef int settings_check(const void *fresh, struct err *e);
int settings_reload(const struct option_table *t, int argc, char **argv, settings_path *path,
                    settings_check *check, void *now, struct err *e);

#endif
