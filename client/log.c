/* log.c: what ranks wrote. Logs are read by offset: a line is never lost or seen twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "client/api.h"
#include "client/follow.h"
#include "client/text.h"
#include "client/verbs.h"

#define LOG_CHUNK    65536
#define LOG_PAUSE_MS 300

/* Into a pipe or file the bytes go as they are; a terminal gets them cleaned. */
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

/* One read from *offset on. *end: the log is complete and read. */
static int read_once(struct cli *c, int64_t id, int64_t *offset, bool *end, size_t *n)
{
    char path[192];
    struct http_reply r;
    struct err e = {0};
    int len = snprintf(path, sizeof path, "/v1/jobs/%lld/logs?rank=%lld&offset=%lld&limit=%d",
                       (long long)id, (long long)(c->opt.rank < 0 ? 0 : c->opt.rank),
                       (long long)*offset, LOG_CHUNK);
    if (c->opt.epoch >= 0)
        snprintf(path + len, sizeof path - (size_t)len, "&epoch=%lld", (long long)c->opt.epoch);
    if (http_do(c->http, &(struct http_request){.method = "GET", .path = path}, &r, &e))
        return cli_fail(CLI_ERROR, "%s", e.text);
    int rc = CLI_OK;
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

static int logs_run(struct cli *c)
{
    int64_t id = cli_job_id(c, 0), offset = 0;
    if (id < 0) return CLI_USAGE;
    int sigs = c->opt.follow ? follow_signals() : -1;
    for (;;) {
        bool end = false;
        size_t n = 0;
        int rc = read_once(c, id, &offset, &end, &n);
        if (rc || end) return rc;
        if (!c->opt.follow && !n) return CLI_OK;
        if (c->opt.follow && follow_pause(c, sigs, n ? 1 : LOG_PAUSE_MS)) {
            cli_say(c, "\ndetached; job %lld goes on; seqctl watch %lld", (long long)id,
                    (long long)id);
            return CLI_DETACHED;
        }
    }
}

const struct verb logs_verb = {
    .name = "logs",
    .operands = "ID",
    .summary = "the log of one rank",
    .min_args = 1,
    .max_args = 1,
    .run = logs_run,
    .options = OPT_FOLLOW | OPT_RANK | OPT_EPOCH,
    .help = "Prints the log of one rank of a job.\n\n"
            "  --rank N        which rank (default 0)\n"
            "  --epoch N       of which attempt (default: the newest)\n"
            "  -f, --follow    go on until the log is complete; Ctrl-C detaches (exit code 130)\n\n"
            "  seqctl logs 12 -f --rank 1",
};
