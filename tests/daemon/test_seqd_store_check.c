/* test_seqd_store_check: checks that damage in a database file is found. A page that the disk
 * could not read must not count as damage. If a file cannot be read again within a minute, it
 * counts as damaged. The test has its own clock. */
#include <sys/syscall.h>
#include <time.h>
#include "daemon/store/store_check.h"
#include "tests/lib/bad_disk.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

enum { ROWS = 400, PAGE = 4096, LIMIT_MS = 10000 };

static char dir[64], path[128];
/* the clock is ahead by ahead_s, which grows by pace_s with each read of the clock */
static int64_t ahead_s, pace_s;

int clock_gettime(clockid_t id, struct timespec *t)
{
    const int rc = (int)syscall(SYS_clock_gettime, id, t);
    t->tv_sec += ahead_s;
    ahead_s += pace_s;
    return rc;
}

static void minutes_pass(void)
{
    pace_s = 61;
}

static void make_file(void)
{
    sqlite3 *db;
    char sql[256];
    scratch_dir(dir, sizeof dir, "store_check");
    snprintf(path, sizeof path, "%s/a.db", dir);
    snprintf(sql, sizeof sql,
             "CREATE TABLE a(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
             "WHERE i < %d) INSERT INTO a SELECT zeroblob(1000) FROM n",
             ROWS);
    CHECK(!sqlite3_open(path, &db) && !sqlite3_exec(db, sql, 0, 0, 0) && !sqlite3_close(db));
}

/* Checks the file with a new connection. Read number fail_at of this connection fails. If fail_at
 * is 0, no read fails. */
static int check_file(int64_t fail_at, int64_t limit_ms, struct err *e)
{
    sqlite3 *db;
    CHECK(!sqlite3_open(path, &db));
    ahead_s = pace_s = 0;
    *e = (struct err){0};
    disk.faults = DISK_READ;
    disk.files = SQLITE_OPEN_MAIN_DB;
    disk.failed = NULL;
    disk.n_calls = 0;
    disk.fail_at = fail_at;
    const int rc = store_check(db, path, limit_ms, e);
    disk.faults = 0;
    CHECK(!sqlite3_close(db));
    return rc;
}

static void test_sound(void)
{
    struct err e;
    CHECK(!check_file(0, LIMIT_MS, &e));
    CHECK_MSG(disk.n_calls > ROWS / 4, "%lld pages were read", (long long)disk.n_calls);
}

/* Checks a page that can be read only at the second try. The failure must count as a fault of the
 * disk, and the file must count as sound. */
static void test_read_fails(void)
{
    struct err e;
    disk.before = NULL;
    CHECK(check_file(ROWS / 8, LIMIT_MS, &e) < 0 && disk.failed);
    CHECK_MSG(e.code == ERR_IO && strstr(e.text, "could not be read"), "%s", e.text);
}

/* Checks the same failure of the disk, while each read of the clock sets it ahead by a minute. */
static void test_reads_too_slowly(void)
{
    struct err e;
    disk.before = minutes_pass;
    CHECK(check_file(ROWS / 8, LIMIT_MS, &e) < 0 && disk.failed);
    disk.before = NULL;
    CHECK_MSG(e.code == ERR_CORRUPT && strstr(e.text, "is damaged"), "%s", e.text);
}

static void test_damage(void)
{
    struct err e;
    char page[PAGE];
    memset(page, 0xa5, sizeof page);
    FILE *f = fopen(path, "r+");
    CHECK(f && !fseek(f, 10 * PAGE, SEEK_SET) && fwrite(page, PAGE, 1, f) == 1 && !fclose(f));
    CHECK(check_file(0, LIMIT_MS, &e) < 0);
    CHECK_MSG(e.code == ERR_CORRUPT && strstr(e.text, "is damaged"), "%s", e.text);
    CHECK_MSG(!strchr(e.text, '\n'), "an error is one line: %s", e.text);
}

int main(void)
{
    bad_disk_install();
    make_file();
    RUN(test_sound);
    RUN(test_read_fails);
    RUN(test_reads_too_slowly);
    RUN(test_damage);
    CHECK(!unlink(path) && !rmdir(dir));
    return test_done("seqd_store_check");
}
