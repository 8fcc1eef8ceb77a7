/* streams.h: answers whose body is written piece by piece (http_stream_open of http.h). The loop
 * thread writes; libmicrohttpd, on front's thread, reads. Private to http.c, which opens a stream
 * as the answer to a request.
 *
 * A stream without bytes suspends its connection until there are some. front_slot of a connection
 * leads to its stream, so that the stream of a client that is gone can be cut. */
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
    pthread_mutex_t mutex; /* guards all below, and each stream's flags, slot and bytes */
    struct http_out *first;
    int n; /* those that are open, and those that will be */
};

void streams_init(struct streams *t, struct loop *loop, int max);
/* Frees the streams that are left. Call it when neither the loop nor the library uses one. */
void streams_fini(struct streams *t);

/* Reserves the place of a stream, which streams_open takes. Returns false when all are taken. */
bool streams_reserve(struct streams *t);
/* Makes a stream in a reserved place. slot: front_slot of the connection. */
struct http_out *streams_open(struct streams *t, struct MHD_Connection *mhd, void **slot,
                              const struct http_stream_calls *calls, void *arg);
/* Makes the response that reads the stream; size as of http_stream_open. The caller owns it. When
 * the library destroys it, the stream is closed. */
struct MHD_Response *streams_response(struct http_out *s, int64_t size);

/* Cuts the stream of a slot, where it has one: its client is gone. */
void streams_cut(struct streams *t, void **slot);
void streams_cut_all(struct streams *t);
/* Notes that the slot's connection, and the slot with it, is about to go. */
void streams_leave(struct streams *t, void **slot);

#endif
