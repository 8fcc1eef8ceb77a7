/* event.c: lists or follows the events and metrics of a job. */
#include "client/event.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/api.h"
#include "client/filter.h"
#include "client/follow.h"
#include "client/text.h"
#include "client/verbs.h"
#include "client/yaml.h"

/* Appends the members of an event's data. Members of nested objects are appended, too, except those
 * that `said` has. These objects are `detail`, the report of a rank, and its `preferences`. */
static void append_members(const struct jv *v, const struct jv *said, char *out, size_t size)
{
    for (size_t i = 0; i < jv_len(v); i++) {
        const char *key = "";
        const struct jv *m = jv_at(v, i, &key);
        size_t n = strlen(out);
        if (said && jv_get(said, key)) continue;
        if (jv_is_object(m)) {
            if (!said || !strcmp(key, "preferences")) append_members(m, said ? said : v, out, size);
            continue;
        }
        if (strstr(key, "sha256") || !strcmp(key, "instances"))
            continue; /* the text is too long for a line; -o json prints it */
        char *text = jv_text(m);
        bool sentence = !strcmp(key, "text");
        snprintf(out + n, size - n, sentence ? "  %s%s" : "  %s=%s", sentence ? "" : key, text);
        free(text);
    }
}

char *event_line(const struct jv *ev, char *out, size_t size)
{
    char line[1024], members[768] = "";
    const char *at = jv_str(ev, "at", "");
    const char *clock = strchr(at, 'T');
    append_members(jv_get(ev, "data"), NULL, members, sizeof members);
    snprintf(line, sizeof line, "%.8s  epoch %lld  %-10s%s", clock ? clock + 1 : at,
             (long long)jv_int(ev, "epoch", 0), jv_str(ev, "type", "?"), members);
    return text_safe(out, size, line);
}

/* Makes the line of an event for a list of the events of all jobs, with the job's id. */
static char *all_line(const struct jv *ev, char *out, size_t size)
{
    char line[1024];
    snprintf(out, size, "%8lld  job %-6lld %s", (long long)jv_int(ev, "seq", 0),
             (long long)jv_int(ev, "job", 0), event_line(ev, line, sizeof line));
    return out;
}

char *event_step_line(const struct jv *m, char *out, size_t size)
{
    char rate[TEXT_SHORT];
    const int n = snprintf(
        out, size,
        "step %lld  loss %.6g  grad_norm %.4g  lr %.3g  tokens/s %s  step %.1f ms  comm wait "
        "%.1f ms  bytes %s formula  memory %s plan",
        (long long)jv_int(m, "step", 0), jv_num(m, "loss", NAN), jv_num(m, "grad_norm", NAN),
        jv_num(m, "lr", 0), text_count(rate, jv_num(m, "tokens_s", 0)), jv_num(m, "step_ms", 0),
        jv_num(m, "comm_wait_ms", 0), jv_bool(m, "ledger_ok", false) ? "==" : "!=",
        jv_int(m, "memory.high", 0) == jv_int(m, "memory.planned", 0) ? "==" : "!=");
    if (jv_int(m, "preferences.pairs", 0) && n >= 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, "  margin %.4g  accuracy %.3g",
                 jv_num(m, "preferences.margin", NAN), jv_num(m, "preferences.accuracy", NAN));
    return out;
}

struct printer {
    const struct cli *c;
    char *(*line)(const struct jv *v, char *out, size_t size);
};

static void print_one(const struct printer *p, const struct jv *v)
{
    char text[1024];
    if (p->c->output == OUT_JSON || p->c->output == OUT_JSONL) {
        char *s = jv_dump(v, p->c->tty ? JV_ASCII : JV_COMPACT);
        puts(s);
        free(s);
    } else if (p->c->output == OUT_YAML) {
        puts("---");
        yaml_print(stdout, v, p->c->tty);
    } else {
        puts(p->line(v, text, sizeof text));
    }
}

static void on_event(void *arg, const char *name, const struct jv *v)
{
    const struct printer *p = arg;
    if (!strcmp(name, "end")) {
        const char *state = jv_str(v, "state", NULL);
        if (state) cli_say(p->c, "the end: %s", state);
    } else if (jv_is_array(v)) {
        for (size_t i = 0; i < jv_len(v); i++) print_one(p, jv_at(v, i, NULL));
    } else if (v) {
        print_one(p, v);
    }
    fflush(stdout);
}

/* Adds one page of a list, oldest first, to rows. `cursor` is "" for the first page, and becomes
 * the cursor of the next page, or "" at the end. */
static int read_page(struct cli *c, const char *path, char cursor[256], struct jv *rows)
{
    char page[512];
    struct jv *list = NULL;
    if (c->opt.last >= 0)
        snprintf(page, sizeof page, "%s?last=%lld", path, (long long)c->opt.last);
    else
        snprintf(page, sizeof page, "%s?limit=1000%s%s", path, *cursor ? "&cursor=" : "", cursor);
    int rc = api_get(c, page, &list);
    const struct jv *data = jv_get(list, "data");
    for (size_t i = 0; i < jv_len(data); i++) jv_add(rows, jv_share(jv_at(data, i, NULL)));
    const char *next = jv_str(list, "next_cursor", NULL);
    const bool more = !rc && next && jv_bool(list, "has_more", true) && jv_len(data);
    *cursor = 0;
    if (more) http_escape(cursor, 256, next);
    jv_free(list);
    return rc;
}

/* Prints all rows together. CSV needs this because it has only one head, and JSON because it is
 * one document. */
static void print_together(struct cli *c, struct jv *rows)
{
    struct jv *list = jv_object();
    jv_put(list, "data", jv_share(rows));
    api_print(c, list);
    jv_free(list);
}

/* Prints all pages of a list. Formats that consist of lines are printed page by page. */
static int print_list(struct cli *c, const char *path, const struct printer *p)
{
    char cursor[256] = "";
    struct jv *rows = jv_array();
    int rc;
    do {
        rc = read_page(c, path, cursor, rows);
        const bool whole = c->output == OUT_CSV || (c->output == OUT_JSON && !*cursor);
        if (rc || (whole && *cursor)) continue;
        const size_t n = jv_len(rows), last = (size_t)c->opt.last;
        for (size_t i = 0; c->opt.last >= 0 && i + last < n; i++) jv_unset(rows, "0", NULL);
        if (whole)
            print_together(c, rows);
        else
            for (size_t i = 0; i < jv_len(rows); i++) print_one(p, jv_at(rows, i, NULL));
        jv_free(rows);
        rows = jv_array();
    } while (!rc && *cursor);
    jv_free(rows);
    return rc;
}

/* Follows the events of all jobs. "gap" events are printed by follow.c itself. */
static int follow_all(struct cli *c, const struct printer *p)
{
    char *filter = filter_query(c), *path = NULL;
    if (!filter) return CLI_USAGE;
    const long long last = c->opt.last >= 0 ? (long long)c->opt.last : 0;
    if (asprintf(&path, "/v1/events?last=%lld%s", last, filter) < 0) abort();
    free(filter);
    struct follow_item item = {.path = path, .call = on_event};
    const int rc = follow_run(
        c, &(struct follow_job){
               .item = &item, .n_items = 1, .arg = (void *)p, .timeout_s = c->opt.timeout_s});
    free(path);
    return rc;
}

/* Lists the events of all jobs, page by page. CSV and JSON are printed after the last page, and
 * other formats after each page. */
static int list_all(struct cli *c, const struct printer *p)
{
    char cursor[256] = "";
    struct jv *rows = jv_array();
    char *filter = filter_query(c), *path = NULL;
    int rc = filter ? CLI_OK : CLI_USAGE;
    for (bool more = !rc; more && !rc;) {
        struct jv *list = NULL;
        const bool last = !*cursor && c->opt.last >= 0;
        if (!*cursor) snprintf(cursor, sizeof cursor, "%lld", last ? (long long)c->opt.last : 0);
        if (asprintf(&path, "/v1/events?limit=1000&%s=%s%s", last ? "last" : "cursor", cursor,
                     filter) < 0)
            abort();
        rc = api_get(c, path, &list);
        free(path);
        const struct jv *data = jv_get(list, "data");
        for (size_t i = 0; i < jv_len(data); i++) jv_add(rows, jv_share(jv_at(data, i, NULL)));
        more = jv_bool(list, "has_more", false);
        http_escape(cursor, sizeof cursor, jv_str(list, "next_cursor", "0"));
        jv_free(list);
        if (c->output == OUT_CSV || c->output == OUT_JSON) continue;
        for (size_t i = 0; i < jv_len(rows); i++) print_one(p, jv_at(rows, i, NULL));
        jv_free(rows);
        rows = jv_array();
    }
    if (!rc && (c->output == OUT_CSV || c->output == OUT_JSON)) print_together(c, rows);
    jv_free(rows);
    free(filter);
    return rc;
}

static int run(struct cli *c, const char *what,
               char *(*line)(const struct jv *v, char *out, size_t size))
{
    char path[64];
    struct printer p = {.c = c, .line = line};
    if (c->opt.follow && c->opt.last >= 0)
        return cli_fail(CLI_USAGE, "--last and --follow exclude each other");
    int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    snprintf(path, sizeof path, "/v1/jobs/%lld/%s", (long long)id, what);
    if (!c->opt.follow) return print_list(c, path, &p);
    if (c->output == OUT_CSV)
        return cli_fail(CLI_USAGE, "-o csv needs all rows at once: leave out --follow");
    struct follow_item item = {.path = path, .call = on_event};
    return follow_run(
        c, &(struct follow_job){
               .id = id, .item = &item, .n_items = 1, .arg = &p, .timeout_s = c->opt.timeout_s});
}

static int events_of_all(struct cli *c)
{
    const struct printer p = {.c = c, .line = all_line};
    if (!c->opt.follow) return list_all(c, &p);
    if (c->output == OUT_CSV)
        return cli_fail(CLI_USAGE, "-o csv needs all rows at once: leave out --follow");
    return follow_all(c, &p);
}

static int events_run(struct cli *c)
{
    if (!c->n_args) return events_of_all(c);
    if (filter_given(c) || c->opt.owner || c->opt.last >= 0)
        return cli_fail(CLI_USAGE, "a job's own events have no filter: leave out the job, or "
                                   "--state, --name, --label, --owner and --last");
    return run(c, "events", event_line);
}

static int metrics_run(struct cli *c)
{
    return run(c, "metrics", event_step_line);
}

const struct verb verb_events = {
    .name = "events",
    .operands = "[ID]",
    .summary = "what happened to a job, or to all of yours",
    .min_args = 0,
    .max_args = 1,
    .run = events_run,
    .options = OPT_FOLLOW | OPT_TIMEOUT | OPT_LAST | OPT_STATE | OPT_NAME | OPT_LABEL | OPT_OWNER,
    .help =
        "Prints the events of a job, oldest first: submit, assign, prepared, ready, checkpoint,\n"
        "checkpoint_removed, artifact, rank_exit, edit, stopped, done ... Without ID, those of "
        "all\n"
        "your jobs (of an operator: of all), each with its number and job.\n\n"
        "  -f, --follow      continue until the job has ended, without ID from now on until "
        "Ctrl-C\n"
        "                    (exit code 130)\n"
        "  --timeout T       with -f: at most T (seconds, 30m, 24h, 7d), then exit code 124\n"
        "  --last N          without ID: begin N events ago\n"
        "  --state S[,S]     without ID: of jobs that are in one of these states now,\n"
        "  -n, --name NAME   of this name,\n"
        "  -l, --label K=V   with this label,\n"
        "  --owner USER      of this user: for operators\n\n"
        "  seqctl events 12 -f -o jsonl\n"
        "  seqctl events -f --last 100 --label team=x",
};
const struct verb verb_metrics = {
    .name = "metrics",
    .operands = "ID",
    .summary = "every step: loss, speed, bytes, memory",
    .min_args = 1,
    .max_args = 1,
    .run = metrics_run,
    .options = OPT_FOLLOW | OPT_TIMEOUT | OPT_LAST,
    .help = "Prints the steps of a job. -o jsonl has every counter of every purpose, -o csv a "
            "table of\n"
            "them.\n\n"
            "  --last N        only the last N steps, at most 1000\n"
            "  -f, --follow    continue until the job has ended; Ctrl-C detaches (exit code 130)\n"
            "  --timeout T     with -f: at most T (seconds, 30m, 24h, 7d), then exit code 124",
};
