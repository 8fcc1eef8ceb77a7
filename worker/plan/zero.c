/* zero.c: divides each bucket at the borders of units that are nearest to even shares, and
 * computes every offset from these divisions. */
#include "worker/plan/zero.h"

#include "api/core/assert.h"
#include "api/core/mem.h"
#include "api/core/room.h"
#include "worker/plan/plan.h"

static int64_t share(int64_t len, int w, int W)
{
    return len / W * w + len % W * w / W;
}

/* Returns the sum of x[kind] over the first n layers. */
static int64_t sum_layers(const struct zero *z, const int64_t x[ZERO_KIND_N], int n)
{
    int64_t sum = 0;
    if (z->n_kinds == 1) return n * x[ZERO_LAYER];
    for (int l = 0; l < n; l++) sum += x[ZERO_LAYER + z->layer[l]];
    return sum;
}

/* Returns the sum of x[kind] over the buckets before b. */
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

int64_t zero_trained(const struct zero *z, int b)
{
    return z->trained[zero_kind(z, b)];
}

int64_t zero_grad_begin(const struct zero *z, int b)
{
    return sum_before(z, z->trained, b);
}

int64_t zero_grad_owned(const struct zero *z)
{
    return zero_grad_begin(z, z->end) - zero_grad_begin(z, z->first);
}

static bool borrows_gradient(const struct zero *z)
{
    return z->borrows && z->tied_grads;
}

int64_t zero_grad_held(const struct zero *z)
{
    return zero_grad_owned(z) + (borrows_gradient(z) ? z->trained[ZERO_EMBED] : 0);
}

int64_t zero_grad_local(const struct zero *z, int b)
{
    if (z->borrows && b == 0) return zero_grad_owned(z);
    return zero_grad_begin(z, b) - zero_grad_begin(z, z->first);
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

int64_t zero_owned(const struct zero *z)
{
    return zero_begin(z, z->end) - zero_begin(z, z->first);
}

int64_t zero_held(const struct zero *z)
{
    return zero_owned(z) + (z->borrows ? z->len[ZERO_EMBED] : 0);
}

int64_t zero_local(const struct zero *z, int64_t offset)
{
    if (z->borrows && offset < z->len[ZERO_EMBED]) return zero_owned(z) + offset;
    return offset - zero_begin(z, z->first);
}

struct zero_range zero_range(const struct zero *z, int b, int w)
{
    const int64_t *cut = z->cut[zero_kind(z, b)], begin = zero_begin(z, b);
    return (struct zero_range){begin + cut[w], begin + cut[w + 1]};
}

struct zero_range zero_frozen_range(const struct zero *z, int b, int w)
{
    const int64_t *cut = z->frozen[zero_kind(z, b)];
    const int64_t begin = zero_begin(z, b) + zero_trained(z, b);
    return (struct zero_range){begin + cut[w], begin + cut[w + 1]};
}

/* Returns how many elements a shard has for rank w's trained part of a bucket of kind k. */
static int64_t room_of(const struct zero *z, int k, int w)
{
    return mem_round(z->cut[k][w + 1] - z->cut[k][w], PROG_ALIGN);
}

/* Returns the bytes that a shard of weights has for rank w's part of a bucket of kind k. */
static int64_t held_room(const struct zero *z, int k, int w)
{
    return room_of(z, k, w) * z->unit + z->frozen_at[k][w + 1] - z->frozen_at[k][w];
}

/* Returns the start of bucket b in a shard that has room[k] for each bucket of kind k. */
static int64_t place_of(const struct zero *z, const int64_t room[ZERO_KIND_N], int b)
{
    const int64_t own = sum_before(z, room, z->first);
    return sum_before(z, room, b == 0 && z->borrows ? z->end : b) - own;
}

int64_t zero_at(const struct zero *z, int b, int w)
{
    int64_t room[ZERO_KIND_N];
    for (int k = 0; k < ZERO_KIND_N; k++) room[k] = room_of(z, k, w);
    return place_of(z, room, b);
}

int64_t zero_held_at(const struct zero *z, int b, int w)
{
    int64_t room[ZERO_KIND_N];
    for (int k = 0; k < ZERO_KIND_N; k++) room[k] = held_room(z, k, w);
    return place_of(z, room, b);
}

int64_t zero_frozen_held_at(const struct zero *z, int b, int w)
{
    return zero_held_at(z, b, w) + room_of(z, zero_kind(z, b), w) * z->unit;
}

int64_t zero_held_max(const struct zero *z)
{
    int64_t most = 0;
    for (int w = 0; w < z->W; w++) {
        const int64_t lent = z->borrows ? held_room(z, ZERO_EMBED, w) : 0;
        const int64_t held = zero_held_at(z, z->end, w) + lent;
        if (held > most) most = held;
    }
    return most;
}

int64_t zero_size_before(const struct zero *z, int b)
{
    return sum_before(z, z->size, b);
}

int64_t zero_size(const struct zero *z)
{
    const int64_t lent = z->borrows ? z->size[ZERO_EMBED] : 0;
    return zero_size_before(z, z->end) - zero_size_before(z, z->first) + lent;
}

int64_t zero_window_at(const struct zero *z, int b)
{
    return z->tied && b == z->n_layers + 1 ? z->size[ZERO_EMBED] : 0;
}

int64_t zero_window(const struct zero *z)
{
    int64_t n = z->n_of[ZERO_HEAD] ? z->size[ZERO_HEAD] + (z->tied ? z->size[ZERO_EMBED] : 0) : 0;
    for (int k = 0; k < ZERO_KIND_N; k++)
        if (z->n_of[k] && z->size[k] > n) n = z->size[k];
    return n;
}

/* Returns the elements of a layer's place in the window of gradients. */
static int64_t layer_place(const struct zero *z)
{
    int64_t n = 0;
    for (int k = ZERO_LAYER; k < ZERO_KIND_N; k++)
        if (z->n_of[k] && z->trained[k] > n) n = z->trained[k];
    return mem_round(n, PROG_ALIGN);
}

int64_t zero_grad_window_at(const struct zero *z, int b)
{
    if (b == z->n_layers + 1) return z->tied_grads ? z->trained[ZERO_EMBED] : 0;
    return z->halves && b % 2 ? layer_place(z) : 0;
}

int64_t zero_grad_window(const struct zero *z)
{
    const int64_t beside = z->tied_grads ? z->trained[ZERO_EMBED] : 0;
    int64_t n = z->n_of[ZERO_HEAD] ? z->trained[ZERO_HEAD] + beside : 0;
    for (int k = 0; k < ZERO_KIND_N; k++)
        if (z->n_of[k] && z->trained[k] > n) n = z->trained[k];
    return z->halves && 2 * layer_place(z) > n ? 2 * layer_place(z) : n;
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
    return axes_rank_block(rank, z->W);
}

int zero_place(const struct zero *z, int rank)
{
    const struct rank_set group = zero_group(z, rank);
    return axes_rank_set_index(&group, rank);
}

struct rank_set zero_owners(const struct zero *z, int rank)
{
    return axes_rank_across(rank, z->W, z->W * z->n_groups);
}

void zero_cut_part(const struct zero *z, int64_t n, int64_t *cut)
{
    const int64_t K = z->n_groups;
    for (int k = 0; k <= K; k++) cut[k] = n / K * k + n % K * k / K;
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Adds the parts of a tensor, if the tensor is trained. No unit includes elements of two parts,
 * because different ranks of tensor parallelism may count the parts (slice_first). *number is the
 * index of the first part among the parts of all tensors of the bucket. It is increased by the
 * number of parts. */
static void add_tensor(struct zero_walk *w, const struct param *p, int n_fused, int *number)
{
    int64_t offset = p->offset;
    for (int i = 0; i < (n_fused ? n_fused : 1); i++) {
        const int at = (*number)++;
        if (!p->trained) continue;
        const int64_t rows = n_fused ? p->fused[i] : p->rows, n = w->n++;
        w->of[n].number = at;
        w->of[n].rows = p->cols ? rows : 1;
        w->of[n].cols = p->cols ? p->cols : rows;
        w->of[n].offset = offset;
        offset += w->of[n].rows * w->of[n].cols;
    }
}

void zero_walk(struct zero_walk *w, const struct zero *z, const struct model_shape *m, int b)
{
    struct param *p = room_take(PROG_WEIGHTS * sizeof *p);
    const int n = param_bucket(m, b, p, NULL);
    int number = 0;
    w->n = 0;
    for (int i = 0; i < n; i++) add_tensor(w, &p[i], m->tp > 1 ? p[i].n_fused : 0, &number);
    room_give(p);
    w->tensor = 0;
    w->row = 0;
    w->unit = -1;
    const int64_t len = zero_trained(z, b);
    w->target = len / ZERO_UNITS;
    if (w->target > ZERO_UNIT_SIZE) w->target = ZERO_UNIT_SIZE;
    if (w->target < len / ZERO_UNITS_MAX) w->target = len / ZERO_UNITS_MAX;
}

/* Returns the number of rows of a unit, for a tensor with `cols` columns. */
static int64_t unit_rows(const struct zero_walk *w, int64_t cols)
{
    return w->target > cols ? w->target / cols : 1;
}

bool zero_next(struct zero_walk *w)
{
    if (w->tensor == w->n) return false;
    const int64_t rows = w->of[w->tensor].rows, cols = w->of[w->tensor].cols;
    const int64_t offset = w->of[w->tensor].offset;
    const int64_t step = unit_rows(w, cols);
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

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Divides a bucket. cut[w] is the start of the unit that begins nearest to w / W of the bucket. If
 * two units are equally near, the first of them is used. The loop is over tensors instead of
 * units, because a choice makes hundreds of plans and a bucket has thousands of units. */
static void cut_bucket(struct zero *z, const struct model_shape *m, int b)
{
    const enum zero_kind k = zero_kind(z, b);
    const int64_t begin = zero_begin(z, b), len = zero_trained(z, b);
    int64_t *cut = z->cut[k], *units = z->unit_cut[k], before = 0, before_unit = 0, unit = 0;
    struct zero_walk u;
    int w = 1;
    cut[0] = units[0] = 0;
    zero_walk(&u, z, m, b);
    for (int i = 0; i < u.n; i++) {
        const int64_t rows = u.of[i].rows, cols = u.of[i].cols, step = unit_rows(&u, cols);
        const int64_t n = rows > step ? (rows + step - 1) / step : 1, stride = step * cols;
        const int64_t first = u.of[i].offset - begin, last = first + (n - 1) * stride;
        if (min64(step, rows) * cols > z->largest_unit) z->largest_unit = min64(step, rows) * cols;
        for (; w < z->W && share(len, w, z->W) <= last; w++) {
            const int64_t want = share(len, w, z->W);
            const int64_t j = want > first ? (want - first + stride - 1) / stride : 0;
            const int64_t at = first + j * stride, prev = j ? at - stride : before;
            const bool here = at - want < want - prev;
            cut[w] = here ? at : prev;
            units[w] = here ? unit + j : j ? unit + j - 1 : before_unit;
        }
        if (last > before) {
            before = last;
            before_unit = unit + n - 1;
        }
        unit += n;
    }
    for (; w < z->W; w++) cut[w] = before, units[w] = before_unit;
    z->n_units[k] = unit;
    cut[z->W] = len;
    units[z->W] = unit;
}

/* Returns the first bucket of a kind. All buckets of a kind have the same sizes. */
static int first_of(const struct zero *z, enum zero_kind k)
{
    for (int b = 0; b < zero_buckets(z); b++)
        if (zero_kind(z, b) == k) return b;
    return -1;
}

/* Sets the sizes of buckets of kind k, whose program is p. */
static void measure(struct zero *z, int k, const struct program *p)
{
    z->len[k] = p->weights_size;
    z->trained[k] = p->trained_size;
    z->size[k] = store_places(p, z->unit, NULL);
    zero_frozen_cut(z, (enum zero_kind)k, p);
}

void zero_init(struct zero *z, const struct model_shape *m, int W, int n_groups, int64_t unit)
{
    struct family *f = family_new(m);
    assert(W >= 1 && n_groups >= 1 && W * n_groups <= JOB_MAX_RANKS);
    assert(m->n_layers <= ZERO_LAYERS_MAX);
    *z = (struct zero){.W = W,
                       .n_groups = n_groups,
                       .n_layers = m->n_layers,
                       .tied = m->tied,
                       .unit = unit,
                       .tied_grads = m->tied && prog_learns(&f->out, PROG_TIED, 1),
                       .back_from = m->freeze.n_kinds ? m->freeze.first : 0,
                       .n_kinds = f->n_kinds};
    for (int l = 0; l < m->n_layers; l++) z->layer[l] = (uint8_t)family_layer_kind(m, l);
    measure(z, ZERO_EMBED, &f->in);
    measure(z, ZERO_HEAD, &f->out);
    for (int k = 0; k < f->n_kinds; k++) measure(z, ZERO_LAYER + k, &f->layer[k]);
    for (int b = 0; b < zero_buckets(z); b++) z->n_all[zero_kind(z, b)]++;
    for (int k = 0; k < ZERO_KIND_N; k++)
        if (z->n_all[k]) cut_bucket(z, m, first_of(z, (enum zero_kind)k));
    zero_set_stage(z, 0, zero_buckets(z));
    family_free(f);
}

void zero_set_stage(struct zero *z, int first, int end)
{
    z->first = first;
    z->end = end;
    z->borrows = z->tied && first > 0 && end == zero_buckets(z);
    z->shard_max = 0;
    for (int k = 0; k < ZERO_KIND_N; k++) z->n_of[k] = 0;
    for (int b = first; b < end; b++) z->n_of[zero_kind(z, b)]++;
    z->n_of[ZERO_EMBED] += z->borrows;
    for (int w = 0; w < z->W; w++) {
        const int64_t n = zero_at(z, z->end, w);
        if (n > z->shard_max) z->shard_max = n;
    }
}
