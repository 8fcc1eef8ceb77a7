/* test.h: the whole harness. It is so small that it can be built on a machine where nothing is
 * installed (gpu-check).
 *
 *     static void test_x(void) { CHECK(1 + 1 == 2); CHECK_MSG(err < 2e-6, "err %g", err); }
 *     int main(void) { RUN(test_x); return test_done("core"); }
 *
 * If a CHECK fails, it prints its place and marks the running test as failed. The test then
 * continues. test_done prints "core: N passed, N failed", and tests/run.sh adds up these
 * numbers. */
#ifndef SEQD_TESTS_TEST_H
#define SEQD_TESTS_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* sanitizers have a malloc and shadow pages of their own, and run more slowly */
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* the number of failed checks in the running test, in all files together */
extern int test_failures_now;

/* Set by tests that measure memory, before RUN. In other tests freed memory stays with the process,
 * because faults of pages would take more time than the tests. */
extern bool test_fresh_memory;

#define CHECK_MSG(cond, ...)                                                                       \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            test_failures_now++;                                                                   \
            printf("  %s:%d: %s: ", __FILE__, __LINE__, #cond);                                    \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            fflush(stdout); /* the next test may crash */                                          \
        }                                                                                          \
    } while (0)
#define CHECK(cond) CHECK_MSG(cond, "failed")
#define CHECK_STR(got, want)                                                                       \
    CHECK_MSG(!strcmp((got), (want)), "got \"%s\", want \"%s\"", (got), (want))

#define RUN(fn) test_run(#fn, fn)

/* Tells whether SEQD_TEST_SMALL asks for the short form of the tests. `make check` sets this
 * variable. Runs under sanitizers set it, too. */
static inline bool small_tests(void)
{
    return getenv("SEQD_TEST_SMALL") != NULL;
}

/* Tells whether the short form of a test leaves out case i. The short form runs one of every n
 * cases. Under sanitizers no case is left out. */
static inline bool small_leaves(int64_t i, int n)
{
    return !SANITIZED && small_tests() && i % n;
}

/* Runs a test unless the short form is chosen. Under sanitizers the test runs in any case. */
#define RUN_LONG(fn) (SANITIZED || !small_tests() ? RUN(fn) : (void)0)

void test_run(const char *name, void (*fn)(void));
/* Prints a line with the reason, and ends the program. If the program ends by an abort or a fault,
 * the name of the running test is printed, too. */
__attribute__((noreturn, format(printf, 1, 2))) void test_die(const char *format, ...);
/* Ends a suite. main calls it in its last line and returns its result. */
int test_done(const char *suite);

#endif
