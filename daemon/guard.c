#include "daemon/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "api/core/jwrite.h"
#include "daemon/http.h"

static bool loopback_host(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(names[i]);
        if (!strncasecmp(host, names[i], n) && (!host[n] || host[n] == ':')) return true;
    }
    return false;
}

/* Of a page that is not ours. */
static bool foreign_origin(const char *origin)
{
    if (!strncasecmp(origin, "http://", 7)) return !loopback_host(origin + 7);
    return true; /* https elsewhere, "null", extensions */
}

static bool is_json(const char *type)
{
    if (strncasecmp(type, "application/json", 16)) return false;
    return !type[16] || type[16] == ';' || type[16] == ' ';
}

void guard_header(struct guard *g, const char *name, const char *value)
{
    if (!strcasecmp(name, "content-length")) {
        g->n_length++;
        g->length = strtoll(value, NULL, 10);
    } else if (!strcasecmp(name, "transfer-encoding")) {
        g->n_encoding++;
        g->chunked = !strcasecmp(value, "chunked");
    } else if (!strcasecmp(name, "host")) {
        g->n_host++;
        g->foreign_host = !loopback_host(value);
    } else if (!strcasecmp(name, "origin")) {
        g->foreign_origin |= foreign_origin(value);
    } else if (!strcasecmp(name, "content-type")) {
        g->is_json = is_json(value);
    }
}

const struct guard_verdict *guard_check(const struct guard *g)
{
    static const struct guard_verdict smuggling = {400, "invalid",
                                                   "one Content-Length, or Transfer-Encoding: "
                                                   "chunked, not both"};
    static const struct guard_verdict hosts = {400, "invalid", "exactly one Host header is needed"};
    static const struct guard_verdict large = {413, "too_large", "the body is larger than 1 MiB"};
    static const struct guard_verdict target_long = {
        414, "too_large", "the request target is longer than 2047 bytes"};
    static const struct guard_verdict target_bad = {
        400, "invalid",
        "the request target is malformed: bad escape, control byte, \"..\" or too many parameters"};
    static const struct guard_verdict host = {403, "forbidden",
                                              "seqd answers to localhost only: wrong Host"};
    static const struct guard_verdict origin = {403, "forbidden",
                                                "seqd does not serve web pages of other origins"};
    static const struct guard_verdict type = {
        415, "unsupported", "a body must come with Content-Type: application/json"};
    if (g->n_length + g->n_encoding > 1 || (g->n_encoding && !g->chunked)) return &smuggling;
    if (g->n_host != 1) return &hosts;
    if (g->length < 0 || g->length > HTTP_MAX_BODY) return &large;
    if (g->target_too_long) return &target_long;
    if (g->bad_target) return &target_bad;
    if (g->local_only && g->foreign_host) return &host;
    if (g->local_only && g->foreign_origin) return &origin;
    return (g->length || g->n_encoding) && !g->is_json ? &type : NULL;
}

int64_t guard_problem(int status, const char *code, const char *detail, int64_t request, char *out,
                      size_t size)
{
    char id[32];
    struct jwrite w;
    snprintf(id, sizeof id, "%lld", (long long)request);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "type", "about:blank");
    jwrite_str(&w, "title", code);
    jwrite_int(&w, "status", status);
    jwrite_str(&w, "detail", detail);
    jwrite_str(&w, "code", code);
    jwrite_str(&w, "request_id", id);
    jwrite_end(&w);
    return jwrite_finish(&w);
}
