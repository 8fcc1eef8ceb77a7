/* key.c: the key of one run. Every rank derives it from --join-key, --nodes and the bytes of SPEC.
 * So ranks that were started with different ones find no rank 0, and two runs with one join key
 * cannot take nodes from each other. */
#include <stdlib.h>
#include <string.h>
#include "api/core/hmac.h"
#include "api/join_key.h"
#include "daemon/run/one_run.h"

/* Reads SPEC, at most SPEC_SIZE bytes of it. stdin counts as an empty spec, because engines give it
 * to one rank at most. */
static char *read_spec(const struct one_run *r, size_t *size, struct err *e)
{
    if (strcmp(r->o.spec, "-")) return file_read(r->o.spec, SPEC_SIZE, size, e);
    *size = 0;
    return calloc(1, 1);
}

static int derive(const struct one_run *r, const void *secret, size_t secret_size,
                  uint8_t out[HMAC_SIZE], struct err *e)
{
    char head[48];
    size_t size = 0;
    char *spec = read_spec(r, &size, e);
    if (!spec) return err_prefix(e, "every rank reads the same SPEC");
    const size_t n = (size_t)snprintf(head, sizeof head, "seqd run, %lld nodes\n",
                                      (long long)r->o.nodes);
    char *text = malloc(n + size);
    if (!text) abort();
    memcpy(text, head, n);
    memcpy(text + n, spec, size);
    hmac_sha256(secret, secret_size, text, n + size, out);
    free(text);
    free(spec);
    return 0;
}

int run_make_key(struct one_run *r, struct err *e)
{
    uint8_t key[HMAC_SIZE];
    size_t size = 0;
    char *secret = file_read(r->o.join_key, JOIN_KEY_MAX, &size, e);
    if (!secret) return err_prefix(e, "--join-key %s", r->o.join_key);
    int rc = derive(r, secret, size, key, e);
    explicit_bzero(secret, size);
    free(secret);
    if (!rc) rc = file_join(r->key, e, "%s/key", r->dir);
    if (!rc) rc = file_write_private(r->key, (const char *)key, sizeof key, e);
    explicit_bzero(key, sizeof key);
    return rc;
}
