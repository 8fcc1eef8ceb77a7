/* link.c: keeps the sessions with nodes, which consist of HELLO, JOIN, heartbeats and messages. */
#include "daemon/mailbox/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/log.h"
#include "api/rpc.h"

enum {
    ARENA_SIZE = 16 << 20, /* for an unpacked message of WIRE_MAX_SIZE, and its spec */
    MISSED = 3,            /* missed heartbeats after which a node is down */
    RETRY_MS = 5000,       /* delay before a refused node may connect again, if the reason for the
                            * refusal may be temporary */
    RETRY_VERSION_MS = 60000,
    /* largest number of joins at the same time, for a cluster that starts at once; gRPC may hold a
     * message of RPC_MAX_SIZE of each before JOIN_SIZE is looked at */
    MAX_JOINS = 1000,
    JOIN_SIZE = 16 << 10, /* largest message of a stranger */
    BUCKETS = 4096        /* a power of two */
};

struct link_session {
    struct links *link;
    struct rpc_stream *stream;
    struct link_session *next, **back; /* in links.sessions; *back points to this session */
    struct link_session *same;         /* the next session of its bucket, if node is set */
    int64_t id;
    char node[NODE_NAME]; /* empty until HELLO */
    uint32_t abi;         /* ABI that the session speaks; valid once node is set */
    unsigned char instance[WIRE_INSTANCE_SIZE];
    int64_t silent_ms; /* time since the session's last message */
    bool refused;      /* REFUSED was sent, so the node should close the session */
    bool joining;      /* a JOIN waits for its answer */
    bool proved;       /* PROOF was sent */
};

struct links {
    struct rpc_server *server;
    const struct link_calls *calls;
    void *arg;
    const struct link_gate *gate; /* NULL if sessions are plain */
    void *gate_arg;
    struct link_session *sessions;
    struct link_session *bucket[BUCKETS]; /* the sessions of nodes, by the hash of the name */
    int n_joins;                          /* sessions of strangers */
    int64_t last_id;
    struct loop *loop;
    struct loop_timer *watch;
    int64_t heartbeat_ms, watched_ms; /* watched_ms is the time at which `watch` last ran */
    /* memory for the message that is being handled or packed; it is reset afterwards */
    struct arena arena;
};

static struct link_session **bucket_of(struct links *k, const char *node)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (const char *p = node; *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
    return &k->bucket[(h ^ h >> 16) & (BUCKETS - 1)];
}

static struct link_session *session_find(struct links *k, const char *node)
{
    struct link_session *s = *bucket_of(k, node);
    while (s && strcmp(s->node, node)) s = s->same;
    return s;
}

static void session_bind(struct link_session *s, const struct msg *hello)
{
    struct link_session **bucket = bucket_of(s->link, hello->node);
    memcpy(s->node, hello->node, sizeof s->node);
    memcpy(s->instance, hello->instance, sizeof s->instance);
    s->abi = hello->abi;
    s->same = *bucket;
    *bucket = s;
}

static int session_send(struct link_session *s, const struct msg *m)
{
    /* use a separate arena, because the arena of the link may have a message that is being
     * handled */
    struct arena a;
    size_t size;
    arena_init(&a, ARENA_SIZE);
    void *data = wire_pack_for(m, s->abi, &a, &size);
    int rc = data ? rpc_send(s->stream, data, size) : -1;
    if (!data) log_error("link.pack", "node=%s type=%d", s->node, (int)m->type);
    arena_fini(&a);
    /* Close the session of a peer that does not read, because a new session starts from a known
     * state. */
    if (rc < 0) rpc_stream_close(s->stream);
    return rc;
}

static void session_unbind(struct link_session *s, const char *why)
{
    char node[NODE_NAME];
    if (!s->node[0]) return;
    struct link_session **at = bucket_of(s->link, s->node);
    while (*at != s) at = &(*at)->same;
    *at = s->same;
    memcpy(node, s->node, sizeof node);
    s->node[0] = 0;
    s->link->calls->down(s->link->arg, node, why, s->silent_ms);
}

/* Refuses a session that has sent an invalid message. */
static void session_refuse(struct link_session *s, const char *why)
{
    log_warn("link.refused", "node=%s peer=%s why=\"%s\"", s->node[0] ? s->node : "-",
             rpc_stream_peer(s->stream), why);
    rpc_stream_close(s->stream);
}

/* Refuses a node, and sends it the reason. The node should close the session. If it does not, seqd
 * closes it at the next message, or after silence (`watch`). */
static void session_turn_away(struct link_session *s, const char *node, const char *why,
                              int64_t retry_ms)
{
    struct msg m = {.type = MSG_REFUSED, .retry_ms = retry_ms, .abi = WIRE_ABI};
    log_warn("link.refused", "node=%s peer=%s retry_ms=%lld why=\"%s\"", node,
             rpc_stream_peer(s->stream), (long long)retry_ms, why);
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
    const struct pki_node *holder = rpc_stream_node(s->stream);
    char why[96];
    s->silent_ms += passed_ms;
    if (holder && holder->until_s <= time(NULL)) {
        session_unbind(s, "its certificate expired");
        rpc_stream_close(s->stream);
        return;
    }
    if (s->silent_ms < limit_ms) return;
    snprintf(why, sizeof why, "no heartbeat for %.1f s: its agent hangs or is stopped",
             (double)s->silent_ms / 1000);
    session_unbind(s, why);
    rpc_stream_close(s->stream);
}

/* Checks all sessions for silence. Even if this function runs late, it counts at most one more
 * heartbeat as missed, because messages that have arrived in the meantime are read only
 * afterwards. */
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

/* Checks that the certificate has the name m->node, and that the certificate is still valid. */
static int session_check_holder(struct link_session *s, const struct msg *m, struct err *e)
{
    const struct links *k = s->link;
    const struct pki_node *holder = rpc_stream_node(s->stream);
    if (!k->gate) return 0;
    if (holder && !strcmp(holder->name, m->node)) return k->gate->holder(k->gate_arg, holder, e);
    return err_set(e, ERR_INVALID,
                   "the certificate is of node %s, and the session is said to be of %s",
                   holder ? holder->name : "-", m->node);
}

/* Returns NULL if the node may join, and the reason if it may not. The reason may be in buf. */
static const char *session_admit(struct link_session *s, const struct msg *m, int64_t *retry_ms,
                                 char *buf, size_t size)
{
    struct links *k = s->link;
    const struct link_session *up = session_find(k, m->node);
    *retry_ms = RETRY_VERSION_MS;
    if (!wire_speaks(m->abi)) {
        wire_refusal(m->abi, buf, size);
        return buf;
    }
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
    int64_t retry_ms = RETRY_MS;
    struct err e;
    const char *why = session_check_holder(s, m, &e)
                          ? e.text
                          : session_admit(s, m, &retry_ms, e.text, sizeof e.text);
    if (why) {
        session_turn_away(s, m->node, why, retry_ms);
        return;
    }
    struct link_session *old = session_find(k, m->node);
    if (old) {
        session_unbind(old, "replaced by a new session");
        rpc_stream_close(old->stream);
    }
    session_bind(s, m);
    if (s->abi < WIRE_ABI)
        log_warn("link.before",
                 "node=%s abi=%u version=\"%s\" text=\"it knows no grants: its jobs read whatever "
                 "lies beneath its roots, and none by job:ID\"",
                 s->node, s->abi, m->version);
    const struct msg welcome = {
        .type = MSG_WELCOME, .heartbeat_ms = k->heartbeat_ms, .abi = WIRE_ABI};
    if (session_send(s, &welcome) == 0) k->calls->up(k->arg, m->node, m);
}

/* Handles a JOIN of a stranger, or of a node that renews its certificate. A session may have one
 * join at a time. */
static void session_join(struct link_session *s, const struct msg *m)
{
    struct links *k = s->link;
    const bool stranger = rpc_stream_joins(s->stream);
    if (!k->gate || s->joining || !(stranger || s->node[0])) {
        session_refuse(s, "a join at the wrong time");
        return;
    }
    s->joining = true;
    k->gate->join(k->gate_arg, s->id, stranger ? NULL : rpc_stream_node(s->stream), m);
}

/* Proves to a stranger that this seqd has the join key. A stream may ask once, before its join. */
static void session_prove(struct link_session *s, const struct msg *m)
{
    struct links *k = s->link;
    char proof[JOIN_NONCE_HEX];
    struct msg answer = {.type = MSG_PROOF, .token = proof};
    struct err e;
    if (!k->gate || s->joining || s->proved || !rpc_stream_joins(s->stream)) {
        session_refuse(s, "a request for a proof at the wrong time");
        return;
    }
    s->proved = true;
    if (k->gate->prove(k->gate_arg, m->token, proof, &e))
        session_turn_away(s, "-", e.text, RETRY_MS);
    else
        session_send(s, &answer);
}

void link_answer(struct links *k, int64_t session, const struct msg *m)
{
    struct link_session *s = k->sessions;
    while (s && s->id != session) s = s->next;
    if (!s) return;
    s->joining = rpc_stream_joins(s->stream);
    if (m->type == MSG_REFUSED)
        log_warn("join.refused", "node=%s peer=%s why=\"%s\"", m->node, rpc_stream_peer(s->stream),
                 m->reason);
    session_send(s, m);
}

void link_close(struct links *k, const char *node, const char *why)
{
    struct link_session *s = session_find(k, node);
    if (!s) return;
    session_unbind(s, why);
    rpc_stream_close(s->stream);
}

int link_port(const struct links *k)
{
    return rpc_server_port(k->server);
}

static void stream_opened(void *arg, struct rpc_stream *stream)
{
    struct links *k = arg;
    struct link_session *s = calloc(1, sizeof *s);
    assert(s);
    *s = (struct link_session){
        .link = k, .stream = stream, .next = k->sessions, .id = ++k->last_id, .abi = WIRE_ABI};
    if (s->next) s->next->back = &s->next;
    s->back = &k->sessions;
    k->sessions = s;
    rpc_stream_set(stream, s);
    k->n_joins += rpc_stream_joins(stream);
    if (rpc_stream_joins(stream) && k->n_joins > MAX_JOINS)
        session_refuse(s, "too many nodes join at one time");
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
    } else if (rpc_stream_joins(stream) && size > JOIN_SIZE) {
        session_refuse(s, "the message is too large for a join");
    } else if (wire_unpack(data, size, &k->arena, &m, &e) < 0) {
        session_refuse(s, e.text);
    } else if (m.type == MSG_JOIN) {
        session_join(s, &m);
    } else if (m.type == MSG_PROVE) {
        session_prove(s, &m);
    } else if (rpc_stream_joins(stream)) {
        session_refuse(s, "without a certificate there is nothing but a join");
    } else if (m.type == MSG_HELLO) {
        session_hello(s, &m);
    } else if (!msg_from_node(m.type)) {
        session_refuse(s, "a message that only seqd sends");
    } else if (!wire_knows(s->abi, m.type)) {
        session_refuse(s, "a message that its version of the protocol does not have");
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
    *s->back = s->next;
    if (s->next) s->next->back = s->back;
    k->n_joins -= rpc_stream_joins(stream);
    session_unbind(s, why);
    free(s);
}

struct links *link_create(struct loop *l, const struct link_options *o,
                          const struct link_calls *calls, void *arg, struct err *e)
{
    static const struct rpc_calls rpc_calls = {stream_opened, stream_message, stream_closed, NULL};
    const struct rpc_authority authority = {o->ca, RPC_LIFE_S};
    struct links *k = calloc(1, sizeof *k);
    if (!k) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    k->calls = calls;
    k->arg = arg;
    k->loop = l;
    arena_init(&k->arena, ARENA_SIZE);
    k->gate = o->ca ? o->gate : NULL;
    k->gate_arg = o->gate_arg;
    k->server = o->ca ? rpc_serve_tls(l, o->address, &authority, &rpc_calls, k, e)
                      : rpc_serve(l, o->address, &rpc_calls, k, e);
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

/* Tells whether the session's version has the message and, for ASSIGN, each field that the job
 * uses. This must be checked because the node may have been replaced by an older version since the
 * job was placed. */
static bool knows(const struct link_session *s, const struct msg *m)
{
    return wire_knows(s->abi, m->type) && !(m->type == MSG_ASSIGN && spec_needs(m->spec, s->abi));
}

uint32_t link_abi(struct links *k, const char *node)
{
    const struct link_session *s = session_find(k, node);
    return s ? s->abi : 0;
}

int link_send(struct links *k, const char *node, const struct msg *m)
{
    struct link_session *s = session_find(k, node);
    return s && knows(s, m) ? session_send(s, m) : -1;
}

size_t link_queued(struct links *k, const char *node)
{
    const struct link_session *s = session_find(k, node);
    return s ? rpc_stream_queued(s->stream) : 0;
}
