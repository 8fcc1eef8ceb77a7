/* join.c: makes, lists and revokes join tokens through seqd's REST routes. The verbs that call it
 * are in client/node.c and client/token.c. */
#include "client/join.h"

#include <stdio.h>
#include "api/core/duration.h"
#include "api/core/jwrite.h"
#include "client/api.h"
#include "client/http.h"
#include "client/text.h"

#define TTL_MAX_S ((int64_t)366 * 86400) /* the real limit is set by seqd */

static int token_body(const struct cli *c, char *out, size_t size)
{
    struct err e;
    struct jwrite w;
    int64_t ttl_s;
    const char *ttl = c->opt.ttl ? c->opt.ttl : "24h";
    if (!c->opt.names)
        return cli_fail(CLI_USAGE, "want: seqctl nodes token --names 'GLOB' [--uses N] [--ttl T]");
    if (duration_parse(ttl, 1, TTL_MAX_S, &ttl_s, &e))
        return cli_fail(CLI_USAGE, "--ttl %s", e.text);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "names", c->opt.names);
    jwrite_int(&w, "uses", c->opt.uses < 0 ? 1 : c->opt.uses);
    jwrite_int(&w, "ttl_s", ttl_s);
    jwrite_end(&w);
    return jwrite_finish(&w) < 0 ? cli_fail(CLI_USAGE, "--names is too long: give a shorter GLOB")
                                 : CLI_OK;
}

int join_token(struct cli *c)
{
    char body[1024], text[512];
    struct jv *v = NULL;
    int rc = token_body(c, body, sizeof body);
    if (!rc) rc = api_post(c, "/v1/nodes/tokens", body, NULL, &v);
    if (!rc && !api_print(c, v)) {
        puts(text_safe(text, sizeof text, jv_str(v, "token", "")));
        cli_say(c, "It is shown once. On the node: seqw --connect HOST:port --state DIR "
                   "--join-token-file FILE, with this line in FILE.");
    }
    jv_free(v);
    return rc;
}

static void print_tokens(struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"TOKEN", "NAMES", "USED", "CREATED", "EXPIRES", NULL};
    const struct jv *data = jv_get(list, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *k = jv_at(data, i, NULL);
        char text[TEXT_SHORT], id[64];
        if (c->output == OUT_NAME) {
            puts(text_safe(id, sizeof id, jv_str(k, "id", "?")));
            continue;
        }
        text_table_add(&t, jv_str(k, "id", "?"));
        text_table_add(&t, jv_str(k, "names", "?"));
        snprintf(text, sizeof text, "%lld of %lld", (long long)jv_int(k, "used", 0),
                 (long long)jv_int(k, "uses", 0));
        text_table_add(&t, text);
        text_table_add(&t, jv_str(k, "created_at", "?"));
        text_table_add(&t, jv_str(k, "expires_at", "?"));
    }
    if (c->output != OUT_NAME) text_table_print(&t, stdout);
    if (!jv_len(data)) cli_say(c, "there is no join token");
}

static int list(struct cli *c, int rc, struct jv *v)
{
    if (!rc && !api_print(c, v)) print_tokens(c, v);
    jv_free(v);
    return rc;
}

int join_tokens(struct cli *c)
{
    struct jv *v = NULL;
    const int rc = api_get(c, "/v1/nodes/tokens", &v);
    return list(c, rc, v);
}

int join_token_revoke(struct cli *c, const char *id)
{
    char clean[128], path[192];
    struct jv *v = NULL;
    snprintf(path, sizeof path, "/v1/nodes/tokens/%s:revoke", http_escape(clean, sizeof clean, id));
    const int rc = api_post(c, path, NULL, NULL, &v);
    return list(c, rc, v);
}
