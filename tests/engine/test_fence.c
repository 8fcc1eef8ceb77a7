/* test_fence: an attempt of an older epoch publishes nothing once a newer one has raised the fence,
 * however the two are interleaved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/file.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "worker/ckpt/fence.h"

static char dir[64];
static struct err e;

static const char *in(const char *name)
{
    static char out[4][512];
    static int k;
    k = (k + 1) % 4;
    snprintf(out[k], sizeof out[k], "%s/%s", dir, name);
    return out[k];
}

static void make(const char *name)
{
    CHECK_MSG(!file_make_dir(in(name), &e), "%s", e.text);
    CHECK(!file_write(in("checkpoints/any"), "x", 1, &e));
}

static void begin(void)
{
    CHECK(!file_remove(dir, &e) && !file_make_dir(dir, &e));
}

static void test_newer_epoch(void)
{
    begin();
    CHECK_MSG(!fence_raise(dir, 3, &e), "%s", e.text);
    CHECK(!fence_check(dir, 3, &e));
    make("checkpoints/step-00000010.e3.tmp");
    make("checkpoints/step-00000020.e4.tmp");
    make("checkpoints/step-00000005");
    CHECK(!fence_raise(dir, 3, &e) && file_exists(in("checkpoints/step-00000010.e3.tmp")));
    CHECK(!fence_raise(dir, 4, &e) && !fence_check(dir, 4, &e));
    /* the directory from which the older attempt would publish is gone, and nothing else is */
    CHECK(rename(in("checkpoints/step-00000010.e3.tmp"), in("checkpoints/step-00000010")) < 0);
    CHECK(!file_exists(in("checkpoints/step-00000010.e0.tmp")));
    CHECK(file_exists(in("checkpoints/step-00000020.e4.tmp")));
    CHECK(file_exists(in("checkpoints/step-00000005")));
    CHECK(fence_check(dir, 3, &e) && e.code == ERR_ABORTED);
    CHECK(strstr(e.text, "epoch 4 has taken over") != NULL);
    CHECK(fence_raise(dir, 3, &e) && e.code == ERR_ABORTED);
    CHECK(!fence_check(dir, 4, &e));
}

static void test_gone(void)
{
    begin();
    CHECK(!fence_raise(dir, 1, &e) && !unlink(in("epoch")));
    CHECK(fence_check(dir, 1, &e) && e.code == ERR_IO);
    CHECK(!file_write(in("epoch"), "one\n", 4, &e));
    CHECK(fence_check(dir, 1, &e) && e.code == ERR_CORRUPT);
    CHECK(!file_remove(dir, &e));
    CHECK(fence_raise(dir, 2, &e) && !file_exists(dir)); /* no directory is made */
}

/* Processes raise the fence at the same time. The largest epoch remains, and its attempt is the
 * only one that may publish. */
static void test_together(void)
{
    enum { N = 6, ROUNDS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        begin();
        for (int i = 1; i <= N; i++) {
            if (fork()) continue;
            struct err own = {0};
            _exit(!fence_raise(dir, i, &own) || own.code == ERR_ABORTED ? 0 : 1);
        }
        for (int i = 0, status; i < N; i++) CHECK(wait(&status) > 0 && !status);
        CHECK_MSG(!fence_check(dir, N, &e), "%s", e.text);
        CHECK(fence_check(dir, N - 1, &e) && e.code == ERR_ABORTED);
        CHECK(!file_exists(in("epoch.e6")) && !file_exists(in("epoch.e6.taken")));
    }
}

int main(void)
{
    scratch_dir(dir, sizeof dir, "fence");
    RUN(test_newer_epoch);
    RUN(test_gone);
    RUN(test_together);
    file_remove(dir, NULL);
    return test_done("fence");
}
