/* paged.c: decides the pages of a serve job, and counts the traffic of a piece of a prompt. */
#include "worker/plan/paged.h"

#include "api/core/job.h"
#include "api/core/mem.h"
#include "worker/family/family.h"
#include "worker/plan/strategy.h"
#include "worker/program/op_rules.h"
#include "worker/program/rope.h"

/* Tells whether the operation keeps something of the tokens for later tokens. */
static bool keeps(const struct op *o)
{
    const enum op_cache c = op_rules[o->kind]->cache;
    return c == CACHE_STATE || (c == CACHE_ROWS && o->u.attn.causal);
}

bool paged_fits(const struct model_shape *m)
{
    bool any = false;
    struct family *f = family_new(m);
    for (int k = 0; k < f->n_kinds; k++)
        for (int i = 0; i < f->layer[k].n_ops; i++) any |= keeps(&f->layer[k].op[i]);
    family_free(f);
    return any && m->vocab > 0 && !rope_by_length(m);
}

bool paged_states(const struct model_shape *m)
{
    bool any = false;
    struct family *f = family_new(m);
    for (int k = 0; k < f->n_kinds; k++)
        for (int i = 0; i < f->layer[k].n_ops; i++)
            any |= op_rules[f->layer[k].op[i].kind]->cache == CACHE_STATE;
    family_free(f);
    return any;
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
    if (s->kind != JOB_SERVE || job_embeds(s) || p->tp > 1 || !paged_fits(&s->model.shape)) return;
    const int64_t n = s->data.seq_len, most = s->serve.prefill_tokens;
    const int64_t n_pages = pages_of(n < most ? n : most);
    p->paged = true;
    p->row_bits = s->determinism != DET_OFF;
    p->piece = n_pages * CACHE_PAGE;
    p->n_kept_states = paged_states(&s->model.shape) ? s->serve.cache_states : 0;
    p->S = per_rank(n_pages, p->sp) * CACHE_PAGE * p->sp;
    p->strategy = p->sp > 1 ? strategy_default(&s->model.shape, p->sp) : STRATEGY_LOCAL;
    p->form = FORM_BLOCKWISE;
    p->ulysses = 1;
    p->layout = strategy_layout(&s->model.shape, p->strategy, p->sp, p->rank_bits);
    p->exchange = EXCHANGE_RING;
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

/* ---- states ---------------------------------------------------------------------------------- */

int64_t paged_row(const struct program *p, int v, int64_t unit)
{
    return p->value[v].cols * (p->value[prog_base(p, v)].f32 ? 4 : unit);
}

int64_t paged_states_size(const struct program *p, const struct op *o, int P, int64_t T,
                          int64_t unit)
{
    int64_t size = mem_round(CACHE_PAGE * paged_row(p, o->out[0], unit), MEM_ALIGN);
    for (int k = 0; k < op_rules[o->kind]->n_in; k++)
        size += P * mem_round(T * paged_row(p, o->in[k], unit), MEM_ALIGN);
    return P > 1 ? size : 0;
}
