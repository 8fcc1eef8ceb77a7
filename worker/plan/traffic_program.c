/* traffic_program.c: counts the traffic of a family's operations from the family's programs. Each
 * step that a rank runs is counted by the formula of its kind. */
#include <string.h>
#include "api/core/assert.h"
#include "worker/plan/paged.h"
#include "worker/plan/strategy.h"
#include "worker/plan/traffic.h"
#include "worker/plan/volume.h"
#include "worker/program/op_rules.h"

struct traffic_count {
    const struct plan *p;
    struct shard sh; /* shard of the rank in its ring */
    int t;           /* index of the rank among the ranks that share every layer */
    /* keys that each segment sees; NULL means that each segment may see every key */
    const struct reach_map *map;
    struct comm_count *out;
    int64_t times;
};

/* An operation of a step. Its exchange is counted. */
struct moved {
    const struct program *p;
    const struct op *op;
    /* again: the forward of the operation is computed again within the backward pass */
    bool back, again;
};

static void add(const struct traffic_count *c, enum purpose purpose, struct comm_count v)
{
    volume_add(&c->out[purpose], v, c->times);
}

static void count_keys(const struct traffic_count *c, const struct moved *m)
{
    const struct op *op = m->op;
    const struct strategy_form *form = strategy_form(c->p->strategy, c->p->form);
    struct reach_map windowed;
    const struct attention_pass a = {
        .sh = &c->sh,
        .map = reach_window(c->map, &c->sh, op->u.attn.window, op->u.attn.causal, &windowed),
        .H = op->u.attn.n_heads,
        .Hk = op->u.attn.n_kv_heads,
        .D = op->u.attn.head_dim,
        .precision = c->p->precision,
        .back = m->back};
    struct comm_count once[PURPOSE_N] = {0};
    if (c->p->paged) {
        add(c, PURPOSE_DECODE, volume_piece(c->p->sp, c->sh.T, a.H, a.D, c->p->extent.unit));
        return;
    }
    if (op->u.attn.dim >= 0 || c->p->sp == 1 || !form->traffic) return;
    form->traffic(&a, once);
    for (int i = 0; i < PURPOSE_N; i++) add(c, (enum purpose)i, once[i]);
}

/* Counts the exchange of the ranges of keys that the group's rows see. There is one exchange for
 * each sequence, with two numbers for each row. */
static void count_ranges(const struct traffic_count *c)
{
    const struct shard *sh = &c->sh;
    const int n_runs = shard_runs(sh);
    int64_t cut[JOB_MAX_RANKS + 1];
    if (!strategy_row(c->p->strategy)->ranges || sh->u == 1) return;
    for (int w = 0; w <= sh->u; w++) cut[w] = w * (sh->T / n_runs);
    volume_add(&c->out[PURPOSE_HEADS], volume_all_gather(sh->u, sh->r % sh->u, cut, 8),
               2 * n_runs * c->times);
}

/* Counts the gathers of the inputs of an operation with a state, in a piece of a prompt. */
static void count_inputs(const struct traffic_count *c, const struct moved *m)
{
    for (int k = 0; k < op_rules[m->op->kind]->n_in; k++)
        add(c, PURPOSE_STATE,
            volume_rows(c->p->sp, c->sh.T * paged_row(m->p, m->op->in[k], c->p->extent.unit)));
}

static void count_states(const struct traffic_count *c, const struct moved *m)
{
    const struct op *op = m->op;
    const bool back = m->back;
    const int64_t H = op->u.linear.n_heads, Dk = op->u.linear.key_dim;
    const int64_t Dv = op->u.linear.value_dim + op->u.linear.normalise;
    const int pieces = c->p->exchange == EXCHANGE_SCAN ? plan_scan_pieces(Dk) : 1;
    if (c->p->paged) {
        count_inputs(c, m);
        return;
    }
    if (c->p->sp == 1 || (m->again && op_finds_kept(m->p, op))) return;
    add(c, back ? PURPOSE_DSTATE : PURPOSE_STATE,
        volume_state(c->p->exchange, c->p->sp, c->sh.r, H, Dk, Dv, c->sh.n_sums, pieces, back));
    if (c->p->kind != JOB_GENERATE) return;
    /* The state after a prompt is first sent to the last rank, and then to all ranks, for the
     * tokens that follow the prompt. */
    add(c, PURPOSE_STATE, volume_state_edge(c->p->exchange, &c->sh, H, Dk, Dv, false));
    add(c, PURPOSE_STATE, volume_broadcast(c->p->sp, H * Dk * Dv * 4, c->sh.r == c->p->sp - 1));
}

/* Counts the exchange x of states that have n elements. */
static void count_passed(const struct traffic_count *c, const struct moved *m, enum exchange_id x,
                         int64_t n, int pieces)
{
    const int64_t state = m->p->value[m->op->out[1]].cols;
    if (c->p->paged) {
        count_inputs(c, m);
        return;
    }
    if (c->p->sp == 1 || (m->again && op_finds_kept(m->p, m->op))) return;
    add(c, m->back ? PURPOSE_DSTATE : PURPOSE_STATE,
        volume_state(x, c->p->sp, c->sh.r, 1, 1, n, 1, pieces, m->back));
    /* the state is sent to all ranks, for the tokens that follow */
    if (c->p->kind == JOB_GENERATE)
        add(c, PURPOSE_STATE, volume_broadcast(c->p->sp, state * 4, c->sh.r == c->p->sp - 1));
}

static void count_carry(const struct traffic_count *c, const struct moved *m)
{
    count_passed(c, m, EXCHANGE_RING, m->p->value[m->op->out[1]].cols, 1);
}

static void count_map(const struct traffic_count *c, const struct moved *m)
{
    const enum exchange_id x = c->p->exchange;
    struct op_need n = {0};
    op_needs(m->p, m->op, &n);
    count_passed(c, m, x, x == EXCHANGE_ALL_GATHER ? n.summary : n.carry,
                 x == EXCHANGE_SCAN ? plan_scan_pieces(m->op->u.delta.n_heads) : 1);
}

static void count_rows(const struct traffic_count *c, const struct moved *m)
{
    const struct op *op = m->op;
    const int64_t row = m->p->value[op->in[0]].cols * c->p->extent.unit;
    add(c, PURPOSE_SWITCH,
        volume_switch(c->p->sp, c->sh.r, c->p->grid, m->back ? op->u.dims.to : op->u.dims.from, row,
                      c->p->rank_bits));
}

static void count_heads(const struct traffic_count *c, const struct moved *m)
{
    const int64_t row = m->p->value[m->op->in[0]].cols * c->p->extent.unit, others = c->p->sp - 1;
    const int64_t bytes = c->sh.T * row / c->p->sp * others;
    add(c, PURPOSE_HEADS, (struct comm_count){bytes, bytes, others, others});
}

/* Counts the exchange of rows between the ranks that share layers. Rows are gathered, or their
 * parts are summed in fp32. */
static void count_parts(const struct traffic_count *c, const struct moved *m)
{
    const bool sums = op_rules[m->op->kind]->sums != m->back;
    const int64_t part = c->p->T / c->p->tp * m->p->value[m->op->in[0]].cols;
    int64_t cut[JOB_MAX_RANKS + 1];
    for (int w = 0; w <= c->p->tp; w++) cut[w] = w * part;
    add(c, PURPOSE_TENSOR,
        sums ? volume_reduce_scatter(c->p->tp, c->t, cut)
             : volume_all_gather(c->p->tp, c->t, cut, c->p->extent.unit));
}

/* Counts a sum over the tensor ranks. It has one number for each row, and all these ranks get the
 * sums. */
static void count_span(const struct traffic_count *c, const struct moved *m)
{
    const int tp = c->p->tp;
    int64_t cut[JOB_MAX_RANKS + 1];
    if (!m->op->u.norm.span) return;
    for (int w = 0; w <= tp; w++) cut[w] = w * (c->p->T / tp);
    add(c, PURPOSE_TENSOR, volume_reduce_scatter(tp, c->t, cut));
    add(c, PURPOSE_TENSOR, volume_all_gather(tp, c->t, cut, 4));
}

/* Counts the exchange of the logits' statistics (OP_LOGIT_STAT). It has one message to each other
 * rank for each chunk of rows. */
static void count_logits(const struct traffic_count *c, const struct moved *m)
{
    const int tp = c->p->tp;
    int64_t cut[JOB_MAX_RANKS + 1];
    for (int64_t at = 0; tp > 1 && at < c->p->T; at += c->p->loss_chunk) {
        const int64_t left = c->p->T - at, n = left < c->p->loss_chunk ? left : c->p->loss_chunk;
        for (int w = 0; w <= tp; w++) cut[w] = w * n;
        add(c, PURPOSE_TENSOR, volume_all_gather(tp, c->t, cut, OP_LOGIT_STAT));
    }
}

static void count_nothing(const struct traffic_count *c, const struct moved *m)
{
}

static void (*const count_moved[])(const struct traffic_count *, const struct moved *) = {
    [MOVES_NOTHING] = count_nothing, [MOVES_KEYS] = count_keys,   [MOVES_STATES] = count_states,
    [MOVES_CARRY] = count_carry,     [MOVES_MAP] = count_map,     [MOVES_ROWS] = count_rows,
    [MOVES_HEADS] = count_heads,     [MOVES_PARTS] = count_parts, [MOVES_LOGITS] = count_logits,
    [MOVES_SPAN] = count_span,
};
static_assert(sizeof count_moved / sizeof *count_moved == OP_MOVES_N, "a count of every exchange");

/* Counts the exchanges of a step. Set `again` for a forward step within the backward pass. */
static void count_step(const struct traffic_count *c, const struct program *p, const struct step *s,
                       bool again)
{
    const struct moved m = {p, &p->op[s->op], s->kind == STEP_BACKWARD, again};
    count_moved[op_rules[m.op->kind]->moves](c, &m);
}

static void count_section(const struct traffic_count *c, const struct program *prog,
                          enum traffic_pass pass)
{
    const bool back = pass == TRAFFIC_BOTH, loss = prog->result == PROG_NONE;
    struct schedule s;
    const struct schedule_mode mode = plan_schedule(c->p, back);
    schedule_make(prog, &mode, &s);
    for (int i = 0; i < s.n_forward && !(back && loss); i++)
        count_step(c, prog, &s.forward[i], false);
    for (int i = 0; i < s.n_backward; i++)
        count_step(c, prog, &s.backward[i], !loss && s.backward[i].kind == STEP_FORWARD);
}

int traffic_program(const struct model_shape *m, const struct plan *p, int rank,
                    const struct traffic *t, struct comm_count out[PURPOSE_N], struct err *e)
{
    struct plan at = *p;
    struct traffic_count c = {.p = &at, .out = out, .times = t->times, .map = t->map};
    c.t = plan_place(p, rank).t;
    if (plan_shard(p, t->S, plan_place(p, rank).s, &c.sh, e)) return -1;
    at.T = c.sh.T;
    struct family *f = family_new(m);
    count_ranges(&c);
    if (pipe_first(&p->pipe)) count_section(&c, &f->in, t->pass);
    if (pipe_last(&p->pipe)) count_section(&c, &f->out, t->pass);
    if (pipe_last(&p->pipe) && p->pairs && t->pass == TRAFFIC_BOTH)
        count_section(&c, &f->out, TRAFFIC_FORWARD);
    for (int k = 0; k < f->n_kinds; k++) {
        c.times = t->times * p->shards.n_of[ZERO_LAYER + k];
        count_section(&c, &f->layer[k], t->pass);
    }
    family_free(f);
    return 0;
}

static bool reads_weights(const struct program *p, const struct step *s)
{
    const struct op *op = &p->op[s->op];
    if (op->n_w + op->n_bias == 0) return false;
    if (s->kind == STEP_FORWARD) return true;
    return op_rules[op->kind]->reads_weights;
}

bool plan_fetches_in(const struct model_shape *m, const struct plan *p)
{
    struct family *f = family_new(m);
    struct schedule s;
    bool any = false;
    const struct schedule_mode mode = plan_schedule(p, true);
    schedule_make(&f->in, &mode, &s);
    for (int i = 0; i < s.n_backward; i++) any |= reads_weights(&f->in, &s.backward[i]);
    family_free(f);
    return any;
}

struct comm_count traffic_decode(const struct model_shape *m, int P, int64_t n)
{
    struct comm_count c = {0};
    struct family *f = family_new(m);
    for (int l = 0; l < m->n_layers; l++) {
        const struct program *p = family_layer(f, m, l);
        for (int i = 0; i < p->n_ops; i++)
            if (op_rules[p->op[i].kind]->moves == MOVES_KEYS)
                volume_add(
                    &c, volume_decode(P, p->op[i].u.attn.n_heads, p->op[i].u.attn.head_dim, n), 1);
    }
    family_free(f);
    return c;
}

/* ---- flops ----------------------------------------------------------------------------------- */

struct op_site traffic_site(const struct plan *p, const struct program *prog, const struct op *op)
{
    struct op_site s = {.p = prog,
                        .op = op,
                        .S = (double)p->S,
                        .grid = {(double)p->grid[0], (double)p->grid[1]},
                        .vocab = (double)p->extent.vocab,
                        .sp = p->sp,
                        .maps = p->extent.maps};
    for (int i = 0; i < ROWS_N; i++) s.rows[i] = (double)p->extent.rows[i];
    return s;
}

/* Returns the multiply-adds of an operation on all ranks together. */
static double all_products(const struct plan *p, const struct program *prog, const struct op *op)
{
    struct op_site s = traffic_site(p, prog, op);
    s.rows[ROWS_T] = s.rows[ROWS_ALT] = s.S;
    s.rows[ROWS_PART] = s.S / p->tp;
    return op_products(&s);
}

double traffic_products(const struct model_shape *m, const struct plan *p, bool losses)
{
    struct family *f = family_new(m);
    double sum = 0;
    for (int i = 0; i < f->in.n_ops; i++) sum += all_products(p, &f->in, &f->in.op[i]);
    for (int i = 0; i < f->out.n_ops; i++)
        if (losses || !op_rules[f->out.op[i].kind]->loss)
            sum += all_products(p, &f->out, &f->out.op[i]);
    for (int k = 0; k < f->n_kinds; k++)
        for (int i = 0; i < f->layer[k].n_ops; i++)
            sum += (double)p->shards.n_all[ZERO_LAYER + k] *
                   all_products(p, &f->layer[k], &f->layer[k].op[i]);
    family_free(f);
    return sum;
}

static double section_products(const struct plan *p, const struct program *prog)
{
    double sum = 0;
    for (int i = 0; i < prog->n_ops; i++) sum += all_products(p, prog, &prog->op[i]);
    return sum;
}

double traffic_products_out(const struct model_shape *m, const struct plan *p)
{
    struct family *f = family_new(m);
    const double sum = section_products(p, &f->out);
    family_free(f);
    return sum;
}

/* Returns the share of an operation's weights that are trained. It is 0 or 1, except for a mixture
 * of experts. */
static double learning(const struct program *p, const struct op *op)
{
    double trained = 0, all = 0;
    if (op->w == PROG_TIED) return prog_learns(p, op->w, op->n_w);
    for (int i = op->w; i < op->w + op->n_w; i++) {
        const struct weight *w = &p->weight[i];
        const double n = (double)w->rows * (double)(w->cols ? w->cols : 1);
        all += n;
        if (!w->frozen) trained += n;
    }
    return all > 0 ? trained / all : 0;
}

/* Counts the multiply-adds of a section's backward pass. */
static double section_products_back(const struct plan *p, const struct program *prog)
{
    struct schedule s;
    double sum = 0;
    if (!prog->partial) return 2 * section_products(p, prog);
    const struct schedule_mode mode = plan_schedule(p, true);
    schedule_make(prog, &mode, &s);
    for (int i = 0; i < s.n_backward; i++) {
        const struct step *st = &s.backward[i];
        const struct op *op = &prog->op[st->op];
        const double gradients = st->wanted[0] + learning(prog, op);
        if (st->kind != STEP_BACKWARD) continue;
        sum += (op_rules[op->kind]->operands ? gradients : 2) * all_products(p, prog, op);
    }
    return sum;
}

double traffic_products_back(const struct model_shape *m, const struct plan *p)
{
    if (!m->freeze.n_kinds) return 2 * traffic_products(m, p, true);
    struct family *f = family_new(m);
    double sum = section_products_back(p, &f->in) + section_products_back(p, &f->out);
    for (int k = 0; k < f->n_kinds; k++)
        sum += (double)p->shards.n_all[ZERO_LAYER + k] * section_products_back(p, &f->layer[k]);
    family_free(f);
    return sum;
}

/* Computes the multiply-adds of a section by which stages are divided. If tensors are frozen, the
 * backward pass is counted as well, because its ratio to the forward pass then differs between
 * sections. */
static double section_cost(const struct plan *p, const struct program *prog)
{
    const double once = section_products(p, prog);
    return prog->partial ? once + section_products_back(p, prog) : once;
}

void traffic_sections(const struct model_shape *m, const struct plan *p, double *cost)
{
    struct family *f = family_new(m);
    cost[0] = section_cost(p, &f->in);
    for (int l = 0; l < m->n_layers; l++) cost[l + 1] = section_cost(p, family_layer(f, m, l));
    cost[m->n_layers + 1] = section_cost(p, &f->out) +
                            (p->pairs ? section_products(p, &f->out) : 0);
    family_free(f);
}
