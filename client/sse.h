/* sse.h: the parser of text/event-stream (WHATWG HTML, 9.2.6). It is given the bytes of a stream
 * as they arrive. Lines may end with LF, CR or CRLF and may be split anywhere. A line, and the
 * data of an event, may have SSE_DATA_SIZE bytes. A longer event is dropped up to its blank line
 * and counted in n_dropped. */
#ifndef SEQD_CLIENT_SSE_H
#define SEQD_CLIENT_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SSE_DATA_SIZE (1 << 20)

struct sse_event {
    const char *name; /* name of the event, or "message" if the stream has no name for the event */
    const char *id;   /* last id in the stream so far, or "" */
    const char *data; /* data lines joined by LF and ended by a NUL, which size does not count */
    size_t size;
};

struct sse {
    void (*call)(void *arg, const struct sse_event *ev);
    void *arg;
    char *line, *data; /* owned buffers, which grow to SSE_DATA_SIZE */
    size_t line_len, line_room, data_len, data_room;
    char name[64];
    char id[64];      /* id of the event that is being read */
    char last_id[64]; /* id of the last whole event, sent as Last-Event-ID after a reconnect */
    int64_t retry_ms; /* delay that the server has asked for, or -1 */
    int64_t n_dropped;
    bool after_cr, has_data, too_long, started;
};

void sse_init(struct sse *s, void (*call)(void *, const struct sse_event *), void *arg);
void sse_feed(struct sse *s, const char *bytes, size_t n);
/* Begins a new connection. Drops an unfinished event, and keeps the last id. */
void sse_restart(struct sse *s);
void sse_fini(struct sse *s);

#endif
