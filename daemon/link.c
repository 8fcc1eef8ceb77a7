#include "daemon/link.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "api/rpc.h"

enum {
    ARENA_SIZE = 16 << 20, /* a message of WIRE_MAX_SIZE, unpacked, and room for its spec */
    MISSED = 3,            /* heartbeats: then the node is down */
    RETRY_MS = 5000,       /* of a node that was refused, when that may pass */
    RETRY_VERSION_MS = 60000
};

struct link_session {
    struct links *link;
    struct rpc_stream *stream;
    struct link_session *next;
    char node[NODE_NAME]; /* empty until HELLO */
    unsigned char instance[WIRE_INSTANCE_SIZE];
    int64_t silent_ms; /* since its last message */
    bool refused;      /* told so: it is to close the session */
};

struct links {
    struct rpc_server *server;
    const struct link_calls *calls;
    void *arg;
    struct link_session *sessions;
    struct loop *loop;
    struct loop_timer *watch;
    int64_t heartbeat_ms, watched_ms; /* watched: when the watch last ran */
    struct arena arena;               /* of the message being handled or packed; reset after */
};

static struct link_session *session_find(struct links *k, const char *node)
{
    for (struct link_session *s = k->sessions; s; s = s->next)
        if (!strcmp(s->node, node)) return s;
    return NULL;
}

static int session_send(struct link_session *s, const struct msg *m)
{
    struct arena a; /* not the link's: a send is often the answer to the message being handled */
    size_t size;
    arena_init(&a, ARENA_SIZE);
    void *data = wire_pack(m, &a, &size);
    int rc = data ? rpc_send(s->stream, data, size) : -1;
    if (!data) log_error("link.pack", "node=%s type=%d", s->node, (int)m->type);
    arena_fini(&a);
    /* A peer that does not read is as good as gone: a new session starts from a known state. */
    if (rc < 0) rpc_stream_close(s->stream);
    return rc;
}

static void session_unbind(struct link_session *s, const char *why)
{
    char node[NODE_NAME];
    if (!s->node[0]) return;
    memcpy(node, s->node, sizeof node);
    s->node[0] = 0;
    s->link->calls->down(s->link->arg, node, why, s->silent_ms);
}

/* What it said makes no sense. */
static void session_refuse(struct link_session *s, const char *why)
{
    log_warn("link.refused", "node=%s why=\"%s\"", s->node[0] ? s->node : "-", why);
    rpc_stream_close(s->stream);
}

/* It may not join, and is told why. It closes the session; the watch does so if it does not. */
static void session_turn_away(struct link_session *s, const char *node, const char *why,
                              int64_t retry_ms)
{
    struct msg m = {.type = MSG_REFUSED, .retry_ms = retry_ms};
    log_warn("link.refused", "node=%s retry_ms=%lld why=\"%s\"", node, (long long)retry_ms, why);
    snprintf(m.reason, sizeof m.reason, "%s", why);
    s->refused = true;
    session_send(s, &m);
}

/* ---- silence --------------------------------------------------------------------------------- */

static int64_t watch_period_ms(const struct links *k)
{
    return k->heartbeat_ms > 1 ? k->heartbeat_ms / 2 : 1;
}

static void session_watch(struct link_session *s, int64_t passed_ms)
{
    struct links *k = s->link;
    const int64_t limit_ms = MISSED * k->heartbeat_ms + k->heartbeat_ms / 2;
    char why[96];
    s->silent_ms += passed_ms;
    if (s->silent_ms < limit_ms) return;
    snprintf(why, sizeof why, "no heartbeat for %.1f s: its agent hangs or is stopped",
             (double)s->silent_ms / 1000);
    session_unbind(s, why);
    rpc_stream_close(s->stream);
}

/* However late it runs, at most one more heartbeat is counted as missed: what was received since is
 * only read after it. */
static void watch(void *arg)
{
    struct links *k = arg;
    const int64_t now_ms = loop_now_ms(k->loop);
    int64_t passed_ms = now_ms - k->watched_ms;
    if (passed_ms > k->heartbeat_ms) passed_ms = k->heartbeat_ms;
    k->watched_ms = now_ms;
    for (struct link_session *s = k->sessions; s; s = s->next) session_watch(s, passed_ms);
    loop_timer_set(k->watch, watch_period_ms(k));
}

void link_set_heartbeat(struct links *k, int64_t ms)
{
    k->heartbeat_ms = ms;
    loop_timer_set(k->watch, watch_period_ms(k));
}

/* ---- messages -------------------------------------------------------------------------------- */

/* NULL: it may join. */
static const char *session_admit(struct link_session *s, const struct msg *m, int64_t *retry_ms)
{
    struct links *k = s->link;
    const struct link_session *up = session_find(k, m->node);
    *retry_ms = RETRY_VERSION_MS;
    if (m->abi != WIRE_ABI)
        return "another version of the protocol: upgrade seqw and seqd together";
    *retry_ms = RETRY_MS;
    if (up && memcmp(up->instance, m->instance, sizeof m->instance))
        return "a node of this name is up, with another state directory: start this worker "
               "with a different --name, or stop the other";
    return k->calls->admit ? k->calls->admit(k->arg, m) : NULL;
}

static void session_hello(struct link_session *s, const struct msg *m)
{
    struct links *k = s->link;
    if (s->node[0]) {
        session_refuse(s, "a second hello");
        return;
    }
    int64_t retry_ms;
    const char *why = session_admit(s, m, &retry_ms);
    if (why) {
        session_turn_away(s, m->node, why, retry_ms);
        return;
    }
    struct link_session *old = session_find(k, m->node);
    if (old) {
        session_unbind(old, "replaced by a new session");
        rpc_stream_close(old->stream);
    }
    memcpy(s->node, m->node, sizeof s->node);
    memcpy(s->instance, m->instance, sizeof s->instance);
    const struct msg welcome = {.type = MSG_WELCOME, .heartbeat_ms = k->heartbeat_ms};
    if (session_send(s, &welcome) == 0) k->calls->up(k->arg, m->node, m);
}

static void stream_opened(void *arg, struct rpc_stream *stream)
{
    struct links *k = arg;
    struct link_session *s = calloc(1, sizeof *s);
    assert(s);
    *s = (struct link_session){.link = k, .stream = stream, .next = k->sessions};
    k->sessions = s;
    rpc_stream_set(stream, s);
}

static void stream_message(void *arg, struct rpc_stream *stream, const void *data, size_t size)
{
    struct links *k = arg;
    struct link_session *s = rpc_stream_user(stream);
    struct msg m;
    struct err e;
    s->silent_ms = 0;
    if (s->refused) {
        rpc_stream_close(stream);
    } else if (wire_unpack(data, size, &k->arena, &m, &e) < 0) {
        session_refuse(s, e.text);
    } else if (m.type == MSG_HELLO) {
        session_hello(s, &m);
    } else if (!msg_from_node(m.type)) {
        session_refuse(s, "a message that only seqd sends");
    } else if (s->node[0]) {
        k->calls->message(k->arg, s->node, &m);
    } else {
        session_refuse(s, "the first message must be hello");
    }
    arena_reset(&k->arena);
}

static void stream_closed(void *arg, struct rpc_stream *stream, const char *why)
{
    struct links *k = arg;
    struct link_session *s = rpc_stream_user(stream);
    struct link_session **p = &k->sessions;
    while (*p != s) p = &(*p)->next;
    *p = s->next;
    session_unbind(s, why);
    free(s);
}

struct links *link_create(struct loop *l, const char *address, const struct link_calls *calls,
                          void *arg, struct err *e)
{
    static const struct rpc_calls rpc_calls = {stream_opened, stream_message, stream_closed};
    struct links *k = calloc(1, sizeof *k);
    if (!k) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    k->calls = calls;
    k->arg = arg;
    k->loop = l;
    arena_init(&k->arena, ARENA_SIZE);
    k->server = rpc_serve(l, address, &rpc_calls, k, e);
    if (!k->server) {
        free(k);
        return NULL;
    }
    k->watched_ms = loop_now_ms(l);
    k->watch = loop_timer_create(l, watch, k);
    link_set_heartbeat(k, WIRE_HEARTBEAT_MS);
    return k;
}

void link_destroy(struct links *k)
{
    if (!k) return;
    rpc_server_destroy(k->server);
    for (struct link_session *s = k->sessions, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    loop_timer_destroy(k->watch);
    arena_fini(&k->arena);
    free(k);
}

int link_send(struct links *k, const char *node, const struct msg *m)
{
    struct link_session *s = session_find(k, node);
    return s ? session_send(s, m) : -1;
}
