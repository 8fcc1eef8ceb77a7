/* test_seqd_disk: tests the store on a disk that fails, is full, or has a damaged file. A failed
 * write, sync or checkpoint ends seqd, and no acknowledged data is lost. A failed query is
 * answered with 500. With a full disk seqd accepts no new job and continues to run. The size of
 * the log is bounded. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "daemon/store/reserve.h"
#include "tests/lib/bad_disk.h"
#include "tests/lib/rest.h"
#include "tests/lib/scratch.h"

enum { DIED = 70, REFUSED = 3, LIED = 9, UNTOUCHED = 4, LOG_MAX = 64 << 20 };
/* The largest size of the log in bytes. The log is emptied at the first checkpoint after its size
 * exceeds LOG_MAX. While requests wait, a checkpoint is made every 16 MiB. In this test, a commit
 * has at most five rows of 1 MiB each. */
enum { LOG_MOST = LOG_MAX + (16 << 20) + (5 << 20) };
/* after this number of bytes a checkpoint is made, whether or not commits wait */
#define FILLS_LOG (17 << 20)

static char dir[64], path[128];

static void make_dir(void)
{
    scratch_dir(dir, sizeof dir, "disk"); /* for a hundred starts, and a log of 64 MiB */
}

static void remove_dir(void)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *in_dir(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int64_t size_of(const char *name)
{
    struct stat st;
    return stat(in_dir(name), &st) ? -1 : st.st_size;
}

/* ---- a child whose n-th call of some kind fails ---------------------------------------------- */

static int ack_fd;
static int n_done;

/* Checks that no commit is acknowledged after a call has failed. */
static void on_done(void *arg, const struct err *e)
{
    int64_t id = (int64_t)(intptr_t)arg;
    n_done++;
    if (e) return;
    if (disk.failed) _exit(LIED);
    if (write(ack_fd, &id, sizeof id) != sizeof id) _exit(5);
}

/* A commit that was complete before the failing call must be acknowledged before seqd ends. Its
 * answer has been posted to the loop, which runs posts in order. */
static struct loop *acks;
static pthread_t acks_thread;
static atomic_bool acks_open;
static sem_t acks_taken;

static void all_taken(void *arg)
{
    sem_post(arg);
}

static void take_acks(void)
{
    if (!atomic_load(&acks_open) || pthread_equal(pthread_self(), acks_thread)) return;
    loop_post(acks, all_taken, &acks_taken);
    while (sem_wait(&acks_taken)) continue;
}

static void add_job(struct store *s, int64_t id, const char *data, store_done *done)
{
    struct store_txn *t = store_begin();
    store_job_new(t, id, 1000 + id, "{}", NULL, "\"state\":\"queued\"", "u");
    store_event_add(t, &(struct store_event){.seq = id * 10, .job = id, .type = 0, .data = "{}"});
    if (data) store_metrics_add(t, id, data);
    store_commit(s, t, done, (void *)(intptr_t)id);
}

static char *text_of(size_t size)
{
    char *text = malloc(size + 1);
    if (!text) abort();
    memset(text, 'x', size);
    text[size] = 0;
    return text;
}

/* Makes four commits one by one. The second commit fills the log, so that a checkpoint follows. */
static void work(int fd, size_t size)
{
    struct err e = {0};
    char *data = text_of(size);
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    ack_fd = fd;
    if (!s) _exit(*e.text ? REFUSED : LIED);
    acks = l;
    acks_thread = pthread_self();
    atomic_store(&acks_open, true);
    int64_t id = store_last_job(s);
    for (int i = 0; i < 4; i++) {
        n_done = 0;
        add_job(s, ++id, i == 1 ? data : NULL, on_done);
        while (!n_done) loop_turn(l, 20);
    }
    _exit(disk.failed ? 0 : UNTOUCHED); /* like kill -9, without closing the store */
}

struct round {
    int kind, files;
    int64_t at;
    size_t size;
    int code;
};

/* Returns the child's status. *last is the largest id that was acknowledged. */
static int run_round(const struct round *r, int64_t *last)
{
    int fd[2], status = 0;
    int64_t id;
    CHECK(!pipe(fd));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        close(fd[0]);
        if (!freopen("/dev/null", "w", stderr)) _exit(6);
        disk.faults = r->kind;
        disk.files = r->files;
        disk.fail_at = r->at;
        disk.goes_on = true;
        disk.code = r->code;
        disk.before = take_acks;
        sem_init(&acks_taken, 0, 0);
        work(fd[1], r->size);
    }
    close(fd[1]);
    while (read(fd[0], &id, sizeof id) == sizeof id) *last = id;
    close(fd[0]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Checks that the store can be opened, and that it has all jobs that were acknowledged. */
static void check_kept(int64_t last)
{
    struct err e = {0};
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    CHECK_MSG(s != NULL, "%s", e.text);
    if (s)
        CHECK_MSG(store_last_job(s) >= last, "%lld of %lld", (long long)store_last_job(s),
                  (long long)last);
    store_close(s);
    loop_destroy(l);
}

/* Runs rounds. In each round, a later call fails. Ends after the first round in which no call
 * failed. */
static int64_t walk(const char *name, int kind, int files, size_t size, int64_t dense,
                    int64_t stride)
{
    int64_t n = 0, last = 0, deaths = 0;
    make_dir();
    disk.quick = true;
    for (int64_t at = 1; at < 1000000; at += at < dense ? 1 : stride, n++) {
        const struct round r = {kind, files, at, size, 0};
        if (at > 1 && size > 1 << 20) { /* the log would grow without end */
            remove_dir();
            make_dir();
            last = 0;
        }
        int status = run_round(&r, &last);
        CHECK_MSG(status == DIED || status == REFUSED || status == 0 || status == UNTOUCHED,
                  "%s %lld: status %d", name, (long long)at, status);
        deaths += status == DIED || status == REFUSED;
        check_kept(last);
        if (status == UNTOUCHED) break;
        if (test_failures_now > 5) break;
    }
    CHECK_MSG(deaths >= 3, "%s: %lld of %lld ended it", name, (long long)deaths, (long long)n);
    disk.quick = false;
    remove_dir();
    return n;
}

static void test_every_fault(void)
{
    walk("writes", DISK_WRITE, 0, 10, INT64_MAX, 1);
    walk("syncs", DISK_SYNC, 0, FILLS_LOG, INT64_MAX, 1);
    walk("truncations and syncs", DISK_TRUNCATE | DISK_SYNC, 0, 10, INT64_MAX, 1);
    walk("writes of a checkpoint", DISK_WRITE, SQLITE_OPEN_MAIN_DB, FILLS_LOG, 8, 997);
}

/* Checks a database file that cannot be synced. The log is intact and every commit still succeeds.
 * A checkpoint, however, would count data as written to the database that is not on the disk. */
static void test_failed_checkpoint(void)
{
    int64_t last = 0;
    make_dir();
    check_kept(0); /* the files that a first start writes and syncs exist */
    const struct round r = {DISK_SYNC, SQLITE_OPEN_MAIN_DB, 1, FILLS_LOG, 0};
    CHECK(run_round(&r, &last) == DIED);
    /* the commit that filled the log was on disk, and the next one was not acknowledged */
    CHECK(last == 2);
    check_kept(last);
    remove_dir();
}

/* ---- the log --------------------------------------------------------------------------------- */

static int n_answers;

static void count_done(void *arg, const struct err *e)
{
    n_done++;
    CHECK(!e);
}

static void count_answer(void *arg, const struct store_rows *rows, const struct err *e)
{
    n_answers++;
    CHECK(!e);
}

/* Adds rows of 1 MiB while a query is always in progress. Returns the largest size of the log's
 * file. */
static int64_t fill(struct loop *l, struct store *s, int n_rows)
{
    char *data = text_of(1 << 20);
    static int64_t id;
    int64_t largest = 0;
    int asked = n_answers = n_done = 0;
    for (int i = 0; i < n_rows; i++) {
        add_job(s, id + 1 + i, data, count_done);
        if (i < 4) continue; /* some requests always wait, so the writer is never idle */
        while (n_done < i - 3) {
            if (n_answers == asked) {
                store_read(s, ASK_METRICS, (const int64_t[4]){id + 1, 0, 10}, NULL, count_answer,
                           NULL);
                asked++;
            }
            loop_turn(l, 20);
        }
        int64_t size = size_of("seqd.db-wal");
        if (size > largest) largest = size;
    }
    while (n_done < n_rows || n_answers < asked) loop_turn(l, 20);
    id += n_rows;
    free(data);
    return largest;
}

static void test_log_is_bounded(void)
{
    struct err e = {0};
    make_dir();
    disk.quick = true;
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    int64_t largest = fill(l, s, 100);
    CHECK_MSG(largest > 0 && largest <= LOG_MOST, "%lld bytes", (long long)largest);
    /* If a different program reads the database, such as a backup, the log cannot be reused in the
     * meantime. This must not count as a failure. */
    sqlite3 *other = NULL;
    CHECK(!sqlite3_open(in_dir("seqd.db"), &other) &&
          !sqlite3_exec(other, "BEGIN; SELECT count(*) FROM jobs", 0, 0, 0));
    largest = fill(l, s, 90);
    CHECK_MSG(largest > LOG_MOST, "%lld bytes: the reader held nothing", (long long)largest);
    sqlite3_close(other);
    fill(l, s, 30);
    struct store_health h;
    store_health(s, &h);
    CHECK_MSG(size_of("seqd.db-wal") <= LOG_MAX && h.wal_size <= LOG_MAX, "%lld, %lld",
              (long long)size_of("seqd.db-wal"), (long long)h.wal_size);
    store_close(s);
    loop_destroy(l);
    disk.quick = false;
    remove_dir();
}

/* Checks a program that reads the database while seqd starts, as a backup does. */
static void test_read_at_the_start(void)
{
    struct err e;
    struct loop *l = loop_create(NULL, NULL, &e);
    sqlite3 *reader;
    make_dir();
    struct store *s = store_open(l, dir, &e);
    CHECK(s && !sqlite3_open_v2(in_dir("seqd.db"), &reader, SQLITE_OPEN_READWRITE, NULL));
    n_done = 0;
    ack_fd = open("/dev/null", O_WRONLY);
    add_job(s, 1, NULL, on_done);
    while (!n_done) loop_turn(l, 20);
    CHECK(!sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM jobs", NULL, NULL, NULL));
    store_close(s);
    s = store_open(l, dir, &e);
    CHECK_MSG(s != NULL, "%s", e.text);
    CHECK(store_last_job(s) == 1);
    store_close(s);
    sqlite3_close(reader);
    close(ack_fd);
    loop_destroy(l);
    remove_dir();
}

/* ---- a damaged file -------------------------------------------------------------------------- */

static void test_damaged_file(void)
{
    struct err e = {0};
    int64_t last = 0;
    make_dir();
    check_kept(0);
    const struct round r = {0, 0, 0, 1 << 20, 0};
    CHECK(run_round(&r, &last) == UNTOUCHED && last == 4);
    check_kept(4); /* all data is in the database */
    int fd = open(in_dir("seqd.db"), O_RDWR);
    char page[4096];
    memset(page, 0x5a, sizeof page);
    CHECK(pwrite(fd, page, sizeof page, 3 * 4096) == (ssize_t)sizeof page);
    close(fd);
    struct loop *l = loop_create(NULL, NULL, &e);
    CHECK(!store_open(l, dir, &e) && e.code == ERR_CORRUPT);
    CHECK_MSG(strstr(e.text, "seqd.db") && strstr(e.text, "damaged"), "%s", e.text);
    loop_destroy(l);
    remove_dir();
}

/* Checks a disk that cannot be read. The failed read must not count as damage, and the message
 * must not suggest restoring an older copy. */
static void test_unreadable_disk(void)
{
    int64_t last = 0, n = 0;
    struct loop *l = loop_create(NULL, NULL, NULL);
    make_dir();
    check_kept(0);
    const struct round r = {0, 0, 0, 1 << 20, 0};
    CHECK(run_round(&r, &last) == UNTOUCHED && last == 4);
    check_kept(4);
    for (int64_t at = 1; at < 1000; at++, n++) {
        struct err e = {0};
        disk.faults = DISK_READ;
        disk.fail_at = at;
        disk.goes_on = at % 2; /* every call from there on fails, or only that call */
        disk.n_calls = 0;
        disk.failed = NULL;
        struct store *s = store_open(l, dir, &e);
        CHECK_MSG(s || (e.code == ERR_IO && !strstr(e.text, "damaged")), "read %lld: %s",
                  (long long)at, e.text);
        store_close(s);
        if (!disk.failed || test_failures_now > 3) break;
    }
    CHECK_MSG(n > 10, "%lld reads", (long long)n);
    bad_disk_mend();
    check_kept(4);
    loop_destroy(l);
    remove_dir();
}

/* Makes a commit, so that the pages in the reader's cache are outdated. Then makes reads fail. */
static void forget_pages(void)
{
    bad_disk_mend();
    struct store_txn *t = store_begin();
    store_metrics_add(t, 1, "[]");
    commit(t);
    disk.faults = DISK_READ;
    disk.fail_at = 1;
    disk.goes_on = true;
}

/* ---- the answers of REST --------------------------------------------------------------------- */

static void test_failed_query(void)
{
    static const char *const paths[] = {"/v1/jobs/1",
                                        "/v1/jobs",
                                        "/v1/jobs?state=queued,failed",
                                        "/v1/jobs/1/events",
                                        "/v1/jobs/1/metrics",
                                        "/v1/jobs/1/artifacts",
                                        "/v1/jobs/1/checkpoints",
                                        "/v1/jobs/1/artifacts/x",
                                        "/v1/jobs/1/steps/1/data",
                                        "/v1/jobs/99",
                                        "/v1/jobs/99/logs",
                                        "/readyz"};
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    int stream = open_stream("/v1/jobs/1/events", NULL);
    CHECK(receive(stream, "\"type\":\"submit\""));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        forget_pages();
        CHECK_MSG(get(paths[i]) == 500 && strstr(reply, "application/problem+json"), "%s: %d",
                  paths[i], status_of());
        CHECK_MSG(strstr(reply, "the store could not be read"), "%s: %s", paths[i], reply);
    }
    forget_pages();
    CHECK(post_with("/v1/jobs", "Idempotency-Key: k\r\n", job_json) == 500);
    CHECK(post("/v1/jobs/1:cancel", "") == 500); /* the job is cancelled, but cannot be shown */
    clear();
    /* the stream breaks off, and the client reconnects */
    CHECK(!receive(stream, NULL) && !strstr(reply, "event: end"));
    close(stream);
    bad_disk_mend();
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"state\":\"cancelled\""));
    stream = open_stream("/v1/jobs/1/events", "1");
    receive(stream, "event: end");
    CHECK(strstr(reply, "\"type\":\"cancel\""));
    close(stream);
    finish();
}

static int64_t clock_ms = 1000;

static int64_t fake_clock(void *arg)
{
    return clock_ms;
}

static void test_stuck_writer(void)
{
    rest_clock = fake_clock;
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(get("/readyz?verbose") == 200 && strstr(reply, "\"writer\":\"commits\""));
    bad_disk_hold();
    int fd = post_begin("/v1/jobs/1:cancel", "", "");
    while (!bad_disk_held()) loop_turn(w.loop, 5);
    clock_ms += STORE_SLOW_MS + 1;
    CHECK(get("/readyz?verbose") == 200 && strstr(reply, "\"writer\":\"slow\""));
    CHECK(strstr(reply, "\"commits_waiting\":2")); /* the audit row and the cancel */
    clock_ms += STORE_STUCK_MS;
    CHECK(get("/readyz") == 503 && strstr(reply, "committed nothing for 11 s"));
    CHECK(get("/livez") == 200 && get("/v1/jobs/1") == 200);
    store_moved(w.store);
    CHECK(!store_moved(w.store) && !store_moved(w.store));
    bad_disk_release();
    CHECK(answer_of(fd) == 202);
    for (int i = 0; i < 2; i++) /* the writer must report that it runs, also without work */
        while (!store_moved(w.store)) loop_turn(w.loop, 1);
    CHECK(get("/readyz") == 200);
    clock_ms += 10 * STORE_STUCK_MS; /* no commit waits, so the store is not stuck */
    CHECK(get("/readyz") == 200);
    finish();
    rest_clock = NULL;
}

/* ---- a large file ---------------------------------------------------------------------------- */

static void until_checked(struct loop *l, struct store *s)
{
    struct store_health h = {.checked = STORE_UNCHECKED};
    for (; h.checked == STORE_UNCHECKED; store_health(s, &h)) loop_turn(l, 2);
    CHECK(h.checked == STORE_SOUND && h.check_age_ms >= 0);
}

/* Opens the store in a child, which serves until it ends. Returns its status. */
static int serve_in_child(void)
{
    struct err e = {0};
    int status = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (!pid) {
        if (!freopen("/dev/null", "w", stderr)) _exit(6);
        struct loop *l = loop_create(NULL, NULL, &e);
        if (!store_open(l, dir, &e)) _exit(REFUSED);
        for (;;) loop_turn(l, 20);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Writes `page` in the middle of the database, where rows of metrics are. *old gets the bytes that
 * were there. */
static void put_page(const char page[4096], char old[4096])
{
    const int fd = open(in_dir("seqd.db"), O_RDWR);
    CHECK(pread(fd, old, 4096, 8 << 20) == 4096 && pwrite(fd, page, 4096, 8 << 20) == 4096);
    close(fd);
}

/* Checks a large file, which is searched for damage while seqd serves. If it is damaged, seqd ends,
 * and the next start searches it first. */
static void test_large_file(void)
{
    struct err e = {0};
    char bad[4096], good[4096];
    struct loop *l = loop_create(NULL, NULL, &e);
    make_dir();
    disk.quick = true;
    struct store *s = store_open(l, dir, &e);
    fill(l, s, 20);
    store_close(s);
    CHECK((s = store_open(l, dir, &e)) != NULL);
    until_checked(l, s);
    store_close(s);
    memset(bad, 0x5a, sizeof bad);
    put_page(bad, good);
    CHECK(serve_in_child() == DIED); /* it was opened, so it was not checked first */
    CHECK(!store_open(l, dir, &e) && e.code == ERR_CORRUPT && strstr(e.text, "is damaged"));
    put_page(good, bad);
    CHECK_MSG((s = store_open(l, dir, &e)) != NULL, "%s", e.text);
    CHECK(size_of("damaged") < 0);
    store_close(s);
    loop_destroy(l);
    disk.quick = false;
    remove_dir();
}

static char reserve[128];

static bool has_reserve(void)
{
    struct stat st;
    return !stat(reserve, &st) && S_ISREG(st.st_mode) && st.st_size == RESERVE_SIZE;
}

static void refused(void)
{
    CHECK_MSG(post("/v1/jobs", job_json) == 507, "%d", status_of());
    CHECK(strstr(reply, "application/problem+json") && strstr(reply, "\"code\":\"no_space\""));
    CHECK(strstr(reply, "is full"));
}

static void test_full_disk(void)
{
    begin();
    snprintf(reserve, sizeof reserve, "%s/reserve", w.dir);
    CHECK(has_reserve());
    for (int i = 0; i < 3; i++) CHECK(post("/v1/jobs", job_json) == 201);
    disk.full_while = reserve;
    refused(); /* during this request, seqd notices that the disk is full */
    CHECK(!has_reserve() && store_full(w.store));
    refused(); /* seqd knows already that the disk is full */
    CHECK(get("/v1/jobs") == 200 && get("/v1/jobs/4") == 404);
    CHECK(get("/readyz?verbose") == 200 && strstr(reply, "new jobs are refused"));
    CHECK(post("/v1/jobs/1:cancel", "") == 202 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(post("/v1/jobs?dry_run=true", job_json) == 200);
    /* The reserve is used up, too. Requests that write must wait, and requests that read must be
     * answered. */
    bad_disk_full(true);
    int fd = post_begin("/v1/jobs/2:cancel", "", "");
    while (control_job(w.control, 2)->state != JOB_CANCELLED) loop_turn(w.loop, 5);
    CHECK(get("/v1/jobs/2") == 200 && strstr(reply, "\"state\":\"queued\""));
    refused();
    for (int i = 0; i < 2; i++) /* the writer waits for space, and still reads its queue */
        while (!store_moved(w.store)) loop_turn(w.loop, 1);
    bad_disk_full(false);
    CHECK(answer_of(fd) == 202 && strstr(reply, "\"state\":\"cancelled\""));
    /* The disk has space again. seqd first makes the reserve, and then accepts new jobs. */
    CHECK(!rmdir(reserve));
    for (int i = 0; i < 600 && store_full(w.store); i++) loop_turn(w.loop, 10);
    CHECK(has_reserve() && post("/v1/jobs", job_json) == 201);
    finish();
}

/* Reads an answer that was sent before the server closed the connection. */
static int late_answer(int fd)
{
    ssize_t n;
    clear();
    while ((n = read(fd, reply + reply_len, sizeof reply - 1 - reply_len)) > 0)
        reply_len += (size_t)n;
    reply[reply_len] = 0;
    close(fd);
    return status_of();
}

/* Checks a seqd that stops while orders wait for disk space. The clients must be told that the
 * orders are not stored. */
static void test_stop_on_a_full_disk(void)
{
    begin();
    snprintf(reserve, sizeof reserve, "%s/reserve", w.dir);
    for (int i = 0; i < 2; i++) CHECK(post("/v1/jobs", job_json) == 201);
    disk.full_while = reserve;
    refused();
    bad_disk_full(true);
    const int cancel = post_begin("/v1/jobs/1:cancel", "", "");
    while (control_job(w.control, 1)->state != JOB_CANCELLED) loop_turn(w.loop, 5);
    const int cordon = post_begin("/v1/nodes/n9:uncordon", "", "");
    struct store_health h = {.n_waiting = 0};
    /* the audit rows wait, too */
    for (; h.n_waiting < 4; store_health(w.store, &h)) loop_turn(w.loop, 5);
    close_server();
    CHECK_MSG(late_answer(cancel) == 503 && strstr(reply, "seqd is stopping"), "%s", reply);
    CHECK_MSG(late_answer(cordon) == 503 && strstr(reply, "has not stored this"), "%s", reply);
    bad_disk_full(false);
    CHECK(!rmdir(reserve));
    begin_in(false, 0);
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"state\":\"queued\""));
    finish();
}

static void test_start_on_a_full_disk(void)
{
    begin();
    snprintf(reserve, sizeof reserve, "%s/reserve", w.dir);
    CHECK(post("/v1/jobs", job_json) == 201);
    close_server();
    disk.full_while = reserve;
    begin_in(false, 0);
    CHECK(!has_reserve());
    CHECK(get("/v1/jobs/1") == 200 && get("/v1/jobs") == 200 && get("/readyz") == 200);
    refused();
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    close_server();
    CHECK(!rmdir(reserve));
    begin_in(false, 0);
    CHECK(has_reserve() && get("/v1/jobs/1") == 200 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(post("/v1/jobs", job_json) == 201);
    finish();
}

/* ---- requests that are withdrawn ------------------------------------------------------------- */

/* Lets the time pass until the answer is there. */
static int answer_in_time(int fd)
{
    for (struct pollfd p = {fd, POLLIN, 0}; !poll(&p, 1, 0); clock_ms += 100) loop_turn(w.loop, 2);
    return answer_of(fd);
}

static const struct {
    const char *path, *body;
} writes[] = {{"/v1/jobs/1:cancel", ""},
              {"/v1/jobs/1:suspend", ""},
              {"/v1/jobs", job_json},
              {"/v1/tokens", "{\"user\":\"ann\"}"},
              {"/v1/tokens/2:revoke", ""},
              {"/v1/tokens:revoke", "{\"user\":\"bob\"}"},
              {"/v1/prune", "{\"older_than\":\"1s\"}"}};

static void check_unchanged(void)
{
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"state\":\"queued\""));
    CHECK(control_job(w.control, 1)->state == JOB_QUEUED);
    CHECK(get("/v1/jobs/2") == 200 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(get("/v1/tokens") == 200 && !strstr(reply, "ann"));
    CHECK(strstr(reply, "bob") && auth_valid(w.auth, 2));
}

/* Sends each request while nothing can be written. Expects `status` and `text` as its answer. */
static void check_withdrawn(int status, const char *text)
{
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        const int is = answer_in_time(post_begin(writes[i].path, "", writes[i].body));
        CHECK_MSG(is == status && strstr(reply, text), "%s: %d %s", writes[i].path, is, reply);
        CHECK(status != 503 || strstr(reply, "Retry-After: 1"));
        check_unchanged();
    }
    CHECK(answer_in_time(get_begin("/v1/audit")) == status);
}

static void begin_withdrawn(void)
{
    char text[AUTH_TOKEN_SIZE];
    rest_clock = fake_clock;
    begin();
    for (int i = 0; i < 2; i++) CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(post("/v1/jobs/2:cancel", "") == 202);
    CHECK(rest_token("bob", ROLE_USER, 0, text) == 2);
}

/* Checks that the requests are in the audit log with the statuses of their answers, and that all of
 * them work again. */
static void end_withdrawn(const char *status)
{
    CHECK(get("/v1/audit?limit=7") == 200);
    for (size_t i = 0; i < 7; i++) CHECK_MSG(strstr(reply, writes[i].path), "%s", writes[i].path);
    CHECK_MSG(strstr(reply, status), "%s", reply);
    check_unchanged();
    CHECK(post("/v1/jobs/1:cancel", "") == 202 && post("/v1/tokens/2:revoke", "") == 200);
    CHECK(!auth_valid(w.auth, 2));
    finish();
    rest_clock = NULL;
}

static void test_withdrawn_from_a_full_disk(void)
{
    begin_withdrawn();
    bad_disk_full(true);
    check_withdrawn(507, "is full");
    bad_disk_full(false);
    end_withdrawn("\"status\":507}");
}

static void test_withdrawn_from_a_locked_database(void)
{
    char file[128];
    sqlite3 *other = NULL;
    begin_withdrawn();
    snprintf(file, sizeof file, "%s/seqd.db", w.dir);
    CHECK(!sqlite3_open(file, &other) && !sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL));
    check_withdrawn(503, "another program has locked seqd.db");
    CHECK(get("/readyz?verbose") == 200 || strstr(reply, "another program has locked seqd.db"));
    CHECK(!sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL) && !sqlite3_close(other));
    end_withdrawn("\"status\":503}");
}

int main(void)
{
    seqd_test_init();
    bad_disk_install();
    RUN(test_every_fault); /* first, because it forks */
    RUN(test_failed_checkpoint);
    RUN(test_damaged_file);
    RUN(test_unreadable_disk);
    RUN(test_large_file);
    RUN(test_log_is_bounded);
    RUN(test_read_at_the_start);
    RUN(test_failed_query);
    RUN(test_stuck_writer);
    RUN(test_full_disk);
    RUN(test_stop_on_a_full_disk);
    RUN(test_start_on_a_full_disk);
    RUN(test_withdrawn_from_a_full_disk);
    RUN(test_withdrawn_from_a_locked_database);
    return test_done("seqd_disk");
}
