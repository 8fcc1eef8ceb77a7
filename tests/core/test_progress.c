/* test_progress: tests when a rank reports its progress, and which work the reports are about. */
#include "tests/lib/told.h"

static void test_speaks(void)
{
    struct told t;
    told_open(&t);
    progress_begin(&t.p, PROGRESS_REQUESTS, 4, 1);
    CHECK(t.n == 1 && t.at.done == 1 && t.at.from == 1 && t.at.total == 4);
    progress_piece(&t.p, 1, 2);
    progress_part(&t.p, 0.25);
    CHECK(t.n == 2 && t.at.done == 1.5);
    progress_tokens(&t.p, 7);
    progress_part(&t.p, 1);
    CHECK(t.at.done == 3 && t.at.tokens == 7);
    progress_add(&t.p, 0.5);
    CHECK(t.at.done == 3.5 && progress_done(&t.p) == 3.5);
    progress_at(&t.p, 5);
    CHECK(t.at.done == 4); /* never beyond its total */
    progress_total(&t.p, 6);
    progress_at(&t.p, 5);
    CHECK(t.at.done == 5 && t.at.total == 6 && t.at.elapsed_us >= 0);
    progress_end(&t.p);
    told_check(&t, PROGRESS_REQUESTS, 1, 6);
}

/* Checks that progress is reported once at the beginning and once at the end, however often the
 * functions are called. */
static void test_seldom(void)
{
    struct told t;
    told_open(&t);
    t.p.every_us = (int64_t)3600 * 1000000;
    progress_begin(&t.p, PROGRESS_TOKENS, 1000, 0);
    for (int i = 1; i < 1000; i++) progress_at(&t.p, i);
    CHECK(t.n == 1 && progress_done(&t.p) == 999);
    progress_end(&t.p);
    CHECK(t.n == 2 && t.at.done == 1000);
}

/* Checks work of which a part is repeated. The reported progress must not change until the
 * repeated work is beyond the position that was reported before. */
static void test_begins_again(void)
{
    struct told t;
    told_open(&t);
    progress_begin(&t.p, PROGRESS_BYTES, 10, 0);
    progress_at(&t.p, 6);
    progress_at(&t.p, 3);
    CHECK(t.at.done == 6 && progress_done(&t.p) == 3);
    progress_add(&t.p, 2);
    CHECK(t.at.done == 6 && progress_done(&t.p) == 5);
    progress_add(&t.p, 2);
    CHECK(t.at.done == 7 && progress_done(&t.p) == 7);
    progress_piece(&t.p, 0, 10);
    progress_part(&t.p, 0.5);
    CHECK(t.at.done == 7);
    progress_part(&t.p, 0.75);
    CHECK(t.at.done == 7.5);
    progress_end(&t.p);
    told_check(&t, PROGRESS_BYTES, 0, 10);
}

static void test_total_comes_later(void)
{
    struct told t;
    told_open(&t);
    progress_begin(&t.p, PROGRESS_BYTES, 0, 0);
    progress_add(&t.p, 30);
    CHECK(t.at.done == 30 && t.at.total == 0);
    progress_end(&t.p);
    CHECK(t.at.done == 30 && t.at.total == 30);
}

/* Checks that the functions may be called if no listener is set. */
static void test_nobody_listens(void)
{
    struct told t;
    struct progress silent = {0};
    told_open(&t);
    progress_part(&t.p, 0.5);
    progress_at(&t.p, 3);
    progress_add(&t.p, 1);
    progress_total(&t.p, 9);
    progress_end(&t.p);
    CHECK(t.n == 0);
    progress_begin(NULL, PROGRESS_STEPS, 1, 0);
    progress_piece(NULL, 0, 1);
    progress_part(NULL, 1);
    progress_tokens(NULL, 1);
    progress_end(NULL);
    CHECK(progress_done(NULL) == 0);
    progress_begin(&silent, PROGRESS_STEPS, 2, 0);
    progress_at(&silent, 1);
    CHECK(progress_done(&silent) == 1);
    for (int i = 0; i < PROGRESS_UNIT_N; i++) CHECK(*progress_unit_name(i));
}

int main(void)
{
    RUN(test_speaks);
    RUN(test_seldom);
    RUN(test_begins_again);
    RUN(test_total_comes_later);
    RUN(test_nobody_listens);
    return test_done("progress");
}
