/* sse.h: the parser of text/event-stream (WHATWG HTML, 9.2.6), fed with bytes as they come.
 * Lines may end with LF, CR or CRLF and be split anywhere. Limits: one line and one event's data
 * SSE_DATA_SIZE; a longer event is dropped up to its blank line and counted in n_dropped. */
#ifndef SEQD_CLIENT_SSE_H
#define SEQD_CLIENT_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SSE_DATA_SIZE (1 << 20)

struct sse_event {
    const char *name; /* "message" unless the stream named one */
    const char *id;   /* the last id seen so far, "" when none */
    const char *data; /* data lines joined by LF; NUL-terminated, size without it */
    size_t size;
};

struct sse {
    void (*call)(void *arg, const struct sse_event *ev);
    void *arg;
    char *line, *data; /* owned; grow to SSE_DATA_SIZE */
    size_t line_len, line_room, data_len, data_room;
    char name[64];
    char id[64];      /* id of the event being read */
    char last_id[64]; /* id of the last whole event, sent as Last-Event-ID after a reconnect */
    int64_t retry_ms; /* delay that the server asked for, or -1 */
    int64_t n_dropped;
    bool after_cr, has_data, too_long, started;
};

void sse_init(struct sse *s, void (*call)(void *, const struct sse_event *), void *arg);
void sse_feed(struct sse *s, const char *bytes, size_t n);
/* Begins a new connection: drops an unfinished event and keeps the last id. */
void sse_restart(struct sse *s);
void sse_fini(struct sse *s);

#endif
