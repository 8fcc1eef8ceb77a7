/* test_populate: checks that pages of a device's memory are made resident before they are used.
 * This is checked for ranges that begin and end anywhere, and for a training by its plan. Also
 * checks memory that several threads fill, and memory that tests keep (tests/lib/pages.h). */
#include <unistd.h>
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/pages.h"
#include "worker/train/populate.h"

static struct job_spec spec;

/* Counts the pages of [p, p + size) that are not resident. */
static int64_t absent(void *p, int64_t size)
{
    const int64_t n = size / PLAN_PAGE;
    unsigned char *seen = calloc((size_t)n, 1);
    int64_t sum = 0;
    if (!seen) abort();
    CHECK(mincore(p, (size_t)size, seen) == 0);
    for (int64_t i = 0; i < n; i++) sum += !(seen[i] & 1);
    free(seen);
    return sum;
}

/* Checks ranges within one page, across the border of two tasks, and of many pages. Pages outside
 * of a range must not become resident. */
static void test_ranges(void)
{
    static const int64_t ranges[][2] = {
        {5, 1}, {4095, 2}, {8 << 20, 4096}, {(8 << 20) - 10, 20}, {12345, 25 << 20}, {4096, 0}};
    const int64_t size = 40 << 20;
    struct err e = {0};
    for (int threads = 1; threads <= 3; threads++) {
        struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = threads}, &e);
        CHECK_MSG(be, "%s", e.text);
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            const int64_t at = ranges[i][0], n = ranges[i][1];
            const int64_t first = at / PLAN_PAGE,
                          pages = n ? (at + n - 1) / PLAN_PAGE - first + 1 : 0;
            char *p = engine_pages(size);
            p[at] = 7;
            be_populate(be, p + at, n);
            CHECK_MSG(!pages || !absent(p + first * PLAN_PAGE, pages * PLAN_PAGE), "range %zu", i);
            CHECK(absent(p, size) == size / PLAN_PAGE - (pages ? pages : 1));
            CHECK(p[at] == 7 && (n < 2 || !p[at + n - 1]));
            engine_unpage(p, size);
        }
        be_close(be);
    }
}

/* Checks filling with zeros and with other values in several tasks. Elements outside of the range
 * must be unchanged. */
static void test_fill(void)
{
    enum { N = 2 * (1 << 20) + 5 };
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 3}, &e);
    float *p = malloc((N + 2) * sizeof *p);
    int64_t n_bad = 0;
    CHECK_MSG(be && p, "%s", e.text);
    for (int value = 0; value < 2; value++) {
        for (int64_t i = 0; i < N + 2; i++) p[i] = 3;
        be->ops->fill(be, p + 1, N, (float)value);
        for (int64_t i = 0; i < N + 2; i++) n_bad += p[i] != (i && i <= N ? (float)value : 3);
    }
    CHECK_MSG(n_bad == 0, "%lld elements", (long long)n_bad);
    free(p);
    be_close(be);
}

/* ---- the memory of tests --------------------------------------------------------------------- */

/* Tells whether the page at p can be read: a pipe takes its bytes. */
static bool readable(const char *p)
{
    char got;
    int fd[2];
    if (pipe(fd)) abort();
    const bool ok = write(fd[1], p, 1) == 1 && read(fd[0], &got, 1) == 1;
    close(fd[0]), close(fd[1]);
    return ok;
}

static int64_t sum_of(const char *p, int64_t size)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < size; i++) sum += p[i] != 0;
    return sum;
}

/* Checks that pages are zeros between pages without access, also where a model had them before. */
static void test_kept(void)
{
    static const int64_t sizes[] = {5, 3, 9, 9, 4};
    test_fresh_memory = false;
    for (int shared = 0; shared < 2; shared++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const int64_t size = sizes[i] * PLAN_PAGE;
            int fd = -1;
            char *p = shared ? engine_shared(size, &fd) : engine_pages(size);
            CHECK(!sum_of(p, size) && !readable(p - 1) && !readable(p + size));
            memset(p, 1, (size_t)size);
            if (shared)
                engine_unshare(p, size, fd);
            else
                engine_unpage(p, size);
            CHECK(!readable(p) && !readable(p + size - 1));
        }
    test_fresh_memory = true;
}

/* ---- a training ------------------------------------------------------------------------------ */

static void populate(struct train *t, int rank, void *arg)
{
    const struct plan *p = t->plan;
    char *arena = (char *)t->model.params - p->item[PLAN_PARAMS].offset;
    void *segment = t->model.comm ? comm_segment(t->model.comm) : NULL;
    const struct train_options o = {
        .plan = p, .arena = arena, .segment = segment, .be = t->model.be};
    if (t->step) return;
    CHECK(absent(arena, p->arena_size) > 0);
    populate_training(&o);
    pages_touched(arena, p->arena_size, &p->item[PLAN_SCRATCH]);
    if (segment) pages_touched(segment, p->segment_size, &p->item[PLAN_BOUNCE]);
}

/* Checks that every page of the plan, except spare pages, is resident before the first step, and
 * that making pages resident changes no bit of a result. */
static void test_training(void)
{
    struct synth y = {.S = 2000, .doc_len = 90, .vocab = 61};
    for (int P = 1; P <= 3; P++) {
        engine_spec(&spec, y.S);
        spec.precision.params = P % 2 ? PRECISION_BF16 : PRECISION_FP32;
        spec.resources.threads = 2;
        struct engine_run plain = {.P = P, .steps = 2, .source = {synth_batch, synth_targets, &y}};
        struct engine_run with = plain;
        with.before_step = populate;
        engine_go(&plain, &spec);
        engine_go(&with, &spec);
        CHECK(plain.loss[1] == with.loss[1] && plain.norm[1] == with.norm[1]);
        CHECK(!memcmp(plain.weights, with.weights, (size_t)plain.n * sizeof(float)));
        engine_free(&plain);
        engine_free(&with);
    }
}

int main(void)
{
    test_fresh_memory = true;
    RUN(test_ranges);
    RUN(test_fill);
    RUN(test_training);
    RUN(test_kept);
    return test_done("populate");
}
