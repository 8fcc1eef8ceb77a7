/* A session is open from `opened` to `closed`. It is up from the time at which WELCOME is
 * received. At most one session is open. A message that is in flight when the session closes is
 * lost. Its sender sends it again from disk. All code here runs on the loop thread. */
#include "worker/agent/session.h"

#include <stdlib.h>
#include "api/core/assert.h"
#include "api/address.h"
#include "api/core/log.h"
#include "api/core/mem.h"
#include "api/rpc.h"
#include "worker/agent/member.h"

enum {
    QUEUE_SIZE = 1 << 20, /* largest number of bytes that are queued in the transport */
    UNKNOWN_MS = 5000,    /* wait between attempts while seqd refuses the certificate */
    ARENA_SIZE = 16 << 20
};

struct agent_session {
    struct loop *loop;
    struct session_options o;
    const struct session_calls *calls;
    void *arg;
    struct member *member;     /* NULL if sessions are plain */
    struct rpc_client *client; /* NULL before the node has joined */
    struct rpc_stream *stream; /* NULL if no session is open */
    bool accepted;             /* set when WELCOME was received */
    bool refused;              /* set when REFUSED was received instead of WELCOME */
    uint32_t abi;              /* ABI of this session's HELLO, or of the next HELLO */
    int64_t number;            /* number of sessions that were opened so far */
    struct arena arena;        /* memory of the message that is being handled */
};

/* ---- sending --------------------------------------------------------------------------------- */

int session_send(struct agent_session *s, const struct msg *m)
{
    struct arena arena;
    size_t size;
    if (!s->stream || !wire_knows(s->abi, m->type)) return -1;
    arena_init(&arena, ARENA_SIZE);
    void *data = wire_pack_for(m, s->abi, &arena, &size);
    int rc = data ? rpc_send(s->stream, data, size) : -1;
    arena_fini(&arena);
    /* The session is closed. A new session sends this message again, from the data on disk. */
    if (rc < 0) rpc_stream_close(s->stream);
    return rc;
}

bool session_can_send(const struct agent_session *s)
{
    return s->stream && s->accepted && rpc_stream_queued(s->stream) < QUEUE_SIZE;
}

bool session_is_open(const struct agent_session *s)
{
    return s->stream != NULL;
}

bool session_is_up(const struct agent_session *s)
{
    return s->accepted;
}

uint32_t session_abi(const struct agent_session *s)
{
    return s->abi;
}

int64_t session_number(const struct agent_session *s)
{
    return s->number;
}

/* ---- messages of seqd ------------------------------------------------------------------------ */

static void on_welcome(struct agent_session *s, const struct msg *m)
{
    const uint32_t abi = wire_choose(m->abi);
    if (abi > s->abi) { /* after seqd has refused the newer ABI, it was upgraded to a version
                         * that has it */
        rpc_stream_close(s->stream);
        return;
    }
    if (s->abi < WIRE_ABI)
        log_warn("session.before",
                 "address=%s abi=%u text=\"this seqd is of an older version: what it does not know "
                 "waits until it is upgraded\"",
                 s->o.connect, s->abi);
    s->accepted = true;
    log_info("session.up", "address=%s node=%s", s->o.connect, s->o.node);
    s->calls->up(s->arg, m);
    if (s->member) member_welcome(s->member);
}

/* Connects again with the previous ABI if seqd may accept that ABI. Otherwise waits for the time
 * that seqd has asked for. */
static void on_refused(struct agent_session *s, const struct msg *m)
{
    if (s->member && s->accepted && member_answer(s->member, m)) return;
    const uint32_t said = s->abi;
    s->abi = wire_choose(m->abi);
    s->refused = true;
    if (s->abi < said) {
        log_warn("session.before", "address=%s abi=%u next=%u why=\"%s\"", s->o.connect, said,
                 s->abi, m->reason);
        rpc_stream_close(s->stream);
        return;
    }
    log_error("session.refused", "address=%s node=%s retry_ms=%lld why=\"%s\"", s->o.connect,
              s->o.node, (long long)m->retry_ms, m->reason);
    rpc_client_wait(s->client, m->retry_ms);
    rpc_stream_close(s->stream);
    if (s->member) member_refused(s->member);
}

static void on_message(void *arg, struct rpc_stream *stream, const void *data, size_t size)
{
    struct agent_session *s = arg;
    struct msg m;
    struct err e;
    if (wire_unpack(data, size, &s->arena, &m, &e) < 0) {
        log_error("session.message", "why=\"%s\"", e.text);
        rpc_stream_close(stream);
        arena_reset(&s->arena);
        return;
    }
    switch (m.type) {
    case MSG_WELCOME: on_welcome(s, &m); break;
    case MSG_REFUSED: on_refused(s, &m); break;
    case MSG_JOINED:
        if (!s->member || !member_answer(s->member, &m)) rpc_stream_close(stream);
        break;
    default:
        if (!s->calls->message(s->arg, &m)) rpc_stream_close(stream);
    }
    arena_reset(&s->arena);
}

/* ---- the stream ------------------------------------------------------------------------------ */

static void on_opened(void *arg, struct rpc_stream *stream)
{
    struct agent_session *s = arg;
    s->stream = stream;
    s->number++;
    s->accepted = false;
    s->refused = false;
    s->calls->opened(s->arg);
}

static void on_closed(void *arg, struct rpc_stream *stream, const char *why)
{
    struct agent_session *s = arg;
    log_warn("session.down", "address=%s why=\"%s\"", s->o.connect, why);
    s->stream = NULL;
    s->accepted = false;
    /* In the next session, the version of seqd may have changed. */
    if (!s->refused) s->abi = WIRE_ABI;
    s->calls->down(s->arg);
}

/* Called if seqd refuses sessions with this certificate. Delays the next session, and checks for a
 * new token. */
static void on_unknown(void *arg, const char *why)
{
    struct agent_session *s = arg;
    rpc_client_wait(s->client, UNKNOWN_MS);
    member_refused(s->member);
}

static const struct rpc_calls stream_calls = {on_opened, on_message, on_closed, on_unknown};

/* ---- dialling -------------------------------------------------------------------------------- */

/* Begins sessions when the node has its first certificate. When the node gets a later
 * certificate, the next sessions use that certificate. */
static void on_identity(void *arg)
{
    struct agent_session *s = arg;
    struct err e;
    const struct rpc_identity *id = member_identity(s->member);
    if (s->client) {
        rpc_client_renew(s->client, id);
        if (s->stream) rpc_stream_close(s->stream);
        return;
    }
    s->client = rpc_dial_tls(s->loop, s->o.connect, id, &stream_calls, s, &e);
    if (!s->client) log_error("session.dial", "why=\"%s\"", e.text);
}

static int member_send(void *arg, const struct msg *m)
{
    struct agent_session *s = arg;
    return s->accepted ? session_send(s, m) : -1;
}

int session_dial(struct agent_session *s, struct err *e)
{
    static const struct member_calls calls = {on_identity, member_send};
    const struct member_options o = {s->o.connect, s->o.node, s->o.state, s->o.token_file,
                                     s->o.key_file};
    if (!address_is_plain(s->o.connect)) {
        s->member = member_open(s->loop, &o, &calls, s, e);
        if (s->member && member_identity(s->member)) on_identity(s);
        return s->member ? 0 : -1;
    }
    if (s->o.token_file || s->o.key_file)
        return err_set(e, ERR_INVALID,
                       "--join-token-file or --join-key is for --connect HOST:port: at %s no "
                       "certificate is asked for",
                       s->o.connect);
    if (address_target(s->o.connect) != s->o.connect)
        log_warn(
            "session.insecure",
            "address=%s text=\"sessions there are neither encrypted nor authenticated: a machine "
            "between can start programs here\"",
            s->o.connect);
    s->client = rpc_dial(s->loop, s->o.connect, &stream_calls, s, e);
    return s->client ? 0 : -1;
}

struct agent_session *session_create(struct loop *l, const struct session_options *o,
                                     const struct session_calls *calls, void *arg)
{
    struct agent_session *s = calloc(1, sizeof *s);
    assert(s);
    s->loop = l;
    s->o = *o;
    s->calls = calls;
    s->arg = arg;
    s->abi = WIRE_ABI;
    arena_init(&s->arena, ARENA_SIZE);
    return s;
}

void session_destroy(struct agent_session *s)
{
    if (!s) return;
    member_close(s->member);
    rpc_client_destroy(s->client);
    arena_fini(&s->arena);
    free(s);
}
