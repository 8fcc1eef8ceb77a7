/* row_stream.c: keeps the lists of streams, sends their heartbeats, and ends their reads. */
#include "daemon/http/row_stream.h"

#include <stdlib.h>
#include <string.h>

static void on_beat(void *arg)
{
    struct row_streams *all = arg;
    for (struct row_stream *c = all->first; c; c = c->next)
        if (c->stream && c->group == all->group)
            http_stream_write(c->stream, c->beat, strlen(c->beat));
    all->group = (all->group + 1) % ROW_STREAM_GROUPS;
    loop_timer_set(all->heartbeat, ROW_STREAM_BEAT_MS / ROW_STREAM_GROUPS);
}

void row_streams_init(struct row_streams *all, struct loop *l, row_stream_call *pump,
                      row_stream_call *free)
{
    *all = (struct row_streams){.pump = pump, .free = free};
    all->heartbeat = loop_timer_create(l, on_beat, all);
    loop_timer_set(all->heartbeat, ROW_STREAM_BEAT_MS / ROW_STREAM_GROUPS);
}

void row_streams_fini(struct row_streams *all)
{
    for (struct row_stream *c = all->first, *next; c; c = next) {
        next = c->next;
        all->free(c);
    }
    loop_timer_destroy(all->heartbeat);
}

static void drop(struct row_stream *c)
{
    struct row_stream **at = &c->all->first;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    c->all->n--;
    c->all->free(c);
}

static void on_want(void *arg)
{
    struct row_stream *c = arg;
    c->all->pump(c);
}

static void on_closed(void *arg)
{
    struct row_stream *c = arg;
    c->stream = NULL;
    if (!c->asking) drop(c);
}

int row_stream_open(struct row_stream *c, struct row_streams *all, struct http_req *r,
                    const char *type, const char *beat)
{
    static const struct http_stream_calls calls = {on_want, on_closed};
    c->stream = http_stream_open(r, 200, type, -1, &calls, c);
    if (!c->stream) return -1;
    c->all = all;
    c->beat = beat;
    c->group = all->next_group;
    all->next_group = (all->next_group + 1) % ROW_STREAM_GROUPS;
    c->next = all->first;
    all->first = c;
    all->n++;
    return 0;
}

bool row_stream_answered(struct row_stream *c, const struct err *failed)
{
    c->asking = false;
    if (!c->stream) {
        drop(c);
        return false;
    }
    if (failed) http_stream_end(c->stream, false);
    return !failed;
}

bool row_stream_ready(struct row_stream *c, size_t size)
{
    c->again = c->asking;
    return !c->asking && c->stream && http_stream_room(c->stream) >= size;
}
