/* cli.c: parses the command line by the table of options, finds the server and its token, and
 * prints messages. */
#include "client/cli.h"

#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/context.h"
#include "api/core/duration.h"
#include "api/core/version.h"
#include "client/help.h"
#include "client/http.h"
#include "client/name.h"
#include "client/text.h"

#define DEFAULT_URL "http://127.0.0.1:7433"

const char *cli_system_socket = "/run/seqd/seqd.sock";

enum kind { FLAG, WORD, NUMBER, SECONDS, LIST };

/* All options. If need is 0, every verb accepts the option. */
static const struct option_row {
    const char *name;
    char letter;
    enum kind kind;
    uint32_t need;
    size_t offset;
} rows[] = {
    {"wait", 'w', FLAG, OPT_WAIT, offsetof(struct cli_options, wait)},
    {"dry-run", 0, FLAG, OPT_DRY_RUN, offsetof(struct cli_options, dry_run)},
    {"follow", 'f', FLAG, OPT_FOLLOW, offsetof(struct cli_options, follow)},
    {"yes", 'y', FLAG, OPT_YES, offsetof(struct cli_options, yes)},
    {"older-than", 0, WORD, OPT_OLDER, offsetof(struct cli_options, older_than)},
    {"part", 0, WORD, OPT_PART, offsetof(struct cli_options, part)},
    {"name", 'n', WORD, OPT_NAME, offsetof(struct cli_options, name)},
    {"set", 0, LIST, OPT_SET, offsetof(struct cli_options, set)},
    {"unset", 0, LIST, OPT_UNSET, offsetof(struct cli_options, unset)},
    {"after", 0, WORD, OPT_AFTER, offsetof(struct cli_options, after)},
    {"after-any", 0, WORD, OPT_AFTER, offsetof(struct cli_options, after_any)},
    {"label", 'l', LIST, OPT_LABEL, offsetof(struct cli_options, label)},
    {"last", 0, NUMBER, OPT_LAST, offsetof(struct cli_options, last)},
    {"state", 0, WORD, OPT_STATE, offsetof(struct cli_options, state)},
    {"limit", 0, NUMBER, OPT_LIMIT, offsetof(struct cli_options, limit)},
    {"rank", 0, NUMBER, OPT_RANK, offsetof(struct cli_options, rank)},
    {"epoch", 0, NUMBER, OPT_EPOCH, offsetof(struct cli_options, epoch)},
    {"file", 0, WORD, OPT_FILE, offsetof(struct cli_options, file)},
    {"timeout", 0, SECONDS, OPT_TIMEOUT, offsetof(struct cli_options, timeout_s)},
    {"field", 0, WORD, OPT_FIELD, offsetof(struct cli_options, field)},
    {"user", 0, WORD, OPT_USER, offsetof(struct cli_options, user)},
    {"role", 0, WORD, OPT_ROLE, offsetof(struct cli_options, role)},
    {"ttl", 0, WORD, OPT_TTL, offsetof(struct cli_options, ttl)},
    {"owner", 0, WORD, OPT_OWNER, offsetof(struct cli_options, owner)},
    {"names", 0, WORD, OPT_JOIN, offsetof(struct cli_options, names)},
    {"reason", 0, WORD, OPT_REASON, offsetof(struct cli_options, reason)},
    {"uses", 0, NUMBER, OPT_JOIN, offsetof(struct cli_options, uses)},
    {"artifacts", 0, FLAG, OPT_ARTIFACTS, offsetof(struct cli_options, artifacts)},
    {"convert", 0, FLAG, OPT_CONVERT, offsetof(struct cli_options, convert)},
    {"column", 0, LIST, OPT_CONVERT, offsetof(struct cli_options, column)},
    {"priority", 0, NUMBER, OPT_PRIORITY, offsetof(struct cli_options, priority)},
    {"system", 0, WORD, OPT_CHAT, offsetof(struct cli_options, system)},
    {"max-tokens", 0, NUMBER, OPT_CHAT, offsetof(struct cli_options, max_tokens)},
    {"temperature", 0, WORD, OPT_CHAT, offsetof(struct cli_options, temperature)},
    {"raw", 0, FLAG, OPT_CHAT, offsetof(struct cli_options, raw)},
    {"url", 0, WORD, 0, offsetof(struct cli_options, url)},
    {"token-file", 0, WORD, 0, offsetof(struct cli_options, token_file)},
    {"ca", 0, WORD, 0, offsetof(struct cli_options, ca)},
    {"output", 'o', WORD, 0, offsetof(struct cli_options, output)},
    {"quiet", 'q', FLAG, 0, offsetof(struct cli_options, quiet)},
    {"no-color", 0, FLAG, 0, offsetof(struct cli_options, no_color)},
    {"help", 'h', FLAG, 0, offsetof(struct cli_options, help)},
    {"version", 0, FLAG, 0, offsetof(struct cli_options, version)},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int unknown(const char *what, const char *word, const char *const *words, int n,
                   struct err *e)
{
    const char *near = help_nearest(word, words, n);
    if (near)
        return err_set(e, ERR_INVALID, "unknown %s \"%s\": did you mean %s?", what, word, near);
    return err_set(e, ERR_INVALID, "seqctl has no %s \"%s\"", what, word);
}

static const struct option_row *find_row(const char *name, size_t len)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == len && !strncmp(rows[i].name, name, len)) return &rows[i];
    return NULL;
}

static int no_such_option(const char *name, struct err *e)
{
    const char *words[N_ROWS];
    for (int i = 0; i < N_ROWS; i++) words[i] = rows[i].name;
    return unknown("option", name, words, N_ROWS, e);
}

static int set_number(const struct option_row *r, const char *value, int64_t *out, struct err *e)
{
    char *end;
    long long v = strtoll(value, &end, 10);
    if (!*value || *end || v < 0 || v == LLONG_MAX)
        return err_set(e, ERR_INVALID, "--%s \"%s\": want an integer, 0 or more", r->name, value);
    *out = v;
    return 0;
}

static int set_seconds(const struct option_row *r, const char *value, int64_t *out, struct err *e)
{
    return duration_parse(value, 0, CLI_LONGEST_S, out, e) ? err_prefix(e, "--%s", r->name) : 0;
}

static int add_to_list(struct cli_list *l, int place, const struct option_row *r, const char *value,
                       struct err *e)
{
    if (l->n == CLI_LIST)
        return err_set(e, ERR_TOO_LARGE, "--%s may be given %d times", r->name, CLI_LIST);
    l->place[l->n] = place;
    l->at[l->n++] = value;
    return 0;
}

static int set_option(struct cli *c, const struct option_row *r, const char *value, struct err *e)
{
    char *at = (char *)&c->opt + r->offset;
    switch (r->kind) {
    case FLAG: *(bool *)at = true; return 0;
    case WORD: *(const char **)at = value; return 0;
    case NUMBER: return set_number(r, value, (int64_t *)at, e);
    case SECONDS: return set_seconds(r, value, (int64_t *)at, e);
    case LIST: return add_to_list((struct cli_list *)at, c->opt.n_listed++, r, value, e);
    }
    return 0;
}

/* Parses one option, which begins with '-'. Returns how many arguments it used, or -1. */
static int take_option(struct cli *c, char **argv, bool seen[N_ROWS], struct err *e)
{
    const char *a = argv[0], *value = NULL, *eq = NULL;
    const struct option_row *r = NULL;
    if (a[1] == '-') {
        eq = strchr(a, '=');
        r = find_row(a + 2, eq ? (size_t)(eq - a - 2) : strlen(a + 2));
        value = eq ? eq + 1 : NULL;
    } else {
        for (int i = 0; i < N_ROWS && !r; i++)
            if (rows[i].letter && rows[i].letter == a[1]) r = &rows[i];
        if (r && a[2]) {
            if (r->kind == FLAG) return err_set(e, ERR_INVALID, "%s: give each flag by itself", a);
            value = a + 2;
        }
    }
    if (!r) return no_such_option(a + (a[1] == '-' ? 2 : 1), e);
    seen[r - rows] = true;
    if (r->kind == FLAG) {
        if (eq) return err_set(e, ERR_INVALID, "--%s takes no value", r->name);
        return set_option(c, r, NULL, e) ? -1 : 1;
    }
    if (!value && !argv[1]) return err_set(e, ERR_INVALID, "--%s needs a value", r->name);
    return set_option(c, r, value ? value : argv[1], e) ? -1 : value ? 1 : 2;
}

bool cli_option_at(int i, struct cli_option_info *out)
{
    if (i < 0 || i >= N_ROWS) return false;
    const struct option_row *r = &rows[i];
    *out = (struct cli_option_info){r->name, r->letter, r->kind != FLAG, r->need};
    return true;
}

static const struct verb *find_verb(const char *name, const struct verb *const *verbs)
{
    for (; *verbs; verbs++)
        if (!strcmp((*verbs)->name, name)) return *verbs;
    return NULL;
}

static int no_such_verb(const char *name, const struct verb *const *verbs, struct err *e)
{
    const char *words[64];
    int n = 0;
    for (; verbs[n] && n < 64; n++) words[n] = verbs[n]->name;
    return unknown("verb", name, words, n, e);
}

const char *const cli_outputs[OUT_N + 1] = {"table", "wide", "json", "jsonl",
                                            "name",  "yaml", "csv",  NULL};

/* Refuses a command line with a missing operand or with too many operands. The error names the
 * missing operand as the usage line does. */
static int check_operands(const struct cli *c, struct err *e)
{
    const struct verb *v = c->verb;
    const char *blank = *v->operands ? " " : "";
    char missing[64];
    if (c->n_args < v->min_args) {
        help_operand(v, c->n_args, missing, sizeof missing);
        return err_set(e, ERR_INVALID, "seqctl %s needs %s (usage: seqctl %s%s%s)", v->name,
                       missing, v->name, blank, v->operands);
    }
    if (c->n_args > v->max_args)
        return err_set(e, ERR_INVALID, "seqctl %s does not take \"%s\" (usage: seqctl %s%s%s)",
                       v->name, c->arg[v->max_args], v->name, blank, v->operands);
    return 0;
}

static int check_usage(struct cli *c, const bool seen[N_ROWS], struct err *e)
{
    const struct verb *v = c->verb;
    int o = 0;
    for (; c->opt.output && o < OUT_N && strcmp(cli_outputs[o], c->opt.output); o++) continue;
    if (o == OUT_N) return unknown("output format", c->opt.output, cli_outputs, OUT_N, e);
    c->output = (enum cli_output)o;
    if (!v || c->opt.help) return 0;
    for (int i = 0; i < N_ROWS; i++)
        if (seen[i] && rows[i].need & ~v->options)
            return err_set(e, ERR_INVALID, "seqctl %s has no option --%s", v->name, rows[i].name);
    return check_operands(c, e);
}

int cli_parse(struct cli *c, int argc, char **argv, const struct verb *const *verbs, struct err *e)
{
    bool seen[N_ROWS] = {false};
    bool only_operands = false;
    c->opt.limit = c->opt.rank = c->opt.epoch = c->opt.timeout_s = c->opt.uses = c->opt.last = -1;
    c->opt.priority = c->opt.max_tokens = -1;
    for (int i = 1; i < argc;) {
        const char *a = argv[i];
        if (!only_operands && !strcmp(a, "--")) {
            only_operands = true;
            i++;
        } else if (!only_operands && a[0] == '-' && a[1]) {
            int used = take_option(c, argv + i, seen, e);
            if (used < 0) return -1;
            i += used;
        } else if (!c->verb) {
            c->verb = find_verb(a, verbs);
            if (!c->verb) return no_such_verb(a, verbs, e);
            i++;
        } else {
            c->arg[c->n_args++] = argv[i++];
        }
    }
    return check_usage(c, seen, e);
}

/* Returns the scheme that must be put before a URL that has none. */
static const char *scheme_of(const char *url)
{
    return strstr(url, "://") || !strncmp(url, "unix:", 5) ? "" : "http://";
}

/* Tells whether to use the Unix socket of a state directory. The socket must exist. It is used if
 * seqd speaks TLS, because the socket needs no certificate. It is also used if the directory has
 * no token file, because only seqd --dev writes a token file. */
static bool takes_socket(const char *dir, const char *address, const char *socket)
{
    char token[1024];
    snprintf(token, sizeof token, "%s/token", dir);
    return !access(socket, F_OK) && (!strncmp(address, "https://", 8) || access(token, F_OK));
}

static int read_address(const char *dir, char *out, size_t size, struct err *e)
{
    char path[1024], line[256] = "";
    snprintf(path, sizeof path, "%s/address", dir);
    FILE *f = fopen(path, "re");
    if (!f) return err_errno(e, "%s (written by a running seqd)", path);
    if (!fgets(line, sizeof line, f)) line[0] = 0;
    fclose(f);
    line[strcspn(line, " \r\n")] = 0;
    if (!line[0]) return err_set(e, ERR_INVALID, "%s is empty", path);
    snprintf(path, sizeof path, "%s/seqd.sock", dir);
    if (takes_socket(dir, line, path))
        snprintf(out, size, "unix:%s", path);
    else
        snprintf(out, size, "%s%s", scheme_of(line), line);
    return 0;
}

/* Returns --url or SEQD_URL, or NULL if neither is given. */
static const char *given_url(const struct cli *c)
{
    const char *url = c->opt.url ? c->opt.url : getenv("SEQD_URL");
    return url && *url ? url : NULL;
}

static void default_url(char out[CONTEXT_URL])
{
    struct stat st;
    context_current(out);
    if (*out) return;
    if (!stat(cli_system_socket, &st) && S_ISSOCK(st.st_mode))
        snprintf(out, CONTEXT_URL, "unix:%s", cli_system_socket);
    else
        snprintf(out, CONTEXT_URL, "%s", DEFAULT_URL);
}

int cli_url(const struct cli *c, char *out, size_t size, struct err *e)
{
    char text[CONTEXT_URL];
    const char *url = given_url(c);
    if (!url) {
        default_url(text);
        url = text;
    }
    if (*url == '/' || *url == '.') {
        if (read_address(url, out, size, e)) return -1;
    } else if ((size_t)snprintf(out, size, "%s%s", scheme_of(url), url) >= size) {
        return err_set(e, ERR_TOO_LARGE, "the URL is longer than %zu bytes", size - 1);
    }
    for (size_t n = strlen(out); n && out[n - 1] == '/'; n--) out[n - 1] = 0;
    return 0;
}

bool cli_url_moves(const struct cli *c)
{
    const char *url = given_url(c);
    return url && (*url == '/' || *url == '.');
}

/* Reads a token from the file `path`, or from stdin if `path` is "-". A token is put into a
 * header, so it must be one line without blanks. */
static int read_token(const char *path, char *out, size_t size, struct err *e)
{
    const bool is_stdin = !strcmp(path, "-");
    char line[512] = "";
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    if (!f) return err_errno(e, "the token file %s", path);
    if (!fgets(line, sizeof line, f)) line[0] = 0;
    if (!is_stdin) fclose(f);
    const size_t n = strcspn(line, " \t\r\n");
    int rc = 0;
    if (!n || n >= size)
        rc = err_set(e, ERR_INVALID, "the token file %s has no token in its first line", path);
    else
        snprintf(out, size, "%.*s", (int)n, line);
    explicit_bzero(line, sizeof line);
    return rc;
}

bool cli_token_file(const struct cli *c, char *out, size_t size)
{
    const char *given = given_url(c), *file = c->opt.token_file;
    if (!file) file = getenv("SEQD_TOKEN_FILE");
    if (file && *file) {
        snprintf(out, size, "%s", file);
        return true;
    }
    if (given && (*given == '/' || *given == '.')) {
        snprintf(out, size, "%s/token", given);
        if (!access(out, F_OK)) return true;
    }
    *out = 0;
    return false;
}

int cli_token(const struct cli *c, const char *url, char *out, size_t size, struct err *e)
{
    struct server_context known;
    struct err why = {0};
    char path[4096];
    *out = 0;
    if (cli_token_file(c, path, sizeof path)) return read_token(path, out, size, e);
    if (!context_read(url, &known, &why))
        snprintf(out, size, "%s", known.token);
    else if (why.code != ERR_NOT_FOUND && why.code != ERR_INVALID)
        return err_set(e, why.code, "%s", why.text);
    explicit_bzero(&known, sizeof known);
    return 0;
}

const char *cli_ca(const struct cli *c)
{
    const char *ca = c->opt.ca ? c->opt.ca : getenv("SEQD_CA");
    return ca && *ca ? ca : NULL;
}

static bool drawn; /* whether the terminal of stderr shows a progress line, which the next message
                    * replaces */

void cli_draw(const char *line)
{
    if (drawn || *line) fprintf(stderr, "\r\033[K%s", line);
    drawn = *line != 0;
}

static void say(const char *prefix, const char *fmt, va_list ap)
{
    char *raw;
    const int n = vasprintf(&raw, fmt, ap);
    char *clean = n < 0 ? NULL : malloc((size_t)n + 1);
    assert(clean);
    text_clean(clean, (size_t)n + 1, raw, (size_t)n, "\n\t");
    fflush(stdout);
    cli_draw("");
    fprintf(stderr, "%s%s\n", prefix, clean);
    free(clean);
    free(raw);
}

void cli_say(const struct cli *c, const char *fmt, ...)
{
    va_list ap;
    if (c->opt.quiet) return;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("seqctl: ", fmt, ap);
    va_end(ap);
    return code;
}

int64_t cli_job_id(struct cli *c, int i)
{
    const char *s = c->arg[i];
    char *end;
    if (!strncmp(s, "job/", 4)) s += 4;
    long long id = strtoll(s, &end, 10);
    if (*s && *end) return name_job(c, c->arg[i]); /* the operand is a name and not an id */
    if (!*s || id <= 0 || id == LLONG_MAX)
        return -cli_fail(CLI_USAGE,
                         "\"%s\" is not a job: want an id, as `seqctl ls` shows, or a name",
                         c->arg[i]);
    return id;
}

static void look_at_terminal(struct cli *c)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    setlocale(LC_CTYPE, ""); /* set only LC_CTYPE, so that numbers keep their decimal point */
    c->tty = isatty(STDOUT_FILENO);
    c->utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    c->color = c->tty && !c->opt.no_color && !(no_color && *no_color) &&
               !(term && !strcmp(term, "dumb"));
}

/* Sets the file of authorities to trust. It is the file of --ca or of SEQD_CA if one is given, and
 * otherwise the file that seqctl login stored. */
static void set_trust(const struct cli *c, const char *url)
{
    struct server_context known = {0};
    const char *ca = cli_ca(c);
    if (!ca && !context_read(url, &known, NULL)) ca = known.ca;
    http_set_ca(c->http, ca);
    explicit_bzero(&known, sizeof known);
}

static int connect_and_run(struct cli *c)
{
    struct err e = {0};
    char url[512], token[CONTEXT_TOKEN];
    if (c->verb->alone && c->verb->alone(c)) return c->verb->run(c);
    if (cli_url(c, url, sizeof url, &e) || cli_token(c, url, token, sizeof token, &e) ||
        !(c->http = http_create(url, &e)))
        return cli_fail(CLI_ERROR, "%s", e.text);
    http_set_token(c->http, token);
    explicit_bzero(token, sizeof token);
    set_trust(c, url);
    int rc = c->verb->run(c);
    http_destroy(c->http);
    c->http = NULL;
    return rc;
}

int cli_run(int argc, char **argv, const struct verb *const *verbs)
{
    struct cli c = {.verbs = verbs};
    struct err e = {0};
    int rc;
    c.arg = calloc((size_t)argc + 1, sizeof *c.arg);
    assert(c.arg);
    if (cli_parse(&c, argc, argv, verbs, &e)) {
        cli_fail(CLI_USAGE, "%s", e.text);
        fprintf(stderr, "seqctl help%s%s says more\n", c.verb ? " " : "",
                c.verb ? c.verb->name : "");
        rc = CLI_USAGE;
    } else if (c.opt.version) {
        printf("seqctl %s\n", version_text());
        rc = CLI_OK;
    } else if (!c.verb) {
        help_all(c.opt.help ? stdout : stderr, verbs);
        rc = c.opt.help ? CLI_OK : CLI_USAGE;
    } else if (c.opt.help) {
        help_verb(stdout, c.verb);
        rc = CLI_OK;
    } else if (!strcmp(c.verb->name, "help")) {
        const struct verb *v = c.n_args ? find_verb(c.arg[0], verbs) : NULL;
        if (v)
            help_verb(stdout, v);
        else if (!c.n_args)
            help_all(stdout, verbs);
        else
            no_such_verb(c.arg[0], verbs, &e);
        rc = c.n_args && !v ? cli_fail(CLI_USAGE, "%s", e.text) : CLI_OK;
    } else {
        look_at_terminal(&c);
        rc = connect_and_run(&c);
    }
    free(c.arg);
    if (fflush(stdout) || ferror(stdout))
        rc = rc ? rc : cli_fail(CLI_ERROR, "the output cannot be written");
    return rc;
}
