/* Compares how the layers of a model are divided into pipeline stages with every possible
 * division, and checks the order in which stages run their passes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/pipe.h"
#include "worker/plan/plan.h"
#include "worker/plan/traffic.h"

enum { MOST_LAYERS = 9, MOST_SAMPLES = 24 };

struct cut {
    const double *cost;
    int n_layers, n;
};

/* Divides the sections from `from` on into n stages, so that the cost of the most expensive stage
 * is as small as possible. Returns this cost. */
static double best(const struct cut *c, int from, int n)
{
    double sum = 0, least = INFINITY;
    if (n == 1) {
        for (int i = from; i < c->n_layers + 2; i++) sum += c->cost[i];
        return sum;
    }
    for (int end = from; end < c->n_layers + 1; end++) {
        sum += c->cost[end];
        if (end < 1) continue; /* `in` has a layer in its stage */
        if (c->n_layers - end < n - 1) break;
        const double rest = best(c, end + 1, n - 1);
        const double most = sum > rest ? sum : rest;
        if (most < least) least = most;
    }
    return least;
}

static void check_cut(const struct cut *c)
{
    const struct pipe p = pipe_cut(c->cost, c->n_layers, c->n);
    double most = 0;
    CHECK(p.n == c->n && p.at == 0 && p.first[0] == 0 && p.first[c->n] == c->n_layers + 2);
    for (int i = 0; i < c->n; i++) {
        struct pipe at = p;
        double sum = 0;
        at.at = i;
        CHECK_MSG(pipe_layers(&at) >= 1, "stage %d of %d has no layer", i, c->n);
        for (int b = p.first[i]; b < p.first[i + 1]; b++) sum += c->cost[b];
        if (sum > most) most = sum;
    }
    const double want = best(c, 0, c->n);
    CHECK_MSG(most <= want * (1 + 1e-12), "%d layers in %d stages: %.17g, at best %.17g",
              c->n_layers, c->n, most, want);
}

static void test_cuts(void)
{
    double cost[MOST_LAYERS + 2];
    srand(3);
    for (int i = 0; i < 2000; i++) {
        struct cut c = {.cost = cost, .n_layers = 1 + rand() % MOST_LAYERS};
        for (int b = 0; b < c.n_layers + 2; b++)
            cost[b] = rand() % 4 ? 1 + rand() % 3 : (rand() % 100) / 7.0;
        for (c.n = 1; c.n <= c.n_layers; c.n++) check_cut(&c);
    }
}

/* Computes the same as best(), but every stage has a limit of memory. Returns INFINITY if no
 * division is within the limits. */
static double best_within(const struct cut *c, const struct pipe_memory *m, int from, int at)
{
    double sum = 0, bytes = m->fixed[at], least = INFINITY;
    const int left = c->n - at;
    const double keeps = m->n_sequences < left ? (double)m->n_sequences : left;
    for (int end = from; end < c->n_layers + 2; end++) {
        sum += c->cost[end];
        bytes += m->once[end] + keeps * m->kept[end];
        if (bytes > m->limit) break;
        if (left == 1) {
            if (end == c->n_layers + 1) return sum;
            continue;
        }
        if (end < 1) continue;
        if (c->n_layers - end < left - 1) break;
        const double rest = best_within(c, m, end + 1, at + 1);
        const double most = sum > rest ? sum : rest;
        if (most < least) least = most;
    }
    return least;
}

static void check_within(const struct cut *c, const struct pipe_memory *m, int *found)
{
    struct pipe p;
    const double want = best_within(c, m, 0, 0);
    const bool fits = pipe_cut_within(c->cost, m, c->n_layers, c->n, &p);
    CHECK_MSG(fits == isfinite(want), "%d layers in %d stages: %d, best %g", c->n_layers, c->n,
              fits, want);
    if (!fits) return;
    ++*found;
    double most = 0;
    CHECK(p.at == 0 && p.first[0] == 0 && p.first[c->n] == c->n_layers + 2);
    for (int i = 0; i < c->n; i++) {
        struct pipe at = p;
        double sum = 0, bytes = m->fixed[i];
        at.at = i;
        CHECK(pipe_layers(&at) >= 1);
        for (int b = p.first[i]; b < p.first[i + 1]; b++) {
            sum += c->cost[b];
            bytes += m->once[b] + (double)pipe_kept(&at, m->n_sequences) * m->kept[b];
        }
        if (sum > most) most = sum;
        CHECK_MSG(bytes <= m->limit * (1 + 1e-12), "stage %d: %g of %g", i, bytes, m->limit);
    }
    CHECK_MSG(most <= want * (1 + 1e-12), "%.17g, at best %.17g", most, want);
}

static void test_cuts_within(void)
{
    double cost[MOST_LAYERS + 2], once[MOST_LAYERS + 2], kept[MOST_LAYERS + 2];
    int found = 0, all = 0;
    srand(4);
    for (int i = 0; i < 2000; i++) {
        struct cut c = {.cost = cost, .n_layers = 1 + rand() % MOST_LAYERS};
        struct pipe_memory m = {.once = once, .kept = kept, .n_sequences = 1 + rand() % 6};
        for (int b = 0; b < c.n_layers + 2; b++) {
            cost[b] = 1 + rand() % 5;
            once[b] = rand() % 6;
            kept[b] = rand() % 4;
        }
        for (c.n = 1; c.n <= c.n_layers; c.n++, all++) {
            for (int p = 0; p < c.n; p++) m.fixed[p] = rand() % 5;
            m.limit = 10 + rand() % 40;
            check_within(&c, &m, &found);
        }
    }
    CHECK_MSG(found > all / 4 && found < all - all / 10, "%d of %d", found, all);
}

/* Checks that if several divisions are equally good, the chosen one has more layers in later
 * stages. */
static void test_later_stages_have_more(void)
{
    const double cost[] = {0, 1, 1, 1, 1, 1, 0};
    const struct pipe p = pipe_cut(cost, 5, 2), q = pipe_cut(cost, 5, 3);
    CHECK(p.first[1] == 3);                    /* 2 layers, and then 3 */
    CHECK(q.first[1] == 2 && q.first[2] == 4); /* 1, 2, 2 */
}

/* Checks that each stage runs all passes and keeps at most the planned number of sequences. Also
 * checks that there is no deadlock, so that every stage can complete all its passes in its
 * order. */
static void run_stages(int n_stages, int64_t n)
{
    struct pipe p = {.n = n_stages};
    int64_t at[JOB_MAX_RANKS] = {0}, ahead[JOB_MAX_RANKS], forward[JOB_MAX_RANKS] = {0},
            back[JOB_MAX_RANKS] = {0};
    for (p.at = 0; p.at < n_stages; p.at++) ahead[p.at] = pipe_ahead(&p, n);
    for (bool moved = true; moved;) {
        moved = false;
        for (p.at = 0; p.at < n_stages; p.at++) {
            const int s = p.at;
            const bool forward_next = forward[s] < n && forward[s] <= back[s] + ahead[s];
            if (back[s] == n) continue;
            if (forward_next && (s == 0 || forward[s - 1] > forward[s]))
                forward[s]++;
            else if (!forward_next && (s == n_stages - 1 || back[s + 1] > back[s]))
                back[s]++;
            else
                continue;
            moved = true;
            at[s]++;
            CHECK(forward[s] - back[s] <= pipe_kept(&p, n));
        }
    }
    for (int s = 0; s < n_stages; s++) CHECK_MSG(at[s] == 2 * n, "stage %d stands still", s);
}

static void test_order(void)
{
    for (int n_stages = 1; n_stages <= 9; n_stages++)
        for (int64_t n = 1; n <= 12; n++) run_stages(n_stages, n);
}

/* ---- a tied embedding's gradients ------------------------------------------------------------ */

/* A simulated clock for the passes of all stages. After each backward pass the last stage sends a
 * gradient, which the first stage receives in its own pass of the same sequence. At most `room`
 * gradients may have been sent and not received. */
struct clock {
    int n_stages;
    int64_t n, room;                                         /* micro-batches */
    int64_t forward[JOB_MAX_RANKS], backward[JOB_MAX_RANKS]; /* the time of each stage's pass */
    int64_t f_end[JOB_MAX_RANKS][MOST_SAMPLES], b_end[JOB_MAX_RANKS][MOST_SAMPLES],
        now[JOB_MAX_RANKS];
};

/* Tells whether the last stage can send gradient number i. If *at is before the earliest time at
 * which it can, sets *at to this time. */
static bool can_send(const struct clock *c, int64_t i, int64_t *at)
{
    const int64_t before = i - c->room;
    if (before >= 0 && !c->b_end[0][before]) return false;
    if (before >= 0 && c->b_end[0][before] > *at) *at = c->b_end[0][before];
    return true;
}

static bool run_forward(struct clock *c, int s, int64_t i)
{
    int64_t at = c->now[s];
    if (s && !c->f_end[s - 1][i]) return false;
    if (s && c->f_end[s - 1][i] > at) at = c->f_end[s - 1][i];
    c->now[s] = c->f_end[s][i] = at + c->forward[s];
    return true;
}

static bool run_back(struct clock *c, int s, int64_t i)
{
    const bool last = s == c->n_stages - 1;
    int64_t at = c->now[s];
    if (!last && !c->b_end[s + 1][i]) return false;
    if (!last && c->b_end[s + 1][i] > at) at = c->b_end[s + 1][i];
    c->b_end[s][i] = at += c->backward[s];
    c->now[s] = at;
    return true;
}

/* Runs the passes of every stage in the stage's order. Returns the time at which the last pass
 * ends. */
static int64_t run_clock(struct clock *c)
{
    struct pipe p = {.n = c->n_stages};
    int64_t forward[JOB_MAX_RANKS] = {0}, back[JOB_MAX_RANKS] = {0}, sent = 0, end = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (p.at = 0; p.at < c->n_stages; p.at++) {
            const int s = p.at;
            const int64_t ahead = pipe_ahead(&p, c->n);
            const bool last = s == c->n_stages - 1;
            /* the gradient must be sent before the stage's next pass */
            if (last && sent < back[s]) {
                if (!can_send(c, sent, &c->now[s])) continue;
                sent++;
            } else if (forward[s] < c->n && forward[s] <= back[s] + ahead) {
                if (!run_forward(c, s, forward[s])) continue;
                forward[s]++;
            } else if (back[s] < c->n) {
                if (!run_back(c, s, back[s])) continue;
                back[s]++;
            } else {
                continue;
            }
            moved = true;
        }
    }
    for (int s = 0; s < c->n_stages; s++) {
        CHECK_MSG(back[s] == c->n, "stage %d of %d stands still", s, c->n_stages);
        if (c->now[s] > end) end = c->now[s];
    }
    CHECK(sent == c->n);
    return end;
}

/* Runs stages that are equally fast. */
static int64_t time_of(int n_stages, int64_t n, int64_t backward, int64_t room)
{
    struct clock c = {.n_stages = n_stages, .n = n, .room = room};
    for (int s = 0; s < n_stages; s++) c.forward[s] = 1, c.backward[s] = backward;
    return run_clock(&c);
}

/* Checks that with the planned room for gradients no step takes longer than without a tied
 * embedding. If there is room for one gradient less, a step with three stages must take longer. If
 * there is no room at all, a step must take longer for every number of stages. */
static void test_tied_sends(void)
{
    for (int pp = 2; pp <= 9; pp++)
        for (int64_t n = 1; n <= MOST_SAMPLES; n++)
            for (int64_t backward = 1; backward <= 3; backward++) {
                const struct pipe p = {.n = pp};
                const int64_t free = time_of(pp, n, backward, n), room = pipe_lent(&p, n);
                CHECK(room >= 1 && room <= n && free == (n + pp - 1) * (1 + backward));
                CHECK_MSG(time_of(pp, n, backward, room) == free, "%d stages, %lld sequences", pp,
                          (long long)n);
                if (pp == 3 && backward == 3 && n > 3)
                    CHECK(time_of(pp, n, backward, room - 1) > free);
                if (n > 1) CHECK(time_of(pp, n, backward, 0) > free);
            }
}

/* Checks stages of any speed, with one restriction: the backward pass of the first stage takes at
 * most as long as the forward passes of all later stages and the backward pass of the last stage
 * together. */
static void test_uneven_stages(void)
{
    srand(5);
    for (int i = 0; i < 3000; i++) {
        struct clock c = {.n_stages = 2 + rand() % 8, .n = 1 + rand() % MOST_SAMPLES}, free;
        const struct pipe p = {.n = c.n_stages};
        int64_t most = 0;
        for (int s = 0; s < p.n; s++) {
            c.forward[s] = 1 + rand() % 9, c.backward[s] = 1 + rand() % 27;
            if (s) most += c.forward[s];
        }
        most += c.backward[p.n - 1];
        if (c.backward[0] > most) c.backward[0] = most;
        c.room = c.n;
        free = c;
        c.room = pipe_lent(&p, c.n);
        CHECK_MSG(run_clock(&c) == run_clock(&free), "case %d: %d stages, %lld sequences", i, p.n,
                  (long long)c.n);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

enum { LAYERS = 8 };

static struct job_spec spec;

static void trains(int pp, int batch, int vocab, bool tied)
{
    struct err e = {0};
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.kind = JOB_TRAIN;
    spec.model.shape.width = 128, spec.model.shape.ffn_width = 256;
    spec.model.shape.n_layers = LAYERS, spec.model.shape.n_heads = 4;
    spec.model.shape.vocab = vocab, spec.model.shape.tied = tied;
    spec.data.n_train = 1;
    spec_source_defaults(&spec.data.train[0]);
    CHECK(!spec_intern(&spec, "/x", 2, &spec.data.train[0].path));
    spec.data.seq_len = 512;
    spec.train.steps = 1, spec.train.global_batch = batch;
    spec.parallel.pp = spec.resources.ranks = pp;
    spec.memory.recompute = RECOMPUTE_NONE, spec.memory.mlp_chunk_tokens = 0;
    CHECK_MSG(!family_check(&spec, &e), "%s: %s", e.field, e.text);
}

/* Computes the memory of each stage of a division separately. Returns the bytes of the largest
 * stage. *work receives the work of the most expensive stage. */
static int64_t size_of(const struct plan *p, const struct pipe *cut, const double *cost,
                       double *work)
{
    static struct plan way, at;
    struct err e = {0};
    int64_t most = 0;
    way = *p;
    way.pipe = *cut;
    way.segment_size = 0;
    *work = 0;
    for (int i = 0; i < cut->n; i++) {
        double sum = 0;
        CHECK_MSG(!plan_of_rank(&spec, &way, i, &at, &e), "%s", e.text);
        if (at.arena_size > most) most = at.arena_size;
        for (int b = cut->first[i]; b < cut->first[i + 1]; b++) sum += cost[b];
        if (sum > *work) *work = sum;
    }
    return most + p->segment_size;
}

/* Tries all divisions. Returns the smallest work of a division that fits, or INFINITY if none
 * fits. */
static double least_work(const struct plan *p, struct pipe *cut, int from, const double *cost,
                         int64_t limit)
{
    double least = INFINITY, work;
    if (from == cut->n) return size_of(p, cut, cost, &work) <= limit ? work : INFINITY;
    for (int b = cut->first[from - 1] + 1; b <= LAYERS; b++) {
        if (from == 1 && b < 2) continue;
        cut->first[from] = b;
        least = fmin(least, least_work(p, cut, from + 1, cost, limit));
    }
    return least;
}

/* Checks plans with a limit of memory. If the division with the smallest work does not fit, but a
 * different division does, the plan must have the best division that fits. The memory of every
 * rank must be within the limit. */
static void test_cut_by_memory(void)
{
    static struct plan p, at;
    int by_memory = 0, refused = 0;
    for (int way = 0; way < 8; way++) {
        const int pp = 2 + way % 3;
        struct err e = {0};
        double cost[LAYERS + 2], work, rest;
        trains(pp, 6, way & 1 ? 300 : 4000, way >= 6);
        CHECK_MSG(!plan_make(&spec, 0, &p, &e), "%s", e.text);
        CHECK(!p.cut_by_memory);
        traffic_sections(&spec.model.shape, &p, cost);
        const int64_t need = p.arena_size + p.segment_size;
        CHECK(size_of(&p, &p.pipe, cost, &work) == need);
        for (int64_t limit = need; limit > need / 2; limit -= need / 40) {
            struct pipe cut = {.n = pp};
            cut.first[pp] = LAYERS + 2;
            const bool made = !plan_make(&spec, limit, &p, &e);
            const double want = least_work(&p, &cut, 1, cost, limit);
            CHECK_MSG(made == isfinite(want), "way %d: %lld of %lld bytes, made %d", way,
                      (long long)limit, (long long)need, made);
            refused += !made;
            by_memory += made && p.cut_by_memory;
            CHECK(p.cut_by_memory == (made && limit < need));
            if (!made) continue;
            CHECK(p.arena_size + p.segment_size <= limit);
            size_of(&p, &p.pipe, cost, &rest);
            CHECK_MSG(rest <= want * (1 + 1e-12), "way %d: work %g, at best %g", way, rest, want);
            CHECK(!p.cut_by_memory == !strstr(p.reason, "cut so that they fit"));
            for (int r = 0; r < pp; r++) {
                CHECK_MSG(!plan_of_rank(&spec, &p, r, &at, &e), "%s", e.text);
                CHECK(at.arena_size + at.segment_size <= limit && at.arena_size == p.stage_size[r]);
            }
        }
    }
    CHECK_MSG(by_memory > 10 && refused > 10, "%d, and %d refused", by_memory, refused);
}

int main(void)
{
    RUN(test_cuts);
    RUN(test_cuts_within);
    RUN(test_later_stages_have_more);
    RUN(test_order);
    RUN(test_tied_sends);
    RUN(test_uneven_stages);
    RUN(test_cut_by_memory);
    return test_done("stages");
}
