/* api.c: sends requests, repeats those that may be repeated, turns refusals into messages and exit
 * codes, and prints answers in the chosen format. */
#include "client/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "api/core/assert.h"
#include "client/csv.h"
#include "client/text.h"
#include "client/yaml.h"

void api_key(char out[API_KEY])
{
    unsigned char bits[16];
    ssize_t n = getrandom(bits, sizeof bits, 0);
    assert(n == sizeof bits);
    int o = snprintf(out, API_KEY, "\"");
    for (size_t i = 0; i < sizeof bits; i++)
        o += snprintf(out + o, (size_t)(API_KEY - o), "%02x", bits[i]);
    snprintf(out + o, (size_t)(API_KEY - o), "\"");
}

static int exit_of_status(int status)
{
    return status == 404                    ? CLI_NOT_FOUND
           : status == 409 || status == 412 ? CLI_CONFLICT
                                            : CLI_ERROR;
}

/* Writes a pointer such as "/data/seq_len" in the form of job specs: "data.seq_len". */
static char *field_of(const char *pointer, char *out, size_t size)
{
    snprintf(out, size, "%s", *pointer == '/' ? pointer + 1 : pointer);
    for (char *p = out; *p; p++)
        if (*p == '/') *p = '.';
    return out;
}

/* Tells whether a sentence begins with its field. In a batch, "jobs[3]: kind is missing" begins
 * with the field jobs.3.kind. */
static bool says_field(const char *text, const char *field)
{
    int n = 0, begun = 0;
    sscanf(field, "jobs.%*d.%n", &n);
    sscanf(text, "jobs[%*d]: %n", &begun);
    return n && begun ? err_begins(text + begun, field + n) : err_begins(text, field);
}

/* Adds a line for each error, with its sentence, which begins with its field. If the first line
 * already has the sentence, adds only the field. */
static void add_errors(const struct jv *errors, const char *detail, FILE *out)
{
    for (size_t i = 0; i < jv_len(errors); i++) {
        char field[128];
        const struct jv *one = jv_at(errors, i, NULL);
        const char *text = jv_str(one, "detail", "");
        field_of(jv_str(one, "pointer", ""), field, sizeof field);
        if (strcmp(text, detail))
            fprintf(out, "\n  %s%s%s", says_field(text, field) ? "" : field,
                    !*field || says_field(text, field) ? "" : ": ", text);
        else if (*field && !strstr(detail, field))
            fprintf(out, "\n  field: %s", field);
    }
}

/* Prints an error in the form of OpenAI's API, which the paths below /openai/ have. */
static int refused_openai(int rc, int status, const struct jv *p)
{
    return cli_fail(rc, "%s (%d %s)", jv_str(p, "error.message", "refused"), status,
                    jv_str(p, "error.code", jv_str(p, "error.type", "error")));
}

int api_refused(const struct http_reply *r, const char *path)
{
    struct err e = {0};
    char *more = NULL, need[TEXT_SHORT];
    size_t size;
    struct jv *p = jv_parse(r->body ? r->body : "", r->size, &e);
    int rc = exit_of_status(r->status);
    if (!jv_is_object(p)) {
        jv_free(p);
        return cli_fail(rc, "%s: status %d without an explanation. Is this seqd?", path, r->status);
    }
    if (jv_is_object(jv_get(p, "error"))) {
        rc = refused_openai(rc, r->status, p);
        jv_free(p);
        return rc;
    }
    const char *detail = jv_str(p, "detail", jv_str(p, "title", "refused"));
    int64_t bytes = jv_int(p, "plan.memory.total_bytes", -1);
    FILE *f = open_memstream(&more, &size);
    assert(f);
    add_errors(jv_get(p, "errors"), detail, f);
    if (bytes >= 0) fprintf(f, "\n  planned: %s per rank", text_bytes(need, bytes));
    if (r->status >= 500) fprintf(f, "\n  request %s", jv_str(p, "request_id", "unknown"));
    const int lost = fclose(f);
    assert(!lost); /* fails only without memory */
    cli_fail(rc, "%s (%d %s)%s", detail, r->status, jv_str(p, "code", "error"), more);
    free(more);
    jv_free(p);
    return rc;
}

bool api_busy(int status)
{
    return status == 429 || (status >= 502 && status <= 504);
}

int64_t api_wait_ms(const struct http_reply *r, int64_t wait_ms)
{
    const int64_t s = r->retry_after_s;
    if (s > 0) wait_ms = s > API_WAIT_MS / 1000 ? API_WAIT_MS : s * 1000;
    return wait_ms > API_WAIT_MS ? API_WAIT_MS : wait_ms;
}

/* Tells whether q may be sent again even if seqd has carried it out already. After 502 or 504 this
 * is possible, because a proxy may give this answer although seqd has carried out the request. */
static bool repeats(const struct http_request *q)
{
    return q->idempotency_key || !strcmp(q->method, "GET") || !strcmp(q->method, "DELETE");
}

/* Tells whether to send q again. If a GET got no answer, it is not sent again, because no answer
 * means that no seqd is running. */
static bool retryable(const struct http_request *q, const struct http_reply *r, int failed,
                      const struct err *e)
{
    if (failed) return e->code == ERR_PEER && strcmp(q->method, "GET");
    /* 409 with Retry-After means that the answer to the first try was lost and that seqd is still
     * working on it. */
    return r->status == 429 || r->status == 503 || (api_busy(r->status) && repeats(q)) ||
           (r->status == 409 && r->retry_after_s > 0);
}

static void pause_ms(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Sends q again and again until its answer is final. Between the tries it waits 100, 200, 400 and
 * 800 ms, or for as long as the server asks (api_wait_ms). */
int api_ask(struct cli *c, const struct http_request *q, struct http_reply *r)
{
    struct err e = {0};
    for (int i = 0;; i++) {
        const int failed = http_do(c->http, q, r, &e);
        if (i + 1 >= API_TRIES || !retryable(q, r, failed, &e))
            return failed ? cli_fail(CLI_ERROR, "%s", e.text) : CLI_OK;
        const int64_t wait_ms = failed ? 100ll << i : api_wait_ms(r, 100ll << i);
        http_reply_fini(r);
        pause_ms(wait_ms);
    }
}

static bool is_refused(const struct http_reply *r)
{
    return r->status < 200 || r->status > 299;
}

static int take_answer(const struct http_request *q, const struct http_reply *r, struct jv **out)
{
    struct err e = {0};
    if (is_refused(r)) return api_refused(r, q->path);
    *out = jv_parse(r->body, r->size, &e);
    return *out ? CLI_OK : cli_fail(CLI_ERROR, "the answer of %s is not JSON: %s", q->path, e.text);
}

/* Sends q. If `quiet` is set, a refusal is not printed and counts as an answer without a value. */
static int request(struct cli *c, const struct http_request *q, bool quiet, struct jv **out)
{
    struct http_reply r;
    *out = NULL;
    int rc = api_ask(c, q, &r);
    if (rc) return rc;
    if (!quiet || !is_refused(&r)) rc = take_answer(q, &r, out);
    http_reply_fini(&r);
    return rc;
}

int api_get(struct cli *c, const char *path, struct jv **out)
{
    return request(c, &(struct http_request){.method = "GET", .path = path}, false, out);
}

/* Adds one page of a list to rows, as request does. `cursor` is "" for the first page, and becomes
 * the cursor of the next page, or "" at the end. */
static int add_page(struct cli *c, const char *path, bool quiet, char cursor[256], struct jv *rows)
{
    char page[512];
    struct jv *list;
    const struct http_request q = {.method = "GET", .path = page};
    snprintf(page, sizeof page, "%s?limit=1000%s%s", path, *cursor ? "&cursor=" : "", cursor);
    int rc = request(c, &q, quiet, &list);
    const struct jv *data = jv_get(list, "data");
    for (size_t i = 0; i < jv_len(data); i++) jv_add(rows, jv_share(jv_at(data, i, NULL)));
    const bool more = jv_bool(list, "has_more", false) && jv_len(data);
    http_escape(cursor, 256, more ? jv_str(list, "next_cursor", "") : "");
    jv_free(list);
    return rc;
}

static int get_list(struct cli *c, const char *path, bool quiet, struct jv **out)
{
    char cursor[256] = "";
    struct jv *rows = jv_array();
    int rc;
    *out = NULL;
    do rc = add_page(c, path, quiet, cursor, rows);
    while (!rc && *cursor);
    if (rc) {
        jv_free(rows);
        return rc;
    }
    *out = jv_object();
    jv_put(*out, "data", rows);
    jv_put(*out, "next_cursor", jv_null());
    jv_put(*out, "has_more", jv_boolean(false));
    return CLI_OK;
}

int api_list(struct cli *c, const char *path, struct jv **out)
{
    return get_list(c, path, false, out);
}

int api_post(struct cli *c, const char *path, const char *body, const char *key, struct jv **out)
{
    struct http_request q = {.method = "POST", .path = path, .body = body, .idempotency_key = key};
    return request(c, &q, false, out);
}

int api_delete(struct cli *c, const char *path, struct jv **out)
{
    return request(c, &(struct http_request){.method = "DELETE", .path = path}, false, out);
}

int api_patch(struct cli *c, const char *path, const char *body, const char *if_match,
              struct jv **out)
{
    struct http_request q = {.method = "PATCH", .path = path, .body = body, .if_match = if_match};
    struct http_reply r;
    int rc = api_ask(c, &q, &r);
    *out = NULL;
    if (rc) return rc;
    if (r.status != 412) rc = take_answer(&q, &r, out);
    http_reply_fini(&r);
    return rc;
}

int api_job(struct cli *c, int64_t id, struct jv **out)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%lld", (long long)id);
    return api_get(c, path, out);
}

int api_newest_step(struct cli *c, int64_t id, bool quiet, int64_t *step)
{
    char path[64];
    struct jv *list = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%lld/checkpoints", (long long)id);
    const int rc = get_list(c, path, quiet, &list);
    const struct jv *data = jv_get(list, "data");
    *step = 0;
    for (size_t i = 0; i < jv_len(data); i++) {
        const int64_t one = jv_int(jv_at(data, i, NULL), "step", 0);
        if (one > *step) *step = one;
    }
    jv_free(list);
    return rc;
}

static void print_json(const struct jv *v, int style)
{
    char *s = jv_dump(v, style);
    puts(s);
    free(s);
}

bool api_print(const struct cli *c, const struct jv *v)
{
    int ascii = c->tty ? JV_ASCII : 0;
    if (c->output == OUT_JSON) {
        print_json(v, JV_INDENT | ascii);
    } else if (c->output == OUT_JSONL) {
        const struct jv *data = jv_get(v, "data");
        if (!jv_is_array(data)) print_json(v, ascii);
        for (size_t i = 0; jv_is_array(data) && i < jv_len(data); i++)
            print_json(jv_at(data, i, NULL), ascii);
    } else if (c->output == OUT_YAML) {
        const struct jv *data = jv_get(v, "data");
        yaml_print(stdout, jv_is_array(data) ? data : v, c->tty);
    } else if (c->output == OUT_CSV) {
        const struct jv *data = jv_get(v, "data");
        csv_print(stdout, jv_is_array(data) ? data : v, c->tty);
    } else {
        return false;
    }
    return true;
}

int api_print_field(const struct cli *c, const struct jv *v)
{
    const struct jv *at = jv_get(v, c->opt.field);
    if (!at) return cli_fail(CLI_NOT_FOUND, "there is no %s, or it is null", c->opt.field);
    char *s = jv_text(at);
    size_t n = strlen(s);
    if (c->tty) text_clean(s, n + 1, s, n, "\n\t");
    puts(s);
    free(s);
    return CLI_OK;
}
