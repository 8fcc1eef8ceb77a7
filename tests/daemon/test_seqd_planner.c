/* test_seqd_planner: checks that specs are planned on a separate thread. The loop must answer
 * requests in the meantime. An errand that has not run when seqd ends must be reported as
 * dropped. */
#include <pthread.h>
#include <semaphore.h>
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

/* n_worked is counted on the planner's thread, and n_done on the loop's thread */
static int n_worked, n_done;
/* an errand waits for this semaphore, and keeps the thread busy until then */
static sem_t gate;

static void note_work(void *arg)
{
    struct item *i = arg;
    i->worked = ++n_worked;
    i->on = pthread_self();
}

static void wait_gate(void *arg)
{
    while (sem_wait(&gate)) {
    }
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

static struct loop *start(struct errands **p)
{
    struct err e = {0};
    struct loop *l = loop_create(NULL, NULL, &e);
    CHECK_MSG(l != NULL, "%s", e.text);
    *p = planner_create(l);
    n_worked = n_done = 0;
    CHECK(!sem_init(&gate, 0, 0));
    return l;
}

static void test_order(void)
{
    static struct item item[8];
    struct errands *p;
    struct loop *l = start(&p);
    for (int i = 0; i < 8; i++) CHECK(!hand_over(p, &item[i], note_work, NULL));
    while (n_done < 8) loop_turn(l, 10);
    for (int i = 0; i < 8; i++) {
        CHECK(item[i].worked == i + 1 && item[i].done == i + 1 && !item[i].dropped);
        CHECK(!pthread_equal(item[i].on, pthread_self()));
    }
    errands_destroy(p);
    loop_destroy(l);
}

static void test_full(void)
{
    static struct item item[PLANNER_WAITING + 1];
    struct errands *p;
    struct err e = {0};
    struct loop *l = start(&p);
    for (int i = 0; i < PLANNER_WAITING; i++)
        CHECK(!hand_over(p, &item[i], i ? note_work : wait_gate, &e));
    CHECK(hand_over(p, &item[PLANNER_WAITING], note_work, &e) && e.code == ERR_PEER);
    loop_turn(l, 0);
    CHECK(!n_done);
    sem_post(&gate);
    while (n_done < PLANNER_WAITING) loop_turn(l, 10);
    CHECK(!hand_over(p, &item[PLANNER_WAITING], note_work, &e));
    while (n_done <= PLANNER_WAITING) loop_turn(l, 10);
    errands_destroy(p);
    loop_destroy(l);
}

/* Checks that every errand is told immediately that seqd ends. */
static void test_end(void)
{
    static struct item item[4];
    struct errands *p;
    struct err e = {0};
    struct loop *l = start(&p);
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
    static struct item hold;
    begin();
    n_worked = n_done = 0;
    CHECK(!sem_init(&gate, 0, 0));
    CHECK(!hand_over(w.routes.planner, &hold, wait_gate, NULL));
    const int plan = post_begin("/v1/plan", "", JOB);
    const int job = post_begin("/v1/jobs", "", JOB);
    const int wrong = post_begin("/v1/plan", "", "{\"kind\":\"train\",\"seed\":\"x\"}");
    CHECK(get("/livez") == 200 && get("/v1/jobs") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(answer_of(wrong) == 400); /* a wrong body is refused without a plan */
    CHECK(!n_done);
    sem_post(&gate);
    CHECK(answer_of(plan) == 200 && strstr(reply, "\"weighed\":[{"));
    CHECK(answer_of(job) == 201 && strstr(reply, "\"weighed\":[{"));
    CHECK(n_done == 1 && !hold.dropped);
    finish();
}

int main(void)
{
    RUN(test_order);
    RUN(test_full);
    RUN(test_end);
    RUN(test_loop_is_free);
    return test_done("seqd_planner");
}
