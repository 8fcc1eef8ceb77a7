/* test_api_rpc: tests sessions over gRPC. It covers an echo on both kinds of address, restart and
 * reconnect, closes from both sides, messages that are too large, a full queue, and addresses that
 * are in use or wrong. */
#include "api/rpc.h"
#include "api/address.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "tests/lib/test.h"

/* The events that the client or the server has seen so far. */
struct side {
    struct rpc_stream *stream;
    int n_opened, n_closed, n_messages;
    size_t n_bytes;
    bool echo, in_order;
    char last[256], why[256];
};

static void on_opened(void *arg, struct rpc_stream *s)
{
    struct side *side = arg;
    side->n_opened++;
    side->stream = s;
    rpc_stream_set(s, side);
}

static void on_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct side *side = arg;
    CHECK(rpc_stream_user(s) == side);
    side->n_messages++;
    side->n_bytes += size;
    snprintf(side->last, sizeof side->last, "%.*s", (int)(size < 255 ? size : 255),
             (const char *)data);
    if (side->in_order) {
        int number = 0;
        assert(size >= sizeof number);
        memcpy(&number, data, sizeof number);
        CHECK_MSG(number == side->n_messages - 1, "got %d as message %d", number, side->n_messages);
    }
    if (side->echo) CHECK(rpc_send(s, data, size) == 0);
}

static void on_closed(void *arg, struct rpc_stream *s, const char *why)
{
    struct side *side = arg;
    side->n_closed++;
    if (side->stream == s) side->stream = NULL;
    snprintf(side->why, sizeof side->why, "%s", why);
}

static const struct rpc_calls calls = {on_opened, on_message, on_closed};

/* Runs the loop until the condition is true. The limit on iterations ends a test that would
 * hang. */
#define UNTIL(l, cond)                                                                             \
    do {                                                                                           \
        struct loop_timer *limit_ = loop_timer_create(l, give_up, NULL);                           \
        loop_timer_set(limit_, 60000);                                                             \
        while (!(cond)) loop_turn(l, 60000);                                                       \
        loop_timer_destroy(limit_);                                                                \
    } while (0)

static void give_up(void *arg)
{
    printf("gave up waiting\n");
    abort();
}

static char dir[] = "/tmp/seqd-rpc-XXXXXX";
static char unix_address[128];

static void echo_over(const char *address)
{
    struct err e = {0};
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct side at_server = {.echo = true}, at_client = {.in_order = true};
    struct rpc_server *server = rpc_serve(l, address, &calls, &at_server, &e);
    CHECK_MSG(server, "%s", e.text);
    char to[128];
    snprintf(to, sizeof to, "%s", address);
    if (strncmp(address, "unix:", 5) != 0) {
        CHECK(rpc_server_port(server) > 0);
        snprintf(to, sizeof to, "insecure:127.0.0.1:%d", rpc_server_port(server));
    }
    struct rpc_client *client = rpc_dial(l, to, &calls, &at_client, &e);
    CHECK_MSG(client, "%s", e.text);
    UNTIL(l, at_client.stream);
    enum { N = 500 };
    size_t total = 0;
    static char payload[65536];
    for (int i = 0; i < N; i++) {
        size_t size = sizeof i + (size_t)(i % 13) * 997;
        memcpy(payload, &i, sizeof i);
        CHECK(rpc_send(at_client.stream, payload, size) == 0);
        total += size;
    }
    UNTIL(l, at_client.n_messages == N);
    CHECK(at_server.n_messages == N);
    CHECK(at_client.n_bytes == total && at_server.n_bytes == total);
    CHECK(rpc_stream_queued(at_client.stream) == 0);
    CHECK(rpc_send(at_client.stream, "", 0) == 0); /* an empty message is also a message */
    at_client.in_order = false;
    UNTIL(l, at_client.n_messages == N + 1);
    rpc_client_destroy(client);
    UNTIL(l, at_server.n_closed == 1);
    CHECK(at_client.n_closed == 0); /* destroying a client calls no callback */
    rpc_server_destroy(server);
    loop_destroy(l);
}

static void test_echo_unix(void)
{
    echo_over(unix_address);
}

static void test_echo_tcp(void)
{
    echo_over("insecure:127.0.0.1:0");
}

static void test_restart(void)
{
    struct err e = {0};
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct side at_server = {.echo = true}, at_client = {0};
    /* The client may start before the server. */
    struct rpc_client *client = rpc_dial(l, unix_address, &calls, &at_client, &e);
    CHECK_MSG(client, "%s", e.text);
    for (int round = 1; round <= 3; round++) {
        struct rpc_server *server = rpc_serve(l, unix_address, &calls, &at_server, &e);
        CHECK_MSG(server, "%s", e.text);
        UNTIL(l, at_client.stream);
        CHECK(at_client.n_opened == round);
        CHECK(rpc_send(at_client.stream, "x", 1) == 0);
        UNTIL(l, at_client.n_messages == round);
        rpc_server_destroy(server);
        UNTIL(l, !at_client.stream);
        CHECK(at_client.n_closed == round);
        CHECK(at_client.why[0]);
    }
    rpc_client_destroy(client);
    rpc_client_destroy(NULL);
    rpc_server_destroy(NULL);
    loop_destroy(l);
}

static void test_close(void)
{
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct side at_server = {0}, at_client = {0};
    struct rpc_server *server = rpc_serve(l, unix_address, &calls, &at_server, NULL);
    struct rpc_client *client = rpc_dial(l, unix_address, &calls, &at_client, NULL);
    UNTIL(l, at_client.stream && at_server.stream);
    struct rpc_stream *s = at_server.stream;
    rpc_stream_close(s);
    rpc_stream_close(s); /* a second close has no effect */
    CHECK(rpc_send(s, "x", 1) < 0);
    UNTIL(l, at_client.n_closed == 1 && at_server.n_closed == 1);
    CHECK_STR(at_server.why, "closed here");
    CHECK_MSG(strstr(at_client.why, "peer closed"), "%s", at_client.why);
    /* the client reconnects by itself */
    UNTIL(l, at_client.n_opened == 2 && at_server.n_opened == 2);
    rpc_stream_close(at_client.stream);
    UNTIL(l, at_client.n_closed == 2 && at_server.n_closed == 2);
    CHECK_STR(at_client.why, "closed here");
    UNTIL(l, at_client.n_opened == 3 && at_server.n_opened == 3);
    rpc_server_destroy(server); /* a session is open, but no callback may be called for it */
    CHECK(at_server.n_closed == 2);
    rpc_client_destroy(client);
    loop_destroy(l);
}

static void test_oversize(void)
{
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct side at_server = {0}, at_client = {0};
    struct rpc_server *server = rpc_serve(l, unix_address, &calls, &at_server, NULL);
    struct rpc_client *client = rpc_dial(l, unix_address, &calls, &at_client, NULL);
    char *big = calloc(1, RPC_MAX_SIZE + 1);
    assert(big);
    UNTIL(l, at_client.stream);
    CHECK(rpc_send(at_client.stream, big, RPC_MAX_SIZE) == 0);
    UNTIL(l, at_server.n_messages == 1);
    CHECK(at_server.n_bytes == RPC_MAX_SIZE);
    CHECK(rpc_send(at_client.stream, big, RPC_MAX_SIZE + 1) == 0);
    UNTIL(l, at_client.n_closed == 1 && at_server.n_closed == 1);
    CHECK(at_server.n_messages == 1);
    CHECK_MSG(strstr(at_client.why, "status 8"), "%s", at_client.why);
    UNTIL(l, at_client.n_opened == 2);
    /* The same holds from the server to the client. */
    UNTIL(l, at_server.stream);
    CHECK(rpc_send(at_server.stream, big, RPC_MAX_SIZE + 1) == 0);
    UNTIL(l, at_client.n_closed == 2 && at_server.n_closed == 2);
    CHECK(at_client.n_messages == 0);
    free(big);
    rpc_client_destroy(client);
    rpc_server_destroy(server);
    loop_destroy(l);
}

static void test_queue_limit(void)
{
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct side at_server = {0}, at_client = {0};
    struct rpc_server *server = rpc_serve(l, unix_address, &calls, &at_server, NULL);
    struct rpc_client *client = rpc_dial(l, unix_address, &calls, &at_client, NULL);
    enum { SIZE = 1 << 20 };
    char *data = calloc(1, SIZE);
    assert(data);
    UNTIL(l, at_client.stream);
    int n = 0; /* the loop does not run, so no message is sent */
    while (rpc_send(at_client.stream, data, SIZE) == 0) n++;
    CHECK(n == RPC_QUEUE_SIZE / SIZE);
    CHECK(rpc_stream_queued(at_client.stream) == RPC_QUEUE_SIZE);
    UNTIL(l, at_server.n_messages == n);
    CHECK(rpc_send(at_client.stream, data, SIZE) == 0);
    rpc_client_destroy(client); /* destroys the client while a send is in progress */
    rpc_server_destroy(server);
    free(data);
    loop_destroy(l);
}

/* Checks that an address that other machines can reach is used without TLS only if the address
 * itself says "insecure". */
static void test_insecure(void)
{
    char host[ADDRESS_HOST_SIZE];
    struct err e;
    echo_over("insecure:0.0.0.0:0");
    CHECK(!address_check("insecure:10.1.2.3:7434", &e) && !address_check("insecure:[::]:1", &e));
    CHECK_STR(address_target("insecure:10.1.2.3:7434"), "10.1.2.3:7434");
    CHECK_STR(address_target("127.0.0.1:1"), "127.0.0.1:1");
    address_local("unix:/run/seqd", host);
    CHECK_STR(host, "127.0.0.1");
    address_local("127.0.0.1:7434", host);
    CHECK_STR(host, "127.0.0.1");
    address_local("insecure:127.1.2.3:7434", host); /* by the routing table */
    CHECK(address_is_numeric(host) && !strncmp(host, "127.", 4));
    CHECK(!address_is_numeric("localhost") && !address_is_numeric("") && address_is_numeric("::1"));
}

static void test_lists(void)
{
    static const struct {
        const char *list;
        bool plain, tls;
    } rows[] = {
        {"10.0.0.1:7434", false, true},
        {"seqd-0.lab.svc:7434", false, true},
        {"localhost:1", false, true},
        {"a:1,10.0.0.1:2,[fd00::1]:3", false, true},
        {"insecure:a:1,insecure:b-2.c:65535", true, false},
        {"unix:/run/seqd", true, false},
        {"insecure:a:1,b:1", false, false},
        {"a:1,insecure:b:1", false, false},
        {"a:1,", false, false},
        {",a:1", false, false},
        {"", false, false},
        {"a", false, false},
        {"a:", false, false},
        {"a:65536", false, false},
        {"a:123456", false, false},
        {"a b:1", false, false},
        {"a/b:1", false, false},
        {"1.2.3:1", false, false},
        {"dns:///a:1", false, false},
    };
    char one[ADDRESS_SIZE], host[ADDRESS_HOST_SIZE], list[ADDRESS_SIZE + 8];
    struct err e;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_MSG(!address_dial_plain_check(rows[i].list, &e) == rows[i].plain, "%s", rows[i].list);
        CHECK_MSG(!address_dial_tls_check(rows[i].list, &e) == rows[i].tls, "%s", rows[i].list);
    }
    memset(list, 'a', sizeof list - 1);
    list[sizeof list - 1] = 0;
    CHECK(address_dial_tls_check(list, &e) && e.code == ERR_TOO_LARGE);
    address_nth("a:1,b:2,c:3", 4, one);
    CHECK_STR(one, "b:2");
    address_local("name.invalid:1,localhost:7434", host);
    CHECK_MSG(!strcmp(host, "127.0.0.1") || !strcmp(host, "::1"), "%s", host);
}

/* Checks that a client comes to a server that a name or a later address of its list leads to, and
 * takes the next one after the end of a server. */
static void test_dials_lists(void)
{
    struct side at_server = {0}, at_client = {0};
    struct err e;
    struct loop *l = loop_create(NULL, NULL, NULL);
    char list[200];
    struct rpc_server *one = rpc_serve(l, "insecure:127.0.0.1:0", &calls, &at_server, &e);
    struct rpc_server *two = rpc_serve(l, "insecure:127.0.0.1:0", &calls, &at_server, &e);
    CHECK(one && two);
    snprintf(list, sizeof list,
             "insecure:name.invalid:1,insecure:localhost:%d,insecure:127.0.0.1:%d",
             rpc_server_port(one), rpc_server_port(two));
    struct rpc_client *client = rpc_dial(l, list, &calls, &at_client, &e);
    CHECK_MSG(client, "%s", e.text);
    UNTIL(l, at_client.n_opened == 1);
    rpc_server_destroy(one);
    UNTIL(l, at_client.n_opened == 2);
    CHECK(at_client.n_closed >= 1);
    rpc_client_destroy(client);
    rpc_server_destroy(two);
    loop_destroy(l);
}

static void test_addresses(void)
{
    struct err e = {0};
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct side side = {0};
    struct rpc_server *one = rpc_serve(l, "insecure:127.0.0.1:0", &calls, &side, &e);
    char address[400];
    snprintf(address, sizeof address, "insecure:127.0.0.1:%d", rpc_server_port(one));
    CHECK(!rpc_serve(l, address, &calls, &side, &e));
    CHECK_MSG(e.code == ERR_CONFLICT && strstr(e.text, "in use") && strstr(e.text, address), "%s",
              e.text);
    struct rpc_server *two = rpc_serve(l, unix_address, &calls, &side, &e);
    CHECK_MSG(two, "%s", e.text);
    CHECK(!rpc_serve(l, unix_address, &calls, &side, &e));
    CHECK_MSG(e.code == ERR_CONFLICT && strstr(e.text, "in use"), "%s", e.text);
    rpc_server_destroy(one);
    rpc_server_destroy(two);
    CHECK(!rpc_serve(l, "unix:/nowhere/at/all/sock", &calls, &side, &e));
    CHECK_MSG(e.code == ERR_IO && strstr(e.text, "/nowhere"), "%s", e.text);
    CHECK(!rpc_serve(l, "127.0.0.1:0", &calls, &side, &e) && e.code == ERR_UNSUPPORTED);
    CHECK_MSG(strstr(e.text, "insecure:127.0.0.1:0") && strstr(e.text, "certificates"), "%s",
              e.text);
    CHECK(!rpc_dial(l, "10.1.2.3:7434", &calls, &side, &e) && e.code == ERR_UNSUPPORTED);
    CHECK(!rpc_serve(l, "insecure:", &calls, &side, &e) && e.code == ERR_INVALID);
    CHECK(!rpc_serve(l, "insecure:node7:80", &calls, &side, &e) && e.code == ERR_INVALID);
    CHECK_MSG(strstr(e.text, "\"node7\" is not a numeric address"), "%s", e.text);
    CHECK(!rpc_serve(l, "insecure:127.0.0.1:99999", &calls, &side, &e));
    CHECK(!rpc_dial(l, "nonsense", &calls, &side, &e));
    CHECK_MSG(e.code == ERR_INVALID, "%s", e.text);
    memset(address, 'a', sizeof address);
    memcpy(address, "unix:/", 6);
    address[300] = 0;
    CHECK(!rpc_serve(l, address, &calls, &side, &e));
    CHECK_MSG(e.code == ERR_INVALID && strstr(e.text, "at most 107"), "%s", e.text);
    loop_destroy(l);
}

/* A client that is not ours and calls an unknown method. It must get an answer at once, and must
 * not have to wait for its deadline. */
struct foreign {
    struct loop *loop;
    bool done;
    grpc_status_code status;
    char text[128];
};

static void foreign_done(void *arg)
{
    struct foreign *f = arg;
    f->done = true;
}

static void *foreign_call(void *arg)
{
    struct foreign *out = arg;
    grpc_metadata_array initial, trailing;
    grpc_slice details = grpc_empty_slice();
    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
    grpc_completion_queue *cq = grpc_completion_queue_create_for_pluck(NULL);
    grpc_channel_credentials *creds = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(unix_address, creds, NULL);
    grpc_call *call = grpc_channel_create_call(
        channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq,
        grpc_slice_from_static_string("/seqd.Cluster/Nothing"), NULL,
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
    loop_post(out->loop, foreign_done, out);
    return NULL;
}

static void test_unknown_method(void)
{
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct side side = {0};
    struct foreign got = {.loop = l};
    struct rpc_server *server = rpc_serve(l, unix_address, &calls, &side, NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, foreign_call, &got) == 0);
    UNTIL(l, got.done);
    pthread_join(thread, NULL);
    CHECK(got.status == GRPC_STATUS_UNIMPLEMENTED);
    CHECK_MSG(strstr(got.text, "no such method"), "%s", got.text);
    CHECK(side.n_opened == 0);
    rpc_server_destroy(server);
    loop_destroy(l);
}

/* Checks that a socket file that a killed server has left does not stop the next server. */
static void test_stale_socket(void)
{
    struct err e = {0};
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    snprintf(sun.sun_path, sizeof sun.sun_path, "%s/stale", dir);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&sun, sizeof sun) == 0);
    close(fd);
    char address[128];
    snprintf(address, sizeof address, "unix:%s/stale", dir);
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct side at_server = {0}, at_client = {0};
    struct rpc_server *server = rpc_serve(l, address, &calls, &at_server, &e);
    CHECK_MSG(server, "%s", e.text);
    struct rpc_client *client = rpc_dial(l, address, &calls, &at_client, &e);
    UNTIL(l, at_client.stream);
    rpc_client_destroy(client);
    rpc_server_destroy(server);
    loop_destroy(l);
    unlink(sun.sun_path);
}

int main(void)
{
    assert(mkdtemp(dir));
    snprintf(unix_address, sizeof unix_address, "unix:%s/sock", dir);
    RUN(test_echo_unix);
    RUN(test_echo_tcp);
    RUN(test_restart);
    RUN(test_close);
    RUN(test_oversize);
    RUN(test_queue_limit);
    RUN(test_lists);
    RUN(test_dials_lists);
    RUN(test_addresses);
    RUN(test_insecure);
    RUN(test_stale_socket);
    RUN(test_unknown_method);
    char path[160];
    snprintf(path, sizeof path, "%s/sock", dir);
    unlink(path);
    rmdir(dir);
    return test_done("rpc");
}
