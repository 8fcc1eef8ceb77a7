/* shared.h: the directory that several nodes share, as of NFS or Lustre (seqw --shared).
 *
 *   <dir>/.seqd-shared     the id of the directory, in hex digits, made once by the first agent
 *   <dir>/.seqd-private    the mark of a private directory (api/core/beneath.h)
 *   <dir>/jobs/<job>/      as in a state directory (state_dir.h)
 *   <dir>/prepared/        as in a state directory
 *
 * Nodes that report the same id share the files. All agents run as one user. Only the agents of one
 * seqd may use the directory, because jobs are known by their ids. No lock of a file is used: a
 * file appears by link or by rename. tested: tests/agent/test_agent_shared.c */
#ifndef SEQD_AGENT_SHARED_H
#define SEQD_AGENT_SHARED_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

/* Makes the directories and the id in dir, which exists, and reads the id. Fails with
 * ERR_NOT_FOUND if there is no such directory, with ERR_CORRUPT if the file of the id is damaged,
 * and otherwise as file_make_private_dir and err_errno do. */
int shared_open(const char *dir, int64_t *id, struct err *e);
/* Checks that dir still has this id. Fails with ERR_IO if it does not, as when another file system
 * or none is mounted there. May wait for the file server. */
int shared_check(const char *dir, int64_t id, struct err *e);

#define SHARED_CHECK_MS  2000  /* time from the end of one check to the next */
#define SHARED_SILENT_MS 10000 /* a check that takes longer counts as failed until it ends */

struct shared_watch;
/* Starts a thread that checks the directory at intervals, so that a file server that hangs delays
 * this thread alone. Logs each change. dir is copied. */
struct shared_watch *shared_watch_create(const char *dir, int64_t id);
void shared_watch_destroy(struct shared_watch *w); /* accepts NULL */
/* Returns whether the last check succeeded and is recent. Returns true for NULL. Call it on one
 * thread. */
bool shared_watch_good(struct shared_watch *w);

#endif
