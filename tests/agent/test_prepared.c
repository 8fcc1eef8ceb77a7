/* test_prepared: tests which prepared data is removed. The least recently used entry is removed
 * first. An entry in use is never removed. A file that is not an entry is never removed,
 * either. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "worker/agent/prepared.h"
#include "tests/lib/test.h"

/* ---- the choice ------------------------------------------------------------------------------ */

static bool goes(const struct prepared_entry *list, int n, const char *id)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].id, id)) return list[i].goes;
    CHECK(0);
    return false;
}

static void test_pick(void)
{
    const struct prepared_entry all[] = {{"c", 30, 300, false, false},
                                         {"a", 10, 100, false, false},
                                         {"b", 20, 200, true, false},
                                         {"d", 40, 400, false, false}};
    struct prepared_entry l[4];
    memcpy(l, all, sizeof l);
    CHECK(prepared_pick(l, 4, 100, 0, 1000) == 0); /* the data fits, so no entry is removed */
    memcpy(l, all, sizeof l);
    CHECK(prepared_pick(l, 4, 99, 0, 1000) == 1 && goes(l, 4, "a"));
    memcpy(l, all, sizeof l);
    CHECK(prepared_pick(l, 4, 60, 0, 1000) == 2 && goes(l, 4, "a") && goes(l, 4, "c"));
    memcpy(l, all, sizeof l);
    CHECK(prepared_pick(l, 4, 1, 0, 1000) == 3 && !goes(l, 4, "b")); /* b is in use */
    memcpy(l, all, sizeof l);
    CHECK(prepared_pick(l, 4, 0, 650, 1000) == 2 && goes(l, 4, "a") && goes(l, 4, "c"));
    memcpy(l, all, sizeof l);
    CHECK(prepared_pick(l, 4, 0, 0, 1000) == 0 && prepared_pick(l, 0, 1, 1, 1) == 0);
}

static void test_policy(void)
{
    static const char *const bad[] = {"",    "5",   "%",   "101%", "0G",
                                      "-1d", "5G,", ",5G", "5Gx",  "1G,2d,3d"};
    struct prepared_policy p;
    struct err e;
    CHECK(!prepared_policy_read(&p, PREPARED_KEEP, &e) && p.percent == 20 && p.age_s == 30 * 86400);
    CHECK(!prepared_policy_read(&p, "200G", &e) && p.size == (int64_t)200 << 30 && !p.age_s);
    CHECK(!prepared_policy_read(&p, "12h,500M", &e) && p.size == 500 << 20 && p.age_s == 12 * 3600);
    CHECK(!prepared_policy_read(&p, "never", &e) && !p.size && !p.percent && !p.age_s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(prepared_policy_read(&p, bad[i], &e) && strstr(e.text, "--keep-prepared"), "%s",
                  bad[i]);
}

/* ---- files ----------------------------------------------------------------------------------- */

static char dir[64];
static int64_t now_ms = 1000, now_s;
static const char *used = "";

static int64_t fake_clock(void *arg)
{
    return now_ms;
}

static int64_t fake_utc(void)
{
    return now_s;
}

static bool in_use(void *arg, const char *id)
{
    return !strcmp(used, id);
}

static const char *at(const char *name)
{
    static char path[4][256];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static void put(const char *id, int64_t used_s)
{
    static const char zeros[100000];
    char file[300];
    const struct timespec t[2] = {{.tv_sec = used_s}, {.tv_sec = used_s}};
    CHECK(!mkdir(at(id), 0700));
    snprintf(file, sizeof file, "%s/tokens", at(id));
    CHECK(!file_write(file, zeros, sizeof zeros, NULL));
    CHECK(!utimensat(AT_FDCWD, at(id), t, 0));
}

/* Runs the loop until the sweep that is due has listed, chosen and removed entries. */
static void sweep(struct loop *l, const char *gone)
{
    now_ms += PREPARED_SWEEP_MS;
    for (int i = 0; i < 500 && file_exists(at(gone)); i++) loop_turn(l, 10);
    CHECK_MSG(!file_exists(at(gone)), "%s is there", gone);
}

static void test_files(void)
{
    static const struct prepared_calls calls = {in_use, fake_utc};
    const struct prepared_policy policy = {.age_s = 1000};
    struct err e;
    snprintf(dir, sizeof dir, "/tmp/seqd-prepared-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    struct loop *l = loop_create(fake_clock, NULL, &e);
    struct trees *t = trees_create(l);
    struct prepared *p = prepared_create(l, t, dir, &policy, false, &calls, NULL);
    now_s = 1000000;
    put("0a0a", now_s - 2000), put("0b0b", now_s - 2000), put("0c0c", now_s - 500);
    put("0d0d.gone", now_s - 1), put("0e0e.tmp", now_s - 9000), put("notes", now_s - 9000);
    CHECK(!file_write(at("0a0a.lock"), "", 0, NULL));
    used = "0b0b";
    sweep(l, "0a0a");
    for (int i = 0; i < 500 && (file_exists(at("0a0a.gone")) || file_exists(at("0d0d.gone"))); i++)
        loop_turn(l, 10);
    CHECK(!file_exists(at("0a0a.gone")) && !file_exists(at("0d0d.gone")));
    CHECK(file_exists(at("0b0b/tokens")) && file_exists(at("0c0c/tokens")));
    CHECK(file_exists(at("0e0e.tmp")) && file_exists(at("notes")) && file_exists(at("0a0a.lock")));
    prepared_use(p, "0b0b"); /* uses the machine's clock, which is long after now_s */
    prepared_use(p, "none"), prepared_use(p, "");
    used = "";
    now_s += 800;
    sweep(l, "0c0c");
    CHECK(file_exists(at("0b0b/tokens")));
    trees_destroy(t);
    prepared_destroy(p);
    loop_destroy(l);
    CHECK(!file_remove(dir, NULL));
}

/* In a shared directory, data that were used within PREPARED_RECENT_S stay, and the use of data
 * here is noted for the other nodes. */
static void test_shared(void)
{
    static const struct prepared_calls calls = {in_use, fake_utc};
    const struct prepared_policy policy = {.age_s = 1000};
    struct err e;
    struct stat st;
    snprintf(dir, sizeof dir, "/tmp/seqd-prepared-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    struct loop *l = loop_create(fake_clock, NULL, &e);
    struct trees *t = trees_create(l);
    struct prepared *p = prepared_create(l, t, dir, &policy, true, &calls, NULL);
    now_s = 1000000;
    put("0a0a", now_s - PREPARED_RECENT_S - 10), put("0b0b", now_s - 2000);
    put("0c0c", now_s - PREPARED_RECENT_S - 10);
    used = "0c0c";
    sweep(l, "0a0a");
    CHECK(file_exists(at("0b0b/tokens")) && file_exists(at("0c0c/tokens")));
    CHECK(!stat(at("0c0c"), &st) && st.st_mtime > now_s);
    used = "";
    trees_destroy(t);
    prepared_destroy(p);
    loop_destroy(l);
    CHECK(!file_remove(dir, NULL));
}

int main(void)
{
    RUN(test_pick);
    RUN(test_policy);
    RUN(test_files);
    RUN(test_shared);
    return test_done("prepared");
}
