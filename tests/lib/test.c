/* test.c: runs a test, counts the passed and the failed tests, and prints the totals. */
#include "tests/lib/test.h"

#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

int test_failures_now;
bool test_fresh_memory;
static int n_passed, n_failed;
static const char *running = "no test";
/* only a death of the process `runner` is reported, because a test may start processes that die */
static pid_t runner;

static void write_text(const char *text)
{
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) return; /* the program ends in any case */
}

/* Names the running test. */
static void on_death(int number)
{
    if (getpid() == runner) {
        write_text("FAIL ");
        write_text(running);
        write_text(" (died)\n");
    }
    raise(number); /* the signal has its default action again, and is delivered when this handler
                    * returns */
}

/* Installs a handler for SIGABRT. In a build without sanitizers it also installs handlers for
 * SIGSEGV and similar signals, which sanitizers report themselves. */
static void catch_deaths(void)
{
    static const int deaths[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction once = {.sa_handler = on_death, .sa_flags = (int)SA_RESETHAND};
    runner = getpid();
    for (size_t i = 0; i < (SANITIZED ? 1 : sizeof deaths / sizeof *deaths); i++)
        sigaction(deaths[i], &once, NULL);
}

/* Lets malloc keep blocks of up to 32 MiB, which is its limit, when they are freed. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

void test_run(const char *name, void (*fn)(void))
{
    /* A build with injected faults runs only the tests for these faults. */
    if (getenv("SEQD_TEST_MUTANTS") && !strstr(name, "mutant")) return;
    test_failures_now = 0;
    running = name;
    catch_deaths();
    if (!SANITIZED && !test_fresh_memory) keep_memory();
    fn();
    if (test_failures_now)
        n_failed++;
    else
        n_passed++;
    printf("%s %s\n", test_failures_now ? "FAIL" : "ok  ", name);
    fflush(stdout);
}

void test_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("  ");
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
    abort();
}

int test_done(const char *suite)
{
    running = suite;
    printf("%s: %d passed, %d failed\n", suite, n_passed, n_failed);
    return n_failed != 0;
}
