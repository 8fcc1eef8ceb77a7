/* scatter.c: on rank 0, divides arrays into pieces and sends orders about them to the ranks
 * that hold their elements. All elements of a piece are in one slice. scatter_serve does the
 * work of the other ranks. */
#include "worker/ckpt/scatter.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/assert.h"
#include "api/core/mem.h"
#include "api/core/quant.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

enum scatter_op { OP_GIVE, OP_TAKE, OP_STILL, OP_END, OP_BLOCKS };

struct scatter_order {
    int32_t op, which; /* enum sharded_array */
    int64_t offset, n; /* elements of the flat layout */
};
_Static_assert(sizeof(struct scatter_order) == 24, "what travels");
_Static_assert(SHARDED_WEIGHTS == (int)CKPT_WEIGHTS && SHARDED_M == (int)CKPT_M &&
                   SHARDED_V == (int)CKPT_V && SHARDED_EMA == (int)CKPT_EMA,
               "one number for both");

enum {
    DATA_AT = 64, /* offset of the elements in the bounce buffer; the order comes before them */
    STILL_S = 1   /* approximate number of seconds between two OP_STILL messages of rank 0 */
};

static struct comm *world(const struct sharded_state *h)
{
    return h->model->job;
}

/* Returns the bounce buffer in the host's memory. Files are read into it and written from it. */
static char *bounce(const struct sharded_state *h)
{
    return comm_bounce(world(h), h->model->bounce);
}

/* ---- one piece ------------------------------------------------------------------------------- */

static struct comm_xfer message(void)
{
    return (struct comm_xfer){
        .purpose = PURPOSE_CONTROL, .channel = CHANNEL_HOST, .send_to = -1, .recv_from = -1};
}

static int send_one(struct sharded_state *h, int to, const void *x, int64_t size, struct err *e)
{
    struct comm_xfer m = message();
    struct comm_ticket t;
    m.send_to = to;
    m.send = x;
    m.send_size = size;
    return comm_sendrecv(world(h), &m, &t, e) || comm_wait(world(h), &t, e) ? -1 : 0;
}

static int receive_one(struct sharded_state *h, int from, void *x, int64_t size, struct err *e)
{
    struct comm_xfer m = message();
    struct comm_ticket t;
    m.recv_from = from;
    m.recv = x;
    m.recv_size = size;
    return comm_sendrecv(world(h), &m, &t, e) || comm_wait(world(h), &t, e) ? -1 : 0;
}

/* Returns true if elements follow the order in the message. Rank 0 sends such orders to the
 * ranks that hold the elements. */
static bool brings(const struct scatter_order *o)
{
    return o->op == OP_TAKE || o->op == OP_BLOCKS;
}

/* Returns the number of bytes in which n elements are sent. Elements are sent in fp32, or in
 * blocks of the parameter `format`. */
static int64_t bytes_of(enum weights_id format, int64_t n)
{
    return format ? quant_row(format, n) : n * 4;
}

/* Returns true if an order is for the stage of rank w. An order for the weights of a tied
 * embedding is also for the last stage, which borrows these weights. */
static bool concerns(const struct sharded_state *h, const struct scatter_order *o, int w)
{
    const struct plan *p = h->plan;
    const int stage = plan_place(p, w).p, b = zero_bucket(&p->shards, o->offset);
    if (b >= p->pipe.first[stage] && b < p->pipe.first[stage + 1]) return true;
    return brings(o) && o->which == SHARDED_WEIGHTS && b == 0 && p->shards.tied &&
           stage == p->pp - 1;
}

/* Returns true if each rank of a stage holds all elements of the array. */
static bool all_hold(const struct sharded_state *h, int which)
{
    return h->plan->zero == 0 || (which == SHARDED_WEIGHTS && h->plan->zero < 3);
}

/* Returns the range of an order's elements that rank w holds. These elements are a single
 * range, because all elements of an order are in one bucket. */
static struct zero_range run_of(const struct sharded_state *h, const struct scatter_order *o, int w)
{
    const struct zero *z = &h->plan->shards;
    struct zero_range r = {o->offset, o->offset + o->n};
    if (!concerns(h, o, w)) return (struct zero_range){o->offset, o->offset};
    if (all_hold(h, h->plan->zero && o->op == OP_GIVE ? SHARDED_M : o->which)) return r;
    const int b = zero_bucket(z, o->offset), place = zero_place(z, plan_sum_place(h->plan, w));
    const bool frozen = o->offset - zero_begin(z, b) >= zero_trained(z, b);
    const struct zero_range own = (frozen ? zero_frozen_range : zero_range)(z, b, place);
    if (r.begin < own.begin) r.begin = own.begin;
    if (r.end > own.end) r.end = own.end;
    if (r.end < r.begin) r.end = r.begin;
    return r;
}

static int order(struct sharded_state *h, int to, const struct scatter_order *o, struct err *e)
{
    memcpy(bounce(h), o, sizeof *o);
    return send_one(h, to, bounce(h), sizeof *o, e);
}

static int order_all(struct sharded_state *h, enum scatter_op op, struct err *e)
{
    for (int w = 1; w < h->plan->n_ranks; w++)
        if (order(h, w, &(struct scatter_order){.op = (int32_t)op}, e)) return -1;
    return 0;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static int64_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static int keep_alive(struct sharded_state *h, struct err *e)
{
    const int64_t now = now_s();
    if (h->plan->n_ranks == 1 || now - h->still_s < STILL_S) return 0;
    h->still_s = now;
    return order_all(h, OP_STILL, e);
}

/* Sends OP_STILL if enough time has passed since the last message, so that the other ranks,
 * which wait for rank 0, do not time out. If the message cannot be sent, the next operation
 * reports the failure. */
static void scatter_still(void *arg)
{
    struct err why = {0};
    keep_alive(arg, &why);
}

/* Returns the order for the elements of `whole` that the ranks with tensor-parallel index t
 * hold. All elements of `whole` are in one slice. If tp > 1, *at gets the slice of these
 * elements. */
static struct scatter_order order_of(struct sharded_state *h, struct slice *at, int t,
                                     const struct scatter_order *whole)
{
    struct scatter_order o = *whole;
    if (h->plan->tp == 1) return o;
    *at = slice_find(&h->slices, &h->model->shape, whole->offset);
    const struct slice_part p = slice_part(at, t, whole->offset - at->whole_offset, whole->n);
    o.offset = at->offset + p.at;
    o.n = p.n;
    return o;
}

/* Copies elements [o->offset, o->offset + o->n) of a slice between the buffers `slice` and
 * `whole`. The buffer `whole` has the elements of range w of the whole model. Both buffers are
 * in fp32, or in blocks of a format. */
static void spread(const struct slice *s, int t, const struct scatter_order *o,
                   const struct scatter_order *w, enum weights_id format, void *slice, void *whole,
                   bool to_whole)
{
    for (int64_t k = 0; k < o->n;) {
        struct slice_run r = slice_run(s, t, o->offset - s->offset + k);
        char *const there = (char *)whole + bytes_of(format, s->whole_offset + r.whole - w->offset);
        char *const here = (char *)slice + bytes_of(format, k);
        if (r.n > o->n - k) r.n = o->n - k;
        memcpy(to_whole ? there : here, to_whole ? here : there, (size_t)bytes_of(format, r.n));
        k += r.n;
    }
}

/* Returns true if rank w sends elements to rank 0 in answer to GIVE. In each stage, the ranks
 * of the first group send them, because this group holds all elements. With zero 0, only the
 * first rank of the stage sends them. */
static bool gives(const struct sharded_state *h, int w)
{
    return plan_sum_place(h->plan, w) < (h->plan->zero ? h->plan->zero_group : 1);
}

/* Reads elements from the ranks with tensor-parallel index t. The offsets in o are in the layout
 * of these ranks. */
static int read_slice(struct sharded_state *h, int t, const struct scatter_order *o, float *out,
                      struct err *e)
{
    if (t == 0 && sharded_read(h, (enum sharded_array)o->which, o->offset, o->n, out, e)) return -1;
    for (int w = 1; w < h->plan->n_ranks; w++) {
        if (plan_place(h->plan, w).t != t || !gives(h, w)) continue;
        const struct zero_range r = run_of(h, o, w);
        if (r.begin == r.end) continue;
        if (order(h, w, o, e)) return -1;
        if (receive_one(h, w, out + (r.begin - o->offset), (r.end - r.begin) * 4, e)) return -1;
    }
    return 0;
}

/* Returns how many of the n elements that begin at `offset` are in one slice, counted from the
 * first of these elements. All n elements must be in one tensor. */
static int64_t of_one_slice(struct sharded_state *h, int64_t offset, int64_t n)
{
    if (h->plan->tp == 1) return n;
    const struct slice s = slice_find(&h->slices, &h->model->shape, offset);
    const int64_t left = s.whole_offset + s.count - offset;
    return left < n ? left : n;
}

static int read_piece(struct sharded_state *h, int which, int64_t offset, int64_t n, float *out,
                      struct err *e)
{
    const struct scatter_order whole = {OP_GIVE, which, offset, n};
    struct slice s = {0};
    float *room = h->plan->tp > 1 ? mem_scratch(ST_CHUNK * sizeof *room) : NULL;
    int rc = 0;
    assert(n <= ST_CHUNK);
    for (int t = 0; t < h->plan->tp && !rc; t++) {
        const struct scatter_order o = order_of(h, &s, t, &whole);
        const bool shared = h->plan->tp > 1;
        if (!o.n || (shared && !slice_first(&s, t))) continue;
        rc = read_slice(h, t, &o, shared ? room : out, e);
        if (shared && !rc) spread(&s, t, &o, &whole, WEIGHTS_MODEL, room, out, true);
    }
    free(room);
    return rc;
}

static int scatter_read(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *e)
{
    struct sharded_state *h = arg;
    for (int64_t k = 0, some; k < n; k += some) {
        some = of_one_slice(h, offset + k, n - k);
        if (read_piece(h, which, offset + k, some, out + k, e)) return -1;
    }
    return keep_alive(h, e);
}

/* Stores the part of an order's elements that this rank holds, which is range r. */
static void keep(struct sharded_state *h, const struct scatter_order *o, struct zero_range r,
                 const void *x)
{
    if (o->op == OP_BLOCKS)
        sharded_write_blocks(h, r.begin, r.end - r.begin, x);
    else
        sharded_write(h, (enum sharded_array)o->which, r.begin, r.end - r.begin, x);
}

/* Sends elements to all ranks that hold them. The elements in x are in fp32, or in blocks of a
 * format. */
static int write_piece(struct sharded_state *h, const struct scatter_order *whole,
                       enum weights_id format, const void *x, struct err *e)
{
    struct slice s = {0};
    char *room = h->plan->tp > 1 ? mem_scratch(ST_CHUNK * sizeof(float)) : NULL;
    int rc = 0;
    assert(whole->n <= ST_CHUNK);
    for (int w = 0; w < h->plan->n_ranks && !rc; w++) {
        const int t = plan_place(h->plan, w).t;
        const struct scatter_order o = order_of(h, &s, t, whole);
        if (!o.n) continue;
        const struct zero_range r = run_of(h, &o, w);
        if (w && r.begin == r.end) continue;
        const char *own = room ? room : x;
        if (room) spread(&s, t, &o, whole, format, room, (void *)x, false);
        if (w == 0) keep(h, &o, (struct zero_range){o.offset, o.offset + o.n}, own);
        if (w == 0) continue;
        if ((rc = order(h, w, &o, e))) break;
        const int64_t size = bytes_of(format, r.end - r.begin);
        char *out = bounce(h) + DATA_AT;
        memcpy(out, own + bytes_of(format, r.begin - o.offset), (size_t)size);
        rc = send_one(h, w, out, size, e);
    }
    free(room);
    return rc;
}

static int write_all(struct sharded_state *h, const struct scatter_order *o, enum weights_id format,
                     const void *x, struct err *e)
{
    struct scatter_order some = *o;
    for (int64_t k = 0; k < o->n; k += some.n) {
        some.offset = o->offset + k;
        some.n = of_one_slice(h, some.offset, o->n - k);
        if (write_piece(h, &some, format, (const char *)x + bytes_of(format, k), e)) return -1;
    }
    return keep_alive(h, e);
}

static int scatter_write(void *arg, int which, int64_t offset, int64_t n, const float *x,
                         struct err *e)
{
    const struct scatter_order o = {OP_TAKE, which, offset, n};
    return write_all(arg, &o, WEIGHTS_MODEL, x, e);
}

/* Returns true if several threads may call scatter_write at the same time. This is the case if
 * there is only one rank and the weights are in the host's memory. */
static bool any_order(const struct sharded_state *h)
{
    return h->plan->n_ranks == 1 && !h->model->be->own_memory;
}

struct ckpt_arrays scatter_arrays(struct sharded_state *h)
{
    return (struct ckpt_arrays){
        .dtype = h->model->dtype,
        .average = h->plan->ema,
        .flow = {scatter_read, scatter_write, scatter_still, h, h->model->be, any_order(h)}};
}

static int take_weights(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    return scatter_write(arg, SHARDED_WEIGHTS, offset, n, x, e);
}

/* Returns the format of the weight to which the element at `offset` in the whole model belongs. */
static enum weights_id format_of(void *arg, int64_t offset)
{
    struct sharded_state *h = arg;
    if (!h->model->shape.quant) return WEIGHTS_MODEL;
    if (h->plan->tp == 1) return sharded_blocks(h, offset, QUANT_K);
    const struct slice s = slice_find(&h->slices, &h->model->shape, offset);
    return (offset - s.whole_offset) % QUANT_K ? WEIGHTS_MODEL
                                               : sharded_blocks(h, s.offset, QUANT_K);
}

static int take_blocks(void *arg, int64_t offset, int64_t n, const uint8_t *blocks, struct err *e)
{
    const struct scatter_order o = {OP_BLOCKS, SHARDED_WEIGHTS, offset, n};
    return write_all(arg, &o, format_of(arg, offset), blocks, e);
}

int scatter_model(struct sharded_state *h, const char *dir, const struct model_shape *shape,
                  struct hf_requant *again, struct err *e)
{
    const struct hf_sink to = {.take = take_weights,
                               .arg = h,
                               .format = format_of,
                               .take_blocks = take_blocks,
                               .again = again,
                               .be = h->model->be,
                               .any_order = any_order(h)};
    return hf_load_pieces(dir, shape, &to, e);
}

int scatter_end(struct sharded_state *h, struct err *e)
{
    return order_all(h, OP_END, e);
}

/* ---- the others ------------------------------------------------------------------------------ */

static int obey(struct sharded_state *h, const struct scatter_order *o, struct err *e)
{
    const struct zero_range r = run_of(h, o, h->rank);
    const int64_t n = r.end - r.begin;
    float *x = (float *)(bounce(h) + DATA_AT);
    if (brings(o)) {
        const enum weights_id format = o->op == OP_BLOCKS ? sharded_blocks(h, o->offset, o->n)
                                                          : WEIGHTS_MODEL;
        if (receive_one(h, 0, x, bytes_of(format, n), e)) return -1;
        keep(h, o, r, x);
        return 0;
    }
    if (sharded_read(h, (enum sharded_array)o->which, r.begin, n, x, e)) return -1;
    return send_one(h, 0, x, n * 4, e);
}

static bool sound(const struct sharded_state *h, const struct scatter_order *o)
{
    if (o->op == OP_STILL || o->op == OP_END) return true;
    if (o->op == OP_BLOCKS && o->which != SHARDED_WEIGHTS) return false;
    return (o->op == OP_GIVE || brings(o)) && o->which >= SHARDED_WEIGHTS &&
           o->which <= (h->plan->ema ? SHARDED_EMA : SHARDED_V) && o->n >= 1 && o->n <= ST_CHUNK &&
           o->offset >= 0 && o->offset <= param_count(&h->model->shape) - o->n &&
           run_of(h, o, h->rank).begin < run_of(h, o, h->rank).end &&
           (o->op != OP_BLOCKS || sharded_blocks(h, o->offset, o->n));
}

int scatter_serve(struct sharded_state *h, struct err *e)
{
    struct scatter_order o;
    do {
        comm_where(world(h))->layer = comm_where(world(h))->hop = -1;
        if (receive_one(h, 0, &o, sizeof o, e)) return -1;
        if (!sound(h, &o))
            return err_set(e, ERR_PEER, "rank 0 orders %d of %lld elements at %lld", o.op,
                           (long long)o.n, (long long)o.offset);
        if ((o.op == OP_GIVE || brings(&o)) && obey(h, &o, e)) return -1;
    } while (o.op != OP_END);
    return 0;
}
