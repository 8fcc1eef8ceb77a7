/* settings.h: a program's options from its command line and its configuration file. */
#ifndef SEQD_API_SETTINGS_H
#define SEQD_API_SETTINGS_H

#include "api/core/option.h"

/* Returns the file to read, now that the command line is known; NULL: none. */
typedef const char *settings_path(const void *target);

/* Reads the defaults, the command line, and the file for the rows that the command line leaves
 * open. from (NULL allowed): the source of each row's value. Returns 0; 1 if the command line
 * asked for an answer (OPTION_ANSWER); or -1, and *e names the option, or the file and line. */
int settings_read(const struct option_table *t, int argc, char **argv, settings_path *path,
                  void *target, struct option_sources *from, struct err *e);
/* Reads the options again at SIGHUP. Copies changed rows that reload into `now`; changes of other
 * rows are logged. A file that is wrong changes nothing. check (NULL allowed) checks the newly
 * read target as a whole. Returns how many rows were taken, or -1. */
typedef int settings_check(const void *fresh, struct err *e);
int settings_reload(const struct option_table *t, int argc, char **argv, settings_path *path,
                    settings_check *check, void *now, struct err *e);

#endif
