#include "worker/plan/zero.h"

#include <assert.h>
#include "api/core/mem.h"
#include "worker/plan/plan.h"

enum { ALIGN = 16 };

/* Sum of x[kind] over the first n layers. */
static int64_t sum_layers(const struct zero *z, const int64_t x[ZERO_KIND_N], int n)
{
    int64_t sum = 0;
    if (z->n_kinds == 1) return n * x[ZERO_LAYER];
    for (int l = 0; l < n; l++) sum += x[ZERO_LAYER + z->layer[l]];
    return sum;
}

/* Sum of x[kind] over the buckets before b. */
static int64_t sum_before(const struct zero *z, const int64_t x[ZERO_KIND_N], int b)
{
    const int layers = b <= z->n_layers + 1 ? b - 1 : z->n_layers;
    if (b == 0) return 0;
    return x[ZERO_EMBED] + sum_layers(z, x, layers) + (b > z->n_layers + 1 ? x[ZERO_HEAD] : 0);
}

int64_t zero_begin(const struct zero *z, int b)
{
    return sum_before(z, z->len, b);
}

int64_t zero_len(const struct zero *z, int b)
{
    return z->len[zero_kind(z, b)];
}

int zero_bucket(const struct zero *z, int64_t offset)
{
    int l = 0;
    if (offset < z->len[ZERO_EMBED]) return 0;
    offset -= z->len[ZERO_EMBED];
    if (z->n_kinds == 1) {
        const int64_t b = offset / z->len[ZERO_LAYER];
        return b < z->n_layers ? 1 + (int)b : z->n_layers + 1;
    }
    for (; l < z->n_layers && offset >= z->len[ZERO_LAYER + z->layer[l]]; l++)
        offset -= z->len[ZERO_LAYER + z->layer[l]];
    return l + 1;
}

struct zero_range zero_range(const struct zero *z, int b, int w)
{
    const int64_t *cut = z->cut[zero_kind(z, b)], begin = zero_begin(z, b);
    return (struct zero_range){begin + cut[w], begin + cut[w + 1]};
}

int64_t zero_at(const struct zero *z, int b, int w)
{
    int64_t room[ZERO_KIND_N];
    for (int k = 0; k < ZERO_KIND_N; k++)
        room[k] = mem_round(z->cut[k][w + 1] - z->cut[k][w], ALIGN);
    return sum_before(z, room, b);
}

int64_t zero_window_at(const struct zero *z, int b)
{
    return z->tied && b == z->n_layers + 1 ? z->len[ZERO_EMBED] : 0;
}

int64_t zero_window(const struct zero *z)
{
    int64_t n = z->len[ZERO_HEAD] + (z->tied ? z->len[ZERO_EMBED] : 0);
    for (int k = 0; k < ZERO_KIND_N; k++)
        if (z->n_of[k] && z->len[k] > n) n = z->len[k];
    return n;
}

int64_t zero_first_unit(const struct zero *z, int b)
{
    return sum_before(z, z->n_units, b);
}

int64_t zero_units(const struct zero *z)
{
    return zero_first_unit(z, zero_buckets(z));
}

/* ---- groups ---------------------------------------------------------------------------------- */

struct rank_set zero_group(const struct zero *z, int rank)
{
    return rank_block(rank, z->W);
}

int zero_place(const struct zero *z, int rank)
{
    const struct rank_set group = zero_group(z, rank);
    return rank_set_index(&group, rank);
}

struct rank_set zero_owners(const struct zero *z, int rank)
{
    return rank_across(rank, z->W, z->W * z->n_groups);
}

void zero_cut_part(const struct zero *z, int64_t n, int64_t *cut)
{
    const int64_t K = z->n_groups;
    for (int k = 0; k <= K; k++) cut[k] = n / K * k + n % K * k / K;
}

/* ---- units ----------------------------------------------------------------------------------- */

void zero_walk(struct zero_walk *w, const struct zero *z, const struct model_shape *m, int b)
{
    struct param p[PROG_WEIGHTS];
    w->n = param_bucket(m, b, p, NULL);
    for (int i = 0; i < w->n; i++) {
        w->of[i].rows = p[i].cols ? p[i].rows : 1;
        w->of[i].cols = p[i].cols ? p[i].cols : p[i].rows;
        w->of[i].offset = p[i].offset;
    }
    w->tensor = 0;
    w->row = 0;
    w->unit = -1;
    const int64_t len = zero_len(z, b);
    w->target = len / ZERO_UNITS;
    if (w->target > ZERO_UNIT_SIZE) w->target = ZERO_UNIT_SIZE;
    if (w->target < len / ZERO_UNITS_MAX) w->target = len / ZERO_UNITS_MAX;
}

bool zero_next(struct zero_walk *w)
{
    if (w->tensor == w->n) return false;
    const int64_t rows = w->of[w->tensor].rows, cols = w->of[w->tensor].cols;
    const int64_t offset = w->of[w->tensor].offset;
    const int64_t step = w->target > cols ? w->target / cols : 1;
    const int64_t next = w->row + step < rows ? w->row + step : rows;
    w->begin = offset + w->row * cols;
    w->end = offset + next * cols;
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

/* The first bucket of each kind stands for all of it. */
static int first_of(const struct zero *z, enum zero_kind k)
{
    for (int b = 0; b < zero_buckets(z); b++)
        if (zero_kind(z, b) == k) return b;
    return -1;
}

void zero_init(struct zero *z, const struct model_shape *m, int W, int n_groups)
{
    struct family f;
    family_write(m, &f);
    assert(W >= 1 && n_groups >= 1 && W * n_groups <= JOB_MAX_RANKS);
    assert(m->n_layers <= ZERO_LAYERS_MAX);
    *z = (struct zero){.W = W,
                       .n_groups = n_groups,
                       .n_layers = m->n_layers,
                       .tied = m->tied,
                       .n_kinds = f.n_kinds};
    for (int l = 0; l < m->n_layers; l++) z->layer[l] = (uint8_t)family_layer_kind(m, l);
    z->len[ZERO_EMBED] = f.in.weights_size;
    z->len[ZERO_HEAD] = f.out.weights_size;
    for (int k = 0; k < f.n_kinds; k++) z->len[ZERO_LAYER + k] = f.layer[k].weights_size;
    for (int b = 0; b < zero_buckets(z); b++) z->n_of[zero_kind(z, b)]++;
    for (int k = 0; k < ZERO_KIND_N; k++)
        if (z->n_of[k]) cut_bucket(z, m, first_of(z, (enum zero_kind)k));
    for (int w = 0; w < W; w++) {
        const int64_t n = zero_at(z, zero_buckets(z), w);
        if (n > z->shard_max) z->shard_max = n;
    }
}
