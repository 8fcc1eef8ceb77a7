/* watch.c: shows a job while it runs. It combines the streams of events and metrics. On a terminal
 * it redraws one picture in place; otherwise it prints plain lines. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "client/api.h"
#include "client/curve.h"
#include "client/event.h"
#include "client/follow.h"
#include "client/job.h"
#include "client/progress.h"
#include "client/screen.h"
#include "client/text.h"
#include "client/verbs.h"

enum {
    EVENTS_SHOWN = 4,
    EVENT_LINE = 320,
    CURVE_MOST = 10,  /* largest number of rows of the curve */
    OTHER_LINES = 14, /* number of lines other than the curve's, including the prompt's */
    DRAW_EVERY_MS = 100
};

struct job_watch {
    struct cli *c;
    struct jv *job;  /* the job as last fetched */
    struct jv *last; /* the newest step */
    bool job_stale;  /* an event was received, so the job must be fetched again */
    int64_t looked_at_ms;
    struct progress_said said;
    bool fresh; /* data were received since the last frame */
    struct curve curve;
    char event[EVENTS_SHOWN][EVENT_LINE];
    int n_events;
    int64_t drawn_at_ms;
    struct screen screen;
};

static bool as_data(const struct job_watch *w)
{
    return w->c->output == OUT_JSON || w->c->output == OUT_JSONL;
}

static bool as_picture(const struct job_watch *w)
{
    return !as_data(w) && screen_draws(STDOUT_FILENO);
}

static void keep_event(struct job_watch *w, const struct jv *v)
{
    if (w->n_events == EVENTS_SHOWN) {
        memmove(w->event[0], w->event[1], sizeof w->event - sizeof w->event[0]);
        w->n_events--;
    }
    event_line(v, w->event[w->n_events++], EVENT_LINE);
}

static void print_json(const struct job_watch *w, const struct jv *v)
{
    char *s = jv_dump(v, w->c->tty ? JV_ASCII : JV_COMPACT);
    puts(s);
    fflush(stdout);
    free(s);
}

static void on_event(void *arg, const char *name, const struct jv *v)
{
    struct job_watch *w = arg;
    char text[EVENT_LINE];
    w->job_stale = w->fresh = true;
    if (!strcmp(name, "end") || !jv_is_object(v)) return;
    if (as_data(w))
        print_json(w, v);
    else if (as_picture(w))
        keep_event(w, v);
    else
        puts(event_line(v, text, sizeof text));
}

static void keep_step(struct job_watch *w, const struct jv *m)
{
    struct err e = {0};
    char *copy = jv_dump(m, JV_COMPACT);
    jv_free(w->last);
    w->last = jv_parse(copy, strlen(copy), &e);
    free(copy);
    curve_add(&w->curve, jv_num(m, "step", 0), jv_num(m, "loss", NAN));
    w->fresh = true;
}

static void on_metrics(void *arg, const char *name, const struct jv *v)
{
    struct job_watch *w = arg;
    char text[512];
    if (!strcmp(name, "end") || !v) return;
    size_t n = jv_is_array(v) ? jv_len(v) : 1;
    for (size_t i = 0; i < n; i++) {
        const struct jv *m = jv_is_array(v) ? jv_at(v, i, NULL) : v;
        keep_step(w, m);
        if (as_data(w))
            print_json(w, m);
        else if (!as_picture(w))
            puts(event_step_line(m, text, sizeof text));
    }
}

/* ---- the picture ----------------------------------------------------------------------------- */

static void add_head(struct job_watch *w)
{
    char state[128], name[96], reason[256];
    const char *why = jv_str(w->job, "reason.text", NULL);
    const char *phase = jv_str(w->job, "phase", "");
    if (!strcmp(phase, jv_str(w->job, "state", ""))) phase = "";
    screen_add(&w->screen, "job %lld  %s  %s  epoch %lld  %s%s%.20s",
               (long long)jv_int(w->job, "id", 0), jv_str(w->job, "kind", ""),
               text_safe(name, sizeof name > 40 ? 40 : sizeof name, jv_str(w->job, "name", "")),
               (long long)jv_int(w->job, "epoch", 0),
               job_state_text(w->c, w->job, state, sizeof state), *phase ? ", " : "", phase);
    if (why) screen_add(&w->screen, "  %s", text_safe(reason, sizeof reason, why));
}

static bool has_pairs(const struct job_watch *w)
{
    return jv_int(w->last, "preferences.pairs", 0) > 0;
}

static void add_curve(struct job_watch *w, double steps)
{
    static char rows[CURVE_ROWS][CURVE_LINE]; /* too large for a stack */
    double low, high;
    const int more = has_pairs(w); /* the line of its pairs */
    bool utf8 = w->c->utf8;
    const char *bar = utf8 ? "│" : "|", *tick = utf8 ? "┤" : "+", *corner = utf8 ? "└" : "+";
    int columns = w->screen.columns - 11, height = w->screen.rows - OTHER_LINES - more;
    char axis[CURVE_LINE];
    size_t o = 0;
    if (height > CURVE_MOST) height = CURVE_MOST;
    if (height < 2) return;
    curve_draw(&w->curve, columns, height, steps, utf8, rows, &low, &high);
    for (int r = 0; r < height; r++) {
        double y = high - (high - low) * r / (height - 1);
        if (r % 3 == 0)
            screen_add(&w->screen, "%8.3f %s%s", y, tick, rows[r]);
        else
            screen_add(&w->screen, "%8s %s%s", "", bar, rows[r]);
    }
    for (int i = 0; i < columns && o + 4 < sizeof axis; i++)
        o += (size_t)snprintf(axis + o, sizeof axis - o, "%s", utf8 ? "─" : "-");
    screen_add(&w->screen, "%8s %s%s", "loss", corner, axis);
    screen_add(&w->screen, "%9s 0%*.0f", "step", columns - 1, steps);
}

/* Adds the bytes of rank 0 by purpose, such as "ring_kv 512.0 KiB, ...". A purpose whose bytes
 * differ from the plan is marked by !=. A purpose that has only a few bytes and matches the plan
 * is left out, because the verdict in front of the list covers it. */
static void add_bytes(struct job_watch *w)
{
    const struct jv *comm = jv_get(w->last, "comm");
    char line[512] = "";
    for (size_t i = 0; i < jv_len(comm); i++) {
        const char *name = "";
        const struct jv *v = jv_at(comm, i, &name);
        char size[TEXT_SHORT], clean[32];
        int64_t sent = jv_int(v, "bytes_sent", 0), want = jv_int(v, "planned_bytes_sent", -1);
        bool equal = sent == want &&
                     jv_int(v, "bytes_received", 0) == jv_int(v, "planned_bytes_received", -1);
        size_t n = strlen(line);
        if (sent < 1024 && equal) continue;
        snprintf(line + n, sizeof line - n, "%s %s %s%s", n ? "," : "",
                 text_safe(clean, sizeof clean, name), text_bytes(size, sent),
                 equal ? "" : " != plan");
    }
    screen_add(&w->screen, "bytes    %s formula on every rank: %s",
               jv_bool(w->last, "ledger_ok", false) ? "==" : "!=", *line ? line + 1 : "none sent");
}

static void add_numbers(struct job_watch *w, double steps)
{
    char rate[TEXT_SHORT], high[TEXT_SHORT], plan[TEXT_SHORT];
    double step = jv_num(w->last, "step", 0);
    int64_t got = jv_int(w->last, "memory.high", 0), want = jv_int(w->last, "memory.planned", 0);
    screen_add(&w->screen, "step     %.0f/%.0f   loss %.4f   grad norm %.3g   lr %.2e", step, steps,
               jv_num(w->last, "loss", NAN), jv_num(w->last, "grad_norm", NAN),
               jv_num(w->last, "lr", NAN));
    if (has_pairs(w))
        screen_add(&w->screen, "answers  margin %.4g   accuracy %.3g   rewards %.4g and %.4g",
                   jv_num(w->last, "preferences.margin", NAN),
                   jv_num(w->last, "preferences.accuracy", NAN),
                   jv_num(w->last, "preferences.reward_chosen", NAN),
                   jv_num(w->last, "preferences.reward_rejected", NAN));
    screen_add(&w->screen, "speed    %s tokens/s   step %.0f ms   waiting for comm %.1f ms",
               text_count(rate, jv_num(w->last, "tokens_s", 0)), jv_num(w->last, "step_ms", 0),
               jv_num(w->last, "comm_wait_ms", 0));
    screen_add(&w->screen, "memory   %s per rank %s plan %s", text_bytes(high, got),
               got == want ? "==" : "!=", text_bytes(plan, want));
    add_bytes(w);
}

static void add_progress(struct job_watch *w)
{
    char line[256];
    if (*progress_line(line, sizeof line, w->job)) screen_add(&w->screen, "done     %s", line);
}

static void draw(struct job_watch *w)
{
    double steps = jv_num(w->job, "steps", 0);
    screen_begin(&w->screen);
    add_head(w);
    if (w->curve.n) add_curve(w, steps);
    add_progress(w);
    if (w->last) add_numbers(w, steps);
    for (int i = 0; i < w->n_events; i++) screen_add(&w->screen, "  %s", w->event[i]);
    screen_draw(&w->screen);
    w->drawn_at_ms = clock_ms();
    w->fresh = false;
}

/* Fetches the job again. If seqd cannot be reached for a moment, the picture keeps the last known
 * state, and the streams report the lost connection. */
static void look(struct job_watch *w)
{
    struct jv *job = job_peek(w->c, jv_int(w->job, "id", 0));
    w->job_stale = false;
    w->looked_at_ms = clock_ms();
    if (!job) return;
    jv_free(w->job);
    w->job = job;
    w->fresh = true;
}

/* Prints lines about a job that does not report steps. */
static void print_progress(struct job_watch *w)
{
    char line[256];
    if (w->last || !*progress_line(line, sizeof line, w->job)) return;
    if (progress_due(&w->said, w->job, clock_ms())) puts(line);
}

static void tick(void *arg)
{
    struct job_watch *w = arg;
    const int64_t now = clock_ms();
    const bool late = now - w->drawn_at_ms >= DRAW_EVERY_MS;
    const bool shows = as_picture(w) || !w->last;
    const bool looks = shows && !as_data(w) && now - w->looked_at_ms >= JOB_PEEK_MS;
    if (looks || (late && w->job_stale && as_picture(w))) look(w);
    if (looks && !as_picture(w)) print_progress(w);
    fflush(stdout);
    if (!late || !w->fresh) return;
    if (as_picture(w)) draw(w);
    w->fresh = false;
}

static int follow(struct cli *c, struct job_watch *w, int64_t id)
{
    char events[64], metrics[64];
    snprintf(events, sizeof events, "/v1/jobs/%lld/events", (long long)id);
    snprintf(metrics, sizeof metrics, "/v1/jobs/%lld/metrics", (long long)id);
    struct follow_item item[2] = {{.path = events, .call = on_event},
                                  {.path = metrics, .call = on_metrics}};
    int rc = follow_run(c, &(struct follow_job){.id = id,
                                                .item = item,
                                                .n_items = 2,
                                                .tick = tick,
                                                .arg = w,
                                                .timeout_s = c->opt.timeout_s});
    if (rc) return rc;
    struct jv *job = NULL;
    rc = api_job(c, id, &job);
    if (rc) return rc;
    jv_free(w->job);
    w->job = job;
    if (as_picture(w)) draw(w);
    if (as_data(w)) print_json(w, job);
    job_say_end(c, job);
    return follow_verdict(job);
}

static int watch_run(struct cli *c)
{
    if (c->output == OUT_YAML || c->output == OUT_CSV)
        return cli_fail(CLI_USAGE, "watch prints -o json or jsonl, not %s", c->opt.output);
    int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    struct job_watch *w = calloc(1, sizeof *w);
    if (!w) return cli_fail(CLI_ERROR, "out of memory");
    w->c = c;
    curve_init(&w->curve);
    int rc = api_job(c, id, &w->job);
    if (!rc) {
        if (as_picture(w)) draw(w);
        rc = follow(c, w, id);
    }
    jv_free(w->job);
    jv_free(w->last);
    free(w);
    return rc;
}

const struct verb verb_watch = {
    .name = "watch",
    .operands = "ID",
    .summary = "a job live: loss curve, speed, memory, bytes",
    .min_args = 1,
    .max_args = 1,
    .run = watch_run,
    .options = OPT_TIMEOUT,
    .help =
        "Shows a job until it has ended: the loss as a curve, tokens/s, memory against the plan,\n"
        "bytes sent against the formula (== or !=), and what happens to it. In a pipe or file:\n"
        "one line an event and a step; with -o jsonl, one JSON object each. Every kind of job "
        "shows\n"
        "per cent, rate and time left; in a pipe those without steps, a line for each 5 %.\n\n"
        "  --timeout T     at most T (seconds, 30m, 24h, 7d), then exit code 124\n\n"
        "Exit code 0: the job succeeded; 10 failed; 11 cancelled. Ctrl-C detaches (130); the job\n"
        "runs on. When seqd is away for a moment the picture waits and then catches up.",
};
