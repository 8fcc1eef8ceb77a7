/* zero_frozen.c: divides the frozen part of a bucket into shares of nearly equal bytes. With
 * weights in blocks, a share begins where a panel of a matrix begins (api/core/quant.h), or at a
 * multiple of 16 elements of a weight that is not in blocks. */
#include "api/core/quant.h"
#include "api/core/room.h"
#include "worker/plan/zero.h"

static int64_t share(int64_t n, int w, int W)
{
    return n / W * w + n % W * w / W;
}

static bool in_blocks(const struct program *p)
{
    for (int i = 0; i < p->n_weights; i++)
        if (p->weight[i].stored) return true;
    return false;
}

/* A place at which a share may begin. */
struct border {
    int64_t element; /* of the section */
    int64_t byte;    /* of the section's memory */
};

/* Returns the first border of a weight at byte `want` or after it. The weight begins at byte `at`.
 * If it has no such border, returns an element past its end. */
static struct border border_of(const struct weight *w, int64_t unit, int64_t at, int64_t want)
{
    const int64_t elements = w->stored ? QUANT_ROWS * w->cols : PROG_ALIGN;
    const int64_t bytes = w->stored ? quant_size(w->stored, QUANT_ROWS, w->cols) : elements * unit;
    const int64_t n = want > at ? (want - at + bytes - 1) / bytes : 0;
    return (struct border){w->offset + n * elements, at + n * bytes};
}

/* Returns the first border of the section's frozen weights at byte `want` or after it. Their bytes
 * are in the order of their elements. A joined weight may begin between two multiples of 16
 * elements, and then has no border. */
static struct border border_after(const struct program *p, int64_t unit, const int64_t *at,
                                  struct border end, int64_t want)
{
    for (int i = 0; i < p->n_weights; i++) {
        const struct weight *w = &p->weight[i];
        if (!w->frozen || w->offset % PROG_ALIGN) continue;
        const struct border b = border_of(w, unit, at[i], want);
        if (b.element < w->offset + prog_count(w)) return b;
    }
    return end;
}

static void cut_panels(struct zero *z, enum zero_kind k, const struct program *p)
{
    int64_t *at = room_take(PROG_WEIGHTS * sizeof *at);
    const struct border end = {z->len[k], z->size[k]};
    const int64_t first = z->trained[k] * z->unit;
    store_places(p, z->unit, at);
    for (int w = 0; w <= z->W; w++) {
        struct border b = {z->trained[k], first};
        if (w == z->W) b = end;
        if (w > 0 && w < z->W)
            b = border_after(p, z->unit, at, end, first + share(end.byte - first, w, z->W));
        z->frozen[k][w] = b.element - z->trained[k];
        z->frozen_at[k][w] = b.byte - first;
    }
    room_give(at);
}

void zero_frozen_cut(struct zero *z, enum zero_kind k, const struct program *p)
{
    /* both sizes are multiples of PROG_ALIGN */
    const int64_t n = (z->len[k] - z->trained[k]) / PROG_ALIGN;
    if (n && in_blocks(p)) {
        cut_panels(z, k, p);
        return;
    }
    for (int w = 0; w <= z->W; w++) {
        z->frozen[k][w] = share(n, w, z->W) * PROG_ALIGN;
        z->frozen_at[k][w] = z->frozen[k][w] * z->unit;
    }
}
