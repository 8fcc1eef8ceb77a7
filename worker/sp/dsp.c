/* Dynamic Sequence Parallelism (2403.10266): the all-to-all that changes the spread dimension.
 *
 * The intersection of rank r's part along `from` and rank w's part along `to` is one block [n_r,
 * n_w, cols]. Every rank packs its blocks into `send` in rank order and posts them. While they are
 * sent, it moves the block that it keeps. It transposes the received blocks when it unpacks them,
 * because the rows of dst are [share of to, N_from]. The sender and the receiver both compute the
 * size of each block, so no size and no padding is sent. */
#include "worker/sp/dsp.h"

#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/sp/sp.h"

struct dsp_block { /* [n, m] rows, where n is along `from` and m is along `to` */
    int64_t n, m;
};

struct change { /* one switch under way */
    struct dsp *d;
    int from, to;
    /* row_size: bytes of a row; share: shares along `from` and along `to` */
    int64_t row_size, share[2];
    int n_tickets;
    struct comm_ticket ticket[JOB_MAX_RANKS];
};

int64_t dsp_rows(const int64_t n[2], int P, bool rank_bits, int dim)
{
    return shard_share(n[dim], P, rank_bits) * n[!dim];
}

int64_t dsp_buffer_size(const int64_t n[2], int P, bool rank_bits, int64_t cols, int64_t size)
{
    const int64_t a = dsp_rows(n, P, rank_bits, 0), b = dsp_rows(n, P, rank_bits, 1);
    return P == 1 ? 0 : (a > b ? a : b) * cols * size;
}

static int64_t count(const struct dsp *d, int dim, int r)
{
    return shard_count(d->n[dim], d->P, r, d->rank_bits);
}

static struct dsp_block block_between(const struct change *c, int sender, int receiver)
{
    return (struct dsp_block){count(c->d, c->from, sender), count(c->d, c->to, receiver)};
}

static int64_t block_size(const struct change *c, struct dsp_block b)
{
    return b.n * b.m * c->row_size;
}

static void zero(struct dsp *d, char *at, int64_t size)
{
    static const char nothing[2];
    assert(size % 2 == 0 && (uintptr_t)at % 2 == 0);
    if (size && (uintptr_t)at % 4) { /* sets the 16-bit element before the first whole float */
        d->be->ops->upload(d->be, at, nothing, 2);
        at += 2, size -= 2;
    }
    if (size >= 4) d->be->ops->fill(d->be, (float *)(void *)at, size / 4, 0);
    if (size % 4) d->be->ops->upload(d->be, at + size - 2, nothing, 2);
}

/* Returns the index, along the gathered dimension, of the first row of the block that sender w
 * sent. */
static int64_t gathered_at(const struct change *c, int w, int64_t n)
{
    const int64_t N = c->d->n[c->from];
    int64_t at = w * c->share[0];
    if (mutant_on(MUTANT_SWITCH_SWAPPED)) at = (c->d->P - 1 - w) * c->share[0];
    if (mutant_on(MUTANT_PAD_SEEN) && c->d->P > 1) at += c->d->P * c->share[0] - N;
    return at + n > N ? N - n : at;
}

/* Packs block [n, m] from src [., N_to] into out, for the rank whose part of `to` begins at j0. */
static void pack(const struct change *c, void *out, const char *src, struct dsp_block b, int64_t j0)
{
    const int64_t s = c->row_size;
    struct be *be = c->d->be;
    const struct permute_args a = {.dst = out,
                                   .src = src + j0 * s,
                                   .n = {1, b.n, b.m},
                                   .dst_stride = {0, b.m * s, s},
                                   .src_stride = {0, c->d->n[c->to] * s, s},
                                   .size = s};
    if (b.n > 0 && b.m > 0) be->ops->permute(be, &a);
}

/* Unpacks block [n, m] transposed into dst [., N_from], from column i0 on. The block's rows along
 * n are `stride` apart. */
static void unpack(const struct change *c, char *dst, const void *in, struct dsp_block b,
                   int64_t stride, int64_t i0)
{
    const int64_t s = c->row_size;
    struct be *be = c->d->be;
    const struct permute_args a = {.dst = dst + i0 * s,
                                   .src = in,
                                   .n = {1, b.m, b.n},
                                   .dst_stride = {0, c->d->n[c->from] * s, s},
                                   .src_stride = {0, s, stride},
                                   .size = s};
    if (b.n > 0 && b.m > 0) be->ops->permute(be, &a);
}

static int post(struct change *c, int to, const void *send, int64_t send_size, int from, void *recv,
                int64_t recv_size, struct err *e)
{
    const struct comm_xfer x = {.purpose = c->d->purpose,
                                .channel = CHANNEL_COLL,
                                .send_to = send_size ? to : -1,
                                .recv_from = recv_size ? from : -1,
                                .send = send,
                                .recv = recv,
                                .send_size = send_size,
                                .recv_size = recv_size};
    if (!send_size && !recv_size) return 0;
    if (!c->n_tickets && comm_batch_begin(c->d->comm, e)) return -1;
    return comm_sendrecv(c->d->comm, &x, &c->ticket[c->n_tickets++], e);
}

static int wait_all(struct change *c, struct err *e)
{
    for (int i = 0; i < c->n_tickets; i++)
        if (comm_wait(c->d->comm, &c->ticket[i], e)) return -1;
    return 0;
}

/* Computes the offsets of the blocks, which are in rank order in both buffers. */
static void offsets(const struct change *c, int64_t out[], int64_t in[])
{
    const int r = c->d->r;
    out[0] = in[0] = 0;
    for (int w = 0; w < c->d->P; w++) {
        out[w + 1] = out[w] + block_size(c, block_between(c, r, w));
        in[w + 1] = in[w] + block_size(c, block_between(c, w, r));
    }
}

static int exchange(struct change *c, const char *src, char *dst, struct err *e)
{
    struct dsp *d = c->d;
    const int P = d->P, r = d->r;
    int64_t out[JOB_MAX_RANKS + 1], in[JOB_MAX_RANKS + 1];
    char *send = d->send, *recv = d->recv;
    struct comm_exchange blocks;
    offsets(c, out, in);
    for (int w = 0; w < P; w++)
        if (w != r) pack(c, send + out[w], src, block_between(c, r, w), w * c->share[1]);
    if (P > 1 && (comm_batch_begin(d->comm, e) ||
                  comm_all_to_all(d->comm, d->purpose, (struct comm_blocks){send, out},
                                  (struct comm_blocks){recv, in}, false, &blocks, e) ||
                  comm_batch_end(d->comm, e)))
        return -1;
    const struct dsp_block own = block_between(c, r, r);
    unpack(c, dst, src + r * c->share[1] * c->row_size, own, d->n[c->to] * c->row_size,
           gathered_at(c, r, own.n));
    if (P > 1 && comm_all_to_all_wait(d->comm, &blocks, e)) return -1;
    for (int w = 0; w < P; w++) {
        const struct dsp_block b = block_between(c, w, r);
        if (w != r) unpack(c, dst, recv + in[w], b, b.m * c->row_size, gathered_at(c, w, b.n));
    }
    return 0;
}

int dsp_switch(struct dsp *d, struct tensor dst, struct tensor src, int from, int to, struct err *e)
{
    assert(from != to && (from | to) == 1 && (d->comm || d->P == 1) && d->P <= JOB_MAX_RANKS);
    assert(dst.ld == dst.cols && src.ld == src.cols && src.cols == dst.cols);
    assert(src.dtype == dst.dtype && src.rows == dsp_rows(d->n, d->P, d->rank_bits, from) &&
           dst.rows == dsp_rows(d->n, d->P, d->rank_bits, to));
    struct change c = {.d = d,
                       .from = from,
                       .to = to,
                       .row_size = src.cols * dtype_size(src.dtype),
                       .share = {shard_share(d->n[from], d->P, d->rank_bits),
                                 shard_share(d->n[to], d->P, d->rank_bits)}};
    const int64_t filled = count(d, to, d->r) * d->n[from];
    char *end = (char *)dst.data + filled * c.row_size;
    zero(d, end, (dst.rows - filled) * c.row_size);
    if (mutant_on(MUTANT_SWITCH_SWAPPED) || mutant_on(MUTANT_PAD_SEEN))
        zero(d, dst.data, filled * c.row_size);
    return exchange(&c, src.data, dst.data, e);
}

/* ---- whole and spread ------------------------------------------------------------------------ */

void dsp_split(struct dsp *d, struct tensor dst, struct tensor whole, int dim)
{
    const int64_t s = whole.cols * dtype_size(whole.dtype), other = d->n[!dim];
    const int64_t first = d->r * shard_share(d->n[dim], d->P, d->rank_bits) * other;
    const int64_t n = count(d, dim, d->r) * other;
    assert(whole.ld == whole.cols && dst.ld == dst.cols && dst.dtype == whole.dtype);
    assert(whole.rows == d->n[0] * d->n[1] && n <= dst.rows);
    if (n > 0) d->be->ops->copy(d->be, dst.data, (const char *)whole.data + first * s, n * s);
    zero(d, (char *)dst.data + n * s, (dst.rows - n) * s);
}

int dsp_gather(struct dsp *d, struct tensor whole, struct tensor src, int dim, struct err *e)
{
    const int64_t s = whole.cols * dtype_size(whole.dtype), other = d->n[!dim];
    const int64_t share = shard_share(d->n[dim], d->P, d->rank_bits) * other;
    const int64_t own = count(d, dim, d->r) * other;
    struct change c = {.d = d};
    char *to = whole.data;
    assert(whole.ld == whole.cols && src.ld == src.cols && src.dtype == whole.dtype);
    assert(whole.rows == d->n[0] * d->n[1] && own <= src.rows);
    if (own > 0) d->be->ops->copy(d->be, to + d->r * share * s, src.data, own * s);
    if (own > 0 && d->P > 1) d->be->ops->copy(d->be, d->send, src.data, own * s);
    for (int k = 1; k < d->P; k++) {
        const int w = (d->r + k) % d->P, from = (d->r - k + d->P) % d->P;
        const int64_t n = count(d, dim, from) * other;
        if (post(&c, w, d->send, own * s, from, to + from * share * s, n * s, e)) return -1;
    }
    if (c.n_tickets && comm_batch_end(d->comm, e)) return -1;
    return wait_all(&c, e);
}

/* DSP has no attention over several ranks. Its attention is an operation of the program, along a
 * dimension that is not spread. */
const struct sp_row sp_row_dsp = {.form = {NULL}};
