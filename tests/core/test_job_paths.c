/* test_job_paths: tests job:ID, which a spec may have instead of a path. It covers the form of
 * job:ID and the file that it names on a node, and checks that this file is never outside of the
 * job's directory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job_paths.h"
#include "tests/lib/test.h"

static struct err e;

static void test_read(void)
{
    static const struct {
        const char *text, *written, *path, *granted;
    } good[] = {
        {"job:7/step-20", "job:7/step-20", "checkpoints/step-00000020",
         "checkpoints/step-00000020"},
        {"job:7/step-00000020/hf", "job:7/step-20/hf", "checkpoints/step-00000020/hf",
         "checkpoints/step-00000020"},
        {"job:12/artifacts/a.bin", "job:12/artifacts/a.bin", "artifacts/a.bin", "artifacts/a.bin"},
    };
    static const char *const bad[] = {"job:",
                                      "job:/step-1",
                                      "job:0",
                                      "job:7/",
                                      "job:7/x",
                                      "job:7/step-",
                                      "job:7/step-0",
                                      "job:7/step-1/../../8",
                                      "job:7/step-1/",
                                      "job:7/step-1//a",
                                      "job:7/step-1x",
                                      "job:7/artifacts/../x",
                                      "job:7/artifacts/a/b",
                                      "job:7/artifacts/",
                                      "job:9999999999999999999",
                                      "job:7/step-1/a\n"};
    struct job_ref r;
    char out[600];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_MSG(!job_ref_read(good[i].text, "model.path", &r, &e), "%s", e.text);
        CHECK(job_ref_write(&r, out, sizeof out) > 0);
        CHECK_STR(out, good[i].written);
        CHECK(job_ref_path(&r, false, out, sizeof out) > 0);
        CHECK_STR(out, good[i].path);
        CHECK(job_ref_path(&r, true, out, sizeof out) > 0);
        CHECK_STR(out, good[i].granted);
        CHECK(job_ref_write(&r, out, 5) < 0 && job_ref_path(&r, false, out, 5) < 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(job_ref_is(bad[i]) && job_ref_read(bad[i], "model.path", &r, &e), "%s", bad[i]);
        CHECK_STR(e.field, "model.path");
    }
    CHECK(!job_ref_read("job:night run/step-3", "model.path", &r, &e));
    CHECK(!r.job && r.step == 3 && !strcmp(r.name, "night run"));
    CHECK(!job_ref_is("jobs/7") && !job_ref_is("/job:7"));
}

static void test_guess(void)
{
    static const char *const none[] = {"/s/jobs/7", "/s/jobs/7/checkpoints",
                                       "/s/jobs/x/checkpoints/step-1",
                                       "/s/jobs/7/checkpoints/step-1.e2.tmp", "/jobs/7/step-3"};
    struct job_ref r;
    size_t n = 0;
    CHECK(job_ref_guess("/s/jobs/7/checkpoints/step-00000020/hf", &r, &n));
    CHECK(r.job == 7 && r.step == 20 && !strcmp(r.below, "hf") && n == 35);
    CHECK(job_ref_guess("/jobs/1/jobs/7/checkpoints/step-00000020", &r, &n) && r.job == 7 &&
          !*r.below);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK_MSG(!job_ref_guess(none[i], &r, &n), "%s", none[i]);
}

static void test_tidy(void)
{
    static const char *const pairs[][2] = {
        {"/", "/"},        {"//a//b/", "/a/b"},  {"/a/./b", "/a/b"},
        {"/a/../b", "/b"}, {"/../a", "/a"},      {"/a/b/..", "/a"},
        {"/a/../..", "/"}, {"/a/..b", "/a/..b"}, {"/.", "/"}};
    char out[16];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        CHECK_MSG(job_path_tidy(pairs[i][0], out, sizeof out), "%s", pairs[i][0]);
        CHECK_STR(out, pairs[i][1]);
    }
    CHECK(!job_path_tidy("a", out, sizeof out) && !job_path_tidy("", out, sizeof out));
    CHECK(job_path_tidy("/2345678901234", out, sizeof out));
    CHECK(!job_path_tidy("/234567890123456", out, sizeof out));
}

/* Checks every field that names files. The test counts the fields, so a new field that names files
 * must be added to the list below. */
static void test_fields(void)
{
    struct job_spec *s = calloc(1, sizeof *s);
    struct spec_path path[SPEC_PATHS];
    spec_defaults(s);
    CHECK(job_paths(s, path) == 0);
    CHECK(!spec_intern(s, "x", 1, &s->model.path) && !spec_intern(s, "x", 1, &s->context.load) &&
          !spec_intern(s, "x", 1, &s->checkpoint.resume_path) &&
          !spec_intern(s, "x", 1, &s->model.adapter) &&
          !spec_intern(s, "x", 1, &s->input.source.path));
    /* resume_path counts only if checkpoint.resume is the word for a path */
    CHECK(job_paths(s, path) == 4);
    for (int i = 0; i < SPEC_ADAPTERS; i++)
        CHECK(!spec_intern(s, "a.b", 3, &s->model.adapters[i].name) &&
              !spec_intern(s, "x", 1, &s->model.adapters[i].path));
    s->checkpoint.resume = RESUME_PATH;
    s->data.n_train = s->eval.n_data = SPEC_SOURCES;
    for (int i = 0; i < SPEC_SOURCES; i++)
        CHECK(!spec_intern(s, "x", 1, &s->data.train[i].path) &&
              !spec_intern(s, "x", 1, &s->eval.data[i].path));
    CHECK(job_paths(s, path) == SPEC_PATHS);
    CHECK_STR(path[1].field, "model.adapter");
    CHECK_STR(path[2].field, "model.adapters.a.b");
    CHECK_STR(path[2 + SPEC_ADAPTERS].field, "checkpoint.resume");
    CHECK_STR(path[SPEC_PATHS - 1].field, "eval.data.31.path");
    for (int i = 0; i < SPEC_PATHS; i++) { /* input.path, and the paths after context.load */
        const bool data = i == 3 + SPEC_ADAPTERS || i > 4 + SPEC_ADAPTERS;
        CHECK(data ? path[i].ref == &path[i].source->path : !path[i].source);
    }
    free(s);
}

int main(void)
{
    RUN(test_read);
    RUN(test_guess);
    RUN(test_tidy);
    RUN(test_fields);
    return test_done("job_paths");
}
