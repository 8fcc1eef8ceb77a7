/* answers.c: passes requests to gangs, and sends their answers as far as clients have read. */
#include "worker/agent/answers.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/process.h"
#include "worker/agent/attempt.h"
#include "worker/agent/session.h"

/* Largest number of bytes of an answer that may wait. An answer of 32,768 tokens with 20
 * log-probabilities each has about 40 MiB. */
#define HELD_SIZE ((size_t)64 << 20)

/* The same for all answers together. $SEQD_ANSWERS_SIZE makes it less for tests. */
#define ALL_HELD_SIZE ((size_t)512 << 20)

struct agent_answer {
    struct agent_answer *next;
    struct attempt *t; /* NULL if the request is lost */
    int64_t job, epoch, request;
    int32_t status; /* status of the first piece; 0 when that piece is sent */
    bool begun, stream, last;
    int32_t tokens; /* of the last piece */
    char *held;     /* owned: n_held bytes that wait begin at held + from */
    size_t from, n_held, room;
    size_t window; /* bytes that may be sent before the next CREDIT */
};

struct agent_answers {
    struct agent_session *session;
    struct agent_answer *first;
    size_t n_held, most; /* of all answers */
    bool hidden;         /* this process has had a request, so it leaves no core */
};

struct agent_answers *answers_create(struct agent_session *s)
{
    struct agent_answers *a = calloc(1, sizeof *a);
    const char *most = getenv("SEQD_ANSWERS_SIZE");
    assert(a);
    a->session = s;
    a->most = most && *most ? strtoul(most, NULL, 10) : ALL_HELD_SIZE;
    return a;
}

static void answer_remove(struct agent_answers *a, struct agent_answer *r)
{
    struct agent_answer **p = &a->first;
    while (*p != r) p = &(*p)->next;
    *p = r->next;
    if (r->t && r->last) r->t->n_answered--;
    a->n_held -= r->n_held;
    free(r->held);
    free(r);
}

void answers_destroy(struct agent_answers *a)
{
    if (!a) return;
    while (a->first) answer_remove(a, a->first);
    free(a);
}

static struct agent_answer *find(const struct agent_answers *a, const struct attempt *t,
                                 int64_t request)
{
    struct agent_answer *r = a->first;
    while (r && (r->t != t || r->request != request)) r = r->next;
    return r;
}

static struct agent_answer *answer_new(struct agent_answers *a, struct attempt *t,
                                       const struct msg *m)
{
    struct agent_answer *r = calloc(1, sizeof *r);
    assert(r);
    *r = (struct agent_answer){.next = a->first,
                               .t = t,
                               .job = m->job,
                               .epoch = m->epoch,
                               .request = m->request,
                               .window = WIRE_WINDOW};
    a->first = r;
    return r;
}

/* ---- to seqd --------------------------------------------------------------------------------- */

/* Sends bytes that wait. Returns false if the request is over and r is freed. */
static bool flush(struct agent_answers *a, struct agent_answer *r)
{
    while (session_can_send(a->session) && r->begun) {
        const size_t n = r->n_held < r->window ? r->n_held : r->window;
        const bool ends = r->last && n == r->n_held;
        if (!n && !ends) return true;
        session_send(a->session, &(struct msg){.type = MSG_ANSWER,
                                               .job = r->job,
                                               .epoch = r->epoch,
                                               .request = r->request,
                                               .status = r->status,
                                               .stream = r->stream,
                                               .more = !ends,
                                               .total = ends ? r->tokens : 0,
                                               .data = r->held + r->from,
                                               .size = n});
        if (ends) {
            answer_remove(a, r);
            return false;
        }
        r->status = 0;
        r->stream = false;
        r->window -= n;
        r->n_held -= n;
        a->n_held -= n;
        r->from = r->n_held ? r->from + n : 0;
    }
    return true;
}

/* Ends the request with 503 and no bytes. */
static void lose(struct agent_answers *a, struct agent_answer *r)
{
    if (r->t && r->last) r->t->n_answered--;
    r->t = NULL;
    r->status = 503;
    r->begun = r->last = true;
    r->tokens = 0;
    a->n_held -= r->n_held;
    r->n_held = r->from = 0;
    flush(a, r);
}

void answers_flush(struct agent_answers *a)
{
    for (struct agent_answer *r = a->first, *next; r; r = next) {
        next = r->next;
        flush(a, r);
    }
}

/* ---- from seqd ------------------------------------------------------------------------------- */

static int tell_drop(struct attempt *t, int64_t request)
{
    const uint64_t id = (uint64_t)request;
    return attempt_ask(t, RANK_DROP, &id, sizeof id);
}

static int pass_on(struct attempt *t, const struct msg *m)
{
    struct rank_ask *ask = malloc(sizeof *ask + m->size);
    assert(ask);
    *ask = (struct rank_ask){.id = (uint64_t)m->request,
                             .endpoint = (uint32_t)m->endpoint,
                             .flags = m->more ? 0 : RANK_ASK_LAST,
                             .adapter_named = m->named,
                             .size = (int32_t)m->size};
    memcpy(ask->model, m->model, sizeof ask->model);
    memcpy(ask->user, m->user, sizeof ask->user);
    if (m->size) memcpy(ask + 1, m->data, m->size);
    const int rc = attempt_ask(t, RANK_ASK, ask, sizeof *ask + m->size);
    free(ask);
    return rc;
}

static void take_ask(struct agent_answers *a, struct attempt *t, const struct msg *m)
{
    if (!a->hidden) process_hide();
    a->hidden = true;
    struct agent_answer *r = find(a, t, m->request);
    if (!r) r = answer_new(a, t, m);
    if (t && !pass_on(t, m)) return;
    if (t) tell_drop(t, m->request); /* rank 0 may have a part of the body */
    lose(a, r);
}

void answers_take(struct agent_answers *a, struct attempt *t, const struct msg *m)
{
    if (m->type == MSG_ASK) {
        take_ask(a, t, m);
        return;
    }
    struct agent_answer *r = t ? find(a, t, m->request) : NULL;
    if (t && m->type == MSG_DROP) tell_drop(t, m->request); /* rank 0 may have a part of a body */
    if (r && m->type == MSG_DROP) {
        answer_remove(a, r);
    } else if (r) {
        r->window += (size_t)m->total;
        if (r->window > WIRE_WINDOW) r->window = WIRE_WINDOW;
        flush(a, r);
    }
}

void answers_session_down(struct agent_answers *a)
{
    while (a->first) {
        if (a->first->t) tell_drop(a->first->t, a->first->request);
        answer_remove(a, a->first);
    }
}

/* ---- from the gang --------------------------------------------------------------------------- */

/* Adds bytes to those that wait. Returns -1 if they are too many. */
static int hold(struct agent_answers *a, struct agent_answer *r, const char *bytes, size_t n)
{
    if (n > HELD_SIZE - r->n_held || n > a->most - a->n_held) return -1;
    if (r->from + r->n_held + n > r->room) {
        if (r->from) memmove(r->held, r->held + r->from, r->n_held);
        r->from = 0;
        r->room = 2 * (r->n_held + n);
        r->held = realloc(r->held, r->room);
        assert(r->held);
    }
    if (n) memcpy(r->held + r->from + r->n_held, bytes, n);
    r->n_held += n;
    a->n_held += n;
    return 0;
}

/* Reads an ANSWER from a packet. Returns -1 if it is none. */
static int parse(const void *packet, size_t size, struct rank_answer *out)
{
    struct rank_msg head;
    if (size < sizeof head + sizeof *out) return -1;
    memcpy(&head, packet, sizeof head);
    memcpy(out, (const char *)packet + sizeof head, sizeof *out);
    const bool good = head.abi == RANK_ABI && head.type == RANK_ANSWER &&
                      head.size == size - sizeof head && out->size >= 0 &&
                      size == sizeof head + sizeof *out + (size_t)out->size;
    return good ? 0 : -1;
}

void answers_packet(struct agent_answers *a, struct attempt *t, const void *packet, size_t size)
{
    struct rank_answer p;
    if (parse(packet, size, &p)) return;
    struct agent_answer *r = find(a, t, (int64_t)p.id);
    if (!r) return;
    if (p.status == 503 && p.flags & RANK_ANSWER_LAST && !p.size) { /* the gang has lost it */
        lose(a, r);
        return;
    }
    if (!r->begun) {
        r->begun = true;
        r->status = p.status;
        r->stream = p.flags & RANK_ANSWER_STREAM;
    }
    if (p.flags & RANK_ANSWER_LAST && !r->last) {
        r->last = true;
        r->tokens = p.tokens > 0 ? p.tokens : 0;
        t->n_answered++;
    }
    const char *bytes = (const char *)packet + sizeof(struct rank_msg) + sizeof p;
    if (hold(a, r, bytes, (size_t)p.size)) {
        tell_drop(t, r->request);
        lose(a, r);
    } else {
        flush(a, r);
    }
}

void answers_gang_gone(struct agent_answers *a, struct attempt *t)
{
    for (struct agent_answer *r = a->first, *next; r; r = next) {
        next = r->next;
        if (r->t == t && !r->last) lose(a, r);
    }
}

void answers_forget(struct agent_answers *a, struct attempt *t)
{
    for (struct agent_answer *r = a->first, *next; r; r = next) {
        next = r->next;
        if (r->t == t) lose(a, r);
    }
}
