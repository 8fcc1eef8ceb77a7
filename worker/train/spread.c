#include "worker/train/spread.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>
#include "worker/model/hf.h"
#include "worker/model/safetensors.h"

enum spread_op { OP_GIVE, OP_TAKE, OP_STILL, OP_END };

struct spread_order {
    int32_t op, which; /* enum holding_array */
    int64_t offset, n; /* elements of the flat layout */
};
_Static_assert(sizeof(struct spread_order) == 24, "what travels");
_Static_assert(HOLD_WEIGHTS == (int)CKPT_WEIGHTS && HOLD_M == (int)CKPT_M &&
                   HOLD_V == (int)CKPT_V && HOLD_EMA == (int)CKPT_EMA,
               "one number for both");

enum {
    DATA_AT = 64, /* in the bounce buffer: the order, then elements */
    STILL_S = 1   /* the others hear from rank 0 about this often, between pieces */
};

static struct comm *world(const struct holding *h)
{
    return h->model->world;
}

static char *bounce(const struct holding *h)
{
    return h->model->bounce;
}

/* Messages lie in the device's memory. */
static void put(struct holding *h, int64_t at, const void *x, int64_t size)
{
    h->model->be->ops->upload(h->model->be, bounce(h) + at, x, size);
}

static int get(struct holding *h, int64_t at, void *x, int64_t size, struct err *e)
{
    struct be *be = h->model->be;
    be->ops->download(be, x, bounce(h) + at, size);
    return be->ops->sync ? be->ops->sync(be, e) : 0;
}

/* ---- one piece ------------------------------------------------------------------------------- */

static struct comm_xfer message(void)
{
    return (struct comm_xfer){
        .purpose = PURPOSE_CONTROL, .channel = CHANNEL_COLL, .send_to = -1, .recv_from = -1};
}

/* Bytes [at, at + size) of the bounce buffer. */
static int send_one(struct holding *h, int to, int64_t at, int64_t size, struct err *e)
{
    struct comm_xfer m = message();
    struct comm_ticket t;
    m.send_to = to;
    m.send = bounce(h) + at;
    m.send_size = size;
    return comm_sendrecv(world(h), &m, &t, e) || comm_wait(world(h), &t, e) ? -1 : 0;
}

/* Through the bounce buffer, to x. */
static int receive_one(struct holding *h, int from, int64_t at, void *x, int64_t size,
                       struct err *e)
{
    struct comm_xfer m = message();
    struct comm_ticket t;
    m.recv_from = from;
    m.recv = bounce(h) + at;
    m.recv_size = size;
    if (comm_sendrecv(world(h), &m, &t, e) || comm_wait(world(h), &t, e)) return -1;
    return get(h, at, x, size, e);
}

/* What rank w holds of the elements of an order, and they lie in one bucket: a run. */
static struct zero_range run_of(const struct holding *h, const struct spread_order *o, int w)
{
    const struct zero *z = &h->plan->shards;
    const bool all = h->plan->zero == 0 || (o->which == HOLD_WEIGHTS && h->plan->zero < 3);
    struct zero_range r = {o->offset, o->offset + o->n};
    if (o->op == OP_TAKE && all) return r;
    const struct zero_range own = zero_range(z, zero_bucket(z, o->offset), w);
    if (r.begin < own.begin) r.begin = own.begin;
    if (r.end > own.end) r.end = own.end;
    if (r.end < r.begin) r.end = r.begin;
    return r;
}

static int order(struct holding *h, int to, const struct spread_order *o, struct err *e)
{
    put(h, 0, o, sizeof *o);
    return send_one(h, to, 0, sizeof *o, e);
}

static int order_all(struct holding *h, enum spread_op op, struct err *e)
{
    for (int w = 1; w < h->plan->n_ranks; w++)
        if (order(h, w, &(struct spread_order){.op = (int32_t)op}, e)) return -1;
    return 0;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static int64_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static int keep_alive(struct holding *h, struct err *e)
{
    const int64_t now = now_s();
    if (h->plan->n_ranks == 1 || now - h->still_s < STILL_S) return 0;
    h->still_s = now;
    return order_all(h, OP_STILL, e);
}

/* A failure shows in the next operation. */
static void spread_still(void *arg)
{
    struct err why = {0};
    keep_alive(arg, &why);
}

static int spread_read(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *e)
{
    struct holding *h = arg;
    const struct spread_order o = {OP_GIVE, which, offset, n};
    assert(n <= ST_CHUNK);
    if (holding_read(h, (enum holding_array)which, offset, n, out, e)) return -1;
    for (int w = 1; h->plan->zero && w < h->plan->n_ranks; w++) {
        const struct zero_range r = run_of(h, &o, w);
        if (r.begin == r.end) continue;
        if (order(h, w, &o, e)) return -1;
        if (receive_one(h, w, DATA_AT, out + (r.begin - offset), (r.end - r.begin) * 4, e))
            return -1;
    }
    return keep_alive(h, e);
}

static int spread_write(void *arg, int which, int64_t offset, int64_t n, const float *x,
                        struct err *e)
{
    struct holding *h = arg;
    const struct spread_order o = {OP_TAKE, which, offset, n};
    assert(n <= ST_CHUNK);
    holding_write(h, (enum holding_array)which, offset, n, x);
    if (h->plan->n_ranks == 1) return 0;
    put(h, DATA_AT, x, n * 4);
    for (int w = 1; w < h->plan->n_ranks; w++) {
        const struct zero_range r = run_of(h, &o, w);
        if (r.begin == r.end) continue;
        if (order(h, w, &o, e)) return -1;
        if (send_one(h, w, DATA_AT + (r.begin - offset) * 4, (r.end - r.begin) * 4, e)) return -1;
    }
    return keep_alive(h, e);
}

struct ckpt_arrays spread_arrays(struct holding *h)
{
    return (struct ckpt_arrays){.dtype = h->model->dtype,
                                .average = h->ema != NULL,
                                .flow = {spread_read, spread_write, spread_still, h}};
}

static int take_weights(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    return spread_write(arg, HOLD_WEIGHTS, offset, n, x, e);
}

int spread_model(struct holding *h, const char *dir, const struct model_shape *shape, struct err *e)
{
    return hf_load_pieces(dir, shape, &(struct hf_sink){take_weights, h}, e);
}

int spread_end(struct holding *h, struct err *e)
{
    return order_all(h, OP_END, e);
}

/* ---- the others ------------------------------------------------------------------------------ */

/* piece: room for ST_CHUNK elements. */
static int obey(struct holding *h, const struct spread_order *o, float *piece, struct err *e)
{
    const struct zero_range r = run_of(h, o, h->rank);
    const int64_t n = r.end - r.begin;
    if (o->op == OP_TAKE) {
        if (receive_one(h, 0, DATA_AT, piece, n * 4, e)) return -1;
        holding_write(h, (enum holding_array)o->which, r.begin, n, piece);
        return 0;
    }
    if (holding_read(h, (enum holding_array)o->which, r.begin, n, piece, e)) return -1;
    put(h, DATA_AT, piece, n * 4);
    return send_one(h, 0, DATA_AT, n * 4, e);
}

static bool sound(const struct holding *h, const struct spread_order *o)
{
    if (o->op == OP_STILL || o->op == OP_END) return true;
    return (o->op == OP_GIVE || o->op == OP_TAKE) && o->which >= HOLD_WEIGHTS &&
           o->which <= (h->ema ? HOLD_EMA : HOLD_V) && o->n >= 1 && o->n <= ST_CHUNK &&
           o->offset >= 0 && o->offset <= h->plan->n_params - o->n &&
           run_of(h, o, h->rank).begin < run_of(h, o, h->rank).end;
}

static int serve(struct holding *h, float *piece, struct err *e)
{
    struct spread_order o;
    do {
        comm_where(world(h))->layer = comm_where(world(h))->hop = -1;
        if (receive_one(h, 0, 0, &o, sizeof o, e)) return -1;
        if (!sound(h, &o))
            return err_set(e, ERR_PEER, "rank 0 orders %d of %lld elements at %lld", o.op,
                           (long long)o.n, (long long)o.offset);
        if ((o.op == OP_GIVE || o.op == OP_TAKE) && obey(h, &o, piece, e)) return -1;
    } while (o.op != OP_END);
    return 0;
}

int spread_serve(struct holding *h, struct err *e)
{
    float *piece = malloc(ST_CHUNK * sizeof *piece);
    if (!piece) return err_set(e, ERR_IO, "out of memory for a piece of a checkpoint");
    const int rc = serve(h, piece, e);
    free(piece);
    return rc;
}
