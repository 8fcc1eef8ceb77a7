/* key.c: reads the Idempotency-Key of a request, holds the key while the request runs, and finds
 * the jobs that an earlier request with this key made. */
#include "daemon/http/key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/spec/json.h"

int key_read(struct submit_key *k, struct routes *R, struct http_req *r,
             const struct principal *who, struct err *e)
{
    const char *key = http_header(r, "idempotency-key");
    const size_t n = key ? strlen(key) : 0;
    size_t size;
    k->R = R;
    k->r = r;
    if (!key) return 0;
    if (!n || n > KEY_MAX)
        return err_set(e, ERR_INVALID, "Idempotency-Key must have 1 to %d bytes", KEY_MAX);
    const char *body = http_body(r, &size);
    char *canonical = json_canonical(body, size, e);
    if (!canonical) return -1;
    snprintf(k->text, sizeof k->text, "%s %s", who->user, key);
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, canonical, strlen(canonical));
    sha256_hex(&sha, k->fingerprint);
    free(canonical);
    return 0;
}

int key_hold(struct submit_key *k, struct err *e)
{
    if (!*k->text) return 0;
    for (const struct submit_key *q = k->R->keys; q; q = q->next) {
        if (strcmp(q->text, k->text)) continue;
        http_set_header(k->r, "Retry-After", "1");
        return err_set(e, ERR_CONFLICT, "a request with this Idempotency-Key is still under way");
    }
    k->held = true;
    k->next = k->R->keys;
    k->R->keys = k;
    return 0;
}

void key_drop(struct submit_key *k)
{
    if (!k->held) return;
    struct submit_key **at = &k->R->keys;
    while (*at && *at != k) at = &(*at)->next;
    if (*at) *at = k->next;
    k->held = false;
}

static void on_key(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct submit_key *k = arg;
    struct err e;
    if (failed) {
        k->found(k->arg, 0, 0, failed);
        return;
    }
    const struct store_row *row = rows->n_rows ? &rows->row[0] : NULL;
    if (!row || !strcmp(row->text[0], k->fingerprint)) {
        k->found(k->arg, row ? row->n[0] : 0, 0, NULL);
        return;
    }
    err_set(&e, ERR_INVALID, "this Idempotency-Key came before with another body (job %lld)",
            (long long)row->n[0]);
    k->found(k->arg, 0, 422, &e);
}

void key_find(struct submit_key *k, key_found *found, void *arg)
{
    k->found = found;
    k->arg = arg;
    if (*k->text)
        store_read(control_store(k->R->control), ASK_KEY, NULL, k->text, on_key, k);
    else
        found(arg, 0, 0, NULL);
}
