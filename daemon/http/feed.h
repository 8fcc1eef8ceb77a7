/* feed.h: GET /v1/events. It answers with the events of all jobs that the user may see, in the
 * order in which they were committed. The answer is a page, or a stream (text/event-stream,
 * application/x-ndjson).
 *
 * A feed is a cursor into the table of events, which are numbered (seq) in the order of commits.
 * While its stream has room, it reads the next FEED_ROWS events and writes the events that pass
 * its filter. So it never needs a queue. An event "gap" tells which numbers are missing in the
 * table. All functions are called on the loop thread. tested: tests/daemon/test_seqd_feed.c */
#ifndef SEQD_DAEMON_HTTP_FEED_H
#define SEQD_DAEMON_HTTP_FEED_H

#include "daemon/http/routes.h"

#define FEED_ROWS 128 /* events that one query reads, before the filter */
/* While commits come, feeds look once in this time (ms), with at most FEED_READS queries, because
 * they share the reader. Feeds that have the same position and filter share a query. Feeds for
 * which no query is left look the next time. */
#define FEED_LOOK_MS 100
#define FEED_READS   50
/* Largest number of streams open at the same time, and largest number that one user may have
 * among them. A further stream gets 503, and 429 if it is the user's limit. */
#define FEED_MAX  5000
#define FEED_USER 64

struct feeds;
/* Ends the streams whose tokens have been revoked or have expired. */
void feeds_guard(struct feeds *all);
struct feeds *feeds_create(struct loop *l);
void feeds_destroy(struct feeds *all); /* must be called after the HTTP server is gone */
void feeds_changed(struct feeds *all); /* must be called after each commit */
/* Answers r. */
void feed_start(struct feeds *all, struct routes *R, struct http_req *r,
                const struct route_match *a);

#endif
