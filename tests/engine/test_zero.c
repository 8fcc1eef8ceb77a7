/* Compares which rank owns which elements (worker/plan/zero.h) with the list of tensors. Checks
 * the collectives in which each rank keeps or provides the elements that it owns, over views and
 * over all ranks, and their bytes. */
#include <stdlib.h>
#include "tests/lib/ledger_check.h"
#include "tests/lib/ranks.h"
#include "worker/comm/ledger.h"
#include "worker/plan/plan.h"
#include "worker/plan/volume.h"

static const struct model_shape shapes[] = {
    {.n_layers = 3,
     .width = 64,
     .n_heads = 8,
     .n_kv_heads = 2,
     .head_dim = 8,
     .ffn_width = 160,
     .vocab = 258},
    {.n_layers = 1,
     .width = 24,
     .n_heads = 3,
     .n_kv_heads = 1,
     .head_dim = 6,
     .ffn_width = 37,
     .vocab = 61,
     .tied = 1}, /* tensors with gaps after them */
    {.n_layers = 2,
     .width = 70000,
     .n_heads = 1,
     .n_kv_heads = 1,
     .head_dim = 2,
     .ffn_width = 3,
     .vocab = 5}, /* rows that are longer than a block of squares */
    {.n_layers = 80,
     .width = 8192,
     .n_heads = 64,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn_width = 28672,
     .vocab = 128256},
    {.n_layers = 1,
     .width = 1 << 20,
     .n_heads = 1,
     .n_kv_heads = 1,
     .head_dim = 2,
     .ffn_width = 1 << 20,
     .vocab = 1 << 27}, /* the largest size that a plan accepts, for which the computation must not
                         * be slow */
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- units ----------------------------------------------------------------------------------- */

/* Checks that the units of a bucket cover all rows of its tensors in order, and that each unit
 * consists of complete rows of one tensor. */
static void check_units(const struct model_shape *m, const struct zero *z, int b)
{
    const int64_t large = zero_len(z, b) / 4096, limit = large > 65536 ? large : 65536;
    struct zero_walk u;
    int64_t n = 0, elements = 0, units = 0, at = zero_begin(z, b);
    int first, last;
    param_range(m, b, &first, &last);
    for (int i = first; i < last; i++) {
        struct param p;
        param_get(m, i, &p);
        n += p.count;
    }
    int tensor = first;
    for (zero_walk(&u, z, m, b); zero_next(&u); units++) {
        struct param p;
        param_get(m, tensor, &p);
        if (u.begin >= p.offset + p.count) param_get(m, ++tensor, &p);
        const int64_t row = p.cols ? p.cols : p.rows;
        CHECK(u.unit == units && u.begin >= at && u.begin - at < 16 && u.end > u.begin);
        CHECK(u.begin >= p.offset && u.end <= p.offset + p.count);
        CHECK((u.begin - p.offset) % row == 0 && (u.end - p.offset) % row == 0);
        CHECK(u.end - u.begin <= limit || u.end - u.begin == row);
        CHECK(u.end - u.begin <= z->largest_unit);
        elements += u.end - u.begin;
        at = u.end;
    }
    CHECK(units <= 2 * 4096 + 9 * 4096 / 128);
    CHECK(elements == n && units == z->n_units[zero_kind(z, b)]);
}

static void test_units(void)
{
    for (int s = 0; s < N_SHAPES; s++) {
        struct zero z;
        int64_t units = 0;
        zero_init(&z, &shapes[s], 4, 1, 4);
        CHECK(zero_buckets(&z) == shapes[s].n_layers + 2);
        for (int b = 0; b < zero_buckets(&z); b += s == 3 && b > 1 && b < 80 ? 39 : 1)
            check_units(&shapes[s], &z, b);
        for (int b = 0; b < zero_buckets(&z); b++) {
            CHECK(zero_first_unit(&z, b) == units);
            units += z.n_units[zero_kind(&z, b)];
        }
        CHECK(zero_units(&z) == units);
    }
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* Checks that the ranges of ranks cover the flat layout in order, without gaps and overlaps, and
 * that each begins where a unit begins. */
static void check_ranges(const struct model_shape *m, const struct zero *z)
{
    int64_t at = 0;
    for (int b = 0; b < zero_buckets(z); b++) {
        CHECK(zero_begin(z, b) == at && zero_bucket(z, at) == b);
        CHECK(zero_bucket(z, at + zero_len(z, b) - 1) == b);
        for (int w = 0; w < z->W; w++) {
            const struct zero_range r = zero_range(z, b, w);
            CHECK(r.begin == at && r.end >= r.begin);
            at = r.end;
            /* Ranges are as even as units allow. A range may exceed its share by half a unit at
             * each end, and by a gap. */
            CHECK(r.end - r.begin <= zero_len(z, b) / z->W + z->largest_unit + 16);
        }
    }
    CHECK(at == param_count(m));
}

static void check_borders(const struct model_shape *m, const struct zero *z, int b)
{
    const enum zero_kind k = zero_kind(z, b);
    struct zero_walk u;
    int w = 0;
    for (zero_walk(&u, z, m, b); zero_next(&u);)
        for (; w < z->W && z->cut[k][w] == u.begin - zero_begin(z, b); w++)
            CHECK(z->unit_cut[k][w] == u.unit);
    CHECK_MSG(w == z->W, "bucket %d: the border of rank %d is no unit's", b, w);
    CHECK(z->unit_cut[k][z->W] == z->n_units[k] && z->cut[k][z->W] == zero_len(z, b));
}

/* Checks the borders of ranges. A range must begin and end at the unit borders that are nearest to
 * the borders of the rank's exact share. If two unit borders are equally near, the lower one must
 * be used. Also checks which unit is the largest. */
static void check_nearest(const struct model_shape *m, const struct zero *z, int b)
{
    const enum zero_kind k = zero_kind(z, b);
    const int64_t len = zero_len(z, b);
    struct zero_walk u;
    for (zero_walk(&u, z, m, b); zero_next(&u);) {
        const int64_t at = u.begin - zero_begin(z, b);
        CHECK(u.end - u.begin <= z->largest_unit);
        for (int w = 1; w < z->W; w++) {
            const int64_t want = len / z->W * w + len % z->W * w / z->W, cut = z->cut[k][w];
            const int64_t far = llabs(at - want), own = llabs(cut - want);
            CHECK_MSG(far > own || (far == own && at >= cut), "bucket %d, rank %d of %d", b, w,
                      z->W);
        }
    }
    CHECK(u.unit + 1 == z->n_units[k]);
}

/* Checks that a rank's parts are stored one after another in its shard, and that each part begins
 * at a multiple of 16 floats. */
static void check_shard(const struct zero *z, int w)
{
    int64_t end = 0;
    for (int b = 0; b < zero_buckets(z); b++) {
        const struct zero_range r = zero_range(z, b, w);
        CHECK(zero_at(z, b, w) >= end && zero_at(z, b, w) < end + 16 && zero_at(z, b, w) % 16 == 0);
        end = zero_at(z, b, w) + r.end - r.begin;
    }
    const int64_t all = zero_at(z, zero_buckets(z), w);
    CHECK(all >= end && all < end + 16 && all <= z->shard_max);
}

static void test_ranges(void)
{
    for (int s = 0; s < N_SHAPES; s++)
        for (int W = 1; W <= JOB_MAX_RANKS; W = W < 9 ? W + 1 : W * 2) {
            struct zero z;
            zero_init(&z, &shapes[s], W, 1, 4);
            check_ranges(&shapes[s], &z);
            check_borders(&shapes[s], &z, 0);
            check_borders(&shapes[s], &z, 1);
            check_borders(&shapes[s], &z, zero_buckets(&z) - 1);
            check_nearest(&shapes[s], &z, 0);
            check_nearest(&shapes[s], &z, 1);
            check_nearest(&shapes[s], &z, zero_buckets(&z) - 1);
            for (int w = 0; w < W; w++) check_shard(&z, w);
        }
}

static void test_window(void)
{
    struct zero z;
    zero_init(&z, &shapes[0], 2, 1, 4);
    CHECK(zero_window(&z) == 4 * zero_len(&z, 1)); /* This is 64 x (64 + 32 + 64 + 480) + 128. */
    CHECK(zero_len(&z, 1) == 64 * 640 + 128 && zero_window_at(&z, 4) == 0);
    /* the head is tied, so the embedding and the norm are needed at the same time */
    zero_init(&z, &shapes[1], 2, 1, 4);
    CHECK(zero_window_at(&z, 2) == 4 * (61 * 24 + 8) && zero_window_at(&z, 0) == 0);
    CHECK(zero_window(&z) >= zero_window_at(&z, 2) + 4 * 24);
}

/* ---- collectives ----------------------------------------------------------------------------- */

struct parts {
    int n; /* the number of ranks in a view; every view does the same */
    /* a view has one rank of every block; if false, a view is a block of ranks */
    bool across;
    const int64_t *cut; /* [n + 1] */
    float *x[JOB_MAX_RANKS], *y[JOB_MAX_RANKS];
};

static float value(int rank, int64_t i)
{
    return (float)((rank * 7919 + i * 31) % 1009) / 1009 + (float)rank * 1e-6f;
}

/* Computes the sum of element i over n ranks of the set `of`, beginning with its k-th rank. The
 * order of additions is the tree of comm.h. */
static float tree(const struct rank_set *of, int k, int n, int64_t i)
{
    int h = 1;
    if (n == 1) return value(rank_set_at(of, k), i);
    while (2 * h < n) h *= 2;
    return tree(of, k, h, i) + tree(of, k + h, n - h, i);
}

static struct rank_set set_of(const struct parts *p, int rank, int P)
{
    return p->across ? axes_rank_across(rank, P / p->n, P) : axes_rank_block(rank, p->n);
}

static void parts_body(struct ranks *g, int rank, void *arg)
{
    struct parts *p = arg;
    struct err e = {0};
    const struct rank_set of = set_of(p, rank, g->P);
    const int w = axes_rank_set_index(&of, rank);
    struct comm *c = comm_group(g->comm[rank], of);
    void *bounce = comm_segment(c);
    CHECK(comm_size(c) == p->n && comm_rank(c) == w && rank_set_at(&of, w) == rank);
    CHECK(comm_group(g->comm[rank], axes_rank_block(rank, g->P)) == g->comm[rank]);
    for (int64_t i = 0; i < p->cut[p->n]; i++) {
        p->x[rank][i] = value(rank, i);
        p->y[rank][i] = -1;
    }
    const int64_t own = p->cut[w];
    if (comm_reduce_scatter(c, PURPOSE_GRAD, p->x[rank], p->cut, bounce, &e) ||
        comm_all_gather(c, PURPOSE_PARAM, p->x[rank] + own, p->y[rank], p->cut, 4, bounce, &e) ||
        comm_all_gather(c, PURPOSE_LOSS, p->y[rank] + own, p->y[rank], p->cut, 4, bounce, &e))
        ranks_fail(g, rank, &e);
}

static void check_parts(const struct parts *p, int rank, int P)
{
    const struct rank_set of = set_of(p, rank, P);
    const int w = axes_rank_set_index(&of, rank);
    int64_t wrong = 0;
    for (int64_t i = 0; i < p->cut[p->n]; i++) {
        const bool mine = i >= p->cut[w] && i < p->cut[w + 1];
        const float sum = tree(&of, 0, p->n, i);
        wrong += p->x[rank][i] != (mine ? sum : value(rank, i)) || p->y[rank][i] != sum;
    }
    CHECK_MSG(wrong == 0, "rank %d of views of %d: %lld wrong", rank, p->n, (long long)wrong);
}

static void parts_of(int P, int n, bool across, const int64_t *cut)
{
    struct parts p = {.n = n, .across = across, .cut = cut};
    struct ranks g;
    const int64_t a = comm_bounce_size(P), b = comm_bounce_size(n);
    for (int r = 0; r < P; r++) {
        p.x[r] = malloc((size_t)cut[n] * 4 + 4);
        p.y[r] = malloc((size_t)cut[n] * 4 + 4);
        if (!p.x[r] || !p.y[r]) abort();
    }
    ranks_open(&g, P, a > b ? a : b, &(struct comm_options){.delay_seed = 3, .delay_max_us = 50});
    ranks_run(&g, parts_body, &p);
    ranks_check(&g);
    for (int r = 0; r < P; r++) {
        struct comm_count want[PURPOSE_N] = {0};
        struct err e = {0};
        const int w = across ? r / (P / n) : r % n;
        check_parts(&p, r, P);
        want[PURPOSE_GRAD] = volume_reduce_scatter(n, w, cut);
        want[PURPOSE_PARAM] = want[PURPOSE_LOSS] = volume_all_gather(n, w, cut, 4);
        CHECK_MSG(!ledger_check(comm_ledger(g.comm[r]), want, &e), "rank %d: %s", r, e.text);
        free(p.x[r]), free(p.y[r]);
    }
    ranks_close(&g);
}

static void parts_case(int P, int n, const int64_t *cut)
{
    parts_of(P, n, false, cut);
    parts_of(P, n, true, cut);
}

static void test_parts(void)
{
    parts_case(2, 2, (int64_t[]){0, 1, 2});
    parts_case(3, 3, (int64_t[]){0, 0, 17, 17}); /* two ranks have no part */
    /* views {0,1} and {2,3}, and views {0,2} and {1,3} */
    parts_case(4, 2, (int64_t[]){0, 1000, 1001});
    parts_case(6, 3, (int64_t[]){0, 5, 300, 301});
    /* several slices; the last one is short */
    parts_case(4, 4, (int64_t[]){0, 33, 70001, 70002, 140000});
    parts_case(2, 2, (int64_t[]){0, 300001, 300001});
    parts_case(4, 1, (int64_t[]){0, 9}); /* views of one rank, in which no byte is sent */
    int64_t cut[JOB_MAX_RANKS + 1];
    for (int w = 0; w <= JOB_MAX_RANKS; w++) cut[w] = w * (w + 1) / 2 % 97 + w * 100;
    parts_case(JOB_MAX_RANKS, JOB_MAX_RANKS, cut);
}

/* Compares the formulas with numbers that are computed by hand, for parts of 10, 0 and 30
 * floats. */
static void test_volume(void)
{
    const int64_t cut[] = {0, 10, 10, 40};
    struct comm_count c = volume_reduce_scatter(3, 0, cut);
    /* only to rank 2, because rank 1 has no part */
    CHECK(c.bytes_sent == 120 && c.messages_sent == 1);
    CHECK(c.bytes_received == 80 && c.messages_received == 2);
    c = volume_all_gather(3, 1, cut, 2);
    CHECK(c.bytes_sent == 0 && c.messages_sent == 0);
    CHECK(c.bytes_received == 80 && c.messages_received == 2);
    const int64_t far[] = {0, volume_slice(2) + 1, volume_slice(2) + 1};
    c = volume_reduce_scatter(2, 1, far);
    CHECK(c.messages_sent == 2 && c.messages_received == 0);
}

int main(void)
{
    RUN(test_units);
    RUN(test_ranges);
    RUN(test_window);
    RUN(test_volume);
    RUN(test_parts);
    return test_done("zero");
}
