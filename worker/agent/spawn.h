/* spawn.h: starts programs for seqw by posix_spawn, in a new session and with default signals.
 * A program inherits only the three standard descriptors. seqgang also inherits the descriptor
 * of its lock. fork is not used, because gRPC's threads do not survive it. */
#ifndef SEQD_AGENT_SPAWN_H
#define SEQD_AGENT_SPAWN_H

#include "api/core/err.h"

/* Starts a program, with out_fd and err_fd as its stdout and stderr. Returns the pid, or -1. */
int spawn_program(const char *program, char *const argv[], int out_fd, int err_fd, struct err *e);
/* Starts `seqgang DIR`, with its output in DIR/gang.log and lock_fd as GANG_LOCK_FD. Returns the
 * pid, or -1. */
int spawn_gang(const char *program, const char *dir, int lock_fd, struct err *e);

#endif
