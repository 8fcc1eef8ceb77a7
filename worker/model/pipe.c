/* pipe.c: numbers the messages between neighbouring stages, posts a send and a receive together,
 * and runs passes in the order of 1F1B. */
#include "worker/model/pipe.h"

#include "api/core/mutant.h"
#include "worker/model/model.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* Returns the bytes of this rank's stream. On each stage, the rows of a stream are divided among
 * the ranks that share every layer. */
static int64_t stream_bytes(const struct model *m)
{
    return m->sp.shard.T / m->plan->tp * m->shape.width * dtype_size(m->dtype);
}

static struct comm_xfer message(enum pipe_way way)
{
    return (struct comm_xfer){.purpose = PURPOSE_STAGE,
                              .channel = way == PIPE_FORWARD ? CHANNEL_KV : CHANNEL_DKV,
                              .send_to = -1,
                              .recv_from = -1};
}

static void mark_place(struct model *m)
{
    comm_where(m->line)->layer = comm_where(m->line)->hop = -1;
}

static int wait_sent(struct model *m, enum pipe_way way, struct err *e)
{
    if (!m->pipe.sent[way]) return 0;
    m->pipe.sent[way] = false;
    mark_place(m);
    return comm_wait(m->line, &m->pipe.ticket[way], e);
}

/* Tells whether the first stream is sent again. This is a fault on purpose
 * (MUTANT_STREAM_STALE). */
static bool stale(struct model *m, enum pipe_way way)
{
    const bool before = m->pipe.any;
    if (way == PIPE_BACK) return false;
    m->pipe.any = true;
    return before && mutant_on(MUTANT_STREAM_STALE);
}

/* Returns the address at which a stream or a gradient arrives. Each slot has an address for
 * streams. All gradients arrive at the same address. */
static char *arrives_at(struct model *m, enum pipe_way way, int slot)
{
    if (way == PIPE_BACK) return section_border(m, true, true);
    section_slot(m, slot);
    char *at = section_border(m, false, false);
    section_slot(m, m->pipe.slot);
    return at;
}

static int post_receive(struct model *m, enum pipe_way way, int slot, struct err *e)
{
    struct comm_xfer x = message(way);
    x.recv_from = comm_rank(m->line) - (way == PIPE_FORWARD ? 1 : -1);
    x.recv = arrives_at(m, way, slot);
    x.recv_size = stream_bytes(m);
    mark_place(m);
    if (comm_sendrecv(m->line, &x, &m->pipe.arriving[way], e)) return -1;
    m->pipe.comes[way] = true;
    return 0;
}

static int post_send(struct model *m, enum pipe_way way, struct err *e)
{
    struct comm_xfer x = message(way);
    x.send_to = comm_rank(m->line) + (way == PIPE_FORWARD ? 1 : -1);
    x.send = m->pipe.send[way];
    x.send_size = stream_bytes(m);
    mark_place(m);
    if (comm_sendrecv(m->line, &x, &m->pipe.ticket[way], e)) return -1;
    m->pipe.sent[way] = true;
    return 0;
}

/* Sends the stream to a neighbour. If the neighbour sends a stream or a gradient at the same
 * point of the schedule, also posts the receive of that message. */
static int send_stream(struct model *m, enum pipe_way way, const void *stream, struct err *e)
{
    const enum pipe_way other = way == PIPE_FORWARD ? PIPE_BACK : PIPE_FORWARD;
    if (wait_sent(m, way, e)) return -1;
    if (!stale(m, way)) m->be->ops->copy(m->be, m->pipe.send[way], stream, stream_bytes(m));
    const bool due = way == PIPE_BACK || zero_gets_back(&m->plan->shards);
    if (m->pipe.takes < 0 || !due) return post_send(m, way, e);
    if (comm_batch_begin(m->line, e) || post_send(m, way, e) ||
        post_receive(m, other, m->pipe.takes, e))
        return -1;
    return comm_batch_end(m->line, e);
}

static int receive_stream(struct model *m, enum pipe_way way, struct err *e)
{
    if (!m->pipe.comes[way] && post_receive(m, way, m->pipe.slot, e)) return -1;
    m->pipe.comes[way] = false;
    mark_place(m);
    return comm_wait(m->line, &m->pipe.arriving[way], e);
}

/* Waits until all messages that were sent have been received. */
static int settle(struct model *m, struct err *e)
{
    return wait_sent(m, PIPE_FORWARD, e) || wait_sent(m, PIPE_BACK, e) ? -1 : 0;
}

int model_pipe_share(struct model *m, double *x, int n, struct err *e)
{
    if (!m->line) return 0;
    return comm_broadcast(m->line, PURPOSE_LOSS, m->plan->pp - 1, x, n * 8, m->bounce, e);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static const struct batch *placed(struct model *m, const struct batch *b, int slot)
{
    m->pipe.slot = slot;
    section_slot(m, slot);
    model_place(m, b);
    m->sp.drop.sample = (uint32_t)b->sample;
    return m->be->own_memory ? &m->there : b;
}

static int forward(struct model *m, const struct batch *b, bool to_loss, struct err *e)
{
    const struct pipe *p = &m->plan->pipe;
    if (!pipe_first(p) && receive_stream(m, PIPE_FORWARD, e)) return -1;
    if (model_sections(m, b, to_loss, e)) return -1;
    model_rewind(m);
    if (pipe_last(p)) return 0;
    return send_stream(m, PIPE_FORWARD, section_border(m, true, false), e);
}

int model_pipe_forward(struct model *m, const struct batch *b, int slot, struct err *e)
{
    return forward(m, placed(m, b, slot), false, e);
}

int model_pipe_backward(struct model *m, const struct batch *b, int slot, float scale,
                        double *nll_sum, struct err *e)
{
    const struct pipe *p = &m->plan->pipe;
    const struct zero *z = &m->plan->shards;
    *nll_sum = 0;
    if (!zero_goes_back(z)) return 0;
    const struct batch *there = placed(m, b, slot);
    if (zero_gets_back(z) && receive_stream(m, PIPE_BACK, e)) return -1;
    if (pipe_last(p) && model_weigh_rows(m, there, nll_sum, e)) return -1;
    if (section_backward(m, there, scale, e)) return -1;
    if (zero_sends_back(z) && send_stream(m, PIPE_BACK, section_border(m, false, true), e))
        return -1;
    if (pipe_last(p) && !m->weigh.call) *nll_sum = model_sum_nll(m);
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

int model_pipe_run(struct model *m, int64_t n, const struct pipe_passes *passes, struct err *e)
{
    const int64_t ahead = pipe_ahead(&m->plan->pipe, n), slots = m->plan->slots;
    for (int64_t i = 0; i < n + ahead; i++) {
        const int64_t k = i - ahead;
        m->pipe.takes = k >= 0 ? (int)(k % slots) : -1;
        if (i < n && passes->forward(passes->arg, i, (int)(i % slots), e)) return -1;
        m->pipe.takes = i + 1 < n ? (int)((i + 1) % slots) : -1;
        if (k >= 0 && passes->backward(passes->arg, k, (int)(k % slots), e)) return -1;
    }
    m->pipe.takes = -1;
    return settle(m, e);
}

int model_pipe_score(struct model *m, const struct batch *b, double *nll_sum, struct err *e)
{
    *nll_sum = 0;
    m->pipe.takes = -1;
    if (forward(m, placed(m, b, 0), true, e)) return -1;
    if (pipe_last(&m->plan->pipe) && model_nll(m, b, nll_sum, e)) return -1;
    return settle(m, e);
}
