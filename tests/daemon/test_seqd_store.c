/* test_seqd_store: tests the store. It must answer with the rows that were written. If one request
 * of a group is refused, the other requests must still be stored. If the process is killed under
 * load, all data that it has acknowledged must be on disk. */
#include <ftw.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "daemon/store/query.h"
#include "daemon/store/store.h"
#include "tests/lib/test.h"

static char dir[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    return remove(path);
}

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/seqd-store-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
}

static void remove_dir(void)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void add_job(struct store_txn *t, int64_t id)
{
    store_job_new(t, id, 1000 + id, "{}", NULL, "\"state\":\"queued\"", "u");
    store_event_add(t, &(struct store_event){.seq = id * 10, .job = id, .type = 0, .data = "{}"});
}

static int n_done, n_refused;

static void on_done(void *arg, const struct err *e)
{
    n_done++;
    if (e) n_refused += e->code == ERR_CONFLICT;
}

static struct {
    int n;
    struct store_row row[64];
    char text[64][256], more[64][1024]; /* texts of the first two rows */
    bool here;
} got;

static void on_answer(void *arg, const struct store_rows *rows, const struct err *failed)
{
    got.n = rows->n_rows;
    for (int i = 0; i < rows->n_rows && i < 64; i++) {
        got.row[i] = rows->row[i];
        snprintf(got.text[i], sizeof got.text[i], "%s",
                 rows->row[i].text[0] ? rows->row[i].text[0] : "NULL");
        snprintf(got.more[i], sizeof got.more[i], "%s",
                 rows->row[i].text[1] ? rows->row[i].text[1] : "NULL");
    }
    got.here = true;
}

static void ask(struct loop *l, struct store *s, enum store_ask what, int64_t a, int64_t b,
                int64_t c, int64_t d, const char *text)
{
    got.here = false;
    store_read(s, what, (const int64_t[4]){a, b, c, d}, text, on_answer, NULL);
    while (!got.here) loop_turn(l, 20);
}

static void wait_done(struct loop *l, int n)
{
    while (n_done < n) loop_turn(l, 20);
}

static void test_write_and_read(void)
{
    struct err e;
    make_dir();
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    n_done = n_refused = 0;
    for (int i = 1; i <= 20; i++) {
        struct store_txn *t = store_begin();
        add_job(t, i);
        if (i % 2) store_job_set(t, i, JOB_SUCCEEDED, "\"state\":\"succeeded\"");
        if (i == 3) {
            store_result_set(t, 3, "{\"r\":1}");
            store_metrics_add(t, 3, "[{\"step\":1}]");
            store_metrics_add(t, 3, "[{\"step\":2}]");
            store_mark_set(t, 3, 1, 0, 5);
            store_mark_set(t, 3, 1, 0, 9);
            store_mark_set(t, 3, 1, 2, 4);
            store_key_add(t, "key", "print", 3, 0);
        }
        store_commit(s, t, on_done, NULL);
    }
    wait_done(l, 20);
    ask(l, s, ASK_JOBS, 0, 5, 0, 0, NULL);
    CHECK(got.n == 5 && got.row[0].n[0] == 20 && got.row[4].n[0] == 16);
    ask(l, s, ASK_JOBS, 16, 5, 0, 0, NULL);
    CHECK(got.n == 5 && got.row[0].n[0] == 15);
    ask(l, s, ASK_JOBS, 0, 3, 1 << JOB_SUCCEEDED, 0, NULL);
    CHECK(got.n == 3 && got.row[0].n[0] == 19 && got.row[2].n[0] == 15);
    ask(l, s, ASK_JOBS, 8, 3, 1 << JOB_SUCCEEDED | 1 << JOB_QUEUED, 0, NULL);
    CHECK(got.n >= 3 && got.row[0].n[0] == 7 && got.row[1].n[0] == 6 && got.row[2].n[0] == 5);
    ask(l, s, ASK_EVENTS, 3, 0, 10, -1, NULL);
    CHECK(got.n == 1 && got.row[0].n[0] == 30);
    ask(l, s, ASK_EVENTS, 3, 30, 10, -1, NULL);
    CHECK(got.n == 0);
    ask(l, s, ASK_METRICS, 3, 0, 10, 0, NULL);
    CHECK(got.n == 2 && !strcmp(got.text[1], "[{\"step\":2}]"));
    ask(l, s, ASK_METRICS, 3, got.row[0].n[0], 10, 0, NULL);
    CHECK(got.n == 1);
    ask(l, s, ASK_KEY, 0, 0, 0, 0, "key");
    CHECK(got.n == 1 && got.row[0].n[0] == 3 && !strcmp(got.text[0], "print"));
    ask(l, s, ASK_KEY, 0, 0, 0, 0, "k' OR 1=1 --");
    CHECK(got.n == 0);
    store_close(s);
    loop_destroy(l);
    remove_dir();
}

/* Checks that lists show a short form of the result. */
static void test_listed_results(void)
{
    struct err e;
    char text[700] = "{\"text\":\"", cut[700] = "{\"text\":\"";
    for (int i = 0; i < 300; i++) strcat(text, "\xc3\xa9");
    for (int i = 0; i < 256; i++) strcat(cut, "\xc3\xa9");
    const char *const results[][2] = {
        {strcat(text, "\"}"), strcat(cut, "\"}")},
        {"{\"loss\":3.25,\"eval\":{\"loss\":3.5},\"memory\":{\"a\":1},\"list\":[1],\"equal\":true,"
         "\"no\":false,\"none\":null,\"hf\":\"/x\",\"n\":9007199254740993}",
         "{\"loss\":3.25,\"eval\":{\"loss\":3.5},\"equal\":true,\"no\":false,\"none\":null,"
         "\"hf\":\"/x\",\"n\":9007199254740993}"},
        {"not JSON", "NULL"},
        {NULL, "NULL"},
    };
    enum { N = sizeof results / sizeof *results };
    make_dir();
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    struct store_txn *t = store_begin();
    n_done = 0;
    for (int i = 0; i < N; i++) {
        add_job(t, N - i); /* lists have the newest first */
        if (results[i][0]) store_result_set(t, N - i, results[i][0]);
    }
    store_commit(s, t, on_done, NULL);
    wait_done(l, 1);
    for (int how = 0; how < 3; how++) {
        ask(l, s, ASK_JOBS, 0, N, how == 1 ? 1 << JOB_QUEUED : 0, 0, how == 2 ? "u" : NULL);
        CHECK(got.n == N);
        for (int i = 0; i < N; i++) CHECK_STR(got.more[i], results[i][1]);
    }
    store_close(s);
    loop_destroy(l);
    remove_dir();
}

/* Each time the reader begins to scan the jobs of one state, changes every queued job to starting
 * and every starting job to queued. */
static int start_all(unsigned type, void *writer, void *statement, void *sql)
{
    if (strstr(sql, "state = "))
        CHECK(!sqlite3_exec(writer, "UPDATE jobs SET state = 1 - state", NULL, NULL, NULL));
    return 0;
}

/* Lists the jobs that are in one of several states. While the list is read, all jobs change from
 * the first of these states to the second, and back. The list must nevertheless have every job
 * once. */
static void test_list_while_states_change(void)
{
    struct err e;
    sqlite3 *db, *writer;
    char path[128];
    make_dir();
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    n_done = 0;
    struct store_txn *t = store_begin();
    for (int i = 1; i <= 3; i++) add_job(t, i);
    store_commit(s, t, on_done, NULL);
    wait_done(l, 1);
    store_close(s);
    loop_destroy(l);
    snprintf(path, sizeof path, "%s/seqd.db", dir);
    CHECK(!sqlite3_open(path, &db) && !sqlite3_open(path, &writer));
    CHECK(
        !sqlite3_exec(db, "SELECT count(*) FROM jobs", NULL, NULL, NULL)); /* the schema is read */
    sqlite3_trace_v2(db, SQLITE_TRACE_STMT, start_all, writer);
    for (int owned = 0; owned < 2; owned++) {
        struct query *a = calloc(1, sizeof *a);
        CHECK(a != NULL);
        a->what = ASK_JOBS;
        a->n[1] = 10;
        a->n[2] = 1 << JOB_QUEUED | 1 << JOB_STARTING;
        a->text = owned ? strdup("u") : NULL;
        query_run(db, a);
        CHECK(!a->err.code);
        CHECK(a->rows.n_rows == 3);
        for (int i = 0; i < a->rows.n_rows; i++) CHECK(a->rows.row[i].n[0] == 3 - i);
        query_free(a);
    }
    sqlite3_close(db);
    sqlite3_close(writer);
    remove_dir();
}

/* Checks a row that the previous version would misread. As long as the file has this row, the
 * previous version must refuse the file. */
static void test_newer(void)
{
    struct err e;
    static const int type[] = {EV_CHECKPOINT_REMOVED, EV_EDIT, -1};
    make_dir();
    for (int i = 0; i < 4; i++) {
        struct loop *l = loop_create(NULL, NULL, &e);
        struct store *s = store_open(l, dir, &e);
        CHECK(s && store_is_newer(s) == (i == 2));
        n_done = n_refused = 0;
        if (i < 3) {
            struct store_txn *t = store_begin();
            if (!i) add_job(t, 1);
            if (type[i] < 0)
                store_as_before(t);
            else
                store_event_add(t, &(struct store_event){
                                       .seq = 100 + i, .job = 1, .type = type[i], .data = "{}"});
            store_commit(s, t, on_done, NULL);
            wait_done(l, 1);
        }
        store_close(s);
        loop_destroy(l);
    }
    remove_dir();
}

/* Checks a request that contradicts the stored rows. No part of it may be stored, and no other
 * request may fail because of it. */
static void test_refused_request(void)
{
    struct err e;
    make_dir();
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    n_done = n_refused = 0;
    for (int i = 1; i <= 30; i++) {
        struct store_txn *t = store_begin();
        add_job(t, i);
        store_key_add(t, i % 3 ? "same" : "other", "f", i, 0);
        store_commit(s, t, on_done, NULL);
    }
    wait_done(l, 30);
    CHECK(n_refused == 28);
    ask(l, s, ASK_JOBS, 0, 100, 0, 0, NULL);
    CHECK(got.n == 2);
    ask(l, s, ASK_EVENTS, 2, 0, 10, -1, NULL);
    CHECK(got.n == 0); /* no part of the request is stored */
    store_close(s);
    loop_destroy(l);
    remove_dir();
}

static int64_t loaded_jobs, loaded_events, loaded_marks, loaded_part_marks;

static int load_job(void *arg, int64_t id, const char *spec, const char *plan, const char *result,
                    bool has_doc, const char *serving, struct err *e)
{
    loaded_jobs++;
    return 0;
}

static int load_event(void *arg, const struct store_event *ev, struct err *e)
{
    loaded_events++;
    return 0;
}

/* Checks a mark. The mark of a job's first node is the job's id, and the mark of its third node is
 * the id + 7. */
static int load_mark(void *arg, int64_t job, int64_t epoch, int part, int64_t seq)
{
    loaded_marks += part == 0 && seq == job;
    loaded_part_marks += part == 2 && seq == job + 7;
    return 0;
}

static int load_steps(void *arg, int64_t job, const char *data)
{
    return 0;
}

static const struct store_load loads = {NULL, NULL, load_job, load_event, load_mark, load_steps};

/* Runs in the child process. Writes the id of each acknowledged request to the pipe fd. The parent
 * kills the child under load. */
static void child(int fd)
{
    struct err e;
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    if (!s) _exit(3);
    int64_t id = store_last_job(s);
    for (;;) {
        n_done = 0;
        for (int i = 0; i < 8; i++) {
            struct store_txn *t = store_begin();
            add_job(t, ++id);
            store_mark_set(t, id, 1, 2, 1); /* the last mark counts */
            store_mark_set(t, id, 1, 0, id);
            store_mark_set(t, id, 1, 2, id + 7);
            store_commit(s, t, on_done, NULL);
        }
        wait_done(l, 8);
        if (write(fd, &id, sizeof id) != sizeof id) _exit(4);
    }
}

static void test_killed_in_mid_load(void)
{
    int64_t acknowledged = 0, at_least = 0;
    make_dir();
    for (int round = 0; round < 5; round++) {
        int fd[2];
        CHECK(!pipe(fd));
        pid_t pid = fork();
        if (!pid) {
            close(fd[0]);
            child(fd[1]);
        }
        close(fd[1]);
        /* The child is killed after a number of acknowledgements, and not after a time. */
        for (int n = 0; n < 5 + 7 * round; n++)
            CHECK(read(fd[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged);
        kill(pid, SIGKILL);
        while (read(fd[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged) continue;
        close(fd[0]);
        waitpid(pid, NULL, 0);
        struct err e = {0};
        struct loop *l = loop_create(NULL, NULL, &e);
        struct store *s = store_open(l, dir, &e);
        CHECK_MSG(s != NULL, "%s", e.text);
        if (!s) break;
        loaded_jobs = loaded_events = loaded_marks = loaded_part_marks = 0;
        CHECK_MSG(!store_load(s, &loads, &e), "%s", e.text);
        CHECK_MSG(store_last_job(s) >= acknowledged, "%lld < %lld", (long long)store_last_job(s),
                  (long long)acknowledged);
        CHECK(loaded_jobs == store_last_job(s) &&
              /* no job is missing, and every job has all its events */
              loaded_events == loaded_jobs);
        CHECK(loaded_marks == loaded_jobs && loaded_part_marks == loaded_jobs);
        CHECK(acknowledged > at_least);
        at_least = acknowledged;
        store_close(s);
        loop_destroy(l);
    }
    remove_dir();
}

static void test_refused_places(void)
{
    struct err e;
    char path[128];
    make_dir();
    struct loop *l = loop_create(NULL, NULL, &e);
    struct store *s = store_open(l, dir, &e);
    CHECK(s != NULL);
    CHECK(!store_open(l, dir, &e) && e.code == ERR_CONFLICT && strstr(e.text, dir));
    store_close(s);
    snprintf(path, sizeof path, "%s/seqd.db", dir);
    FILE *f = fopen(path, "w");
    fputs(
        "this was never a database, but it is long enough to look like one to a careless reader\n",
        f);
    fclose(f);
    snprintf(path, sizeof path, "%s/seqd.db-wal", dir);
    unlink(path);
    CHECK(!store_open(l, dir, &e) && e.code == ERR_CORRUPT && strstr(e.text, "seqd.db"));
    CHECK(!store_open(l, "/nonexistent/x", &e) && e.code == ERR_NOT_FOUND);
    loop_destroy(l);
    remove_dir();
}

/* ---- closing --------------------------------------------------------------------------------- */

static struct store *closing;
static int n_given, n_away;

static void on_second(void *arg, const struct store_rows *rows, const struct err *failed)
{
    n_given++;
    n_away += failed && failed->code == ERR_PEER && !rows->n_rows;
}

static void on_first(void *arg, const struct store_rows *rows, const struct err *failed)
{
    n_given++;
    CHECK(!failed);
    store_read(closing, ASK_JOBS, (const int64_t[4]){0, 5}, NULL, on_second, NULL);
}

/* Checks a read whose callback is called while the store closes. The callback requests a second
 * read. */
static void test_read_while_closing(void)
{
    struct err e;
    make_dir();
    struct loop *l = loop_create(NULL, NULL, &e);
    closing = store_open(l, dir, &e);
    n_given = n_away = 0;
    struct store_txn *t = store_begin();
    add_job(t, 1);
    n_done = 0;
    store_commit(closing, t, on_done, NULL);
    wait_done(l, 1);
    store_read(closing, ASK_JOBS, (const int64_t[4]){0, 5}, NULL, on_first, NULL);
    store_close(closing);
    CHECK_MSG(n_given == 2 && n_away == 1, "%d answers, %d of them that seqd stops", n_given,
              n_away);
    loop_destroy(l);
    remove_dir();
}

static void on_late(void *arg, const struct err *e)
{
    n_given++;
    n_away += e && e->code == ERR_PEER && strstr(e->text, "has not stored this");
    if (e && --*(int *)arg > 0) store_commit(closing, store_begin(), on_late, arg);
}

static void on_last(void *arg, const struct err *e)
{
    n_given++;
    CHECK(!e);
    store_commit(closing, store_begin(), on_late, arg);
}

/* Checks a commit whose callback is called while the store closes. The callback makes a second
 * commit. Each caller must be answered, and none may be told that its data is stored. */
static void test_commit_while_closing(void)
{
    struct err e;
    int again = 3;
    make_dir();
    struct loop *l = loop_create(NULL, NULL, &e);
    closing = store_open(l, dir, &e);
    n_given = n_away = 0;
    store_commit(closing, store_begin(), on_last, &again);
    store_close(closing);
    CHECK_MSG(n_given == 4 && n_away == 3, "%d answers, %d of them that seqd stops", n_given,
              n_away);
    loop_destroy(l);
    remove_dir();
}

int main(void)
{
    setenv("SEQD_LOG", "error", 0);
    log_init("test");
    RUN(test_killed_in_mid_load); /* first, because it forks and no thread may have started yet */
    RUN(test_write_and_read);
    RUN(test_listed_results);
    RUN(test_list_while_states_change);
    RUN(test_newer);
    RUN(test_refused_request);
    RUN(test_refused_places);
    RUN(test_read_while_closing);
    RUN(test_commit_while_closing);
    return test_done("seqd_store");
}
