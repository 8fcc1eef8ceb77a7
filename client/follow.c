/* follow.c: waits for bytes of the streams and for signals at the same time, and reopens a lost
 * stream after 0.1 to 2 s. */
#include "client/follow.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/clock.h"
#include "client/api.h"
#include "client/http.h"
#include "client/sse.h"

enum { MAX_ITEMS = 2, RETRY_FIRST_MS = 100, RETRY_MOST_MS = 2000 };

struct follow_line {
    struct follow_run *run;
    const struct follow_item *item;
    struct sse sse;
    struct http_stream *stream;
    bool ended;          /* `event: end` was received */
    int64_t retry_at_ms; /* time of the next try, when stream is NULL */
    int64_t lost_at_ms;  /* time since which no stream has been open, or -1 */
    int retry_ms;
};

struct follow_run {
    struct cli *c;
    const struct follow_job *f;
    struct follow_line line[MAX_ITEMS];
    bool said_lost;
};

int follow_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    assert(fd >= 0);
    return fd;
}

int follow_signal(int fd)
{
    struct signalfd_siginfo s;
    int signal = 0;
    while (read(fd, &s, sizeof s) == sizeof s)
        if (s.ssi_signo != SIGWINCH && signal != SIGTERM) signal = (int)s.ssi_signo;
    return signal;
}

static void on_event(void *arg, const struct sse_event *ev)
{
    struct follow_line *l = arg;
    struct err e = {0};
    struct jv *v = jv_parse(ev->data, ev->size, &e);
    bool end = !strcmp(ev->name, "end");
    if (!strcmp(ev->name, "gap") && jv_get(v, "from"))
        cli_say(l->run->c, "events %lld to %lld are not kept any more",
                (long long)jv_int(v, "from", 0), (long long)jv_int(v, "to", 0));
    else if (!strcmp(ev->name, "gap"))
        cli_say(l->run->c, "some of it was removed: its %s", jv_str(v, "what", "history"));
    else if (v || end)
        l->item->call(l->run->f->arg, ev->name, v);
    else
        cli_say(l->run->c, "an event that is not JSON was left out: %s", e.text);
    if (end) l->ended = true;
    jv_free(v);
}

static void on_bytes(void *arg, const char *p, size_t n)
{
    struct follow_line *l = arg;
    l->lost_at_ms = -1;
    l->retry_ms = RETRY_FIRST_MS;
    if (l->run->said_lost) {
        cli_say(l->run->c, "connected again");
        l->run->said_lost = false;
    }
    sse_feed(&l->sse, p, n);
}

static int open_line(struct follow_line *l)
{
    struct err e = {0};
    struct cli *c = l->run->c;
    char url[512];
    if (cli_url_moves(c) && !cli_url(c, url, sizeof url, &e))
        http_set_url(c->http, url); /* a restarted seqd may have a new port */
    sse_restart(&l->sse);
    l->stream = http_open(
        c->http,
        &(struct http_request){.method = "GET",
                               .path = l->item->path,
                               .accept = "text/event-stream",
                               .last_event_id = l->sse.last_id[0] ? l->sse.last_id : NULL},
        on_bytes, l, &e);
    return l->stream ? CLI_OK : cli_fail(CLI_ERROR, "%s", e.text);
}

/* Prints, only once, why no stream is open. `status` is the status in the answer of a busy server,
 * or 0 if there was no answer. */
static void say_lost(struct follow_line *l, int status, const struct err *e)
{
    if (l->run->said_lost || (!status && e->code == ERR_NONE)) return;
    if (status)
        cli_say(l->run->c, "seqd is busy (%d), trying again", status);
    else
        cli_say(l->run->c, "connection lost, trying again (%s)", e->text);
    l->run->said_lost = true;
}

/* Handles the end of l's stream. If the connection broke or the server is busy, the stream is
 * requested again. Otherwise the end was expected, or the server has refused the stream. */
static int closed_line(struct follow_line *l, bool first)
{
    struct err e = {0};
    int rc = CLI_OK;
    const int64_t now = clock_ms();
    http_done(l->stream, &e);
    const struct http_reply *r = http_answer(l->stream);
    if (l->lost_at_ms < 0) l->lost_at_ms = now;
    const bool late = now - l->lost_at_ms > FOLLOW_LOST_MS;
    const bool busy = e.code == ERR_NONE && !late && api_busy(r->status);
    const bool refused = e.code == ERR_NONE && r->status != 200 && !busy;
    if (refused) rc = api_refused(r, l->item->path);
    const bool last = l->ended || refused || late || (first && e.code != ERR_NONE);
    if (!last) say_lost(l, busy ? r->status : 0, &e);
    l->retry_at_ms = now + (busy ? api_wait_ms(r, l->retry_ms) : l->retry_ms);
    l->retry_ms = l->retry_ms * 2 > RETRY_MOST_MS ? RETRY_MOST_MS : l->retry_ms * 2;
    http_close(l->stream);
    l->stream = NULL;
    if (refused || l->ended) return rc;
    if (first && e.code != ERR_NONE) return cli_fail(CLI_ERROR, "%s", e.text);
    if (late)
        return cli_fail(CLI_ERROR, "seqd has been away for %d s; jobs may run on without it",
                        FOLLOW_LOST_MS / 1000);
    return CLI_OK;
}

/* Opens the streams whose time to be opened has come, and closes the streams that have ended.
 * *live becomes the number of streams that have not ended. */
static int tend(struct follow_run *r, int *live)
{
    *live = 0;
    for (int i = 0; i < r->f->n_items; i++) {
        struct follow_line *l = &r->line[i];
        int rc = CLI_OK;
        bool first = !l->sse.started && !l->sse.last_id[0] && l->lost_at_ms < 0;
        if (l->stream && (l->ended || http_done(l->stream, NULL)))
            rc = closed_line(l, first);
        else if (!l->stream && !l->ended && clock_ms() >= l->retry_at_ms)
            rc = open_line(l);
        if (rc) return rc;
        *live += !l->ended;
    }
    return CLI_OK;
}

static void say_left(const struct follow_run *r, const char *why)
{
    const long long id = (long long)r->f->id;
    if (id)
        cli_say(r->c, "%s; job %lld runs on; seqctl watch %lld", why, id, id);
    else
        cli_say(r->c, "%s", why);
}

static int follow_loop(struct follow_run *r, int sigs)
{
    const struct follow_job *f = r->f;
    int64_t deadline_ms = f->timeout_s >= 0 ? clock_ms() + f->timeout_s * 1000 : INT64_MAX;
    for (int live = 1;;) {
        int rc = tend(r, &live);
        if (rc || !live) return rc;
        int64_t left = deadline_ms - clock_ms();
        if (left <= 0) {
            say_left(r, "the --timeout has passed");
            return CLI_TIMEOUT;
        }
        int wait_ms = left < 1000 ? (int)left : 1000;
        for (int i = 0; i < f->n_items; i++)
            if (!r->line[i].stream && !r->line[i].ended && wait_ms > 100) wait_ms = 100;
        if (http_turn(r->c->http, wait_ms, sigs) && follow_signal(sigs)) {
            say_left(r, "\ndetached");
            return CLI_DETACHED;
        }
        if (f->tick) f->tick(f->arg);
        if (f->enough && *f->enough) return CLI_OK;
    }
}

int follow_run(struct cli *c, const struct follow_job *f)
{
    struct follow_run r = {.c = c, .f = f};
    assert(f->n_items <= MAX_ITEMS);
    for (int i = 0; i < f->n_items; i++) {
        r.line[i] = (struct follow_line){
            .run = &r, .item = &f->item[i], .lost_at_ms = -1, .retry_ms = RETRY_FIRST_MS};
        sse_init(&r.line[i].sse, on_event, &r.line[i]);
    }
    int sigs = follow_signals();
    int rc = follow_loop(&r, sigs);
    close(sigs);
    for (int i = 0; i < f->n_items; i++) {
        http_close(r.line[i].stream);
        sse_fini(&r.line[i].sse);
    }
    return rc;
}

int follow_verdict(const struct jv *job)
{
    const char *state = jv_str(job, "state", "");
    if (!strcmp(state, "succeeded")) return CLI_OK;
    if (!strcmp(state, "failed")) return CLI_JOB_FAILED;
    return !strcmp(state, "cancelled") ? CLI_JOB_CANCELLED : CLI_ERROR;
}
