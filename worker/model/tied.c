/* tied.c: sends each part of a tied embedding's gradient as one message. The first stage receives
 * it and adds it to its own part. */
#include "worker/model/tied.h"

#include "api/core/assert.h"
#include "api/core/mutant.h"

enum { FIRST, LAST }; /* ranks of model.ends */

static void mark_place(struct model *m)
{
    comm_where(m->ends)->layer = comm_where(m->ends)->hop = -1;
}

void tied_init(struct tied_sends *s, struct model *m)
{
    const struct plan_item *it = &m->plan->item[PLAN_TIED_SEND];
    *s = (struct tied_sends){0};
    if (!it->name) return;
    assert(it->in_segment && m->ends && comm_rank(m->ends) == LAST);
    s->n = plan_tied_sends(m->plan);
    s->stride = it->stride;
    s->at = (char *)comm_segment(m->job) + it->offset;
    model_note_placed(m, it, it->size);
}

static int post(struct model *m, const void *x, int64_t n, struct comm_ticket *t, struct err *e)
{
    const struct comm_xfer message = {.purpose = PURPOSE_GRAD,
                                      .channel = CHANNEL_COLL,
                                      .send_to = FIRST,
                                      .recv_from = -1,
                                      .send = x,
                                      .send_size = n * 4};
    mark_place(m);
    return comm_sendrecv(m->ends, &message, t, e);
}

int tied_send(struct tied_sends *s, struct model *m, const float *x, int64_t n, struct err *e)
{
    if (!n) return 0;
    const int64_t i = s->sent % s->n;
    char *to = s->at + i * s->stride;
    mark_place(m);
    if (s->sent >= s->n && comm_wait(m->ends, &s->ticket[i], e)) return -1;
    m->be->ops->copy(m->be, to, x, n * 4);
    s->sent++;
    return post(m, to, n, &s->ticket[i], e);
}

static int receive(struct model *m, float *x, int64_t n, struct err *e)
{
    const struct comm_xfer message = {.purpose = PURPOSE_GRAD,
                                      .channel = CHANNEL_COLL,
                                      .send_to = -1,
                                      .recv_from = LAST,
                                      .recv = x,
                                      .recv_size = n * 4};
    struct comm_ticket t;
    mark_place(m);
    return comm_sendrecv(m->ends, &message, &t, e) || comm_wait(m->ends, &t, e) ? -1 : 0;
}

int tied_join(struct model *m, float *own, float *room, int64_t n, struct err *e)
{
    const struct add_args add = {.y = own, .x = room, .n = n};
    if (!n) return 0;
    if (receive(m, room, n, e)) return -1;
    m->be->ops->add(m->be, &add);
    if (mutant_on(MUTANT_TIED_TWICE)) m->be->ops->add(m->be, &add);
    return 0;
}

int tied_settle(struct tied_sends *s, struct model *m, struct err *e)
{
    int64_t i = s->sent > s->n ? s->sent - s->n : 0;
    for (; i < s->sent; i++)
        if (comm_wait(m->ends, &s->ticket[i % s->n], e)) return -1;
    s->sent = 0;
    return 0;
}
