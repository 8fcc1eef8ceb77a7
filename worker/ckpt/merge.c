/* merge.c: reads weights, and adds the products of their adapters. */
#include "worker/ckpt/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

struct merge {
    const struct ckpt_flow *flow;
    float scale;
    int64_t rank;
    struct param *list;
    int n;
    int at;       /* the tensor that was read last; -1 before the first */
    float *A, *B; /* [rank, cols] and [rows, rank] of that tensor; NULL if it has no adapter */
};

struct merge *merge_open(const struct model_shape *m, const struct ckpt_flow *flow, struct err *e)
{
    struct merge *g = calloc(1, sizeof *g);
    if (!g) {
        err_set(e, ERR_IO, "out of memory to merge adapters");
        return NULL;
    }
    *g = (struct merge){
        .flow = flow, .scale = (float)m->adapter.scale, .rank = m->adapter.rank, .at = -1};
    g->list = hf_list(m, &g->n, e);
    if (g->list) return g;
    merge_close(g);
    return NULL;
}

void merge_close(struct merge *g)
{
    if (!g) return;
    free(g->list), free(g->A), free(g->B);
    free(g);
}

/* Reads a whole tensor into new memory. */
static float *read_tensor(const struct merge *g, const struct param *p, struct err *e)
{
    float *x = malloc((size_t)p->count * sizeof *x);
    if (!x) {
        err_set(e, ERR_IO, "out of memory for %s", p->name);
        return NULL;
    }
    for (int64_t i = 0; i < p->count; i += ST_CHUNK) {
        const int64_t n = p->count - i < ST_CHUNK ? p->count - i : ST_CHUNK;
        if (!g->flow->read(g->flow->arg, CKPT_WEIGHTS, p->offset + i, n, x + i, e)) continue;
        free(x);
        return NULL;
    }
    return x;
}

/* Finds matrix "lora_A" or "lora_B" of the adapter of weight p. Returns NULL if it has none. */
static const struct param *matrix_of(const struct merge *g, const struct param *p, const char *part)
{
    static const char suffix[] = ".weight";
    const size_t n = strlen(p->name), k = sizeof suffix - 1;
    char name[sizeof p->name + 16];
    if (n <= k || strcmp(p->name + n - k, suffix)) return NULL;
    snprintf(name, sizeof name, "%.*s.%s%s", (int)(n - k), p->name, part, suffix);
    for (int i = 0; i < g->n; i++)
        if (g->list[i].adapter && !strcmp(g->list[i].name, name)) return &g->list[i];
    return NULL;
}

static bool has(const struct param *p, int64_t offset)
{
    return offset >= p->offset && offset < p->offset + p->count;
}

/* Turns to the tensor that has element `offset`. */
static int turn(struct merge *g, int64_t offset, struct err *e)
{
    if (g->at >= 0 && has(&g->list[g->at], offset)) return 0;
    for (g->at = 0; !has(&g->list[g->at], offset); g->at++) assert(g->at + 1 < g->n);
    const struct param *p = &g->list[g->at];
    const struct param *a = matrix_of(g, p, "lora_A"), *b = matrix_of(g, p, "lora_B");
    free(g->A), free(g->B);
    g->A = g->B = NULL;
    if (!a) return 0;
    assert(b && a->cols == p->cols && b->rows == p->rows);
    g->A = read_tensor(g, a, e);
    g->B = g->A ? read_tensor(g, b, e) : NULL;
    return g->B ? 0 : -1;
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

int merge_read(void *merge, int64_t offset, int64_t n, float *out, struct err *e)
{
    struct merge *g = merge;
    if (turn(g, offset, e) || g->flow->read(g->flow->arg, CKPT_WEIGHTS, offset, n, out, e))
        return -1;
    if (!g->A) return 0;
    const struct param *p = &g->list[g->at];
    struct adding w = {g, p->cols, offset - p->offset, n, out};
    const int64_t n_strips = (p->cols + STRIP - 1) / STRIP;
    if (g->flow->be)
        be_host_run(g->flow->be, add_strip, &w, n_strips);
    else
        for (int64_t i = 0; i < n_strips; i++) add_strip(&w, i, 0);
    return 0;
}
