/* http.c: uses libcurl's multi handle for requests. It sets the options of a request, collects the
 * headers and bytes of the answer, and puts errors into words. */
#include "client/http.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "api/core/assert.h"
#include "api/core/version.h"

#define CONNECT_MS 10000

struct http {
    CURLM *multi;
    char url[512], ca[1024];
    char token[256];
    struct http_stream *open; /* list of open streams */
};

struct http_stream {
    struct http *http;
    struct http_stream *next;
    CURL *easy;
    struct curl_slist *headers;
    struct http_reply reply;
    /* called with the bodies of status 200 and 206; if it is NULL, all bodies are collected */
    http_bytes *call;
    void *arg;
    bool done, too_large;
    CURLcode result;
    char why[CURL_ERROR_SIZE];
};

struct http *http_create(const char *base_url, struct err *e)
{
    struct http *h = calloc(1, sizeof *h);
    assert(h);
    http_set_url(h, base_url);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(h->multi = curl_multi_init())) {
        free(h);
        err_set(e, ERR_INTERNAL, "libcurl does not start");
        return NULL;
    }
    return h;
}

void http_destroy(struct http *h)
{
    if (!h) return;
    while (h->open) http_close(h->open);
    curl_multi_cleanup(h->multi);
    curl_global_cleanup();
    explicit_bzero(h->token, sizeof h->token);
    free(h);
}

void http_set_url(struct http *h, const char *base_url)
{
    snprintf(h->url, sizeof h->url, "%s", base_url);
}

void http_set_token(struct http *h, const char *token)
{
    snprintf(h->token, sizeof h->token, "%s", token);
}

void http_set_ca(struct http *h, const char *path)
{
    snprintf(h->ca, sizeof h->ca, "%s", path ? path : "");
}

const char *http_url(const struct http *h)
{
    return h->url;
}

void http_reply_fini(struct http_reply *r)
{
    free(r->body);
    memset(r, 0, sizeof *r);
}

static size_t collect(struct http_stream *s, const char *p, size_t n)
{
    struct http_reply *r = &s->reply;
    if (r->size + n >= HTTP_BODY_SIZE) {
        s->too_large = true;
        return 0;
    }
    /* The room is the smallest power of two that is at least size + 1 and at least 4096. It is
     * computed each time and not stored. */
    size_t room = 4096, need = r->size + n + 1;
    while (room < r->size + 1) room *= 2;
    if (!r->body || need > room) {
        while (room < need) room *= 2;
        r->body = realloc(r->body, room);
        assert(r->body);
    }
    memcpy(r->body + r->size, p, n);
    r->size += n;
    r->body[r->size] = 0;
    return n;
}

static size_t on_bytes(char *p, size_t size, size_t n, void *arg)
{
    struct http_stream *s = arg;
    long status = 0;
    n *= size;
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    s->reply.status = (int)status;
    if (!s->call || (status != 200 && status != 206)) return collect(s, p, n);
    s->call(s->arg, p, n);
    return n;
}

/* Returns the value of the header `name` if the line is that header, otherwise NULL. The line is
 * not NUL-terminated. */
static const char *header_value(const char *line, size_t n, const char *name)
{
    size_t k = strlen(name);
    if (n <= k + 1 || strncasecmp(line, name, k) || line[k] != ':') return NULL;
    for (k++; k < n && line[k] == ' '; k++) continue;
    return line + k;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct http_stream *s = arg;
    char line[256];
    const char *v;
    n *= size;
    if (n >= sizeof line) return n;
    memcpy(line, p, n);
    line[n] = 0;
    if ((v = header_value(line, n, "Seqd-Next-Offset")))
        s->reply.next_offset = strtoll(v, NULL, 10);
    if ((v = header_value(line, n, "Upload-Offset"))) s->reply.upload_offset = strtoll(v, NULL, 10);
    if ((v = header_value(line, n, "Retry-After"))) s->reply.retry_after_s = strtoll(v, NULL, 10);
    if ((v = header_value(line, n, "Seqd-Log-End")))
        s->reply.log_end = !strncasecmp(v, "true", 4) || *v == '1';
    return n;
}

static void add_header(struct http_stream *s, const char *name, const char *value)
{
    char line[512];
    if (!value) return;
    snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(s->headers, line);
    assert(longer);
    s->headers = longer;
}

static bool is_socket(const char *url)
{
    return !strncmp(url, "unix:", 5);
}

bool http_is_local(const char *url)
{
    static const char *const names[] = {"localhost", "[::1]", "0.0.0.0", "[::]"};
    const char *host = strstr(url, "://");
    if (is_socket(url)) return true;
    host = host ? host + 3 : url;
    const size_t n = strcspn(host, "/?#");
    if (memchr(host, '@', n)) return false;
    size_t k = strncmp(host, "127.", 4) ? 0 : strspn(host, "0123456789.");
    for (int i = 0; i < 4 && !k; i++)
        if (!strncasecmp(host, names[i], strlen(names[i]))) k = strlen(names[i]);
    return k && (k == n || host[k] == ':');
}

/* Refuses to send a token without encryption, because others on the network could read it. */
static int check_token(const struct http *h, struct err *e)
{
    if (!*h->token || !strncasecmp(h->url, "https://", 8) || http_is_local(h->url)) return 0;
    return err_set(e, ERR_INVALID,
                   "%s: the token could be read on the way: write https://, or unix:PATH for a "
                   "socket of this machine",
                   h->url);
}

/* Sets the request's address, and the authorities that it trusts. */
static void set_server(struct http_stream *s, const char *path)
{
    char url[4096];
    const struct http *h = s->http;
    const bool socket = is_socket(h->url);
    snprintf(url, sizeof url, "%s%s", socket ? "http://localhost" : h->url, path);
    curl_easy_setopt(s->easy, CURLOPT_URL, url);
    curl_easy_setopt(s->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(s->easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (socket) curl_easy_setopt(s->easy, CURLOPT_UNIX_SOCKET_PATH, h->url + 5);
    if (http_is_local(url)) curl_easy_setopt(s->easy, CURLOPT_NOPROXY, "*");
    if (!*h->ca) return;
    curl_easy_setopt(s->easy, CURLOPT_CAINFO, h->ca);
    curl_easy_setopt(s->easy, CURLOPT_CAPATH, NULL); /* the system's authorities are not trusted */
}

static void set_options(struct http_stream *s, const struct http_request *q)
{
    char range[40];
    CURL *c = s->easy;
    set_server(s, q->path);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, s->why);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, q->patient ? 0L : 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, q->patient ? 0L : (long)HTTP_IDLE_MS / 1000);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, q->patient ? 1L : 0L);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, s);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
    if (strcmp(q->method, "GET")) {
        const size_t size = q->body_size || !q->body ? q->body_size : strlen(q->body);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)size);
        curl_easy_setopt(c, CURLOPT_COPYPOSTFIELDS, q->body ? q->body : "");
        add_header(s, "Content-Type", q->type ? q->type : "application/json");
        add_header(s, "Upload-Offset", q->upload_offset);
        /* do not let libcurl wait for "100 Continue", to save a round trip */
        add_header(s, "Expect", "");
    }
    if (*s->http->token) {
        char bearer[sizeof s->http->token + 8];
        snprintf(bearer, sizeof bearer, "Bearer %s", s->http->token);
        add_header(s, "Authorization", bearer);
        explicit_bzero(bearer, sizeof bearer);
    }
    add_header(s, "Accept", q->accept);
    add_header(s, "Last-Event-ID", q->last_event_id);
    if (q->range_from > 0) {
        snprintf(range, sizeof range, "bytes=%lld-", (long long)q->range_from);
        add_header(s, "Range", range);
        add_header(s, "If-Range", q->if_range);
    }
    add_header(s, "Idempotency-Key", q->idempotency_key);
    add_header(s, "If-Match", q->if_match);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "seqctl/" SEQD_VERSION);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, s->headers);
}

struct http_stream *http_open(struct http *h, const struct http_request *q, http_bytes *call,
                              void *arg, struct err *e)
{
    if (check_token(h, e)) return NULL;
    struct http_stream *s = calloc(1, sizeof *s);
    assert(s);
    s->http = h;
    s->call = call;
    s->arg = arg;
    s->reply.next_offset = s->reply.upload_offset = s->reply.retry_after_s = -1;
    s->easy = curl_easy_init();
    if (!s->easy) {
        free(s);
        err_set(e, ERR_INTERNAL, "libcurl does not start a request");
        return NULL;
    }
    set_options(s, q);
    CURLMcode rc = curl_multi_add_handle(h->multi, s->easy);
    assert(rc == CURLM_OK);
    s->next = h->open;
    h->open = s;
    return s;
}

void http_close(struct http_stream *s)
{
    if (!s) return;
    struct http_stream **at = &s->http->open;
    for (; *at != s; at = &(*at)->next) assert(*at);
    *at = s->next;
    curl_multi_remove_handle(s->http->multi, s->easy);
    curl_easy_cleanup(s->easy);
    curl_slist_free_all(s->headers);
    http_reply_fini(&s->reply);
    free(s);
}

static void finish(struct http *h, CURL *easy, CURLcode result)
{
    for (struct http_stream *s = h->open; s; s = s->next) {
        if (s->easy != easy) continue;
        long status = 0;
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        s->reply.status = (int)status;
        s->result = result;
        s->done = true;
    }
}

bool http_turn(struct http *h, int timeout_ms, int fd)
{
    struct curl_waitfd extra = {.fd = fd, .events = CURL_WAIT_POLLIN};
    int running = 0, left = 0;
    curl_multi_perform(h->multi, &running);
    for (CURLMsg *m; (m = curl_multi_info_read(h->multi, &left));)
        if (m->msg == CURLMSG_DONE) finish(h, m->easy_handle, m->data.result);
    /* Do not wait if a stream has finished, so that its end is reported immediately. */
    for (struct http_stream *s = h->open; s; s = s->next)
        if (s->done) timeout_ms = 0;
    curl_multi_poll(h->multi, &extra, fd >= 0 ? 1 : 0, timeout_ms, NULL);
    return fd >= 0 && extra.revents;
}

static int explain(const struct http_stream *s, struct err *e)
{
    const char *url = s->http->url, *ca = s->http->ca;
    const char *why = s->why[0] ? s->why : curl_easy_strerror(s->result);
    if (s->too_large)
        return err_set(e, ERR_TOO_LARGE, "the answer is larger than %d MiB", HTTP_BODY_SIZE >> 20);
    switch (s->result) {
    case CURLE_OK: return 0;
    case CURLE_COULDNT_CONNECT:
        return err_set(e, ERR_PEER,
                       "cannot reach seqd at %s. Is it running? Start one with `seqd --dev --state "
                       "DIR`, or say where it is with --url",
                       url);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(e, ERR_TIMEOUT, "seqd at %s does not answer", url);
    case CURLE_PEER_FAILED_VERIFICATION:
        return err_set(e, ERR_INVALID,
                       "the certificate of %s is not trusted (%s): name the file of the authority "
                       "that signed it with --ca FILE or SEQD_CA, and the server as its "
                       "certificate does",
                       url, why);
    case CURLE_SSL_CACERT_BADFILE:
        return err_set(e, ERR_INVALID, "--ca %s is no PEM file with certificates (%s)", ca, why);
    case CURLE_SSL_CONNECT_ERROR: return err_set(e, ERR_PEER, "%s: %s; is it http://?", url, why);
    default: return err_set(e, ERR_PEER, "%s: %s", url, why);
    }
}

bool http_done(const struct http_stream *s, struct err *e)
{
    if (s->done && e) {
        e->code = ERR_NONE;
        explain(s, e);
    }
    return s->done;
}

const struct http_reply *http_answer(const struct http_stream *s)
{
    return &s->reply;
}

int http_do(struct http *h, const struct http_request *q, struct http_reply *r, struct err *e)
{
    struct err why = {0};
    memset(r, 0, sizeof *r);
    struct http_stream *s = http_open(h, q, NULL, NULL, e);
    if (!s) return -1;
    while (!http_done(s, &why)) http_turn(h, 1000, -1);
    *r = s->reply; /* passes the body to the caller, who owns it now */
    memset(&s->reply, 0, sizeof s->reply);
    http_close(s);
    if (why.code != ERR_NONE) {
        http_reply_fini(r);
        if (e) *e = why;
        return -1;
    }
    if (!r->body) r->body = calloc(1, 1);
    assert(r->body);
    return 0;
}

char *http_escape(char *out, size_t size, const char *s)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t o = 0;
    for (; *s && o + 4 < size; s++) {
        unsigned char c = (unsigned char)*s;
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || strchr("-._~", c)) {
            out[o++] = (char)c;
        } else {
            out[o++] = '%';
            out[o++] = hex[c >> 4];
            out[o++] = hex[c & 15];
        }
    }
    out[o] = 0;
    return out;
}
