/* test_api_tls: tests sessions over TLS. Checks which peers may open a session, which peers may
 * only ask to join, and which messages client and server get. */
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/address.h"
#include "api/core/file.h"
#include "api/rpc.h"
#include "tests/lib/test.h"

static char dir[] = "/tmp/seqd-tls-XXXXXX";
static struct err e;
static struct loop *loop;
static struct pki *ours, *other;

struct side {
    struct rpc_stream *stream;
    int n_opened, n_closed, n_messages, n_refused;
    bool joins;
    struct pki_node node; /* the last peer; its name is empty if there was none */
    char why[512], peer[RPC_PEER_SIZE];
};

static void on_opened(void *arg, struct rpc_stream *s)
{
    struct side *side = arg;
    const struct pki_node *n = rpc_stream_node(s);
    side->n_opened++;
    side->stream = s;
    side->joins = rpc_stream_joins(s);
    side->node = n ? *n : (struct pki_node){0};
    snprintf(side->peer, sizeof side->peer, "%s", rpc_stream_peer(s));
}

static void on_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct side *side = arg;
    side->n_messages++;
}

static void on_closed(void *arg, struct rpc_stream *s, const char *why)
{
    struct side *side = arg;
    side->n_closed++;
    if (side->stream == s) side->stream = NULL;
}

static void on_refused(void *arg, const char *why)
{
    struct side *side = arg;
    side->n_refused++;
    snprintf(side->why, sizeof side->why, "%s", why);
}

static const struct rpc_calls calls = {on_opened, on_message, on_closed, on_refused};

static void give_up(void *arg)
{
    printf("gave up waiting\n");
    abort();
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        struct loop_timer *limit_ = loop_timer_create(loop, give_up, NULL);                        \
        loop_timer_set(limit_, 60000);                                                             \
        while (!(cond)) loop_turn(loop, 1000);                                                     \
        loop_timer_destroy(limit_);                                                                \
    } while (0)

static struct rpc_server *server;
static struct side at_server;
static char address[64];

static void serve(int64_t life_s)
{
    const struct rpc_authority a = {ours, life_s};
    memset(&at_server, 0, sizeof at_server);
    loop = loop_create(NULL, NULL, NULL);
    server = rpc_serve_tls(loop, "127.0.0.1:0", &a, &calls, &at_server, &e);
    CHECK_MSG(server, "%s", e.text);
    snprintf(address, sizeof address, "127.0.0.1:%d", rpc_server_port(server));
}

static void stop(void)
{
    rpc_server_destroy(server);
    loop_destroy(loop);
}

static struct texts {
    char key[PKI_PEM_SIZE], cert[PKI_PEM_SIZE], csr[PKI_PEM_SIZE];
    struct rpc_identity id;
} texts;

/* Makes the identity of a node. The node's certificate is signed by the authority `ca`. The node
 * accepts coordinators whose certificates are signed by the authority `trusts`. */
static const struct rpc_identity *node_of(const struct pki *ca, const struct pki *trusts,
                                          const char *name, int64_t life_s)
{
    struct pki_node as = {.serial = 7, .from_s = time(NULL) - 7200, .until_s = time(NULL) + life_s};
    snprintf(as.name, sizeof as.name, "%s", name);
    CHECK(!pki_key_make(texts.key, &e) && !pki_request(texts.key, name, texts.csr, &e));
    CHECK(!pki_sign(ca, texts.csr, &as, texts.cert, &e));
    texts.id = (struct rpc_identity){pki_ca(trusts), texts.cert, texts.key};
    return &texts.id;
}

static void test_session(void)
{
    struct side c = {0};
    serve(RPC_LIFE_S);
    struct rpc_client *client = rpc_dial_tls(loop, address, node_of(ours, ours, "n1", 60), &calls,
                                             &c, &e);
    CHECK_MSG(client, "%s", e.text);
    UNTIL(c.stream && at_server.stream);
    CHECK_STR(at_server.node.name, "n1");
    CHECK(at_server.node.serial == 7 && !at_server.joins);
    CHECK_MSG(!strncmp(at_server.peer, "ipv4:127.0.0.1:", 15), "%s", at_server.peer);
    CHECK(!rpc_send(c.stream, "abc", 3));
    UNTIL(at_server.n_messages == 1);
    /* A new identity is used only from the next session on. */
    rpc_client_renew(client, node_of(ours, ours, "n2", 60));
    CHECK(!rpc_send(c.stream, "abc", 3));
    UNTIL(at_server.n_messages == 2);
    rpc_stream_close(c.stream);
    UNTIL(at_server.n_opened == 2);
    CHECK_STR(at_server.node.name, "n2");
    rpc_client_destroy(client);
    UNTIL(at_server.n_closed == 2);
    stop();
}

static void refused(const struct rpc_identity *id, const char *why)
{
    struct side c = {0};
    struct rpc_client *client = rpc_dial_tls(loop, address, id, &calls, &c, &e);
    UNTIL(c.n_refused == 1);
    CHECK_MSG(strstr(c.why, why), "%s", c.why);
    CHECK(c.n_opened == 0 && at_server.n_opened == 0);
    rpc_client_destroy(client);
}

static void test_refused(void)
{
    struct pki_server own;
    serve(RPC_LIFE_S);
    refused(node_of(ours, ours, "late", -60), "node late expired at");
    refused(node_of(other, ours, "n1", 60), "node n1 is not of this seqd");
    CHECK(!pki_serve(ours, time(NULL), 60, &own, &e));
    texts.id = (struct rpc_identity){pki_ca(ours), own.chain, own.key};
    refused(&texts.id, "not of a node");
    stop();
}

/* Checks that without a certificate only Join is possible. */
static void test_join(void)
{
    struct side c = {0};
    serve(RPC_LIFE_S);
    const struct rpc_identity id = {pki_ca(ours), NULL, NULL};
    struct rpc_client *client = rpc_dial_tls(loop, address, &id, &calls, &c, &e);
    UNTIL(c.stream && at_server.stream);
    CHECK(at_server.joins && !at_server.node.name[0]);
    rpc_client_destroy(client);
    UNTIL(at_server.n_closed == 1);
    stop();
}

/* A client of gRPC that is not a node. It trusts our authority, has no certificate, and
 * nevertheless calls Session. It calls from a thread, because the server's loop must run at the
 * same time. */
struct foreign {
    bool done;
    grpc_status_code status;
    char text[512];
};

static void foreign_done(void *arg)
{
    ((struct foreign *)arg)->done = true;
}

static void *foreign_call(void *arg)
{
    struct foreign *out = arg;
    grpc_metadata_array initial, trailing;
    grpc_slice details = grpc_empty_slice();
    grpc_init();
    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
    grpc_arg name = {.type = GRPC_ARG_STRING,
                     .key = GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
                     .value.string = PKI_SERVER};
    const grpc_channel_args args = {1, &name};
    grpc_completion_queue *cq = grpc_completion_queue_create_for_pluck(NULL);
    grpc_channel_credentials *creds = grpc_ssl_credentials_create_ex(pki_ca(ours), NULL, NULL,
                                                                     NULL);
    grpc_channel *channel = grpc_channel_create(address, creds, &args);
    grpc_call *call = grpc_channel_create_call(
        channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq,
        grpc_slice_from_static_string("/seqd.Cluster/Session"), NULL,
        gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &initial;
    ops[2].data.recv_status_on_client.trailing_metadata = &trailing;
    ops[2].data.recv_status_on_client.status = &out->status;
    ops[2].data.recv_status_on_client.status_details = &details;
    CHECK(grpc_call_start_batch(call, ops, 3, call, NULL) == GRPC_CALL_OK);
    grpc_completion_queue_pluck(cq, call, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    snprintf(out->text, sizeof out->text, "%.*s", (int)GRPC_SLICE_LENGTH(details),
             (const char *)GRPC_SLICE_START_PTR(details));
    grpc_slice_unref(details);
    grpc_metadata_array_destroy(&initial);
    grpc_metadata_array_destroy(&trailing);
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
    grpc_channel_credentials_release(creds);
    grpc_completion_queue_shutdown(cq);
    grpc_completion_queue_destroy(cq);
    grpc_shutdown();
    loop_post(loop, foreign_done, out);
    return NULL;
}

static void test_no_certificate(void)
{
    struct foreign got = {0};
    pthread_t thread;
    serve(RPC_LIFE_S);
    CHECK(!pthread_create(&thread, NULL, foreign_call, &got));
    UNTIL(got.done);
    pthread_join(thread, NULL);
    CHECK(got.status == GRPC_STATUS_UNAUTHENTICATED && !at_server.n_opened);
    CHECK_MSG(strstr(got.text, "needs the certificate of a node, and there is none"), "%s",
              got.text);
    stop();
}

/* Runs the loop until the client has been told n times that it has no session. */
static int n_downs;
static void count_down(void *arg)
{
    n_downs++;
}

static void never_opens(struct rpc_client *client, const struct side *c)
{
    struct loop_timer *t = loop_timer_create(loop, count_down, NULL);
    assert(client);
    n_downs = 0;
    loop_timer_set(t, 700); /* attempts are 100 ms apart at the beginning */
    while (!n_downs) loop_turn(loop, 1000);
    CHECK(!c->n_opened && !at_server.n_opened && !c->n_refused);
    loop_timer_destroy(t);
    rpc_client_destroy(client);
}

static void test_never_opens(void)
{
    struct side c = {0};
    char plain[80];
    serve(RPC_LIFE_S);
    /* The client does not know the authority that has signed the coordinator's certificate, so
     * the client sends nothing to the coordinator. */
    never_opens(rpc_dial_tls(loop, address, node_of(other, other, "n1", 60), &calls, &c, &e), &c);
    const struct rpc_identity join = {pki_ca(other), NULL, NULL};
    never_opens(rpc_dial_tls(loop, address, &join, &calls, &c, &e), &c);
    /* The certificate has no key. */
    node_of(ours, ours, "n1", 60);
    char key[PKI_PEM_SIZE];
    CHECK(!pki_key_make(key, &e));
    texts.id.key = key;
    never_opens(rpc_dial_tls(loop, address, &texts.id, &calls, &c, &e), &c);
    /* Plain text. */
    snprintf(plain, sizeof plain, "insecure:%s", address);
    never_opens(rpc_dial(loop, plain, &calls, &c, &e), &c);
    CHECK(!rpc_dial(loop, address, &calls, &c, &e) && e.code == ERR_UNSUPPORTED);
    CHECK(!rpc_dial_tls(loop, plain, &texts.id, &calls, &c, &e) && e.code == ERR_UNSUPPORTED);
    stop();
    /* Now the server is plain, and the client uses TLS. */
    memset(&at_server, 0, sizeof at_server);
    loop = loop_create(NULL, NULL, NULL);
    server = rpc_serve(loop, "insecure:127.0.0.1:0", &calls, &at_server, &e);
    snprintf(address, sizeof address, "127.0.0.1:%d", rpc_server_port(server));
    never_opens(rpc_dial_tls(loop, address, node_of(ours, ours, "n1", 60), &calls, &c, &e), &c);
    CHECK(!rpc_serve_tls(loop, plain, &(struct rpc_authority){ours, 60}, &calls, &c, &e));
    CHECK(e.code == ERR_UNSUPPORTED);
    stop();
}

/* Checks that a server renews its certificate, and continues to work when the first one has
 * expired. */
static void test_server_renews(void)
{
    struct side c = {0};
    serve(1);
    const int64_t begin_s = time(NULL);
    struct rpc_client *client = rpc_dial_tls(loop, address, node_of(ours, ours, "n1", 600), &calls,
                                             &c, &e);
    UNTIL(c.n_opened == 1);
    UNTIL(time(NULL) > begin_s + 2); /* it is expired now */
    rpc_client_renew(client, &texts.id);
    rpc_stream_close(c.stream);
    UNTIL(c.n_opened == 2 && c.n_closed == 1);
    rpc_client_destroy(client);
    stop();
}

static int find(const char *fingerprint, char ca[PKI_PEM_SIZE])
{
    const int fd = address_connect(address, 5000, &e);
    CHECK_MSG(fd >= 0, "%s", e.text);
    const int rc = pki_find(fd, fingerprint, 5000, ca, &e);
    close(fd);
    return rc;
}

static void test_find(void)
{
    char ca[PKI_PEM_SIZE];
    serve(RPC_LIFE_S);
    CHECK_MSG(!find(pki_fingerprint(ours), ca), "%s", e.text);
    CHECK_STR(ca, pki_ca(ours));
    CHECK(find(pki_fingerprint(other), ca) && e.code == ERR_PEER);
    CHECK_MSG(strstr(e.text, pki_fingerprint(ours)) && strstr(e.text, pki_fingerprint(other)), "%s",
              e.text);
    stop();
    CHECK(address_connect(address, 5000, &e) < 0);
    CHECK_MSG(strstr(e.text, "refused"), "%s", e.text);
    /* The server that answers does not speak TLS. */
    memset(&at_server, 0, sizeof at_server);
    loop = loop_create(NULL, NULL, NULL);
    server = rpc_serve(loop, "insecure:127.0.0.1:0", &calls, &at_server, &e);
    snprintf(address, sizeof address, "127.0.0.1:%d", rpc_server_port(server));
    CHECK(find(pki_fingerprint(ours), ca) && (e.code == ERR_PEER || e.code == ERR_TIMEOUT));
    stop();
}

int main(void)
{
    if (!mkdtemp(dir)) abort();
    char path[2][64];
    snprintf(path[0], sizeof path[0], "%s/ours", dir);
    snprintf(path[1], sizeof path[1], "%s/other", dir);
    ours = pki_open(path[0], time(NULL), &e);
    other = pki_open(path[1], time(NULL), &e);
    assert(ours && other);
    RUN(test_session);
    RUN(test_refused);
    RUN(test_join);
    RUN(test_no_certificate);
    RUN(test_never_opens);
    RUN(test_server_renews);
    RUN(test_find);
    pki_close(ours);
    pki_close(other);
    file_remove(dir, &e);
    return test_done("tls");
}
