/* test_seqd_children: tests the exit codes of the programs that `seqd run` starts, and a program
 * that cannot be started. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "daemon/run/children.h"
#include "tests/lib/test.h"

static bool out_of_processes;

/* Replaces the system's fork by a function that fails, as fork does if the user has too many
 * processes. */
pid_t fork(void)
{
    if (!out_of_processes) return _Fork();
    errno = EAGAIN;
    return -1;
}

static int start(struct children *c, const char *program, struct err *e)
{
    char *const argv[] = {(char *)program, NULL};
    const struct child_files none = {-1, -1, -1};
    return children_start(c, 0, SIGTERM, argv, &none, e);
}

static int status_of(struct children *c, const char *program)
{
    struct err e = {0};
    CHECK_MSG(!start(c, program, &e), "%s", e.text);
    while (children_runs(c, 0)) children_wait(c, 100);
    return c->child[0].status;
}

static void test_status(void)
{
    struct children c;
    children_init(&c);
    CHECK(!children_runs(&c, 0) && c.child[0].status == -1);
    CHECK(status_of(&c, "true") == 0);
    CHECK(status_of(&c, "false") == 1);
    CHECK(status_of(&c, "/no/such/program") == 127);
}

/* Checks a program that cannot be started. It must not count as a success, even if the previous
 * program succeeded. */
static void test_not_started(void)
{
    struct children c;
    struct err e = {0};
    children_init(&c);
    CHECK(status_of(&c, "true") == 0);
    out_of_processes = true;
    CHECK(start(&c, "true", &e) < 0);
    CHECK_MSG(strstr(e.text, "start true"), "%s", e.text);
    CHECK_MSG(!children_runs(&c, 0) && c.child[0].status == -1, "status %d", c.child[0].status);
    out_of_processes = false;
    CHECK(status_of(&c, "true") == 0);
}

int main(void)
{
    RUN(test_status);
    RUN(test_not_started);
    return test_done("seqd_children");
}
