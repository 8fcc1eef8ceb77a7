/* The page for browsers: one file, compiled in. It has no secret and needs no token; it asks REST
 * for its contents, with the token that its user gave it. */
#include <stdio.h>
#include <string.h>
#include "daemon/http/range.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "page_html.h" /* page_html[], PAGE_STYLE, PAGE_SCRIPT, PAGE_ETAG */

/* Its own style and script, by digest, and requests to this server: no other content is loaded,
 * run, sent or framed. Trusted types: no text becomes markup. data: is the empty icon. */
static const char policy[] = "default-src 'none'; script-src '" PAGE_SCRIPT
                             "'; style-src '" PAGE_STYLE
                             "'; connect-src 'self'; img-src data:; frame-ancestors 'none'; "
                             "base-uri 'none'; form-action 'none'; "
                             "require-trusted-types-for 'script'; trusted-types 'none'";

void route_page(struct routes *R, struct http_req *r, const struct route_match *a)
{
    static const char etag[] = "\"" PAGE_ETAG "\"";
    http_set_header(r, "Content-Security-Policy", policy);
    http_set_header(r, "Referrer-Policy", "no-referrer");
    http_set_header(r, "X-Frame-Options", "DENY");
    http_set_header(r, "Cache-Control", "no-cache"); /* kept, and asked for again by its tag */
    http_set_header(r, "ETag", etag);
    if (range_none_match(http_header(r, "if-none-match"), etag))
        http_reply(r, 304, "text/html; charset=utf-8", "", 0);
    else
        http_reply(r, 200, "text/html; charset=utf-8", page_html, sizeof page_html - 1);
}
