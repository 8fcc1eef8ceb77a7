/* The pages for browsers, each one file that is compiled in. The first shows jobs and nodes. It
 * has no secret and needs no token, and asks REST for its contents with the token that its user
 * gave it. The second is the reference of REST, which docs.awk makes from api/openapi.yaml. */
#include <stdio.h>
#include <string.h>
#include "daemon/http/range.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "docs_html.h" /* docs_html[], DOCS_STYLE, DOCS_ETAG */
#include "page_html.h" /* page_html[], PAGE_STYLE, PAGE_SCRIPT, PAGE_ETAG */

#define NOTHING_ELSE "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

/* The page may use its own style and script, by digest, and send requests to this server: no other
 * content is loaded, run, sent or framed. Trusted types: no text becomes markup. data: is the empty
 * icon. */
static const char page_policy[] = "default-src 'none'; script-src '" PAGE_SCRIPT
                                  "'; style-src '" PAGE_STYLE "'; connect-src 'self'; " NOTHING_ELSE
                                  "; require-trusted-types-for 'script'; trusted-types 'none'";

/* The documents may use their own style, and no script at all. */
static const char docs_policy[] = "default-src 'none'; style-src '" DOCS_STYLE "'; " NOTHING_ELSE;

struct page {
    const char *policy, *etag, *html;
    size_t size;
};

static void page_reply(struct http_req *r, const struct page *p)
{
    http_set_header(r, "Content-Security-Policy", p->policy);
    http_set_header(r, "Referrer-Policy", "no-referrer");
    http_set_header(r, "X-Frame-Options", "DENY");
    http_set_header(r, "Cache-Control", "no-cache"); /* cached, and checked by its tag */
    http_set_header(r, "ETag", p->etag);
    if (range_none_match(http_header(r, "if-none-match"), p->etag))
        http_reply(r, 304, "text/html; charset=utf-8", "", 0);
    else
        http_reply(r, 200, "text/html; charset=utf-8", p->html, p->size);
}

void route_page(struct routes *R, struct http_req *r, const struct route_match *a)
{
    static const struct page page = {page_policy, "\"" PAGE_ETAG "\"", page_html,
                                     sizeof page_html - 1};
    page_reply(r, &page);
}

void route_docs(struct routes *R, struct http_req *r, const struct route_match *a)
{
    static const struct page docs = {docs_policy, "\"" DOCS_ETAG "\"", docs_html,
                                     sizeof docs_html - 1};
    page_reply(r, &docs);
}
