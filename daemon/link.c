#include "daemon/link.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "api/rpc.h"

enum { ARENA_SIZE = 16 << 20 }; /* a message of WIRE_MAX_SIZE, unpacked, and room for its spec */

struct session {
    struct link *link;
    struct rpc_stream *stream;
    struct session *next;
    char node[NODE_NAME]; /* empty until HELLO */
};

struct link {
    struct rpc_server *server;
    const struct link_calls *calls;
    void *arg;
    struct session *sessions;
    struct arena arena; /* of the message being handled or packed; reset after */
};

static struct session *session_find(struct link *k, const char *node)
{
    for (struct session *s = k->sessions; s; s = s->next)
        if (!strcmp(s->node, node)) return s;
    return NULL;
}

static int session_send(struct session *s, const struct msg *m)
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

static void session_unbind(struct session *s, const char *why)
{
    char node[NODE_NAME];
    if (!s->node[0]) return;
    memcpy(node, s->node, sizeof node);
    s->node[0] = 0;
    s->link->calls->down(s->link->arg, node, why);
}

static void session_refuse(struct session *s, const char *why)
{
    log_warn("link.refused", "node=%s why=\"%s\"", s->node[0] ? s->node : "-", why);
    rpc_stream_close(s->stream);
}

static void session_hello(struct session *s, const struct msg *m)
{
    struct link *k = s->link;
    if (s->node[0]) {
        session_refuse(s, "a second hello");
        return;
    }
    if (m->abi != WIRE_ABI) {
        session_refuse(s, "another version of the protocol: upgrade seqw and seqd together");
        return;
    }
    struct session *old = session_find(k, m->node);
    if (old) {
        session_unbind(old, "replaced by a new session");
        rpc_stream_close(old->stream);
    }
    memcpy(s->node, m->node, sizeof s->node);
    if (session_send(s, &(struct msg){.type = MSG_WELCOME}) == 0) k->calls->up(k->arg, m->node, m);
}

static void stream_opened(void *arg, struct rpc_stream *stream)
{
    struct link *k = arg;
    struct session *s = calloc(1, sizeof *s);
    assert(s);
    *s = (struct session){.link = k, .stream = stream, .next = k->sessions};
    k->sessions = s;
    rpc_stream_set(stream, s);
}

static void stream_message(void *arg, struct rpc_stream *stream, const void *data, size_t size)
{
    struct link *k = arg;
    struct session *s = rpc_stream_user(stream);
    struct msg m;
    struct err e;
    if (wire_unpack(data, size, &k->arena, &m, &e) < 0) {
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
    struct link *k = arg;
    struct session *s = rpc_stream_user(stream);
    struct session **p = &k->sessions;
    while (*p != s) p = &(*p)->next;
    *p = s->next;
    session_unbind(s, why);
    free(s);
}

struct link *link_create(struct loop *l, const char *address, const struct link_calls *calls,
                         void *arg, struct err *e)
{
    static const struct rpc_calls rpc_calls = {stream_opened, stream_message, stream_closed};
    struct link *k = calloc(1, sizeof *k);
    if (!k) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    k->calls = calls;
    k->arg = arg;
    arena_init(&k->arena, ARENA_SIZE);
    k->server = rpc_serve(l, address, &rpc_calls, k, e);
    if (k->server) return k;
    free(k);
    return NULL;
}

void link_destroy(struct link *k)
{
    if (!k) return;
    rpc_server_destroy(k->server);
    for (struct session *s = k->sessions, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    arena_fini(&k->arena);
    free(k);
}

int link_send(struct link *k, const char *node, const struct msg *m)
{
    struct session *s = session_find(k, node);
    return s ? session_send(s, m) : -1;
}
