/* token.c: manages the tokens of the server, and shows its audit log. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/duration.h"
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

static void print_tokens(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"ID",      "USER",    "ROLE", "LABEL", "CREATED",
                                       "EXPIRES", "REVOKED", "USED", NULL};
    const struct jv *data = jv_get(list, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *k = jv_at(data, i, NULL);
        char id[TEXT_SHORT];
        snprintf(id, sizeof id, "%lld", (long long)jv_int(k, "id", 0));
        if (c->output == OUT_NAME) {
            puts(id);
            continue;
        }
        text_table_add(&t, id);
        text_table_add(&t, jv_str(k, "user", "?"));
        text_table_add(&t, jv_str(k, "role", "?"));
        text_table_add(&t, jv_str(k, "label", ""));
        text_table_add(&t, jv_str(k, "created_at", "-"));
        text_table_add(&t, jv_str(k, "expires_at", "never"));
        text_table_add(&t, jv_str(k, "revoked_at", "-"));
        text_table_add(&t, jv_str(k, "used_at", "-"));
    }
    if (c->output != OUT_NAME) text_table_print(&t, stdout);
    if (jv_bool(list, "has_more", false)) cli_say(c, "there are more: --limit N shows up to 1000");
}

/* Reads "90d", "24h", "30m", "45s" or "never" as seconds. Returns -1 for any other text. */
static int64_t seconds_of(const char *text)
{
    int64_t s;
    if (!strcmp(text, "never")) return 0;
    return duration_parse(text, 1, CLI_LONGEST_S, &s, NULL) ? -1 : s;
}

static int add(struct jv *body, const char *name, const char *text)
{
    struct err e;
    return text && jv_set_str(body, name, text, &e) ? -1 : 0;
}

static int create(struct cli *c)
{
    struct jv *body = jv_parse("{}", 2, NULL), *k = NULL;
    char number[32], clean[256];
    struct err e;
    const int64_t ttl_s = c->opt.ttl ? seconds_of(c->opt.ttl) : 0;
    snprintf(number, sizeof number, "%lld", (long long)ttl_s);
    if (ttl_s < 0 || add(body, "user", c->opt.user) || add(body, "role", c->opt.role) ||
        add(body, "label", c->opt.label.n ? c->opt.label.at[c->opt.label.n - 1] : NULL) ||
        (c->opt.ttl && jv_set(body, "ttl_s", number, &e))) {
        jv_free(body);
        return cli_fail(CLI_USAGE, "--ttl \"%s\": want 90d, 24h, 30m, 45s or never", c->opt.ttl);
    }
    char *json = jv_dump(body, JV_COMPACT);
    int rc = api_post(c, "/v1/tokens", json, NULL, &k);
    if (!rc && !api_print(c, k)) {
        puts(text_safe(clean, sizeof clean, jv_str(k, "token", "?")));
        cli_say(c, "this is token %lld of %s, a%s %s; it is not shown again",
                (long long)jv_int(k, "id", 0), jv_str(k, "user", "?"),
                strchr("ao", *jv_str(k, "role", "?")) ? "n" : "", jv_str(k, "role", "?"));
    }
    free(json);
    jv_free(body);
    jv_free(k);
    return rc;
}

static int revoke(struct cli *c)
{
    char path[64];
    struct jv *k = NULL;
    char *end;
    const long long id = strtoll(c->arg[1], &end, 10);
    if (!*c->arg[1] || *end || id <= 0 || id == LLONG_MAX)
        return cli_fail(CLI_USAGE, "\"%s\" is not the id of a token: seqctl tokens lists them",
                        c->arg[1]);
    snprintf(path, sizeof path, "/v1/tokens/%lld:revoke", id);
    int rc = api_post(c, path, NULL, NULL, &k);
    if (!rc && !api_print(c, k)) cli_say(c, "token %lld is refused from now on", id);
    jv_free(k);
    return rc;
}

static int revoke_user(struct cli *c)
{
    struct jv *body = jv_parse("{}", 2, NULL), *k = NULL;
    if (add(body, "user", c->opt.user)) {
        jv_free(body);
        return cli_fail(CLI_USAGE, "--user \"%s\" is not text of UTF-8", c->opt.user);
    }
    char *json = jv_dump(body, JV_COMPACT);
    int rc = api_post(c, "/v1/tokens:revoke", json, NULL, &k);
    if (!rc && !api_print(c, k))
        cli_say(c, "%lld tokens of %s are refused from now on", (long long)jv_int(k, "revoked", 0),
                c->opt.user);
    free(json);
    jv_free(body);
    jv_free(k);
    return rc;
}

static int list(struct cli *c)
{
    char path[64];
    struct jv *page = NULL;
    snprintf(path, sizeof path, "/v1/tokens?limit=%lld",
             (long long)(c->opt.limit >= 0 ? c->opt.limit : 100));
    int rc = api_get(c, path, &page);
    if (!rc && !api_print(c, page)) print_tokens(c, page);
    jv_free(page);
    return rc;
}

static int tokens_run(struct cli *c)
{
    if (!c->n_args) return list(c);
    if (c->n_args == 1 && !strcmp(c->arg[0], "create")) return create(c);
    const bool revokes = c->n_args && !strcmp(c->arg[0], "revoke");
    if (revokes && c->n_args == 2 && !c->opt.user) return revoke(c);
    if (revokes && c->n_args == 1 && c->opt.user) return revoke_user(c);
    return cli_fail(CLI_USAGE, "want: seqctl tokens, tokens create, tokens revoke ID, or tokens "
                               "revoke --user NAME");
}

static void print_audit(const struct cli *c, const struct jv *page)
{
    static const char *const head[] = {"AT",      "USER",   "ROLE",   "TOKEN", "FROM",
                                       "REQUEST", "ACTION", "STATUS", "MADE",  NULL};
    const struct jv *data = jv_get(page, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *a = jv_at(data, i, NULL);
        char text[TEXT_SHORT];
        if (c->output == OUT_NAME) {
            printf("%lld\n", (long long)jv_int(a, "seq", 0));
            continue;
        }
        text_table_add(&t, jv_str(a, "at", "?"));
        text_table_add(&t, jv_str(a, "user", "?"));
        text_table_add(&t, jv_str(a, "role", "?"));
        snprintf(text, sizeof text, "%lld", (long long)jv_int(a, "token", 0));
        text_table_add(&t, jv_int(a, "token", 0) ? text : "-");
        text_table_add(&t, jv_str(a, "address", "?"));
        snprintf(text, sizeof text, "%lld", (long long)jv_int(a, "request", 0));
        text_table_add(&t, text);
        text_table_add(&t, jv_str(a, "action", "?"));
        snprintf(text, sizeof text, "%lld", (long long)jv_int(a, "status", 0));
        text_table_add(&t, jv_int(a, "status", 0) ? text : "-");
        text_table_add(&t, jv_str(a, "made", "-"));
    }
    if (c->output != OUT_NAME) text_table_print(&t, stdout);
}

static int audit_run(struct cli *c)
{
    char path[256], user[192];
    struct jv *page = NULL;
    int n = snprintf(path, sizeof path, "/v1/audit?limit=%lld",
                     (long long)(c->opt.limit >= 0 ? c->opt.limit : 50));
    if (c->opt.user)
        snprintf(path + n, sizeof path - (size_t)n, "&user=%s",
                 http_escape(user, sizeof user, c->opt.user));
    int rc = api_get(c, path, &page);
    if (!rc && !api_print(c, page)) print_audit(c, page);
    jv_free(page);
    return rc;
}

const struct verb verb_tokens = {
    .name = "tokens",
    .operands = "[create | revoke ID]",
    .summary = "tokens: list, make and revoke",
    .options = OPT_USER | OPT_ROLE | OPT_LABEL | OPT_TTL | OPT_LIMIT,
    .max_args = 2,
    .run = tokens_run,
    .help =
        "Lists tokens: one's own, or everyone's for an admin. None shows a secret.\n\n"
        "  tokens create   prints a new token, once\n"
        "    --user NAME   whose (admins; default: one's own)\n"
        "    --role ROLE   user (default), operator or admin; at most one's own\n"
        "    --label TEXT  what it is for\n"
        "    --ttl T       90d (default), 24h, 30m, 45s; never for admins. A token expires\n"
        "                  no later than the one that makes it, but an admin's\n"
        "  tokens revoke ID, or revoke --user NAME: all of that user, as when one was stolen\n\n"
        "Example: root of the machine that seqd runs on makes the first one\n"
        "  seqctl --url unix:/run/seqd/seqd.sock tokens create --user ann >ann.token",
};
const struct verb verb_audit = {
    .name = "audit",
    .operands = "",
    .summary = "who changed what, and who read what is another's",
    .options = OPT_USER | OPT_LIMIT,
    .run = audit_run,
    .help = "The audit log, newest first, for admins: every change that was asked for, every read\n"
            "of another user's prompts or results, and what a known user was refused; the status\n"
            "of the answer (-: none is known), and what was made by it.\n\n"
            "  --user NAME     of that user\n"
            "  --limit N       at most N rows (default 50)\n"
            "  -o name         the numbers of the rows alone (seq)",
};
