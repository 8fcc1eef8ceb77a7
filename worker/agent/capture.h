/* capture.h: runs a program and captures its output, without blocking the loop. `done` gets the
 * output once the program has ended, even if it closed its outputs before. For a program that
 * takes too long, which is killed, or prints too much, which runs to its end, `done` gets an
 * error. tested: tests/agent/test_capture.c */
#ifndef SEQD_AGENT_CAPTURE_H
#define SEQD_AGENT_CAPTURE_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"

/* Called once, when the program has ended. Gets the program's output (NUL-terminated, borrowed for
 * the call) and ERR_NONE. If the program refused (RANK_EXIT_REFUSED), gets ERR_INVALID with the
 * first line of its stderr. Otherwise gets an error of this node: ERR_PEER if another process
 * killed the program, ERR_TIMEOUT, or ERR_INTERNAL for other ends, such as a signal of its own
 * fault (rank_signal_own) or too much output. */
typedef void capture_done(void *arg, int64_t request, const char *text, size_t size,
                          const struct err *why);

struct capture_options {
    struct loop *loop;
    const char *program;
    char *const *argv; /* ends with NULL; errors name the program by argv[0] and argv[1] */
    int64_t request;   /* number handed to done */
    int64_t limit_ms;
    size_t max_size; /* most bytes that the program may print */
    capture_done *done;
    void *arg;
};

struct capture;
/* Starts the program. fails: ERR_INTERNAL if it cannot be run, ERR_PEER if no process can be
 * started. */
struct capture *capture_start(const struct capture_options *o, struct err *e);
/* Kills the program. `done` is called when it has ended, perhaps within this call. */
void capture_kill(struct capture *a);
/* Kills the program, waits for it a second at most, and frees the capture. `done` is not called.
 * For use when this process ends. NULL allowed. */
void capture_cancel(struct capture *a);

#endif
