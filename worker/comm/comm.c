/* comm.c: tickets. A ticket has two sides, a send and a receive. Each side belongs to the
 * transport that reaches its peer.
 *
 * A rank that waits for one ticket moves all its outstanding tickets: it receives every message
 * that has arrived and starts every send that can start. So two ranks may wait for their tickets
 * in any order without blocking each other.
 *
 * Sleeping. A rank has a door, a futex word (shm.c). The rank reads its door's value, then looks
 * at all its tickets. If the ticket that it waits for is not complete, the rank sleeps until the
 * door's value changes. Another rank of this host, the TCP thread or seqgang may change something
 * that the rank waits for. After the change, it looks at the rank's door, and changes the door's
 * value if the rank may be asleep. So no wake is lost. */
#include "worker/comm/comm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/assert.h"
#include "worker/comm/endpoint.h"

/* SPINS and AWAKE_NS limit how long a rank looks for its message before it sleeps. Spinning holds
 * a core that the peer may need. A yield returns within a fraction of a microsecond if the core
 * has no other thread to run. A wake from sleep takes tens of microseconds. */
enum { SPINS = 5, AWAKE_NS = 50000 };

/* ---- an endpoint ----------------------------------------------------------------------------- */

static const struct comm_ops *via(const struct comm *c, const struct comm_op *op, int peer)
{
    return c->via[comm_on_device(c, op) ? MEMORY_TENSORS : MEMORY_HOST][peer];
}

static const struct comm_ops *stream_of(const struct comm *c, const struct comm_op *op)
{
    const int peer = op->x.send_to >= 0 ? op->x.send_to : op->x.recv_from;
    const struct comm_ops *t = peer < 0 ? NULL : via(c, op, peer);
    return t && t->post ? t : NULL;
}

struct comm *comm_base(const struct comm *c)
{
    return c->base ? c->base : (struct comm *)c;
}

bool comm_on_device(const struct comm *c, const struct comm_op *op)
{
    return c->be && op->x.channel != CHANNEL_HOST;
}

struct comm *comm_group(struct comm *c, struct rank_set of)
{
    const int own = axes_rank_set_index(&of, c->rank);
    struct comm *b = comm_base(c);
    assert(of.n >= 1 && own >= 0 && rank_set_at(&of, of.n - 1) < c->n_ranks);
    if (of.n == c->n_ranks) return c;
    struct comm *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    v->rank = own;
    v->n_ranks = of.n;
    v->segment = c->segment;
    v->segment_size = c->segment_size;
    v->base = b;
    v->views = b->views;
    v->of = axes_rank_set_within(&c->of, &of);
    b->views = v;
    return v;
}

int comm_view(struct comm *c, struct rank_set of, struct comm **out, struct err *e)
{
    *out = NULL;
    if (!c || of.n == 1) return 0;
    *out = comm_group(c, of);
    return *out ? 0 : err_set(e, ERR_IO, "no memory for a view of %d ranks", of.n);
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

bool comm_hides(const struct comm *c)
{
    const struct comm *b = c->base ? c->base : c;
    if (b->latency_us || b->bytes_per_ms) return true;
    for (int p = 0; p < c->n_ranks; p++) {
        const struct comm_ops *t = b->via[MEMORY_TENSORS][rank_set_at(&c->of, p)];
        if (t && t != &comm_shm) return true;
    }
    return false;
}

int comm_size(const struct comm *c)
{
    return c->n_ranks;
}

void *comm_segment(struct comm *c)
{
    return c->segment;
}

void *comm_bounce(struct comm *c, void *bounce)
{
    return comm_base(c)->be ? comm_base(c)->host : bounce;
}

struct comm_where *comm_where(struct comm *c)
{
    return &comm_base(c)->where;
}

const struct comm_count *comm_ledger(const struct comm *c)
{
    return comm_base(c)->ledger.count;
}

int64_t comm_wait_us(const struct comm *c)
{
    return comm_base(c)->ledger.wait_us;
}

void comm_ledger_reset(struct comm *c)
{
    ledger_reset(&comm_base(c)->ledger);
}

/* ---- small tools ----------------------------------------------------------------------------- */

int64_t comm_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Computes a delay only from the seed and the message (splitmix64), so that the same seed gives
 * the same delays. */
static int64_t delay_ns(const struct comm *c, const struct comm_op *op)
{
    if (!c->delay_max_us) return 0;
    uint64_t z = c->delay_seed +
                 0x9e3779b97f4a7c15u *
                     (op->send_number * 65536 +
                      (uint64_t)(c->rank * 256 + op->x.send_to * 4 + (int)op->x.channel) + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (int64_t)(z % (uint64_t)(c->delay_max_us * 1000 + 1));
}

/* Returns the time at which a message sent now would arrive over the injected link, or 0 if no
 * delay is injected. */
static int64_t visible_ns(struct comm *c, const struct comm_op *op)
{
    if (!c->delay_max_us && !c->latency_us && !c->bytes_per_ms) return 0;
    int64_t *link = &c->link_free_ns[op->x.send_to], now = comm_now_ns();
    if (*link < now) *link = now;
    if (c->bytes_per_ms) *link += op->x.send_size * 1000000 / c->bytes_per_ms;
    return *link + c->latency_us * 1000 + delay_ns(c, op);
}

/* Records the operation in the page. seqgang and other ranks may read the page at the same time.
 * Each number is stored atomically, but two numbers that are read together may be of different
 * operations. */
static void lastop_write(struct comm *c, const struct comm_op *op)
{
    struct rank_lastop *l = &c->head->lastop[c->rank];
    int peer = op->x.recv_from >= 0 ? op->x.recv_from : op->x.send_to;
    __atomic_store_n(&l->step, op->where.step, __ATOMIC_RELAXED);
    __atomic_store_n(&l->layer, op->where.layer, __ATOMIC_RELAXED);
    __atomic_store_n(&l->hop, op->where.hop, __ATOMIC_RELAXED);
    __atomic_store_n(&l->purpose, (int32_t)op->x.purpose, __ATOMIC_RELAXED);
    __atomic_store_n(&l->peer, peer, __ATOMIC_RELAXED);
    __atomic_fetch_add(&l->n_ops, 1, __ATOMIC_RELEASE);
}

void comm_where_print(char *out, size_t size, const struct comm_where *w, int rank)
{
    int n = snprintf(out, size, "step %lld", (long long)w->step);
    if (w->layer >= 0) n += snprintf(out + n, size - (size_t)n, ", layer %d", w->layer);
    if (w->hop >= 0) n += snprintf(out + n, size - (size_t)n, ", hop %d", w->hop);
    snprintf(out + n, size - (size_t)n, ": rank %d", rank);
}

int comm_check_message(const struct comm *c, const struct comm_op *op, int64_t size,
                       int32_t purpose, struct err *e)
{
    char at[128];
    if (size == op->x.recv_size && purpose == (int32_t)op->x.purpose) return 0;
    comm_where_print(at, sizeof at, &op->where, c->rank);
    return err_set(e, ERR_PEER, "%s expects %lld bytes of %s from rank %d, which sends %lld of %s",
                   at, (long long)op->x.recv_size, purpose_name(op->x.purpose), op->x.recv_from,
                   (long long)size,
                   purpose >= 0 && purpose < PURPOSE_N ? purpose_name(purpose) : "?");
}

/* ---- tickets --------------------------------------------------------------------------------- */

static void send_try(struct comm *c, struct comm_op *op)
{
    if (!via(c, op, op->x.send_to)->send_try(c, op)) return;
    op->send_done = true;
    ledger_sent(&c->ledger, op->x.purpose, op->x.send_size);
}

static int recv_try(struct comm *c, struct comm_op *op, int64_t *wake_ns, struct err *e)
{
    if (via(c, op, op->x.recv_from)->recv_try(c, op, &op->recv_done, wake_ns, e)) return -1;
    if (op->recv_done) ledger_received(&c->ledger, op->x.purpose, op->x.recv_size);
    return 0;
}

static int progress(struct comm *c, int64_t *wake_ns, struct err *e)
{
    for (int i = 0; i < c->n_ops; i++) {
        struct comm_op *op = &c->op[i];
        if (!op->live || op->stream) continue;
        if (!op->send_done) send_try(c, op);
        if (!op->recv_done && recv_try(c, op, wake_ns, e)) return -1;
    }
    return 0;
}

/* Keeps the first failure. From then on no transport touches a buffer. */
static int fail(struct comm *c, struct err *e)
{
    if (e)
        c->failed = *e;
    else
        err_set(&c->failed, ERR_PEER, "rank %d: a transfer failed before", c->rank);
    comm_halt(c);
    return -1;
}

static int failed_before(const struct comm *c, struct err *e)
{
    if (!c->failed.code) return 0;
    if (e) *e = c->failed;
    return -1;
}

/* Waits for the device if op sends from its memory, because operations of the device may still be
 * writing these bytes. */
static int settle(struct comm *c, const struct comm_op *op, struct err *e)
{
    if (!comm_on_device(c, op) || op->send_done) return 0;
    return c->be->ops->sync(c->be, e);
}

static int op_start(struct comm *c, struct comm_op *op, struct err *e)
{
    op->stream = stream_of(c, op);
    lastop_write(c, op);
    if (op->stream) return op->stream->post(c, op, e);
    if (settle(c, op, e)) return -1;
    const struct comm_ops *from = op->recv_done ? NULL : via(c, op, op->x.recv_from);
    if (from && from->recv_post) from->recv_post(c, op);
    if (!op->send_done) send_try(c, op);
    return 0;
}

/* Makes an operation for x, and its ticket. Returns NULL if the endpoint has failed before. */
static struct comm_op *op_new(struct comm *c, const struct comm_xfer *x, struct comm_ticket *t,
                              struct err *e)
{
    t->slot = -1;
    if (failed_before(c, e)) return NULL;
    int i = 0;
    while (i < COMM_N_OPS && c->op[i].live) i++;
    assert(i < COMM_N_OPS); /* fails if a caller does not wait for its tickets */
    c->op[i] = (struct comm_op){.live = true, .x = *x, .where = c->where};
    if (c->n_ops <= i) c->n_ops = i + 1;
    t->slot = i;
    return &c->op[i];
}

int comm_sendrecv(struct comm *c, const struct comm_xfer *x, struct comm_ticket *t, struct err *e)
{
    assert(x->send_to < c->n_ranks && x->recv_from < c->n_ranks);
    assert(x->send_to != c->rank && x->recv_from != c->rank);
    assert(x->send_size >= 0 && x->recv_size >= 0);
    if (c->base) {
        struct comm_xfer y = *x; /* copy of x with the ranks' indices in the endpoint */
        if (y.send_to >= 0) y.send_to = rank_set_at(&c->of, y.send_to);
        if (y.recv_from >= 0) y.recv_from = rank_set_at(&c->of, y.recv_from);
        return comm_sendrecv(c->base, &y, t, e);
    }
    struct comm_op *op = op_new(c, x, t, e);
    if (!op) return -1;
    op->send_done = x->send_to < 0;
    op->recv_done = x->recv_from < 0;
    if (!op->send_done) op->send_number = ++c->n_sent[x->send_to][x->channel];
    if (!op->recv_done) op->recv_number = ++c->n_received[x->recv_from][x->channel];
    if (!op->send_done) op->visible_ns = visible_ns(c, op);
    return op_start(c, op, e) ? fail(c, e) : 0;
}

/* Returns the transport that carries tensors to one other rank of the view. It does not matter
 * which rank is asked for, because a transport in the device's stream reaches either all ranks of
 * the view or none. */
static const struct comm_ops *tensors_of(const struct comm *c)
{
    const struct comm *b = comm_base(c);
    return b->via[MEMORY_TENSORS][rank_set_at(&c->of, c->rank == 0)];
}

bool comm_takes(const struct comm *c, struct collective *x)
{
    const struct comm_ops *t = c->n_ranks > 1 ? tensors_of(c) : NULL;
    x->of = c->of;
    x->rank = c->rank;
    return t && t->takes && t->takes(comm_base(c), x);
}

int comm_collective(struct comm *c, const struct collective *x, struct comm_ticket *t,
                    struct err *e)
{
    const struct comm_xfer none = {
        .purpose = x->purpose, .channel = CHANNEL_COLL, .send_to = -1, .recv_from = -1};
    const struct comm_ops *stream = tensors_of(c);
    c = comm_base(c);
    struct comm_op *op = op_new(c, &none, t, e);
    if (!op) return -1;
    op->send_done = op->recv_done = true;
    op->stream = stream;
    op->of = x->of;
    lastop_write(c, op);
    return stream->collective(c, op, x, e) ? fail(c, e) : 0;
}

static int batch(struct comm *c, bool on, struct err *e)
{
    if (failed_before(c, e)) return -1;
    for (int p = 0; p < c->n_ranks; p++) {
        const struct comm_ops *t = c->via[MEMORY_TENSORS][p];
        if (t && t->batch) return t->batch(c, on, e) ? fail(c, e) : 0;
    }
    return 0;
}

int comm_batch_begin(struct comm *c, struct err *e)
{
    return batch(comm_base(c), true, e);
}

int comm_batch_end(struct comm *c, struct err *e)
{
    return batch(comm_base(c), false, e);
}

/* ---- waiting --------------------------------------------------------------------------------- */

int comm_aborted(const struct comm *c, const struct comm_op *op, struct err *e)
{
    char at[128];
    int32_t by = __atomic_load_n(&c->head->abort_rank, __ATOMIC_RELAXED);
    comm_where_print(at, sizeof at, &op->where, c->rank);
    if (by >= 0)
        return err_set(e, ERR_ABORTED, "%s stopped in %s: rank %d is gone", at,
                       purpose_name(op->x.purpose), by);
    return err_set(e, ERR_ABORTED, "%s stopped in %s, as told", at, purpose_name(op->x.purpose));
}

/* Prints the peer's last known place. Only peers on this node record their place in the page. */
static void there_print(const struct comm *c, int peer, char *out, size_t size)
{
    const struct rank_lastop *l = &c->head->lastop[peer];
    struct comm_where w = {__atomic_load_n(&l->step, __ATOMIC_RELAXED),
                           __atomic_load_n(&l->layer, __ATOMIC_RELAXED),
                           __atomic_load_n(&l->hop, __ATOMIC_RELAXED)};
    bool started = __atomic_load_n(&l->n_ops, __ATOMIC_ACQUIRE) > 0;
    char there[128];
    comm_where_print(there, sizeof there, &w, peer);
    if (comm_is_local(c, peer))
        snprintf(out, size, "%s%s", started ? "last seen at " : "never seen: ", there);
    else
        snprintf(out, size, "on another node, which is alive");
}

/* Returns the rank of the collective that has posted the smallest number of operations, among the
 * other ranks on this node. If no other rank is on this node, returns the next rank of the
 * collective. */
static int furthest_behind(const struct comm *c, const struct comm_op *op)
{
    int least = -1;
    int64_t n = 0;
    for (int i = 0; i < op->of.n; i++) {
        const int p = rank_set_at(&op->of, i);
        const int64_t n_ops = __atomic_load_n(&c->head->lastop[p].n_ops, __ATOMIC_ACQUIRE);
        if (p == c->rank || !comm_is_local(c, p) || (least >= 0 && n_ops >= n)) continue;
        least = p;
        n = n_ops;
    }
    const int own = axes_rank_set_index(&op->of, c->rank);
    return least >= 0 ? least : rank_set_at(&op->of, (own + 1) % op->of.n);
}

int comm_timed_out(const struct comm *c, const struct comm_op *op, int64_t waited_ms, struct err *e)
{
    char at[128], there[160];
    if (op->of.n) {
        const int peer = furthest_behind(c, op);
        comm_where_print(at, sizeof at, &op->where, c->rank);
        there_print(c, peer, there, sizeof there);
        return err_set(
            e, ERR_TIMEOUT, "%s waited %lld ms for ranks %d to %d to end %s (rank %d %s)", at,
            (long long)waited_ms, rank_set_at(&op->of, 0), rank_set_at(&op->of, op->of.n - 1),
            purpose_name(op->x.purpose), peer, there);
    }
    int peer = op->recv_done ? op->x.send_to : op->x.recv_from;
    comm_where_print(at, sizeof at, &op->where, c->rank);
    there_print(c, peer, there, sizeof there);
    return err_set(e, ERR_TIMEOUT, "%s waited %lld ms for rank %d to %s %s (%s)", at,
                   (long long)waited_ms, peer, op->recv_done ? "take" : "send",
                   purpose_name(op->x.purpose), there);
}

/* Checks the abort flag before it looks for a lost peer, because ranks that were told to stop
 * close their connections. */
static int check(struct comm *c, struct comm_op *op, struct err *e)
{
    if (__atomic_load_n(&c->head->abort, __ATOMIC_ACQUIRE)) return comm_aborted(c, op, e);
    for (int i = 0; i < N_TRANSPORTS; i++)
        if (comm_transports[i]->check && comm_transports[i]->check(c, op, e)) return -1;
    return 0;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Looks for messages without sleeping, until op is complete or AWAKE_NS have passed. Sets *done to
 * true if op is complete. */
static int wait_awake(struct comm *c, struct comm_op *op, int64_t start_ns, bool *done,
                      struct err *e)
{
    for (int round = 0; round <= SPINS || comm_now_ns() - start_ns < AWAKE_NS; round++) {
        int64_t wake_ns = INT64_MAX;
        if (progress(c, &wake_ns, e)) return -1;
        *done = op->send_done && op->recv_done;
        if (*done) return 0;
        if (check(c, op, e)) return -1;
        if (round < SPINS)
            relax();
        else
            sched_yield();
    }
    return 0;
}

/* Starts to watch the door before it looks at the tickets, so that any later change wakes the
 * rank. */
static int wait_asleep(struct comm *c, struct comm_op *op, int64_t deadline_ns, struct err *e)
{
    for (;;) {
        uint32_t door = shm_door_watch(c);
        int64_t wake_ns = deadline_ns;
        if (progress(c, &wake_ns, e)) return -1;
        if (op->send_done && op->recv_done) return 0;
        if (check(c, op, e)) return -1;
        int64_t now = comm_now_ns();
        if (now >= deadline_ns) return comm_timed_out(c, op, c->hop_timeout_ms, e);
        shm_door_sleep(c, door, wake_ns - now);
    }
}

static int wait_op(struct comm *c, struct comm_op *op, int64_t start_ns, struct err *e)
{
    int64_t deadline_ns = start_ns + c->hop_timeout_ms * 1000000;
    bool done = false;
    if (wait_awake(c, op, start_ns, &done, e)) return -1;
    if (done) return 0;
    int rc = wait_asleep(c, op, deadline_ns, e);
    shm_door_leave(c);
    return rc;
}

int comm_watch(void *comm, struct err *e)
{
    struct comm *c = comm_base(comm);
    const struct comm_op here = {.x = {.purpose = PURPOSE_CONTROL, .send_to = -1, .recv_from = -1},
                                 .where = c->where};
    struct err why = {0};
    int rc = 0;
    if (failed_before(c, e)) return -1;
    for (int i = 0; !rc && i < N_TRANSPORTS; i++)
        if (comm_transports[i]->watch) rc = comm_transports[i]->watch(c, &why);
    if (__atomic_load_n(&c->head->abort, __ATOMIC_ACQUIRE)) rc = comm_aborted(c, &here, &why);
    if (!rc) return 0;
    *e = why;
    return fail(c, e);
}

/* Makes later operations of the device wait for op. Counts op's bytes before they have moved,
 * because the host does not wait for the device's stream. */
static int await(struct comm *c, struct comm_op *op, struct err *e)
{
    if (comm_watch(c, e)) return -1;
    op->stream->await(c, op);
    if (!op->send_done) ledger_sent(&c->ledger, op->x.purpose, op->x.send_size);
    if (!op->recv_done) ledger_received(&c->ledger, op->x.purpose, op->x.recv_size);
    return 0;
}

int comm_wait(struct comm *c, struct comm_ticket *t, struct err *e)
{
    c = comm_base(c);
    if (failed_before(c, e)) return -1;
    if (t->slot < 0) return 0;
    struct comm_op *op = &c->op[t->slot];
    assert(op->live);
    int64_t start_ns = comm_now_ns();
    int rc = op->stream ? await(c, op, e) : wait_op(c, op, start_ns, e);
    c->ledger.wait_us += (comm_now_ns() - start_ns) / 1000;
    if (rc) return fail(c, e);
    lastop_write(c, op);
    op->live = false;
    while (c->n_ops && !c->op[c->n_ops - 1].live) c->n_ops--;
    t->slot = -1;
    return 0;
}
