/* serve.c: starts a job that serves, waits until it takes requests, and prints lines that point
 * clients of OpenAI's API to it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/context.h"
#include "client/api.h"
#include "client/follow.h"
#include "client/job.h"
#include "client/plan.h"
#include "client/spec.h"
#include "client/submit.h"
#include "client/text.h"
#include "client/verbs.h"

/* Lengths of a model directory's job. A request has a cache of SEQ_LEN tokens, and there are
 * serve.max_requests of them, so that a model with a million positions is not given all. */
enum { SEQ_LEN = 4096, MAX_TOKENS = 1024, CONFIG_SIZE = 1 << 20, NAME_MAX_SIZE = 128 };

/* ---- the spec of a model directory ----------------------------------------------------------- */

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* Tells whether the operand is a model and not the file of a spec. A path that is not on this
 * machine may be a directory of a node. */
static bool is_model(const struct cli *c)
{
    struct stat st;
    const char *arg = c->arg[0];
    if (!strncmp(arg, "job:", 4) || !strncmp(arg, "upload:", 7) || ends_with(arg, ".gguf"))
        return true;
    return stat(arg, &st) ? *arg == '/' && !http_is_local(http_url(c->http)) : S_ISDIR(st.st_mode);
}

/* Reads the number of positions from the model's config.json. Returns 0 if this machine has no such
 * file, or if it does not say a number. */
static int64_t positions(const char *dir)
{
    static const char *const keys[] = {"max_position_embeddings",
                                       "text_config.max_position_embeddings", "n_positions"};
    char path[PATH_MAX];
    size_t size;
    int64_t n = 0;
    if (snprintf(path, sizeof path, "%s/config.json", dir) >= (int)sizeof path) return 0;
    char *text = file_read(path, CONFIG_SIZE, &size, NULL);
    struct jv *config = text ? jv_parse(text, size, NULL) : NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !n; i++) n = jv_int(config, keys[i], 0);
    jv_free(config);
    free(text);
    return n > 0 ? n : 0;
}

/* Writes a job's name for the model: the last part of its path, or job-12 of job:12. It becomes ""
 * if that is not usable as a name. */
static void name_of(const char *model, char out[NAME_MAX_SIZE + 1])
{
    const bool path = strncmp(model, "job:", 4) && strncmp(model, "upload:", 7);
    size_t n = strlen(model), from = 0;
    while (n && model[n - 1] == '/') n--;
    for (size_t i = 0; path && i < n; i++)
        if (model[i] == '/') from = i + 1;
    *out = 0;
    n -= from;
    if (n > NAME_MAX_SIZE || strspn(model + from, "0123456789.") >= n) return;
    snprintf(out, NAME_MAX_SIZE + 1, "%.*s", (int)n, model + from);
    for (char *p = out; *p; p++)
        if (*p == ':' || *p == '/') *p = '-'; /* a colon would name an adapter */
}

static void say_length(const struct cli *c, int64_t seq_len, int64_t most)
{
    char tokens[TEXT_SHORT], all[TEXT_SHORT];
    text_count(all, (double)most);
    cli_say(c,
            "a text, or a prompt with its answer, has at most %s tokens%s%s%s: "
            "--set data.seq_len=N",
            text_count(tokens, (double)seq_len), most > seq_len ? ", of the model's " : "",
            most > seq_len ? all : "", most > seq_len ? " positions" : "");
}

static int set_number(struct jv *spec, const char *path, int64_t n, struct err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)n);
    return jv_set(spec, path, text, e);
}

/* Sets a number that no option has set. */
static int set_default(struct jv *spec, const char *path, int64_t n, struct err *e)
{
    return jv_get(spec, path) ? 0 : set_number(spec, path, n, e);
}

/* Sets the lengths that no option has set. */
static int set_lengths(struct cli *c, struct jv *spec, struct err *e)
{
    const int64_t most = positions(c->arg[0]);
    if (set_default(spec, "data.seq_len", most && most < SEQ_LEN ? most : SEQ_LEN, e)) return -1;
    const int64_t seq_len = jv_int(spec, "data.seq_len", 0), half = seq_len / 2;
    say_length(c, seq_len, most);
    return set_default(spec, "sampling.max_tokens",
                       half < 1            ? 1
                       : half < MAX_TOKENS ? half
                                           : MAX_TOKENS,
                       e);
}

/* Makes the spec of a model. */
static int spec_of_model(struct cli *c, struct jv **out)
{
    char name[NAME_MAX_SIZE + 1];
    struct err e = {0};
    struct jv *spec = *out = jv_object();
    jv_put(spec, "kind", jv_string("serve", 5));
    name_of(c->arg[0], name);
    if ((*name && jv_set_str(spec, "name", name, &e)) ||
        jv_set_str(spec, "model.path", c->arg[0], &e))
        return cli_fail(CLI_ERROR, "%s", e.text);
    const int rc = spec_apply(c, spec, NULL);
    if (rc) return rc;
    return set_lengths(c, spec, &e) ? cli_fail(CLI_ERROR, "%s", e.text) : CLI_OK;
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct readiness {
    struct cli *c;
    int64_t id, looked_ms;
    bool changed, ready;
    char state[32];
};

static void on_event(void *arg, const char *name, const struct jv *v)
{
    struct readiness *r = arg;
    (void)name, (void)v;
    r->changed = true;
}

static void say_state(struct readiness *r, const struct jv *job)
{
    const char *state = jv_str(job, "state", ""), *why = jv_str(job, "reason.text", NULL);
    if (!strcmp(state, r->state) || jv_get(job, "finished_at")) return;
    snprintf(r->state, sizeof r->state, "%s", state);
    cli_say(r->c, "job %lld %s%s%s", (long long)r->id, state, why ? ": " : "", why ? why : "");
}

/* Tells whether seqd passes requests on to the job, which it does when the model is loaded. */
static bool takes_requests(const struct readiness *r)
{
    char path[64];
    struct http_reply reply;
    snprintf(path, sizeof path, "/openai/v1/models/%lld", (long long)r->id);
    if (http_do(r->c->http, &(struct http_request){.method = "GET", .path = path}, &reply, NULL))
        return false;
    const bool ready = reply.status == 200;
    http_reply_fini(&reply);
    return ready;
}

/* Looks at the job after an event, and once in JOB_PEEK_MS. */
static void look(void *arg)
{
    struct readiness *r = arg;
    const int64_t now = clock_ms();
    if (!r->changed && now - r->looked_ms < JOB_PEEK_MS) return;
    r->looked_ms = now;
    r->changed = false;
    struct jv *job = job_peek(r->c, r->id);
    if (job) say_state(r, job);
    r->ready = !strcmp(jv_str(job, "state", ""), "running") && takes_requests(r);
    jv_free(job);
}

/* Waits until the job takes requests, at most for --timeout. *job becomes the job as it is then.
 * Returns the exit code of a job that has ended before. */
static int wait_until_ready(struct cli *c, int64_t id, bool *ready, struct jv **job)
{
    char path[64];
    struct readiness r = {.c = c, .id = id};
    snprintf(path, sizeof path, "/v1/jobs/%lld/events", (long long)id);
    const struct follow_item item = {.path = path, .call = on_event};
    int rc = follow_run(c, &(struct follow_job){.id = id,
                                                .item = &item,
                                                .n_items = 1,
                                                .tick = look,
                                                .arg = &r,
                                                .timeout_s = c->opt.timeout_s,
                                                .enough = &r.ready});
    *ready = r.ready;
    if (!rc) rc = api_job(c, id, job);
    return rc || r.ready ? rc : follow_verdict(*job);
}

/* ---- lines to be pasted ---------------------------------------------------------------------- */

/* Writes s as one word of a shell. */
static void print_word(const char *s)
{
    putchar('\'');
    for (; *s; s++)
        if (*s == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*s);
    putchar('\'');
}

/* Writes the address that other programs use. A seqd that is reached by the socket of its state
 * directory has written it there. Returns false if only the socket is known. */
static bool find_door(const struct cli *c, char *out, size_t size)
{
    const char *url = http_url(c->http), *slash = strrchr(url, '/');
    char path[PATH_MAX], *text = NULL;
    size_t n;
    if (strncmp(url, "unix:", 5)) return snprintf(out, size, "%s/openai/v1", url), true;
    if (slash && snprintf(path, sizeof path, "%.*saddress", (int)(slash + 1 - url - 5), url + 5) <
                     (int)sizeof path)
        text = file_read(path, CONTEXT_URL, &n, NULL);
    if (text) text[strcspn(text, " \r\n")] = 0;
    const bool found = text && *text;
    snprintf(out, size, "%s%s/openai/v1", found && strstr(text, "://") ? "" : "http://",
             found ? text : "localhost");
    free(text);
    return found;
}

/* Prints a line that sets the API key by the place of the token. The token itself is not shown. */
static void print_key(const struct cli *c)
{
    static const char of_context[] = "s/.*\"token\": *\"\\([^\"]*\\)\".*/\\1/p";
    char file[PATH_MAX], whole[PATH_MAX], url[CONTEXT_URL];
    const bool given = cli_token_file(c, file, sizeof file);
    if (given && !strcmp(file, "-")) {
        puts("# OPENAI_API_KEY is the token that stdin had");
        return;
    }
    if (!given && (cli_url(c, url, sizeof url, NULL) || context_file(url, file, NULL) ||
                   access(file, R_OK))) {
        puts("# OPENAI_API_KEY is a token of seqd: seqctl tokens create NAME makes one");
        return;
    }
    fputs("export OPENAI_API_KEY=\"$(", stdout);
    if (given) {
        fputs("head -n 1 ", stdout);
    } else {
        fputs("sed -n ", stdout);
        print_word(of_context);
        putchar(' ');
    }
    print_word(realpath(file, whole) ? whole : file);
    puts(")\"");
}

/* Tells whether the job answers with vectors. */
static bool embeds(const struct jv *job)
{
    const struct jv *serve = jv_get(jv_get(job, "spec_effective"), "serve");
    return !strcmp(jv_str(serve, "task", ""), "embed");
}

/* Returns the body of a first request. */
static struct jv *first_body(const char *model, bool vectors)
{
    struct jv *body = jv_object();
    jv_put(body, "model", jv_string(model, strlen(model)));
    if (vectors) {
        jv_put(body, "input", jv_string("Hello", 5));
        return body;
    }
    struct jv *list = jv_array(), *message = jv_object();
    jv_put(message, "role", jv_string("user", 4));
    jv_put(message, "content", jv_string("Hello", 5));
    jv_add(list, message);
    jv_put(body, "messages", list);
    return body;
}

static void print_curl(const struct cli *c, const struct jv *job, const char *model, bool found)
{
    struct jv *body = first_body(model, embeds(job));
    struct server_context known = {0};
    const char *url = http_url(c->http), *ca = cli_ca(c);
    char *json = jv_dump(body, JV_COMPACT | JV_ASCII);
    if (!ca && !context_read(url, &known, NULL) && *known.ca) ca = known.ca;
    fputs("curl -s", stdout);
    if (!found) fputs(" --unix-socket ", stdout), print_word(url + 5);
    if (ca && found) fputs(" --cacert ", stdout), print_word(ca);
    printf(" \"$OPENAI_BASE_URL/%s\"", embeds(job) ? "embeddings" : "chat/completions");
    fputs(" -H \"Authorization: Bearer $OPENAI_API_KEY\""
          " -H 'Content-Type: application/json' -d ",
          stdout);
    print_word(json);
    putchar('\n');
    explicit_bzero(&known, sizeof known);
    free(json);
    jv_free(body);
}

/* Tells whether a shell reads the name as one word. */
static bool is_plain(const char *name)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    return *name && *name != '-' && !name[strspn(name, plain)];
}

static void print_ready(const struct cli *c, const struct jv *job)
{
    char base[CONTEXT_URL + 32], id[24];
    const bool found = find_door(c, base, sizeof base);
    snprintf(id, sizeof id, "%lld", (long long)jv_int(job, "id", 0));
    const char *name = jv_str(job, "name", ""), *model = *name ? name : id;
    if (c->output == OUT_NAME) {
        puts(id);
    } else if (c->opt.quiet) {
        puts(base);
    } else if (!api_print(c, job)) {
        printf("export OPENAI_BASE_URL=%s\n", base);
        print_key(c);
        print_curl(c, job, model, found);
    }
    fflush(stdout);
    if (embeds(job))
        cli_say(c, "job %s runs until it is cancelled; next: seqctl cancel %s", id, id);
    else
        cli_say(c, "job %s runs until it is cancelled; next: seqctl chat %s; seqctl cancel %s", id,
                is_plain(name) ? name : id, id);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int start(struct cli *c, const struct jv *spec)
{
    struct jv *job = NULL;
    bool ready = false;
    int rc = submit_spec(c, spec, &job);
    if (rc) return rc;
    const int64_t id = jv_int(job, "id", 0);
    jv_free(job);
    job = NULL;
    rc = wait_until_ready(c, id, &ready, &job);
    if (job && ready)
        print_ready(c, job);
    else if (job)
        job_say_end(c, job);
    jv_free(job);
    return rc;
}

static int serve_run(struct cli *c)
{
    struct jv *spec = NULL;
    int rc = is_model(c) ? spec_of_model(c, &spec) : spec_load(c, "serve", &spec);
    if (!rc) rc = c->opt.dry_run ? plan_spec(c, spec) : start(c, spec);
    jv_free(spec);
    return rc;
}

const struct verb verb_serve = {
    .name = "serve",
    .operands = "FILE|DIR|-",
    .summary = "answer OpenAI's API with a model",
    .min_args = 1,
    .max_args = 1,
    .run = serve_run,
    .options = OPT_DRY_RUN | OPT_NAME | OPT_SET | OPT_UNSET | OPT_TIMEOUT,
    .help =
        "Starts a job of kind \"serve\", waits until it takes requests, and prints lines for a\n"
        "shell: OPENAI_BASE_URL, OPENAI_API_KEY (by the file of the token) and a request. The job\n"
        "runs on until seqctl cancel ends it.\n\n"
        "The operand is a spec, or a model: a directory, a GGUF file, job:ID or upload:NAME. A\n"
        "model's job has its name; a request has as many tokens as the model has positions, at\n"
        "most 4096, of which an answer has at most half and 1024.\n\n"
        "  -n, --name NAME   call it NAME, which is the \"model\" of requests\n"
        "  --set PATH=VALUE  change a field of the spec; may be repeated\n"
        "  --unset PATH      remove one; may be repeated\n"
        "  --dry-run         only plan it\n"
        "  --timeout T       wait at most T (seconds, 30m, 24h, 7d), then exit code 124\n"
        "  -q                print the base URL alone\n\n"
        "Exit code 10 or 11 if the job failed or was cancelled before it took requests. Ctrl-C\n"
        "while waiting detaches (exit code 130).\n\n"
        "  seqctl serve /models/SmolLM2-135M-Instruct --set resources.ranks=2\n"
        "  seqctl serve client/examples/serve.json\n"
        "  seqctl serve job:12 --name reader",
};
