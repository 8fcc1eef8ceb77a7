#include "worker/comm/comm.h"

#include <assert.h>
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
    if (c) c->ops->close(c);
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
    return &c->where;
}

const struct comm_count *comm_ledger(const struct comm *c)
{
    return c->ledger.count;
}

int64_t comm_wait_us(const struct comm *c)
{
    return c->ledger.wait_us;
}

void comm_ledger_reset(struct comm *c)
{
    ledger_reset(&c->ledger);
}

int comm_sendrecv(struct comm *c, const struct comm_xfer *x, struct comm_ticket *t, struct err *e)
{
    assert(x->send_to < c->n_ranks && x->recv_from < c->n_ranks);
    assert(x->send_to != c->rank && x->recv_from != c->rank);
    return c->ops->sendrecv(c, x, t, e);
}

int comm_wait(struct comm *c, struct comm_ticket *t, struct err *e)
{
    return t->slot < 0 ? 0 : c->ops->wait(c, t, e);
}
