#include "daemon/http/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "api/core/log.h"

const struct route route_table[] = {
    {"POST", "/v1/jobs", "dry_run", route_submit},
    {"GET", "/v1/jobs", "limit cursor state", route_jobs},
    {"GET", "/v1/jobs/{id}", "", route_job},
    {"POST", "/v1/jobs/{id}:cancel", "", route_cancel},
    {"POST", "/v1/jobs/{id}:restart", "", route_restart},
    {"GET", "/v1/jobs/{id}/events", "limit cursor", route_events},
    {"GET", "/v1/jobs/{id}/metrics", "limit cursor", route_metrics},
    {"GET", "/v1/jobs/{id}/logs", "rank epoch offset limit", route_logs},
    {"GET", "/v1/jobs/{id}/artifacts", "limit cursor", route_artifacts},
    {"GET", "/v1/jobs/{id}/artifacts/{name}", "", route_download},
    {"GET", "/v1/jobs/{id}/checkpoints", "limit cursor", route_checkpoints},
    {"GET", "/v1/jobs/{id}/steps/{n}/data", "sample fragments", route_step_data},
    {"POST", "/v1/plan", "", route_plan},
    {"GET", "/v1/nodes", "", route_nodes},
    {"POST", "/v1/nodes/{node}:release", "", route_release},
    {"GET", "/livez", "", route_livez},
    {"GET", "/readyz", "verbose", route_readyz},
    {"GET", "/version", "", route_version},
    {"GET", "/openapi.yaml", "", route_openapi},
    {NULL, NULL, NULL, NULL},
};

/* ---- problems (RFC 9457) --------------------------------------------------------------------- */

static const struct {
    int status;
    const char *title;
} problems[ERR_N] = {
    [ERR_NONE] = {500, "internal error"},
    [ERR_INVALID] = {400, "the request is wrong"},
    [ERR_NOT_FOUND] = {404, "not found"},
    [ERR_CONFLICT] = {409, "not in this state"},
    [ERR_DOES_NOT_FIT] = {400, "the job does not fit"},
    [ERR_TOO_LARGE] = {413, "over a limit"},
    [ERR_IO] = {500, "a system call failed"},
    [ERR_CORRUPT] = {500, "data is damaged"},
    [ERR_PEER] = {503, "a part of the cluster is away"},
    [ERR_TIMEOUT] = {503, "no answer in time"},
    [ERR_ABORTED] = {409, "stopped"},
    [ERR_UNSUPPORTED] = {400, "not supported"},
    [ERR_INTERNAL] = {500, "internal error"},
    [ERR_DEVICE] = {500, "a device failed"},
    [ERR_NO_SPACE] = {507, "no space left"},
};

int route_status(enum err_code code)
{
    return code >= 0 && code < ERR_N ? problems[code].status : 500;
}

/* "data.train.0" -> "/data/train/0" */
static void pointer_of(const char *field, char *out, size_t size)
{
    size_t n = 0;
    if (*field && n + 1 < size) out[n++] = '/';
    for (; *field && n + 1 < size; field++) out[n++] = *field == '.' ? '/' : *field;
    out[n] = 0;
}

void route_problem(struct http_req *r, int status, const struct err *e, const char *extra)
{
    size_t size = 4096 + 6 * sizeof e->text + (extra ? strlen(extra) : 0);
    char pointer[128], id[32], *body = malloc(size);
    struct jwrite w;
    if (!body) abort();
    pointer_of(e->field, pointer, sizeof pointer);
    snprintf(id, sizeof id, "%lld", (long long)http_id(r));
    jwrite_init(&w, body, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "type", "about:blank");
    jwrite_str(&w, "title", problems[e->code < ERR_N ? e->code : ERR_INTERNAL].title);
    jwrite_int(&w, "status", status);
    jwrite_str(&w, "detail", e->text);
    jwrite_strn(&w, "instance", http_path(r), strnlen(http_path(r), 128));
    jwrite_str(&w, "code", err_name(e->code));
    jwrite_array(&w, "errors");
    jwrite_object(&w, NULL);
    jwrite_str(&w, "pointer", pointer);
    jwrite_str(&w, "detail", e->text);
    jwrite_end(&w);
    jwrite_end(&w);
    jwrite_str(&w, "request_id", id);
    if (extra) jwrite_raw(&w, "plan", extra);
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    if (status == 503 || status == 429) http_set_header(r, "Retry-After", "1");
    if (status >= 500)
        log_warn("http.problem", "request=%s status=%d text=\"%s\"", id, status, e->text);
    http_reply(r, status, "application/problem+json", body, n > 0 ? (size_t)n : 0);
    free(body);
}

void route_fail(struct http_req *r, const struct err *e)
{
    route_problem(r, route_status(e->code), e, NULL);
}

void route_json(struct http_req *r, int status, const char *json)
{
    http_reply(r, status, "application/json", json, strlen(json));
}

int route_int(struct http_req *r, const char *name, int64_t fallback, int64_t lo, int64_t hi,
              int64_t *out)
{
    const char *text = http_query(r, name);
    char *end;
    struct err e;
    *out = fallback;
    if (!text) return 0;
    long long v = strtoll(text, &end, 10);
    if (*text && !*end && v >= lo && v <= hi) {
        *out = v;
        return 0;
    }
    err_field(&e, ERR_INVALID, name, "query parameter %s must be an integer from %lld to %lld",
              name, (long long)lo, (long long)hi);
    route_fail(r, &e);
    return -1;
}

bool route_wants_stream(const struct http_req *r)
{
    const char *accept = http_header(r, "accept");
    return accept && strstr(accept, "text/event-stream");
}

/* ---- dispatch -------------------------------------------------------------------------------- */

/* {node} and what follows it: names may hold any byte, so the end of the path is what ends one. */
static bool match_node(const char *rest, const char *path, struct route_args *a)
{
    const size_t tail = strlen(rest), size = strlen(path);
    if (size <= tail || strcmp(path + size - tail, rest) || size - tail >= sizeof a->node)
        return false;
    memcpy(a->node, path, size - tail);
    a->node[size - tail] = 0;
    return true;
}

static bool match(const char *pattern, const char *path, struct route_args *a)
{
    for (; *pattern; pattern++) {
        if (!strncmp(pattern, "{node}", 6)) return match_node(pattern + 6, path, a);
        if (!strncmp(pattern, "{name}", 6)) {
            a->name = path;
            return *path != 0;
        }
        bool id = !strncmp(pattern, "{id}", 4);
        if (id || !strncmp(pattern, "{n}", 3)) {
            size_t n = strspn(path, "0123456789");
            if (!n || n > 18) return false;
            *(id ? &a->id : &a->n) = strtoll(path, NULL, 10);
            path += n;
            pattern += id ? 3 : 2;
            continue;
        }
        if (*pattern != *path++) return false;
    }
    return !*path;
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
    return false;
}

/* A parameter that nothing reads is a typing error that would go unnoticed. */
static int check_params(struct http_req *r, const struct route *t)
{
    struct err e;
    const char *name;
    for (int i = 0; (name = http_query_name(r, i)); i++) {
        if (*name && has_word(t->params, name)) continue;
        err_field(&e, ERR_INVALID, "", "unknown query parameter \"%.40s\"; %s %s knows: %s", name,
                  t->method, t->path, *t->params ? t->params : "none");
        route_fail(r, &e);
        return -1;
    }
    return 0;
}

void routes_handle(void *arg, struct http_req *r)
{
    struct routes *R = arg;
    char allow[64] = "";
    struct err e;
    for (const struct route *t = route_table; t->method; t++) {
        struct route_args a = {0};
        if (!match(t->path, http_path(r), &a)) continue;
        if (!strcmp(t->method, http_method(r))) {
            if (!check_params(r, t)) t->call(R, r, &a);
            return;
        }
        size_t n = strlen(allow);
        snprintf(allow + n, sizeof allow - n, "%s%s", n ? ", " : "", t->method);
    }
    if (*allow) {
        http_set_header(r, "Allow", allow);
        err_set(&e, ERR_INVALID, "%s knows only %s", http_path(r), allow);
        route_problem(r, 405, &e, NULL);
        return;
    }
    err_set(&e, ERR_NOT_FOUND, "no such path: see /openapi.yaml");
    route_fail(r, &e);
}
