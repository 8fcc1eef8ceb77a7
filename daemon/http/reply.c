/* reply.c: answers with JSON, or with an error (application/problem+json), and reads the parameters
 * of a request's query. */
#include "daemon/http/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "api/core/openai_error.h"

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
    [ERR_UNAUTHORIZED] = {401, "not signed in"},
    [ERR_FORBIDDEN] = {403, "not allowed"},
    [ERR_WALL_LIMIT] = {409, "over its time"},
    [ERR_DEPENDENCY] = {409, "a job before it failed"},
};

int reply_status(enum err_code code)
{
    return code >= 0 && code < ERR_N ? problems[code].status : 500;
}

/* Writes a field as a JSON pointer, for example "data.train.0" as "/data/train/0". The name of an
 * adapter may have dots, which are kept. */
static void pointer_of(const char *field, char *out, size_t size)
{
    static const char list[] = "model.adapters.";
    const char *name = strncmp(field, list, sizeof list - 1) ? NULL : field + sizeof list - 1;
    size_t n = 0;
    if (*field && n + 1 < size) out[n++] = '/';
    for (; *field && n + 2 < size; field++) {
        const bool named = name && field >= name;
        if (named && (*field == '~' || *field == '/')) {
            out[n++] = '~';
            out[n++] = *field == '~' ? '0' : '1';
        } else {
            out[n++] = *field == '.' && !named ? '/' : *field;
        }
    }
    out[n] = 0;
}

static void put_error(struct jwrite *w, const struct err *e)
{
    char pointer[128];
    pointer_of(e->field, pointer, sizeof pointer);
    jwrite_object(w, NULL);
    jwrite_str(w, "pointer", pointer);
    jwrite_str(w, "detail", e->text);
    jwrite_end(w);
}

/* Adds the header and the line of the log that belong to an error of this status. */
static void begin_error(struct http_req *r, int status, const struct err *e)
{
    if (status == 503 || status == 429) http_set_header(r, "Retry-After", "1");
    if (status >= 500)
        log_warn("http.problem", "request=%lld status=%d text=\"%s\"", (long long)http_id(r),
                 status, e->text);
}

void reply_openai(struct http_req *r, int status, const struct err *e, const char *code)
{
    char body[6 * (sizeof e->text + sizeof e->field) + 256];
    const int64_t n = openai_error_write(status, e->text, e->field, code, body, sizeof body);
    begin_error(r, status, e);
    http_reply(r, status, "application/json", body, n > 0 ? (size_t)n : 0);
}

void reply_problem(struct http_req *r, int status, const struct err *e, const char *extra)
{
    reply_problems(r, status, e, 1, extra);
}

void reply_problems(struct http_req *r, int status, const struct err *e, int n_errs,
                    const char *extra)
{
    if (openai_error_applies(http_path(r))) {
        reply_openai(r, status, e, err_name(e->code));
        return;
    }
    size_t size = 4096 + (size_t)(n_errs + 1) * 6 * sizeof *e + (extra ? strlen(extra) : 0);
    char id[32], *body = malloc(size);
    struct jwrite w;
    if (!body) abort();
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
    for (int i = 0; i < n_errs; i++) put_error(&w, &e[i]);
    jwrite_end(&w);
    jwrite_str(&w, "request_id", id);
    if (extra) jwrite_raw(&w, "plan", extra);
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    begin_error(r, status, e);
    http_reply(r, status, "application/problem+json", body, n > 0 ? (size_t)n : 0);
    free(body);
}

void reply_fail(struct http_req *r, const struct err *e)
{
    reply_problem(r, reply_status(e->code), e, NULL);
}

void reply_json(struct http_req *r, int status, const char *json)
{
    http_reply(r, status, "application/json", json, strlen(json));
}

int reply_query_int(struct http_req *r, const char *name, int64_t fallback, int64_t lo, int64_t hi,
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
    reply_fail(r, &e);
    return -1;
}

int reply_query_dry_run(struct http_req *r, bool *out)
{
    const char *text = http_query(r, "dry_run");
    struct err e;
    *out = text && !strcmp(text, "true");
    if (!text || *out || !strcmp(text, "false")) return 0;
    err_field(&e, ERR_INVALID, "dry_run", "dry_run must be true or false");
    reply_fail(r, &e);
    return -1;
}

bool reply_wants_stream(const struct http_req *r)
{
    const char *accept = http_header(r, "accept");
    return accept && strstr(accept, "text/event-stream");
}
