/* test_seqd_many: tests many nodes and a long queue. All jobs that fit start in one pass,
 * passes leave the loop enough time for its other work, and no node is given up because the
 * loop is late. The test counts passes, and sets the time itself.
 *   SEQD_BENCH=1   runs no test, and measures a restart of seqd with 10,000 live jobs (N_JOBS) and
 *                  256 nodes */
#define NODES 256
#define SLOTS 8
#define SPOOL 20
#define GANGS 4
#include <malloc.h>
#include <sqlite3.h>
#include <time.h>
#include "daemon/loop/images.h"
#include "daemon/state/job_image.h"
#include "tests/lib/bad_disk.h"
#include "tests/lib/sim.h"
#include "worker/plan/check.h"

static void all_up(void)
{
    for (int i = 0; i < NODES; i++) hello(&w.node[i]);
}

/* Answers every preparation that waits. */
static void prepare_all(void)
{
    for (int i = 0; i < NODES; i++)
        for (int k = 0; k < w.node[i].n_gangs; k++) {
            struct gang *g = &w.node[i].gang[k];
            if (g->task == TASK_PREPARE && !g->over) play_prepare(g), send_spool(&w.node[i], g);
        }
}

/* Ends every preparation. However slow the disk and the machine are, the loop learns of all ends
 * at the same time. To achieve this, all ends are in one group of commits, and the writer is
 * blocked in the next group. */
static void prepare_all_at_once(void)
{
    bool done[2] = {false, false};
    bad_disk_hold();
    for (int i = 0; i < 2; i++) {
        struct store_txn *t = store_begin();
        store_metrics_add(t, 1, "[]");
        store_commit(w.store, t, on_sentinel, &done[i]);
        if (i == 0) bad_disk_wait_held(), prepare_all();
        bad_disk_let_one();
        bad_disk_wait_held();
    }
    bad_disk_release();
    while (!done[1]) loop_turn(w.loop, 10);
}

static int count_runs(void)
{
    int n = 0;
    for (int i = 0; i < NODES; i++)
        for (int k = 0; k < w.node[i].n_gangs; k++)
            n += w.node[i].gang[k].task == TASK_RUN && w.node[i].gang[k].first == 0;
    return n;
}

/* Counts the jobs to which a pass has given nodes to run on. */
static int count_placed(void)
{
    int n = 0;
    for (int id = 1; id <= 32; id++) {
        const struct job *j = control_job(w.control, id);
        n += j && j->task == TASK_RUN && j->attempt;
    }
    return n;
}

/* Checks 32 gangs that fill 256 nodes exactly. The data of each gang is on a node that a different
 * gang uses. */
static void test_full_house(void)
{
    begin();
    all_up();
    for (int i = 0; i < 32; i++) submit_begin("cpu", 64, 0, "{}");
    settle();
    CHECK(count_placed() == 0);
    prepare_all_at_once();
    int n_passes = 0, placed = count_placed();
    n_passes += placed > 0;
    for (int i = 0; i < 4000 && count_runs() < 32; i++) {
        loop_turn(w.loop, 10);
        w.now += 1;
        const int now = count_placed();
        n_passes += now != placed; /* groups of commits also cause passes that place no job */
        placed = now;
    }
    CHECK_MSG(count_runs() == 32 && n_passes <= 2, "%d of 32 gangs began in %d passes",
              count_runs(), n_passes);
    for (int i = 0; i < NODES; i++) CHECK(control_reserved(w.control, w.node[i].name) == SLOTS);
    finish();
}

/* Checks nodes that join one after another while scheduling passes are slow. Passes may use at
 * most a fifth of the time. */
static void test_a_fifth(void)
{
    enum { COST_MS = 50, N_JOBS = 40 };
    begin();
    for (int i = 0; i < N_JOBS; i++) submit_begin("emulated", 1, 0, "{}"); /* no node runs these */
    settle();
    pass(1000);
    w.pass_costs_ms = COST_MS;
    const int64_t passes = control_passes(w.control), from = w.now;
    for (int i = 0; i < NODES; i++) {
        hello(&w.node[i]);
        for (int k = 0; k < 4; k++) loop_turn(w.loop, 0), w.now++;
    }
    const int64_t n = control_passes(w.control) - passes, took = w.now - from;
    CHECK_MSG(n >= 4 && (n - 1) * COST_MS * 5 <= took, "%lld passes of %d ms in %lld ms",
              (long long)n, COST_MS, (long long)took);
    w.pass_costs_ms = 0;
    for (int i = 0; i < 300; i++) loop_turn(w.loop, 0), w.now++;
    /* the last requested pass must be run, too */
    CHECK(control_passes(w.control) > passes + n);
    finish();
}

/* Checks a pass that takes eleven seconds after a restart, while nodes connect again. The messages
 * that are queued when it ends must be read before any node is declared lost. The time of the pass
 * must not count as silence of the nodes. */
static void test_behind(void)
{
    struct gang *g[3];
    begin();
    for (int i = 0; i < 3; i++) hello(&w.node[i]);
    for (int i = 0; i < 3; i++) submit_begin("cpu", 8, 0, "{}");
    settle();
    prepare_all();
    settle();
    for (int i = 0; i < 3; i++) {
        g[i] = &w.node[i].gang[w.node[i].n_gangs - 1];
        CHECK(g[i]->task == TASK_RUN);
        play_blobs(g[i]), play_ready(g[i]), send_all(&w.node[i]);
    }
    settle();
    for (int i = 0; i < 40; i++) submit_begin("emulated", 1, 0, "{}");
    settle();
    for (int i = 0; i < 3; i++) w.node[i].up = false;
    close_seqd();
    open_seqd();
    w.pass_costs_ms = NODE_LOST_MS + 1000;
    const int64_t from = w.now;
    for (int i = 0; i < 10; i++) loop_turn(w.loop, 0); /* a pass runs, so the tick is late */
    CHECK(w.now > from + NODE_LOST_MS);
    hello(&w.node[0]);
    for (int i = 0; i < 10; i++) loop_turn(w.loop, 0), w.now += 100;
    w.pass_costs_ms = 0;
    hello(&w.node[1]);
    settle();
    for (int i = 1; i <= 3; i++) CHECK_MSG(is(i, "running"), "job %d: %s", i, stored);
    pass(2000);
    CHECK(is(1, "running") && is(2, "running") && is(3, "running"));
    for (int i = 0; i < 12; i++) pass(1000); /* silence while the loop is idle counts as silence */
    for (int i = 1; i <= 3; i++)
        CHECK(is(i, "running") && (strstr(stored, "\"away\"") != NULL) == (i == 3));
    finish();
}

/* ---- images ---------------------------------------------------------------------------------- */

enum { IMAGED = 4, LAST = 1 + IMAGED }; /* job 1 runs, and has no image */

static void sql(const char *text)
{
    char path[160];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(!sqlite3_open(path, &db) && !sqlite3_exec(db, text, NULL, NULL, NULL));
    sqlite3_close(db);
}

/* Submits a job that runs and jobs that wait. The jobs with an even id wait with prepared data. */
static void begin_images(void)
{
    begin();
    hello(&w.node[0]);
    submit(SLOTS, 0);
    for (int i = 0; i < IMAGED / 2; i++) {
        submit(SLOTS, 0);
        submit_begin("emulated", 2, 0, "{\"memory\": {\"device\": 77}}");
    }
    for (int i = 0; i < 16; i++) prepare_all(), pass(1000);
    CHECK(job(1)->attempts && *job(2)->prepared_id && !*job(3)->prepared_id);
}

/* Starts seqd again after a change of its rows, and counts the jobs that came from images. */
static int start_after(const char *change)
{
    int n = 0;
    close_seqd();
    sql(change);
    open_seqd();
    for (int id = 2; id <= LAST; id++) n += job(id)->imaged == job(id)->seq;
    return n;
}

/* Returns the image of a job, with the texts of its spec in the order in which a reader finds
 * them. A spec keeps texts that it does not use any more. */
static uint8_t *image_of(int64_t id, size_t *size)
{
    static char text[JSON_SPEC_SIZE];
    static struct job_spec s;
    struct job *j = (struct job *)job(id);
    struct err e;
    const int64_t n = json_spec_write(job_spec(j), JSON_STORED, text, sizeof text);
    CHECK(n > 0 && !json_spec_read(text, (size_t)n, JSON_STORED, &s, &e) && !family_check(&s, &e));
    job_set_spec(j, &s);
    job_rest(j);
    uint8_t *image = job_image_write(j, size);
    CHECK_MSG(image != NULL, "job %lld", (long long)id);
    return image;
}

static void check_images(uint8_t *const *image, const size_t *size)
{
    for (int id = 2; id <= LAST; id++) {
        size_t n;
        uint8_t *now = image_of(id, &n);
        CHECK_MSG(now && n == size[id] && !memcmp(now, image[id], n), "job %d", id);
        free(now);
    }
}

/* Checks that a start from images gives the bits that a start from rows gives. An image that is
 * damaged, of another job or not of the last event is not read. */
static void test_images(void)
{
    uint8_t *image[LAST + 1] = {NULL};
    size_t size[LAST + 1], n;
    begin_images();
    CHECK(!job_image_write(job(1), &n));
    for (int id = 2; id <= LAST; id++) image[id] = image_of(id, &size[id]);
    CHECK(start_after("SELECT 1") == IMAGED);
    check_images(image, size);
    CHECK(start_after("DELETE FROM images") == 0);
    check_images(image, size);
    for (int i = 0; i < 16; i++) pass(1000);
    CHECK(start_after("UPDATE images SET seq = seq - 1 WHERE job = 2") == IMAGED - 1);
    CHECK(start_after("UPDATE images SET data = CAST(x'00' || substr(data, 2) AS BLOB) "
                      "WHERE job = 3; "
                      "UPDATE images SET data = (SELECT data FROM images WHERE job = 4) "
                      "WHERE job = 5; "
                      "UPDATE images SET data = substr(data, 1, length(data) - 1) "
                      "WHERE job = 4") == IMAGED - 4);
    check_images(image, size);
    for (int id = 2; id <= LAST; id++) free(image[id]);
    finish();
}

/* Checks an order for a job that has an image. The image goes with the order. If it is there
 * nevertheless, as after an older seqd that does not know images, it is not read. */
static void test_image_of_before(void)
{
    begin_images();
    close_seqd();
    sql("CREATE TABLE older AS SELECT * FROM images");
    open_seqd();
    order_suspend(control_commits(w.control), 2, "", on_done, NULL);
    settle();
    CHECK(start_after("DELETE FROM older WHERE job <> 2 OR job IN (SELECT job FROM images); "
                      "INSERT INTO images SELECT * FROM older") == IMAGED - 1);
    CHECK(job(2)->state == JOB_SUSPENDED);
    order_resume(control_commits(w.control), 2, "", on_done, NULL);
    settle();
    CHECK(start_after("INSERT OR REPLACE INTO images SELECT * FROM older") == IMAGED - 1);
    CHECK(job(2)->state == JOB_QUEUED && job(2)->misread);
    finish();
}

/* ---- by the clock ---------------------------------------------------------------------------- */

static int64_t real_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t real_clock(void *arg)
{
    return real_ms();
}

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Prints the cost of a start with the jobs that are stored now. */
static void bench_start(const char *from, int n)
{
    for (int i = 0; i < NODES; i++) w.node[i].up = false;
    close_seqd();
    malloc_trim(0);
    const int64_t at = cpu_us(), bytes = (int64_t)mallinfo2().uordblks;
    open_seqd();
    const int64_t took = cpu_us() - at, more = (int64_t)mallinfo2().uordblks - bytes;
    printf("start from %s: %lld ms of processor, %.1f us and %lld B a live job\n", from,
           (long long)(took / 1000), (double)took / n, (long long)more / n);
}

static void bench(void)
{
    const int n = getenv("N_JOBS") ? atoi(getenv("N_JOBS")) : 10000;
    begin();
    all_up();
    for (int i = 0; i < 5; i++) submit_begin("cpu", 64, 0, "{}");
    settle();
    prepare_all(), settle();
    for (int i = 0; i < NODES; i++)
        for (int k = 0; k < w.node[i].n_gangs; k++) {
            struct gang *g = &w.node[i].gang[k];
            if (g->task == TASK_RUN) play_blobs(g), play_ready(g), send_spool(&w.node[i], g);
        }
    settle();
    for (int i = 0; i < n - 5; i++) {
        submit_begin("emulated", 64, 0, "{}");
        if (i % 200 == 0) settle();
    }
    settle();
    bench_start("rows", n);
    for (int i = 0; i < 20 + 2 * n / IMAGES_BUCKETS; i++) pass(1000);
    bench_start("images", n);
    for (int i = 0; i < NODES; i++) w.node[i].up = false;
    close_seqd();
    int64_t at = real_ms();
    open_seqd_with(real_clock);
    printf("replay %lld ms\n", (long long)(real_ms() - at));
    at = real_ms();
    int64_t longest = 0;
    for (int i = 0; i < NODES; i++) {
        const int64_t t = real_ms();
        hello(&w.node[i]);
        loop_turn(w.loop, 0);
        if (real_ms() - t > longest) longest = real_ms() - t;
    }
    printf("last of %d nodes back after %lld ms, %lld passes, longest turn %lld ms\n", NODES,
           (long long)(real_ms() - at), (long long)control_passes(w.control), (long long)longest);
    at = real_ms();
    const int64_t before = control_passes(w.control);
    while (real_ms() - at < 5000) loop_turn(w.loop, 10);
    printf("then %lld passes in 5 s; running:", (long long)(control_passes(w.control) - before));
    for (int i = 1; i <= 5; i++) printf(" %d", job(i)->state == JOB_RUNNING);
    printf("\n");
    finish();
}

int main(void)
{
    bad_disk_install();
    seqd_test_init();
    if (getenv("SEQD_BENCH")) {
        bench();
        return 0;
    }
    RUN(test_full_house);
    RUN(test_a_fifth);
    RUN(test_behind);
    RUN(test_images);
    RUN(test_image_of_before);
    return test_done("seqd_many");
}
