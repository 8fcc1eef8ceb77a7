/* follow.h: follows event streams of a job. It reconnects with Last-Event-ID until the server
 * sends `event: end`, the user presses Ctrl-C, or the deadline passes. */
#ifndef SEQD_CLIENT_FOLLOW_H
#define SEQD_CLIENT_FOLLOW_H

#include "client/cli.h"
#include "client/json.h"

/* If seqd cannot be reached or is busy (api_busy) for this time, the stream ends with an error. */
#define FOLLOW_LOST_MS 60000

struct follow_item {
    const char *path; /* "/v1/jobs/12/events"; borrowed */
    /* Called with an event. `name` is the event's name, or "message" if it has none. v is its
     * data, borrowed for the call. */
    void (*call)(void *arg, const char *name, const struct jv *v);
};

struct follow_job {
    int64_t id; /* id of the job; 0 stands for all jobs */
    const struct follow_item *item;
    int n_items; /* at most 2 */
    /* called after each burst of bytes and at least once a second; may be NULL */
    void (*tick)(void *arg);
    void *arg;
    int64_t timeout_s; /* time limit of the whole call; -1 means no limit */
    /* ends the call with CLI_OK once a callback has set it; may be NULL */
    const bool *enough;
};

/* Returns CLI_OK if all streams have ended, or if *f->enough is set. Returns CLI_DETACHED after
 * Ctrl-C and CLI_TIMEOUT at the deadline; both print a message on stderr unless -q is given. For
 * any other error prints a message and returns its code. SIGINT, SIGTERM and SIGWINCH are blocked
 * from then on. */
int follow_run(struct cli *c, const struct follow_job *f);
/* Blocks SIGINT, SIGTERM and SIGWINCH, and returns an fd that is readable when one has come. The
 * caller closes it. */
int follow_signals(void);
/* Reads the pending signals. Returns SIGTERM or SIGINT if one asks seqctl to end, and otherwise 0.
 * SIGWINCH, the signal of a resized window, does not ask for that. */
int follow_signal(int fd);
/* Returns the exit code for the job's final state: 0, 10 or 11. Returns 1 if the state is not
 * final. */
int follow_verdict(const struct jv *job);

#endif
