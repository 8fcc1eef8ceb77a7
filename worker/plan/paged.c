/* paged.c: decides the pages of a serve job, and counts the traffic of a piece of a prompt. */
#include "worker/plan/paged.h"

#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/plan/strategy.h"
#include "worker/program/op_rules.h"
#include "worker/program/rope.h"

static bool keeps_rows_alone(const struct program *p)
{
    bool rows = false;
    for (int i = 0; i < p->n_ops; i++) {
        const enum op_cache c = op_rules[p->op[i].kind]->cache;
        if (c == CACHE_STATE) return false;
        rows |= c == CACHE_ROWS && p->op[i].u.attn.causal;
    }
    return rows;
}

bool paged_fits(const struct model_shape *m)
{
    bool all = m->vocab > 0 && !rope_by_length(m);
    struct family *f = family_new(m);
    for (int k = 0; k < f->n_kinds; k++) all &= keeps_rows_alone(&f->layer[k]);
    family_free(f);
    return all;
}

static int64_t pages_of(int64_t n_tokens)
{
    return (n_tokens + CACHE_PAGE - 1) / CACHE_PAGE;
}

static int64_t per_rank(int64_t n_pages, int P)
{
    return (n_pages + P - 1) / P;
}

void paged_choose(const struct job_spec *s, struct plan *p)
{
    if (s->kind != JOB_SERVE || p->tp > 1 || !paged_fits(&s->model.shape)) return;
    const int64_t n = s->data.seq_len, most = s->serve.prefill_tokens;
    const int64_t n_pages = pages_of(n < most ? n : most);
    p->paged = true;
    p->piece = n_pages * CACHE_PAGE;
    p->S = per_rank(n_pages, p->sp) * CACHE_PAGE * p->sp;
    p->strategy = p->sp > 1 ? STRATEGY_RSA : STRATEGY_LOCAL;
    p->form = FORM_BLOCKWISE;
    p->layout = LAYOUT_CONTIGUOUS;
    p->ulysses = 1;
}

void paged_pool(const struct job_spec *s, struct plan *p)
{
    if (!p->paged) return;
    p->table = per_rank(pages_of(p->seq_len), p->sp);
    p->n_pages = s->serve.cache_tokens ? per_rank(pages_of(s->serve.cache_tokens), p->sp)
                                       : p->table * p->batch;
    if (p->n_pages < p->table) p->n_pages = p->table;
}

int64_t paged_most(int P, int64_t pos, int64_t n)
{
    int64_t most = 0;
    for (int r = 0; r < P; r++) {
        const int64_t rows = paged_before(P, r, pos + n) - paged_before(P, r, pos);
        if (rows > most) most = rows;
    }
    return most;
}

int plan_piece_comm(const struct model_shape *m, const struct plan *p, int rank, int64_t pos,
                    int64_t n, struct comm_count out[PURPOSE_N], struct err *e)
{
    const struct plan_forward x = {paged_most(p->sp, pos, n) * p->sp, 1};
    return plan_forward_comm(m, p, rank, &x, out, e);
}
