/* finite.c: searches the weights bucket by bucket, and then the output of each operation in a
 * repeated pass. All ranks agree on the first NaN or infinity. */
#include "worker/model/finite.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "kernels/panels.h"
#include "worker/model/host_blocks.h"
#include "worker/model/host_copy.h"
#include "worker/model/stored.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/* Tells whether one of n elements is NaN or infinite. In every dtype, the exponent of NaN and of
 * infinity is all ones. */
static bool holds(const void *p, int64_t n, enum dtype t)
{
    const uint32_t mask = t == DT_F32 ? 0x7f800000 : t == DT_F16 ? 0x7c00 : 0x7f80;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t x = t == DT_F32 ? ((const uint32_t *)p)[i] : ((const uint16_t *)p)[i];
        if ((x & mask) == mask) return true;
    }
    return false;
}

#define LOOK 4096 /* elements that are read at a time */

static bool row_holds(struct be *be, const char *row, int64_t n, enum dtype t)
{
    uint32_t room[LOOK];
    for (int64_t i = 0; i < n; i += LOOK) {
        const int64_t k = n - i < LOOK ? n - i : LOOK;
        be->ops->download(be, room, row + i * dtype_size(t), k * dtype_size(t));
        if (holds(room, k, t)) return true;
    }
    return false;
}

static bool tensor_holds(struct be *be, struct tensor t)
{
    bool past;
    if (dtype_quant(t.dtype)) return host_blocks_not_finite(be, t, &past) >= 0;
    if (dtype_panels(t.dtype)) t.dtype = dtype_of_panels(t.dtype);
    if (t.ld == t.cols) return row_holds(be, t.data, t.rows * t.cols, t.dtype);
    for (int64_t i = 0; i < t.rows; i++)
        if (row_holds(be, (char *)t.data + i * t.ld * dtype_size(t.dtype), t.cols, t.dtype))
            return true;
    return false;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static int least_of(struct model *m, struct comm *c, int64_t *x, struct err *e)
{
    if (!c) return 0;
    const int64_t *all = comm_each_i64(c, PURPOSE_CONTROL, x, 1, m->bounce, e);
    if (!all) return -1;
    for (int q = 0; q < comm_size(c); q++)
        if (all[q] < *x) *x = all[q];
    return 0;
}

int finite_least(struct model *m, int64_t *x, struct err *e)
{
    return least_of(m, m->holders, x, e) || least_of(m, m->line, x, e) ? -1 : 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int fetch(struct model *m, int bucket, struct err *e)
{
    return bucket > m->shape.n_layers ? model_fetch_head(m, e) : model_fetch(m, bucket, e);
}

/* Returns the index of the first tensor of a bucket that has NaN or infinity. Returns `found` if
 * tensor `found` comes before that tensor. */
static int64_t look_at_bucket(struct model *m, int bucket, int64_t found)
{
    int first, end;
    param_range(&m->shape, bucket, &first, &end);
    for (int i = first; i < end && i < found; i++)
        if (tensor_holds(m->be, stored_weight(m, bucket, i - first))) found = i;
    return found;
}

/* Sets *found to the index of the first tensor of the weights that has NaN or infinity, or to
 * FINITE_NONE. Collective. */
static int find_tensor(struct model *m, int64_t *found, struct err *e)
{
    const struct pipe *s = &m->plan->pipe;
    *found = FINITE_NONE;
    /* continues to the last bucket, because all ranks fetch each bucket together */
    for (int b = pipe_begin(s); b < pipe_end(s); b++) {
        if (fetch(m, b, e)) return -1;
        *found = look_at_bucket(m, b, *found);
    }
    if (m->be->ops->sync && m->be->ops->sync(m->be, e)) return -1;
    return finite_least(m, found, e);
}

int finite_weights(struct model *m, char name[64], struct err *e)
{
    struct param p = {.name = ""};
    int64_t found;
    if (find_tensor(m, &found, e)) return -1;
    if (found != FINITE_NONE) param_get(&m->shape, (int)found, &p);
    memcpy(name, p.name, sizeof p.name);
    return 0;
}

/* The place of a bad element in the weights. The element is NaN or infinite, or it is the first of
 * a block whose scale or least value is NaN or infinite. */
struct bad_place {
    bool there, block, past; /* past: the scale or least value of the block does not fit in fp16 */
    /* index of the element in the tensor, or in this rank's slice of the tensor */
    int64_t row, col;
};

/* Returns the index of the first element of a tensor of numbers that is NaN or infinity. Returns
 * -1 if all elements are finite. */
static int64_t first_bad(struct be *be, struct tensor t)
{
    float room[LOOK];
    for (int64_t at = 0; at < t.rows * t.cols; at += LOOK) {
        const int64_t left = t.rows * t.cols - at, n = left < LOOK ? left : LOOK;
        if (dtype_panels(t.dtype))
            panels_get(t, at, n, room);
        else
            host_copy_out(be, t.dtype, (char *)t.data + at * dtype_size(t.dtype), room, n);
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(room[i])) return at + i;
    }
    return -1;
}

/* Finds the place of the bad element in tensor `found`. Collective. */
static int find_place(struct model *m, int64_t found, struct bad_place *out, struct err *e)
{
    const struct pipe *s = &m->plan->pipe;
    int64_t place = FINITE_NONE, cols = 1;
    *out = (struct bad_place){0};
    for (int b = pipe_begin(s); b < pipe_end(s); b++) {
        int first, end;
        bool past = false;
        param_range(&m->shape, b, &first, &end);
        if (found < first || found >= end) continue;
        if (fetch(m, b, e)) return -1;
        const struct tensor t = stored_weight(m, b, (int)found - first);
        const bool block = dtype_quant(t.dtype);
        const int64_t at = block ? host_blocks_not_finite(m->be, t, &past) : first_bad(m->be, t);
        if (at >= 0) place = at << 2 | block << 1 | past;
    }
    if (finite_least(m, &place, e)) return -1;
    if (place == FINITE_NONE) return 0;
    struct param p;
    param_get(&m->shape, (int)found, &p);
    if (p.cols) cols = p.cols;
    *out = (struct bad_place){true, place & 2, place & 1, (place >> 2) / cols, (place >> 2) % cols};
    return 0;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Packs the place of a NaN or infinity into one number: the count of operations so far, the
 * section, and the index of the operation. An earlier operation gives a smaller number, and every
 * rank runs the same operations. */
#define FIND(n, b, op) ((n) << 24 | (int64_t)(b) << 8 | (op))

_Static_assert(SECTION_MAX < 1 << 16 && PROG_OPS < 1 << 8, "they fit");

void finite_look(struct model *m, int b, int op)
{
    struct section_watch *w = &m->prog.watch;
    const int v = section_at(m, b).p->op[op].out[0];
    w->n_ops++;
    if (FIND(w->n_ops, b, op) >= w->first || v == PROG_NONE || !m->prog.frame.value[v].data) return;
    if (tensor_holds(m->be, m->prog.frame.value[v])) w->first = FIND(w->n_ops, b, op);
}

/* Describes a place that FIND() has packed, such as "the output of
 * model.layers.2.mlp.down_proj.weight" or "the attention of model.layers.2". */
static void describe(const struct model *m, int64_t find, char *out, size_t size)
{
    const int b = (int)(find >> 8 & 0xffff);
    const struct program *prog = section_at(m, b).p;
    const struct op *o = &prog->op[find & 0xff];
    const bool adapts = o->kind == OP_ADAPT;
    char prefix[64];
    struct param p;
    int first, last;
    if (adapts) o = &prog->op[prog_writer(prog, o->in[0])]; /* the product that has the adapter */
    /* if an operation attends, its weights are sinks */
    if (o->n_w > 0 && o->w >= 0 && !op_rules[o->kind]->attends) {
        param_range(&m->shape, b, &first, &last);
        param_get(&m->shape, first + o->w, &p);
        snprintf(out, size, "the output of %s%s", p.name, adapts ? " with its adapter" : "");
        return;
    }
    const char *name = op_rules[o->kind]->name;
    param_prefix(prog, b, prefix);
    if (b == 0 || b > m->shape.n_layers)
        snprintf(out, size, "the %s %s the layers", name, b ? "after" : "before");
    else
        snprintf(out, size, "the %s of %.*s", name, (int)strlen(prefix) - 1, prefix);
}

/* ---- the sentence ---------------------------------------------------------------------------- */

int finite_where(struct model *m, const struct finite_again *x, char where[FINITE_WHERE],
                 struct err *e)
{
    struct section_watch *w = &m->prog.watch;
    *where = 0;
    *w = (struct section_watch){.on = true, .first = FINITE_NONE};
    const int rc = x->again(x->arg, e);
    w->on = false;
    if (rc || finite_least(m, &w->first, e)) return -1;
    if (w->first != FINITE_NONE) describe(m, w->first, where, FINITE_WHERE);
    return 0;
}

/* Fails with an error about a tensor of the weights. */
static int blame_weights(struct model *m, int64_t found, struct err *e, const char *what)
{
    const bool fp16 = m->dtype == DT_F16;
    struct bad_place b;
    struct param p;
    char where[96] = "";
    if (find_place(m, found, &b, e)) return -1;
    param_get(&m->shape, (int)found, &p);
    if (b.there)
        snprintf(where, sizeof where, " (row %lld, %scolumn %lld%s)", (long long)b.row,
                 b.block ? "from " : "", (long long)b.col,
                 m->plan->tp > 1 ? " of a rank's slice" : "");
    if (b.past)
        return err_field(e, ERR_CORRUPT, "model.weights",
                         "%s is NaN or infinity, since a block of tensor %s%s has a scale or a "
                         "smallest value past fp16's 65504: set model.weights to \"model\"",
                         what, p.name, where);
    const bool listed = p.adapter && m->shape.adapters.n;
    const char *field = listed ? "model.adapters" : p.adapter ? "model.adapter" : "model.path";
    if (listed) m->bad_adapter = p.of_adapter;
    const char *whose = p.adapter ? "adapter" : p.saved ? "weights or the adapter" : "weights";
    return err_field(e, ERR_CORRUPT, field,
                     "%s is NaN or infinity, since tensor %s of the %s holds one%s%s: replace "
                     "the %s",
                     what, p.name, whose, where,
                     fp16 && !b.block ? " (or a number past fp16's 65504)" : "", whose);
}

static int blame(struct model *m, const struct finite_again *x, struct err *e, const char *what)
{
    const bool fp16 = m->dtype == DT_F16;
    int64_t found;
    char where[FINITE_WHERE] = "";
    if (find_tensor(m, &found, e)) return -1;
    if (found != FINITE_NONE) return blame_weights(m, found, e, what);
    if (x && finite_where(m, x, where, e)) return -1;
    return err_field(e, ERR_CORRUPT, fp16 ? "precision.params" : "model.path",
                     "%s is NaN or infinity though all weights are finite%s%s: %s", what,
                     x ? ", and first so is " : "", x && !*where ? "a logit" : where,
                     fp16 ? "set precision.params to bf16 or fp32, since fp16 ends at 65504"
                          : "use weights that are not too large");
}

int finite_blame(struct model *m, const struct finite_again *x, struct err *e, const char *fmt, ...)
{
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return blame(m, x, e, what);
}

static int forward_again(void *arg, struct err *e)
{
    struct model *m = arg;
    return model_forward(m, &m->batch, e);
}

int finite_blame_forward(struct model *m, struct err *e, const char *fmt, ...)
{
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return blame(m, &(struct finite_again){forward_again, m}, e, what);
}
