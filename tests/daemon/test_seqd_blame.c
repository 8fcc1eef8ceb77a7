/* test_seqd_blame: checks which party is blamed for a failure, for every row of the rules. Also
 * checks the effect of the blame on the job. */
#include <signal.h>
#include <stdlib.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/state/attempt.h"
#include "daemon/state/blame.h"
#include "tests/lib/test.h"
#include "worker/family/shape.h"

static struct job *job_at(enum job_state state, bool stepped)
{
    static struct job_spec s;
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    s.kind = JOB_TRAIN;
    s.resources.ranks = 2;
    s.limits.restarts = 1;
    struct job *j = job_create(1, &s);
    j->state = state;
    j->task = TASK_RUN;
    j->epoch = 4;
    /* steps of an earlier attempt do not prove that this attempt made a step */
    j->step_epoch = stepped ? 4 : 3;
    return j;
}

/* ---- failures that occur once ---------------------------------------------------------------- */

static const struct {
    int rank;
    enum err_code code;
    const char *field, *text;
    int cause, blame;             /* before the first step */
    int cause_after, blame_after; /* after the first step */
} reports[] = {
#define SAME(cause, blame) cause, blame, cause, blame
    {1, ERR_INVALID, "", "x", SAME(CAUSE_FINAL, BLAME_NONE)},
    {1, ERR_DOES_NOT_FIT, "", "x", SAME(CAUSE_FINAL, BLAME_NONE)},
    {1, ERR_TOO_LARGE, "", "x", SAME(CAUSE_FINAL, BLAME_NONE)},
    {1, ERR_CORRUPT, "data.train", "x", SAME(CAUSE_FINAL, BLAME_NONE)},
    {1, ERR_UNSUPPORTED, "", "x", SAME(CAUSE_FINAL, BLAME_NONE)},
    {1, ERR_CONFLICT, "checkpoint.resume", "x", SAME(CAUSE_FINAL, BLAME_NONE)},
    {1, ERR_NOT_FOUND, "data.train.0.path", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_FILES)},
    {1, ERR_NOT_FOUND, "model.path", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_FILES)},
    {1, ERR_CONFLICT, "data.train", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_FILES)},
    {1, ERR_CONFLICT, "data.seq_len", "x", SAME(CAUSE_FINAL, BLAME_NONE)}, /* a refused resume */
    {1, ERR_PEER, "", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_NONE)},
    {1, ERR_ABORTED, "", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_NONE)},
    {1, ERR_DEVICE, "", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_NONE)},
    {1, ERR_TIMEOUT, "", "x", SAME(CAUSE_USER, BLAME_NONE)},
    {1, ERR_IO, "", "read /x: Input/output error", SAME(CAUSE_USER, BLAME_NONE)},
    /* no node is blamed, because these words may be a part of a file's name */
    {1, ERR_IO, "", "read /x: No space left on device", SAME(CAUSE_USER, BLAME_NONE)},
    {1, ERR_NO_SPACE, "", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_NONE)},
    {1, ERR_INTERNAL, "", "x", CAUSE_INFRASTRUCTURE, BLAME_NODE, CAUSE_USER, BLAME_NONE},
    /* the gang itself reports that seqrank cannot be run */
    {RANK_GANG, ERR_NOT_FOUND, "", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_NODE)},
    {RANK_GANG, ERR_IO, "", "cannot run /x: Permission denied",
     SAME(CAUSE_INFRASTRUCTURE, BLAME_NODE)},
    {RANK_GANG, ERR_INTERNAL, "", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_NODE)},
    {RANK_GANG, ERR_NO_SPACE, "", "x", SAME(CAUSE_INFRASTRUCTURE, BLAME_NONE)},
};

static void test_reports(void)
{
    for (size_t i = 0; i < 2 * sizeof reports / sizeof *reports; i++) {
        const bool after = i % 2;
        struct job *j = job_at(JOB_RUNNING, after);
        struct event ev = {.type = EV_RANK_EXIT, .rank = reports[i / 2].rank};
        err_field(&ev.err, reports[i / 2].code, reports[i / 2].field, "%s", reports[i / 2].text);
        blame_report(j, &ev);
        CHECK_MSG(ev.cause == (after ? reports[i / 2].cause_after : reports[i / 2].cause) &&
                      ev.blame == (after ? reports[i / 2].blame_after : reports[i / 2].blame),
                  "row %zu%s: cause %d, blame %d", i / 2, after ? ", after a step" : "", ev.cause,
                  ev.blame);
        job_destroy(j);
    }
}

/* Checks every signal. Some signals are raised by a program itself and count as an exit. All other
 * signals count as sent from outside. */
static void test_exits(void)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (int signo = 0; signo < NSIG; signo++)
        for (int after = 0; after < 2; after++) {
            struct job *j = job_at(JOB_RUNNING, after);
            struct event ev = {.rank = 1, .signal = signo, .exit_status = signo ? 0 : 127};
            bool self = signo == 0;
            for (int i = 0; i < 5; i++) self = self || signo == own[i];
            blame_exit(j, &ev);
            CHECK_MSG(ev.cause == (self && after ? CAUSE_USER : CAUSE_INFRASTRUCTURE) &&
                          ev.blame == (self && !after ? BLAME_NODE : BLAME_NONE),
                      "signal %d, after %d: cause %d, blame %d", signo, after, ev.cause, ev.blame);
            job_destroy(j);
        }
}

static void test_gang_ends(void)
{
    for (int end = 0; end < GANG_END_N; end++)
        for (int after = 0; after < 2; after++) {
            struct job *j = job_at(JOB_RUNNING, after);
            struct event ev = {.rank = -1};
            const bool own = end == GANG_DONE || end == GANG_FAILED;
            blame_gang_end(j, end, &ev);
            CHECK_MSG(ev.cause == (own && after ? CAUSE_USER : CAUSE_INFRASTRUCTURE) &&
                          ev.blame == (own && !after ? BLAME_NODE : BLAME_NONE),
                      "end %d, after %d: cause %d, blame %d", end, after, ev.cause, ev.blame);
            job_destroy(j);
        }
}

static void test_device_twice(void)
{
    struct job *j = job_at(JOB_RUNNING, true);
    struct event ev = {.rank = 1};
    err_set(&ev.err, ERR_DEVICE, "x");
    j->n_failures = 1, job_set_err(j, &(struct err){.code = ERR_DEVICE});
    blame_report(j, &ev);
    CHECK(ev.cause == CAUSE_USER && !ev.blame);
    /* a job that serves has answered a request between the two */
    struct job_attempt a = {.answered = true};
    job_spec_edit(j)->kind = JOB_SERVE;
    j->attempt = &a;
    blame_report(j, &ev);
    CHECK(ev.cause == CAUSE_INFRASTRUCTURE && !ev.blame);
    j->attempt = NULL;
    job_destroy(j);
}

/* ---- failures that occur again --------------------------------------------------------------- */

struct said {
    const char *node;
    enum job_state state;
    int task, status, signo;
    bool elsewhere;
    int cause, blame; /* wanted */
    int n_left;       /* the number of nodes that are left out after this failure */
};

/* Runs one attempt that fails as *s describes. `line` is the index of *s in the table. */
static void fail(struct job *j, const struct said *s, size_t line)
{
    struct event assign = {
        .type = EV_ASSIGN, .node = "n", .epoch = j->epoch + 1, .task = s->task, .at_ms = 1};
    CHECK(!job_fold(j, &assign, NULL));
    if (s->state == JOB_RUNNING) CHECK(!job_fold(j, &(struct event){.type = EV_READY}, NULL));
    struct event ev = {.type = EV_RANK_EXIT, .rank = 1, .signal = s->signo, .at_ms = 1};
    snprintf(ev.node, sizeof ev.node, "%s", s->node);
    ev.exit_status = s->status;
    if (s->status == -1) { /* files */
        ev.exit_status = 0;
        err_field(&ev.err, ERR_NOT_FOUND, "model.path", "/m does not exist on this node");
        blame_report(j, &ev);
    } else {
        err_set(&ev.err, s->signo ? ERR_PEER : ERR_INTERNAL, "x");
        blame_exit(j, &ev);
    }
    blame_settle(j, s->elsewhere, &ev);
    CHECK_MSG(ev.cause == s->cause && ev.blame == s->blame, "line %zu: cause %d, blame %d", line,
              ev.cause, ev.blame);
    CHECK(!job_fold(j, &ev, NULL));
    int n_left = 0;
    for (int i = 0; i < j->n_left; i++) n_left += j->left[i].blame != BLAME_JOB;
    CHECK_MSG(n_left == s->n_left, "line %zu: %d nodes left out", line, n_left);
    CHECK(!job_fold(j, &(struct event){.type = EV_STOPPED, .at_ms = 1}, NULL));
}

#define INFRA CAUSE_INFRASTRUCTURE
static const struct {
    const char *name;
    struct said said[5];
    enum job_state end;
} stories[] = {
    {"the same on two nodes is the job's, and both blames go",
     {{"a", JOB_STARTING, TASK_RUN, 127, 0, true, INFRA, BLAME_NODE, 1},
      {"b", JOB_STARTING, TASK_RUN, 127, 0, true, CAUSE_USER, BLAME_JOB, 0}},
     JOB_QUEUED},
    {"what is known to be the job's blames no node again",
     {{"a", JOB_STARTING, TASK_RUN, 127, 0, true, INFRA, BLAME_NODE, 1},
      {"b", JOB_STARTING, TASK_RUN, 127, 0, true, CAUSE_USER, BLAME_JOB, 0},
      {"c", JOB_STARTING, TASK_RUN, 127, 0, true, CAUSE_USER, BLAME_NONE, 0}},
     JOB_FAILED},
    {"but another failure does",
     {{"a", JOB_STARTING, TASK_RUN, 127, 0, true, INFRA, BLAME_NODE, 1},
      {"b", JOB_STARTING, TASK_RUN, 127, 0, true, CAUSE_USER, BLAME_JOB, 0},
      {"c", JOB_STARTING, TASK_RUN, 1, 0, true, INFRA, BLAME_NODE, 1}},
     JOB_QUEUED},
    {"twice on one is enough: it came back because no other took it",
     {{"a", JOB_STARTING, TASK_RUN, 127, 0, false, INFRA, BLAME_NODE, 1},
      {"a", JOB_STARTING, TASK_RUN, 127, 0, false, CAUSE_USER, BLAME_JOB, 0}},
     JOB_QUEUED},
    {"another status is another failure",
     {{"a", JOB_STARTING, TASK_RUN, 127, 0, true, INFRA, BLAME_NODE, 1},
      {"b", JOB_STARTING, TASK_RUN, 1, 0, true, INFRA, BLAME_NODE, 2},
      {"c", JOB_STARTING, TASK_RUN, 127, 0, true, CAUSE_USER, BLAME_JOB, 1}},
     JOB_QUEUED},
    {"another signal is another failure",
     {{"a", JOB_RUNNING, TASK_RUN, 0, SIGSEGV, true, INFRA, BLAME_NODE, 1},
      {"b", JOB_RUNNING, TASK_RUN, 0, SIGILL, true, INFRA, BLAME_NODE, 2}},
     JOB_QUEUED},
    {"another phase is another failure",
     {{"a", JOB_STARTING, TASK_PREPARE, 1, 0, true, INFRA, BLAME_NODE, 1},
      {"b", JOB_STARTING, TASK_RUN, 1, 0, true, INFRA, BLAME_NODE, 2},
      {"c", JOB_RUNNING, TASK_RUN, 1, 0, true, INFRA, BLAME_NODE, 3}},
     JOB_QUEUED},
    {"a kill from outside blames no node, however often",
     {{"a", JOB_STARTING, TASK_RUN, 0, SIGKILL, true, INFRA, BLAME_NONE, 0},
      {"b", JOB_STARTING, TASK_RUN, 0, SIGKILL, true, INFRA, BLAME_NONE, 0},
      {"b", JOB_STARTING, TASK_RUN, 0, SIGTERM, true, INFRA, BLAME_NONE, 0}},
     JOB_QUEUED},
    {"nodes without the files are left out until none is left",
     {{"a", JOB_STARTING, TASK_PREPARE, -1, 0, true, INFRA, BLAME_FILES, 1},
      {"b", JOB_STARTING, TASK_PREPARE, -1, 0, true, INFRA, BLAME_FILES, 2},
      {"c", JOB_STARTING, TASK_PREPARE, -1, 0, false, CAUSE_FINAL, BLAME_NONE, 2}},
     JOB_FAILED},
};

static void test_stories(void)
{
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++) {
        struct job *j = job_at(JOB_QUEUED, false);
        for (size_t k = 0; k < 5 && stories[i].said[k].node; k++)
            fail(j, &stories[i].said[k], 10 * i + k);
        CHECK_MSG(j->state == stories[i].end, "%s: %s", stories[i].name, job_state_name(j->state));
        job_destroy(j);
    }
}

/* Checks that the next attempt begins without a delay if an attempt failed because its node lacks
 * files. */
static void test_backoff(void)
{
    struct job *j = job_at(JOB_QUEUED, false);
    for (int i = 0; i < 4; i++)
        fail(j, &(struct said){"a", JOB_STARTING, TASK_RUN, -1, 0, true, INFRA, BLAME_FILES, 1}, 0);
    CHECK(j->n_failures == 0 && j->not_before_ms == 1);
    fail(j, &(struct said){"b", JOB_STARTING, TASK_RUN, 9, 0, true, INFRA, BLAME_NODE, 2}, 1);
    CHECK(j->n_failures == 1 && j->not_before_ms == 1); /* the first retry is immediate */
    fail(j, &(struct said){"c", JOB_STARTING, TASK_RUN, 8, 0, true, INFRA, BLAME_NODE, 3}, 2);
    CHECK(j->n_failures == 2 && j->not_before_ms == 1001);
    job_destroy(j);
}

/* Checks that a toy run ends with its first failure, because its result is then known. */
static void test_toy(void)
{
    struct job *j = job_at(JOB_QUEUED, false);
    snprintf(j->only, sizeof j->only, "a");
    fail(j, &(struct said){"a", JOB_STARTING, TASK_RUN, 127, 0, false, CAUSE_FINAL, BLAME_NONE, 0},
         0);
    CHECK(j->state == JOB_FAILED);
    job_destroy(j);
}

int main(void)
{
    RUN(test_reports);
    RUN(test_exits);
    RUN(test_gang_ends);
    RUN(test_device_twice);
    RUN(test_stories);
    RUN(test_backoff);
    RUN(test_toy);
    return test_done("seqd_blame");
}
