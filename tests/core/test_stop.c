/* test_stop: checks the text that is printed if a test ends its program. It must have the test's
 * name, and the reason if there is one. */
#include "tests/lib/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/assert.h"

static void stops(void)
{
    printf("before\n");
    test_die("no memory for %d bytes", 7);
}

static void asserts(void)
{
    assert(test_failures_now < 0);
}

static void faults(void)
{
    raise(SIGSEGV);
}

/* Starts a child that aborts. The abort must not count as a failure of the test. */
static void outlives(void)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) abort();
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

/* Runs fn as a test in a separate process. `out` receives its output. Returns its status. */
static int run(void (*fn)(void), char out[4096])
{
    int ends[2], status = 0;
    size_t n = 0;
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(1);
        close(ends[0]);
        test_run("row, 2 threads", fn);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], out + n, 4095 - n)) > 0;) n += (size_t)got;
    out[n] = 0;
    close(ends[0]);
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static void test_abort(void)
{
    char out[4096];
    int status = run(stops, out);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK_STR(out, "before\n  no memory for 7 bytes\nFAIL row, 2 threads (died)\n");
    status = run(asserts, out);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK_MSG(strstr(out, "test_failures_now < 0") && strstr(out, "FAIL row, 2 threads (died)"),
              "%s", out);
    if (!SANITIZED) {
        status = run(faults, out);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        CHECK_STR(out, "FAIL row, 2 threads (died)\n");
    }
    status = run(outlives, out);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_STR(out, "ok   row, 2 threads\n");
}

int main(void)
{
    RUN(test_abort);
    return test_done("stop");
}
