/* test_seqd_pace: checks the speed of an attempt, which is computed from the last reports without
 * outliers. */
#include "daemon/state/pace.h"
#include "tests/lib/test.h"

static struct rank_progress at(int unit, double from, double done, double s, int64_t tokens)
{
    return (struct rank_progress){.unit = unit,
                                  .from = from,
                                  .done = done,
                                  .total = 1e6,
                                  .tokens = tokens,
                                  .elapsed_us = (int64_t)(s * 1e6)};
}

static void add(struct pace *p, double done, double s)
{
    const struct rank_progress r = at(PROGRESS_STEPS, 0, done, s, (int64_t)(done * 100));
    pace_add(p, &r);
}

/* Checks a run of 2 steps a second. The first step takes a minute, and there is a pause in the
 * middle. The speed must still be 2 steps a second. */
static void test_outliers(void)
{
    struct pace p = {0};
    double rate = -1, tokens = -1, s = 60;
    CHECK(!pace_speed(&p, &rate, &tokens) && rate == -1);
    add(&p, 1, s);
    CHECK(pace_speed(&p, &rate, &tokens) && rate == 1 / 60.0 && tokens == 100 / 60.0);
    for (int i = 2; i <= 5; i++) add(&p, i, s += 0.5);
    CHECK(pace_speed(&p, &rate, &tokens));
    CHECK_MSG(rate == 2 && tokens == 200, "%g %g", rate, tokens);
    add(&p, 6, s += 30);
    add(&p, 7, s += 0.5);
    add(&p, 8, s += 0.5);
    CHECK(pace_speed(&p, &rate, &tokens) && rate == 2);
}

/* Checks that the speed of long ago is forgotten. */
static void test_recent(void)
{
    struct pace p = {0};
    double rate, tokens, s = 0;
    for (int i = 1; i <= 100; i++) add(&p, i, s += 1);
    for (int i = 101; i <= 100 + PACE_SPANS; i++) add(&p, i, s += 0.25);
    CHECK(pace_speed(&p, &rate, &tokens) && rate == 4 && tokens == 400);
}

/* Checks reports that come more often than units are completed. The time between all reports must
 * be counted. */
static void test_jumps(void)
{
    struct pace p = {0};
    double rate, tokens;
    for (int s = 1; s <= 100; s++) add(&p, s / 10, s);
    CHECK(pace_speed(&p, &rate, &tokens));
    CHECK_MSG(rate == 0.1 && p.n == 10, "%g", rate);
}

/* Checks that earlier reports are no longer used if the unit changes, if steps are rolled back, or
 * if a new attempt begins. */
static void test_begins_again(void)
{
    static const struct rank_progress again[] = {
        {.unit = PROGRESS_BYTES, .done = 30, .elapsed_us = 60000000},
        {.unit = PROGRESS_STEPS, .done = 3, .elapsed_us = 6000000},
        {.unit = PROGRESS_STEPS, .from = 17, .done = 20, .elapsed_us = 6000000, .tokens = 9},
        {.unit = PROGRESS_STEPS, .done = 25, .elapsed_us = 50000000, .tokens = 100000},
    };
    for (int i = 0; i < 4; i++) {
        struct pace p = {0};
        double rate, tokens;
        for (int k = 1; k <= 20; k++) add(&p, k, k);
        pace_add(&p, &again[i]);
        CHECK(pace_speed(&p, &rate, &tokens));
        CHECK_MSG(p.n == (i < 3 ? 1 : 21), "%d: %g", i, rate);
        CHECK_MSG(i == 3 || rate == 0.5, "%d: %g", i, rate);
    }
}

/* Checks that whatever a rank reports, the speed is a number above 0. */
static void test_any(void)
{
    struct pace p = {0};
    uint64_t x = 7;
    for (int i = 0; i < 100000; i++) {
        double rate = 1, tokens = 0;
        double v[4];
        for (int k = 0; k < 4; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            v[k] = (double)(x >> 40) * ((x >> 33) % 3 ? 1 : 1e6);
        }
        const struct rank_progress r = at((int)v[0] % 4 / 3, v[0] > v[1] ? 0 : v[0], v[1], v[2],
                                          (int64_t)v[3]);
        pace_add(&p, &r);
        if (pace_speed(&p, &rate, &tokens))
            CHECK_MSG(rate > 0 && rate < 1e300 && tokens >= 0, "%g %g", rate, tokens);
    }
}

int main(void)
{
    RUN(test_outliers);
    RUN(test_recent);
    RUN(test_jumps);
    RUN(test_begins_again);
    RUN(test_any);
    return test_done("seqd_pace");
}
