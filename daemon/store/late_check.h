/* late_check.h: searches a large database for damage while seqd serves, on a thread and a
 * connection of its own. Only a small database is checked before seqd is ready, because a check
 * reads the whole file.
 *
 * If the file is damaged, the process ends, as a start with that file would: each further commit
 * could lose data, and a copy that is sound becomes older with each hour. A mark in the state
 * directory makes the next start check the file before it serves, so that a damaged file is not
 * served again after a restart. If the disk could not be read, seqd runs on, as after a query that
 * could not be read. */
#ifndef SEQD_DAEMON_STORE_LATE_CHECK_H
#define SEQD_DAEMON_STORE_LATE_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "daemon/store/store.h"

struct sqlite3;
struct late_check;

/* Checks the database before seqd is ready if it is small, or if the last check found damage. *late
 * tells whether it must be checked later instead. Fails as store_check does. */
int late_check_first(struct sqlite3 *db, const char *dir, const char *path, bool *late,
                     struct err *e);
/* Starts the check. If `run` is false, the check was made already, and no thread is started. */
struct late_check *late_check_create(const char *dir, const char *path, bool run);
/* Stops the check. c may be NULL. */
void late_check_destroy(struct late_check *c);
/* Sets the members of *out about the check. Any thread may call it. */
void late_check_health(struct late_check *c, struct store_health *out);

#endif
