/* login.c: manages the servers for which seqctl has a token. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include "api/core/context.h"
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

/* Prints the user of the token. Returns CLI_OK if the server knows the token. */
static int say_who(struct cli *c)
{
    char user[128], role[64];
    struct jv *me = NULL;
    int rc = api_get(c, "/v1/me", &me);
    text_safe(user, sizeof user, jv_str(me, "user", "?"));
    if (!rc && c->output == OUT_NAME)
        puts(user);
    else if (!rc && !api_print(c, me))
        printf("%s, %s, at %s\n", user, text_safe(role, sizeof role, jv_str(me, "role", "?")),
               http_url(c->http));
    jv_free(me);
    return rc;
}

/* Reads one line of stdin, without showing it if stdin is a terminal. */
static int ask_token(char *out, size_t size)
{
    struct termios old, quiet;
    const bool terminal = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &old);
    if (terminal) {
        quiet = old;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        fprintf(stderr, "token: ");
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    }
    char *line = fgets(out, (int)size, stdin);
    if (terminal) {
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &old);
        fputc('\n', stderr);
    }
    if (!line) *out = 0;
    out[strcspn(out, " \t\r\n")] = 0;
    return *out ? 0 : cli_fail(CLI_ERROR, "no token was given: run this again, and paste one");
}

static int read_new_token(struct cli *c, const char *url, char *out, size_t size)
{
    struct err e;
    if (!c->opt.token_file) return ask_token(out, size);
    if (!cli_token(c, url, out, size, &e)) return 0;
    return cli_fail(CLI_ERROR, "%s", e.text);
}

/* Stores the path of the file of authorities. The path is made absolute, because seqctl may later
 * run in a different directory. */
static int keep_ca(const struct cli *c, struct server_context *known)
{
    char real[PATH_MAX];
    const char *ca = cli_ca(c);
    if (!ca) return 0;
    if (!realpath(ca, real) || strlen(real) >= sizeof known->ca)
        return cli_fail(CLI_ERROR, "--ca %s does not exist, or its path is too long", ca);
    memcpy(known->ca, real, strlen(real) + 1);
    return 0;
}

static int login_run(struct cli *c)
{
    struct server_context known = {0};
    struct err e;
    if (c->n_args) c->opt.url = c->arg[0];
    int rc = cli_url(c, known.url, sizeof known.url, &e) ? cli_fail(CLI_ERROR, "%s", e.text) : 0;
    if (!rc) rc = keep_ca(c, &known);
    if (!rc) rc = read_new_token(c, known.url, known.token, sizeof known.token);
    if (rc) return CLI_ERROR;
    http_set_url(c->http, known.url);
    http_set_token(c->http, known.token);
    rc = say_who(c);
    if (!rc && (context_write(&known, &e) || context_set_current(known.url, &e)))
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    explicit_bzero(&known, sizeof known);
    if (!rc) cli_say(c, "seqctl talks to it from now on");
    return rc;
}

static bool never_asks(const struct cli *c)
{
    return true;
}

static int logout_run(struct cli *c)
{
    char url[CONTEXT_URL], current[CONTEXT_URL];
    struct err e;
    if (c->n_args) c->opt.url = c->arg[0];
    if (cli_url(c, url, sizeof url, &e)) return cli_fail(CLI_ERROR, "%s", e.text);
    context_current(current);
    if (context_remove(url, &e) || (!strcmp(url, current) && context_set_current("", &e)))
        return cli_fail(e.code == ERR_NOT_FOUND ? CLI_NOT_FOUND : CLI_ERROR, "%s", e.text);
    cli_say(c, "the token of %s is forgotten here; `seqctl tokens revoke ID` ends it", url);
    return CLI_OK;
}

struct context_list {
    const char *current;
    struct jv *data;
};

static void add_context(void *arg, const struct server_context *k)
{
    struct context_list *l = arg;
    struct jv *row = jv_object();
    struct jv *url = jv_string(k->url, strlen(k->url));
    if (jv_put(row, "url", url ? url : jv_null()) ||
        jv_put(row, "current", jv_boolean(!strcmp(k->url, l->current))) || jv_add(l->data, row))
        abort();
}

static void print_contexts(const struct cli *c, const struct jv *list)
{
    char clean[CONTEXT_URL];
    const struct jv *data = jv_get(list, "data");
    if (api_print(c, list)) return;
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *k = jv_at(data, i, NULL);
        const char *mark = c->output == OUT_NAME ? "" : jv_bool(k, "current", false) ? "* " : "  ";
        printf("%s%s\n", mark, text_safe(clean, sizeof clean, jv_str(k, "url", "?")));
    }
}

static int contexts_run(struct cli *c)
{
    char current[CONTEXT_URL];
    struct server_context known;
    struct err e;
    if (c->n_args && context_read(c->arg[0], &known, &e))
        return cli_fail(CLI_NOT_FOUND, "%s: run seqctl login %s", e.text, c->arg[0]);
    explicit_bzero(&known, sizeof known);
    if (c->n_args && context_set_current(c->arg[0], &e)) return cli_fail(CLI_ERROR, "%s", e.text);
    context_current(current);
    struct jv *list = jv_object();
    struct context_list l = {current, jv_array()};
    const int rc = context_each(add_context, &l, &e) ? cli_fail(CLI_ERROR, "%s", e.text) : CLI_OK;
    if (jv_put(list, "data", l.data)) abort();
    if (!rc) print_contexts(c, list);
    jv_free(list);
    return rc;
}

const struct verb verb_login = {
    .name = "login",
    .operands = "[URL]",
    .summary = "keep a token for a server, and talk to it from now on",
    .max_args = 1,
    .run = login_run,
    .help =
        "Asks for a token (on a pipe: reads it from stdin; --token-file FILE), tries it, and\n"
        "keeps it for that URL in ~/.config/seqctl (0600). Verbs without --url talk to the\n"
        "server of the last login. seqd --dev needs no login: it keeps a token there itself.\n\n"
        "Example\n"
        "  seqctl login https://seqd.example:7433 <token.txt",
};
const struct verb verb_logout = {
    .name = "logout",
    .operands = "[URL]",
    .summary = "forget the token of a server",
    .max_args = 1,
    .run = logout_run,
    .alone = never_asks,
    .help = "Removes what seqctl login has kept. The token stays valid until it expires or is\n"
            "revoked.",
};
const struct verb verb_contexts = {
    .name = "contexts",
    .operands = "[URL]",
    .summary = "servers that seqctl has a token for; choose one",
    .max_args = 1,
    .run = contexts_run,
    .alone = never_asks,
    .help = "Lists the URLs of seqctl login; * marks the one that verbs without --url talk to.\n"
            "With a URL: that one from now on.",
};
const struct verb verb_whoami = {
    .name = "whoami",
    .operands = "",
    .summary = "the user and role that the server sees",
    .run = say_who,
    .help = "Prints the user and the role of the token, or of the user at the Unix socket.",
};
