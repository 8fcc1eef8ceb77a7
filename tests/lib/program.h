/* program.h: runs a section's schedule and placement on simulated memory. For every byte of that
 * memory, it stores which value was last written to the byte. This file shares no code with
 * schedule.c and placement.c, whose results it checks. */
#ifndef SEQD_TESTS_PROGRAM_H
#define SEQD_TESTS_PROGRAM_H

#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "worker/family/family.h"
#include "worker/program/op_rules.h"

enum region {
    R_WORK,
    R_KEPT,
    R_CACHE,
    R_INPUT,
    R_RESULT,
    R_DINPUT,
    R_DRESULT,
    R_SHARED,
    R_DSHARED = R_SHARED + PROG_SHARED,
    R_N = R_DSHARED + PROG_SHARED
};
enum { TAG_GRAD = 1000, TAG_JUNK = 9999 };

struct trial {
    const struct program *p;
    const struct schedule *s;
    const struct extent *x;
    const struct placement *at;
    const char *what;
    int *byte[R_N]; /* for each byte, the tag of the value that was written to it */
    int64_t size[R_N];
    /* for each value or window, the number of terms that were added to its gradient so far */
    int count[PROG_VALUES];
    /* The piece that is being computed consists of n_rows rows from row0 on. If n_rows is 0, all
     * rows are computed at once. */
    int64_t row0, n_rows;
};

/* The bytes of one value in a step, which are the rows of a window of memory. */
struct span_of_bytes {
    enum region region;
    int64_t offset, rows, len, stride;
    int tag; /* the tag of the value; 0 means that there is no value */
};

static inline int64_t trial_unit(const struct trial *t, int v, bool grad)
{
    const struct value *w = &t->p->value[v];
    return (grad ? prog_grad_f32(t->p, v) : w->f32) ? 4 : t->x->unit;
}

static inline int64_t trial_rows(const struct trial *t, int v, bool grad)
{
    const struct value *w = &t->p->value[v];
    const bool apart = grad && (w->rows == ROWS_TEXT || w->rows == ROWS_COND);
    if (w->form) return 1;
    if (t->n_rows && (w->rows == ROWS_T || w->rows == ROWS_ALT)) return t->n_rows;
    CHECK_MSG(!t->s->piece[v], "%s: a step outside of a piece takes a part of one", t->what);
    return w->state ? t->x->parts : t->x->rows[w->rows] * (apart ? t->x->parts : 1);
}

static inline struct span_of_bytes trial_span(const struct trial *t, int v, bool grad)
{
    const struct place *at = grad ? &t->at->grad[v] : &t->at->value[v];
    const int of = t->p->value[v].view_of, base = of == PROG_NONE ? v : of;
    const int64_t unit = trial_unit(t, base, grad);
    struct span_of_bytes b = {.rows = trial_rows(t, base, grad),
                              .len = t->p->value[v].cols * unit,
                              .stride = t->p->value[base].cols * unit,
                              .offset = at->offset,
                              .tag = base + 1 + (grad ? TAG_GRAD : 0)};
    if (t->p->value[v].form) b.len = t->x->attn_kept;
    if (!t->s->piece[base]) b.offset += t->row0 * b.stride;
    switch (at->where) {
    case PLACE_NONE: b.tag = 0; break;
    case PLACE_WORK: b.region = R_WORK; break;
    case PLACE_KEPT: b.region = R_KEPT; break;
    case PLACE_CACHE: b.region = R_CACHE; break;
    case PLACE_INPUT: b.region = grad ? R_DINPUT : R_INPUT; break;
    case PLACE_RESULT: b.region = grad ? R_DRESULT : R_RESULT; break;
    case PLACE_SHARED: b.region = (enum region)((grad ? R_DSHARED : R_SHARED) + at->shared); break;
    }
    if (b.region == R_RESULT && t->at->in_place) b.region = R_INPUT;
    if (b.region == R_DRESULT && t->at->grad_in_place) b.region = R_DINPUT;
    return b;
}

static inline bool trial_overlap(const struct span_of_bytes *a, const struct span_of_bytes *b)
{
    if (!a->tag || !b->tag || a->region != b->region) return false;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < b->rows; j++) {
            const int64_t x = a->offset + i * a->stride, y = b->offset + j * b->stride;
            if (x < y + b->len && y < x + a->len) return true;
        }
    return false;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static inline void trial_write(struct trial *t, struct span_of_bytes b)
{
    if (!b.tag) return;
    for (int64_t i = 0; i < b.rows; i++)
        for (int64_t k = 0; k < b.len; k++) {
            const int64_t at = b.offset + i * b.stride + k;
            if (at < 0 || at >= t->size[b.region]) {
                CHECK_MSG(false, "%s: byte %lld of region %d", t->what, (long long)at, b.region);
                return;
            }
            t->byte[b.region][at] = b.tag;
        }
}

static inline void trial_read(struct trial *t, struct span_of_bytes b, int step)
{
    int64_t bad = b.tag ? 0 : 1;
    for (int64_t i = 0; b.tag && i < b.rows; i++)
        for (int64_t k = 0; k < b.len; k++) {
            const int64_t at = b.offset + i * b.stride + k;
            bad += at < 0 || at >= t->size[b.region] || t->byte[b.region][at] != b.tag;
        }
    CHECK_MSG(bad == 0, "%s: step %d reads %d where it is not", t->what, step, b.tag);
}

static inline void trial_poison(struct trial *t, enum region r)
{
    for (int64_t i = 0; i < t->size[r]; i++) t->byte[r][i] = TAG_JUNK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

#define TRIAL_PARTS 16
struct trial_step {
    int n;
    struct span_of_bytes part[TRIAL_PARTS];
    /* Pairs of parts that may be in the same memory in this step. */
    int n_same, same[TRIAL_PARTS][2];
};

static inline int trial_part(struct trial_step *s, struct span_of_bytes b)
{
    s->part[s->n] = b;
    return s->n++;
}

static inline void trial_same(struct trial_step *s, int a, int b)
{
    s->same[s->n_same][0] = a;
    s->same[s->n_same++][1] = b;
}

static inline void trial_disjoint(const struct trial *t, const struct trial_step *s, int step)
{
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < i; j++) {
            /* the two parts may overlap if they are the same value, or if both are windows of one
             * value */
            bool may = s->part[i].tag == s->part[j].tag;
            for (int k = 0; k < s->n_same; k++)
                may |= (s->same[k][0] == i && s->same[k][1] == j) ||
                       (s->same[k][0] == j && s->same[k][1] == i);
            CHECK_MSG(may || !trial_overlap(&s->part[i], &s->part[j]),
                      "%s: step %d: %d and %d overlap", t->what, step, s->part[i].tag,
                      s->part[j].tag);
        }
}

static inline void trial_extra(const struct trial *t, struct trial_step *s, const struct step *st,
                               int64_t scratch_at)
{
    const int64_t size = op_scratch(t->p, st, t->x);
    if (size) trial_part(s, (struct span_of_bytes){R_WORK, scratch_at, 1, size, size, TAG_JUNK});
    if (t->p->op[st->op].kind == OP_XENT && t->x->loss_chunk)
        trial_part(s, (struct span_of_bytes){R_WORK, t->at->logits.offset, 1,
                                             t->x->loss_chunk * t->x->vocab * 4,
                                             t->x->loss_chunk * t->x->vocab * 4, TAG_JUNK + 1});
}

/* Tells whether the kernels allow the output to overwrite input k. */
static inline bool trial_over(enum op_kind kind, int k)
{
    if (kind == OP_LINEAR) return k == 1;
    if (kind == OP_MIX) return true;
    return k == 0 && (kind == OP_ROPE || kind == OP_ADAPT || kind == OP_ACT || kind == OP_GATE ||
                      kind == OP_ROW_GATE || kind == OP_EMBED_ADD || kind == OP_POSITION_1D ||
                      kind == OP_POSITION_2D);
}

static inline void trial_forward(struct trial *t, const struct step *st, int step, bool again,
                                 int64_t scratch_at)
{
    const struct op *op = &t->p->op[st->op];
    const bool states = again && op_finds_kept(t->p, op);
    struct trial_step s = {0};
    int in[OP_INS] = {0}, out[OP_OUTS] = {-1, -1};
    for (int k = 0; k < OP_INS; k++) {
        if (op->in[k] == PROG_NONE) continue;
        in[k] = trial_part(&s, trial_span(t, op->in[k], false));
        trial_read(t, s.part[in[k]], step);
    }
    for (int k = 0; k < OP_OUTS; k++)
        if (op->out[k] != PROG_NONE) out[k] = trial_part(&s, trial_span(t, op->out[k], false));
    if (states) trial_read(t, s.part[out[1]], step);
    for (int k = 0; k < OP_INS; k++)
        if (op->in[k] != PROG_NONE && out[0] >= 0 && trial_over(op->kind, k))
            trial_same(&s, in[k], out[0]);
    trial_extra(t, &s, st, scratch_at);
    trial_disjoint(t, &s, step);
    for (int i = 0; i < s.n; i++)
        if (i >= (out[0] < 0 ? s.n : out[0]) && !(states && i == out[1])) trial_write(t, s.part[i]);
    if (out[0] < 0) /* the only memory that a loss writes is scratch */
        for (int i = 0; i < s.n; i++)
            if (s.part[i].tag >= TAG_JUNK) trial_write(t, s.part[i]);
}

/* Returns how many operations add a term to the gradient of this window. */
static inline int trial_readers(const struct trial *t, int v)
{
    const struct value *w = &t->p->value[v];
    int n = 0;
    for (int i = 0; i < t->s->n_backward; i++) {
        const struct step *st = &t->s->backward[i];
        for (int k = 0; st->kind == STEP_BACKWARD && k < OP_INS; k++) {
            const int in = t->p->op[st->op].in[k];
            if (in == PROG_NONE || !st->wanted[k]) continue;
            const struct value *u = &t->p->value[in];
            n += in == v || (w->view_of != PROG_NONE && u->view_of == w->view_of &&
                             u->view_col == w->view_col && u->cols == w->cols);
        }
    }
    return n + (v == t->p->result);
}

static inline void trial_complete(const struct trial *t, int v, int step)
{
    bool viewed = false;
    for (int i = 0; i < t->p->n_values; i++) {
        if (t->p->value[i].view_of != v) continue;
        viewed = true;
        CHECK_MSG(t->count[i] == trial_readers(t, i), "%s: step %d: window %d has %d of %d parts",
                  t->what, step, i, t->count[i], trial_readers(t, i));
    }
    if (!viewed)
        CHECK_MSG(t->count[v] == trial_readers(t, v), "%s: step %d: gradient %d has %d of %d parts",
                  t->what, step, v, t->count[v], trial_readers(t, v));
}

/* Counts one term of the gradient of input k. The term is counted for input k, and for every value
 * that is the same window of the same base as input k. */
static inline void trial_count(struct trial *t, const struct step *st, int k)
{
    const int in = t->p->op[st->op].in[k];
    const struct value *w = &t->p->value[in];
    const bool shared = t->p->value[prog_base(t->p, in)].shared;
    if (t->row0) return; /* this term was counted when the first piece was computed */
    CHECK_MSG(!st->first[k] || !shared, "%s: a shared gradient is overwritten", t->what);
    for (int i = 0; i < t->p->n_values; i++) {
        const struct value *u = &t->p->value[i];
        const bool same = i == in || (w->view_of != PROG_NONE && u->view_of == w->view_of &&
                                      u->view_col == w->view_col && u->cols == w->cols);
        if (!same) continue;
        CHECK_MSG(st->first[k] == (t->count[i] == 0) || shared, "%s: gradient %d: first is %d",
                  t->what, in, st->first[k]);
        t->count[i] = st->first[k] ? 1 : t->count[i] + 1;
    }
}

static inline void trial_backward(struct trial *t, const struct step *st, int step,
                                  int64_t scratch_at)
{
    const struct op *op = &t->p->op[st->op];
    const unsigned bits = op_reads_back(t->p, op);
    struct trial_step s = {0};
    int value[OP_INS] = {-1, -1, -1}, grad[OP_INS] = {-1, -1, -1}, dy = -1;
    for (int k = 0; k < OP_INS + OP_OUTS; k++) {
        const int v = k < OP_INS ? op->in[k] : op->out[k - OP_INS];
        if (v == PROG_NONE || !(bits >> k & 1)) continue;
        if (t->p->value[v].form && !t->x->attn_kept) continue;
        const int part = trial_part(&s, trial_span(t, v, false));
        trial_read(t, s.part[part], step);
        if (k < OP_INS) value[k] = part;
    }
    if (op->out[0] != PROG_NONE) {
        dy = trial_part(&s, trial_span(t, op->out[0], true));
        trial_read(t, s.part[dy], step);
        if (!t->p->value[op->out[0]].shared) trial_complete(t, op->out[0], step);
    }
    for (int k = 0; k < OP_INS; k++) {
        if (!st->wanted[k]) continue;
        grad[k] = trial_part(&s, trial_span(t, op->in[k], true));
        if (!st->first[k]) trial_read(t, s.part[grad[k]], step);
        trial_count(t, st, k);
        if (st->alias == k) {
            trial_same(&s, grad[k], dy);
            CHECK_MSG(s.part[grad[k]].region == s.part[dy].region &&
                          s.part[grad[k]].offset == s.part[dy].offset,
                      "%s: step %d: alias elsewhere", t->what, step);
        }
        for (int j = 0; op->kind == OP_GLU && j <= k; j++)
            if (value[k] >= 0 && j == k && st->first[k]) trial_same(&s, grad[k], value[k]);
    }
    trial_extra(t, &s, st, scratch_at);
    trial_disjoint(t, &s, step);
    for (int k = 0; k < OP_INS; k++)
        if (grad[k] >= 0) trial_write(t, s.part[grad[k]]);
    for (int i = 0; i < s.n; i++)
        if (s.part[i].tag >= TAG_JUNK) trial_write(t, s.part[i]);
}

/* ---- a section ------------------------------------------------------------------------------- */

static inline int64_t trial_region(const struct trial *t, enum region r)
{
    const struct program *p = t->p;
    if (r == R_WORK) return t->at->work_size;
    if (r == R_KEPT) return t->at->kept_size;
    if (r == R_CACHE) return t->at->cache_size;
    if (r <= R_DRESULT) {
        const bool before = r == R_INPUT || r == R_DINPUT;
        const int v = before ? PROG_X : p->result;
        if (before ? !p->has_input : v == PROG_NONE) return 0;
        return trial_rows(t, v, false) * p->value[v].cols * trial_unit(t, v, false);
    }
    const int v = p->shared[r < R_DSHARED ? r - R_SHARED : r - R_DSHARED];
    const bool grad = r >= R_DSHARED;
    return v == PROG_NONE ? 0 : trial_rows(t, v, grad) * p->value[v].cols * trial_unit(t, v, grad);
}

static inline void trial_give(struct trial *t, int v, bool grad)
{
    trial_write(t, trial_span(t, v, grad));
}

/* Sets up the memory for the start of the section. The memory then holds the section's input and
 * the shared values. It also holds the gradients of some shared values, to which backward passes
 * of other sections have already added. */
static inline void trial_begin(struct trial *t)
{
    const struct program *p = t->p;
    for (int r = 0; r < R_N; r++) {
        t->size[r] = trial_region(t, (enum region)r);
        t->byte[r] = malloc((size_t)(t->size[r] ? t->size[r] : 1) * sizeof(int));
        if (!t->byte[r]) abort();
        trial_poison(t, (enum region)r);
    }
    if (p->has_input) trial_give(t, PROG_X, false);
    for (int k = 0; p->has_input && k < PROG_SHARED; k++)
        if (p->shared[k] != PROG_NONE) trial_give(t, p->shared[k], false);
    for (int k = 0; t->x->train && k < PROG_SHARED; k++)
        if (p->shared[k] != PROG_NONE && !p->value[p->shared[k]].no_grad)
            trial_give(t, p->shared[k], true);
}

static inline void trial_step_at(struct trial *t, bool back, int i)
{
    const bool loss = t->p->result == PROG_NONE;
    const struct step *st = back ? &t->s->backward[i] : &t->s->forward[i];
    const int64_t scratch = back ? t->at->scratch_backward[i] : t->at->scratch_forward[i];
    if (st->kind == STEP_FORWARD)
        trial_forward(t, st, 1000 * back + i, back && !loss, scratch);
    else
        trial_backward(t, st, 1000 * back + i, scratch);
}

/* Runs step i of a list. If step i computes pieces of rows, the call runs it and all following
 * steps that compute the same pieces, piece by piece. Returns the number of steps that were
 * run. */
static inline int trial_steps(struct trial *t, bool back, int i)
{
    const struct step *st = back ? &t->s->backward[i] : &t->s->forward[i];
    const int out = t->p->op[st->op].out[0];
    const int64_t rows = out == PROG_NONE ? 0 : t->x->rows[t->p->value[out].rows];
    const int n = st->n_piece;
    CHECK_MSG(st->piece == (n > 0), "%s: step %d is inside of a piece", t->what, i);
    if (!n) trial_step_at(t, back, i);
    for (t->row0 = 0; n && t->row0 < rows; t->row0 += t->x->mlp_chunk) {
        const int64_t left = rows - t->row0;
        t->n_rows = left < t->x->mlp_chunk ? left : t->x->mlp_chunk;
        for (int k = 0; k < n; k++) trial_step_at(t, back, i + k);
    }
    t->row0 = t->n_rows = 0;
    return n ? n : 1;
}

/* Runs the forward pass, overwrites the workspace as other sections would, and runs the backward
 * pass. */
static inline void trial_run(struct trial *t)
{
    const bool loss = t->p->result == PROG_NONE;
    trial_begin(t);
    for (int i = 0; i < t->s->n_forward;) i += trial_steps(t, false, i);
    if (t->p->result != PROG_NONE) trial_read(t, trial_span(t, t->p->result, false), -1);
    trial_poison(t, R_WORK);
    if (loss) trial_poison(t, R_KEPT);
    if (t->x->train && !loss) {
        trial_give(t, t->p->result, true);
        t->count[t->p->result] = 1;
    }
    for (int i = 0; i < t->s->n_backward;) i += trial_steps(t, true, i);
    if (t->x->train && t->p->has_input && trial_readers(t, PROG_X)) {
        trial_read(t, trial_span(t, PROG_X, true), -2);
        trial_complete(t, PROG_X, -2);
    }
    for (int r = 0; r < R_N; r++) free(t->byte[r]);
}

/* Schedules a section, places its values, and runs it on the simulated memory. If x->mlp_chunk >
 * 0, dense MLPs run in pieces. */
static inline void trial_section(const struct program *p, const struct extent *x,
                                 enum recompute_id mode, const char *what)
{
    static struct schedule s;
    static struct placement at;
    struct trial t = {.p = p, .s = &s, .x = x, .at = &at, .what = what};
    schedule_make(p, &(struct schedule_mode){x->train, x->mlp_chunk > 0, mode}, &s);
    placement_make(p, &s, x, &at);
    trial_run(&t);
}

#endif
