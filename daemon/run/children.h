/* children.h: programs that one process starts and outlives, and signals that the process gets
 * meanwhile. For a process of one thread. */
#ifndef SEQD_DAEMON_RUN_CHILDREN_H
#define SEQD_DAEMON_RUN_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>
#include "api/core/err.h"

#define CHILDREN_MAX 4

struct child {
    pid_t pid;  /* 0: not started, or it has ended and was waited for */
    int status; /* exit code, or 128 + the signal that ended it; -1: it has not ended */
    int ends;   /* signal that asks the child to end */
};

struct children {
    struct child child[CHILDREN_MAX];
    int signal; /* the first of SIGTERM, SIGINT, SIGHUP and SIGUSR1; 0: none came */
};

/* Blocks SIGCHLD and the signals above, and takes in orphans of children, so that children_end
 * misses none. */
void children_init(struct children *c);
struct child_files {
    int in, out, err; /* -1: /dev/null; the caller closes them */
};
/* Starts a child in a process group of its own: a terminal's signals come to this process alone.
 * ends: the signal that the child gets when it is to end, and when this process dies. argv[0]: a
 * path, or a name to look up. */
int children_start(struct children *c, int which, int ends, char *const argv[],
                   const struct child_files *f, struct err *e);
/* Waits until a signal or the end of a child, at most timeout_ms, and notes the event. */
void children_wait(struct children *c, int timeout_ms);
bool children_runs(const struct children *c, int which);
/* Sends a child its signal, and SIGKILL after timeout_ms (0: at once). Returns when it has
 * ended. */
void children_stop(struct children *c, int which, int timeout_ms);
/* Waits for the orphans of children, at most timeout_ms, then kills them. */
void children_end(struct children *c, int timeout_ms);

#endif
