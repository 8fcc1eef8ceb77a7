/* page.c: the pages for browsers. Each page is one file, which is compiled in. The first page
 * shows jobs and nodes. It contains no secret and needs no token; it gets its contents from REST
 * with the token that its user has entered. The second page is the reference of REST, which
 * docs.awk makes from api/openapi.yaml. */
#include <stdio.h>
#include <string.h>
#include "daemon/http/range.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "docs_html.h" /* docs_html[], DOCS_STYLE, DOCS_ETAG */
#include "page_html.h" /* page_html[], PAGE_STYLE, PAGE_SCRIPT, PAGE_ETAG */

#define NOTHING_ELSE "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

/* The page may use its own style and script, which are named by digest, and may send requests to
 * this server. No other content may be loaded, run, sent or framed. Trusted types prevent text
 * from becoming markup. The scheme data: is for the empty icon. */
static const char page_policy[] = "default-src 'none'; script-src '" PAGE_SCRIPT
                                  "'; style-src '" PAGE_STYLE "'; connect-src 'self'; " NOTHING_ELSE
                                  "; require-trusted-types-for 'script'; trusted-types 'none'";

/* The reference may use its own style, but no script at all. */
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
    http_set_header(r, "Cache-Control", "no-cache"); /* a browser may keep the page, but must check
                                                      * its tag each time */
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
