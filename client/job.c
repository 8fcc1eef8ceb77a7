/* job.c: the verbs ls, show, restart and explain. */
#include "client/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "client/api.h"
#include "client/filter.h"
#include "client/follow.h"
#include "client/progress.h"
#include "client/result.h"
#include "client/screen.h"
#include "client/text.h"
#include "client/verbs.h"

static const char *state_color(const char *state)
{
    if (!strcmp(state, "succeeded")) return "\033[32m";
    if (!strcmp(state, "failed")) return "\033[31m";
    if (!strcmp(state, "running")) return "\033[36m";
    return "\033[33m";
}

/* Returns the colour of a state. The head of the column has no colour. */
static const char *cell_color(const char *cell)
{
    return *cell >= 'a' && *cell <= 'z' ? state_color(cell) : NULL;
}

char *job_state_text(const struct cli *c, const struct jv *job, char *out, size_t size)
{
    char clean[64];
    const char *state = jv_str(job, "state", "unknown");
    text_safe(clean, sizeof clean, state);
    if (c->color)
        snprintf(out, size, "%s%s\033[0m", state_color(state), clean);
    else
        snprintf(out, size, "%s", clean);
    return out;
}

/* Returns the seconds from the job's time `from` to its time `to`. If the job has no time `to`,
 * counts up to now. Returns -1 if `from` is not known. */
static double seconds_between(const struct jv *job, const char *from, const char *to)
{
    const char *text[2] = {jv_str(job, from, NULL), jv_str(job, to, NULL)};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double at[2] = {-1, (double)now.tv_sec + (double)now.tv_nsec * 1e-9};
    for (int i = 0; i < 2; i++) {
        struct tm tm = {0};
        const char *rest = text[i] ? strptime(text[i], "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
        if (rest) at[i] = (double)timegm(&tm) + (*rest == '.' ? strtod(rest, NULL) : 0);
    }
    return at[0] < 0 || at[1] < at[0] ? -1 : at[1] - at[0];
}

/* Prints why the job failed. With -q only errors are printed, so the error then names the job. */
static void say_error(const struct cli *c, const struct jv *job)
{
    const char *text = jv_str(job, "error.text", "no reason given");
    const char *named = jv_str(job, "error.field", "");
    const char *field = err_begins(text, named) ? "" : named, *colon = *field ? ": " : "";
    const char *node = jv_str(job, "error.node", "");
    int64_t rank = jv_int(job, "error.rank", -1);
    char where[160] = "";
    if (rank >= 0)
        snprintf(where, sizeof where, " (rank %lld%s%s)", (long long)rank, *node ? " on " : "",
                 node);
    if (c->opt.quiet)
        cli_fail(CLI_JOB_FAILED, "job %lld failed: %s%s%s%s", (long long)jv_int(job, "id", 0),
                 field, colon, text, where);
    else
        cli_say(c, "  %s%s%s%s", field, colon, text, where);
}

void job_say_end(const struct cli *c, const struct jv *job)
{
    char took[TEXT_SHORT], result[256];
    long long id = jv_int(job, "id", 0);
    const char *state = jv_str(job, "state", "?"), *kind = jv_str(job, "kind", "");
    /* true under `seqd run`, where no seqd answers afterwards */
    const bool last = getenv("SEQD_RUN");
    cli_say(c, "job %lld %s after %s", id, state,
            text_duration(took, seconds_between(job, "created_at", "finished_at")));
    if (*result_line(job, result, sizeof result)) cli_say(c, "  %s", result);
    if (!strcmp(state, "failed")) {
        if (jv_get(job, "error") || c->opt.quiet) say_error(c, job);
        if (!last) cli_say(c, "next: seqctl logs %lld; seqctl events %lld", id, id);
    } else if (!strcmp(state, "succeeded") && !last) {
        const char *hf = jv_str(job, "result.hf", NULL);
        const char *adapter = jv_str(job, "result.adapter", NULL);
        if (hf) cli_say(c, "  model directory %s", hf);
        if (adapter) cli_say(c, "  adapter directory %s", adapter);
        const bool saves = !strcmp(kind, "train") || !strcmp(kind, "merge");
        cli_say(c, "next: seqctl %s %lld", saves ? "checkpoints" : "artifacts", id);
    }
}

struct jv *job_peek(struct cli *c, int64_t id)
{
    char path[64];
    struct http_reply r;
    struct jv *job = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%lld", (long long)id);
    if (http_do(c->http, &(struct http_request){.method = "GET", .path = path}, &r, NULL))
        return NULL;
    if (r.status == 200) job = jv_parse(r.body, r.size, NULL);
    http_reply_fini(&r);
    return job;
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct wait {
    struct cli *c;
    int64_t id, looked_ms;
    bool in_place; /* whether progress is a line of a terminal that is redrawn in place */
    struct progress_said said;
};

static void ignore(void *arg, const char *name, const struct jv *v)
{
    (void)arg, (void)name, (void)v;
}

/* Redraws the progress line at every change. If the line cannot be redrawn in place, prints new
 * lines. */
static void wait_say(struct wait *w, const struct jv *job, int64_t now)
{
    char phase[32], line[256], all[320];
    text_safe(phase, sizeof phase, jv_str(job, "phase", ""));
    progress_line(line, sizeof line, job);
    snprintf(all, sizeof all, "job %lld %s%s%s", (long long)w->id, phase, *line ? "  " : "", line);
    if (w->in_place) {
        all[text_cut(all, screen_columns(STDERR_FILENO) - 1)] = 0;
        cli_draw(all);
    } else if (progress_due(&w->said, job, now)) {
        cli_say(w->c, "%s", all);
    }
}

static void wait_tick(void *arg)
{
    struct wait *w = arg;
    const int64_t now = clock_ms();
    if (w->c->opt.quiet || now - w->looked_ms < JOB_PEEK_MS) return;
    w->looked_ms = now;
    struct jv *job = job_peek(w->c, w->id);
    if (job && !jv_str(job, "finished_at", NULL)) wait_say(w, job, now);
    jv_free(job);
}

int job_wait(struct cli *c, int64_t id, struct jv **out)
{
    char path[64];
    *out = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%lld/events", (long long)id);
    struct follow_item item = {.path = path, .call = ignore};
    struct wait w = {.c = c, .id = id, .in_place = screen_draws(STDERR_FILENO)};
    int rc = follow_run(c, &(struct follow_job){.id = id,
                                                .item = &item,
                                                .n_items = 1,
                                                .tick = wait_tick,
                                                .arg = &w,
                                                .timeout_s = c->opt.timeout_s});
    cli_draw("");
    if (rc) return rc;
    rc = api_job(c, id, out);
    return rc ? rc : follow_verdict(*out);
}

#define NAME_COLUMNS 24 /* width of a name on a terminal */
#define SLIM_COLUMNS                                                                               \
    110 /* width of the terminal below which the list has no rate, time left, loss
                          * and WHY */
/* width of a reason in the narrow list; explain and -o wide show all of it */
#define WHY_COLUMNS 60

/* ---- ls -------------------------------------------------------------------------------------- */

static void add_number(struct table *t, double v, const char *fmt)
{
    char text[TEXT_SHORT] = "-";
    if (v >= 0) snprintf(text, sizeof text, fmt, v);
    text_table_add(t, text);
}

/* If a node of a running job is away, writes the node's name and the time since which it is away.
 * Returns NULL if no node is away. */
static const char *away(const struct jv *job, char *out, size_t size)
{
    const char *node = jv_str(job, "away.node", NULL);
    if (node) snprintf(out, size, "node %s, since %s", node, jv_str(job, "away.since", "?"));
    return node ? out : NULL;
}

/* Adds a name. A long name is shortened, so that there is room for the state. */
static void add_name(struct table *t, const char *name)
{
    char cut[512];
    const bool whole = !t->columns || text_width(name) <= NAME_COLUMNS;
    snprintf(cut, sizeof cut, "%.*s...", (int)text_cut(name, NAME_COLUMNS - 3), name);
    text_table_add(t, whole ? name : cut);
}

/* Adds why a job waits or has failed, or the result of a job that has succeeded. */
static void add_why(struct table *t, const struct jv *job, bool wide)
{
    char why[1024], cut[1024];
    result_why(job, why, sizeof why);
    size_t n = wide ? strlen(why) : text_cut(why, WHY_COLUMNS);
    snprintf(cut, sizeof cut, "%.*s%s", (int)n, why, why[n] ? "..." : "");
    text_table_add(t, wide ? why : cut);
}

/* Adds a row. If `slim` is set, the row has no rate, no time left and no loss. */
static void add_row(struct table *t, const struct jv *job, bool slim, bool wide)
{
    char text[TEXT_SHORT];
    add_number(t, jv_num(job, "id", -1), "%.0f");
    add_name(t, jv_str(job, "name", ""));
    text_table_add(t, jv_str(job, "kind", ""));
    text_table_add(t, jv_str(job, "state", ""));
    text_table_add(t, progress_percent(text, job));
    if (!slim) {
        text_table_add(t, progress_rate(text, job));
        text_table_add(t, progress_eta(text, job));
        add_number(t, jv_num(job, "last_metrics.loss", -1), "%.4f");
    }
    text_table_add(t, text_duration(text, seconds_between(job, "created_at", NULL)));
    if (wide) {
        snprintf(text, sizeof text, "%lld/%lld", (long long)jv_int(job, "step", 0),
                 (long long)jv_int(job, "steps", 0));
        text_table_add(t, jv_int(job, "steps", 0) ? text : "-");
        add_number(t, jv_num(job, "ranks", -1), "%.0f");
        add_number(t, jv_num(job, "priority", -1), "%.0f");
        add_number(t, jv_num(job, "epoch", -1), "%.0f");
        text_table_add(t, jv_str(job, "node", "-"));
    }
    add_why(t, job, wide);
}

/* Prints the numbers of jobs of other users, which are the only facts about these jobs that a user
 * may see. */
static void say_others(const struct cli *c, const struct jv *others)
{
    const int64_t queued = jv_int(others, "queued", 0);
    const int64_t placed = jv_int(others, "starting", 0) + jv_int(others, "running", 0) +
                           jv_int(others, "stopping", 0);
    if (queued || placed)
        cli_say(c, "other users have %lld jobs queued and %lld on nodes", (long long)queued,
                (long long)placed);
}

static void print_jobs(const struct cli *c, const struct jv *list)
{
    static const char *const narrow[] = {"ID",  "NAME", "KIND", "STATE", "DONE", "RATE",
                                         "ETA", "LOSS", "AGE",  "WHY",   NULL};
    static const char *const wide[] = {"ID",    "NAME", "KIND", "STATE", "DONE",  "RATE",
                                       "ETA",   "LOSS", "AGE",  "STEP",  "RANKS", "PRIORITY",
                                       "EPOCH", "NODE", "WHY",  NULL};
    static const char *const narrowest[] = {"ID",   "NAME", "KIND", "STATE",
                                            "DONE", "AGE",  "WHY",  NULL};
    const struct jv *data = jv_get(list, "data");
    const bool names = c->output == OUT_NAME, all = c->output == OUT_WIDE;
    const int columns = c->output == OUT_TABLE && c->tty ? screen_columns(STDOUT_FILENO) : 0;
    const bool slim = columns && columns < SLIM_COLUMNS;
    struct table t;
    text_table_init(&t, all ? wide : slim ? narrowest : narrow);
    t.columns = columns;
    t.color_column = 3;
    if (c->output == OUT_TABLE && c->color) t.color = cell_color;
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *job = jv_at(data, i, NULL);
        if (names)
            printf("%lld\n", (long long)jv_int(job, "id", 0));
        else
            add_row(&t, job, slim, all);
    }
    if (!names) text_table_print(&t, stdout);
    say_others(c, jv_get(list, "others"));
    if (!jv_len(data)) cli_say(c, "no jobs%s", filter_given(c) ? " of that kind" : " yet");
    if (!names && jv_bool(list, "has_more", false))
        cli_say(c, "there are more: --limit N shows up to 1000");
}

static int ls_run(struct cli *c)
{
    struct jv *list = NULL;
    const int64_t limit = c->opt.limit >= 0 ? c->opt.limit : 50;
    char *filter = filter_query(c), *path = NULL;
    if (!filter) return CLI_USAGE;
    if (asprintf(&path, "/v1/jobs?limit=%lld%s", (long long)limit, filter) < 0) abort();
    int rc = api_get(c, path, &list);
    if (!rc && !api_print(c, list)) print_jobs(c, list);
    jv_free(list);
    free(path);
    free(filter);
    return rc;
}

/* ---- show ------------------------------------------------------------------------------------ */

static void line(const char *name, const char *value)
{
    char clean[1024];
    if (value && *value) printf("%-12s %s\n", name, text_safe(clean, sizeof clean, value));
}

static void print_result(const struct jv *result)
{
    for (size_t i = 0; i < jv_len(result); i++) {
        const char *key = "";
        const struct jv *v = jv_at(result, i, &key);
        char *text = jv_text(v), name[64], clean[2048];
        printf("  %-18s %s\n", text_safe(name, sizeof name, key),
               text_safe(clean, sizeof clean, text));
        free(text);
    }
}

static void print_last(const struct jv *m)
{
    char rate[TEXT_SHORT], high[TEXT_SHORT], plan[TEXT_SHORT];
    int64_t got = jv_int(m, "memory.high", 0), want = jv_int(m, "memory.planned", 0);
    if (!m) return;
    printf("%-12s %.6g   %s tokens/s\n", "loss", jv_num(m, "loss", NAN),
           text_count(rate, jv_num(m, "tokens_s", 0)));
    printf("%-12s %s %s plan %s\n", "memory", text_bytes(high, got),
           got == want ? "==" : "!=", text_bytes(plan, want));
    printf("%-12s %s formula\n", "bytes", jv_bool(m, "ledger_ok", false) ? "==" : "!=");
}

/* Prints the GPU of every rank that has one. */
static void print_gpus(const struct jv *nodes)
{
    for (size_t i = 0; i < jv_len(nodes); i++) {
        const struct jv *n = jv_at(nodes, i, NULL), *gpus = jv_get(n, "gpus");
        for (size_t k = 0; k < jv_len(gpus); k++) {
            char text[192];
            snprintf(text, sizeof text, "rank %lld: %.64s on %.64s",
                     (long long)jv_int(n, "first_rank", 0) + (long long)k,
                     jv_str(jv_at(gpus, k, NULL), NULL, "?"), jv_str(n, "node", "?"));
            line(k || i ? "" : "gpus", text);
        }
    }
}

static void print_job(const struct cli *c, const struct jv *job)
{
    char text[256], took[TEXT_SHORT], gone[128], result[256];
    const char *reason = jv_str(job, "reason.text", NULL);
    printf("%-12s %lld  %s\n", "job", (long long)jv_int(job, "id", 0), jv_str(job, "kind", ""));
    line("name", jv_str(job, "name", NULL));
    printf("%-12s %s", "state", job_state_text(c, job, text, sizeof text));
    if (strcmp(jv_str(job, "phase", ""), jv_str(job, "state", "")))
        printf("  %s", text_safe(text, sizeof text, jv_str(job, "phase", "")));
    putchar('\n');
    line("result", result_line(job, result, sizeof result));
    line("serving", result_serving(job, result, sizeof result));
    line("away", away(job, gone, sizeof gone));
    line("reason", reason);
    line(result_error(job) ? "error" : "last error", jv_str(job, "error.text", NULL));
    line("field", jv_str(job, "error.field", NULL));
    line("created", jv_str(job, "created_at", NULL));
    if (jv_get(job, "started_at"))
        line("running for", text_duration(took, seconds_between(job, "started_at", "finished_at")));
    const int64_t attempts = jv_int(job, "attempts", 0);
    snprintf(text, sizeof text, "%lld, %lld attempt%s", (long long)jv_int(job, "epoch", 0),
             (long long)attempts, attempts == 1 ? "" : "s");
    line("epoch", text);
    print_gpus(jv_get(job, "nodes"));
    if (jv_int(job, "steps", 0)) {
        snprintf(text, sizeof text, "%lld of %lld, checkpoint at %lld",
                 (long long)jv_int(job, "step", 0), (long long)jv_int(job, "steps", 0),
                 (long long)jv_int(job, "checkpoint_step", 0));
        line("step", text);
    }
    line("progress", progress_line(text, sizeof text, job));
    print_last(jv_get(job, "last_metrics"));
    if (jv_get(job, "result")) {
        puts("all of the result");
        print_result(jv_get(job, "result"));
    }
}

static int show_run(struct cli *c)
{
    struct jv *job = NULL;
    int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    int rc = api_job(c, id, &job);
    if (!rc && c->opt.field)
        rc = api_print_field(c, job);
    else if (!rc && c->output == OUT_NAME)
        printf("%lld\n", (long long)id);
    else if (!rc && !api_print(c, job))
        print_job(c, job);
    jv_free(job);
    return rc;
}

/* ---- restart, explain ------------------------------------------------------------------------ */

int job_act(struct cli *c, int64_t id, const char *action, struct jv **job)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%lld:%s", (long long)id, action);
    return api_post(c, path, NULL, NULL, job);
}

void job_print_state(struct cli *c, int64_t id, const struct jv *job)
{
    char text[128];
    if (c->output == OUT_NAME)
        printf("%lld\n", (long long)id);
    else if (!api_print(c, job))
        printf("job %lld %s\n", (long long)id, job_state_text(c, job, text, sizeof text));
}

static int restart_run(struct cli *c)
{
    struct jv *job = NULL;
    int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    int rc = job_act(c, id, "restart", &job);
    if (!rc) job_print_state(c, id, job);
    jv_free(job);
    return rc;
}

static int explain_run(struct cli *c)
{
    char clean[1024], state[128];
    struct jv *job = NULL;
    int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    int rc = api_job(c, id, &job);
    if (!rc && !api_print(c, job)) {
        const char *why = jv_str(job, "reason.text", NULL);
        const char *code = jv_str(job, "reason.code", jv_str(job, "error.code", NULL));
        if (!why) why = result_error(job);
        printf("job %lld is %s", (long long)id, job_state_text(c, job, state, sizeof state));
        if (why) printf(": %s", text_safe(clean, sizeof clean, why));
        if (why && code) printf(" (%s)", text_safe(clean, sizeof clean, code));
        putchar('\n');
    }
    jv_free(job);
    return rc;
}

const struct verb verb_ls = {
    .name = "ls",
    .operands = "",
    .summary = "jobs, newest first",
    .run = ls_run,
    .options = OPT_STATE | OPT_LIMIT | OPT_NAME | OPT_LABEL | OPT_OWNER,
    .help =
        "Lists jobs: one's own, or everyone's for an operator. WHY says why a job waits or has\n"
        "failed; of one that has succeeded it has the result, of one that serves its numbers.\n\n"
        "  --owner USER      only that user's, for an operator\n"
        "  --state S[,S]     only these: queued starting running stopping suspended succeeded\n"
        "                    failed cancelled\n"
        "  -n, --name NAME   only those of this name\n"
        "  -l, --label K=V   only those with this label; may be repeated, then all must hold\n"
        "  --limit N         at most N, up to 1000 (default 50)\n\n"
        "  seqctl ls --state running,queued\n"
        "  seqctl ls -o name | head -n 1",
};
const struct verb verb_show = {
    .name = "show",
    .operands = "ID",
    .summary = "one job: state, step, result, error",
    .min_args = 1,
    .max_args = 1,
    .run = show_run,
    .options = OPT_FIELD,
    .help = "Shows one job. -o json prints all of it, with plan and spec_effective.\n\n"
            "  --field PATH    only this member, as plain text; exit code 3 when it is null\n\n"
            "  seqctl show 12 --field result.weights_sha256",
};
const struct verb verb_restart = {
    .name = "restart",
    .operands = "ID",
    .summary = "start again without a checkpoint whose node is away",
    .min_args = 1,
    .max_args = 1,
    .run = restart_run,
    .help =
        "A job resumes from its last checkpoint, on the node that has it, and waits while that\n"
        "node is away. This gives the checkpoint up: the job starts again on other nodes, or\n"
        "from its checkpoint.resume. While the node is up the request is refused.",
};
const struct verb verb_explain = {
    .name = "explain",
    .operands = "ID",
    .summary = "why a job is queued, or why it failed",
    .min_args = 1,
    .max_args = 1,
    .run = explain_run,
    .help = "Says why a job is in its state, in one line: the counts that keep it queued, or the\n"
            "sentence of the rank that failed.",
};
