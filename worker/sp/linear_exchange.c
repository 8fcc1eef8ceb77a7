/* linear_exchange.c: passes the state of linear attention from rank to rank.
 *
 *   chain    ring (2404.02882) and scan (2507.01004). A rank waits for the state, folds its chunks
 *            into the state and sends the state on. scan divides the rows of every head's state
 *            into pieces, so that a piece is sent while the next piece is folded. A ring is a scan
 *            with one piece.
 *   gather   all_gather (2502.07563). Every rank sends its chunks' summaries to all ranks. If the
 *            summaries are computed before the outputs, they are sent while the outputs are
 *            computed
 *
 * gather needs no map of the documents. In forward, the receiver knows where the document of its
 * first row begins, and folds the chunks from that place on. In backward, the sender knows where
 * the document of a chunk's first row begins. If a rank's rows end before the start of that
 * document, the sender sends zeros to that rank instead of the chunk's summary. So the sizes of
 * messages do not depend on the documents.
 *
 * Only gather has to handle a carried state at the sequence's edges. Rank 0 folds the state before
 * the sequence into its first summary. If the last rank has no token, the rank with the last token
 * sends the state after that token to the last rank. In backward, the rank with the last token
 * receives the gradient of that state from the last rank. */
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/sp/linear_pass.h"

static int64_t row_size(const struct linear_pass *p)
{
    return p->shape->value_dim * dtype_size(p->sp->state_dtype);
}

/* ---- chain ----------------------------------------------------------------------------------- */

static int64_t piece_rows(const struct linear_pass *p)
{
    assert(p->n_pieces >= 1 && p->n_pieces <= LINEAR_MAX_PIECES);
    assert(p->shape->key_dim % p->n_pieces == 0);
    return p->shape->key_dim / p->n_pieces;
}

/* piece_in returns piece i of a state in the order of the kernels. piece_packed returns piece i of
 * a state in the order of messages. */
static struct linear_view piece_in(const struct linear_pass *p, const void *state, int i)
{
    if (!state) return (struct linear_view){0};
    return (struct linear_view){(char *)state + i * piece_rows(p) * row_size(p),
                                p->shape->key_dim * row_size(p)};
}

static struct linear_view piece_packed(const struct linear_pass *p, void *state, int i)
{
    return (struct linear_view){(char *)state + i * (p->size / p->n_pieces),
                                piece_rows(p) * row_size(p)};
}

static enum comm_channel chain_channel(const struct linear_pass *p)
{
    return p->back ? CHANNEL_DKV : CHANNEL_KV;
}

static int chain_post(struct linear_pass *p, struct err *e)
{
    struct sp_linear *sp = p->sp;
    if (p->from < 0) return 0;
    comm_where(sp->comm)->hop = sp->shard.r;
    if (p->back && p->n_pieces > 1) p->entry[0] = sp->buf.recv[1];
    void *to = p->n_pieces > 1 ? sp->buf.recv[0] : p->entry[0];
    for (int i = 0; i < p->n_pieces; i++)
        if (linear_receive(p, p->from, chain_channel(p), piece_packed(p, to, i).data,
                           p->size / p->n_pieces, e))
            return -1;
    return 0;
}

static int piece_arrive(struct linear_pass *p, int i, struct err *e)
{
    struct be *be = p->sp->be;
    if (linear_await(p, i, e)) return -1;
    if (p->n_pieces == 1) return 0;
    struct linear_view in = piece_packed(p, p->sp->buf.recv[0], i);
    struct linear_view out = piece_in(p, p->entry[0], i);
    for (int64_t h = 0; h < p->shape->n_heads; h++)
        be->ops->copy(be, out.data + h * out.stride, in.data + h * in.stride, in.stride);
    return 0;
}

/* Returns the destination for piece i of the state that leaves the last step. The data is NULL if
 * the state is not wanted. */
static struct linear_view piece_out(struct linear_pass *p, int i)
{
    if (p->to >= 0) return piece_packed(p, p->sp->buf.send[p->sp->turn], i);
    return piece_in(p, p->edge_out, i);
}

static void piece_fold(struct linear_pass *p, int i)
{
    for (int k = 0; k < p->n; k++) {
        struct linear_chunk c = linear_chunk_of(p, k);
        struct linear_view out = k + 1 < p->n ? piece_in(p, p->entry[k + 1], i) : piece_out(p, i);
        if (!out.data) continue;
        linear_fold_view(p, &c, piece_rows(p), piece_in(p, p->entry[k], i),
                         piece_in(p, linear_summary(p, k), i), out);
    }
}

static int chain_fold(struct linear_pass *p, struct err *e)
{
    struct sp_linear *sp = p->sp;
    struct linear_sends *s = &sp->sent[sp->turn];
    if (p->to >= 0 && linear_sends_wait(sp, s, e)) return -1;
    for (int i = 0; i < p->n_pieces; i++) {
        if (p->from >= 0 && piece_arrive(p, i, e)) return -1;
        piece_fold(p, i);
        if (p->to >= 0 && linear_send(p, s, p->to, chain_channel(p), piece_out(p, i).data,
                                      p->size / p->n_pieces, e))
            return -1;
    }
    if (p->to >= 0) sp->turn = !sp->turn;
    return 0;
}

const struct linear_exchange linear_chain = {chain_post, NULL, chain_fold};

/* ---- gather ---------------------------------------------------------------------------------- */

/* Returns the summary with this index in the order of the sequence. Chunk k of rank w has the
 * index w * n + k. */
static char *gathered(const struct linear_pass *p, int64_t number)
{
    return (char *)p->sp->buf.all + number * p->size;
}

static int64_t own_number(const struct linear_pass *p, int step)
{
    return (int64_t)p->sp->shard.r * p->n + (p->back ? p->n - 1 - step : step);
}

/* Returns the rank that has the last token. With a carried state there is no padding before S, so
 * a division finds the rank. */
static int edge_rank(const struct linear_pass *p)
{
    return (int)((p->sp->shard.S - 1) / p->sp->shard.T);
}

/* Tells whether the last rank receives or sends a carried state although it has no token. */
static bool edge_apart(const struct linear_pass *p)
{
    return p->edges && edge_rank(p) != p->sp->shard.P - 1;
}

static int edge_send(struct linear_pass *p, int to, struct err *e)
{
    return linear_send(p, &p->sp->sent[0], to, chain_channel(p), p->sp->buf.send[0], p->size, e);
}

/* In backward, posts the message with the gradient of the carried state. This message is posted
 * before the summaries, because the gradient becomes part of a summary. */
static int gather_post(struct linear_pass *p, struct err *e)
{
    struct sp_linear *sp = p->sp;
    const int r = sp->shard.r, last = sp->shard.P - 1, w = edge_rank(p);
    comm_where(sp->comm)->hop = 1;
    if (!p->back || !edge_apart(p)) return 0;
    if (r == w) return linear_receive(p, last, chain_channel(p), p->entry[0], p->size, e);
    if (r != last) return 0;
    if (linear_sends_wait(sp, &sp->sent[0], e)) return -1;
    sp->be->ops->copy(sp->be, sp->buf.send[0], p->edge_in, p->size);
    return edge_send(p, w, e);
}

/* In forward, sends the last state to the last rank, after the state has been folded. */
static int edge_pass(struct linear_pass *p, struct err *e)
{
    const int r = p->sp->shard.r, last = p->sp->shard.P - 1, w = edge_rank(p);
    if (p->back || !edge_apart(p)) return 0;
    if (r == w) return edge_send(p, last, e);
    return r == last ? linear_receive(p, w, chain_channel(p), p->edge_out, p->size, e) : 0;
}

/* Tells whether the carried state, or its gradient, enters step 0 on this rank. */
static bool has_edge(const struct linear_pass *p)
{
    const int r = p->sp->shard.r;
    if (!p->back) return r == 0 && p->edge_in;
    return p->edges && r == edge_rank(p);
}

static void fold_whole(struct linear_pass *p, const struct linear_chunk *c, const void *in,
                       const void *m, void *out)
{
    const int64_t stride = p->shape->key_dim * row_size(p);
    linear_fold_view(p, c, p->shape->key_dim, (struct linear_view){(char *)in, in ? stride : 0},
                     (struct linear_view){(char *)m, stride}, (struct linear_view){out, stride});
}

/* Copies this rank's summaries to their places in the array of all ranks' summaries. The carried
 * state is folded into the first summary that has tokens. */
static void gather_own(struct linear_pass *p)
{
    struct be *be = p->sp->be;
    bool edge = has_edge(p);
    for (int i = 0; i < p->n; i++) {
        struct linear_chunk c = linear_chunk_of(p, i);
        char *own = gathered(p, own_number(p, i));
        if (edge && c.n_valid)
            fold_whole(p, &c, p->entry[0], linear_summary(p, i), own);
        else
            be->ops->copy(be, own, linear_summary(p, i), p->size);
        edge = edge && !c.n_valid;
    }
}

/* Used in a backward pass. Tells whether the document of the chunk's first row begins among rank
 * w's rows or before them. */
static bool reaches(const struct linear_pass *p, int chunk, int w)
{
    const struct linear_chunk *c = &p->chunk[chunk];
    if (mutant_on(MUTANT_STATE_CROSSED)) return true;
    return c->sees && p->seen.lo[c->row0] < (w + 1) * p->sp->shard.T;
}

/* Exchanges summaries with all other ranks in one exchange. Receives from each rank, beginning
 * with the previous rank, and sends to each rank, beginning with the next rank. */
static int trade_summaries(struct linear_pass *p, struct err *e)
{
    struct sp_linear *sp = p->sp;
    const int P = sp->shard.P, r = sp->shard.r;
    for (int d = 1; d < P; d++)
        for (int k = 0; k < p->n; k++) {
            const int w = (r + P - d) % P;
            if (linear_receive(p, w, CHANNEL_COLL, gathered(p, w * p->n + k), p->size, e))
                return -1;
        }
    for (int d = 1; d < P; d++)
        for (int k = 0; k < p->n; k++) {
            const int w = (r + d) % P;
            const bool zero = p->back && w < r && !reaches(p, k, w);
            const void *data = zero ? sp->buf.send[0] : gathered(p, (int64_t)r * p->n + k);
            if (linear_send(p, &sp->sent[0], w, CHANNEL_COLL, data, p->size, e)) return -1;
        }
    return 0;
}

static int gather_send(struct linear_pass *p, struct err *e)
{
    struct sp_linear *sp = p->sp;
    p->n_edges = p->n_arrivals;
    if (p->n_edges && linear_await(p, 0, e)) return -1; /* the gradient enters a summary */
    if (linear_sends_wait(sp, &sp->sent[0], e)) return -1;
    gather_own(p);
    if (p->back) linear_zero(sp, sp->buf.send[0], p->size);
    if (comm_batch_begin(sp->comm, e) || trade_summaries(p, e)) return -1;
    return comm_batch_end(sp->comm, e);
}

/* Folds the other ranks' summaries [from, to), in the order of the fold, into the state that enters
 * step 0. */
static void fold_others(struct linear_pass *p, int64_t from, int64_t to)
{
    struct linear_chunk c = {.n_valid = p->sp->shard.sum_len};
    const int64_t by = from < to ? 1 : -1;
    for (int64_t i = from; i != to; i += by) {
        c.through = i != from;
        fold_whole(p, &c, p->entry[0], gathered(p, i), p->entry[0]);
    }
}

static void gather_entry(struct linear_pass *p)
{
    const struct shard *sh = &p->sp->shard;
    const int64_t own = (int64_t)sh->r * p->n;
    if (p->from < 0 || has_edge(p)) return;
    if (p->back) {
        fold_others(p, (int64_t)sh->P * p->n - 1, own + p->n - 1);
        return;
    }
    int64_t first = own;
    if (p->chunk[0].sees) first = p->seen.lo[0] < 0 ? 0 : p->seen.lo[0] / sh->sum_len;
    if (mutant_on(MUTANT_STATE_CROSSED)) first = 0;
    if (first == own)
        linear_zero(p->sp, p->entry[0], p->size);
    else
        fold_others(p, first, own);
}

/* Returns the destination of the state that leaves the last step, or NULL if the state is not
 * wanted. */
static void *gather_out(const struct linear_pass *p)
{
    const int r = p->sp->shard.r;
    if (p->back) return r == 0 ? p->edge_out : NULL;
    if (!p->edges || r != edge_rank(p)) return NULL;
    return edge_apart(p) ? p->sp->buf.send[0] : p->edge_out;
}

static int gather_fold(struct linear_pass *p, struct err *e)
{
    const int others = (p->sp->shard.P - 1) * p->n;
    for (int i = 0; i < others; i++)
        if (linear_await(p, p->n_edges + i, e)) return -1;
    gather_entry(p);
    for (int i = 0; i < p->n; i++) {
        struct linear_chunk c = linear_chunk_of(p, i);
        void *out = i + 1 < p->n ? p->entry[i + 1] : gather_out(p);
        if (out) fold_whole(p, &c, p->entry[i], linear_summary(p, i), out);
    }
    return edge_pass(p, e);
}

const struct linear_exchange linear_gather = {gather_post, gather_send, gather_fold};
