/* merge.c: reads weights, and adds the products of their adapters. */
#include "worker/ckpt/merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/mem.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/merge_sizes.h"
#include "worker/program/adapt.h"

struct merge {
    const struct ckpt_flow *flow;
    float scale;
    int64_t rank;
    float bound;        /* elements of this magnitude and above are refused; 0 if none is refused */
    struct param *list; /* in the order of offsets */
    struct param *sorted; /* by name */
    int n;
    int at; /* the tensor that was read last; -1 before the first */
    float *own, *room;
    int64_t used;
    float *A, *B; /* [rank, cols] and [rows, rank] of that tensor, in room; NULL if it has no
                   * adapter */
};

struct merge *merge_open(const struct model_shape *m, const struct ckpt_flow *flow, float *room,
                         struct err *e)
{
    struct merge_sizes sizes;
    struct merge *g = calloc(1, sizeof *g);
    if (!g) {
        err_set(e, ERR_IO, "out of memory to merge adapters");
        return NULL;
    }
    *g = (struct merge){.flow = flow,
                        .scale = (float)m->adapter.scale,
                        .rank = m->adapter.rank,
                        .room = room,
                        .at = -1};
    g->list = hf_list(m, &g->n, e);
    g->sorted = g->list ? hf_sorted(m, &g->n, e) : NULL;
    if (g->sorted && room) return g;
    merge_sizes(m, &sizes);
    g->room = g->own = g->sorted ? malloc((size_t)sizes.adapter * sizeof *g->own) : NULL;
    if (g->own) return g;
    if (g->sorted) err_set(e, ERR_IO, "out of memory for %lld elements", (long long)sizes.adapter);
    merge_close(g);
    return NULL;
}

void merge_close(struct merge *g)
{
    if (!g) return;
    free(g->list), free(g->sorted), free(g->own);
    free(g);
}

int64_t merge_used(const struct merge *g)
{
    return g->used;
}

/* ---- refused elements ------------------------------------------------------------------------ */

void merge_refuse(struct merge *g, enum dtype t)
{
    /* From these numbers on, elements are rounded to infinity. */
    g->bound = t == DT_F16 ? 65520 : t == DT_BF16 ? 0x1.ffp127f : INFINITY;
}

static bool all_below(const float *x, int64_t n, float bound)
{
    int bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= !(fabsf(x[i]) < bound);
    return !bad;
}

/* Refuses an element of a tensor that the adapter has. */
static int refuse_adapter(const struct param *p, struct err *e)
{
    return err_field(e, ERR_INVALID, "model.adapter",
                     "model.adapter has an element of %s that is not a finite number: give an "
                     "adapter of a training that did not diverge",
                     p->name);
}

/* Judges element i of tensor p, whose merged value x is not below the bound. */
static int judge(const struct merge *g, const struct param *p, int64_t i, float x, struct err *e)
{
    const bool half = g->bound < 0x1p17f;
    float own = x;
    if (isfinite(x))
        return err_field(
            e, ERR_INVALID, "precision.params",
            "precision.params \"%s\" has no number as large as %g, which is an element "
            "of the merged %s: set precision.params \"%s\"",
            half ? "fp16" : "bf16", (double)fabsf(x), p->name, half ? "bf16" : "fp32");
    if (p->saved) return refuse_adapter(p, e);
    if (!g->A) return 0;
    if (g->flow->read(g->flow->arg, CKPT_WEIGHTS, p->offset + i, 1, &own, e)) return -1;
    if (!isfinite(own)) return 0;
    return err_field(e, ERR_INVALID, "model.adapter",
                     "model.adapter added to %s gives an element that fp32 does not hold: give an "
                     "adapter of a training that did not diverge",
                     p->name);
}

static int check(const struct merge *g, const struct param *p, int64_t at, int64_t n,
                 const float *x, struct err *e)
{
    if (!(g->bound > 0) || all_below(x, n, g->bound)) return 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) < g->bound) && judge(g, p, at + i, x[i], e)) return -1;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads a whole tensor of an adapter. */
static int read_tensor(const struct merge *g, const struct param *p, float *x, struct err *e)
{
    for (int64_t i = 0; i < p->count; i += ST_CHUNK) {
        const int64_t n = p->count - i < ST_CHUNK ? p->count - i : ST_CHUNK;
        if (g->flow->read(g->flow->arg, CKPT_WEIGHTS, p->offset + i, n, x + i, e)) return -1;
    }
    if (g->bound > 0 && !all_below(x, p->count, INFINITY)) return refuse_adapter(p, e);
    return 0;
}

/* Finds matrix "lora_A" or "lora_B" of the adapter of weight p. Returns NULL if it has none. */
static const struct param *matrix_of(const struct merge *g, const struct param *p, const char *part)
{
    const int n = prog_module_in(p->name);
    char name[sizeof p->name + 16];
    if (n < 0) return NULL;
    snprintf(name, sizeof name, "%.*s.%s%s", n, p->name, part, p->name + n);
    const struct param *found = hf_find_param(g->sorted, g->n, name);
    return found && found->adapter ? found : NULL;
}

static bool has(const struct param *p, int64_t offset)
{
    return offset >= p->offset && offset < p->offset + p->count;
}

/* Finds the tensor that has element `offset`. */
static int find(const struct merge *g, int64_t offset)
{
    int low = 0, high = g->n - 1;
    while (low < high) {
        const int mid = (low + high + 1) / 2;
        if (g->list[mid].offset <= offset)
            low = mid;
        else
            high = mid - 1;
    }
    assert(has(&g->list[low], offset));
    return low;
}

/* Turns to the tensor that has element `offset`. */
static int turn(struct merge *g, int64_t offset, struct err *e)
{
    if (g->at >= 0 && has(&g->list[g->at], offset)) return 0;
    const int at = find(g, offset);
    const struct param *p = &g->list[at];
    const struct param *a = matrix_of(g, p, "lora_A"), *b = matrix_of(g, p, "lora_B");
    g->A = g->B = NULL;
    g->at = -1;
    if (a) {
        float *const B = g->room + mem_round(a->count, PLAN_MERGE_ALIGN);
        assert(b && a->cols == p->cols && b->rows == p->rows);
        if (read_tensor(g, a, g->room, e) || read_tensor(g, b, B, e)) return -1;
        g->A = g->room;
        g->B = B;
        const int64_t used = B - g->room + mem_round(b->count, PLAN_MERGE_ALIGN);
        if (used > g->used) g->used = used;
    }
    g->at = at;
    return 0;
}

/* Elements [at, at + n) of a tensor of `cols` columns, to which scale B A is added. */
struct adding {
    const struct merge *g;
    int64_t cols, at, n;
    float *out;
};

/* columns of a task; A has this number of columns for all rows of a call in the cache */
enum { STRIP = 512 };

/* Adds scale B A to the columns of a strip. Each element's sum is in the order of the rank. */
static void add_strip(void *arg, int64_t strip, int worker)
{
    const struct adding *w = arg;
    const struct merge *g = w->g;
    float d[STRIP];
    (void)worker;
    for (int64_t row = w->at / w->cols; row * w->cols < w->at + w->n; row++) {
        int64_t from = row * w->cols + strip * STRIP, end = from + STRIP;
        if (end > (row + 1) * w->cols) end = (row + 1) * w->cols;
        if (from < w->at) from = w->at;
        if (end > w->at + w->n) end = w->at + w->n;
        const int64_t n = end - from, col = from - row * w->cols;
        if (n <= 0) continue;
        memset(d, 0, (size_t)n * sizeof *d);
        for (int64_t k = 0; k < g->rank; k++) {
            const float b = g->B[row * g->rank + k];
            const float *const a = g->A + k * w->cols + col;
            for (int64_t i = 0; i < n; i++) d[i] += b * a[i];
        }
        for (int64_t i = 0; i < n; i++) w->out[from - w->at + i] += g->scale * d[i];
    }
}

static void add(const struct merge *g, const struct param *p, int64_t at, int64_t n, float *out)
{
    struct adding w = {g, p->cols, at, n, out};
    const int64_t n_strips = (p->cols + STRIP - 1) / STRIP;
    if (g->flow->be)
        be_host_run(g->flow->be, add_strip, &w, n_strips);
    else
        for (int64_t i = 0; i < n_strips; i++) add_strip(&w, i, 0);
}

int merge_read(void *merge, int64_t offset, int64_t n, float *out, struct err *e)
{
    struct merge *g = merge;
    if (turn(g, offset, e) || g->flow->read(g->flow->arg, CKPT_WEIGHTS, offset, n, out, e))
        return -1;
    const struct param *p = &g->list[g->at];
    const int64_t at = offset - p->offset;
    if (g->A) add(g, p, at, n, out);
    return check(g, p, at, n, out, e);
}
