/* test_making: one process at a time makes prepared data, on a disk and in a directory that nodes
 * share, where the file of a silent maker is taken away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/shared.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "worker/data/making.h"

static char dir[64], parent[128];
static struct err e;

static const char *in(const char *name)
{
    static char out[4][512];
    static int k;
    k = (k + 1) % 4;
    snprintf(out[k], sizeof out[k], "%s/%s", dir, name);
    return out[k];
}

static void begin(bool shared)
{
    CHECK(!file_remove(dir, &e) && !file_make_dir(parent, &e));
    if (shared) CHECK(!file_write(in(SHARED_FILE), "1\n", 2, &e));
}

/* Makes `alone` for a moment. Fails if it exists, because then another process makes data. */
static int make_alone(void)
{
    struct making_claim m;
    struct err own;
    if (making_begin(&m, parent, "0a", MAKING_STALE_MS, &own) || file_make_dir(m.tmp, &own))
        return 1;
    const int rc = mkdir(in("alone"), 0700) || rmdir(in("alone")) || file_remove(m.tmp, &own);
    making_end(&m);
    return rc;
}

static void check_alone(bool shared)
{
    enum { N = 4, ROUNDS = 3 };
    begin(shared);
    for (int i = 0; i < N; i++) {
        if (fork()) continue;
        int rc = 0;
        for (int k = 0; k < ROUNDS && !rc; k++) rc = make_alone();
        _exit(rc);
    }
    for (int i = 0, status; i < N; i++) CHECK(wait(&status) > 0 && !status);
    CHECK(!file_exists(in("prepared/0a.making")));
}

static void test_alone(void)
{
    check_alone(false);
    check_alone(true);
}

/* A process that is killed leaves its file and its directory. The next process takes both away. */
static void test_killed(void)
{
    for (int shared = 0; shared < 2; shared++) {
        struct making_claim m;
        int status;
        begin(shared);
        CHECK(!file_make_dir(in("prepared/0b.tmp"), &e)); /* of other data */
        if (!fork())
            _exit(making_begin(&m, parent, "0a", MAKING_STALE_MS, &e) || file_make_dir(m.tmp, &e));
        CHECK(wait(&status) > 0 && !status);
        CHECK(file_exists(in("prepared/0a.making")) == shared);
        CHECK_MSG(!making_begin(&m, parent, "0a", 20, &e), "%s", e.text);
        CHECK(m.shared == shared && !file_exists(m.tmp) && file_exists(in("prepared/0b.tmp")));
        making_end(&m);
        CHECK(!file_exists(in("prepared/0a.making")));
        making_end(&m);
    }
}

int main(void)
{
    scratch_dir(dir, sizeof dir, "making");
    snprintf(parent, sizeof parent, "%s/prepared", dir);
    RUN(test_alone);
    RUN(test_killed);
    file_remove(dir, NULL);
    return test_done("making");
}
