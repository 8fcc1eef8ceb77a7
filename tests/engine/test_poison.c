/* test_poison.c: checks that no operator reads memory that was not written.
 *
 * Sections of every family are run step by step, forward and backward, in every mode of
 * recomputation. Their values are at the places that the placement has computed. Dense MLPs are
 * run both at once and in pieces of rows. Before each pass, one byte fills the whole workspace.
 * Before each step, the byte fills the step's scratch, the buffers that operators share, and the
 * values that the step must write. The scratch is exactly as large as the operator's rule
 * requires. In the first run the byte is 0xff, which makes NaN in every precision and an index of
 * -1. In the second run the byte is 0. All results must have the same bits in both runs and in
 * every mode. Pieces may change only the sums over rows. The test fails if there is an operator
 * that no family's program uses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "kernels/precision.h"
#include "tests/lib/adapter.h"
#include "tests/lib/shapes.h"
#include "tests/lib/test.h"
#include "worker/model/op.h"
#include "worker/model/piece.h"
#include "worker/plan/plan.h"
#include "worker/program/op_rules.h"

enum { ZERO = 0, POISON = 0xff, PLACES = 4, LABEL = 3, TEXT_ROWS = 2 };

/* the number of steps that were run, by mode and by way (whole or in pieces) */
static int n_ran[OP_KIND_N][RECOMPUTE_N][2];

/* ---- memory ---------------------------------------------------------------------------------- */

struct room {
    char *p;
    int64_t size;
};

static struct room room_of(int64_t size)
{
    struct room r = {.size = size};
    r.p = aligned_alloc(64, (size_t)(size + 127) / 64 * 64);
    if (!r.p) abort();
    return r;
}

enum part {
    WORK,
    KEPT,
    INPUT,
    RESULT,
    D_INPUT,
    D_RESULT,
    SHARED,
    D_SHARED,
    WEIGHTS,
    WEIGHTS_GRAD,
    TIED,
    TIED_GRAD,
    TREE,
    MAXIMA, /* sp_buffers.m */
    DELTA,
    STATES, /* linear_buffers.m */
    NLL,
    LOGITS, /* in the memory of gradients */
    PART_N
};

struct way {
    int family;
    enum precision_id precision;
    bool ranks; /* determinism "ranks", in which sums over rows are trees */
    enum recompute_id mode;
    bool train;
    int byte;
    int64_t chunk; /* rows of a piece of dense MLPs; 0 means that MLPs are whole */
    bool shared;   /* the layers are those of tensor parallelism, and this rank has all rows */
    bool lent;     /* the logits are outside of the workspace */
    bool adapted;  /* all products of layers have adapters */
};

struct runner {
    const struct way *way;
    const struct plan *plan;
    const struct program *p;
    struct schedule s;
    struct placement at;
    struct extent x;
    struct frame f;
    struct room room[PART_N];
    int64_t weight_at[PROG_WEIGHTS];
    struct sp sp;
    struct sp_linear linear;
    struct sp_carry carry;
    struct dsp dsp;
    uint64_t rng;
};

static struct job_spec spec;
static struct plan plan;
static struct family family;
static struct be *be;

/* ---- a sample -------------------------------------------------------------------------------- */

enum { ROWS = 64 };
static struct {
    int32_t ids[ROWS], targets[ROWS], types[ROWS], group[2][ROWS];
    int64_t pos[ROWS], lo[ROWS], hi[ROWS];
    float patches[ROWS * 64], target[ROWS * 64], weight[ROWS * PLACES], text[64];
    double inv_freq[16], slope[16];
    struct batch batch;
} sample;

static void fill_sample(bool causal, int64_t S)
{
    for (int64_t i = 0; i < ROWS; i++) {
        const bool there = i < S;
        sample.ids[i] = (int32_t)(i * 7 % 19);
        sample.targets[i] = !there || i % 5 == 4 ? -1 : (int32_t)(i * 3 % 19);
        sample.types[i] = i > 9;
        sample.lo[i] = there && i >= 11 ? 11 : 0; /* two documents */
        sample.hi[i] = !there ? 0 : causal ? i + 1 : i < 11 ? 11 : S;
        sample.pos[i] = i < 11 ? i : i - 11;
        sample.group[0][i] = i % 3 == 1;
        sample.group[1][i] = i % 4 == 2;
        for (int k = 0; k < PLACES; k++) sample.weight[i * PLACES + k] = (float)((i + k) % 3);
    }
    for (int i = 0; i < ROWS * 64; i++) sample.patches[i] = (float)sin(0.3 * i);
    for (int i = 0; i < ROWS * 64; i++) sample.target[i] = (float)cos(0.7 * i);
    for (int i = 0; i < 64; i++) sample.text[i] = (float)sin(1.1 * i);
    for (int i = 0; i < 16; i++) sample.inv_freq[i] = pow(100, -i / 4.0);
    sample.batch = (struct batch){.ids = sample.ids,
                                  .targets = sample.targets,
                                  .pos = sample.pos,
                                  .lo = sample.lo,
                                  .hi = sample.hi,
                                  .types = sample.types,
                                  .group = {sample.group[0], sample.group[1]},
                                  .latents = {.grid = {5, 3, 2},
                                              .height = 12,
                                              .width = 8,
                                              .t = 3.5,
                                              .fps = 24,
                                              .label = LABEL,
                                              .patches = sample.patches,
                                              .target = sample.target,
                                              .weight = sample.weight,
                                              .text = sample.text,
                                              .n_text = TEXT_ROWS}};
}

/* ---- tensors in the places of the placement -------------------------------------------------- */

static enum dtype dtype_at(const struct runner *r, int v, bool grad)
{
    const int base = prog_base(r->p, v);
    const bool f32 = grad ? prog_grad_f32(r->p, base) : r->p->value[base].f32;
    return f32 ? DT_F32 : dtype_of_precision(r->way->precision);
}

static bool in_parts(enum rows_id rows)
{
    return rows == ROWS_COND || rows == ROWS_TEXT;
}

static int64_t shared_at(const struct runner *r, int k, bool grad)
{
    return plan_shared(&family.in, r->plan, k, grad);
}

static struct tensor tensor_at(struct runner *r, int v, bool grad)
{
    static const enum part of[2][PLACE_CACHE + 1] = {{[PLACE_KEPT] = KEPT,
                                                      [PLACE_WORK] = WORK,
                                                      [PLACE_INPUT] = INPUT,
                                                      [PLACE_RESULT] = RESULT,
                                                      [PLACE_SHARED] = SHARED},
                                                     {[PLACE_KEPT] = KEPT,
                                                      [PLACE_WORK] = WORK,
                                                      [PLACE_INPUT] = D_INPUT,
                                                      [PLACE_RESULT] = D_RESULT,
                                                      [PLACE_SHARED] = D_SHARED}};
    const int base = prog_base(r->p, v);
    const struct value *x = &r->p->value[base], *own = &r->p->value[v];
    const struct place *at = grad ? &r->at.grad[base] : &r->at.value[base];
    const enum dtype t = dtype_at(r, v, grad);
    int64_t rows = r->x.rows[x->rows] * (grad && in_parts(x->rows) ? r->x.parts : 1);
    if (at->where == PLACE_NONE) return (struct tensor){0};
    if (x->state) rows = r->x.parts;
    if (x->form) rows = 1;
    if (r->s.piece[base] && rows > r->x.mlp_chunk) rows = r->x.mlp_chunk;
    enum part in = of[grad][at->where];
    if (in == RESULT && r->at.in_place) in = INPUT;
    if (in == D_RESULT && r->at.grad_in_place) in = D_INPUT;
    char *p = r->room[in].p + at->offset;
    if (at->where == PLACE_SHARED) p += shared_at(r, at->shared, grad);
    CHECK(p + rows * x->cols * dtype_size(t) <= r->room[in].p + r->room[in].size);
    const struct tensor all = tensor_of(t, p, rows, x->cols, x->cols);
    return tensor_sub(all, 0, rows, own->view_of == PROG_NONE ? 0 : own->view_col, own->cols);
}

/* ---- one run --------------------------------------------------------------------------------- */

static double uniform(struct runner *r)
{
    r->rng = r->rng * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(r->rng >> 11) / 9007199254740992.0 * 2 - 1;
}

static void randomise(struct runner *r, void *p, enum dtype t, int64_t n)
{
    float *x = calloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)uniform(r);
    if (n)
        be->ops->cast(be, &(struct cast_args){.dst = tensor_of(t, p, 1, n, n),
                                              .src = tensor_f32(x, 1, n, n)});
    free(x);
}

static void randomise_tensor(struct runner *r, struct tensor t)
{
    for (int64_t i = 0; t.data && i < t.rows; i++)
        randomise(r, (char *)t.data + i * t.ld * dtype_size(t.dtype), t.dtype, t.cols);
}

static int64_t logits_size(const struct runner *r)
{
    return r->x.logits_apart ? 4 * r->x.loss_chunk * r->x.vocab : r->at.logits.size;
}

static void place_rooms(struct runner *r)
{
    const enum dtype t = dtype_of_precision(r->way->precision);
    const int64_t unit = r->x.unit, n = r->p->weights_size;
    const int64_t stream = r->plan->stream_size * r->plan->tp; /* all rows are on this rank */
    const struct weight *table = &family.in.weight[0];
    const int64_t tied = spec.model.shape.tied ? table->rows * table->cols : 0;
    const int64_t places = PLACES * r->x.rows[ROWS_T];
    const int64_t size[PART_N] = {[WORK] = r->at.work_size,
                                  [KEPT] = r->at.kept_size,
                                  [INPUT] = stream,
                                  [RESULT] = stream,
                                  [D_INPUT] = stream,
                                  [D_RESULT] = stream,
                                  [SHARED] = shared_at(r, family.in.n_shared, false),
                                  [D_SHARED] = shared_at(r, family.in.n_shared, true),
                                  [WEIGHTS] = n * unit,
                                  [WEIGHTS_GRAD] = n * 4,
                                  [TIED] = tied * unit,
                                  [TIED_GRAD] = tied * 4,
                                  [TREE] = 4 * r->plan->tree_size * 4,
                                  [MAXIMA] = 4 * 4 * ROWS,
                                  [DELTA] = 4 * 4 * ROWS,
                                  [STATES] = r->plan->item[PLAN_STATE_M].size,
                                  [NLL] = places * 8,
                                  [LOGITS] = logits_size(r)};
    for (int i = 0; i < PART_N; i++) {
        r->room[i] = room_of(size[i]);
        memset(r->room[i].p, r->way->byte, (size_t)size[i]);
    }
    randomise(r, r->room[WEIGHTS].p, t, n);
    randomise(r, r->room[TIED].p, t, tied);
    memset(r->room[D_SHARED].p, 0, (size_t)size[D_SHARED]);
}

static void open_frame(struct runner *r, int layer)
{
    const struct plan *p = r->plan;
    const struct weight *table = &family.in.weight[0];
    const enum dtype t = dtype_of_precision(r->way->precision);
    struct frame *f = &r->f;
    struct err e = {0};
    struct shard sh;
    const bool grid = p->grid[0] > 0;
    CHECK(!(grid ? shard_init_units(&sh, p->grid[0], p->grid[1], 1, 0, p->rank_bits, &e)
                 : plan_shard(p, p->S, 0, &sh, &e)));
    *f = (struct frame){.be = be,
                        .p = r->p,
                        .shape = &spec.model.shape,
                        .dtype = t,
                        .layer = layer,
                        .parts = sh.n_sums,
                        .tree = p->rank_bits,
                        .fresh = true,
                        .tree_stride = p->tree_size,
                        .batch = &sample.batch,
                        .sp = &r->sp,
                        .linear = &r->linear,
                        .carry = &r->carry,
                        .dsp = &r->dsp,
                        .inv_freq = sample.inv_freq,
                        .rope_scale = 1,
                        .slope = sample.slope,
                        .loss_chunk = p->loss_chunk,
                        .loss_scale = 0.25f};
    const int64_t alt = r->x.rows[ROWS_ALT];
    f->rows[ROWS_T] = (struct frame_rows){r->x.rows[ROWS_T], sh.sum_len};
    f->rows[ROWS_ALT] = (struct frame_rows){alt, alt / sh.n_sums};
    f->rows[ROWS_PART] = f->rows[ROWS_T];
    f->tensor.n = 1;
    f->rows[ROWS_TEXT] = (struct frame_rows){r->x.rows[ROWS_TEXT], 0};
    f->rows[ROWS_COND] = (struct frame_rows){r->x.rows[ROWS_COND], 0};
    place_rooms(r);
    r->sp = (struct sp){.ops = &sp_local, .be = be, .shard = sh, .rank_bits = p->rank_bits};
    r->sp.drop = (struct sp_drop){.adapters = spec.adapter.dropout, .key = {3, 5}};
    r->sp.buf.m = (float *)r->room[MAXIMA].p;
    r->sp.buf.delta = (float *)r->room[DELTA].p;
    r->linear = (struct sp_linear){.ops = linear_find(p->exchange, 1), .be = be, .shard = sh};
    r->linear.buf.m = r->room[STATES].p;
    r->carry = (struct sp_carry){.be = be, .shard = sh};
    r->dsp = (struct dsp){
        .be = be, .P = 1, .rank_bits = p->rank_bits, .n = {p->grid[0], p->grid[1]}};
    f->tree_room = (float *)r->room[TREE].p;
    f->weights = r->room[WEIGHTS].p;
    store_places(r->p, dtype_size(t), r->weight_at);
    f->weight_at = r->weight_at;
    f->weights_grad = (float *)r->room[WEIGHTS_GRAD].p;
    f->tied = tensor_of(t, r->room[TIED].p, table->rows, table->cols, table->cols);
    f->tied_grad = (float *)r->room[TIED_GRAD].p;
    f->nll = (double *)r->room[NLL].p;
    f->logits = (float *)(r->x.logits_apart ? r->room[LOGITS].p
                                            : r->room[WORK].p + r->at.logits.offset);
    for (int v = 0; v < r->p->n_values; v++) {
        f->value[v] = tensor_at(r, v, false);
        if (r->way->train) f->grad[v] = tensor_at(r, v, true);
    }
}

static void close_frame(struct runner *r)
{
    for (int i = 0; i < PART_N; i++) free(r->room[i].p);
}

/* Fills the inputs of a section, which are the values that no operation writes. */
static void fill_inputs(struct runner *r)
{
    for (int v = 0; v < r->p->n_values; v++)
        if (r->p->value[v].view_of == PROG_NONE && prog_writer(r->p, v) == PROG_NONE)
            randomise_tensor(r, r->f.value[v]);
}

static void fill_output_grads(struct runner *r)
{
    if (r->p->result != PROG_NONE) randomise_tensor(r, r->f.grad[r->p->result]);
    /* in section `in`, these hold sums of later sections */
    for (int k = 0; k < r->p->n_shared; k++)
        if (!r->p->has_input) randomise_tensor(r, r->f.grad[r->p->shared[k]]);
}

static bool overlap(struct tensor a, struct tensor b)
{
    const char *x = a.data, *y = b.data;
    if (!a.rows || !b.rows || !x || !y) return false;
    return x < y + ((b.rows - 1) * b.ld + b.cols) * dtype_size(b.dtype) &&
           y < x + ((a.rows - 1) * a.ld + a.cols) * dtype_size(a.dtype);
}

static void fill_tensor(const struct runner *r, struct tensor t)
{
    for (int64_t i = 0; t.data && i < t.rows; i++)
        memset((char *)t.data + i * t.ld * dtype_size(t.dtype), r->way->byte,
               (size_t)(t.cols * dtype_size(t.dtype)));
}

/* Fills the values that the step writes without reading them first. A value that may be in the
 * memory of an input is not filled. */
static void fill_written(const struct runner *r, const struct step *st)
{
    const struct op *o = &r->p->op[st->op];
    const bool back = st->kind == STEP_BACKWARD;
    for (int k = 0; k < (back ? OP_INS : OP_OUTS); k++) {
        const int v = back ? o->in[k] : o->out[k];
        if (v == PROG_NONE || (back && !(st->wanted[k] && st->first[k]))) continue;
        if (!back && k == 1 && r->f.again && op_finds_kept(r->p, o)) continue;
        const struct tensor t = (back ? r->f.grad : r->f.value)[v];
        bool over = back && o->out[0] != PROG_NONE && overlap(t, r->f.grad[o->out[0]]);
        for (int j = 0; j < OP_INS; j++)
            over |= o->in[j] != PROG_NONE && overlap(t, r->f.value[o->in[j]]);
        /* the window may be between windows of a different gradient */
        for (int j = 0; back && j < OP_INS; j++)
            over |= j != k && o->in[j] != PROG_NONE && overlap(t, r->f.grad[o->in[j]]);
        if (!over) fill_tensor(r, t);
    }
}

static void fill_room(const struct runner *r, enum part i)
{
    memset(r->room[i].p, r->way->byte, (size_t)r->room[i].size);
}

static void run_step(struct runner *r, const struct step *st, int64_t scratch)
{
    const struct op *o = &r->p->op[st->op];
    const struct op_rule *rule = op_rules[o->kind];
    struct err e = {0};
    r->f.scratch = r->room[WORK].p + scratch;
    r->f.scratch_size = op_scratch(r->p, st, &r->x);
    CHECK(scratch + r->f.scratch_size <= r->room[WORK].size);
    memset(r->f.scratch, r->way->byte, (size_t)r->f.scratch_size);
    if (rule->logits) memset(r->f.logits, r->way->byte, (size_t)logits_size(r));
    fill_written(r, st);
    /* if the step is in pieces, TREE holds the sums of other chunks */
    if (!st->piece) fill_room(r, TREE);
    fill_room(r, MAXIMA);
    fill_room(r, DELTA);
    fill_room(r, STATES);
    op_scratch_reset(&r->f);
    const bool back = st->kind == STEP_BACKWARD;
    const int bad = back ? op_table[o->kind]->backward(&r->f, o, st, &e)
                         : op_table[o->kind]->forward(&r->f, o, &e);
    CHECK_MSG(!bad, "%s: %s", rule->name, e.text);
    n_ran[o->kind][r->way->mode][back]++;
}

struct list {
    struct runner *r;
    const struct step *step;
    const int64_t *scratch;
};

static int run_in_piece(void *arg, int i, struct err *e)
{
    const struct list *l = arg;
    (void)e;
    run_step(l->r, &l->step[i], l->scratch[i]);
    return 0;
}

static void run_list(struct runner *r, const struct step *step, const int64_t *scratch, int n)
{
    struct err e = {0};
    for (int i = 0; i < n; i += step[i].piece ? step[i].n_piece : 1) {
        struct list l = {r, &step[i], &scratch[i]};
        const struct piece_walk w = {&r->s, &step[i], r->x.mlp_chunk, run_in_piece, &l};
        if (!step[i].piece) {
            run_step(r, &step[i], scratch[i]);
            continue;
        }
        fill_room(r, TREE);
        CHECK(!piece_walk(&r->f, &w, &e));
    }
}

/* Adds bytes to a digest of the section's results, by FNV-1a. */
static void digest(uint64_t *h, const void *p, int64_t size)
{
    const unsigned char *b = p;
    for (int64_t i = 0; i < size; i++) *h = (*h ^ b[i]) * 1099511628211ull;
}

static void digest_tensor(uint64_t *h, struct tensor t)
{
    for (int64_t i = 0; t.data && i < t.rows; i++)
        digest(h, (char *)t.data + i * t.ld * dtype_size(t.dtype), t.cols * dtype_size(t.dtype));
}

static void digest_weights(uint64_t *h, const struct runner *r)
{
    for (int i = 0; i < r->p->n_weights; i++) {
        const struct weight *w = &r->p->weight[i];
        if (!w->frozen)
            digest(h, r->f.weights_grad + w->offset, w->rows * (w->cols ? w->cols : 1) * 4);
    }
}

/* The results of a section. The initial values of the section do not depend on way->byte. */
struct results {
    uint64_t forward, backward;
};

static struct results run_section(const struct way *w, const struct program *p, int layer)
{
    static struct runner r;
    struct results out = {14695981039346656037ull, 14695981039346656037ull};
    r = (struct runner){.way = w, .plan = &plan, .p = p, .x = plan.extent, .rng = 7};
    r.x.train = w->train;
    schedule_make(p, &(struct schedule_mode){w->train, w->chunk > 0, w->mode}, &r.s);
    placement_make(p, &r.s, &r.x, &r.at);
    open_frame(&r, layer);
    fill_inputs(&r);
    const bool loss = p->result == PROG_NONE;
    if (!(w->train && loss)) run_list(&r, r.s.forward, r.at.scratch_forward, r.s.n_forward);
    if (!loss) digest_tensor(&out.forward, r.f.value[p->result]);
    for (int k = 0; k < p->n_shared; k++)
        if (!p->has_input) digest_tensor(&out.forward, r.f.value[p->shared[k]]);
    if (loss && !w->train) digest(&out.forward, r.f.nll, r.x.rows[ROWS_T] * 8);
    if (w->train) {
        fill_room(&r, WORK); /* other sections have used it */
        fill_output_grads(&r);
        r.f.again = true;
        run_list(&r, r.s.backward, r.at.scratch_backward, r.s.n_backward);
        if (p->has_input) digest_tensor(&out.backward, r.f.grad[PROG_X]);
        for (int k = 0; k < p->n_shared && p->has_input; k++)
            if (p->shared[k] != PROG_NONE) digest_tensor(&out.backward, r.f.grad[p->shared[k]]);
        digest_weights(&out.backward, &r);
        if (loss) digest(&out.backward, r.f.nll, r.x.rows[ROWS_T] * 8);
    }
    close_frame(&r);
    return out;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void make_plan(const struct way *w)
{
    struct err e = {0};
    memset(&spec, 0, sizeof spec);
    spec.kind = JOB_TRAIN;
    spec.model.shape = shape_of(w->family);
    /* if the family has two kinds of layers, layer 1 is of the second kind */
    spec.model.shape.layer_mask[0] = 2;
    if (w->shared)
        spec.model.shape.window = 0;
    else if (w->family == FAMILY_LLAMA || w->family == FAMILY_GEMMA ||
             w->family == FAMILY_GPT_OSS || w->family == FAMILY_MODERNBERT)
        spec.model.shape.window = 9;
    if (w->family == FAMILY_MODERNBERT) spec.model.shape.rope_local = 100;
    if (w->family == FAMILY_LATTE) spec.model.shape.grid_way = GRID_HEADS_BOTH;
    if (w->family == FAMILY_GEMMA) spec.model.shape.rope_local = 100, spec.model.shape.qk_norm = 1;
    if (w->family == FAMILY_LATTE) spec.model.shape.trained_on = OBJECTIVE_IDDPM;
    spec.data.seq_len = 37; /* a length that no number of chunks divides */
    spec.data.frames = 5;
    spec.data.height = 6;
    spec.data.width = 4;
    /* with two passes per step, no gradient can be lent */
    spec.train.global_batch = w->lent ? 1 : 2;
    spec.optim.max_grad_norm = 1;
    spec.parallel.sp = spec.resources.threads = 1;
    spec.determinism = w->ranks ? DET_RANKS : DET_RUN;
    spec.precision.params = w->precision;
    spec.memory.recompute = w->mode;
    spec.memory.mlp_chunk_tokens = w->chunk;
    spec.text_used = 1;
    if (w->shared) {
        struct model_shape *m = &spec.model.shape;
        m->o_bias = m->qkv_bias = m->mlp_bias = w->family != FAMILY_PHI3;
        m->tp = spec.parallel.tp = 2;
        m->layer_mask[0] = 0;
        m->grid_way = GRID_TENSOR;
    }
    if (w->adapted) spec.adapter.dropout = 0.25, adapter_shape(&spec);
    CHECK_MSG(!plan_make(&spec, 0, &plan, &e), "family %d: %s", w->family, e.text);
    plan.extent.rows[ROWS_PART] = plan.extent.rows[ROWS_T]; /* A group of one rank has all rows. */
    family_write(&spec.model.shape, &family);
    for (int h = 0; h < 4; h++) sample.slope[h] = prog_slope(SLOPE_RETNET, h, 4, 0, 4);
    fill_sample(family_row(&spec.model.shape)->task == MODEL_CAUSAL_LM, plan.S);
}

/* The sections of a training that keeps everything: `in`, `out`, and each kind of layer. */
static struct results kept_all[FAMILY_KINDS + 2];

static void compare(const struct way *w, const struct program *p, int layer, struct results *keeps,
                    const char *name)
{
    struct way way = *w;
    way.byte = ZERO;
    const struct results zero = run_section(&way, p, layer);
    way.byte = POISON;
    const struct results poison = run_section(&way, p, layer);
    CHECK_MSG(
        zero.forward == poison.forward && zero.backward == poison.backward,
        "%s of family %d, precision %d, ranks %d, mode %d, train %d: %s reads what nothing has "
        "written",
        name, w->family, w->precision, w->ranks, w->mode, w->train,
        zero.forward == poison.forward ? "backward" : "forward");
    if (!w->train) return;
    const uint64_t whole = keeps->forward;
    if (w->mode == RECOMPUTE_NONE && !w->lent) *keeps = zero;
    if (w->mode == RECOMPUTE_NONE && w->chunk)
        CHECK_MSG(zero.forward == whole,
                  "%s of family %d, precision %d, ranks %d: other bits of the forward pass in "
                  "pieces of %lld rows",
                  name, w->family, w->precision, w->ranks, (long long)w->chunk);
    CHECK_MSG(zero.forward == keeps->forward && zero.backward == keeps->backward,
              "%s of family %d, precision %d, ranks %d: mode %d has other bits than mode \"none\"",
              name, w->family, w->precision, w->ranks, w->mode);
}

static void try_way(const struct way *w)
{
    make_plan(w);
    compare(w, &family.in, -1, &kept_all[0], "`in`");
    compare(w, &family.out, -1, &kept_all[1], "`out`");
    for (int k = 0; k < family.n_kinds; k++) {
        int l = 0; /* This is the first layer of its kind. */
        while (l < spec.model.shape.n_layers && family_layer_kind(&spec.model.shape, l) != k) l++;
        if (l < spec.model.shape.n_layers)
            compare(w, &family.layer[k], l, &kept_all[2 + k], "a layer");
    }
}

/* Runs the head with its logits in memory that gradients lend. */
static void try_lent(const struct way *w)
{
    bool logits = false;
    make_plan(w);
    for (int i = 0; i < family.out.n_ops; i++) logits |= op_rules[family.out.op[i].kind]->logits;
    CHECK(plan.extent.logits_apart == logits);
    if (logits) compare(w, &family.out, -1, &kept_all[1], "`out` with lent logits");
}

static void test_every_way(void)
{
    for (int id = 0; id < FAMILY_N; id++)
        for (int precision = PRECISION_FP32; precision < PRECISION_N; precision++)
            for (int ranks = 0; ranks < 2; ranks++) {
                for (int chunk = 0; chunk <= 3; chunk += 3)
                    for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++)
                        try_way(&(struct way){id, (enum precision_id)precision, ranks,
                                              (enum recompute_id)mode, true, 0, chunk});
                for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++)
                    try_lent(&(struct way){.family = id,
                                           .precision = (enum precision_id)precision,
                                           .ranks = ranks,
                                           .mode = (enum recompute_id)mode,
                                           .train = true,
                                           .lent = true});
                try_way(&(struct way){id, (enum precision_id)precision, ranks, RECOMPUTE_NONE,
                                      false, 0, 0});
            }
}

static void share_layers(enum model_family id, enum precision_id precision, int chunk)
{
    for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++)
        try_way(&(struct way){.family = id,
                              .precision = precision,
                              .mode = (enum recompute_id)mode,
                              .train = true,
                              .chunk = chunk,
                              .shared = true});
}

static void test_shared_layers(void)
{
    static const enum model_family shared[] = {FAMILY_LLAMA, FAMILY_OLMO2, FAMILY_PHI3};
    static const enum model_family diffusion[] = {FAMILY_STDIT, FAMILY_STDIT3, FAMILY_LATTE,
                                                  FAMILY_T2D};
    for (int i = 0; i < 3; i++)
        for (int precision = PRECISION_FP32; precision < PRECISION_N; precision++)
            for (int chunk = 0; chunk <= 3; chunk += 3)
                share_layers(shared[i], (enum precision_id)precision, chunk);
    for (int i = 0; i < 4; i++)
        for (int chunk = 0; chunk <= 3; chunk += 3)
            share_layers(diffusion[i], PRECISION_FP32, chunk);
}

static void adapt_layers(enum model_family id, enum precision_id precision, bool shared)
{
    for (int ranks = 0; ranks < 2 - shared; ranks++)
        for (int chunk = 0; chunk <= 3; chunk += 3)
            for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++)
                try_way(&(struct way){.family = id,
                                      .precision = precision,
                                      .ranks = ranks,
                                      .mode = (enum recompute_id)mode,
                                      .train = true,
                                      .chunk = chunk,
                                      .shared = shared,
                                      .adapted = true});
}

static void test_adapted_layers(void)
{
    for (int precision = PRECISION_FP32; precision < PRECISION_N; precision++) {
        for (int id = 0; id < FAMILY_N; id++) {
            spec.model.shape = shape_of(id);
            if (family_diffusion(&spec.model.shape)) continue;
            adapt_layers((enum model_family)id, (enum precision_id)precision, false);
            try_way(&(struct way){
                .family = id, .precision = (enum precision_id)precision, .adapted = true});
        }
        adapt_layers(FAMILY_LLAMA, (enum precision_id)precision, true);
        adapt_layers(FAMILY_PHI3, (enum precision_id)precision, true);
    }
}

static void test_every_operator_ran(void)
{
    for (int kind = 0; kind < OP_KIND_N; kind++)
        for (int mode = RECOMPUTE_NONE; mode < RECOMPUTE_N; mode++) {
            const struct op_rule *r = op_rules[kind];
            CHECK_MSG(n_ran[kind][mode][0] || r->loss, "%s never ran forward in mode %d", r->name,
                      mode);
            CHECK_MSG(n_ran[kind][mode][1] || !r->n_in, "%s never ran backward in mode %d", r->name,
                      mode);
        }
}

int main(void)
{
    struct err e = {0};
    be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    CHECK(be);
    RUN(test_every_way);
    RUN(test_shared_layers);
    RUN(test_adapted_layers);
    RUN(test_every_operator_ran);
    be_close(be);
    return test_done("poison");
}
