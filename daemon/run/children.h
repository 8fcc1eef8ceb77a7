/* children.h: programs that a process starts and that end before it, and the signals that the
 * process gets while they run. It is for a process of one thread. */
#ifndef SEQD_DAEMON_RUN_CHILDREN_H
#define SEQD_DAEMON_RUN_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>
#include "api/core/err.h"

#define CHILDREN_MAX 4

struct child {
    pid_t pid;  /* 0 if it was not started, or if it has ended and was waited for */
    int status; /* exit code, or 128 + the signal that ended it, or -1 if it has not ended */
    int ends;   /* signal that makes the child end */
};

struct children {
    struct child child[CHILDREN_MAX];
    int signal; /* the first of SIGTERM, SIGINT, SIGHUP and SIGUSR1 that came, or 0 */
};

/* Blocks SIGCHLD and the signals above, and makes this process the parent of orphans of its
 * children, so that children_end misses none. */
void children_init(struct children *c);
struct child_files {
    int in, out, err; /* -1 stands for /dev/null; the caller closes the others */
};
/* Starts a child in a process group of its own, so that a terminal's signals are sent to this
 * process only. ends is the signal that the child gets when it should end, and when this process
 * dies. argv[0] is a path, or a name to be looked up. */
int children_start(struct children *c, int which, int ends, char *const argv[],
                   const struct child_files *f, struct err *e);
/* Waits for a signal or the end of a child, at most timeout_ms, and notes the event. */
void children_wait(struct children *c, int timeout_ms);
bool children_runs(const struct children *c, int which);
/* Sends a child its signal, and SIGKILL after timeout_ms, where 0 means at once. Returns when the
 * child has ended. */
void children_stop(struct children *c, int which, int timeout_ms);
/* Waits for the orphans of children, at most timeout_ms, and then kills them. */
void children_end(struct children *c, int timeout_ms);

#endif
