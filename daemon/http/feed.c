/* feed.c: answers GET /v1/events with pages and streams. Each of them is a cursor into the table
 * of events. */
#include "daemon/http/feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "api/core/mem.h"
#include "daemon/access/auth.h"
#include "daemon/http/filter.h"
#include "daemon/http/reply.h"
#include "daemon/http/row_stream.h"
#include "daemon/loop/commit.h"
#include "daemon/state/doc.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX     1000
/* largest number of bytes of an event and the text around it */
#define MESSAGE_SIZE (EVENT_DATA_SIZE + 1024)

struct event_feed {
    struct row_stream c; /* must be the first member */
    struct feeds *all;
    struct routes *R;
    struct http_req *r; /* used until the request is answered or the stream is open */
    struct principal who;
    int64_t seq;   /* seq of the last event that the feed has read */
    int64_t limit; /* largest number of events of a page */
    uint32_t states;
    char *filter; /* owns; text of ASK_FEED */
    /* feeds that wait for the rows of this feed's query; they are linked by next_member */
    struct event_feed *members, *next_member;
    bool streams; /* the client asked for a stream, not for a page */
    bool lines;   /* the stream is ndjson */
    bool due;     /* the feed has not looked since a commit */
};

struct feeds {
    struct row_streams open;
    struct loop_timer *look;
    /* looking: the timer `look` is set; changed: commits were made since all feeds became due */
    bool looking, changed;
    int n_due;
    /* the queries of this look, which feeds with the same position and filter join */
    struct event_feed *query[FEED_READS];
    int n_queries;
};

static void pump(struct row_stream *c);

/* ---- the list of feeds ----------------------------------------------------------------------- */

/* Tells whether the token is still valid. The token was checked when the request came, but a
 * stream lasts longer. */
static bool may_go_on(const struct event_feed *f)
{
    return auth_valid(f->R->auth, f->who.token);
}

void feeds_guard(struct feeds *all)
{
    for (struct row_stream *c = all->open.first; c; c = c->next)
        if (c->stream && !may_go_on((struct event_feed *)c)) http_stream_end(c->stream, true);
}

static void set_due(struct event_feed *f, bool due)
{
    f->all->n_due += due - f->due;
    f->due = due;
}

/* Makes all feeds due if commits were made, unless some feeds are still due. So each feed has its
 * turn before a feed has two. */
static void begin_round(struct feeds *all)
{
    if (!all->changed || all->n_due) return;
    all->changed = false;
    for (struct row_stream *c = all->open.first; c; c = c->next)
        set_due((struct event_feed *)c, true);
}

static bool look_at(struct event_feed *f);

/* Makes the feeds that are due read new events, as far as the queries suffice. Sets the timer for
 * the next look. */
static void look(struct feeds *all)
{
    begin_round(all);
    all->n_queries = 0;
    for (struct row_stream *c = all->open.first; c && all->n_due; c = c->next) {
        struct event_feed *f = (struct event_feed *)c;
        if (f->due && look_at(f)) set_due(f, false);
    }
    all->looking = true;
    loop_timer_set(all->look, FEED_LOOK_MS);
}

static void on_look(void *arg)
{
    struct feeds *all = arg;
    all->looking = false;
    if (all->open.first && (all->changed || all->n_due)) look(all);
}

/* Makes the feeds read new events. The feeds read immediately, unless they have read within the
 * last FEED_LOOK_MS. In that case they read when FEED_LOOK_MS is over. */
void feeds_changed(struct feeds *all)
{
    if (!all->open.first) return;
    all->changed = true;
    if (!all->looking) look(all);
}

static void feed_free(struct row_stream *c)
{
    struct event_feed *f = (struct event_feed *)c;
    set_due(f, false);
    free(f->filter);
    free(f);
}

struct feeds *feeds_create(struct loop *l)
{
    struct feeds *all = calloc(1, sizeof *all);
    if (!all) abort();
    row_streams_init(&all->open, l, pump, feed_free);
    all->look = loop_timer_create(l, on_look, all);
    return all;
}

void feeds_destroy(struct feeds *all)
{
    row_streams_fini(&all->open);
    loop_timer_destroy(all->look);
    free(all);
}

/* ---- a stream -------------------------------------------------------------------------------- */

/* Writes the event of a row of ASK_FEED. row->n has its seq, epoch, at, type and job, and the seq
 * of the row before it. Returns -1 if the event does not fit. */
static int64_t write_event(const struct store_row *row, char *out, size_t size)
{
    return doc_event(row->n[0], row->n[4], row->n[1], row->n[2], (int)row->n[3],
                     doc_is_json(row->text[0]) ? row->text[0] : "{}", out, size);
}

static void write_gap(struct jwrite *w, const struct store_row *row)
{
    jwrite_object(w, NULL);
    jwrite_int(w, "from", row->n[5] + 1);
    jwrite_int(w, "to", row->n[0] - 1);
    jwrite_end(w);
}

/* Sends a gap event if seqs just before the row's seq are missing. Returns -1 if the stream has no
 * room. */
static int send_gap(struct event_feed *f, const struct store_row *row)
{
    char json[96], out[160];
    struct jwrite w;
    if (row->n[5] + 1 >= row->n[0]) return 0;
    jwrite_init(&w, json, sizeof json);
    write_gap(&w, row);
    if (jwrite_finish(&w) < 0) abort();
    const int n = snprintf(out, sizeof out,
                           f->lines ? "{\"gap\":%s}\n" : "event: gap\ndata: %s\n\n", json);
    if (http_stream_write(f->c.stream, out, (size_t)n)) return -1;
    f->seq = row->n[0] - 1;
    return 0;
}

/* Sends the gap before a row, if there is one, and then the row. Returns -1 if the stream has no
 * room. */
static int send_row(struct event_feed *f, const struct store_row *row)
{
    char json[EVENT_DATA_SIZE + 256];
    if (send_gap(f, row)) return -1;
    if (!row->text[0] || write_event(row, json, sizeof json) < 0) return 0;
    char *out = mem_scratch(MESSAGE_SIZE);
    const int n = f->lines ? snprintf(out, MESSAGE_SIZE, "%s\n", json)
                           : snprintf(out, MESSAGE_SIZE, "id: %lld\ndata: %s\n\n",
                                      (long long)row->n[0], json);
    const int rc = n < MESSAGE_SIZE ? http_stream_write(f->c.stream, out, (size_t)n) : 0;
    free(out);
    return rc;
}

/* Sends the rows of a query. If there are more, a feed that has shared the query waits for the next
 * look, in which it shares again. */
static void take_rows(struct event_feed *f, const struct store_rows *rows, bool shared,
                      const struct err *failed)
{
    if (!row_stream_answered(&f->c, failed)) return;
    for (int i = 0; i < rows->n_rows; i++) {
        if (send_row(f, &rows->row[i])) return; /* pump continues when there is room */
        f->seq = rows->row[i].n[0];
    }
    if (!rows->n_rows && !f->c.again) return;
    if (!shared) {
        pump(&f->c);
    } else if (f->seq < control_commits(f->R->control)->last_event) {
        set_due(f, true);
        if (!f->all->looking) on_look(f->all);
    }
}

static void on_rows(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct event_feed *f = arg, *next;
    const bool shared = f->members;
    for (struct event_feed *m = f->members; m; m = next) {
        next = m->next_member;
        take_rows(m, rows, true, failed);
    }
    f->members = NULL;
    take_rows(f, rows, shared, failed);
}

static void ask(struct event_feed *f, int64_t n_rows, store_answer *answer)
{
    f->c.asking = true;
    store_read(control_store(f->R->control), ASK_FEED,
               (const int64_t[4]){0, f->seq, n_rows, f->states}, f->filter, answer, f);
}

/* Tells whether the feed may ask and has events to ask for. */
static bool wants_rows(struct event_feed *f)
{
    if (!row_stream_ready(&f->c, MESSAGE_SIZE)) return false;
    if (may_go_on(f)) return f->seq < control_commits(f->R->control)->last_event;
    http_stream_end(f->c.stream, true);
    return false;
}

static void pump(struct row_stream *c)
{
    struct event_feed *f = (struct event_feed *)c;
    if (wants_rows(f)) ask(f, FEED_ROWS, on_rows);
}

static bool same_query(const struct event_feed *a, const struct event_feed *b)
{
    return a->seq == b->seq && a->states == b->states && !strcmp(a->filter, b->filter);
}

/* Joins a query of this look, or asks. Returns false if no query is left. */
static bool look_at(struct event_feed *f)
{
    struct feeds *all = f->all;
    if (!wants_rows(f)) return true;
    for (int i = 0; i < all->n_queries; i++) {
        struct event_feed *q = all->query[i];
        if (!same_query(q, f)) continue;
        f->c.asking = true;
        f->next_member = q->members;
        q->members = f;
        return true;
    }
    if (all->n_queries == FEED_READS) return false;
    all->query[all->n_queries++] = f;
    ask(f, FEED_ROWS, on_rows);
    return true;
}

/* Checks the number of streams of the user and of all users. On failure answers and returns -1. */
static int check_room(const struct event_feed *f)
{
    struct err e;
    int n = 0;
    for (const struct row_stream *c = f->all->open.first; c; c = c->next)
        n += !strcmp(((const struct event_feed *)c)->who.user, f->who.user);
    if (n >= FEED_USER) {
        err_set(&e, ERR_TOO_LARGE,
                "%s has %d streams of all events, the limit of a user: end one first", f->who.user,
                FEED_USER);
        reply_problem(f->r, 429, &e, NULL);
        return -1;
    }
    if (f->all->open.n < FEED_MAX) return 0;
    err_set(&e, ERR_PEER,
            "%d streams of all events are open, the limit: try again, or ask for "
            "pages",
            FEED_MAX);
    reply_problem(f->r, 503, &e, NULL);
    return -1;
}

/* Sends the seq at which the feed begins, so that a client that reconnects before the first event
 * misses no event. */
static void send_start(struct event_feed *f)
{
    char out[64];
    const int n = snprintf(out, sizeof out, "retry: 3000\nid: %lld\n\n", (long long)f->seq);
    if (!f->lines) http_stream_write(f->c.stream, out, (size_t)n);
}

static void open_stream(struct event_feed *f)
{
    const char *type = f->lines ? "application/x-ndjson" : "text/event-stream";
    const char *beat = f->lines ? "{}\n" : ROW_STREAM_BEAT;
    if (check_room(f) || row_stream_open(&f->c, &f->all->open, f->r, type, beat)) {
        feed_free(&f->c);
        return;
    }
    f->r = NULL;
    send_start(f);
    pump(&f->c);
}

/* ---- a page ---------------------------------------------------------------------------------- */

static void write_page(struct jwrite *w, const struct event_feed *f, const struct store_rows *rows)
{
    const int64_t last = rows->n_rows ? rows->row[rows->n_rows - 1].n[0] : f->seq;
    char *json = malloc(EVENT_DATA_SIZE + 256), next[32];
    if (!json) abort();
    jwrite_object(w, NULL);
    jwrite_array(w, "data");
    for (int i = 0; i < rows->n_rows; i++)
        if (rows->row[i].text[0] && write_event(&rows->row[i], json, EVENT_DATA_SIZE + 256) > 0)
            jwrite_raw(w, NULL, json);
    jwrite_end(w);
    jwrite_array(w, "gaps");
    for (int i = 0; i < rows->n_rows; i++)
        if (rows->row[i].n[5] + 1 < rows->row[i].n[0]) write_gap(w, &rows->row[i]);
    jwrite_end(w);
    snprintf(next, sizeof next, "%lld", (long long)last);
    jwrite_str(w, "next_cursor", next);
    jwrite_bool(w, "has_more", rows->n_rows && last < control_commits(f->R->control)->last_event);
    jwrite_end(w);
    free(json);
}

static void on_page(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct event_feed *f = arg;
    struct jwrite w;
    size_t size = 4096;
    if (failed) {
        reply_fail(f->r, failed);
        feed_free(&f->c);
        return;
    }
    for (int i = 0; i < rows->n_rows; i++)
        size += 512 + (rows->row[i].text[0] ? strlen(rows->row[i].text[0]) : 0);
    char *out = malloc(size);
    if (!out) abort();
    jwrite_init(&w, out, size);
    write_page(&w, f, rows);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(f->r, 200, out);
    free(out);
    feed_free(&f->c);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Reads the position at which the feed starts. If Last-Event-ID is given, the feed starts after
 * it. Otherwise, if `cursor` is given, the feed starts after the cursor. Otherwise, if `last` is
 * given, the feed starts *last events ago. Without any of them a stream starts now, and a page
 * starts at the oldest event. If f->seq is already the start, *last is -1; otherwise the store
 * must find the start. On failure answers and returns -1. */
static int read_start(struct event_feed *f, int64_t *last)
{
    const char *id = http_header(f->r, "last-event-id");
    int64_t cursor;
    struct err e;
    if (reply_query_int(f->r, "cursor", -1, 0, INT64_MAX, &cursor) ||
        reply_query_int(f->r, "last", -1, 0, INT64_MAX, last) ||
        reply_query_int(f->r, "limit", PAGE_DEFAULT, 1, PAGE_MAX, &f->limit))
        return -1;
    f->seq = cursor >= 0 ? cursor : f->streams ? control_commits(f->R->control)->last_event : 0;
    if (cursor >= 0 || (id && f->streams)) *last = -1;
    if (!id || !f->streams) return 0;
    const size_t n = strspn(id, "0123456789");
    f->seq = strtoll(id, NULL, 10);
    if (n && n <= 18 && !id[n]) return 0;
    err_set(&e, ERR_INVALID, "Last-Event-ID \"%.40s\" names no event: want a number", id);
    reply_fail(f->r, &e);
    return -1;
}

/* Reads the filter. A user sees the events of its own jobs. An operator sees the events of all
 * jobs, or of one user's jobs. */
static int read_filter(struct event_feed *f, struct err *e)
{
    const char *owner = http_query(f->r, "owner");
    const bool own = f->who.role < ROLE_OPERATOR;
    struct filter by;
    if (owner && !auth_name_ok(owner))
        return err_field(e, ERR_INVALID, "owner",
                         "query parameter owner: \"%.64s\" is no user's name", owner);
    if (own && owner && strcmp(owner, f->who.user))
        return err_field(e, ERR_FORBIDDEN, "owner", "%s may see no events of %s", f->who.user,
                         owner);
    if (filter_of_query(f->r, &by, e)) return -1;
    f->states = by.states;
    f->filter = filter_json(&by, owner ? owner : own ? f->who.user : "");
    return 0;
}

static void begin(struct event_feed *f)
{
    if (f->streams)
        open_stream(f);
    else
        ask(f, f->limit, on_page);
}

static void on_start(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct event_feed *f = arg;
    f->c.asking = false;
    if (failed) {
        reply_fail(f->r, failed);
        feed_free(&f->c);
        return;
    }
    f->seq = rows->row[0].n[0];
    begin(f);
}

/* Asks the store for the start. Only the store knows which seqs exist, because an event gets its
 * seq before its commit, and some events are never stored. */
static void ask_start(struct event_feed *f, int64_t last)
{
    f->c.asking = true;
    store_read(control_store(f->R->control), ASK_FEED_START, (const int64_t[4]){0, last}, NULL,
               on_start, f);
}

void feed_start(struct feeds *all, struct routes *R, struct http_req *r,
                const struct route_match *a)
{
    const char *accept = http_header(r, "accept");
    struct event_feed *f = calloc(1, sizeof *f);
    int64_t last;
    struct err e;
    if (!f) abort();
    f->all = all;
    f->R = R;
    f->r = r;
    f->who = a->who;
    f->lines = accept && strstr(accept, "application/x-ndjson");
    f->streams = f->lines || reply_wants_stream(r);
    if (read_start(f, &last)) {
        feed_free(&f->c);
    } else if (read_filter(f, &e)) {
        reply_fail(r, &e);
        feed_free(&f->c);
    } else if (last >= 0) {
        ask_start(f, last);
    } else {
        begin(f);
    }
}
