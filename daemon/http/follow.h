/* follow.h: streams a job's events, metrics and logs as server-sent events, as they are
 * committed. */
#ifndef SEQD_DAEMON_HTTP_FOLLOW_H
#define SEQD_DAEMON_HTTP_FOLLOW_H

#include "daemon/http/routes.h"
#include "daemon/loop/control.h"

/* Largest number of streams of jobs' events, metrics and logs of one user who is no operator. A
 * further stream gets 429. The number of all streams has the limit of the HTTP server. */
#define FOLLOW_USER 500

struct follows;
struct feeds;
struct waits;
struct follows *follows_create(struct loop *l);
void follows_destroy(struct follows *f);
struct waits *follows_waits(struct follows *f);
struct feeds *follows_feeds(struct follows *f);
void follows_changed(void *arg, int64_t job); /* control_options.changed */
void follows_logged(void *arg, int64_t job);  /* control_options.logged */
enum follow_what { FOLLOW_EVENTS, FOLLOW_METRICS, FOLLOW_LOG };
struct follow_log {
    int rank;
    /* if true, the stream ends after this attempt; otherwise it continues with the next
     * attempts */
    bool one_epoch;
    int64_t epoch, offset; /* attempt and offset at which the log begins; epoch 0 means the first
                            * attempt that has a log */
};
/* Answers with a stream. The request's Last-Event-ID determines the position at which the stream
 * begins. `log` is the log to send for FOLLOW_LOG, and NULL otherwise. The stream ends when its
 * token is revoked or expires. The answer is 429 if the user has FOLLOW_USER streams. */
void follow_start(struct routes *R, struct http_req *r, const struct route_match *a,
                  enum follow_what what, const struct follow_log *log);

#endif
