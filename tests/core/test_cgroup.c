/* test_cgroup: tests an attempt's control group. It uses a folder that imitates a control group,
 * and also a real control group if the test can make one on this machine. */
#include "tests/lib/test.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/cgroup.h"
#include "api/core/file.h"

static char dir[] = "/tmp/test-cgroup-XXXXXX";

static const char *in(const char *base, const char *name)
{
    static char path[2][512];
    static int i;
    i = !i;
    snprintf(path[i], sizeof path[i], "%s/%s", base, name);
    return path[i];
}

static void is(const char *path, const char *want)
{
    char *text = file_read(path, 100, NULL, NULL);
    CHECK(text != NULL);
    if (text) CHECK_STR(text, want);
    free(text);
}

static void test_folder(void)
{
    CHECK(!mkdir(in(dir, "base"), 0700) && !mkdir(in(dir, "attempt"), 0700));
    setenv("SEQD_CGROUP", in(dir, "base"), 1);
    CHECK(cgroup_make(in(dir, "attempt"), 7, 2) == 1);
    CHECK(cgroup_make(in(dir, "attempt"), 7, 2) == 1); /* made again, as after a kill */
    const char *group = in(dir, "base/attempt-7-e2");
    is(in(dir, "attempt/cgroup"), group);
    CHECK(!file_write(in(dir, "base/attempt-7-e2/cgroup.procs"), "", 0, NULL));
    CHECK(!file_write(in(dir, "base/attempt-7-e2/cgroup.kill"), "", 0, NULL));
    cgroup_join(in(dir, "attempt"));
    is(in(dir, "base/attempt-7-e2/cgroup.procs"), "0");
    is(in(dir, "base/attempt-7-e2/cgroup.kill"), "");
    cgroup_kill(in(dir, "attempt"));
    is(in(dir, "base/attempt-7-e2/cgroup.kill"), "1");
    CHECK(!unlink(in(dir, "base/attempt-7-e2/cgroup.procs")));
    CHECK(!unlink(in(dir, "base/attempt-7-e2/cgroup.kill")));
    cgroup_remove(in(dir, "attempt"));
    CHECK(!file_exists(in(dir, "base/attempt-7-e2")));
}

/* Checks that attempts run without control groups if no groups are delegated to this process, or
 * if a group cannot be made. */
static void test_none(void)
{
    CHECK(!mkdir(in(dir, "alone"), 0700));
    setenv("SEQD_CGROUP", in(dir, "no/such/base"), 1);
    CHECK(cgroup_make(in(dir, "alone"), 7, 3) == 0);
    unsetenv("SEQD_CGROUP");
    CHECK(cgroup_make(in(dir, "alone"), 7, 3) == 0);
    CHECK(!file_exists(in(dir, "alone/cgroup")));
    cgroup_join(in(dir, "alone"));
    cgroup_kill(in(dir, "alone"));
    cgroup_remove(in(dir, "alone"));
}

/* Checks a control group whose path cannot be recorded, for example on a full disk. The group must
 * be removed. */
static void test_no_record(void)
{
    /* a directory prevents the record from being written */
    CHECK(!mkdir(in(dir, "attempt/cgroup.tmp"), 0700));
    setenv("SEQD_CGROUP", in(dir, "base"), 1);
    CHECK(cgroup_make(in(dir, "attempt"), 7, 4) == 0);
    CHECK(!file_exists(in(dir, "base/attempt-7-e4")));
    CHECK(!rmdir(in(dir, "attempt/cgroup.tmp")));
    unsetenv("SEQD_CGROUP");
}

static void test_real(void)
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char base[128] = "";
    for (int i = 0; i < 2 && !*base; i++) {
        if (!file_exists(in(roots[i], "cgroup.procs"))) continue;
        snprintf(base, sizeof base, "%s/seqd-test-%d", roots[i], (int)getpid());
        if (mkdir(base, 0755) || !file_exists(in(base, "cgroup.kill"))) rmdir(base), *base = 0;
    }
    if (!*base) {
        printf("left out: this machine lets the test make no control group with cgroup.kill\n");
        return;
    }
    int ready[2];
    CHECK(!pipe(ready) && !mkdir(in(dir, "real"), 0700));
    setenv("SEQD_CGROUP", base, 1);
    CHECK(cgroup_make(in(dir, "real"), 1, 1) == 1);
    const pid_t child = fork();
    if (!child) {
        cgroup_join(in(dir, "real"));
        /* This process has a session of its own, and its parent has exited, so a signal to the
         * process group does not reach it. */
        if (!fork()) setsid();
        if (write(ready[1], "x", 1) == 1) pause();
        _exit(0);
    }
    char two[2];
    for (int n = 0; n < 2;) n += (int)read(ready[0], two, 1);
    close(ready[1]);
    cgroup_kill(in(dir, "real"));
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    /* the end of the pipe shows that the stray process has ended, too */
    CHECK(read(ready[0], two, 1) == 0);
    while (file_exists(in(base, "attempt-1-e1"))) cgroup_remove(in(dir, "real"));
    CHECK(!rmdir(base));
    unsetenv("SEQD_CGROUP");
}

/* The file of a control group that limits does not shrink, as a file of the kernel does not. */
static void test_limit(void)
{
    const struct cgroup_limits most = {.memory = 123 << 20, .pids = 45}, none = {0};
    CHECK(!mkdir(in(dir, "limits"), 0700) && !mkdir(in(dir, "limited"), 0700));
    setenv("SEQD_CGROUP", in(dir, "limits"), 1);
    CHECK(cgroup_make(in(dir, "limited"), 7, 5) == 1);
    CHECK(cgroup_limit(in(dir, "limited"), 7, 5, &most) == 0); /* no controller is enabled */
    CHECK(cgroup_kills(in(dir, "limited")) == -1);
    CHECK(!file_write(in(dir, "limits/attempt-7-e5/memory.max"), "", 0, NULL));
    CHECK(
        !file_write(in(dir, "limits/attempt-7-e5/memory.events"), "oom 3\noom_kill 2\n", 17, NULL));
    CHECK(cgroup_limit(in(dir, "limited"), 7, 5, &most) == CGROUP_MEMORY);
    is(in(dir, "limits/attempt-7-e5/memory.max"), "128974848");
    CHECK(cgroup_limit(in(dir, "limited"), 7, 5, &none) == 0);
    CHECK(cgroup_kills(in(dir, "limited")) == 2);
    unsetenv("SEQD_CGROUP");
}

/* Starts processes until one cannot be started, and takes memory until it is killed. */
static void exceed(const char *attempt)
{
    enum { SIZE = 256 << 20 };
    int status = 0, n = 0;
    cgroup_join(attempt);
    for (; n < 64; n++) {
        const pid_t pid = fork();
        if (!pid) pause();
        if (pid < 0) break;
    }
    CHECK_MSG(n < 16, "%d processes", n);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    while (wait(NULL) > 0) continue;
    const pid_t pid = fork();
    if (!pid) {
        char *p = malloc(SIZE);
        for (size_t i = 0; p && i < SIZE; i += 4096) p[i] = 1;
        _exit(p && p[SIZE - 4096] == 1 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    CHECK(cgroup_kills(attempt) == 1);
    cgroup_leave(attempt);
    _exit(test_failures_now > 0);
}

/* Checks limits of v1, where this process may make groups of it. */
static void test_old(void)
{
    const struct cgroup_limits most = {.memory = 96 << 20, .pids = 16};
    char why[200];
    int status = 0;
    CHECK(!mkdir(in(dir, "old"), 0700));
    const int can = cgroup_begin(why, sizeof why);
    const int both = CGROUP_MEMORY | CGROUP_PIDS;
    if (SANITIZED || can != both || cgroup_limit(in(dir, "old"), 1, 1, &most) != both) {
        printf("left out: limits of memory and processes: %s\n", SANITIZED ? "sanitizers" : why);
        cgroup_remove(in(dir, "old"));
        return;
    }
    fflush(stdout);
    const pid_t pid = fork();
    if (!pid) setpgid(0, 0), exceed(in(dir, "old"));
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(cgroup_kills(in(dir, "old")) == 1); /* its groups are gone */
    for (int i = 0; i < 2; i++) {
        char *group = file_read(in(dir, i ? "old/cgroup.pids" : "old/cgroup.memory"), 4096, NULL,
                                NULL);
        CHECK(!group || !file_exists(group));
        free(group);
    }
    cgroup_remove(in(dir, "old"));
}

int main(void)
{
    CHECK(mkdtemp(dir) != NULL);
    RUN(test_folder);
    RUN(test_none);
    RUN(test_no_record);
    RUN(test_limit);
    RUN(test_real);
    RUN(test_old);
    file_remove(dir, NULL);
    return test_done("cgroup");
}
