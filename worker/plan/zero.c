#include "worker/plan/zero.h"

#include <assert.h>
#include "api/core/mem.h"
#include "worker/plan/plan.h"

enum { ALIGN = 16 };

void zero_tensors(int n_layers, int n_tensors, int b, int *first, int *last)
{
    *first = b == 0 ? 0 : 1 + (b - 1) * PARAM_PER_LAYER;
    *last = b == 0 ? 1 : b <= n_layers ? *first + PARAM_PER_LAYER : n_tensors;
}

int64_t zero_begin(const struct zero *z, int b)
{
    const enum zero_kind k = zero_kind(z, b);
    return z->begin[k] + (k == ZERO_LAYER ? (b - 1) * z->len[k] : 0);
}

int64_t zero_len(const struct zero *z, int b)
{
    return z->len[zero_kind(z, b)];
}

int zero_bucket(const struct zero *z, int64_t offset)
{
    if (offset < z->begin[ZERO_LAYER]) return 0;
    if (offset >= z->begin[ZERO_HEAD]) return z->n_layers + 1;
    return 1 + (int)((offset - z->begin[ZERO_LAYER]) / z->len[ZERO_LAYER]);
}

struct zero_range zero_range(const struct zero *z, int b, int w)
{
    const int64_t *cut = z->cut[zero_kind(z, b)], begin = zero_begin(z, b);
    return (struct zero_range){begin + cut[w], begin + cut[w + 1]};
}

static int64_t room(const struct zero *z, enum zero_kind k, int w)
{
    return mem_round(z->cut[k][w + 1] - z->cut[k][w], ALIGN);
}

int64_t zero_at(const struct zero *z, int b, int w)
{
    if (b == 0) return 0;
    const int64_t layers = b <= z->n_layers + 1 ? b - 1 : z->n_layers;
    const int64_t head = b > z->n_layers + 1 ? room(z, ZERO_HEAD, w) : 0;
    return room(z, ZERO_EMBED, w) + layers * room(z, ZERO_LAYER, w) + head;
}

int64_t zero_window_at(const struct zero *z, int b)
{
    return z->tied && b == z->n_layers + 1 ? z->len[ZERO_EMBED] : 0;
}

int64_t zero_window(const struct zero *z)
{
    int64_t n = z->len[ZERO_HEAD] + (z->tied ? z->len[ZERO_EMBED] : 0);
    if (z->len[ZERO_EMBED] > n) n = z->len[ZERO_EMBED];
    return z->len[ZERO_LAYER] > n ? z->len[ZERO_LAYER] : n;
}

int64_t zero_first_unit(const struct zero *z, int b)
{
    if (b == 0) return 0;
    return z->n_units[ZERO_EMBED] + (b - 1) * z->n_units[ZERO_LAYER];
}

int64_t zero_units(const struct zero *z)
{
    return zero_first_unit(z, z->n_layers + 1) + z->n_units[ZERO_HEAD];
}

/* ---- units ----------------------------------------------------------------------------------- */

void zero_walk(struct zero_walk *w, const struct zero *z, const struct model_shape *m, int b)
{
    *w = (struct zero_walk){.m = m, .unit = -1};
    zero_tensors(z->n_layers, param_tensors(m), b, &w->tensor, &w->last);
    const int64_t len = zero_len(z, b);
    w->target = len / ZERO_UNITS;
    if (w->target > ZERO_UNIT_SIZE) w->target = ZERO_UNIT_SIZE;
    if (w->target < len / ZERO_UNITS_MAX) w->target = len / ZERO_UNITS_MAX;
}

bool zero_next(struct zero_walk *w)
{
    struct param p;
    if (w->tensor == w->last) return false;
    param_get(w->m, w->tensor, &p);
    const int64_t rows = p.cols ? p.rows : 1, cols = p.cols ? p.cols : p.rows;
    const int64_t step = w->target > cols ? w->target / cols : 1;
    const int64_t next = w->row + step < rows ? w->row + step : rows;
    w->begin = p.offset + w->row * cols;
    w->end = p.offset + next * cols;
    w->row = next;
    w->unit++;
    if (next < rows) return true;
    w->row = 0;
    w->tensor++;
    return true;
}

/* cut[w] is the start of the unit whose border is nearest to w / W of the bucket. */
static void cut_bucket(struct zero *z, const struct model_shape *m, int b)
{
    const enum zero_kind k = zero_kind(z, b);
    const int64_t begin = zero_begin(z, b), len = zero_len(z, b);
    int64_t *cut = z->cut[k], *units = z->unit_cut[k];
    struct zero_walk u;
    for (int w = 0; w <= z->W; w++) cut[w] = units[w] = 0;
    for (zero_walk(&u, z, m, b); zero_next(&u);) {
        if (u.end - u.begin > z->largest_unit) z->largest_unit = u.end - u.begin;
        for (int w = 1; w < z->W; w++) {
            const int64_t want = len / z->W * w + len % z->W * w / z->W, at = u.begin - begin;
            const int64_t now = want > cut[w] ? want - cut[w] : cut[w] - want;
            if ((want > at ? want - at : at - want) >= now) continue;
            cut[w] = at;
            units[w] = u.unit;
        }
    }
    z->n_units[k] = u.unit + 1;
    cut[z->W] = len;
    units[z->W] = u.unit + 1;
}

void zero_init(struct zero *z, const struct model_shape *m, int W)
{
    struct param_map at;
    param_map(m, &at);
    assert(W >= 1 && W <= JOB_MAX_RANKS);
    *z = (struct zero){.W = W, .n_layers = m->n_layers, .tied = m->tied};
    z->begin[ZERO_LAYER] = z->len[ZERO_EMBED] = at.layer0;
    z->len[ZERO_LAYER] = at.layer_stride;
    z->begin[ZERO_HEAD] = at.norm;
    z->len[ZERO_HEAD] = at.end - at.norm;
    cut_bucket(z, m, 0);
    cut_bucket(z, m, 1);
    cut_bucket(z, m, z->n_layers + 1);
    for (int w = 0; w < W; w++) {
        const int64_t n = zero_at(z, zero_buckets(z), w);
        if (n > z->shard_max) z->shard_max = n;
    }
}
