#include "worker/verify/gather.h"

static int fetch(void *arg, int b, struct err *e)
{
    const struct gathered *w = arg;
    return w->own.fetch(w->own.arg, b, e);
}

/* Everyone gets the sum: a window's part from each owner. */
static int reduce(void *arg, int b, bool last, struct err *e)
{
    const struct gathered *w = arg;
    struct model *m = w->model;
    const struct zero *z = &m->plan->shards;
    float *x = m->grad + zero_window_at(z, b);
    (void)last; /* a tied embedding's two parts are simply added */
    if (model_sum_bucket(m, b, true, x, e)) return -1;
    if (w->grad)
        m->be->ops->add(m->be, &(struct add_args){
                                   .y = w->grad + zero_begin(z, b), .x = x, .n = zero_len(z, b)});
    return 0;
}

void gather_begin(struct gathered *w, struct model *m, float *grad)
{
    *w = (struct gathered){m, m->buckets, grad};
    if (!m->plan->by_bucket) return;
    if (grad) m->be->ops->fill(m->be, grad, m->plan->n_params, 0);
    m->buckets = (struct model_buckets){fetch, reduce, w};
}

void gather_end(struct gathered *w)
{
    w->model->buckets = w->own;
}

int gather_weights(struct model *m, void *params, struct err *e)
{
    const struct zero *z = &m->plan->shards;
    const int64_t size = dtype_size(m->dtype);
    const int head = zero_buckets(z) - 1;
    if (!m->fetched) return 0;
    for (int b = 0; b <= head; b++) {
        if (m->buckets.fetch(m->buckets.arg, b, e)) return -1;
        if (params)
            m->be->ops->copy(m->be, (char *)params + zero_begin(z, b) * size,
                             (char *)m->fetched + zero_window_at(z, b) * size,
                             zero_len(z, b) * size);
    }
    /* After the last bucket its neighbour in the window is missing. */
    return z->tied ? m->buckets.fetch(m->buckets.arg, 0, e) : 0;
}
