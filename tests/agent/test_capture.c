/* test_capture: runs programs that are asked a question and do not answer. For each way in which a
 * program can end, checks whether the error blames the program or the node. The loop must continue
 * to run until the programs have ended. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/rank.h"
#include "tests/lib/test.h"
#include "worker/agent/capture.h"

static struct {
    bool over;
    struct err e;
    char text[64];
} got;

static void done(void *arg, int64_t request, const char *text, size_t size, const struct err *why)
{
    got.over = true;
    got.e = *why;
    snprintf(got.text, sizeof got.text, "%.*s", (int)size, text);
}

static struct capture *start_for(struct loop *l, const char *program, const char *script,
                                 int64_t limit_ms, struct err *e)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    const struct capture_options o = {.loop = l,
                                      .program = program,
                                      .argv = argv,
                                      .request = 7,
                                      .limit_ms = limit_ms,
                                      .max_size = 16,
                                      .done = done};
    got.over = false;
    return capture_start(&o, e);
}

static int start(struct loop *l, const char *program, const char *script, struct err *e)
{
    return start_for(l, program, script, 60000, e) ? 0 : -1;
}

static void test_ends(void)
{
    static const struct {
        const char *script;
        enum err_code code;
        const char *text;
    } ends[] = {
        {"echo yes", ERR_NONE, ""},
        {"echo config.json: no hidden_size >&2; exit 4", ERR_INVALID,
         "config.json: no hidden_size"},
        {"exit 4", ERR_INTERNAL, "sh -c ended with status 4: it says nothing"},
        {"echo a library is missing >&2; exit 127", ERR_INTERNAL,
         "sh -c ended with status 127: a library is missing"},
        {"exit 1", ERR_INTERNAL, "ended with status 1"},
        {"kill -SEGV $$", ERR_INTERNAL, "sh -c was ended by signal 11 (SIGSEGV, "},
        {"kill -ILL $$", ERR_INTERNAL, "SIGILL"},
        {"kill -KILL $$", ERR_PEER, "sh -c was ended by signal 9 (SIGKILL, "},
        {"echo a sentence >&2; kill -TERM $$", ERR_PEER, "SIGTERM"},
        {"echo 0123456789abcdefgh", ERR_INTERNAL, "printed more than 16 bytes"},
    };
    CHECK(RANK_EXIT_REFUSED == 4);
    struct loop *l = loop_create(NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct err e = {0};
        CHECK(!start(l, "/bin/sh", ends[i].script, &e));
        while (!got.over) loop_turn(l, 1000);
        CHECK_MSG(got.e.code == ends[i].code && strstr(got.e.text, ends[i].text), "%s: %s, %s",
                  ends[i].script, err_name(got.e.code), got.e.text);
        CHECK(!*got.e.field);
    }
    struct err e = {0};
    CHECK(start(l, "/nowhere/sh", "echo", &e) < 0);
    CHECK_MSG(e.code == ERR_INTERNAL && strstr(e.text, "cannot run /nowhere/sh"), "%s", e.text);
    loop_destroy(l);
}

static char go[64]; /* the file for which the programs wait */

static void let_go(void *arg)
{
    FILE *f = fopen(go, "w");
    CHECK(f && !fclose(f));
}

static bool has_children(void)
{
    return waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Checks a program that closes its outputs and continues to run. The loop, whose timer lets the
 * program end, must continue to run as well. */
static void test_runs_on(void)
{
    char script[256];
    struct err e = {0};
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct loop_timer *t = loop_timer_create(l, let_go, NULL);
    snprintf(go, sizeof go, "/tmp/test-capture-%d", (int)getpid());
    snprintf(script, sizeof script,
             "echo yes; exec >&- 2>&-; until [ -e %s ]; do sleep 0.01; done; exit 3", go);
    alarm(60); /* bounds only a loop that hangs */
    CHECK(!start(l, "/bin/sh", script, &e));
    loop_timer_set(t, 200);
    while (!got.over) loop_turn(l, 1000);
    alarm(0);
    CHECK_STR(got.text, "yes\n");
    CHECK_MSG(got.e.code == ERR_INTERNAL && strstr(got.e.text, "status 3"), "%s", got.e.text);
    CHECK(!has_children());
    unlink(go);
    loop_timer_destroy(t);
    loop_destroy(l);
}

/* Checks a program that exceeds its limit, and a program that is killed. The answer must be
 * delivered only after the program has been reaped. */
static void test_killed(void)
{
    static const char *const scripts[] = {"exec sleep 1000", "exec >&- 2>&-; exec sleep 1000"};
    struct loop *l = loop_create(NULL, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        struct err e = {0};
        const bool late = i < 2;
        struct capture *a = start_for(l, "/bin/sh", scripts[i % 2], late ? 20 : 60000, &e);
        CHECK(a);
        if (!late) capture_kill(a);
        while (!got.over) loop_turn(l, 1000);
        CHECK_MSG(got.e.code == (late ? ERR_TIMEOUT : ERR_PEER), "%d: %s", i, got.e.text);
        CHECK(!has_children());
    }
    struct err e = {0};
    struct capture *a = start_for(l, "/bin/sh", scripts[0], 60000, &e);
    capture_cancel(a);
    CHECK(!got.over && !has_children());
    loop_destroy(l);
}

int main(void)
{
    RUN(test_ends);
    RUN(test_runs_on);
    RUN(test_killed);
    return test_done("capture");
}
