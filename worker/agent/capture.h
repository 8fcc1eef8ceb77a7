/* capture.h: runs a program for its output: a question whose answer follows later. The loop runs
 * on meanwhile, until the program has ended: also while one that closed its outputs runs on. A
 * program that takes too long is killed and answers an error. A program that prints too much runs
 * to its end, and answers an error. tested: tests/agent/test_capture.c */
#ifndef SEQD_AGENT_CAPTURE_H
#define SEQD_AGENT_CAPTURE_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"

/* Called once, when the program has ended. Gets the program's output (NUL-terminated, borrowed for
 * the call) and ERR_NONE; or ERR_INVALID and the first line of its stderr if it refused
 * (RANK_EXIT_REFUSED); or an error of this node: ERR_PEER if another process killed it,
 * ERR_TIMEOUT, ERR_INTERNAL for other ends, as for a signal of its own fault (rank_signal_own) and
 * for too much output. */
typedef void capture_done(void *arg, int64_t request, const char *text, size_t size,
                          const struct err *why);

struct capture_options {
    struct loop *loop;
    const char *program;
    char *const *argv; /* argv[0] and argv[1] name the question in sentences; NULL at the end */
    int64_t request;   /* number handed to done */
    int64_t limit_ms;
    size_t max_size; /* most bytes that the program may print */
    capture_done *done;
    void *arg;
};

struct capture;
/* Starts the program. fails: ERR_INTERNAL where it cannot be run, ERR_PEER where no process can
 * begin. */
struct capture *capture_start(const struct capture_options *o, struct err *e);
/* Kills the program; done follows when it has ended, and may be called within this call. */
void capture_kill(struct capture *a);
/* Kills the program, waits for it a second at most, and frees the capture; done is not called. For
 * the end of this process. NULL allowed. */
void capture_cancel(struct capture *a);

#endif
