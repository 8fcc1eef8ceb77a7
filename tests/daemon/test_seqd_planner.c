/* test_seqd_planner: checks that specs are planned on separate threads. The loop must answer
 * requests in the meantime. Users are served in turn, by the processor time that they have used,
 * and submits come before plans. An errand that has not run when seqd ends must be reported as
 * dropped. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include "api/core/clock.h"
#include "daemon/loop/planner.h"
#include "tests/lib/rest.h"

/* ---- the thread ------------------------------------------------------------------------------ */

struct item {
    struct errand task;
    struct errands *p;
    /* the positions of these three events in the order of all events, counted from 1; 0 means that
     * the event has not happened */
    int worked, done, dropped;
    pthread_t on;
};

/* n_worked is counted on the planner's threads, and n_done on the loop's thread */
static atomic_int n_worked;
static int n_done;
/* an errand waits for this semaphore, and keeps its thread busy until then */
static sem_t gate;
/* errands that have reached the gate */
static atomic_int n_waiting;

static void note_work(void *arg)
{
    struct item *i = arg;
    i->worked = ++n_worked;
    i->on = pthread_self();
}

static void wait_gate(void *arg)
{
    n_waiting++;
    while (sem_wait(&gate)) {
    }
    note_work(arg);
}

/* Uses processor time, in microseconds. */
static void burn(int64_t us)
{
    const int64_t end = clock_thread_us() + us;
    while (clock_thread_us() < end) continue;
}

static void burn_little(void *arg)
{
    burn(200);
    note_work(arg);
}

static void burn_much(void *arg)
{
    burn(4000);
    note_work(arg);
}

/* An errand that works until its time limit ends it. */
static void wait_end(void *arg)
{
    const struct item *i = arg;
    sem_post(&gate);
    while (planner_clock_ms(i->p) < INT64_MAX) sched_yield();
    note_work(arg);
}

static void count(void *arg, bool dropped)
{
    struct item *i = arg;
    CHECK(!i->done);
    i->done = ++n_done;
    i->dropped = dropped;
}

static int hand_over(struct errands *p, struct item *i, void (*work)(void *arg), struct err *e)
{
    *i = (struct item){.p = p, .task = {.work = work, .done = count, .arg = i}};
    return errands_do(p, &i->task, e);
}

static int hand_over_as(struct errands *p, const char *line, bool later, struct item *i,
                        void (*work)(void *arg))
{
    *i = (struct item){.p = p, .task = {work, count, i, line, later, NULL}};
    return errands_do(p, &i->task, NULL);
}

static struct loop *start_with(int n_threads, struct errands **p)
{
    struct err e = {0};
    struct loop *l = loop_create(NULL, NULL, &e);
    CHECK_MSG(l != NULL, "%s", e.text);
    *p = n_threads ? errands_create(l, &(struct errands_options){.n_threads = n_threads,
                                                                 .most = 300,
                                                                 .most_of_line = 200,
                                                                 .what = "errands"})
                   : planner_create(l);
    n_worked = n_done = n_waiting = 0;
    CHECK(!sem_init(&gate, 0, 0));
    return l;
}

static struct loop *start(struct errands **p)
{
    return start_with(0, p);
}

/* Keeps all threads busy until the gate opens. */
static void hold(struct errands *p, struct item *i, int n)
{
    for (int k = 0; k < n; k++) CHECK(!hand_over_as(p, "gate", false, &i[k], wait_gate));
    while (n_waiting < n) sched_yield();
}

static void stop(struct errands *p, struct loop *l)
{
    errands_destroy(p);
    loop_destroy(l);
}

static void test_order(void)
{
    static struct item item[8];
    struct errands *p;
    struct loop *l = start_with(1, &p);
    for (int i = 0; i < 8; i++) CHECK(!hand_over(p, &item[i], note_work, NULL));
    while (n_done < 8) loop_turn(l, 10);
    for (int i = 0; i < 8; i++) {
        CHECK(item[i].worked == i + 1 && item[i].done == i + 1 && !item[i].dropped);
        CHECK(!pthread_equal(item[i].on, pthread_self()));
    }
    errands_destroy(p);
    loop_destroy(l);
}

/* Checks the limits on the errands that wait, of one line and of all. */
static void test_full(void)
{
    static struct item item[PLANNER_WAITING + 1];
    static const char *const lines[] = {"a", "b", "c", "d", "e"};
    struct errands *p;
    struct err e = {0};
    struct loop *l = start(&p);
    for (int i = 0; i < PLANNER_WAITING; i++) {
        const char *line = lines[i / PLANNER_USER];
        CHECK(!hand_over_as(p, line, false, &item[i], i < PLANNER_THREADS ? wait_gate : note_work));
        while (i == PLANNER_THREADS - 1 && n_waiting < PLANNER_THREADS) sched_yield();
        item[PLANNER_WAITING].task = (struct errand){note_work, count, NULL, "a", false, NULL};
        const int bad = i < PLANNER_USER - 1 ? 0 : errands_do(p, &item[PLANNER_WAITING].task, &e);
        if (i < PLANNER_USER - 1 || i == PLANNER_WAITING - 1) continue;
        CHECK(bad && e.code == ERR_TOO_LARGE);
        CHECK_STR(e.text, "64 jobs that are to be planned of a wait already, the limit of a user: "
                          "try again");
    }
    CHECK(errands_do(p, &item[PLANNER_WAITING].task, &e) && e.code == ERR_PEER);
    loop_turn(l, 0);
    CHECK(!n_done);
    for (int i = 0; i < PLANNER_THREADS; i++) sem_post(&gate);
    while (n_done < PLANNER_WAITING) loop_turn(l, 10);
    CHECK(!hand_over(p, &item[PLANNER_WAITING], note_work, &e));
    while (n_done <= PLANNER_WAITING) loop_turn(l, 10);
    errands_destroy(p);
    loop_destroy(l);
}

/* Checks that lines are served in turn: a third user does not wait for the 20 errands of each of
 * two users who came earlier. */
static void test_turns(void)
{
    static struct item busy[1], a[20], b[20], c[1];
    struct errands *p;
    struct loop *l = start_with(1, &p);
    hold(p, busy, 1);
    for (int i = 0; i < 20; i++) CHECK(!hand_over_as(p, "a", false, &a[i], note_work));
    for (int i = 0; i < 20; i++) CHECK(!hand_over_as(p, "b", false, &b[i], note_work));
    CHECK(!hand_over_as(p, "c", false, &c[0], note_work));
    sem_post(&gate);
    while (n_done < 42) loop_turn(l, 10);
    for (int i = 1; i < 20; i++) CHECK(a[i].worked > a[i - 1].worked);
    CHECK_MSG(c[0].worked <= 4, "%d", c[0].worked);
    stop(p, l);
}

/* Checks that turns are counted in processor time: while a user's errand takes 4 ms, another's
 * takes 0.2 ms, and the first has at most four turns before the second has had 20. */
static void test_cost(void)
{
    static struct item busy[1], a[20], b[20];
    struct errands *p;
    struct loop *l = start_with(1, &p);
    hold(p, busy, 1);
    for (int i = 0; i < 20; i++) CHECK(!hand_over_as(p, "a", false, &a[i], burn_much));
    for (int i = 0; i < 20; i++) CHECK(!hand_over_as(p, "b", false, &b[i], burn_little));
    sem_post(&gate);
    while (n_done < 41) loop_turn(l, 10);
    CHECK_MSG(b[19].worked < a[4].worked, "%d %d", b[19].worked, a[4].worked);
    CHECK_MSG(b[0].worked <= 3, "%d", b[0].worked);
    stop(p, l);
}

/* Checks that a user who was away is not paid for it: the line begins at the time of the others. */
static void test_return(void)
{
    static struct item busy[2], a[20], b[20];
    struct errands *p;
    struct loop *l = start_with(1, &p);
    hold(p, busy, 1);
    for (int i = 0; i < 10; i++) CHECK(!hand_over_as(p, "a", false, &a[i], burn_much));
    CHECK(!hand_over_as(p, "a", false, &busy[1], wait_gate));
    sem_post(&gate);
    while (n_waiting < 2) loop_turn(l, 10);
    for (int i = 10; i < 20; i++) CHECK(!hand_over_as(p, "a", false, &a[i], burn_much));
    for (int i = 0; i < 10; i++) CHECK(!hand_over_as(p, "b", false, &b[i], burn_much));
    sem_post(&gate);
    while (n_done < 32) loop_turn(l, 10);
    CHECK_MSG(a[12].worked < b[9].worked, "%d %d", a[12].worked, b[9].worked);
    stop(p, l);
}

/* Checks that a submit waits for no plan, of whatever user: plans leave one thread free, and
 * waiting submits come first. */
static void test_later(void)
{
    static struct item busy[2], plan[40], job[100];
    struct errands *p;
    struct loop *l = start_with(2, &p);
    for (int i = 0; i < 2; i++) CHECK(!hand_over_as(p, "a", true, &busy[i], wait_gate));
    for (int i = 0; i < 40; i++) CHECK(!hand_over_as(p, "a", true, &plan[i], note_work));
    while (!n_waiting) sched_yield();
    CHECK(!hand_over_as(p, "b", false, &job[0], note_work));
    while (!n_done) loop_turn(l, 10);
    CHECK(job[0].done == 1 && n_waiting == 1); /* the second plan has not begun */
    CHECK(!hand_over_as(p, "gate", false, &job[1], wait_gate));
    while (n_waiting < 2) sched_yield();
    for (int i = 2; i < 100; i++) CHECK(!hand_over_as(p, "b", false, &job[i], note_work));
    for (int i = 0; i < 3; i++) sem_post(&gate);
    while (n_done < 142) loop_turn(l, 10);
    int n_late = 0;
    for (int i = 2; i < 20; i++) n_late += job[i].worked > plan[2].worked;
    CHECK(n_late <= 1); /* the machine may have stopped the other thread before it counts its own */
    stop(p, l);
}

/* Checks that plans are made even while submits keep coming: one errand of ERRANDS_TURNS. */
static void test_later_goes_on(void)
{
    static struct item busy[1], plan[2], job[3 * ERRANDS_TURNS];
    struct errands *p;
    struct loop *l = start_with(1, &p);
    hold(p, busy, 1);
    for (int i = 0; i < 2; i++) CHECK(!hand_over_as(p, "a", true, &plan[i], note_work));
    for (int i = 0; i < 3 * ERRANDS_TURNS; i++)
        CHECK(!hand_over_as(p, "b", false, &job[i], note_work));
    sem_post(&gate);
    while (n_done < 3 * ERRANDS_TURNS + 3) loop_turn(l, 10);
    CHECK(plan[0].worked == ERRANDS_TURNS + 1 && plan[1].worked == 2 * ERRANDS_TURNS + 2);
    stop(p, l);
}

/* Checks that one user's 40 plans delay the submit of another user by at most the errands that are
 * under way. With plans of 4 ms this is 4 ms of others' processor time on a thread. */
static void test_wait(void)
{
    static struct item busy[PLANNER_THREADS], a[40], b[1];
    struct errands *p;
    struct loop *l = start(&p);
    hold(p, busy, PLANNER_THREADS);
    for (int i = 0; i < 40; i++) CHECK(!hand_over_as(p, "a", false, &a[i], burn_much));
    for (int i = 0; i < PLANNER_THREADS; i++) sem_post(&gate);
    while (n_worked < PLANNER_THREADS + 10) sched_yield();
    CHECK(!hand_over_as(p, "b", false, &b[0], note_work));
    const int before = n_worked;
    while (n_done < PLANNER_THREADS + 41) loop_turn(l, 10);
    CHECK_MSG(b[0].worked <= before + PLANNER_THREADS + 2, "%d %d", before, b[0].worked);
    stop(p, l);
}

/* Checks that every errand is told immediately that seqd ends. */
static void test_end(void)
{
    static struct item item[4];
    struct errands *p;
    struct err e = {0};
    struct loop *l = start_with(1, &p);
    const int64_t before = planner_clock_ms(p);
    CHECK(before < INT64_MAX && planner_clock_ms(p) >= before);
    for (int i = 0; i < 4; i++) CHECK(!hand_over(p, &item[i], i ? note_work : wait_end, NULL));
    while (sem_wait(&gate)) {
    } /* waits until the first errand runs */
    errands_end(p, false);
    CHECK(n_done == 4 && item[0].worked == 1 && n_worked == 1);
    for (int i = 0; i < 4; i++) CHECK(item[i].done && item[i].dropped);
    CHECK(hand_over(p, &item[0], note_work, &e) && e.code == ERR_PEER);
    CHECK(!item[0].done && planner_clock_ms(p) == INT64_MAX);
    loop_destroy(l);
    errands_destroy(p);
    errands_end(NULL, false);
    errands_destroy(NULL);
}

/* ---- requests -------------------------------------------------------------------------------- */

#define JOB                                                                                        \
    "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"       \
    "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":"        \
    "\"/x\"}],\"seq_len\":256},\"train\":{\"steps\":5}}"

/* Checks that other requests are answered while a spec is being planned. */
static void test_loop_is_free(void)
{
    static struct item held[PLANNER_THREADS];
    begin();
    n_worked = n_done = n_waiting = 0;
    CHECK(!sem_init(&gate, 0, 0));
    hold(w.routes.planner, held, PLANNER_THREADS);
    const int plan = post_begin("/v1/plan", "", JOB);
    const int job = post_begin("/v1/jobs", "", JOB);
    const int wrong = post_begin("/v1/plan", "", "{\"kind\":\"train\",\"seed\":\"x\"}");
    CHECK(get("/livez") == 200 && get("/v1/jobs") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(answer_of(wrong) == 400); /* a wrong body is refused without a plan */
    CHECK(!n_done);
    for (int i = 0; i < PLANNER_THREADS; i++) sem_post(&gate);
    CHECK(answer_of(plan) == 200 && strstr(reply, "\"weighed\":[{"));
    CHECK(answer_of(job) == 201 && strstr(reply, "\"weighed\":[{"));
    CHECK(n_done == PLANNER_THREADS && !held[0].dropped);
    finish();
}

/* Sends a request with the token of a user, without reading the answer. */
static int post_as(const char *token, const char *path, int seq_len)
{
    char body[512], out[1024];
    const int fd = dial();
    snprintf(body, sizeof body,
             "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,"
             "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
             "\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":%d},\"train\":{\"steps\":5}}",
             seq_len);
    snprintf(out, sizeof out,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
             "%s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             path, token, strlen(body), body);
    send_all(fd, out, strlen(out));
    return fd;
}

/* Checks that a user's submit is answered before most of another user's 40 plans and jobs, which
 * came earlier. One thread works until then, so that the order does not depend on the machine. */
static void test_users(void)
{
    static struct item held[PLANNER_THREADS];
    char ann[AUTH_TOKEN_SIZE], bob[AUTH_TOKEN_SIZE];
    int fd[40];
    begin();
    rest_token("ann", ROLE_USER, 0, ann);
    rest_token("bob", ROLE_USER, 0, bob);
    n_worked = n_done = n_waiting = 0;
    CHECK(!sem_init(&gate, 0, 0));
    hold(w.routes.planner, held, PLANNER_THREADS);
    const int before = rest_handled;
    for (int i = 0; i < 40; i++) fd[i] = post_as(ann, i % 2 ? "/v1/jobs" : "/v1/plan", 64 + i);
    const int job = post_as(bob, "/v1/jobs", 256);
    while (rest_handled < before + 41) loop_turn(w.loop, 10); /* until the planner has them all */
    sem_post(&gate);
    CHECK(answer_of(job) == 201);
    for (int i = 1; i < PLANNER_THREADS; i++) sem_post(&gate);
    CHECK_MSG(strstr(reply, "\"id\":1,") || strstr(reply, "\"id\":2,") ||
                  strstr(reply, "\"id\":3,") || strstr(reply, "\"id\":4,"),
              "%s", reply);
    for (int i = 0; i < 40; i++) CHECK(answer_of(fd[i]) == (i % 2 ? 201 : 200));
    finish();
}

int main(void)
{
    RUN(test_order);
    RUN(test_turns);
    RUN(test_cost);
    RUN(test_return);
    RUN(test_later);
    RUN(test_later_goes_on);
    RUN(test_wait);
    RUN(test_users);
    RUN(test_full);
    RUN(test_end);
    RUN(test_loop_is_free);
    return test_done("seqd_planner");
}
