/* test.h: the whole harness, small enough to build where nothing is installed (gpu-check).
 *
 *     static void test_x(void) { CHECK(1 + 1 == 2); CHECK_MSG(err < 2e-6, "err %g", err); }
 *     int main(void) { RUN(test_x); return test_done("core"); }
 *
 * A failed CHECK prints where and marks the running test failed; the test runs on. test_done prints
 * "core: N passed, N failed", which tests/run.sh adds up. */
#ifndef SEQD_TESTS_TEST_H
#define SEQD_TESTS_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* sanitizers have a malloc and shadow pages of their own, and are slower */
#else
#define SANITIZED 0
#endif

extern int test_failures_now; /* failures of the running test, in whatever file its checks are */

#define CHECK_MSG(cond, ...)                                                                       \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            test_failures_now++;                                                                   \
            printf("  %s:%d: %s: ", __FILE__, __LINE__, #cond);                                    \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            fflush(stdout); /* the next may crash */                                               \
        }                                                                                          \
    } while (0)
#define CHECK(cond) CHECK_MSG(cond, "failed")
#define CHECK_STR(got, want)                                                                       \
    CHECK_MSG(!strcmp((got), (want)), "got \"%s\", want \"%s\"", (got), (want))

#define RUN(fn) test_run(#fn, fn)

/* Tells whether SEQD_TEST_SMALL asks for the short form, which is for make check, for sanitizers
 * and for programs that have not changed. */
static inline bool small_tests(void)
{
    return getenv("SEQD_TEST_SMALL") != NULL;
}

/* Tells whether the short form leaves out case i. It keeps one of n; sanitizers keep all. */
static inline bool small_leaves(int64_t i, int n)
{
    return !SANITIZED && small_tests() && i % n;
}

/* Runs a test that the short form leaves out; sanitizers keep it. */
#define RUN_LONG(fn) (SANITIZED || !small_tests() ? RUN(fn) : (void)0)

void test_run(const char *name, void (*fn)(void));
/* Ends the program after a line with the reason. Any
 * abort or fault prints the running test's name. */
__attribute__((noreturn, format(printf, 1, 2))) void test_die(const char *format, ...);
/* Ends a suite: the last line of main. Returns main's exit status. */
int test_done(const char *suite);

#endif
