/* follow.c: event streams (text/event-stream). A stream is a cursor into a table or a log file, so
 * it needs no queue.
 *
 * A follower asks the reader for the rows after its cursor and writes the rows that fit. Then it
 * waits until something is committed or the client has read. "id:" is the seq of an event, or
 * "seq.index" of a step within its row; Last-Event-ID continues after it. The last event is "end",
 * which has the final state. It comes after all other events, because a job's final record is
 * committed last.
 *
 * A log's stream sends the log of one rank, attempt after attempt, in messages
 * {"rank","epoch","offset","text"}. text has whole lines, unless a line is too long. "id:" is
 * "epoch.offset" of the end of text, so that a client that reconnects gets every byte exactly
 * once. Bytes that are not UTF-8 are sent as U+FFFD. A request with ?offset= gets the unchanged
 * bytes of the file.
 *
 * If rows of the job were removed (removal.h), the stream begins with "event: gap", whose data
 * describes the removal. If the job is removed while the stream runs, the stream ends with a gap
 * and the state "removed". */
#include "daemon/http/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "api/core/mem.h"
#include "api/core/removal.h"
#include "api/core/utf8.h"
#include "daemon/access/auth.h"
#include "daemon/http/feed.h"
#include "daemon/http/reply.h"
#include "daemon/http/row_stream.h"
#include "daemon/http/wait.h"
#include "daemon/state/attempt.h"
#include "daemon/state/doc.h"

#define BUCKETS      1024 /* lists of streams, by their jobs */
#define GUARD_MS     500  /* longest time for which a stream continues after the end of its token */
#define ROWS         64
#define LOG_PIECE    8192 /* bytes of a log in one message, before JSON escapes them */
#define LOG_MESSAGE  (6 * LOG_PIECE + 256)
#define MESSAGE_SIZE (EVENT_DATA_SIZE + DOC_STEP_SIZE + 512) /* bytes of the largest message */

struct follow {
    struct row_stream c;                     /* first */
    struct follow *next_of_job, **at_of_job; /* links of its bucket */
    struct control *control;
    const struct auth *auth;
    struct principal who; /* its token is 0 if the client uses the Unix socket */
    int64_t job;
    enum follow_what what;
    int64_t seq, index;    /* seq of the last row that was sent whole; number of sent steps of the
                            * next row */
    struct follow_log log; /* the log and the position in it, for FOLLOW_LOG only */
    bool was_live;         /* the job was live when the store was asked for its rows */
};

struct follows {
    struct row_streams open;
    struct follow *of_job[BUCKETS];
    struct loop_timer *guard;
    struct waits *waits;
    struct feeds *feeds;
};

static void pump(struct row_stream *c);

static void on_guard(void *arg)
{
    struct follows *all = arg;
    for (struct row_stream *c = all->open.first; c; c = c->next) {
        const struct follow *f = (struct follow *)c;
        if (c->stream && !auth_valid(f->auth, f->who.token)) http_stream_end(c->stream, true);
    }
    feeds_guard(all->feeds);
    loop_timer_set(all->guard, GUARD_MS);
}

static struct follow **bucket_of(struct follows *all, int64_t job)
{
    return &all->of_job[(uint64_t)job % BUCKETS];
}

static void add_to_bucket(struct follows *all, struct follow *f)
{
    f->at_of_job = bucket_of(all, f->job);
    f->next_of_job = *f->at_of_job;
    if (f->next_of_job) f->next_of_job->at_of_job = &f->next_of_job;
    *f->at_of_job = f;
}

static void follow_free(struct row_stream *c)
{
    struct follow *f = (struct follow *)c;
    *f->at_of_job = f->next_of_job;
    if (f->next_of_job) f->next_of_job->at_of_job = f->at_of_job;
    free(f);
}

struct follows *follows_create(struct loop *l)
{
    struct follows *all = calloc(1, sizeof *all);
    if (!all) abort();
    row_streams_init(&all->open, l, pump, follow_free);
    all->guard = loop_timer_create(l, on_guard, all);
    loop_timer_set(all->guard, GUARD_MS);
    all->waits = waits_create(l);
    all->feeds = feeds_create(l);
    return all;
}

struct waits *follows_waits(struct follows *all)
{
    return all->waits;
}

struct feeds *follows_feeds(struct follows *all)
{
    return all->feeds;
}

void follows_destroy(struct follows *all)
{
    if (!all) return;
    row_streams_fini(&all->open);
    loop_timer_destroy(all->guard);
    waits_destroy(all->waits);
    feeds_destroy(all->feeds);
    free(all);
}

static int write_message(struct follow *f, const char *id, const char *data, size_t size)
{
    char *out = mem_scratch(MESSAGE_SIZE);
    int n = snprintf(out, MESSAGE_SIZE, "id: %s\ndata: %.*s\n\n", id, (int)size, data);
    /* never happens: the size of rows is limited when they are written */
    if (n >= MESSAGE_SIZE) n = 0;
    const int rc = n ? http_stream_write(f->c.stream, out, (size_t)n) : 0;
    free(out);
    return rc;
}

static int write_event(struct follow *f, const struct store_row *row)
{
    char json[EVENT_DATA_SIZE + 256], id[24];
    int64_t n = doc_event(row->n[0], f->job, row->n[1], row->n[2], (int)row->n[3],
                          doc_is_json(row->text[0]) ? row->text[0] : "{}", json, sizeof json);
    snprintf(id, sizeof id, "%lld", (long long)row->n[0]);
    return n < 0 ? 0 : write_message(f, id, json, (size_t)n);
}

/* Writes one message for each step of a row "[{"step":1,..},{"step":2,..}]". */
static int write_steps(struct follow *f, const struct store_row *row)
{
    static const char mark[] = "{\"step\":";
    int64_t index = 0;
    if (!doc_is_json(row->text[0])) return 0;
    for (const char *p = strstr(row->text[0], mark), *next; p; p = next, index++) {
        char id[48];
        next = strstr(p + 1, mark);
        size_t n = next ? (size_t)(next - p) - 1 : strlen(p) - 1;
        if (index < f->index) continue;
        snprintf(id, sizeof id, "%lld.%lld", (long long)row->n[0], (long long)index);
        if (write_message(f, id, p, n)) return -1;
        f->index = index + 1;
    }
    return 0;
}

/* Writes a gap. Returns -1 if the stream has no room. */
static int write_gap(struct follow *f, const char *json)
{
    char *out = mem_scratch(MESSAGE_SIZE);
    const int n = snprintf(out, MESSAGE_SIZE, "event: gap\ndata: %s\n\n", json);
    const int rc = n < MESSAGE_SIZE ? http_stream_write(f->c.stream, out, (size_t)n) : 0;
    free(out);
    return rc;
}

/* Ends a stream whose job has been removed. */
static int write_removed(struct follow *f)
{
    char out[256];
    const long long id = (long long)f->job;
    int n = snprintf(out, sizeof out,
                     "event: gap\ndata: {\"job\":%lld,\"what\":\"job\"}\n\n"
                     "event: end\ndata: {\"id\":%lld,\"state\":\"removed\"}\n\n",
                     id, id);
    return http_stream_write(f->c.stream, out, (size_t)n);
}

static int write_end(struct follow *f, const char *doc)
{
    char out[128];
    /* A search is enough, because in doc the state comes before all text of clients, and quotes in
     * such text are escaped. */
    const char *at = strstr(doc, "\"state\":\"");
    int n = snprintf(out, sizeof out, "event: end\ndata: {\"id\":%lld,\"state\":\"%.*s\"}\n\n",
                     (long long)f->job, at ? (int)strcspn(at + 9, "\"") : 7,
                     at ? at + 9 : "unknown");
    return http_stream_write(f->c.stream, out, (size_t)n);
}

static void on_final(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct follow *f = arg;
    if (!row_stream_answered(&f->c, failed)) return;
    if (!(rows->n_rows ? write_end(f, rows->row[0].text[0]) : write_removed(f)))
        http_stream_end(f->c.stream, true);
    else
        f->c.again = true; /* the stream has no room; pump asks again when it has room */
}

static void on_rows(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct follow *f = arg;
    if (!row_stream_answered(&f->c, failed)) return;
    for (int i = 0; i < rows->n_rows; i++) {
        const struct store_row *row = &rows->row[i];
        if (f->what == FOLLOW_EVENTS ? write_event(f, row) : write_steps(f, row)) return;
        f->seq = row->n[0];
        f->index = 0;
    }
    if (rows->n_rows || f->c.again) {
        pump(&f->c);
    } else if (!f->was_live) {
        f->c.asking = true;
        store_read(control_store(f->control), ASK_JOB, (const int64_t[4]){f->job}, NULL, on_final,
                   f);
    }
}

/* ---- logs ------------------------------------------------------------------------------------ */

/* Returns the number of bytes to send now, or 0 if the stream must wait for more bytes. Bytes are
 * sent up to the end of the last complete line. If a line is longer than a piece, it is sent up to
 * its last whole character. `over` means that the log is complete; its last line is then sent even
 * without a line feed. */
static size_t whole_lines(const char *p, size_t n, bool over)
{
    const char *end = memrchr(p, '\n', n);
    if (end) return (size_t)(end - p) + 1;
    if (n < LOG_PIECE) return over ? n : 0;
    return n - utf8_partial(p, n); /* the result is not 0, because a character has at most 4
                                    * bytes */
}

static int write_log(struct follow *f, const char *text, size_t n)
{
    char out[LOG_MESSAGE], id[48];
    struct jwrite w;
    jwrite_init(&w, out, sizeof out);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "rank", f->log.rank);
    jwrite_int(&w, "epoch", f->log.epoch);
    jwrite_int(&w, "offset", f->log.offset);
    jwrite_strn(&w, "text", text, n);
    jwrite_end(&w);
    int64_t len = jwrite_finish(&w);
    f->log.offset += (int64_t)n;
    snprintf(id, sizeof id, "%lld.%lld", (long long)f->log.epoch, (long long)f->log.offset);
    return len < 0 ? 0 : write_message(f, id, out, (size_t)len);
}

/* Returns the attempt whose log comes next, or 0 if there is none yet. */
static int64_t next_epoch(struct follow *f, const struct job *j)
{
    int64_t next = logs_next_epoch(control_logs(f->control), f->job, f->log.rank, f->log.epoch);
    if (!next && j && j->epoch > f->log.epoch && attempt_shown(j)) next = j->epoch;
    return next;
}

/* Moves to the next attempt's log, or ends the stream. Returns false if the caller has no more
 * work for now. */
static bool leave_log(struct follow *f, const struct job *j)
{
    int64_t next = f->log.one_epoch ? 0 : next_epoch(f, j);
    if (next) {
        f->log.epoch = next;
        f->log.offset = 0;
        return true;
    }
    if (j && !f->log.one_epoch) return false;
    f->c.asking = true;
    store_read(control_store(f->control), ASK_JOB, (const int64_t[4]){f->job}, NULL, on_final, f);
    return false;
}

static bool send_piece(struct follow *f)
{
    char buf[LOG_PIECE];
    const struct job *j = control_job(f->control, f->job);
    struct follow_log *g = &f->log;
    if (!g->epoch && !(g->epoch = next_epoch(f, j))) return leave_log(f, j);
    /* Decide before the read whether the log is over. A log that is over does not grow any more,
     * so the read reaches its end. */
    const bool over = !j || g->epoch < j->epoch || (g->epoch == j->epoch && !j->attempt);
    int64_t n = logs_read(control_logs(f->control), f->job, g->epoch, g->rank, g->offset, buf,
                          sizeof buf, NULL);
    size_t take = n > 0 ? whole_lines(buf, (size_t)n, over) : 0;
    for (size_t i = 0; i < take; i++)
        /* a NUL becomes U+FFFD, because many readers of JSON cannot store a NUL */
        if (!buf[i]) buf[i] = (char)0xff;
    if (take) return !write_log(f, buf, take);
    if (n < 0 && over && g->offset) { /* the client has read a part of a log that no longer
                                       * exists */
        char json[96];
        snprintf(json, sizeof json, "{\"job\":%lld,\"what\":\"logs\",\"epoch\":%lld}",
                 (long long)f->job, (long long)g->epoch);
        write_gap(f, json); /* the stream has room for a LOG_MESSAGE */
        g->offset = 0;
    }
    return over && n <= 0 && leave_log(f, j);
}

static void pump_log(struct follow *f)
{
    while (!f->c.asking && f->c.stream && http_stream_room(f->c.stream) >= LOG_MESSAGE)
        if (!send_piece(f)) return;
}

static void pump(struct row_stream *c)
{
    struct follow *f = (struct follow *)c;
    if (f->what == FOLLOW_LOG) {
        pump_log(f);
        return;
    }
    if (!row_stream_ready(c, MESSAGE_SIZE)) return;
    f->c.asking = true;
    f->was_live = control_job(f->control, f->job) != NULL;
    store_read(control_store(f->control), f->what == FOLLOW_EVENTS ? ASK_EVENTS : ASK_METRICS,
               (const int64_t[4]){f->job, f->seq, ROWS, -1}, NULL, on_rows, f);
}

void follows_changed(void *arg, int64_t job)
{
    struct follows *all = arg;
    for (struct follow *f = *bucket_of(all, job); f; f = f->next_of_job)
        if (f->job == job) pump(&f->c);
    waits_changed(all->waits, job);
    feeds_changed(all->feeds);
}

void follows_logged(void *arg, int64_t job)
{
    struct follows *all = arg;
    for (struct follow *f = *bucket_of(all, job); f; f = f->next_of_job)
        if (f->job == job && f->what == FOLLOW_LOG) pump(&f->c);
}

struct opening {
    struct follows *all;
    struct control *control;
    const struct auth *auth;
    struct http_req *r;
    struct principal who;
    int64_t job;
    enum follow_what what;
    struct follow_log log;
};

/* Checks the number of the user's streams. On failure answers and returns -1. */
static int check_room(const struct opening *o)
{
    struct err e;
    int n = 0;
    if (o->who.role >= ROLE_OPERATOR) return 0;
    for (const struct row_stream *c = o->all->open.first; c; c = c->next)
        n += !strcmp(((const struct follow *)c)->who.user, o->who.user);
    if (n < FOLLOW_USER) return 0;
    err_set(&e, ERR_TOO_LARGE,
            "%s has %d streams of jobs, the limit of a user: end one first, or ask for pages",
            o->who.user, n);
    reply_problem(o->r, 429, &e, NULL);
    return -1;
}

/* Opens the stream. `cut` is the removal that removed rows of the job, or NULL. */
static void open_stream(struct opening *o, const char *cut)
{
    if (check_room(o)) return;
    struct follow *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->control = o->control;
    f->auth = o->auth;
    f->who = o->who;
    f->job = o->job;
    f->what = o->what;
    const char *last = http_header(o->r, "last-event-id");
    long long seq = 0, index = -1;
    f->log = o->log;
    int n = last ? sscanf(last, "%lld.%lld", &seq, &index) : 0;
    if (n == 2 && f->what == FOLLOW_LOG && seq > 0 && index >= 0) {
        f->log.epoch = seq;
        f->log.offset = index;
    } else if (n >= 1) {
        f->seq = index < 0 ? seq : seq - 1;
        f->index = index + 1;
    }
    if (row_stream_open(&f->c, &o->all->open, o->r, "text/event-stream", ROW_STREAM_BEAT)) {
        free(f);
        return;
    }
    add_to_bucket(o->all, f);
    http_stream_write(f->c.stream, "retry: 3000\n\n", 13);
    if (cut) write_gap(f, cut); /* the stream has room, because it is empty */
    pump(&f->c);
}

static void on_cut(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct opening *o = arg;
    if (failed)
        reply_fail(o->r, failed);
    else
        open_stream(o, rows->n_rows ? rows->row[0].text[0] : NULL);
    free(o);
}

static void ask_cut(struct opening *o)
{
    static const int what[] = {[FOLLOW_EVENTS] = REMOVAL_EVENTS,
                               [FOLLOW_METRICS] = REMOVAL_METRICS,
                               [FOLLOW_LOG] = REMOVAL_LOGS};
    store_read(control_store(o->control), ASK_REMOVAL, (const int64_t[4]){o->job, what[o->what]},
               NULL, on_cut, o);
}

static void on_known(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct opening *o = arg;
    struct err e;
    if (failed) {
        reply_fail(o->r, failed);
    } else if (rows->n_rows) {
        ask_cut(o);
        return;
    } else {
        err_set(&e, ERR_NOT_FOUND, "there is no job %lld", (long long)o->job);
        reply_fail(o->r, &e);
    }
    free(o);
}

void follow_start(struct routes *R, struct http_req *r, const struct route_match *a,
                  enum follow_what what, const struct follow_log *log)
{
    struct opening *o = calloc(1, sizeof *o);
    if (!o) abort();
    *o = (struct opening){.all = R->follows,
                          .control = R->control,
                          .auth = R->auth,
                          .r = r,
                          .who = a->who,
                          .job = a->id,
                          .what = what};
    if (log) o->log = *log;
    store_read(control_store(R->control), ASK_JOB, (const int64_t[4]){a->id}, NULL, on_known, o);
}
