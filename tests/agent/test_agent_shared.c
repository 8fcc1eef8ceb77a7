/* test_agent_shared: the directory that nodes share has one id, however many agents make it at
 * once, and an agent notices that it has gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/shared.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "worker/agent/shared.h"
#include "worker/agent/state_dir.h"

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

static void begin(void)
{
    CHECK(!file_remove(dir, &e) && !file_make_dir(in("share"), &e));
}

static void test_id(void)
{
    int64_t id = 0, again = 0;
    begin();
    CHECK(shared_open(in("none"), &id, &e) && e.code == ERR_NOT_FOUND && !file_exists(in("none")));
    CHECK_MSG(!shared_open(in("share"), &id, &e), "%s", e.text);
    CHECK(id > 0 && id <= SHARED_ID_MAX && beneath_marked(in("share")));
    CHECK(!shared_open(in("share"), &again, &e) && again == id);
    CHECK(!shared_check(in("share"), id, &e));
    CHECK(shared_check(in("share"), id + 1, &e) && e.code == ERR_IO);
    CHECK(!rename(in("share"), in("hidden")));
    CHECK(shared_check(in("share"), id, &e) && e.code == ERR_IO);
    CHECK(!file_make_dir(in("share"), &e) && shared_check(in("share"), id, &e));
    CHECK(!file_write(in("hidden/" SHARED_FILE), "12\n4", 4, &e));
    CHECK(shared_open(in("hidden"), &id, &e) && e.code == ERR_CORRUPT);
}

/* Agents that make the id at the same time all get the same one. */
static void test_together(void)
{
    enum { N = 6, ROUNDS = 10 };
    int64_t id = 0, first = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int pipes[2];
        begin();
        CHECK(!pipe(pipes));
        for (int i = 0; i < N; i++) {
            if (fork()) continue;
            struct err own;
            _exit(shared_open(in("share"), &id, &own) ||
                  write(pipes[1], &id, sizeof id) != sizeof id);
        }
        for (int i = 0, status; i < N; i++) {
            CHECK(wait(&status) > 0 && !status);
            CHECK(read(pipes[0], &id, sizeof id) == sizeof id);
            if (!i) first = id;
            CHECK(id == first);
        }
        close(pipes[0]), close(pipes[1]);
    }
}

static int open_state(struct state_dir *s, const char *root)
{
    const char *const roots[] = {root};
    if (state_dir_open(s, in("state"), roots, 1, &e)) return -1;
    return state_dir_share(s, in("share"), &e);
}

static void test_state_dir(void)
{
    struct state_dir s;
    char buf[8];
    begin();
    CHECK(!file_make_dir(in("data"), &e));
    CHECK_MSG(!open_state(&s, in("data")), "%s", e.text);
    CHECK(s.shared > 0);
    CHECK_STR(s.files, in("share"));
    CHECK(!file_make_dir(in("share/jobs/7/artifacts"), &e));
    CHECK(!file_write(in("share/jobs/7/artifacts/a"), "abc", 3, &e));
    struct state_dir_file f = {.job = 7, .path = "a", .buf = buf, .size = sizeof buf};
    CHECK(state_dir_fetch(&s, &f, &e) == 3);
    state_dir_close(&s);
    CHECK(open_state(&s, dir) && e.code == ERR_INVALID && strstr(e.text, "--shared")); /* a root */
    state_dir_close(&s);
    CHECK(!file_make_dir(in("state/jobs/3"), &e));
    CHECK(open_state(&s, in("data")) && e.code == ERR_CONFLICT);
    state_dir_close(&s);
}

/* Checks that a directory with files of others is refused, and is not changed. */
static void test_others(void)
{
    struct state_dir s;
    struct stat st;
    begin();
    CHECK(!file_make_dir(in("data"), &e) && !file_make_dir(in("share/others"), &e));
    CHECK(!chmod(in("share"), 0755) && !chmod(in("share/others"), 0755));
    CHECK(open_state(&s, in("data")) && e.code == ERR_CONFLICT);
    CHECK_MSG(strstr(e.text, "has other files"), "%s", e.text);
    CHECK(!stat(in("share"), &st) && (st.st_mode & 0777) == 0755);
    CHECK(!stat(in("share/others"), &st) && (st.st_mode & 0777) == 0755);
    CHECK(!file_exists(in("share/jobs")));
    state_dir_close(&s);
}

static void test_watch(void)
{
    int64_t id;
    begin();
    CHECK(!shared_open(in("share"), &id, &e));
    struct shared_watch *w = shared_watch_create(in("share"), id + 1);
    while (shared_watch_good(w)) usleep(1000);
    shared_watch_destroy(w);
    w = shared_watch_create(in("share"), id);
    CHECK(shared_watch_good(w) && shared_watch_good(NULL));
    shared_watch_destroy(w);
    shared_watch_destroy(NULL);
}

int main(void)
{
    scratch_dir(dir, sizeof dir, "shared");
    RUN(test_id);
    RUN(test_together);
    RUN(test_state_dir);
    RUN(test_others);
    RUN(test_watch);
    file_remove(dir, NULL);
    return test_done("agent_shared");
}
