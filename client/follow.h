/* follow.h: follows event streams of a job and reconnects with Last-Event-ID, until the server
 * sends `event: end`, the user presses Ctrl-C, or the deadline passes. */
#ifndef SEQD_CLIENT_FOLLOW_H
#define SEQD_CLIENT_FOLLOW_H

#include "client/cli.h"
#include "client/json.h"

/* Time that seqd may be away or busy (api_busy) before a stream gives up. */
#define FOLLOW_LOST_MS 60000

struct follow_item {
    const char *path; /* "/v1/jobs/12/events"; borrowed */
    /* Takes an event. name: "message" or the event's name; v: its data, borrowed for the call. */
    void (*call)(void *arg, const char *name, const struct jv *v);
};

struct follow_job {
    int64_t id; /* 0: all jobs */
    const struct follow_item *item;
    int n_items;             /* at most 2 */
    void (*tick)(void *arg); /* called after each burst of bytes, at least each second; or NULL */
    void *arg;
    int64_t timeout_s; /* -1: none */
};

/* Returns CLI_OK when all streams ended; otherwise CLI_DETACHED or CLI_TIMEOUT, with a message on
 * stderr unless -q is given, or an error with its message. Blocks SIGINT, SIGTERM and SIGWINCH,
 * which stay blocked. */
int follow_run(struct cli *c, const struct follow_job *f);
/* Returns the job's final state as an exit code: 0, 10 or 11; 1 for a state that is not final. */
int follow_verdict(const struct jv *job);

#endif
