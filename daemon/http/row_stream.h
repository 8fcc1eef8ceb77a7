/* row_stream.h: streams that read the store as fast as their clients read them. A stream asks for
 * the rows after its position, and writes as many as there is room for. Then it waits until more
 * rows are committed or its client has read. So it never needs a queue. The structs of feed.c and
 * follow.c begin with a struct row_stream. All functions are called on the loop thread. tested:
 * tests/daemon/test_seqd_feed.c, test_seqd_stream.c */
#ifndef SEQD_DAEMON_HTTP_ROW_STREAM_H
#define SEQD_DAEMON_HTTP_ROW_STREAM_H

#include <stdbool.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "daemon/http/http.h"

/* time between two heartbeats of a stream; heartbeats are needed because only a write shows that a
 * client has gone */
#define ROW_STREAM_BEAT_MS 15000
/* Streams have their heartbeats in this many groups, one after another, so that thousands of
 * streams do not make one long turn of the loop. */
#define ROW_STREAM_GROUPS 15
#define ROW_STREAM_BEAT   ": heartbeat\n\n" /* heartbeat of text/event-stream */

struct row_streams;
struct row_stream {
    struct row_stream *next;
    struct row_streams *all;
    struct http_out *stream; /* NULL if the client has gone */
    const char *beat;        /* the text of a heartbeat */
    int group;               /* of its heartbeat */
    /* asking: a read is under way; again: when this read has ended, a second read is needed */
    bool asking, again;
};

typedef void row_stream_call(struct row_stream *c);
struct row_streams {
    struct row_stream *first;
    int n;
    int group, next_group; /* group of the next heartbeat; group of the next stream */
    struct loop_timer *heartbeat;
    row_stream_call *pump; /* continues a stream */
    row_stream_call *free;
};
void row_streams_init(struct row_streams *all, struct loop *l, row_stream_call *pump,
                      row_stream_call *free);
/* frees all streams; call it after the HTTP server was destroyed */
void row_streams_fini(struct row_streams *all);

/* Answers r with a stream of c, and adds c to the list of streams. Returns -1 if no stream can be
 * opened; the caller then still owns c. */
int row_stream_open(struct row_stream *c, struct row_streams *all, struct http_req *r,
                    const char *type, const char *beat);
/* Ends a read. Returns false if the client has gone and c is freed, or if the read failed and the
 * stream was ended early. The caller must then do nothing more. After a failed read the client
 * connects again. */
bool row_stream_answered(struct row_stream *c, const struct err *failed);
/* Tells whether c may ask for more rows. It may if no read is under way and the stream has room
 * for `size` bytes. */
bool row_stream_ready(struct row_stream *c, size_t size);

#endif
