/* windowed.c: for in_time_walk(), loads the rows of each window of the sample, and runs the model
 * forward or backward on the window. */
#include "worker/train/windowed.h"

#include "api/core/job.h"

struct windowed_pass {
    struct train *t;
    int64_t sample;
    float scale;
    double nll;
};

/* Loads the rows of a window. Positions are relative to the window's first token. If the document
 * of a row began before the window, the row's range of keys begins at a negative index, which
 * means that the row sees the carried state. Dropout and noise are drawn by positions in the whole
 * sequence, so both passes over a window draw the same. */
static int load(struct windowed_pass *k, int64_t w, struct err *e)
{
    struct model *m = &k->t->model;
    const struct plan *p = k->t->plan;
    const int64_t base = w * p->S;
    struct shard sh = m->sp.shard;
    struct batch *b = &m->batch;
    sh.S = k->t->spec->data.seq_len;
    m->sp.drop.first = base;
    for (int i = 0; i < sh.n_segs; i++) sh.pos[i] += base;
    if (k->t->source.batch(k->t->source.arg, &sh, k->sample, b, e)) return -1;
    for (int64_t i = 0; i < sh.T; i++) {
        if (b->lo[i] >= b->hi[i]) continue;
        b->lo[i] -= base;
        b->hi[i] -= base;
    }
    return 0;
}

static int window_forward(void *arg, int64_t w, const struct carry *c, struct err *e)
{
    struct windowed_pass *k = arg;
    k->t->model.carry = *c;
    return load(k, w, e) ? -1 : model_forward(&k->t->model, &k->t->model.batch, e);
}

static int window_grad(void *arg, int64_t w, const struct carry *c, struct err *e)
{
    struct windowed_pass *k = arg;
    struct model *m = &k->t->model;
    double nll;
    m->carry = *c;
    if (load(k, w, e) || model_grad(m, &m->batch, k->scale, &nll, e)) return -1;
    k->nll += nll;
    return 0;
}

int windowed_sample(struct train *t, int64_t sample, float scale, double *nll, struct err *e)
{
    struct model *m = &t->model;
    struct windowed_pass k = {.t = t, .sample = sample, .scale = scale};
    const int64_t size = t->plan->carry_size;
    struct in_time walk = {.be = m->be,
                           .comm = m->comm,
                           .n_windows = t->plan->n_windows,
                           .n_layers = m->shape.n_layers,
                           .size = size,
                           .d_out = m->prog.carries,
                           .borders = m->prog.carries + size,
                           .out = m->prog.carry_pass,
                           .d_in = m->prog.carry_pass + size,
                           .forward = window_forward,
                           .grad = window_grad,
                           .arg = &k};
    const int rc = in_time_walk(&walk, e);
    m->carry = (struct carry){0};
    m->sp.drop.first = 0;
    *nll = k.nll;
    return rc;
}
