/* thief ADDRESS NAME PKI: opens a session as the node NAME with the key and the certificate in the
 * directory PKI, which is the STATE/pki of a node. The certificate may be for a different name.
 * Prints seqd's answer, which is "welcome", or "refused:" with the reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/rpc.h"
#include "api/wire.h"

static struct loop *loop;
static const char *name;

static void on_opened(void *arg, struct rpc_stream *s)
{
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 1};
    struct arena a;
    size_t size;
    arena_init(&a, 16 << 20);
    snprintf(m.node, sizeof m.node, "%s", name);
    void *data = wire_pack(&m, &a, &size);
    if (!data || rpc_send(s, data, size)) abort();
    arena_fini(&a);
}

static void on_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct arena a;
    struct msg m;
    struct err e;
    arena_init(&a, 16 << 20);
    if (wire_unpack(data, size, &a, &m, &e)) abort();
    if (m.type == MSG_WELCOME) puts("welcome");
    if (m.type == MSG_REFUSED) printf("refused: %s\n", m.reason);
    arena_fini(&a);
    loop_stop(loop);
}

static void on_refused(void *arg, const char *why)
{
    printf("refused: %s\n", why);
    loop_stop(loop);
}

static void give_up(void *arg)
{
    puts("no answer");
    loop_stop(loop);
}

int main(int argc, char **argv)
{
    static const struct rpc_calls calls = {on_opened, on_message, NULL, on_refused};
    char path[FILE_PATH_SIZE];
    struct err e;
    if (argc != 4) return 2;
    name = argv[2];
    if (file_join(path, &e, "%s/node.key", argv[3])) return 2;
    char *key = file_read(path, PKI_PEM_SIZE, NULL, &e);
    if (file_join(path, &e, "%s/node.pem", argv[3])) return 2;
    char *cert = file_read(path, PKI_FILE_SIZE, NULL, &e);
    if (!key || !cert) return fprintf(stderr, "%s\n", e.text), 2;
    cert = strstr(cert, "-----BEGIN");
    char *ca = strstr(cert + 1, "-----BEGIN");
    const struct rpc_identity id = {strdup(ca), cert, key};
    *ca = 0;
    loop = loop_create(NULL, NULL, &e);
    struct loop_timer *limit = loop_timer_create(loop, give_up, NULL);
    loop_timer_set(limit, 10000);
    struct rpc_client *c = rpc_dial_tls(loop, argv[1], &id, &calls, NULL, &e);
    if (!c) return fprintf(stderr, "%s\n", e.text), 2;
    loop_run(loop);
    rpc_client_destroy(c);
    return 0;
}
