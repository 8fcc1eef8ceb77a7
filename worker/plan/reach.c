/* reach.c: computes from the documents the range of keys that a segment's queries see, and tells
 * which ranks need which keys. */
#include "worker/plan/reach.h"

#include "api/core/assert.h"

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static struct reach reach_of(const struct reach_documents *d, int64_t first, int64_t end)
{
    struct reach r = {0, 0, 0};
    end = min64(end, d->n_tokens);
    if (first >= end) return r;
    r.lo = d->at(d->arg, first).start;
    r.meets = d->at(d->arg, end - 1).end;
    r.hi = d->causal ? end : r.meets;
    return r;
}

void reach_make(struct reach_map *map, const struct shard *sh, const struct reach_documents *d)
{
    map->n = sh->P * sh->n_segs;
    assert(map->n <= REACH_SEGS);
    for (int i = 0; i < map->n; i++)
        map->seg[i] = reach_of(d, i * sh->seg_len, (i + 1) * sh->seg_len);
}

const struct reach_map *reach_window(const struct reach_map *map, const struct shard *sh,
                                     int64_t window, bool causal, struct reach_map *room)
{
    if (!window || !map || !map->n) return map;
    *room = *map;
    for (int i = 0; i < map->n; i++) {
        struct reach *r = &room->seg[i];
        if (r->lo >= r->hi) continue; /* all padding */
        r->lo = max64(r->lo, i * sh->seg_len - window + 1);
        if (!causal) r->hi = min64(r->hi, (i + 1) * sh->seg_len - 1 + window);
        r->meets = r->hi;
    }
    return room;
}

/* Returns a range that includes the keys that either segment sees. If a segment sees no key, it
 * has only padding. */
static struct reach joined(struct reach a, struct reach b)
{
    if (a.lo >= a.meets) return b;
    if (b.lo >= b.meets) return a;
    return (struct reach){min64(a.lo, b.lo), max64(a.hi, b.hi), max64(a.meets, b.meets)};
}

const struct reach_map *reach_groups(const struct reach_map *map, const struct shard *sh,
                                     struct reach_map *room)
{
    if (!map || !map->n || sh->u == 1 || sh->rank_bits) return map;
    assert(map->n % sh->u == 0);
    room->n = map->n / sh->u;
    for (int i = 0; i < room->n; i++) {
        room->seg[i] = map->seg[i * sh->u];
        for (int k = 1; k < sh->u; k++)
            room->seg[i] = joined(room->seg[i], map->seg[i * sh->u + k]);
    }
    return room;
}

/* Returns the reach of segment c of rank q. q is the shard of that rank. */
static const struct reach *seen_by(const struct reach_map *map, const struct shard *q, int c)
{
    return &map->seg[q->pos[c] / q->seg_len];
}

/* Tells whether rank q needs keys of rank j, which the ring must then bring. */
static bool meets(const struct reach_map *map, const struct shard *sh, int q, int j)
{
    if (!map || !map->n) return true;
    const struct shard from = shard_of(sh, j), to = shard_of(sh, q);
    for (int c = 0; c < sh->n_segs; c++)
        for (int g = 0; g < sh->n_segs; g++) {
            const struct reach *r = seen_by(map, &to, c);
            const int64_t k0 = from.pos[g], k1 = k0 + sh->seg_len;
            if (r->lo < r->meets && r->lo < k1 && r->meets > k0) return true;
        }
    return false;
}

int reach_far(const struct reach_map *map, const struct shard *sh, int j)
{
    int i = sh->P - 1;
    while (i > 0 && !meets(map, sh, (j + i) % sh->P, j)) i--;
    return i;
}

int reach_near(const struct reach_map *map, const struct shard *sh, int j)
{
    for (int i = 1; i < sh->P; i++)
        if (meets(map, sh, (j + i) % sh->P, j)) return i;
    return 0;
}

struct reach_rows reach_rows(const struct reach_map *map, const struct shard *sh, int q, int j,
                             int g)
{
    const int64_t n = sh->seg_len, k0 = shard_of(sh, j).pos[g];
    const struct shard to = shard_of(sh, q);
    int64_t lo = n, hi = 0;
    if (!map || !map->n) return (struct reach_rows){0, n};
    for (int c = 0; c < sh->n_segs; c++) {
        const struct reach *r = seen_by(map, &to, c);
        const int64_t a = max64(r->lo - k0, 0), z = min64(r->hi - k0, n);
        if (a >= z) continue;
        lo = min64(lo, a);
        hi = max64(hi, z);
    }
    return lo < hi ? (struct reach_rows){lo, hi - lo} : (struct reach_rows){0, 0};
}
