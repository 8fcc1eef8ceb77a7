/* log.c: shows the logs of ranks, which it reads by offset or follows as a stream of whole lines.
 * No line is lost or printed twice, whatever happens to the connection. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/api.h"
#include "client/follow.h"
#include "client/text.h"
#include "client/verbs.h"

#define LOG_CHUNK 65536

/* Writes the bytes unchanged to a pipe or file. On a terminal it writes no control characters
 * except newlines and tabs. */
static void print_log(const struct cli *c, const char *p, size_t n)
{
    if (!c->tty) {
        fwrite(p, 1, n, stdout);
    } else {
        char *clean = malloc(n + 1);
        if (!clean) return;
        fputs(text_clean(clean, n + 1, p, n, "\n\t"), stdout);
        free(clean);
    }
    fflush(stdout);
}

/* Reads once, beginning at *offset. *end becomes true if the log is complete and all of it has
 * been read. */
static int read_once(struct cli *c, int64_t id, int64_t *offset, bool *end, size_t *n)
{
    char path[192];
    struct http_reply r;
    int len = snprintf(path, sizeof path, "/v1/jobs/%lld/logs?rank=%lld&offset=%lld&limit=%d",
                       (long long)id, (long long)(c->opt.rank < 0 ? 0 : c->opt.rank),
                       (long long)*offset, LOG_CHUNK);
    if (c->opt.epoch >= 0)
        snprintf(path + len, sizeof path - (size_t)len, "&epoch=%lld", (long long)c->opt.epoch);
    int rc = api_ask(c, &(struct http_request){.method = "GET", .path = path}, &r);
    if (rc) return rc;
    if (r.status != 200) {
        rc = api_refused(&r, path);
    } else {
        print_log(c, r.body, r.size);
        *n = r.size;
        *offset = r.next_offset >= 0 ? r.next_offset : *offset + (int64_t)r.size;
        *end = r.log_end;
    }
    http_reply_fini(&r);
    return rc;
}

/* Prints the whole log of one attempt as it is now. */
static int print_all(struct cli *c, int64_t id)
{
    int64_t offset = 0;
    for (;;) {
        bool end = false;
        size_t n = 0;
        int rc = read_once(c, id, &offset, &end, &n);
        if (rc || end || !n) return rc;
    }
}

struct tail {
    struct cli *c;
    int64_t epoch;
};

static void on_text(void *arg, const char *name, const struct jv *v)
{
    struct tail *t = arg;
    const char *text = jv_str(v, "text", NULL);
    const int64_t epoch = jv_int(v, "epoch", 0);
    if (!strcmp(name, "end")) {
        const char *state = jv_str(v, "state", NULL);
        if (state) cli_say(t->c, "the end: %s", state);
    } else if (text) {
        if (t->epoch && epoch != t->epoch) cli_say(t->c, "-- attempt %lld", (long long)epoch);
        t->epoch = epoch;
        print_log(t->c, text, strlen(text));
    }
}

static int logs_run(struct cli *c)
{
    char path[128];
    struct tail t = {.c = c};
    int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    if (!c->opt.follow) return print_all(c, id);
    int n = snprintf(path, sizeof path, "/v1/jobs/%lld/logs?rank=%lld", (long long)id,
                     (long long)(c->opt.rank < 0 ? 0 : c->opt.rank));
    if (c->opt.epoch >= 0)
        snprintf(path + n, sizeof path - (size_t)n, "&epoch=%lld", (long long)c->opt.epoch);
    struct follow_item item = {.path = path, .call = on_text};
    return follow_run(
        c, &(struct follow_job){
               .id = id, .item = &item, .n_items = 1, .arg = &t, .timeout_s = c->opt.timeout_s});
}

const struct verb verb_logs = {
    .name = "logs",
    .operands = "ID",
    .summary = "the log of one rank",
    .min_args = 1,
    .max_args = 1,
    .run = logs_run,
    .options = OPT_FOLLOW | OPT_RANK | OPT_EPOCH | OPT_TIMEOUT,
    .help = "Prints the log of one rank of a job.\n\n"
            "  --rank N        which rank (default 0)\n"
            "  --epoch N       of which attempt (default: the newest)\n"
            "  -f, --follow    all attempts, until the job has ended; Ctrl-C detaches (exit code "
            "130)\n"
            "  --timeout T     with -f: at most T (seconds, 30m, 24h, 7d), then exit code 124\n\n"
            "  seqctl logs 12 -f --rank 1",
};
