/* row_stream.h: streams that read the store as fast as their clients read them. Each asks for the
 * rows after its place, writes as many as there is room for, and waits until more is committed or
 * its client has read: it never queues. The structs of feed.c and follow.c begin with one. Loop
 * thread. tested: tests/daemon/test_seqd_feed.c, test_seqd_stream.c */
#ifndef SEQD_DAEMON_HTTP_ROW_STREAM_H
#define SEQD_DAEMON_HTTP_ROW_STREAM_H

#include <stdbool.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "daemon/http/http.h"

#define ROW_STREAM_BEAT_MS 15000             /* only a write shows that a client has gone */
#define ROW_STREAM_BEAT    ": heartbeat\n\n" /* heartbeat of text/event-stream */

struct row_streams;
struct row_stream {
    struct row_stream *next;
    struct row_streams *all;
    struct http_out *stream; /* NULL: the client is gone */
    const char *beat;        /* the text of a heartbeat */
    bool asking, again;      /* a read is under way; something happened meanwhile */
};

typedef void row_stream_call(struct row_stream *c);
struct row_streams {
    struct row_stream *first;
    int n;
    struct loop_timer *heartbeat;
    row_stream_call *pump; /* continues a stream */
    row_stream_call *free;
};
void row_streams_init(struct row_streams *all, struct loop *l, row_stream_call *pump,
                      row_stream_call *free);
void row_streams_fini(struct row_streams *all); /* frees all; the HTTP server is gone by then */

/* Answers r with a stream of c, which joins the list. -1: there is no stream, c remains the
 * caller's. */
int row_stream_open(struct row_stream *c, struct row_streams *all, struct http_req *r,
                    const char *type, const char *beat);
/* Ends a read. false: do no more, because the client is gone and c is freed, or because the read
 * failed and the stream is cut. After a cut the client comes back. */
bool row_stream_answered(struct row_stream *c, const struct err *failed);
/* Tells whether c may ask for more: no read is under way, and there is room for `size` bytes. */
bool row_stream_ready(struct row_stream *c, size_t size);

#endif
