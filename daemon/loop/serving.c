/* serving.c: keeps the list of open requests, sends their bodies, and hands out their answers. */
#include "daemon/loop/serving.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/clock.h"
#include "api/core/job.h"
#include "api/core/process.h"
#include "daemon/state/attempt.h"
#include "daemon/state/serve_counts.h"

enum {
    QUEUE_SIZE = 1 << 20, /* bytes in a node's session beyond which no piece is sent */
    PUMP_MS = 5,          /* time until the queue is looked at again */
    CREDIT_SIZE = WIRE_WINDOW / 2
};

_Static_assert((int)SERVINGS_OPEN <= (int)RANK_ASKS, "a gang has room for all requests");

struct served {
    struct served *next;
    struct servings *all;
    int64_t job, epoch, id;
    char node[NODE_NAME];
    struct msg ask; /* without data */
    struct served_body body;
    size_t at;     /* bytes of the body that are sent */
    size_t unpaid; /* bytes that the client has read, of which the node is not told yet */
    bool whole;    /* the whole body is sent, or no more of it is needed */
    bool early;    /* the answer began before the whole body was sent */
    bool begun;    /* a piece of the answer has come */
    bool failed;   /* the answer is an error */
    bool lost;     /* `lost` must be called */
    struct serve_watch watch;
    const struct served_calls *calls;
    void *arg;
};

struct servings {
    struct loop *loop;
    const struct cluster *cluster;
    struct outbox out;
    size_t (*queued)(void *arg, const char *node);
    struct served *first;
    struct loop_timer *pump;
    int64_t last_id;
};

static void pump(void *arg);

struct servings *servings_create(struct loop *l, const struct cluster *k, const struct outbox *o,
                                 size_t (*queued)(void *arg, const char *node))
{
    struct servings *s = calloc(1, sizeof *s);
    if (!s) abort();
    *s = (struct servings){.loop = l, .cluster = k, .out = *o, .queued = queued};
    s->pump = loop_timer_create(l, pump, s);
    return s;
}

void servings_destroy(struct servings *s)
{
    if (!s) return;
    for (struct served *r = s->first, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    loop_timer_destroy(s->pump);
    free(s);
}

/* Returns the counts of the request's job, which are stored within a second. Returns NULL if the
 * job has ended. */
static struct serve_counts *counts_of(const struct served *r)
{
    struct job *j = jobs_find(&r->all->cluster->jobs, r->job);
    if (j && j->attempt) j->attempt->has_progress = true;
    return j ? j->serving : NULL;
}

static void remove_request(struct served *r)
{
    struct served **p = &r->all->first;
    while (*p != r) p = &(*p)->next;
    *p = r->next;
    free(r);
}

/* ---- to the node ----------------------------------------------------------------------------- */

static void tell(const struct served *r, enum msg_type type, int64_t total)
{
    const struct msg m = {
        .type = type, .job = r->job, .epoch = r->epoch, .request = r->id, .total = total};
    outbox_send(&r->all->out, r->node, &m);
}

static bool has_room(const struct served *r)
{
    const struct servings *s = r->all;
    return !s->queued || s->queued(s->out.arg, r->node) < QUEUE_SIZE;
}

/* Sends the next piece of the body if the session has room. Loses the request if the node has no
 * session. Returns false if nothing was sent. */
static bool send_piece(struct served *r)
{
    const size_t left = r->body.size - r->at, n = left < WIRE_CHUNK ? left : WIRE_CHUNK;
    if (r->whole || r->lost || !has_room(r)) return false;
    r->ask.data = r->body.bytes + r->at;
    r->ask.size = n;
    r->ask.more = n < left;
    r->lost = outbox_send(&r->all->out, r->node, &r->ask) != 0;
    if (r->lost) return false;
    r->at += n;
    r->whole = n == left;
    if (r->whole && r->body.sent) r->body.sent(r->arg);
    return true;
}

/* Sends a piece of every body in turn, so that no body waits for a larger one. */
static void send_bodies(struct servings *s)
{
    for (bool sent = true; sent;) {
        sent = false;
        for (struct served *r = s->first; r; r = r->next) sent |= send_piece(r);
    }
}

/* Sends bodies, and tells the clients of lost requests. */
static void pump(void *arg)
{
    struct servings *s = arg;
    bool waits = false;
    send_bodies(s);
    for (struct served *r = s->first, *next; r; r = next) {
        next = r->next;
        waits = waits || !r->whole;
        if (!r->lost) continue;
        if (r->at) tell(r, MSG_DROP, 0);
        serve_counts_lost(counts_of(r));
        r->calls->lost(r->arg);
        remove_request(r);
    }
    if (waits) loop_timer_set(s->pump, PUMP_MS);
}

/* ---- of one request -------------------------------------------------------------------------- */

int serving_count(const struct servings *s, int64_t job)
{
    int n = 0;
    for (const struct served *r = s->first; r; r = r->next) n += r->job == job;
    return n;
}

int serving_ready(const struct servings *s, const struct job *j, struct err *e)
{
    const long long id = (long long)j->id;
    if (j->state == JOB_STOPPING && j->saving)
        return err_set(e, ERR_PEER, "job %lld is stopping, and takes no more requests", id);
    if (j->state != JOB_RUNNING || !j->attempt || j->attempt->ended)
        return err_set(e, ERR_PEER, "job %lld is %s: try again when it is running", id,
                       job_state_name(j->state));
    if (j->serving_epoch != j->epoch)
        return err_set(e, ERR_PEER, "job %lld loads its model: try again when it has", id);
    const struct node *n = node_find((struct nodes *)&s->cluster->nodes, j->node);
    if (job_away(j) >= 0 || !n || !n->up)
        return err_set(e, ERR_PEER, "a node of job %lld is away: try again when it is back", id);
    return 0;
}

int serving_room(const struct servings *s, const char *user, struct err *e)
{
    int n = 0, n_user = 0;
    for (const struct served *r = s->first; r; r = r->next, n++)
        n_user += !strcmp(r->ask.user, user);
    if (n_user >= SERVINGS_USER)
        return err_set(e, ERR_TOO_LARGE,
                       "%s has %d open requests to jobs, the limit of a user: ask again when one "
                       "of them has ended",
                       user, n_user);
    if (n >= SERVINGS_OPEN)
        return err_set(e, ERR_TOO_LARGE, "jobs have %d open requests, the limit: try again",
                       SERVINGS_OPEN);
    return 0;
}

/* Returns an id that no request had before, even if seqd was started again. */
static int64_t new_id(struct servings *s)
{
    const int64_t now = loop_now_ms(s->loop) << 16; /* the clock runs on while seqd is not */
    s->last_id = now > s->last_id ? now : s->last_id + 1;
    return s->last_id;
}

struct served *serving_open(struct servings *s, const struct job *j, const struct msg *ask,
                            const struct served_body *body, const struct served_calls *calls,
                            void *arg)
{
    struct served *r = calloc(1, sizeof *r);
    if (!r) abort();
    if (!s->last_id) process_hide();
    *r = (struct served){.next = s->first,
                         .all = s,
                         .job = j->id,
                         .epoch = j->epoch,
                         .id = new_id(s),
                         .ask = *ask,
                         .body = *body,
                         .calls = calls,
                         .arg = arg};
    memcpy(r->node, j->node, sizeof r->node);
    r->ask.type = MSG_ASK;
    r->ask.job = r->job;
    r->ask.epoch = r->epoch;
    r->ask.request = r->id;
    s->first = r;
    serve_counts_open(counts_of(r), &r->watch, clock_us());
    loop_timer_set(s->pump, 0);
    return r;
}

void serving_credit(struct served *r, size_t n)
{
    r->unpaid += n;
    if (r->unpaid < CREDIT_SIZE) return;
    tell(r, MSG_CREDIT, (int64_t)r->unpaid);
    r->unpaid = 0;
}

void serving_close(struct served *r)
{
    if (r->at) tell(r, MSG_DROP, 0);
    serve_counts_closed(counts_of(r));
    remove_request(r);
}

/* ---- from the node --------------------------------------------------------------------------- */

/* Sends no more of a body, because its answer has begun. The node forgets the body by DROP. */
static void end_body(struct served *r)
{
    r->whole = r->early = true;
    if (r->body.sent) r->body.sent(r->arg);
}

/* Makes the next pump tell the client that the request is lost. */
static void lose(struct served *r)
{
    r->lost = true;
    loop_timer_set(r->all->pump, 0);
}

static struct served *find(const struct servings *s, const struct msg *m)
{
    struct served *r = s->first;
    while (r && (r->id != m->request || r->job != m->job || r->epoch != m->epoch)) r = r->next;
    return r;
}

/* Tells whether pieces of the body may still come to the node after the end of its answer. */
static bool may_come(const struct served *r)
{
    return r->early || (r->failed && r->body.size > WIRE_CHUNK);
}

bool servings_take(struct servings *s, const char *node, const struct msg *m)
{
    struct served *r = find(s, m);
    if (!r || r->lost) return m->request <= s->last_id; /* its client has gone */
    if (strcmp(r->node, node)) return false;
    const bool first = !r->begun;
    r->begun = true;
    if (m->status == 503 && !m->size && !m->more) {
        lose(r);
        return true;
    }
    if (first) r->failed = m->status >= 400;
    serve_counts_piece(counts_of(r), &r->watch, m, clock_us());
    if (!r->whole) end_body(r);
    if (!m->more && may_come(r)) tell(r, MSG_DROP, 0);
    const struct served_calls *calls = r->calls;
    void *client = r->arg;
    if (!m->more) remove_request(r);
    calls->piece(client, m, first);
    return true;
}

/* ---- losses ---------------------------------------------------------------------------------- */

void servings_node_down(struct servings *s, const char *node)
{
    for (struct served *r = s->first; r; r = r->next)
        if (!strcmp(r->node, node)) lose(r);
}

static bool goes_on(const struct job *j, int64_t epoch)
{
    const bool runs = j && (j->state == JOB_RUNNING || (j->state == JOB_STOPPING && j->saving));
    return runs && j->epoch == epoch && j->attempt && !j->attempt->ended && !j->attempt->stop_ms;
}

void servings_changed(struct servings *s, int64_t job)
{
    const struct job *j = jobs_find(&s->cluster->jobs, job);
    for (struct served *r = s->first; r; r = r->next)
        if (r->job == job && !goes_on(j, r->epoch)) lose(r);
}
