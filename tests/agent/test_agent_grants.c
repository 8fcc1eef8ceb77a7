/* test_agent_grants: tests the private files that a job may read. The agent accepts a path from
 * seqd only if the path is beneath a root of this node. It replaces job:ID by a path on this
 * node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "tests/lib/test.h"
#include "worker/agent/grants.h"

static char dir[64];
static struct state_dir s;
static struct err e;

static const char *in(const char *name)
{
    static char out[4][512];
    static int k;
    k = (k + 1) % 4;
    snprintf(out[k], sizeof out[k], "%s/%s", dir, name);
    return out[k];
}

static void test_take(void)
{
    struct grants g = {0};
    const char *const list[] = {in("up/files/a"), "/etc", in("up/files/none"), in("up/files/a")};
    grants_take(&g, &s, list, 4);
    CHECK(g.n == 1);
    CHECK_STR(g.dir[0], in("up/files/a"));
}

static void test_spec(void)
{
    struct job_spec *spec = calloc(1, sizeof *spec);
    struct grants g = {0};
    char want[1024];
    spec_defaults(spec);
    CHECK(!spec_intern(spec, "job:7/step-20/hf", 16, &spec->model.path) &&
          !spec_intern(spec, "job:7/artifacts/a", 17, &spec->context.load) &&
          !spec_intern(spec, "/data/x", 7, &spec->input.source.path));
    CHECK_MSG(!grants_spec(&g, &s, spec, &e), "%s", e.text);
    snprintf(want, sizeof want, "%s/jobs/7/checkpoints/step-00000020/hf", s.dir);
    CHECK_STR(spec_text(spec, spec->model.path), want);
    want[strlen(want) - 3] = 0;
    CHECK(g.n == 2);
    CHECK_STR(g.dir[0], want);
    snprintf(want, sizeof want, "%s/jobs/7/artifacts/a", s.dir);
    CHECK_STR(spec_text(spec, spec->context.load), want);
    *strrchr(want, '/') = 0;
    CHECK_STR(g.dir[1], want);
    CHECK_STR(spec_text(spec, spec->input.source.path), "/data/x");
    CHECK(!spec_intern(spec, "job:7", 5, &spec->model.path)); /* seqd resolves a path of the form
                                                               * job:ID */
    CHECK(grants_spec(&g, &s, spec, &e) < 0 && !strcmp(e.field, "model.path"));
    CHECK(!spec_intern(spec, "job:7/../8", 10, &spec->model.path));
    CHECK(grants_spec(&g, &s, spec, &e) < 0 && e.code == ERR_INVALID);
    g.n = RANK_GRANTS;
    CHECK(!spec_intern(spec, "job:9/step-1", 12, &spec->model.path));
    CHECK(grants_spec(&g, &s, spec, &e) < 0 && e.code == ERR_TOO_LARGE);
    free(spec);
}

/* Checks a file that should hold an epoch and does not. The agent must not treat this file as
 * missing, because an old attempt could then begin a second time. */
static void test_epochs(void)
{
    static const char *const bad[] = {"x\n", "4", "", "-1\n", "99999999999999999999\n"};
    int64_t epoch = -1;
    CHECK(!state_dir_epoch(&s, 7, &epoch, &e) && epoch == 0);
    CHECK(!state_dir_epoch_set(&s, 7, 3, &e) && !state_dir_epoch(&s, 7, &epoch, &e) && epoch == 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!file_write(in("state/epochs/7"), bad[i], strlen(bad[i]), &e));
        CHECK_MSG(state_dir_epoch(&s, 7, &epoch, &e) == -1 && e.code == ERR_CORRUPT &&
                      strstr(e.text, "epochs/7 holds no epoch"),
                  "%s: %s", bad[i], e.text);
    }
    CHECK(!state_dir_epoch_remove(&s, 7, &e) && !state_dir_epoch(&s, 7, &epoch, &e) && epoch == 0);
    CHECK(!file_make_dir(in("state/epochs/8"), &e) && state_dir_epoch(&s, 8, &epoch, &e) == -1);
}

int main(void)
{
    snprintf(dir, sizeof dir, "/tmp/seqd-grants-XXXXXX");
    if (!mkdtemp(dir)) abort();
    CHECK(!file_make_dir(in("up/files/a"), &e));
    const char *const roots[] = {in("up")};
    CHECK_MSG(!state_dir_open(&s, in("state"), roots, 1, &e), "%s", e.text);
    CHECK(file_exists(in("state/" BENEATH_MARK)) && beneath_private(in("state/jobs")));
    RUN(test_take);
    RUN(test_spec);
    RUN(test_epochs);
    state_dir_close(&s);
    file_remove(dir, NULL);
    return test_done("agent_grants");
}
