/* transfer.c: fetches a node's file chunk by chunk, and writes it to the client. */
#include "daemon/http/transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/http/range.h"
#include "daemon/http/reply.h"
#include "daemon/state/event.h"

struct transfer {
    struct transfer *next, **link; /* links of the list R->transfers */
    struct routes *R;
    struct http_req *r;      /* used until the stream is open */
    struct http_out *stream; /* used after the request is answered; NULL again when the client has
                              * gone */
    bool asking, waiting, opened;
    struct transfer_source s;
    struct range range;
    int64_t at, end; /* positions in the body: the next byte, and the end of this reply */
    struct transfer_run run;
    char stamped[RANK_PATH_SIZE]; /* path of the file that has this stamp and total */
    int64_t stamp, total;
};

static void go_on(struct transfer *t);

static void destroy(struct transfer *t)
{
    *t->link = t->next;
    if (t->next) t->next->link = t->link;
    t->s.over(t->s.arg);
    free(t);
}

static void refuse(struct transfer *t, const struct err *e)
{
    reply_fail(t->r, e);
    destroy(t);
}

static void end(struct transfer *t, bool whole)
{
    http_stream_end(t->stream, whole); /* on_closed follows */
}

/* ---- one node's share ------------------------------------------------------------------------ */

static bool node_busy(const struct transfer *t)
{
    int n = 0;
    for (const struct transfer *o = t->R->transfers; o; o = o->next)
        n += o->asking && !strcmp(o->s.node, t->s.node);
    return n >= TRANSFER_FETCHES;
}

/* Wakes the transfer of this node that has waited longest, which is the last in the list of
 * transfers. */
static void wake_next(struct routes *R, const char *node)
{
    struct transfer *found = NULL;
    for (struct transfer *o = R->transfers; o; o = o->next)
        if (o->waiting && !strcmp(o->s.node, node)) found = o;
    if (!found) return;
    found->waiting = false;
    go_on(found);
}

/* ---- the stream ------------------------------------------------------------------------------ */

static void on_closed(void *arg)
{
    struct transfer *t = arg;
    t->stream = NULL;
    if (!t->asking) destroy(t);
}

static void on_want(void *arg)
{
    go_on(arg);
}

static void outside(struct transfer *t, int64_t total)
{
    char size[48];
    struct err e;
    snprintf(size, sizeof size, "bytes */%lld", (long long)total);
    http_set_header(t->r, "Content-Range", size);
    err_field(&e, ERR_INVALID, "Range", "the range lies outside the %lld bytes of %s",
              (long long)total, t->s.name);
    reply_problem(t->r, 416, &e, NULL);
    destroy(t);
}

/* Sets the range. It is called when the size of the body is known. Returns -1 if the request has
 * been answered. */
static int resolve(struct transfer *t)
{
    int64_t from;
    if (!range_resolve(&t->range, t->s.total, &from, &t->end)) {
        outside(t, t->s.total);
        return -1;
    }
    t->at = from;
    return 0;
}

/* Opens the stream. If all streams are in use, answers with that error and returns -1. */
static int open_stream(struct transfer *t)
{
    static const struct http_stream_calls calls = {on_want, on_closed};
    char text[96];
    snprintf(text, sizeof text, "bytes %lld-%lld/%lld", (long long)t->at, (long long)t->end - 1,
             (long long)t->s.total);
    if (t->range.given) http_set_header(t->r, "Content-Range", text);
    if (*t->s.etag) http_set_header(t->r, "ETag", t->s.etag);
    http_set_header(t->r, "Accept-Ranges", "bytes");
    t->opened = true;
    t->stream = http_stream_open(t->r, t->range.given ? 206 : 200, t->s.type, t->end - t->at,
                                 &calls, t);
    if (t->stream) return 0;
    destroy(t);
    return -1;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Tells whether the chunk is of the same file as the bytes before it. */
static bool same_file(struct transfer *t, const struct msg *m)
{
    const bool first = strcmp(t->stamped, t->run.path) != 0;
    if (t->run.total >= 0 && m->total != t->run.total) return false;
    if (!first) return m->total == t->total && m->stamp == t->stamp;
    memcpy(t->stamped, t->run.path, sizeof t->stamped);
    t->total = m->total;
    t->stamp = m->stamp;
    return true;
}

/* If the body is one file, sets its size from the first chunk. Returns false if the chunk must not
 * be used, because its offset is wrong or because the request has been answered. */
static bool size_known(struct transfer *t, int64_t total)
{
    const int64_t asked = t->at;
    t->s.total = total;
    if (resolve(t)) return false;
    if (t->at == asked) return true;
    go_on(t);
    return false;
}

/* Sends the bytes of a chunk to the client. Returns false if the reply is over, or if the node was
 * asked for the next chunk. */
static bool take(struct transfer *t, const struct msg *m)
{
    if (!same_file(t, m)) {
        struct err e;
        err_set(&e, ERR_CONFLICT, "%s has been replaced on node %s: ask again", t->s.name,
                t->s.node);
        t->opened ? end(t, false) : refuse(t, &e);
        return false;
    }
    if (t->s.total < 0 && !size_known(t, m->total)) return false;
    if (!t->opened && open_stream(t)) return false;
    int64_t n = t->run.size < t->end - t->at ? t->run.size : t->end - t->at;
    if ((int64_t)m->size < n) n = (int64_t)m->size;
    if ((!n && t->at < t->end) || m->size > WIRE_CHUNK ||
        (n && http_stream_write(t->stream, m->data, (size_t)n))) {
        end(t, false); /* the file is shorter now, the node sent a wrong chunk, or the client has
                        * gone */
        return false;
    }
    t->at += n;
    return true;
}

static void on_chunk(void *arg, const struct msg *m, const struct err *e)
{
    struct transfer *t = arg;
    struct routes *R = t->R;
    char node[NODE_NAME];
    memcpy(node, t->s.node, sizeof node);
    t->asking = false;
    if (t->opened && !t->stream)
        destroy(t);
    else if (e && !t->opened)
        refuse(t, e);
    else if (e)
        end(t, false);
    else if (take(t, m))
        go_on(t);
    wake_next(R, node);
}

static void ask(struct transfer *t)
{
    struct msg m = {.type = MSG_FETCH, .job = t->s.job, .offset = t->run.offset};
    if (node_busy(t)) {
        t->waiting = true;
        return;
    }
    memcpy(m.path, t->run.path, sizeof m.path);
    t->asking = true;
    control_ask(t->R->control, t->s.node, &m, on_chunk, t);
}

/* Sends bytes until the client reads too slowly, a node must be asked, or all bytes are sent. */
static void go_on(struct transfer *t)
{
    while (!t->asking && !t->waiting && !(t->opened && !t->stream)) {
        const bool last = t->s.total >= 0 && t->at == t->end;
        if (t->opened && !last && http_stream_room(t->stream) < WIRE_CHUNK) return;
        if (!last) t->s.run(t->s.arg, t->at, &t->run);
        if (!last && *t->run.path) {
            ask(t);
            return;
        }
        if (!t->opened && open_stream(t)) return;
        if (last) {
            end(t, true);
            return;
        }
        int64_t n = t->run.size < t->end - t->at ? t->run.size : t->end - t->at;
        if (http_stream_write(t->stream, t->run.bytes, (size_t)n)) return; /* stream is closing */
        t->at += n;
    }
}

void transfers_drop(struct routes *R)
{
    while (R->transfers) destroy(R->transfers);
}

/* ---- which node ------------------------------------------------------------------------------ */

int transfer_node(const struct nodes *nodes, const char *assign, char out[NODE_NAME])
{
    struct event *ev = calloc(1, sizeof *ev);
    if (!ev) abort();
    const int rc = assign ? event_read(assign, strlen(assign), ev, NULL) : -1;
    const struct node *other = rc ? NULL : node_sharing(nodes, ev->shared, ev->node);
    memcpy(out, other ? other->name : ev->node, NODE_NAME);
    free(ev);
    return rc || !*out ? -1 : 0;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static bool not_modified(struct transfer *t)
{
    if (!*t->s.etag || !range_none_match(http_header(t->r, "if-none-match"), t->s.etag))
        return false;
    http_set_header(t->r, "ETag", t->s.etag);
    http_reply(t->r, 304, t->s.type, "", 0);
    destroy(t);
    return true;
}

void transfer_start(struct routes *R, struct http_req *r, const struct transfer_source *s)
{
    struct transfer *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->R = R;
    t->r = r;
    t->s = *s;
    t->range = range_of(http_header(r, "range"), http_header(r, "if-range"),
                        *s->etag ? s->etag : NULL);
    t->next = R->transfers;
    t->link = &R->transfers;
    if (t->next) t->next->link = &t->next;
    R->transfers = t;
    if (not_modified(t) || (s->total >= 0 && resolve(t))) return;
    if (s->total < 0 && t->range.given && t->range.first > 0) t->at = t->range.first;
    go_on(t);
}
