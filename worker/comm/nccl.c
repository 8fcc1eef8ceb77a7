/* nccl.c: NCCL, for messages of tensors between GPUs.
 *
 * A ticket is one group of NCCL's point-to-point calls in the device's stream of transfers. The
 * group waits for all earlier operations (transfer_begin), and comm_wait makes later operations
 * wait for the group (transfer_await). The host waits neither for the operations nor for the
 * group. Between comm_batch_begin and comm_batch_end all tickets are one group. Each group has two
 * marks in the stream, one before the group and one after it. From the marks, a rank that waits
 * for the device (comm_watch) can tell which transfer is under way and since when.
 *
 * Order. NCCL has no channels. Between two ranks, the n-th send meets the n-th receive, and a
 * group begins when the previous group has ended on this rank. So all strategies and collectives
 * must post tickets in an order that follows one rule. The tickets of a call belong to events. The
 * events are counted in the same way on all ranks. An event is, for example, a hop, a switch, or
 * the k-th round of an exchange, which sends to r + k and receives from r - k. Every rank posts
 * its tickets in the order of the events. If two ranks exchange messages in an event, both ranks
 * post the messages in that event. Then the lowest unfinished event waits for no other event on
 * any of its ranks, and so it will end. A rank posts only the messages that it sends or receives.
 * If the sends and receives of an exchange are separate tickets, the exchange is one batch and one
 * event. The events are:
 *   ring                 KV hop i and dKV hop i, alternately. dKV is sent between the same ranks
 *                        as KV, in a separate event
 *   all_gather           the rows of round i. In backward, the gradients of round i's rows, which
 *                        go to the rows' owners
 *   LASP's ring          a receive from the previous rank, and then a send to the next rank
 *   LASP's scan          the receives of the n pieces, and then their n sends. They overlap no
 *                        more than the events of a ring
 *   LASP's all_gather    all summaries in one batch. The state at the sequence's edge is an event
 *                        before or after the batch
 *   DSP, Ulysses, sums, decoding   the rounds of one exchange
 *   pipeline             the messages that two stages send to each other between the same two
 *                        passes (worker/model/pipe.h). The gradients of a tied embedding, one
 *                        after another
 * A collective of NCCL's own is an event of all ranks of its communicator. This is the
 * communicator of all ranks, or a communicator that was split from it for a view and is used only
 * by collectives. Both communicators use one stream. NCCL does not notice if the size of a message
 * differs from the size that its receiver expects. The transports of the host do notice this, and
 * tests run the same strategies over them.
 *
 * Failures. A lost rank shows as an asynchronous error, as the abort flag, or as a transfer that
 * has been under way for silence_ms. NCCL shows no other sign of its peers. A healthy peer is late
 * only while it computes. (Ranks that read or write files wait for each other, by the host's
 * transports, before the next transfer.) Each of the three signs ends the wait with an error that
 * names the place of the transfer, and ncclCommAbort frees the stream.
 *
 * Bits. A collective that sums adds in NCCL's order. Therefore it is used only if the order is
 * free (be->any_order). NVLS is turned off, because its switch adds in an order that may differ
 * from run to run. An operator can turn NVLS on again by setting NCCL_NVLS_ENABLE.
 * SEQD_COLLECTIVES=messages makes seqd use only messages. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "api/core/library.h"
#include "api/core/log.h"
#include "worker/comm/endpoint.h"
#include "worker/comm/nccl_api.h"
#include "worker/comm/nccl_use.h"

enum { GROUPS = BE_MARKS / 2, POLL_NS = 20000 };

static_assert(sizeof(ncclUniqueId) == NCCL_ID_SIZE, "a blob has room for it");

struct nccl {
    struct nccl_api api;
    ncclComm_t comm; /* NULL if not connected, or aborted */
    ncclComm_t view; /* communicator of this rank's view; NULL if there are no views */
    ncclComm_t part; /* the view's communicator while NCCL's thread makes it (the split) */
    uint32_t whole;  /* one bit for each kind of collective that NCCL does on all ranks */
    bool open, batch;
    int64_t patience_ms; /* longest time for a group under way, and for leaving */
    int64_t connect_ms;  /* longest time for connecting, and for a group's way to the stream */
    /* index of the current or next group, and of the oldest group in the stream */
    int64_t next, oldest;
    /* time at which the oldest group was first seen under way; 0 if not seen yet */
    int64_t begun_ns;
    struct comm_op first[GROUPS]; /* each group's first ticket; errors name its place */
};

/* ---- the library ----------------------------------------------------------------------------- */

static int load(struct nccl *n, struct err *e)
{
    struct library l;
    struct err why;
    if (library_open(&l, LIBRARY_NCCL, &why))
        return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                         "\"nccl\": %.300s, install NCCL, or use \"shm\" on one host", why.text);
    log_info("nccl.open", "library=\"%s\"", l.text);
#define LOAD(result, name, args)                                                                   \
    *(void **)&n->api.name = dlsym(l.handle, #name);                                               \
    if (!n->api.name)                                                                              \
        return err_field(e, ERR_UNSUPPORTED, "parallel.transport",                                 \
                         "\"nccl\": %.300s has no " #name ": install NCCL 2.18 or later", l.text);
    NCCL_CALLS(LOAD)
#undef LOAD
#define LOAD(result, name, args) *(void **)&n->api.name = dlsym(l.handle, #name);
    NCCL_LATER_CALLS(LOAD)
#undef LOAD
    return 0;
}

/* Returns one bit for each kind of collective for which this rank would use NCCL. */
static uint32_t own_collectives(const struct comm *c)
{
    const char *how = getenv("SEQD_COLLECTIVES");
    uint32_t bits = 1u << COLLECTIVE_ALL_GATHER | 1u << COLLECTIVE_BROADCAST;
    if (how && !strcmp(how, "messages")) return 0;
    if (c->be->any_order) bits |= 1u << COLLECTIVE_SUM | 1u << COLLECTIVE_REDUCE_SCATTER;
    if (c->nccl->api.ncclAlltoAll) bits |= 1u << COLLECTIVE_ALL_TO_ALL;
    return bits;
}

static int check_version(struct comm *c, struct err *e)
{
    int v = 0;
    c->nccl->api.ncclGetVersion(&v);
    c->blob.nccl_version = v;
    if (v >= NCCL_LEAST) return 0;
    c->blob.nccl_version = 0;
    return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                     "\"nccl\": libnccl.so.2 is NCCL %d.%d: install 2.18 or later", v / 10000,
                     v / 100 % 100);
}

static int library_begin(struct comm *c, const struct comm_options *o, struct err *e)
{
    ncclUniqueId id;
    c->nccl = calloc(1, sizeof *c->nccl);
    if (!c->nccl) return err_set(e, ERR_IO, "no memory for NCCL's groups");
    c->nccl->patience_ms = o->silence_ms > 0 ? o->silence_ms : o->hop_timeout_ms;
    c->nccl->connect_ms = o->connect_ms > 0 ? o->connect_ms : c->nccl->patience_ms;
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (load(c->nccl, e) || check_version(c, e)) return -1;
    c->blob.nccl_whole = own_collectives(c);
    if (c->rank) return 0;
    const ncclResult_t rc = c->nccl->api.ncclGetUniqueId(&id);
    memcpy(c->blob.nccl_id, &id, sizeof id);
    if (rc == NCCL_OK) return 0;
    c->blob.nccl_version = 0;
    return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                     "\"nccl\": it has no address to meet at: %s (NCCL_SOCKET_IFNAME names the "
                     "network)",
                     c->nccl->api.ncclGetErrorString(rc));
}

/* Opens the library. If the library cannot be opened, "auto" continues without NCCL. */
static int nccl_open(struct comm *c, const struct comm_options *o, struct err *e)
{
    const bool asked = o->transport == TRANSPORT_NCCL;
    if (asked && !c->be) return nccl_refuse_host(e);
    if (!nccl_offered(c) || !library_begin(c, o, asked ? e : &c->why_not)) return 0;
    return asked ? -1 : 0;
}

/* ---- failures -------------------------------------------------------------------------------- */

static int failed(struct comm *c, const struct comm_op *op, ncclResult_t rc, struct err *e)
{
    const struct nccl *n = c->nccl;
    char at[128];
    comm_where_print(at, sizeof at, &op->where, c->rank);
    return err_set(e, ERR_PEER, "%s stopped in %s: NCCL: %s: %s", at, purpose_name(op->x.purpose),
                   n->api.ncclGetErrorString(rc), n->api.ncclGetLastError(n->comm));
}

/* Returns the state of the two communicators together. If one communicator has an error, returns
 * the error, even if the other communicator is in progress. */
static ncclResult_t state_of(const struct nccl *n)
{
    ncclResult_t state[2] = {NCCL_OK, NCCL_OK};
    for (int i = 0; i < 2; i++) {
        const ncclComm_t comm = i ? n->view : n->comm;
        const ncclResult_t rc = comm ? n->api.ncclCommGetAsyncError(comm, &state[i]) : NCCL_OK;
        if (rc != NCCL_OK) return rc;
        if (state[i] != NCCL_OK && state[i] != NCCL_IN_PROGRESS) return state[i];
    }
    return state[0] != NCCL_OK ? state[0] : state[1];
}

/* Waits until the communicators have finished their last call, for at most patience_ms. op gives
 * the place for an error. */
static int settle(struct comm *c, const struct comm_op *op, int64_t patience_ms, struct err *e)
{
    const struct timespec pause = {0, POLL_NS};
    const int64_t deadline_ns = comm_now_ns() + patience_ms * 1000000;
    for (;;) {
        const ncclResult_t state = state_of(c->nccl);
        if (state == NCCL_OK) return 0;
        if (state != NCCL_IN_PROGRESS) return failed(c, op, state, e);
        if (__atomic_load_n(&c->head->abort, __ATOMIC_ACQUIRE)) return comm_aborted(c, op, e);
        if (comm_now_ns() >= deadline_ns) return comm_timed_out(c, op, patience_ms, e);
        nanosleep(&pause, NULL);
    }
}

static void abort_one(struct nccl *n, ncclComm_t *comm)
{
    if (*comm) n->api.ncclCommAbort(*comm);
    *comm = NULL;
}

static void nccl_halt(struct comm *c)
{
    struct nccl *n = c->nccl;
    if (!n) return;
    if (n->view) n->part = NULL;
    abort_one(n, &n->view);
    abort_one(n, &n->comm);
    abort_one(n, &n->part); /* a split that was under way has ended by now */
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Makes the views' communicators. Only collectives of a view use them. A view's messages use the
 * communicator of all ranks. */
static int split(struct comm *c, const struct comm_op *meeting, struct err *e)
{
    struct nccl *n = c->nccl;
    if (c->view_size == c->n_ranks || c->view_size == 1 || !n->whole) return 0;
    const struct rank_set block = axes_rank_block(c->rank, c->view_size);
    const ncclResult_t rc = n->api.ncclCommSplit(
        n->comm, rank_set_at(&block, 0), axes_rank_set_index(&block, c->rank), &n->part, NULL);
    if (rc != NCCL_OK && rc != NCCL_IN_PROGRESS) return failed(c, meeting, rc, e);
    if (settle(c, meeting, n->connect_ms, e)) return -1;
    n->view = n->part;
    return settle(c, meeting, n->connect_ms, e);
}

static int nccl_connect(struct comm *c, const struct comm_blob *all, struct err *e)
{
    if (!comm_uses(c, &comm_nccl)) return 0;
    struct nccl *n = c->nccl;
    struct nccl_config config = {.size = sizeof config,
                                 .magic = NCCL_MAGIC,
                                 .version = NCCL_LEAST,
                                 .blocking = 0,
                                 .cga_size = NCCL_UNSET,
                                 .min_ctas = NCCL_UNSET,
                                 .max_ctas = NCCL_UNSET,
                                 /* the communicators never run at the same time, and are aborted
                                  * together */
                                 .split_share = 1,
                                 .traffic_class = NCCL_UNSET};
    const int peer = c->rank ? 0 : c->n_ranks - 1;
    const struct comm_op meeting = {
        .x = {.purpose = PURPOSE_CONTROL, .send_to = -1, .recv_from = peer}, .where = c->where};
    ncclUniqueId id;
    memcpy(&id, all[0].nccl_id, sizeof id);
    n->whole = all[0].nccl_whole;
    for (int p = 1; p < c->n_ranks; p++) n->whole &= all[p].nccl_whole;
    const ncclResult_t rc = n->api.ncclCommInitRankConfig(&n->comm, c->n_ranks, id, c->rank,
                                                          &config);
    if (rc != NCCL_OK && rc != NCCL_IN_PROGRESS) return failed(c, &meeting, rc, e);
    if (!settle(c, &meeting, n->connect_ms, e) && !split(c, &meeting, e)) return 0;
    nccl_halt(c);
    return -1;
}

static void leave(struct comm *c, ncclComm_t *comm)
{
    struct nccl *n = c->nccl;
    struct err why;
    const struct comm_op end = {.x = {.purpose = PURPOSE_CONTROL, .send_to = -1, .recv_from = 0},
                                .where = c->where};
    if (!*comm || c->failed.code || __atomic_load_n(&c->head->abort, __ATOMIC_ACQUIRE)) return;
    const ncclResult_t rc = n->api.ncclCommFinalize(*comm);
    if ((rc != NCCL_OK && rc != NCCL_IN_PROGRESS) || settle(c, &end, n->patience_ms, &why)) return;
    n->api.ncclCommDestroy(*comm);
    *comm = NULL;
}

/* Closes the communicators. If no transfer is under way, lets the other ranks finish. */
static void nccl_close(struct comm *c)
{
    struct nccl *n = c->nccl;
    if (!n) return;
    leave(c, &n->view);
    n->part = n->view;
    if (!n->view) leave(c, &n->comm);
    nccl_halt(c);
    free(n);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int mark_of(int64_t group, bool end)
{
    return (int)(group % GROUPS) * 2 + end;
}

/* Advances `oldest` past the groups that have ended. Fails if the oldest group that has not ended
 * has been under way for too long. */
static int advance(struct comm *c, struct err *e)
{
    struct nccl *n = c->nccl;
    const struct be_ops *ops = c->be->ops;
    while (n->oldest < n->next && ops->transfer_passed(c->be, mark_of(n->oldest, true))) {
        n->oldest++;
        n->begun_ns = 0;
    }
    if (n->oldest == n->next) return 0;
    if (!n->begun_ns && ops->transfer_passed(c->be, mark_of(n->oldest, false)))
        n->begun_ns = comm_now_ns();
    if (!n->begun_ns || comm_now_ns() - n->begun_ns < n->patience_ms * 1000000) return 0;
    return comm_timed_out(c, &n->first[n->oldest % GROUPS], n->patience_ms, e);
}

static int nccl_watch(struct comm *c, struct err *e)
{
    struct nccl *n = c->nccl;
    if (!n || !n->comm) return 0;
    const struct comm_op *op = &n->first[(n->oldest < n->next ? n->oldest : n->next) % GROUPS];
    const ncclResult_t state = state_of(n);
    if (state != NCCL_OK && state != NCCL_IN_PROGRESS) return failed(c, op, state, e);
    return advance(c, e);
}

/* Waits until the two marks of the next group are free. Groups use the pairs of marks
 * cyclically. */
static int room(struct comm *c, struct err *e)
{
    const struct timespec pause = {0, POLL_NS};
    while (c->nccl->next - c->nccl->oldest >= GROUPS - 1) {
        if (comm_watch(c, e)) return -1;
        nanosleep(&pause, NULL);
    }
    return advance(c, e);
}

static int group_open(struct comm *c, const struct comm_op *op, struct err *e)
{
    struct nccl *n = c->nccl;
    if (n->open) return 0;
    if (room(c, e)) return -1;
    n->first[n->next % GROUPS] = *op;
    const ncclResult_t rc = n->api.ncclGroupStart();
    if (rc != NCCL_OK) return failed(c, op, rc, e);
    n->open = true;
    return 0;
}

static int group_close(struct comm *c, struct err *e)
{
    struct nccl *n = c->nccl;
    const struct comm_op *op = &n->first[n->next % GROUPS];
    if (!n->open) return 0;
    n->open = false;
    c->be->ops->transfer_begin(c->be);
    c->be->ops->transfer_end(c->be, mark_of(n->next, false));
    const ncclResult_t rc = n->api.ncclGroupEnd();
    if (rc != NCCL_OK && rc != NCCL_IN_PROGRESS) return failed(c, op, rc, e);
    if (settle(c, op, n->connect_ms, e)) return -1; /* only now is the whole group in the stream */
    c->be->ops->transfer_end(c->be, mark_of(n->next, true));
    n->next++;
    return 0;
}

static int nccl_post(struct comm *c, struct comm_op *op, struct err *e)
{
    struct nccl *n = c->nccl;
    const struct comm_xfer *x = &op->x;
    cudaStream_t stream = c->be->ops->transfer_stream(c->be);
    ncclResult_t rc = NCCL_OK;
    if (group_open(c, op, e)) return -1;
    op->group = n->next;
    if (x->send_to >= 0 && x->send_size)
        rc = n->api.ncclSend(x->send, (size_t)x->send_size, NCCL_BYTES, x->send_to, n->comm,
                             stream);
    if (rc == NCCL_OK && x->recv_from >= 0 && x->recv_size)
        rc = n->api.ncclRecv(x->recv, (size_t)x->recv_size, NCCL_BYTES, x->recv_from, n->comm,
                             stream);
    if (rc != NCCL_OK && rc != NCCL_IN_PROGRESS) return failed(c, op, rc, e);
    return n->batch ? 0 : group_close(c, e);
}

/* ---- collectives ----------------------------------------------------------------------------- */

static bool even(const struct collective *x)
{
    for (int w = 1; w < x->of.n; w++)
        if (x->cut[w + 1] - x->cut[w] != x->cut[1]) return false;
    return true;
}

/* Returns the communicator of the ranks of the collective, or NULL if these ranks have no
 * communicator. */
static ncclComm_t comm_of(const struct comm *c, const struct collective *x)
{
    if (x->of.n == c->n_ranks) return c->nccl->comm;
    const struct rank_set block = axes_rank_block(c->rank, c->view_size), *of = &x->of;
    const bool same = of->n == block.n && !memcmp(of->at, block.at, (size_t)of->n);
    return same ? c->nccl->view : NULL;
}

static bool nccl_takes(const struct comm *c, const struct collective *x)
{
    return (c->nccl->whole >> x->kind & 1) && comm_of(c, x) && x->cut[x->of.n];
}

/* Does a collective of uneven parts as one group. The group has one call for each rank that has a
 * part. */
static ncclResult_t each_part(struct comm *c, const struct collective *x, void *stream)
{
    const struct nccl_api *api = &c->nccl->api;
    ncclComm_t comm = comm_of(c, x);
    ncclResult_t rc = NCCL_OK;
    for (int w = 0; w < x->of.n && (rc == NCCL_OK || rc == NCCL_IN_PROGRESS); w++) {
        const size_t n = (size_t)(x->cut[w + 1] - x->cut[w]);
        char *at = (char *)x->x + x->cut[w] * x->size;
        if (!n) continue;
        if (x->kind == COLLECTIVE_REDUCE_SCATTER)
            rc = api->ncclReduce(at, at, n, NCCL_FLOATS, NCCL_SUM, w, comm, stream);
        else
            rc = api->ncclBroadcast(w == x->rank ? x->own : at, at, n * (size_t)x->size, NCCL_BYTES,
                                    w, comm, stream);
    }
    return rc;
}

static ncclResult_t whole(struct comm *c, const struct collective *x, void *stream)
{
    const struct nccl_api *api = &c->nccl->api;
    ncclComm_t comm = comm_of(c, x);
    const size_t all = (size_t)x->cut[x->of.n], part = (size_t)x->cut[1], size = (size_t)x->size;
    switch (x->kind) {
    case COLLECTIVE_SUM:
        return api->ncclAllReduce(x->x, x->x, all, NCCL_FLOATS, NCCL_SUM, comm, stream);
    case COLLECTIVE_BROADCAST:
        return api->ncclBroadcast(x->x, x->x, all * size, NCCL_BYTES, x->root, comm, stream);
    case COLLECTIVE_ALL_TO_ALL:
        return api->ncclAlltoAll(x->own, x->x, part * size, NCCL_BYTES, comm, stream);
    case COLLECTIVE_REDUCE_SCATTER:
        if (!even(x)) return each_part(c, x, stream);
        return api->ncclReduceScatter(x->x, (float *)x->x + x->cut[x->rank], part, NCCL_FLOATS,
                                      NCCL_SUM, comm, stream);
    case COLLECTIVE_ALL_GATHER:
        if (!even(x)) return each_part(c, x, stream);
        return api->ncclAllGather(x->own, x->x, part * size, NCCL_BYTES, comm, stream);
    }
    assert(!"a kind");
    return NCCL_OK;
}

static int nccl_collective(struct comm *c, struct comm_op *op, const struct collective *x,
                           struct err *e)
{
    if (group_open(c, op, e)) return -1;
    op->group = c->nccl->next;
    const ncclResult_t rc = whole(c, x, c->be->ops->transfer_stream(c->be));
    if (rc != NCCL_OK && rc != NCCL_IN_PROGRESS) return failed(c, op, rc, e);
    return c->nccl->batch ? 0 : group_close(c, e);
}

/* ---- batches and waits ----------------------------------------------------------------------- */

static int nccl_batch(struct comm *c, bool on, struct err *e)
{
    c->nccl->batch = on;
    return on ? 0 : group_close(c, e);
}

static void nccl_await(struct comm *c, const struct comm_op *op)
{
    const struct nccl *n = c->nccl;
    assert(op->group < n->next); /* the op's batch has ended */
    if (op->group >= n->oldest) c->be->ops->transfer_await(c->be, mark_of(op->group, true));
}

const struct comm_ops comm_nccl = {
    .name = "nccl",
    .id = TRANSPORT_NCCL,
    .usable = nccl_usable,
    .open = nccl_open,
    .connect = nccl_connect,
    .post = nccl_post,
    .await = nccl_await,
    .batch = nccl_batch,
    .takes = nccl_takes,
    .collective = nccl_collective,
    .watch = nccl_watch,
    .halt = nccl_halt,
    .close = nccl_close,
};
