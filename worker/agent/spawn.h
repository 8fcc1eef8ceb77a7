/* spawn.h: starts programs for seqw by posix_spawn: in a new session, with default signals, with
 * the three standard descriptors alone, and for seqgang its lock. A bare fork would not do: gRPC's
 * threads do not survive it. */
#ifndef SEQD_AGENT_SPAWN_H
#define SEQD_AGENT_SPAWN_H

#include "api/core/err.h"

/* Starts a program, with out_fd and err_fd as its stdout and stderr. Returns the pid, or -1. */
int spawn_program(const char *program, char *const argv[], int out_fd, int err_fd, struct err *e);
/* Starts `seqgang DIR`, its output in DIR/gang.log, lock_fd as GANG_LOCK_FD. Returns the pid, or
 * -1. */
int spawn_gang(const char *program, const char *dir, int lock_fd, struct err *e);

#endif
