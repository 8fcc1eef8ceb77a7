/* capture.h: runs a program and captures its output without blocking the loop. `done` gets the
 * output once the program has ended, even if the program closed its outputs earlier. A program
 * that takes too long is killed. A program that prints too much runs to its end. In both cases
 * `done` gets an error. tested: tests/agent/test_capture.c */
#ifndef SEQD_AGENT_CAPTURE_H
#define SEQD_AGENT_CAPTURE_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"

/* Called once, when the program has ended. On success it gets ERR_NONE and the program's
 * output (NUL-terminated, borrowed for the call). If the program refused its request
 * (RANK_EXIT_REFUSED), it gets ERR_INVALID with the first line of the program's stderr. In all
 * other cases the fault is in this node. The error is ERR_PEER if a different process killed
 * the program, ERR_TIMEOUT if the program took too long, and ERR_INTERNAL if the program
 * printed too much. ERR_INTERNAL is also the error for every other end, such as a signal that
 * the program caused itself (rank_signal_own). */
typedef void capture_done(void *arg, int64_t request, const char *text, size_t size,
                          const struct err *why);

struct capture_options {
    struct loop *loop;
    const char *program;
    char *const *argv; /* ends with NULL; errors name the program by argv[0] and argv[1] */
    int64_t request;   /* number that is passed on to `done` */
    int64_t limit_ms;
    size_t max_size; /* largest number of bytes that the program may print */
    capture_done *done;
    void *arg;
};

struct capture;
/* Starts the program. Fails with ERR_INTERNAL if it cannot be run, or with ERR_PEER if no process
 * can be started. */
struct capture *capture_start(const struct capture_options *o, struct err *e);
/* Kills the program. `done` is called when it has ended, perhaps within this call. */
void capture_kill(struct capture *a);
/* Kills the program, waits at most a second for its end, and frees the capture. `done` is not
 * called. Call it when this process ends. NULL is allowed. */
void capture_cancel(struct capture *a);

#endif
