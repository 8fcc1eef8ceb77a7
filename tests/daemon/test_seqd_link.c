/* test_seqd_link: tests seqd's end of a session, with a raw stream as the node. HELLO must be the
 * first message, and a node may have only one session. Also checks refused sessions. */
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/rpc.h"
#include "daemon/mailbox/link.h"
#include "tests/lib/profile.h"
#include "tests/lib/test.h"

static char dir[] = "/tmp/seqd-link-XXXXXX", address[64];
static struct loop *loop;
static struct links *server;

static struct {
    int n_up, n_down, n_messages;
    int64_t silent_ms;
    const char *full; /* why no node may join, or NULL */
    char node[NODE_NAME], why[128];
    struct msg last;
} seen;

static void on_up(void *arg, const char *node, const struct msg *hello)
{
    seen.n_up++;
    snprintf(seen.node, sizeof seen.node, "%s", node);
    CHECK(hello->type == MSG_HELLO && !strcmp(hello->node, node));
    /* A message that this callback sends must arrive after WELCOME. */
    CHECK(link_send(server, node, &(struct msg){.type = MSG_EXPECT}) == 0);
}

static void on_down(void *arg, const char *node, const char *why, int64_t silent_ms)
{
    seen.n_down++;
    seen.silent_ms = silent_ms;
    snprintf(seen.why, sizeof seen.why, "%s", why);
}

static void on_message(void *arg, const char *node, const struct msg *m)
{
    seen.n_messages++;
    seen.last = *m;
}

static const char *on_admit(void *arg, const struct msg *hello)
{
    return seen.full;
}

static const struct link_calls calls = {on_up, on_down, on_message, on_admit};

/* The node's end of a session. It sends messages that the test chooses, and counts the messages
 * that it receives. */
struct peer {
    struct rpc_client *client;
    struct rpc_stream *stream;
    const struct msg *first[3]; /* messages that are sent as soon as the session is open */
    int n_opened, n_closed, n_got;
    enum msg_type got[8];
    char reason[256];
    int64_t retry_ms, heartbeat_ms;
    uint32_t abi;
    /* if true, it behaves like an agent: it closes the session when it is refused, and does not
     * dial again at once */
    bool obeys;
};

static void peer_send(struct peer *p, const struct msg *m)
{
    struct arena a;
    size_t size;
    arena_init(&a, 16 << 20);
    void *data = wire_pack(m, &a, &size);
    assert(data);
    CHECK(rpc_send(p->stream, data, size) == 0);
    arena_fini(&a);
}

static void peer_opened(void *arg, struct rpc_stream *s)
{
    struct peer *p = arg;
    p->stream = s;
    p->n_opened++;
    for (int i = 0; p->n_opened == 1 && i < 3 && p->first[i]; i++) peer_send(p, p->first[i]);
}

static void peer_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct peer *p = arg;
    struct arena a;
    struct msg m;
    struct err e;
    arena_init(&a, 16 << 20);
    CHECK(wire_unpack(data, size, &a, &m, &e) == 0);
    if (p->n_got < 8) p->got[p->n_got++] = m.type;
    if (m.type == MSG_WELCOME) p->heartbeat_ms = m.heartbeat_ms;
    if (m.type == MSG_WELCOME || m.type == MSG_REFUSED) p->abi = m.abi;
    if (m.type == MSG_REFUSED) {
        memcpy(p->reason, m.reason, sizeof p->reason);
        p->retry_ms = m.retry_ms;
        if (p->obeys) {
            rpc_client_wait(p->client, m.retry_ms);
            rpc_stream_close(s);
        }
    }
    arena_fini(&a);
}

static void peer_closed(void *arg, struct rpc_stream *s, const char *why)
{
    struct peer *p = arg;
    p->stream = NULL;
    p->n_closed++;
}

static const struct rpc_calls peer_calls = {peer_opened, peer_message, peer_closed};

static void give_up(void *arg)
{
    abort();
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        struct loop_timer *limit_ = loop_timer_create(loop, give_up, NULL);                        \
        loop_timer_set(limit_, 60000);                                                             \
        while (!(cond)) loop_turn(loop, fake ? 10 : 60000);                                        \
        loop_timer_destroy(limit_);                                                                \
    } while (0)

static const struct msg hello = {.type = MSG_HELLO, .abi = WIRE_ABI, .node = "n1", .n_slots = 2};
static const struct msg hello_two = {.type = MSG_HELLO, .abi = WIRE_ABI, .node = "n2"};
static const struct msg hello_before = {
    .type = MSG_HELLO, .abi = WIRE_ABI_BEFORE, .node = "n1", .version = "0.2.0"};
static const struct msg hello_other = {
    .type = MSG_HELLO, .abi = WIRE_ABI, .node = "n1", .instance = "another one"};
static const struct msg beat = {.type = MSG_HEARTBEAT};
static struct msg profile = {.type = MSG_PROFILE};
static const struct msg welcome = {.type = MSG_WELCOME, .heartbeat_ms = 1};

/* Time that the test sets, so that the loop's own waits are short. */
static bool fake;
static int64_t now_ms;

static int64_t fake_clock(void *arg)
{
    return now_ms;
}

static void setup(void)
{
    struct err e = {0};
    memset(&seen, 0, sizeof seen);
    loop = loop_create(fake ? fake_clock : NULL, NULL, NULL);
    server = link_create(loop, &(struct link_options){.address = address}, &calls, NULL, &e);
    CHECK_MSG(server, "%s", e.text);
}

static void teardown(void)
{
    link_destroy(server);
    loop_destroy(loop);
}

static void dial(struct peer *p)
{
    p->client = rpc_dial(loop, address, &peer_calls, p, NULL);
    assert(p->client);
}

static void test_session(void)
{
    struct peer p = {.first = {&hello, &beat}}, q = {.first = {&hello_two}};
    setup();
    CHECK(link_send(server, "n1", &welcome) < 0);
    dial(&p);
    UNTIL(seen.n_messages == 1 && p.n_got == 2);
    CHECK(seen.n_up == 1 && seen.last.type == MSG_HEARTBEAT);
    CHECK_STR(seen.node, "n1");
    CHECK(p.got[0] == MSG_WELCOME && p.got[1] == MSG_EXPECT);
    dial(&q);
    UNTIL(seen.n_up == 2);
    CHECK(link_send(server, "n1", &(struct msg){.type = MSG_STOP, .job = 1, .epoch = 1}) == 0);
    UNTIL(p.n_got == 3);
    CHECK(p.got[2] == MSG_STOP && seen.n_down == 0);
    rpc_client_destroy(p.client);
    UNTIL(seen.n_down == 1);
    CHECK(link_send(server, "n1", &welcome) < 0);
    CHECK(link_send(server, "n2", &welcome) == 0);
    rpc_client_destroy(q.client);
    UNTIL(seen.n_down == 2);
    teardown();
}

/* Checks that every kind of message that nodes send is accepted, and no other kind. */
static void test_directions(void)
{
    struct peer p = {.first = {&hello, &profile}}, q = {.first = {&hello_two, &welcome}};
    setup();
    dial(&p);
    UNTIL(seen.n_messages == 1);
    CHECK(seen.last.type == MSG_PROFILE && seen.n_down == 0);
    dial(&q);
    UNTIL(seen.n_down >= 1);
    CHECK(seen.n_messages == 1);
    rpc_client_destroy(p.client);
    rpc_client_destroy(q.client);
    teardown();
}

static void test_replaced(void)
{
    struct peer p = {.first = {&hello}}, q = {.first = {&hello}};
    setup();
    dial(&p);
    UNTIL(seen.n_up == 1);
    dial(&q);
    UNTIL(seen.n_up == 2 && p.n_closed == 1);
    CHECK(seen.n_down == 1);
    CHECK_STR(seen.why, "replaced by a new session");
    CHECK(q.n_closed == 0 && link_send(server, "n1", &welcome) == 0);
    rpc_client_destroy(p.client);
    rpc_client_destroy(q.client);
    UNTIL(seen.n_down == 2);
    teardown();
}

/* Checks that while a node is connected, no other instance can connect with the name of this
 * node. */
static void test_instance(void)
{
    struct peer p = {.first = {&hello}}, q = {.first = {&hello_other}},
                r = {.first = {&hello_other}};
    setup();
    dial(&p);
    UNTIL(seen.n_up == 1);
    dial(&q);
    UNTIL(q.n_got == 1);
    CHECK(q.got[0] == MSG_REFUSED && q.retry_ms > 0 && seen.n_up == 1 && seen.n_down == 0);
    CHECK_MSG(strstr(q.reason, "name is up"), "%s", q.reason);
    CHECK(link_send(server, "n1", &welcome) == 0 && p.n_closed == 0);
    /* This peer has no session, so its message reaches no callback and ends its stream. */
    peer_send(&q, &beat);
    UNTIL(q.n_closed == 1);
    CHECK(seen.n_messages == 0 && seen.n_down == 0);
    rpc_client_destroy(p.client);
    UNTIL(seen.n_down == 1);
    dial(&r); /* the name is down, so this instance may now have it */
    UNTIL(seen.n_up == 2);
    rpc_client_destroy(q.client);
    rpc_client_destroy(r.client);
    teardown();
}

static void test_not_admitted(void)
{
    struct peer p = {.first = {&hello}};
    setup();
    seen.full = "no room";
    dial(&p);
    UNTIL(p.n_got == 1);
    CHECK(p.got[0] == MSG_REFUSED && seen.n_up == 0 && seen.n_down == 0);
    CHECK_STR(p.reason, "no room");
    CHECK(p.abi == WIRE_ABI);
    rpc_client_destroy(p.client);
    teardown();
}

/* Checks a node of an unknown version of the protocol. It must be refused, and the text must name
 * the version and the fix. */
static void test_other_versions(void)
{
    static const struct {
        uint32_t abi;
        const char *number, *fix;
    } rows[] = {
        {0, ": 0,", "upgrade seqw"},
        {WIRE_ABI_BEFORE - 1, ": 5,", "upgrade seqw"},
        {WIRE_ABI + 1, ": 8,", "upgrade seqd"},
        {UINT32_MAX, ": 4294967295,", "upgrade seqd"},
    };
    setup();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct msg other = {.type = MSG_HELLO, .abi = rows[i].abi, .node = "n1"};
        struct peer p = {.first = {&other}};
        dial(&p);
        UNTIL(p.n_got == 1);
        CHECK_MSG(p.got[0] == MSG_REFUSED && strstr(p.reason, rows[i].number) &&
                      strstr(p.reason, rows[i].fix),
                  "%s", p.reason);
        CHECK(p.retry_ms == 60000 && p.abi == WIRE_ABI && seen.n_up == 0);
        rpc_client_destroy(p.client);
    }
    teardown();
}

/* Checks that a node of the previous version joins. seqd must neither send nor accept messages
 * that this version does not have. */
static void test_version_before(void)
{
    const struct msg remove = {.type = MSG_REMOVE, .job = 1};
    const struct msg removed = {.type = MSG_REMOVED, .job = 1};
    const struct msg end = {.type = MSG_STOP, .job = 1, .epoch = 1};
    struct peer p = {.first = {&hello_before}}, q = {.first = {&hello_two}};
    setup();
    dial(&p);
    UNTIL(p.n_got == 2);
    CHECK(p.got[0] == MSG_WELCOME && p.got[1] == MSG_EXPECT && p.abi == WIRE_ABI);
    CHECK(link_send(server, "n1", &remove) < 0);
    CHECK(link_send(server, "n1", &end) == 0);
    UNTIL(p.n_got == 3);
    CHECK(p.got[2] == MSG_STOP && seen.n_down == 0);
    peer_send(&p, &removed);
    UNTIL(p.n_closed == 1 && seen.n_down == 1);
    CHECK(seen.n_messages == 0);
    dial(&q);
    UNTIL(q.n_got == 2);
    CHECK(link_send(server, "n2", &remove) == 0);
    peer_send(&q, &removed);
    UNTIL(q.n_got == 3 && seen.n_messages == 1);
    rpc_client_destroy(p.client);
    rpc_client_destroy(q.client);
    teardown();
}

/* Checks that a refused node dials again at the time that the refusal names, and not earlier. */
static void test_backoff(void)
{
    struct peer p = {.first = {&hello}, .obeys = true};
    fake = true;
    setup();
    seen.full = "no room";
    dial(&p);
    UNTIL(p.n_closed == 1);
    CHECK(p.retry_ms == 5000);
    for (int i = 0; i < 4; i++) {
        now_ms += 1000;
        loop_turn(loop, 20);
    }
    CHECK(p.n_opened == 1);
    now_ms += 1000;
    UNTIL(p.n_opened == 2);
    rpc_client_destroy(p.client);
    teardown();
    fake = false;
}

/* Checks an agent that is stopped. gRPC still answers pings, but the agent's loop sends no
 * heartbeat. */
static void test_hung(void)
{
    struct peer p = {.first = {&hello}}, q = {.first = {&hello_two}};
    fake = true;
    setup();
    dial(&p);
    dial(&q);
    UNTIL(seen.n_up == 2 && p.n_got == 2 && q.n_got == 2);
    CHECK(p.heartbeat_ms == WIRE_HEARTBEAT_MS);
    /* the loop itself did not run for an hour; this must not count as silence of nodes */
    now_ms += 3600000;
    loop_turn(loop, 0);
    CHECK(seen.n_down == 0);
    for (int i = 1; i <= 5; i++) { /* five seconds, in which only n2 sends messages */
        const int n = seen.n_messages;
        peer_send(&q, &beat);
        UNTIL(seen.n_messages == n + 1);
        now_ms += 1000;
        loop_turn(loop, 0);
        CHECK(seen.n_down == (i == 5)); /* the hour counts as one heartbeat */
    }
    CHECK_MSG(strstr(seen.why, "no heartbeat for 7.0 s"), "%s", seen.why);
    CHECK(seen.silent_ms == 7000);
    UNTIL(p.n_closed == 1);
    CHECK(q.n_closed == 0 && link_send(server, "n1", &welcome) < 0);
    CHECK(seen.n_down == 1); /* the callback `down` is not called a second time when the stream
                              * ends */
    p.n_opened = 0;          /* the process continues, and connects again by itself */
    now_ms += 1000;
    UNTIL(seen.n_up == 3);
    rpc_client_destroy(p.client);
    rpc_client_destroy(q.client);
    teardown();
    fake = false;
}

/* Opens a stream and sends the messages `one` and `two`. Checks that the peer is refused, and that
 * no callback is called. */
static void refused(const struct msg *one, const struct msg *two, int n_up)
{
    struct peer p = {.first = {one, two}};
    setup();
    dial(&p);
    UNTIL(p.n_closed == 1);
    CHECK(seen.n_up == n_up && seen.n_messages == 0);
    UNTIL(seen.n_down == n_up);
    rpc_client_destroy(p.client);
    teardown();
}

static void test_refused(void)
{
    refused(&beat, NULL, 0);
    refused(&hello, &hello, 1);
    refused(&hello, &welcome, 1);
}

static void test_garbage(void)
{
    struct peer p = {0};
    setup();
    dial(&p);
    UNTIL(p.stream);
    CHECK(rpc_send(p.stream, "\xff\xff\xff\xff", 4) == 0);
    UNTIL(p.n_closed == 1);
    CHECK(seen.n_up == 0 && seen.n_messages == 0);
    rpc_client_destroy(p.client);
    teardown();
    link_destroy(NULL);
}

int main(void)
{
    assert(mkdtemp(dir));
    profile.profile = profile_of(1, 1, 1, 1);
    snprintf(address, sizeof address, "unix:%s/sock", dir);
    RUN(test_session);
    RUN(test_directions);
    RUN(test_replaced);
    RUN(test_instance);
    RUN(test_not_admitted);
    RUN(test_other_versions);
    RUN(test_version_before);
    RUN(test_backoff);
    RUN(test_hung);
    RUN(test_refused);
    RUN(test_garbage);
    unlink(address + 5);
    rmdir(dir);
    return test_done("link");
}
