#include "worker/comm/comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "worker/comm/endpoint.h"

/* ---- the table of transports, in order of preference ---------------------------------------- */

static const struct comm_ops *const transports[] = {&comm_shm};
enum { N_TRANSPORTS = sizeof transports / sizeof transports[0] };

struct comm *comm_listen(const struct comm_options *o, char blob[BLOB_SIZE], int *blob_size,
                         struct err *e)
{
    assert(o->n_ranks >= 1 && o->n_ranks <= JOB_MAX_RANKS && o->rank >= 0 && o->rank < o->n_ranks);
    for (int i = 0; i < N_TRANSPORTS; i++)
        if (o->transport == TRANSPORT_AUTO || o->transport == transports[i]->id)
            return transports[i]->listen(o, blob, blob_size, e);
    err_field(e, ERR_UNSUPPORTED, "parallel.transport", "this build has shared memory only");
    return NULL;
}

int comm_connect(struct comm *c, const struct rank_blob *blobs, int n, struct err *e)
{
    if (n != c->n_ranks)
        return err_set(e, ERR_PEER, "rank %d: %d blobs for %d ranks", c->rank, n, c->n_ranks);
    return c->ops->connect(c, blobs, n, e);
}

void comm_close(struct comm *c)
{
    if (!c) return;
    assert(!c->base); /* a view dies with its endpoint */
    while (c->views) {
        struct comm *v = c->views;
        c->views = v->views;
        free(v);
    }
    c->ops->close(c);
}

/* The endpoint behind a view, or c itself. */
static struct comm *base_of(const struct comm *c)
{
    return c->base ? c->base : (struct comm *)c;
}

struct comm *comm_group(struct comm *c, int first, int n)
{
    assert(!c->base && first >= 0 && n >= 1 && first + n <= c->n_ranks);
    assert(c->rank >= first && c->rank < first + n);
    if (n == c->n_ranks) return c;
    struct comm *v = malloc(sizeof *v);
    if (!v) return NULL;
    *v = (struct comm){.ops = c->ops,
                       .rank = c->rank - first,
                       .n_ranks = n,
                       .segment = c->segment,
                       .segment_size = c->segment_size,
                       .base = c,
                       .views = c->views,
                       .first = first};
    c->views = v;
    return v;
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_size(const struct comm *c)
{
    return c->n_ranks;
}

void *comm_segment(struct comm *c)
{
    return c->segment;
}

struct comm_where *comm_where(struct comm *c)
{
    return &base_of(c)->where;
}

const struct comm_count *comm_ledger(const struct comm *c)
{
    return base_of(c)->ledger.count;
}

int64_t comm_wait_us(const struct comm *c)
{
    return base_of(c)->ledger.wait_us;
}

void comm_ledger_reset(struct comm *c)
{
    ledger_reset(&base_of(c)->ledger);
}

int comm_sendrecv(struct comm *c, const struct comm_xfer *x, struct comm_ticket *t, struct err *e)
{
    assert(x->send_to < c->n_ranks && x->recv_from < c->n_ranks);
    assert(x->send_to != c->rank && x->recv_from != c->rank);
    if (!c->base) return c->ops->sendrecv(c, x, t, e);
    struct comm_xfer y = *x; /* by the endpoint's numbers */
    if (y.send_to >= 0) y.send_to += c->first;
    if (y.recv_from >= 0) y.recv_from += c->first;
    return c->ops->sendrecv(c->base, &y, t, e);
}

int comm_wait(struct comm *c, struct comm_ticket *t, struct err *e)
{
    return t->slot < 0 ? 0 : c->ops->wait(base_of(c), t, e);
}
