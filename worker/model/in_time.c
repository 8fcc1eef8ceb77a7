/* in_time.c: computes the windows forward and then backward. Forward passes states from window to
 * window, and backward passes gradients of states. */
#include "worker/model/in_time.h"

#include "api/core/assert.h"

/* Sends states, or gradients of states, from rank `root` to rank `leaf`. If root and leaf are one
 * rank, copies them. */
static int pass(struct in_time *t, enum purpose purpose, int root, int leaf, const char *from,
                char *to, struct err *e)
{
    const int rank = t->comm ? comm_rank(t->comm) : 0;
    struct comm_ticket ticket;
    if (root == leaf) {
        if (to != from) t->be->ops->copy(t->be, to, from, t->size);
        return 0;
    }
    if (rank != root && rank != leaf) return 0;
    if (t->be->ops->sync && t->be->ops->sync(t->be, e)) return -1;
    struct comm_xfer x = {.purpose = purpose,
                          .channel = purpose == PURPOSE_STATE ? CHANNEL_KV : CHANNEL_DKV,
                          .send_to = rank == root ? leaf : -1,
                          .recv_from = rank == leaf ? root : -1,
                          .send = from,
                          .recv = to,
                          .send_size = t->size,
                          .recv_size = t->size};
    comm_where(t->comm)->layer = -1;
    if (comm_sendrecv(t->comm, &x, &ticket, e)) return -1;
    return comm_wait(t->comm, &ticket, e);
}

/* Returns the states that enter window w, or NULL if it is the first window. */
static char *border(const struct in_time *t, int64_t w)
{
    return w > 0 ? t->borders + (w - 1) * t->size : NULL;
}

int in_time_walk(struct in_time *t, struct err *e)
{
    const int last = t->comm ? comm_size(t->comm) - 1 : 0;
    const int64_t stride = t->size / t->n_layers, end = t->n_windows - 1;
    assert(t->n_windows >= 1 && t->size == stride * t->n_layers);
    for (int64_t w = 0; w < end; w++) {
        const struct carry c = {.in = border(t, w), .out = t->out, .stride = stride};
        if (t->forward(t->arg, w, &c, e)) return -1;
        if (pass(t, PURPOSE_STATE, last, 0, t->out, border(t, w + 1), e)) return -1;
    }
    for (int64_t w = end; w >= 0; w--) {
        const struct carry c = {.in = border(t, w),
                                .d_out = w < end ? t->d_out : NULL,
                                .d_in = w > 0 ? t->d_in : NULL,
                                .stride = stride};
        if (t->grad(t->arg, w, &c, e)) return -1;
        if (w > 0 && pass(t, PURPOSE_DSTATE, 0, last, t->d_in, t->d_out, e)) return -1;
    }
    return 0;
}
