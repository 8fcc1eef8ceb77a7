/* page.c: prints the address of the page that seqd serves for a browser. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/context.h"
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

/* Prints the address with the token in its fragment. A browser does not send the fragment to a
 * server, so no log gets the token. */
static int print_address(struct cli *c, int64_t job)
{
    char url[CONTEXT_URL], token[CONTEXT_TOKEN], clean[CONTEXT_URL], to[64] = "";
    struct err e;
    if (cli_url(c, url, sizeof url, &e) || cli_token(c, url, token, sizeof token, &e))
        return cli_fail(CLI_ERROR, "%s", e.text);
    if (job) snprintf(to, sizeof to, "&to=/jobs/%lld", (long long)job);
    printf("%s/#token=%s%s\n", text_safe(clean, sizeof clean, url), token, to);
    explicit_bzero(token, sizeof token);
    cli_say(c, "open it in a browser; who has this address has your token");
    return CLI_OK;
}

static int page_run(struct cli *c)
{
    struct jv *me = NULL;
    char url[CONTEXT_URL];
    struct err e;
    int64_t job = 0;
    if (cli_url(c, url, sizeof url, &e)) return cli_fail(CLI_ERROR, "%s", e.text);
    if (strncmp(url, "http://", 7) && strncmp(url, "https://", 8))
        return cli_fail(CLI_ERROR,
                        "%s: a browser reaches no Unix socket: name the http or https address of "
                        "this seqd with --url, and a token with --token-file or seqctl login",
                        url);
    int rc = api_get(c, "/v1/me", &me); /* checks that seqd answers and knows the token */
    jv_free(me);
    if (rc) return rc;
    if (c->n_args && (job = cli_job_id(c, 0)) < 0) return (int)-job;
    return print_address(c, job);
}

const struct verb verb_page = {
    .name = "page",
    .operands = "[ID]",
    .summary = "the address of seqd's page for a browser",
    .max_args = 1,
    .run = page_run,
    .help =
        "Prints the address of the page that seqd serves: jobs, nodes, curves and logs; with an\n"
        "ID that of a job. The token stands after #, which browsers keep to themselves; the\n"
        "page takes it out of the address bar. Who has the address has the token: paste it into\n"
        "a browser; what a program is started with, other users of a machine can read.\n\n"
        "  seqctl page 12",
};
