/* intake.c: reads heads and bodies of one connection, and passes them to the HTTP library. */
#include "daemon/http/intake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_health(const struct target *t)
{
    return !strcmp(t->text, "/livez") || !strcmp(t->text, "/readyz");
}

/* Refuses a request, which is then the connection's last. The library gets an empty request
 * instead. */
static int refuse(struct client_intake *k, const struct request_verdict *v, struct sock *library)
{
    static const char empty[] = " / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const char *method = k->request.is_head ? "HEAD" : "GET";
    k->verdict = v;
    k->phase = INTAKE_DONE;
    k->in_size = 0;
    return sock_put(library, method, strlen(method)) || sock_put(library, empty, sizeof empty - 1)
               ? -1
               : 0;
}

/* Drops in[0, n). */
static void consume(struct client_intake *k, size_t n)
{
    memmove(k->in, k->in + n, k->in_size - n);
    k->in_size -= n;
    k->looked = 0;
}

/* Reads a head. Returns 1 if it is complete and handled, 0 if it is not complete yet, and -1 if
 * the connection must be killed. */
static int read_head(struct client_intake *k, const struct intake_rules *r, struct sock *library)
{
    const struct request_verdict *why = NULL;
    const int64_t n = guard_find(k->in, k->in_size, k->looked, &why);
    k->looked = k->in_size;
    if (!n) return 0;
    k->request.is_head = false;
    if (n > 0) why = guard_head(k->in, (size_t)n, r->local_only, &k->request);
    if (!why && !is_health(&k->request.target)) why = r->busy;
    const int later = r->attach ? r->attach(r->arg) : 0;
    if (later > 0) k->looked = 0;
    if (later) return later > 0 ? 0 : -1;
    if (why) return refuse(k, why, library) ? -1 : 1;
    if (sock_put(library, k->in, (size_t)n)) return -1;
    consume(k, (size_t)n);
    k->left = k->request.length;
    k->chunks = (struct chunked){.most = guard_body_size(&k->request.target)};
    k->phase = k->request.body == GUARD_CHUNKED  ? INTAKE_CHUNKS
               : k->request.body == GUARD_LENGTH ? INTAKE_LENGTH
                                                 : INTAKE_DONE;
    return 1;
}

static int put_length(struct client_intake *k, const char *bytes, size_t n, struct sock *library)
{
    k->left -= (int64_t)n;
    if (!k->left) k->phase = INTAKE_DONE;
    return sock_put(library, bytes, n);
}

/* Sends the last chunk to the library. This is done even if the client was refused, because the
 * library must answer in both cases. */
static int end_chunks(struct client_intake *k, const struct request_verdict *why,
                      struct sock *library)
{
    k->verdict = why;
    k->phase = INTAKE_DONE;
    if (why) k->in_size = 0;
    return sock_put(library, "0\r\n\r\n", 5);
}

/* Reads the bytes of the body from in[]. */
static int read_chunks(struct client_intake *k, struct sock *library)
{
    size_t at = 0, n_data;
    const char *data;
    const struct request_verdict *why = NULL;
    char size[24];
    int done = 0, rc = 0;
    while (!done && !rc && at < k->in_size) {
        at += chunked_read(&k->chunks, k->in + at, k->in_size - at, &data, &n_data, &done, &why);
        if (!n_data) continue;
        const int n = snprintf(size, sizeof size, "%zx\r\n", n_data);
        rc = sock_put(library, size, (size_t)n) || sock_put(library, data, n_data) ||
             sock_put(library, "\r\n", 2);
    }
    consume(k, at);
    if (rc) return -1;
    return done ? end_chunks(k, done < 0 ? why : NULL, library) : 0;
}

/* Handles the bytes in in[], as far as this is possible now. */
static int proceed(struct client_intake *k, const struct intake_rules *r, struct sock *library)
{
    int more = 1;
    while (more > 0 && k->in_size && k->phase != INTAKE_DONE) {
        if (k->phase == INTAKE_HEAD) {
            more = read_head(k, r, library);
        } else if (k->phase == INTAKE_CHUNKS) {
            if (read_chunks(k, library)) return -1;
        } else {
            const size_t n = (int64_t)k->in_size < k->left ? k->in_size : (size_t)k->left;
            if (put_length(k, k->in, n, library)) return -1;
            consume(k, n);
        }
    }
    if (!k->in_size) intake_free(k);
    return more < 0 ? -1 : 0;
}

/* Bytes of a body of known length are passed on directly. All other bytes pass through in[]. */
int intake_room(struct client_intake *k, char *piece, size_t piece_size, char **to, size_t *n)
{
    if (k->phase == INTAKE_LENGTH) {
        *to = piece;
        *n = k->left < (int64_t)piece_size ? (size_t)k->left : piece_size;
        return 0;
    }
    if (!k->in && !(k->in = malloc(GUARD_HEAD_SIZE))) return -1;
    *to = k->in + k->in_size;
    *n = GUARD_HEAD_SIZE - k->in_size;
    return 0;
}

int intake_took(struct client_intake *k, const char *at, size_t n, const struct intake_rules *r,
                struct sock *library)
{
    if (k->phase == INTAKE_LENGTH) return put_length(k, at, n, library);
    k->in_size += n;
    return proceed(k, r, library);
}

int intake_next(struct client_intake *k, const struct intake_rules *r, struct sock *library)
{
    k->phase = INTAKE_HEAD;
    return proceed(k, r, library);
}

void intake_free(struct client_intake *k)
{
    free(k->in);
    k->in = NULL;
}
