/* test_seqd_backup: tests a copy of the database that is fetched over REST. Checks its content,
 * and the requests that are refused. */
#include "tests/lib/rest.h"

#include <dirent.h>
#include <sqlite3.h>
#include "api/core/file.h"

static char name[BACKUP_NAME], digest[SHA256_HEX];

static void value(const char *key, char *out, size_t size)
{
    char want[32];
    snprintf(want, sizeof want, "\"%s\":\"", key);
    const char *p = strstr(reply, want);
    CHECK_MSG(p != NULL, "%s in %s", key, reply);
    if (!p) return;
    p += strlen(want);
    snprintf(out, size, "%.*s", (int)strcspn(p, "\""), p);
}

static void make_one(void)
{
    CHECK_MSG(post("/v1/backup", "") == 201, "%s", reply);
    value("name", name, sizeof name);
    value("sha256", digest, sizeof digest);
}

static int n_files_of(const char *folder)
{
    char dir[128];
    int n = 0;
    snprintf(dir, sizeof dir, "%s/%s", w.dir, folder);
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) n += x->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static int n_files(void)
{
    return n_files_of("backups");
}

static int64_t count_of(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *st;
    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK);
    CHECK(sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK);
    CHECK(sqlite3_step(st) == SQLITE_ROW);
    const int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

static void test_made_and_read(void)
{
    char path[256], hex[SHA256_HEX], url[128];
    struct stat st;
    begin();
    for (int i = 0; i < 20; i++) CHECK(post("/v1/jobs", job_json) == 201);
    make_one();
    CHECK(post("/v1/jobs", job_json) == 201); /* a job after the backup */
    snprintf(path, sizeof path, "%s/backups/%s", w.dir, name);
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600);
    CHECK(sha256_file(path, hex, NULL, NULL) == 0);
    CHECK_STR(hex, digest);
    CHECK(count_of(path, "SELECT count(*) FROM jobs") == 20);
    CHECK(count_of(path, "SELECT count(*) FROM events") >= 20);
    snprintf(url, sizeof url, "/v1/backup/%s", name);
    CHECK(get(url) == 200);
    const char *body = strstr(reply, "\r\n\r\n");
    CHECK(body && reply_len - (size_t)(body + 4 - reply) == (size_t)st.st_size);
    CHECK(body && !memcmp(body + 4, "SQLite format 3", 16));

    finish();
}

static void test_refused(void)
{
    static const char *const wrong[] = {
        "/v1/backup/seqd.db",       "/v1/backup/..%2Fseqd.db",
        "/v1/backup/../seqd.db",    "/v1/backup/seqd-20260101T000000000Z.db",
        "/v1/backup/seqd-..%2F.db", "/v1/backup/part",
        "/v1/backup/seqd-%00.db",   "/v1/backup/seqd-1.db/x",
    };
    begin();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int status = get(wrong[i]);
        CHECK_MSG(status == 404 || status == 400, "%s: %d", wrong[i], status);
    }
    /* Only one backup may be made at a time. */
    int fd = post_begin("/v1/backup", "", "");
    CHECK(post("/v1/backup", "") == 409 || status_of() == 201);
    CHECK(answer_of(fd) == 201);
    finish();
}

static void test_newest_are_kept(void)
{
    char first[128], url[128];
    begin();
    make_one();
    snprintf(first, sizeof first, "/v1/backup/%s", name);
    for (int i = 0; i < BACKUP_KEEP; i++) make_one();
    CHECK(n_files() == BACKUP_KEEP);
    CHECK(get(first) == 404);
    snprintf(url, sizeof url, "/v1/backup/%s", name);
    CHECK(get(url) == 200);
    finish();
}

/* ---- at an interval -------------------------------------------------------------------------- */

enum { HOUR_MS = 3600000 };

static int64_t clock_ms = 1000;

static int64_t fake_clock(void *arg)
{
    return clock_ms;
}

static struct backup_plan plan(void)
{
    struct backup_plan p;
    backups_plan(store_backups(w.store), &p);
    return p;
}

/* Lets `ms` pass, and waits until a backup was made or has failed. */
static void pass(int64_t ms)
{
    const struct backup_plan was = plan();
    struct backup_plan is = was;
    clock_ms += ms;
    for (; is.last_ms == was.last_ms && is.n_failed == was.n_failed; is = plan())
        loop_turn(w.loop, 2);
}

static void on_made(void *arg, const struct backup_made *m, const struct err *e)
{
    *(bool *)arg = true;
}

/* Tells whether a backup begins within `ms`. If none does, another one can be begun. */
static bool begins_within(int64_t ms)
{
    struct err e;
    bool done = false;
    clock_ms += ms;
    loop_turn(w.loop, 0);
    if (backups_make(store_backups(w.store), on_made, &done, &e)) return true;
    while (!done) loop_turn(w.loop, 2);
    return false;
}

static void plan_hourly(const char *dir)
{
    struct err e;
    CHECK(!backups_every(store_backups(w.store), HOUR_MS, dir, 2, &e));
}

static void test_every_hour(void)
{
    char dir[96], away[96], path[300];
    struct stat st;
    rest_clock = fake_clock;
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    snprintf(dir, sizeof dir, "%s/hourly", w.dir);
    snprintf(away, sizeof away, "%s/away", w.dir);
    plan_hourly(dir);
    pass(0); /* there is none, so the first is made at once */
    CHECK(plan().last_ms > 0 && n_files_of("hourly") == 1);
    for (int i = 0; i < 3; i++) pass(HOUR_MS);
    CHECK(n_files_of("hourly") == 2 && !plan().n_failed);
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) {
        if (x->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%.200s", dir, x->d_name);
        CHECK(!strncmp(x->d_name, "seqd-2", 6) && !stat(path, &st) && (st.st_mode & 0777) == 0600);
        CHECK(count_of(path, "SELECT count(*) FROM jobs") == 1);
    }
    closedir(d);
    /* A failed backup is counted and tried again soon, and seqd runs on. */
    CHECK(!rename(dir, away));
    FILE *f = fopen(dir, "w");
    CHECK(f && !fclose(f));
    pass(HOUR_MS);
    CHECK(plan().n_failed == 1 && post("/v1/jobs", job_json) == 201);
    CHECK(get("/metrics") == 200 && strstr(reply, "seqd_backup_failures_total 1\n"));
    CHECK(!unlink(dir) && !rename(away, dir));
    pass(BACKUP_AGAIN_MS);
    CHECK(plan().n_failed == 1 && n_files_of("hourly") == 2);
    /* a restart does not make one before its time */
    close_server();
    begin_in(false, 0);
    plan_hourly(dir);
    CHECK(plan().last_ms > 0 && !begins_within(HOUR_MS / 2));
    finish();
    rest_clock = NULL;
}

static void put_file(const char *file, const char *text)
{
    char path[256];
    struct err e;
    snprintf(path, sizeof path, "%s/pki", w.dir);
    CHECK(!file_make_dir(path, &e));
    snprintf(path, sizeof path, "%s/%s", w.dir, file);
    CHECK(!file_write_private(path, text, strlen(text), &e));
}

static void check_file(const char *file, const char *want)
{
    char path[256];
    struct stat st;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", w.dir, file);
    char *text = file_read(path, 4096, &n, NULL);
    CHECK_MSG(text && !strcmp(text, want), "%s: %s", path, text ? text : "not there");
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600);
    free(text);
}

static void secrets(void (*call)(const char *, const char *))
{
    call("secret", "keys");
    call("pki/ca.pem", "an authority");
    call("token", "sq_of_dev");
}

/* Checks a state directory that has only the copy of the database. seqd must restore the other
 * files of the state from the copy. */
static void test_restored(void)
{
    char from[256], to[256];
    begin();
    secrets(put_file);
    for (int i = 0; i < 5; i++) CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(post("/v1/jobs/2:cancel", "") == 202);
    CHECK(get("/v1/jobs?limit=2") == 200 && strstr(reply, "\"next_cursor\":\"4\""));
    make_one();
    snprintf(from, sizeof from, "%s/backups/%s", w.dir, name);
    CHECK(count_of(from, "SELECT count(*) FROM carried") == 3);
    close_server();
    char old[64];
    snprintf(old, sizeof old, "%s", w.dir);
    snprintf(w.dir, sizeof w.dir, "/tmp/seqd-rest-XXXXXX");
    CHECK(mkdtemp(w.dir) != NULL);
    snprintf(to, sizeof to, "%s/seqd.db", w.dir);
    CHECK(!rename(from, to));
    begin_in(false, 0);
    secrets(check_file);
    CHECK(count_of(to, "SELECT count(*) FROM sqlite_master WHERE name = 'carried'") == 0);
    CHECK(get("/v1/jobs/5") == 200 && strstr(reply, "\"state\":\"queued\""));
    CHECK(get("/v1/jobs/2") == 200 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(get("/v1/jobs?limit=2&cursor=4") == 200 && strstr(reply, "\"id\":3"));
    /* Nodes may know ids of jobs that the backup does not have. A new job must not get one of
     * these ids. */
    CHECK(post("/v1/jobs", job_json) == 201 && strstr(reply, "\"id\":1000001"));
    make_one(); /* no file may be in the copy twice */
    finish();
    nftw(old, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Checks a copy that is put into the state directory of a different seqd. seqd must not start, and
 * must not change the files of that directory. */
static void test_restored_over_another(void)
{
    char from[256], to[256];
    struct err e;
    begin();
    secrets(put_file);
    make_one();
    snprintf(from, sizeof from, "%s/backups/%s", w.dir, name);
    snprintf(to, sizeof to, "%s/seqd.db", w.dir);
    close_server();
    CHECK(!rename(from, to));
    put_file("pki/ca.pem", "another one");
    struct loop *l = loop_create(NULL, NULL, &e);
    CHECK(store_open(l, w.dir, &e) == NULL);
    CHECK_MSG(e.code == ERR_CONFLICT && strstr(e.text, "pki/ca.pem") && strstr(e.text, "empty"),
              "%s", e.text);
    check_file("pki/ca.pem", "another one");
    put_file("pki/ca.pem", "an authority");
    loop_destroy(l);
    begin_in(false, 0); /* the secret is unchanged, as after a crash between writing the files and
                         * the commit */
    secrets(check_file);
    finish();
}

/* Checks that seqd can stop while a copy is being made, without hanging. */
static void test_stopped(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    int fd = post_begin("/v1/backup", "", "");
    for (int i = 0; i < 20; i++) loop_turn(w.loop, 1);
    finish();
    close(fd);
}

int main(void)
{
    RUN(test_made_and_read);
    RUN(test_refused);
    RUN(test_newest_are_kept);
    RUN(test_every_hour);
    RUN(test_restored);
    RUN(test_restored_over_another);
    RUN(test_stopped);
    return test_done("seqd_backup");
}
