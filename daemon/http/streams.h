/* streams.h: answers whose body is written piece by piece (http_stream_open of http.h). The
 * loop thread writes the bytes, and libmicrohttpd reads them on front's thread. Only http.c and
 * streams.c include this file; http.c opens a stream as the answer to a request.
 *
 * A stream that has no bytes suspends its connection until bytes are written. The pointer at
 * front_slot of a connection leads to its stream, so that the stream can be cut when its client
 * has gone. */
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
    pthread_mutex_t mutex; /* guards the members below, and each stream's flags, slot and bytes */
    struct http_out *first;
    int n; /* number of streams that are open or reserved */
};

void streams_init(struct streams *t, struct loop *loop, int max);
/* Frees the remaining streams. Call it when neither the loop nor the library uses any of them. */
void streams_fini(struct streams *t);

/* Reserves a place for a stream, which the next streams_open uses. Returns false if all places are
 * taken. */
bool streams_reserve(struct streams *t);
/* Makes a stream in a reserved place. slot is the front_slot of the connection. */
struct http_out *streams_open(struct streams *t, struct MHD_Connection *mhd, void **slot,
                              const struct http_stream_calls *calls, void *arg);
/* Makes the response that reads the stream. size is as in http_stream_open. The caller owns the
 * response. When the library destroys the response, the stream is closed. */
struct MHD_Response *streams_response(struct http_out *s, int64_t size);

/* Cuts the stream of a slot, if it has one, because the client has gone. */
void streams_cut(struct streams *t, void **slot);
void streams_cut_all(struct streams *t);
/* Notes that the slot's connection is about to be freed, and the slot with it. */
void streams_leave(struct streams *t, void **slot);

#endif
