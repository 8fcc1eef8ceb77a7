/* Checks programs of model families. Schedules are compared with lists written by hand. The places
 * of values are checked on simulated memory byte by byte, for the real families and for random
 * programs. Weights and decays are checked, too. */
#include <math.h>
#include "tests/lib/program.h"
#include "tests/lib/shapes.h"
#include "worker/family/family.h"
#include "worker/plan/plan.h"
#include "worker/program/mlp.h"

static struct family family;

/* ---- the decoder's schedule, written by hand ------------------------------------------------- */

static const char *const kinds[OP_KIND_N] = {[OP_LINEAR] = "linear",
                                             [OP_NORM] = "norm",
                                             [OP_GLU] = "glu",
                                             [OP_ROPE] = "rope",
                                             [OP_ATTENTION] = "attention"};

static void describe(const struct program *p, const struct step *st, char out[64])
{
    const struct op *op = &p->op[st->op];
    snprintf(out, 64, "%s %s %s", st->kind == STEP_FORWARD ? "again" : "back", kinds[op->kind],
             p->value[op->out[0]].name);
}

#define BACK_MLP                                                                                   \
    "back linear layer_output", "back glu mlp_act", "again norm norm_out", "back linear gate_up",  \
        "back norm norm_out"
#define BACK_ATTENTION                                                                             \
    "back linear mlp_input", "back attention attn_out", "back rope kv", "back rope q",             \
        "again norm norm_out", "back linear q", "back linear kv", "back norm norm_out"
#define AGAIN_QKV                                                                                  \
    "again norm norm_out", "again linear q", "again rope q", "again linear kv", "again rope kv"
static const char *const by_hand[RECOMPUTE_N][32] = {
    [RECOMPUTE_NONE] = {"again glu mlp_act", BACK_MLP, BACK_ATTENTION},
    [RECOMPUTE_SELECTIVE] = {"again linear mlp_input", "again norm norm_out",
                             "again linear gate_up", "again glu mlp_act", BACK_MLP,
                             "back linear mlp_input", AGAIN_QKV, "back attention attn_out",
                             "back rope kv", "back rope q", "again norm norm_out", "back linear q",
                             "back linear kv", "back norm norm_out"},
    [RECOMPUTE_FULL] = {AGAIN_QKV, "again attention attn_out", "again linear mlp_input",
                        "again norm norm_out", "again linear gate_up", "again glu mlp_act",
                        BACK_MLP, BACK_ATTENTION},
};

#define BACK_PIECES                                                                                \
    "again norm norm_out", "again linear gate_up", "again glu mlp_act",                            \
        "back linear layer_output", "back glu mlp_act", "back linear gate_up",                     \
        "back norm norm_out"
static const char *const in_pieces[RECOMPUTE_N][32] = {
    [RECOMPUTE_NONE] = {BACK_PIECES, BACK_ATTENTION},
    [RECOMPUTE_SELECTIVE] = {"again linear mlp_input", BACK_PIECES, "back linear mlp_input",
                             AGAIN_QKV, "back attention attn_out", "back rope kv", "back rope q",
                             "again norm norm_out", "back linear q", "back linear kv",
                             "back norm norm_out"},
    [RECOMPUTE_FULL] = {AGAIN_QKV, "again attention attn_out", "again linear mlp_input",
                        BACK_PIECES, BACK_ATTENTION},
};

static void check_schedule(const struct program *p, const struct schedule_mode *mode,
                           const char *const want[32])
{
    static struct schedule s;
    int i = 0;
    schedule_make(p, mode, &s);
    for (; want[i]; i++) {
        char got[64] = "nothing";
        if (i < s.n_backward) describe(p, &s.backward[i], got);
        CHECK_MSG(!strcmp(got, want[i]), "mode %d, pieces %d, step %d: got \"%s\", want \"%s\"",
                  mode->recompute, mode->pieces, i, got, want[i]);
    }
    CHECK_MSG(s.n_backward == i, "mode %d: %d steps", mode->recompute, s.n_backward);
    CHECK(s.n_forward == p->n_ops);
    for (i = 0; i < s.n_backward; i++)
        CHECK(s.backward[i].piece == (s.backward[i].op >= p->n_ops - MLP_OPS && mode->pieces));
}

static void test_decoder_schedule(void)
{
    static struct schedule s;
    const struct model_shape m = shape_of(FAMILY_LLAMA);
    family_write(&m, &family);
    const struct program *p = &family.layer[0];
    for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++) {
        const enum recompute_id id = (enum recompute_id)mode;
        check_schedule(p, &(struct schedule_mode){true, false, id}, by_hand[mode]);
        check_schedule(p, &(struct schedule_mode){true, true, id}, in_pieces[mode]);
    }
    schedule_make(p, &(struct schedule_mode){.recompute = RECOMPUTE_NONE}, &s);
    CHECK(s.n_forward == p->n_ops && s.n_backward == 0);
    schedule_make(p, &(struct schedule_mode){.pieces = true, .recompute = RECOMPUTE_NONE}, &s);
    /* only trainings compute MLPs in pieces */
    for (int i = 0; i < s.n_forward; i++) CHECK(!s.forward[i].piece);
}

/* Checks that every family has dense MLPs, except for families in which every layer is a mixture
 * of experts. */
static void test_mlps(void)
{
    static const int experts_alone[] = {FAMILY_MINIMAX, FAMILY_MIXTRAL, FAMILY_QWEN3_MOE,
                                        FAMILY_OLMOE, FAMILY_GPT_OSS};
    for (int id = 0; id < FAMILY_N; id++) {
        const struct model_shape m = shape_of(id);
        const struct family_mlps has = family_mlps(&m);
        bool alone = false;
        for (size_t i = 0; i < sizeof experts_alone / sizeof *experts_alone; i++)
            alone |= experts_alone[i] == id;
        CHECK_MSG(has.dense == !alone && (has.dense || has.experts), "%s: dense %d, experts %d",
                  family_row(&m)->name, has.dense, has.experts);
    }
}

/* Checks that the gradient of the residual stream is not copied. Both sums of a layer must use it
 * as their base. */
static void test_decoder_gradients(void)
{
    static struct schedule s;
    const struct model_shape m = shape_of(FAMILY_LLAMA);
    int n_alias = 0, n_base = 0;
    family_write(&m, &family);
    const struct program *p = &family.layer[0];
    schedule_make(p, &(struct schedule_mode){true, false, RECOMPUTE_NONE}, &s);
    for (int i = 0; i < s.n_backward; i++) {
        const struct step *st = &s.backward[i];
        const struct op *op = &p->op[st->op];
        if (st->kind == STEP_FORWARD) continue;
        n_alias += st->alias != PROG_NONE;
        n_base += op->kind == OP_LINEAR && st->alias == 1;
        if (op->kind == OP_NORM) CHECK(!st->first[0]); /* x already has its sum's part */
    }
    CHECK(n_base == 2 && n_alias == 4); /* the other two rotate in place */
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* Checks that the rows of the table are complete. A field that was left out would be 0. */
static void test_rules(void)
{
    for (int kind = 0; kind < OP_KIND_N; kind++) {
        const struct op_rule *r = op_rules[kind];
        CHECK_MSG(r && r->name && r->name[0], "operator %d has no name", kind);
        CHECK_MSG(r->check && r->scratch && r->need && r->work, "%s: a function is left out",
                  r->name);
        CHECK_MSG(r->n_in <= OP_INS && r->n_optional <= r->n_in, "%s: %d inputs", r->name, r->n_in);
        CHECK_MSG((r->reads | r->over) < READS_THIRD << 1 && r->over < 1u << r->n_in,
                  "%s: reads %u, computed over %u", r->name, r->reads, r->over);
        CHECK_MSG(r->moves >= MOVES_NOTHING && r->moves < OP_MOVES_N, "%s: moves %d", r->name,
                  r->moves);
        CHECK_MSG(r->along >= ALONG_NOTHING && r->along <= ALONG_SEQUENCE,
                  "%s: which rows it sees?", r->name);
        CHECK_MSG(r->cache >= CACHE_NOTHING, "%s: what is kept of the context?", r->name);
        CHECK_MSG(!r->logits || r->loss, "%s: logits of what is no loss", r->name);
        for (int k = 0; k < kind; k++)
            CHECK_MSG(strcmp(r->name, op_rules[k]->name), "two operators are named %s", r->name);
    }
}

/* ---- placements, byte by byte ---------------------------------------------------------------- */

static struct extent extent_of(bool train, int64_t unit, int64_t parts, int64_t rows)
{
    return (struct extent){
        .rows = {[ROWS_T] = rows, [ROWS_ALT] = rows + 1, [ROWS_TEXT] = 3, [ROWS_COND] = 2},
        .unit = unit,
        .parts = parts,
        .train = train,
        .loss_chunk = 2,
        .vocab = 19,
        .grid = {2, 3},
        .sp = 1};
}

static void try_family(const struct extent *x, enum recompute_id mode, const char *name)
{
    char what[96];
    const struct program *all[FAMILY_KINDS + 2] = {&family.in, &family.out};
    for (int k = 0; k < family.n_kinds; k++) all[2 + k] = &family.layer[k];
    for (int i = 0; i < family.n_kinds + 2; i++) {
        snprintf(what, sizeof what, "%s %d mode %d unit %d parts %d", name, i, mode, (int)x->unit,
                 (int)x->parts);
        trial_section(all[i], x, mode, what);
    }
}

static void test_families(void)
{
    for (int id = 0; id < FAMILY_N; id++) {
        const struct model_shape m = shape_of(id);
        const struct family_row *row = family_row(&m);
        CHECK_MSG(row, "family %d", id);
        if (!row) continue;
        family_write(&m, &family);
        for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++)
            for (int unit = 2; unit <= 4; unit += 2) {
                struct extent x = extent_of(true, unit, unit == 2 ? 1 : 2, 4);
                try_family(&x, (enum recompute_id)mode, row->name);
                for (x.mlp_chunk = 5; x.mlp_chunk > 0; x.mlp_chunk -= 2)
                    try_family(&x, (enum recompute_id)mode, row->name);
                x.mlp_chunk = 0;
                /* the number of bytes that a form of attention keeps; it is not a multiple of a
                 * cache line */
                x.attn_kept = 100;
                try_family(&x, (enum recompute_id)mode, row->name);
            }
        struct extent x = extent_of(false, 4, 1, 4);
        try_family(&x, RECOMPUTE_NONE, row->name);
        x.cache_rows = 9, x.n_caches = 1;
        if (row->task == MODEL_CAUSAL_LM) try_family(&x, RECOMPUTE_NONE, row->name);
    }
}

static void test_qk_norm(void)
{
    struct model_shape m = shape_of(FAMILY_LLAMA);
    m.qk_norm = 1;
    m.window = 3;
    family_write(&m, &family);
    for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++) {
        const struct extent x = extent_of(true, 2, 1, 5);
        try_family(&x, (enum recompute_id)mode, "qk_norm");
    }
}

/* ---- random programs ------------------------------------------------------------------------- */

static uint32_t seed;
static int draw(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

enum { WIDTH = 8 };

/* Draws a value [rows, WIDTH] that has no views. If the parameter `rows` is negative, the value
 * may have any kind of rows except ROWS_COND. */
static int any_value(const struct program *p, int rows)
{
    for (int tries = 0; tries < 64; tries++) {
        const int v = draw(p->n_values);
        const struct value *w = &p->value[v];
        bool viewed = false;
        for (int i = 0; i < p->n_values; i++) viewed |= p->value[i].view_of == v;
        if (viewed || w->view_of != PROG_NONE || w->cols != WIDTH || w->f32 || w->no_grad) continue;
        if (rows < 0 ? w->rows == ROWS_COND : (int)w->rows != rows) continue;
        return v;
    }
    return rows <= ROWS_T ? PROG_X : PROG_NONE;
}

static struct value fresh(enum rows_id rows, int64_t cols)
{
    static const char *const names[] = {"a", "b", "c"};
    return (struct value){.name = names[draw(3)],
                          .rows = rows,
                          .cols = cols,
                          .keep = (enum keep_id)draw(KEEP_ALWAYS + 1)};
}

static int product(struct program *p, int in, int base, int64_t cols)
{
    char name[32];
    snprintf(name, sizeof name, "w%d", p->n_weights);
    const struct value out = fresh(p->value[in].rows, cols);
    const int w = prog_tensor(p, name, cols, p->value[in].cols, INIT_NORMAL);
    return prog_op(p, &(struct op){.kind = OP_LINEAR, .in = {in, base}, .w = w, .n_w = 1}, &out);
}

static void random_attention(struct program *p, int x)
{
    int q = product(p, x, PROG_NONE, WIDTH), kv = product(p, x, PROG_NONE, 2 * WIDTH);
    struct value out = fresh(p->value[x].rows, WIDTH);
    if (draw(2)) {
        const struct value turned = fresh(p->value[q].rows, WIDTH);
        q = prog_op(p, &(struct op){.kind = OP_ROPE, .in = {q}, .u.rope = {2, 4, 0, false, false}},
                    &turned);
    }
    prog_op(p,
            &(struct op){.kind = OP_ATTENTION,
                         .in = {q, kv},
                         .u.attn = {.n_heads = 2, .n_kv_heads = 2, .head_dim = 4, .dim = -1}},
            &out);
}

/* Adds a dense MLP, which may also add its input to its result. */
static void random_mlp(struct program *p, int x)
{
    const int up = product(p, x, PROG_NONE, 2 * WIDTH);
    struct op act = {.kind = draw(2) ? OP_ACT : OP_GLU, .in = {up}};
    struct value out = fresh(p->value[x].rows, act.kind == OP_ACT ? 2 * WIDTH : WIDTH);
    if (act.kind == OP_GLU)
        act.in[0] = prog_view(p, up, 0, WIDTH), act.in[1] = prog_view(p, up, WIDTH, WIDTH);
    product(p, prog_op(p, &act, &out), draw(2) ? x : PROG_NONE, WIDTH);
}

static void random_op(struct program *p)
{
    const int x = any_value(p, -1);
    int y = any_value(p, (int)p->value[x].rows);
    if (y < 0 || y == x || p->value[y].rows != p->value[x].rows)
        y = product(p, x, PROG_NONE, WIDTH);
    const struct value out = fresh(p->value[x].rows, WIDTH);
    switch (draw(9)) {
    case 0: product(p, x, draw(2) ? y : PROG_NONE, WIDTH); break;
    case 1:
        prog_op(p, &(struct op){.kind = OP_NORM, .in = {x}, .u.norm = {NORM_LAYER, 1, 2, 0}}, &out);
        break;
    case 2: prog_op(p, &(struct op){.kind = OP_ACT, .in = {x}}, &out); break;
    case 3: {
        const int both = product(p, x, PROG_NONE, 2 * WIDTH);
        const int a = prog_view(p, both, 0, WIDTH), b = prog_view(p, both, WIDTH, WIDTH);
        prog_op(p, &(struct op){.kind = OP_GLU, .in = {a, b}}, &out);
        break;
    }
    case 4:
        prog_op(p, &(struct op){.kind = OP_MIX, .in = {x, y}, .u.mix = {1, draw(2) ? 1 : 0.5f}},
                &out);
        break;
    case 5: random_attention(p, x); break;
    case 7: random_mlp(p, x); break;
    case 6: {
        const struct value over = fresh(p->value[x].rows == ROWS_T ? ROWS_ALT : ROWS_T, WIDTH);
        prog_op(p, &(struct op){.kind = OP_SWITCH, .in = {x}, .u.dims = {0, 1}}, &over);
        break;
    }
    default: {
        const struct value six = {
            .name = "v", .rows = ROWS_COND, .cols = 2 * WIDTH, .keep = (enum keep_id)draw(2)};
        const int v = prog_op(p, &(struct op){.kind = OP_TIMESTEP}, &six);
        const int s = prog_view(p, v, 0, WIDTH), g = prog_view(p, v, WIDTH, WIDTH);
        if (draw(2))
            prog_op(p, &(struct op){.kind = OP_MODULATE, .in = {x, s, g}}, &out);
        else
            prog_op(p, &(struct op){.kind = OP_GATE, .in = {x, y, s}}, &out);
    }
    }
}

/* Makes a section of up to n operations. Values that no operation reads are summed into the
 * result. */
static void random_program(struct program *p, int n)
{
    prog_init(p, "random.");
    prog_input(p, WIDTH);
    while (p->n_ops < n && p->n_values < PROG_VALUES - 8) random_op(p);
    int x = any_value(p, ROWS_T);
    if (x == PROG_X) x = product(p, x, PROG_NONE, WIDTH);
    const struct value out = {.name = "result", .cols = WIDTH};
    p->result = prog_op(p, &(struct op){.kind = OP_MIX, .in = {x, PROG_X}, .u.mix = {0.5f, 1}},
                        &out);
}

static void test_random(void)
{
    static struct program p;
    char what[64];
    for (int i = 0; i < 300; i++) {
        seed = (uint32_t)i * 7919u + 1;
        random_program(&p, 2 + i % 24);
        for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++) {
            struct extent x = extent_of(true, i % 2 ? 2 : 4, 1 + i % 3 % 2, 1 + i % 4);
            x.attn_kept = i % 5 * 36;
            x.mlp_chunk = i % 4;
            snprintf(what, sizeof what, "random %d mode %d", i, mode);
            trial_section(&p, &x, (enum recompute_id)mode, what);
        }
        const struct extent x = extent_of(false, 4, 1, 3);
        trial_section(&p, &x, RECOMPUTE_NONE, what);
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

static void check_bucket(const struct model_shape *m, int b, int64_t *end, int *next)
{
    static struct param all[PROG_WEIGHTS];
    int first, last, from;
    struct param p;
    param_range(m, b, &first, &last);
    CHECK(first == *next && last >= first);
    CHECK(param_bucket(m, b, all, &from) == last - first && from == first);
    CHECK_MSG(param_section(m, b) == *end, "bucket %d begins at %lld", b, (long long)*end);
    for (int i = first; i < last; i++) {
        param_get(m, i, &p);
        CHECK_MSG(p.offset >= *end && p.offset < *end + 16, "%s", p.name);
        const struct param *q = &all[i - first];
        CHECK_MSG(!strcmp(q->name, p.name) && q->offset == p.offset && q->count == p.count,
                  "%s, %s", q->name, p.name);
        CHECK(p.count == p.rows * (p.cols ? p.cols : 1) && (!p.decay || p.cols));
        *end = p.offset + p.count;
    }
    *end = (*end + 15) / 16 * 16;
    *next = last;
}

static void test_weights(void)
{
    static struct param list[512];
    for (int id = 0; id < FAMILY_N; id++) {
        const struct model_shape m = shape_of(id);
        struct zero z;
        int64_t end = 0;
        int next = 0;
        for (int b = 0; b < m.n_layers + 2; b++) check_bucket(&m, b, &end, &next);
        CHECK(end == param_count(&m) && next == param_tensors(&m));
        zero_init(&z, &m, 3, 1, 4);
        for (int b = 0; b < m.n_layers + 2; b++)
            CHECK(zero_begin(&z, b) == param_section(&m, b) &&
                  zero_bucket(&z, zero_begin(&z, b)) == b &&
                  zero_bucket(&z, zero_begin(&z, b) + zero_len(&z, b) - 1) == b);
        const int n = param_list(&m, list, 512);
        CHECK(n == next && n < 512);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++)
                CHECK_MSG(strcmp(list[i].name, list[j].name), "%s twice", list[i].name);
    }
}

/* ---- decays ---------------------------------------------------------------------------------- */

static bool near(double got, double want)
{
    /* exp2 and one product have fewer than two roundings */
    return fabs(got - want) <= 1e-15 * fabs(want);
}

static void test_slopes(void)
{
    CHECK(prog_slope(SLOPE_NONE, 3, 8, 0, 4) == 0);
    CHECK(near(prog_slope(SLOPE_TNL, 0, 8, 0, 4), 0.5 * 1.00001));
    CHECK(near(prog_slope(SLOPE_TNL, 7, 8, 0, 4), 0.00390625 * 1.00001));
    CHECK(near(prog_slope(SLOPE_TNL, 2, 8, 3, 4), 0.125 * (1 - 1 + 1e-5)));
    /* 12 heads have the slopes of 8 heads, and then every second slope of 16 heads. */
    CHECK(near(prog_slope(SLOPE_TNL, 8, 12, 0, 2), sqrt(0.5) * 1.00001));
    CHECK(near(prog_slope(SLOPE_TNL, 11, 12, 0, 2), exp2(-3.5) * 1.00001));
    CHECK(near(prog_slope(SLOPE_TNL, 0, 1, 0, 1), exp2(-8) * 1.00001));
    CHECK(near(prog_slope(SLOPE_MINIMAX, 1, 4, 0, 3), 0.0625 * 1.00001));
    CHECK(near(prog_slope(SLOPE_MINIMAX, 2, 12, 1, 3), 0.25 * (1 - 1 / 2.00001 + 1e-5)));
    CHECK(near(exp(-prog_slope(SLOPE_RETNET, 0, 4, 0, 1)), 1 - 1.0 / 32));
    CHECK(near(exp(-prog_slope(SLOPE_RETNET, 3, 4, 0, 1)), 1 - 1.0 / 256));
}

int main(void)
{
    RUN(test_rules);
    RUN(test_decoder_schedule);
    RUN(test_decoder_gradients);
    RUN(test_mlps);
    RUN(test_families);
    RUN(test_qk_norm);
    RUN(test_random);
    RUN(test_weights);
    RUN(test_slopes);
    return test_done("program");
}
