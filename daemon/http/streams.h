/* streams.h: answers whose body is written piece by piece (http_stream_open of http.h). The
 * loop thread writes the bytes, and libmicrohttpd reads them on front's thread. Only http.c and
 * streams.c include this file; http.c opens a stream as the answer to a request.
 *
 * While a stream has no bytes, its connection is suspended. front_slot of a connection points to
 * its stream, so that the stream can be ended when the client has gone. */
#ifndef SEQD_DAEMON_HTTP_STREAMS_H
#define SEQD_DAEMON_HTTP_STREAMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/loop.h"
#include "daemon/http/front.h"
#include "daemon/http/http.h"

struct MHD_Connection;
struct MHD_Response;

/* The streams of one server. */
struct streams {
    struct loop *loop;
    struct front *front; /* set by the owner before the first stream is opened; borrowed */
    int max;
    pthread_mutex_t mutex; /* guards the members below, and the flags, slot and bytes of each
                            * stream */
    struct http_out *first;
    int n; /* number of streams that are open or reserved */
};

void streams_init(struct streams *t, struct loop *loop, int max);
/* Frees the remaining streams. Call it when neither the loop nor the library uses a stream any
 * more. */
void streams_fini(struct streams *t);

/* Reserves a place for a stream, which the next streams_open uses. One token may have half of the
 * places; the token 0, which stands for the Unix socket and for requests without a token, may have
 * all. Returns 0, or the status of the refusal: 429 if the token has its half, and 503 if all
 * places are taken. */
int streams_reserve(struct streams *t, int64_t token);
/* Makes a stream in a reserved place. `slot` is the front_slot of the connection. */
struct http_out *streams_open(struct streams *t, struct MHD_Connection *mhd, void **slot,
                              int64_t token, const struct http_stream_calls *calls, void *arg);
/* Makes the response that reads the stream. `size` is that of http_stream_open. The caller owns
 * the response. When the library destroys the response, the stream is closed. */
struct MHD_Response *streams_response(struct http_out *s, int64_t size);

/* Called when the client of a connection has gone. Ends the stream of the connection's slot, if
 * there is one. */
void streams_cut(struct streams *t, void **slot);
void streams_cut_all(struct streams *t);
/* Detaches the stream from the slot. Call it before the connection, and with it the slot, is
 * freed. */
void streams_leave(struct streams *t, void **slot);

#endif
