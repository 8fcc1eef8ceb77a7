/* test.c: runs a test, counts passed and failed ones, and prints the total. */
#include "tests/lib/test.h"

int test_failures_now;
static int n_passed, n_failed;

void test_run(const char *name, void (*fn)(void))
{
    /* A build with injected faults is for the tests of those. */
    if (getenv("SEQD_TEST_MUTANTS") && !strstr(name, "mutant")) return;
    test_failures_now = 0;
    fn();
    if (test_failures_now)
        n_failed++;
    else
        n_passed++;
    printf("%s %s\n", test_failures_now ? "FAIL" : "ok  ", name);
    fflush(stdout);
}

int test_done(const char *suite)
{
    printf("%s: %d passed, %d failed\n", suite, n_passed, n_failed);
    return n_failed != 0;
}
