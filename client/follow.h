/* follow.h: follows event streams of a job. It reconnects with Last-Event-ID until the server
 * sends `event: end`, the user presses Ctrl-C, or the deadline passes. */
#ifndef SEQD_CLIENT_FOLLOW_H
#define SEQD_CLIENT_FOLLOW_H

#include "client/cli.h"
#include "client/json.h"

/* Time for which seqd may be away or busy (api_busy) before a stream gives up. */
#define FOLLOW_LOST_MS 60000

struct follow_item {
    const char *path; /* "/v1/jobs/12/events"; borrowed */
    /* Takes an event. name is "message" or the event's name, and v is its data, which is borrowed
     * for the call. */
    void (*call)(void *arg, const char *name, const struct jv *v);
};

struct follow_job {
    int64_t id; /* 0 for all jobs */
    const struct follow_item *item;
    int n_items; /* at most 2 */
    /* called after each burst of bytes and at least once a second; may be NULL */
    void (*tick)(void *arg);
    void *arg;
    int64_t timeout_s; /* -1 for no limit */
};

/* Returns CLI_OK if all streams have ended. Otherwise returns CLI_DETACHED or CLI_TIMEOUT, with a
 * message on stderr unless -q is given, or another error after printing its message. Blocks
 * SIGINT, SIGTERM and SIGWINCH, and leaves them blocked. */
int follow_run(struct cli *c, const struct follow_job *f);
/* Returns the exit code for the job's final state, which is 0, 10 or 11; or 1 if the state is not
 * final. */
int follow_verdict(const struct jv *job);

#endif
