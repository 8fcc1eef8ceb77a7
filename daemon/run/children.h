/* children.h: starts programs that end before this process, and notes the signals that this
 * process receives while the programs run. It is for a process with one thread. */
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
    int signal; /* the first signal of SIGTERM, SIGINT, SIGHUP and SIGUSR1 that this process
                 * received, or 0 */
};

/* Blocks SIGCHLD and the signals above. Also makes this process the parent of its children's
 * orphans, so that children_end finds all of them. */
void children_init(struct children *c);
struct child_files {
    int in, out, err; /* -1 stands for /dev/null; the caller closes the other descriptors */
};
/* Starts a child in a separate process group, so that a terminal sends its signals only to this
 * process. `ends` is the signal that the child receives when it should end or when this process
 * dies. argv[0] is a path, or a name to be looked up. */
int children_start(struct children *c, int which, int ends, char *const argv[],
                   const struct child_files *f, struct err *e);
/* Waits at most timeout_ms for a signal or the end of a child, and notes the event. */
void children_wait(struct children *c, int timeout_ms);
bool children_runs(const struct children *c, int which);
/* Sends the child its signal `ends`. If the child has not ended after timeout_ms, sends SIGKILL.
 * Returns when the child has ended. */
void children_stop(struct children *c, int which, int timeout_ms);
/* Waits at most timeout_ms for the ends of the children's orphans, and then kills those that are
 * left. */
void children_end(struct children *c, int timeout_ms);

#endif
