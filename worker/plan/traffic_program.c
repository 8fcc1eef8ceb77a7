/* traffic_program.c: what a family's operations move, from their programs: the steps that a rank
 * runs are counted, each by the formula of its kind. */
#include <string.h>
#include "worker/plan/traffic.h"
#include "worker/plan/volume.h"

struct counting {
    const struct plan *p;
    struct shard sh;             /* of the rank in its ring */
    const struct reach_map *map; /* whom everybody sees; NULL: the most that can be */
    struct comm_count *out;
    int64_t times;
};

static void add(const struct counting *c, enum purpose purpose, struct comm_count v)
{
    volume_add(&c->out[purpose], v, c->times);
}

/* Keys and values of one pass over a sequence, and their gradients. Under "ranks" the backward of
 * the all-gather form is the ring's. */
static void count_kv(const struct counting *c, int64_t Hk, int64_t D, bool back)
{
    const enum precision_id b = c->p->precision;
    const bool all = c->p->form == FORM_ALL_GATHER;
    add(c, PURPOSE_RING_KV,
        all && !(back && c->sh.rank_bits) ? volume_gather_kv(&c->sh, c->map, Hk, D, b)
                                          : volume_ring_kv_met(&c->sh, c->map, Hk, D, b));
    if (back)
        add(c, PURPOSE_RING_DKV,
            all ? volume_gather_dkv(&c->sh, c->map, Hk, D)
                : volume_ring_dkv_met(&c->sh, c->map, Hk, D));
}

static void count_attention(const struct counting *c, const struct op *op, bool back)
{
    const struct plan *p = c->p;
    const int64_t H = op->u.attn.n_heads, Hk = op->u.attn.n_kv_heads, D = op->u.attn.head_dim;
    const struct volume_heads h = {c->sh.T, H, Hk, D, p->precision};
    if (op->u.attn.dim >= 0 || p->sp == 1) return;
    if (p->strategy == STRATEGY_ULYSSES) {
        add(c, PURPOSE_HEADS, volume_ulysses(p->sp, c->sh.r, &h, back));
    } else if (p->form == FORM_TWO_PASS || p->form == FORM_TWO_PASS_SCATTER) {
        const bool all_reduce = p->form == FORM_TWO_PASS;
        add(c, PURPOSE_RING_KV, volume_two_pass_kv(p->sp, c->sh.T, Hk, D, p->precision));
        if (back) add(c, PURPOSE_RING_DKV, volume_two_pass_dkv(p->sp, c->sh.T, Hk, D, all_reduce));
    } else {
        count_kv(c, Hk, D, back);
    }
}

/* Ulysses, once for a sequence: which keys each row sees. */
static void count_ranges(const struct counting *c)
{
    const struct shard *sh = &c->sh;
    int64_t cut[JOB_MAX_RANKS + 1];
    if (c->p->strategy != STRATEGY_ULYSSES || sh->P == 1) return;
    for (int w = 0; w <= sh->P; w++) cut[w] = w * sh->T;
    volume_add(&c->out[PURPOSE_HEADS], volume_all_gather(sh->P, sh->r, cut, 8), 2 * c->times);
}

static void count_states(const struct counting *c, const struct op *op, bool back)
{
    const int64_t H = op->u.linear.n_heads, Dk = op->u.linear.key_dim;
    const int64_t Dv = op->u.linear.value_dim + op->u.linear.normalise;
    const int pieces = c->p->exchange == EXCHANGE_SCAN ? plan_scan_pieces(Dk) : 1;
    if (c->p->sp == 1) return;
    add(c, back ? PURPOSE_DSTATE : PURPOSE_STATE,
        volume_state(c->p->exchange, c->p->sp, c->sh.r, H, Dk, Dv, c->sh.n_sums, pieces, back));
    if (c->p->kind != JOB_GENERATE) return;
    /* The state behind a prompt: on the last rank, then on all, for the tokens that follow. */
    add(c, PURPOSE_STATE, volume_state_edge(c->p->exchange, &c->sh, H, Dk, Dv, false));
    add(c, PURPOSE_STATE, volume_broadcast(c->p->sp, H * Dk * Dv * 4, c->sh.r == c->p->sp - 1));
}

static void count_switch(const struct counting *c, const struct program *prog, const struct op *op,
                         bool back)
{
    const int64_t row = prog->value[op->in[0]].cols * c->p->extent.unit;
    add(c, PURPOSE_SWITCH,
        volume_switch(c->p->sp, c->sh.r, c->p->grid, back ? op->u.dims.to : op->u.dims.from, row,
                      c->p->rank_bits));
}

/* again: a forward step within the backward pass. */
static void count_step(const struct counting *c, const struct program *prog, const struct step *s,
                       bool again)
{
    const struct op *op = &prog->op[s->op];
    const bool back = s->kind == STEP_BACKWARD;
    if (op->kind == OP_ATTENTION) count_attention(c, op, back);
    if (op->kind == OP_LINEAR_ATTENTION && !again) count_states(c, op, back); /* states are kept */
    if (op->kind == OP_SWITCH) count_switch(c, prog, op, back);
}

static void count_section(const struct counting *c, const struct program *prog,
                          enum traffic_pass pass)
{
    const bool back = pass == TRAFFIC_BOTH, loss = prog->result == PROG_NONE;
    struct schedule s;
    schedule_make(prog, back, c->p->recompute, &s);
    for (int i = 0; i < s.n_forward && !(back && loss); i++)
        count_step(c, prog, &s.forward[i], false);
    for (int i = 0; i < s.n_backward; i++)
        count_step(c, prog, &s.backward[i], !loss && s.backward[i].kind == STEP_FORWARD);
}

static int shard_of_rank(const struct plan *p, int64_t S, int rank, struct shard *sh, struct err *e)
{
    if (p->grid[0])
        return shard_init_units(sh, p->grid[0], p->grid[1], p->sp, rank % p->sp, p->rank_bits, e);
    return shard_init(sh, S, p->sp, rank % p->sp, p->layout, p->rank_bits, e);
}

int traffic_program(const struct model_shape *m, const struct plan *p, int rank,
                    const struct traffic *t, struct comm_count out[PURPOSE_N], struct err *e)
{
    struct family f;
    struct plan at = *p;
    struct counting c = {.p = &at, .out = out, .times = t->times, .map = t->map};
    if (shard_of_rank(p, t->S, rank, &c.sh, e)) return -1;
    at.T = c.sh.T;
    family_write(m, &f);
    count_ranges(&c);
    count_section(&c, &f.in, t->pass);
    count_section(&c, &f.out, t->pass);
    for (int k = 0; k < f.n_kinds; k++) {
        c.times = t->times * p->shards.n_of[ZERO_LAYER + k];
        count_section(&c, &f.layer[k], t->pass);
    }
    return 0;
}

static bool reads_weights(const struct program *p, const struct step *s)
{
    const struct op *op = &p->op[s->op];
    if (op->n_w + op->n_bias == 0) return false;
    if (s->kind == STEP_FORWARD) return true;
    return op->kind == OP_LINEAR || op->kind == OP_NORM || op->kind == OP_LRPE;
}

bool plan_fetches_in(const struct model_shape *m, const struct plan *p)
{
    struct family f;
    struct schedule s;
    bool any = false;
    family_write(m, &f);
    schedule_make(&f.in, true, p->recompute, &s);
    for (int i = 0; i < s.n_backward; i++) any |= reads_weights(&f.in, &s.backward[i]);
    return any;
}

struct comm_count traffic_decode(const struct model_shape *m, int P)
{
    struct comm_count c = {0};
    struct family f;
    family_write(m, &f);
    for (int l = 0; l < m->n_layers; l++) {
        const struct program *p = family_layer(&f, m, l);
        for (int i = 0; i < p->n_ops; i++)
            if (p->op[i].kind == OP_ATTENTION)
                volume_add(&c, volume_decode(P, p->op[i].u.attn.n_heads, p->op[i].u.attn.head_dim),
                           1);
    }
    return c;
}

/* ---- flops ----------------------------------------------------------------------------------- */

/* Rows of the whole sequence. */
double traffic_op_products(const struct plan *p, const struct program *prog, const struct op *op)
{
    const double S = (double)p->S;
    double rows = S, weights = 0;
    if (op->out[0] != PROG_NONE) {
        const enum rows_id id = prog->value[op->out[0]].rows;
        rows = id == ROWS_TEXT || id == ROWS_COND ? (double)p->extent.rows[id] : S;
    }
    for (int i = op->w; i >= 0 && i < op->w + op->n_w; i++)
        weights += (double)prog->weight[i].rows * (double)prog->weight[i].cols;
    switch (op->kind) {
    case OP_LINEAR: return rows * weights;
    case OP_XENT: return S * (double)p->extent.vocab * (double)prog->value[op->in[0]].cols;
    case OP_MOE: {
        const double C = (double)prog->value[op->in[0]].cols;
        return S * C *
               ((double)op->u.moe.n_experts +
                3 * (double)op->u.moe.top_k * (double)op->u.moe.width);
    }
    case OP_ATTENTION: {
        const double HD = (double)(op->u.attn.n_heads * op->u.attn.head_dim);
        if (op->u.attn.dim >= 0) return 2 * S * (double)p->grid[op->u.attn.dim] * HD;
        /* Twice the pairs that are seen: a causal row sees half, with a window a band. */
        const double W = op->u.attn.window > 0 && (double)op->u.attn.window < S
                             ? (double)op->u.attn.window
                             : S;
        return (op->u.attn.causal ? 2 * S * W - W * W : 2 * S * S) * HD;
    }
    case OP_CROSS:
        return 2 * S * (double)p->extent.rows[ROWS_TEXT] *
               (double)(op->u.attn.n_heads * op->u.attn.head_dim);
    case OP_LINEAR_ATTENTION: /* q k' v by the state: k v', then q S */
        return 2 * S * (double)(op->u.linear.n_heads * op->u.linear.key_dim) *
               (double)(op->u.linear.value_dim + op->u.linear.normalise);
    default: return 0;
    }
}

double traffic_products(const struct model_shape *m, const struct plan *p, bool losses)
{
    struct family f;
    double sum = 0;
    family_write(m, &f);
    for (int i = 0; i < f.in.n_ops; i++) sum += traffic_op_products(p, &f.in, &f.in.op[i]);
    for (int i = 0; i < f.out.n_ops; i++)
        if (losses || f.out.op[i].kind != OP_XENT)
            sum += traffic_op_products(p, &f.out, &f.out.op[i]);
    for (int k = 0; k < f.n_kinds; k++)
        for (int i = 0; i < f.layer[k].n_ops; i++)
            sum += (double)p->shards.n_of[ZERO_LAYER + k] *
                   traffic_op_products(p, &f.layer[k], &f.layer[k].op[i]);
    return sum;
}
