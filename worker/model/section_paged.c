/* section_paged.c: keys and values in pages (worker/plan/paged.h), for new tokens and for pieces of
 * prompts. */
#include "worker/model/section_paged.h"

#include "api/core/assert.h"
#include "api/core/mem.h"
#include "api/core/mutant.h"
#include "worker/model/model.h"
#include "worker/plan/paged.h"
#include "worker/sp/part.h"

void section_paged_place(struct model *m, void *room)
{
    struct section_paged *x = &m->prog.paged;
    const struct plan *p = m->plan;
    const int64_t table = p->table * (int64_t)sizeof *x->table, queries = 8 * p->sp * p->T;
    if (!p->paged) return;
    x->stride = p->batch > 1 ? p->item[PLAN_PAGE_TABLES].stride : 0;
    x->table = model_take(m, PLAN_PAGE_TABLES, (p->batch - 1) * x->stride + table);
    x->lo = model_take(m, PLAN_PAGE_LO, queries);
    x->hi = model_take(m, PLAN_PAGE_HI, queries);
    x->host_lo = section_host(m, PLAN_PAGE_LO);
    x->host_hi = section_host(m, PLAN_PAGE_HI);
    x->room = room;
    char *host = section_host(m, PLAN_PAGE_TABLES);
    for (int i = 0; i < p->batch; i++) m->cache[i].pages = (int32_t *)(host + i * x->stride);
}

static int32_t *table_of(const struct model *m, int slot)
{
    return (int32_t *)((char *)m->prog.paged.table + slot * m->prog.paged.stride);
}

void model_load_pages(struct model *m, int slot, int64_t from, int64_t n)
{
    int32_t *to = table_of(m, slot), *pages = m->cache[slot].pages;
    assert(from >= 0 && from + n <= m->plan->table);
    if (n > 0 && to != pages)
        m->be->ops->upload(m->be, to + from, pages + from, n * (int64_t)sizeof *to);
}

/* Returns the row of the pool that has this rank's row i of a sequence. */
static int64_t pool_row(const struct model *m, int slot, int64_t i)
{
    return m->cache[slot].pages[i / CACHE_PAGE] * (int64_t)CACHE_PAGE + i % CACHE_PAGE;
}

/* Returns the pool of a layer, with the columns of kv. */
static struct tensor pool_of(const struct model *m, const struct here *h, const struct op *o)
{
    const struct tensor kv = m->prog.frame.value[o->in[1]];
    const struct place *at = &h->s->at.value[prog_base(h->p, o->in[1])];
    return tensor_of(kv.dtype, section_address(m, h, at, false), m->plan->n_pages * CACHE_PAGE,
                     kv.cols, kv.cols);
}

/* Copies n rows of new keys and values, from row `from` on, to this rank's rows of a sequence, from
 * row `to` on. */
static void keep_rows(struct model *m, const struct here *h, const struct op *o, int slot,
                      int64_t from, int64_t to, int64_t n)
{
    const struct tensor made = m->prog.frame.value[o->in[1]], pool = pool_of(m, h, o);
    const int64_t size = pool.cols * dtype_size(pool.dtype);
    while (n > 0) {
        const int64_t room = CACHE_PAGE - to % CACHE_PAGE, part = n < room ? n : room;
        assert(to / CACHE_PAGE < m->plan->table);
        m->be->ops->copy(m->be, (char *)pool.data + pool_row(m, slot, to) * size,
                         (const char *)made.data + from * size, part * size);
        from += part, to += part, n -= part;
    }
}

/* Returns the first of this rank's keys that a row at position pos sees. */
static int64_t first_seen(const struct model *m, const struct op *o, int64_t pos)
{
    const int64_t from = pos - o->u.attn.window + 1;
    return o->u.attn.window > 0 && from > 0 ? paged_before(m->plan->sp, m->rank, from) : 0;
}

/* ---- new tokens ------------------------------------------------------------------------------ */

struct sp_keys section_paged_row(struct model *m, const struct here *h, const struct op *o, int i)
{
    const struct section_row *row = &m->prog.row[i];
    const int64_t n = paged_before(m->plan->sp, m->rank, row->pos);
    const int read = mutant_on(MUTANT_CACHE_SHARED) ? m->prog.row[0].slot : row->slot;
    if (row->own) keep_rows(m, h, o, row->slot, i, n, 1);
    return (struct sp_keys){.kv = pool_of(m, h, o),
                            .pages = table_of(m, read),
                            .lo = first_seen(m, o, row->pos),
                            .n = n + row->own};
}

/* ---- a piece of a prompt --------------------------------------------------------------------- */

/* Sets, for each query of the piece, the range of this rank's keys that it sees. Queries of rank q
 * follow those of rank q - 1, and padding sees no key. */
static void set_ranges(struct model *m, const struct op *o)
{
    struct section_paged *x = &m->prog.paged;
    const struct model_piece *p = x->piece;
    const int P = m->plan->sp;
    const int64_t T = m->sp.shard.T;
    if (x->window == o->u.attn.window) return; /* the last layer set the same ranges */
    for (int q = 0; q < P; q++) {
        const int64_t first = paged_before(P, q, p->pos), end = paged_before(P, q, p->pos + p->n);
        for (int64_t i = 0; i < T; i++) {
            const int64_t pos = paged_pos(P, q, first + i);
            const bool none = first + i >= end;
            x->host_lo[q * T + i] = none ? 0 : first_seen(m, o, pos);
            x->host_hi[q * T + i] = none ? 0 : paged_before(P, m->rank, pos + 1);
        }
    }
    x->window = o->u.attn.window;
    if (x->lo == x->host_lo) return;
    m->be->ops->upload(m->be, x->lo, x->host_lo, 8 * P * T);
    m->be->ops->upload(m->be, x->hi, x->host_hi, 8 * P * T);
}

void section_paged_piece(struct model *m, const struct here *h, const struct op *o)
{
    struct section_paged *x = &m->prog.paged;
    const struct model_piece *p = x->piece;
    const int64_t first = paged_before(m->plan->sp, m->rank, p->pos);
    const int64_t end = paged_before(m->plan->sp, m->rank, p->pos + p->n);
    keep_rows(m, h, o, p->slot, 0, first, end - first);
    set_ranges(m, o);
    m->prog.frame.keys[0] = (struct sp_keys){
        .kv = pool_of(m, h, o), .pages = table_of(m, p->slot), .n = end};
    m->prog.frame.piece = (struct frame_piece){x->room, x->lo, x->hi};
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The inputs of an operation with a state, of all ranks, and room for a page of its output. */
struct state_inputs {
    struct tensor in[OP_INS]; /* [T, cols] of rank 0, if P > 1 */
    int64_t stride[OP_INS];   /* bytes from a rank's rows to those of the next rank */
    void *spare;
};

static int gather_inputs(struct model *m, const struct here *h, const struct op *o,
                         struct state_inputs *g, struct err *e)
{
    char *at = m->prog.paged.room;
    for (int k = 0; k < op_rules[o->kind]->n_in; k++) {
        const struct tensor x = frame_in(&m->prog.frame, o, k);
        const int64_t size = x.rows * paged_row(h->p, o->in[k], m->plan->extent.unit);
        g->stride[k] = mem_round(size, MEM_ALIGN);
        char *own = at + m->rank * g->stride[k];
        const struct sp_blocks b = {.send = own,
                                    .recv = at,
                                    .recv_stride = g->stride[k],
                                    .size = size,
                                    .purpose = PURPOSE_STATE};
        g->in[k] = tensor_of(x.dtype, at, x.rows, x.cols, x.cols);
        m->be->ops->cast(
            m->be,
            &(struct cast_args){.src = x, .dst = tensor_of(x.dtype, own, x.rows, x.cols, x.cols)});
        if (sp_part_exchange(&m->sp, &b, e)) return -1;
        at += m->plan->sp * g->stride[k];
    }
    g->spare = at;
    return 0;
}

static struct tensor some_rows(struct tensor t, int64_t row, int64_t n)
{
    return tensor_sub(t, row, n, 0, t.cols);
}

/* Runs an operation for a page of the piece. The page has n rows from `row` on, of the rows of the
 * piece that rank q has. */
static int run_page(struct model *m, const struct op *o, const struct state_inputs *g,
                    const struct tensor *own, int q, int64_t row, int64_t n, struct err *e)
{
    struct frame *f = &m->prog.frame;
    const int n_in = op_rules[o->kind]->n_in;
    for (int k = 0; k < n_in; k++) {
        struct tensor x = g->stride[k] ? g->in[k] : own[k];
        if (g->stride[k]) x.data = (char *)x.data + q * g->stride[k];
        f->value[o->in[k]] = some_rows(x, row, n);
    }
    const struct tensor out = own[OP_INS];
    f->value[o->out[0]] = q == m->rank ? some_rows(out, row, n)
                                       : tensor_of(out.dtype, g->spare, n, out.cols, out.cols);
    f->rows[ROWS_T].n = n;
    op_scratch_reset(f);
    return op_table[o->kind]->decode(f, o, e);
}

int section_paged_states(struct model *m, const struct here *h, int op, struct err *e)
{
    struct frame *f = &m->prog.frame;
    const struct op *o = &h->p->op[op];
    const struct model_piece *p = m->prog.paged.piece;
    const int P = m->plan->sp, n_in = op_rules[o->kind]->n_in;
    const int64_t T = f->rows[ROWS_T].n, end = p->pos + p->n;
    struct state_inputs g = {0};
    struct tensor own[OP_INS + 1];
    int rc = P > 1 ? gather_inputs(m, h, o, &g, e) : 0;
    for (int k = 0; k < n_in; k++) own[k] = frame_in(f, o, k);
    own[OP_INS] = frame_out(f, o, 0);
    f->state = section_state_at(m, h, op, p->slot);
    if (p->pos == 0) m->be->ops->fill(m->be, f->state, h->s->at.state[op].size / 4, 0);
    const int64_t n = paged_before(P, m->rank, end) - paged_before(P, m->rank, p->pos);
    if (n < T) frame_zero(f, some_rows(own[OP_INS], n, T - n)); /* padding */
    for (int64_t pos = p->pos; pos < end && !rc; pos += CACHE_PAGE) {
        const int q = paged_owner(P, pos);
        const int64_t row = paged_before(P, q, pos) - paged_before(P, q, p->pos);
        rc = run_page(m, o, &g, own, q, row, end - pos < CACHE_PAGE ? end - pos : CACHE_PAGE, e);
    }
    f->rows[ROWS_T].n = T;
    for (int k = 0; k < n_in; k++) f->value[o->in[k]] = own[k];
    f->value[o->out[0]] = own[OP_INS];
    return rc;
}

void model_copy_states(struct model *m, int from, int to)
{
    assert(from >= 0 && from < m->plan->batch + m->plan->n_kept_states);
    assert(to >= 0 && to < m->plan->batch + m->plan->n_kept_states);
    for (int l = 0; l < m->shape.n_layers; l++) {
        const struct here h = section_at(m, l + 1);
        for (int i = 0; i < h.p->n_ops; i++)
            if (placement_state_count(h.p, i))
                m->be->ops->copy(m->be, section_state_at(m, &h, i, to),
                                 section_state_at(m, &h, i, from), h.s->at.state[i].size);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

/* Fills this rank's rows with the tokens of a piece that lie in its pages. */
static void fill_piece(struct model *m, const struct model_piece *p)
{
    struct batch *b = &m->batch;
    const int P = m->plan->sp;
    const int64_t first = paged_before(P, m->rank, p->pos),
                  end = paged_before(P, m->rank, p->pos + p->n);
    b->n_tokens = p->n;
    b->n_targets = 0;
    for (int64_t i = 0; i < m->sp.shard.T; i++) {
        const int64_t pos = paged_pos(P, m->rank, first + i);
        batch_pad(b, i, p->tokens[0]);
        if (first + i >= end) continue;
        b->ids[i] = p->tokens[pos - p->pos];
        b->pos[i] = pos;
    }
}

int model_piece(struct model *m, const struct model_piece *p, struct err *e)
{
    const struct plan *plan = m->plan;
    assert(plan->paged && p->pos % CACHE_PAGE == 0 && p->n > 0 && p->n <= plan->piece);
    assert(p->pos + p->n <= plan->seq_len);
    if (plan_shard(plan, paged_most(plan->sp, p->pos, p->n) * plan->sp, m->rank, &m->sp.shard, e))
        return -1;
    section_resize(m);
    fill_piece(m, p);
    m->prog.paged.piece = p;
    m->prog.paged.window = -1;
    m->prog.frame.by_row = false;
    m->prog.frame.adapter[0] = p->adapter;
    const int rc = section_forward(m, batch_inputs(m, &m->batch), true, e);
    m->prog.paged.piece = NULL;
    m->prog.frame.piece = (struct frame_piece){0};
    if (rc) return -1;
    m->cache[p->slot].n_tokens = p->pos + p->n;
    m->cache[p->slot].adapter = p->adapter;
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

int model_piece_owner(const struct model *m, const struct model_piece *p, int64_t pos, int64_t *row)
{
    const int P = m->plan->sp, owner = paged_owner(P, pos);
    assert(pos >= p->pos && pos < p->pos + p->n);
    *row = paged_before(P, owner, pos) - paged_before(P, owner, p->pos);
    return owner;
}
