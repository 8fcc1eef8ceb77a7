/* logits.c: computes the reference's rows chunk by chunk, gathers the ranks' rows of the same
 * positions, and sums their differences. */
#include "worker/verify/logits.h"

#include <math.h>
#include <stdlib.h>
#include "worker/plan/volume.h"
#include "worker/verify/pass.h"

struct logits_chunk {
    struct model *m, *ref;
    struct logits *sums;
    float *own, *all, *one; /* rows of one rank; rows of all ranks; one row of the reference */
    /* room: rows of a rank that are compared at a time; ids: logits of a row */
    int64_t room, ids;
};

static void compare_row(struct logits *sums, const float *one, const float *many, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = one[i], d = x - (double)many[i];
        sums->diff += d * d;
        sums->norm += x * x;
        if (!(fabs(d) <= sums->max_abs)) sums->max_abs = fabs(d);
    }
}

/* Gathers rows [row0, row0 + n) of every rank that has logits, on the first of these ranks. */
static int gather(struct logits_chunk *c, int64_t row0, int64_t n, struct err *e)
{
    struct model *m = c->m;
    const int64_t size = n * c->ids * (int64_t)sizeof(float);
    struct tensor t = model_logits(m, row0, n);
    float *to = m->holders ? c->own : c->all;
    for (int64_t i = 0; i < n; i++)
        m->be->ops->download(m->be, to + i * c->ids, (float *)t.data + i * t.ld,
                             t.cols * (int64_t)sizeof(float));
    return pass_gather(m, to, size, c->all, &c->sums->moved, e);
}

/* Sends the gathered rows from the last stage to rank 0. */
static int carry(struct logits_chunk *c, int64_t n, struct err *e)
{
    struct model *m = c->m;
    const int64_t size = pass_holders(m) * n * c->ids * (int64_t)sizeof(float);
    struct comm_count *moved = &c->sums->moved;
    if (m->plan->pp == 1 || !pass_first(m)) return 0;
    if (pipe_last(&m->plan->pipe)) return pass_send(m, 0, c->all, size, moved, e);
    return pass_receive(m, m->plan->pp - 1, c->all, size, moved, e);
}

/* Compares c->one, which is a row of the reference, with the row at its position on the ranks that
 * have place q in the ring. Each of these ranks has n rows, with the logits of some of the ids. */
static void compare_ids(struct logits_chunk *c, int q, int64_t row, int64_t n)
{
    const int64_t V = c->m->shape.vocab;
    const int tp = c->m->plan->tp;
    for (int t = 0; t < tp; t++) {
        const int64_t first = t * c->ids, left = V - first < c->ids ? V - first : c->ids;
        const float *many = c->all + (((int64_t)q * tp + t) * n + row) * c->ids;
        if (left > 0) compare_row(c->sums, c->one + first, many, left);
    }
}

/* Compares rows of every rank with the reference's rows at the same positions. */
static int compare(struct logits_chunk *c, int64_t row0, int64_t n, struct err *e)
{
    const struct plan *p = c->m->plan;
    const int64_t S = c->m->sp.shard.S, V = c->m->shape.vocab;
    for (int q = 0; q < p->sp; q++) {
        struct shard sh;
        if (plan_shard(p, S, q, &sh, e)) return -1;
        int64_t pos = shard_pos(&sh, row0), real = S - pos;
        if (real > n) real = n;
        if (real <= 0) continue;
        struct tensor want = model_logits(c->ref, pos, real);
        for (int64_t i = 0; i < real; i++) {
            c->ref->be->ops->download(c->ref->be, c->one, (float *)want.data + i * want.ld, V * 4);
            compare_ids(c, q, i, n);
        }
    }
    return 0;
}

static int one_chunk(void *at, int64_t row0, int64_t n, struct err *e)
{
    struct logits_chunk *c = at;
    if (pipe_last(&c->m->plan->pipe) && gather(c, row0, n, e)) return -1;
    if (carry(c, n, e)) return -1;
    return c->ref ? compare(c, row0, n, e) : 0;
}

/* Gathers the rows that the head reads, from all ranks that share layers. If there are several
 * stages, a forward pass ends before the head, so this function counts the messages with these
 * rows. */
static int gather_rows(struct logits_chunk *c, struct err *e)
{
    struct model *m = c->m;
    const int64_t part = m->sp.shard.T / m->plan->tp * m->shape.width;
    int64_t cut[JOB_MAX_RANKS + 1];
    if (!pipe_last(&m->plan->pipe)) return 0;
    for (int w = 0; w <= m->plan->tp; w++) cut[w] = w * part;
    if (m->plan->pp > 1)
        volume_add(&c->sums->rows,
                   volume_all_gather(m->plan->tp, m->tensor_rank, cut, dtype_size(m->dtype)), 1);
    return model_head(m, e);
}

int logits_compare(struct model *m, struct model *ref, struct logits *sums, struct err *e)
{
    struct logits_chunk c = {.m = m, .ref = ref, .sums = sums, .ids = m->plan->extent.vocab};
    const int64_t row = c.ids * (int64_t)sizeof(float), P = pass_holders(m);
    int rc = -1;
    c.room = LOGITS_GATHERED / (P * row);
    if (c.room < 1) c.room = 1;
    if (c.room > m->plan->loss_chunk) c.room = m->plan->loss_chunk;
    /* calloc, because a rank that has fewer ids does not fill its rows */
    c.own = calloc((size_t)c.room, (size_t)row);
    c.all = calloc((size_t)(pass_first(m) ? P * c.room : 1), (size_t)row);
    c.one = malloc((size_t)m->shape.vocab * sizeof(float));
    if (c.own && c.all && c.one)
        rc = gather_rows(&c, e) || pass_pieces(&m->sp.shard, c.room, one_chunk, &c, e) ? -1 : 0;
    else
        err_set(e, ERR_IO, "out of memory for %lld rows of logits", (long long)c.room);
    free(c.own);
    free(c.all);
    free(c.one);
    return rc;
}

void logits_end(const struct logits *sums, struct verify *v)
{
    v->logits_max_abs = sums->max_abs;
    v->logits_rel_l2 = verify_ratio(sqrt(sums->diff), sqrt(sums->norm));
}
