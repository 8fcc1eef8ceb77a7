/* feed.h: GET /v1/events: the events of all jobs that its user may see, in the order in which they
 * were committed, as pages or as a stream (text/event-stream, application/x-ndjson).
 *
 * A feed is a cursor into the table of events, whose numbers (seq) are given out in the order of
 * commits. It reads the next FEED_ROWS events, writes those that pass its filter while there is
 * room, and never queues. An event "gap" tells which numbers the table lacks.
 * Loop thread. tested: tests/daemon/test_seqd_feed.c */
#ifndef SEQD_DAEMON_HTTP_FEED_H
#define SEQD_DAEMON_HTTP_FEED_H

#include "daemon/http/routes.h"

#define FEED_ROWS    128 /* events that one look reads, whether they pass the filter or not */
#define FEED_LOOK_MS 100 /* ms between looks while much is committed: feeds share the readers */
#define FEED_MAX     64  /* streams at once: beyond, 503 */
#define FEED_USER    16  /* streams of one user at once: beyond, 429 */

struct feeds;
/* Ends the streams whose tokens are revoked or expired. */
void feeds_guard(struct feeds *all);
struct feeds *feeds_create(struct loop *l);
void feeds_destroy(struct feeds *all); /* call it after the HTTP server is gone */
void feeds_changed(struct feeds *all); /* call it after a commit */
/* Answers r. */
void feed_start(struct feeds *all, struct routes *R, struct http_req *r,
                const struct route_match *a);

#endif
