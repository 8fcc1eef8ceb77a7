/* test_loop: tests the loop: its timers, for which the test sets the clock, posts from threads,
 * descriptors, and signals. */
#include "api/core/loop.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "tests/lib/test.h"

static int64_t hand_clock(void *arg)
{
    return *(int64_t *)arg;
}

struct note {
    char text[64];
    struct loop *loop;
    struct loop_timer *again;
};

static void note_add(struct note *n, char c)
{
    size_t len = strlen(n->text);
    if (len + 1 < sizeof n->text) n->text[len] = c;
}

static void note_a(void *arg)
{
    note_add(arg, 'a');
}
static void note_b(void *arg)
{
    note_add(arg, 'b');
}
static void note_c(void *arg)
{
    note_add(arg, 'c');
}
static void note_again(void *arg)
{
    struct note *n = arg;
    note_add(n, 'r');
    loop_timer_set(n->again, 0);
}

static void test_timers(void)
{
    int64_t now = 1000;
    struct note n = {{0}};
    struct loop *l = loop_create(hand_clock, &now, NULL);
    struct loop_timer *a = loop_timer_create(l, note_a, &n);
    struct loop_timer *b = loop_timer_create(l, note_b, &n);
    struct loop_timer *c = loop_timer_create(l, note_c, &n);
    loop_timer_set(a, 30);
    loop_timer_set(b, 10);
    loop_timer_set(c, 10);
    loop_turn(l, 0);
    CHECK_STR(n.text, "");
    now += 10;
    loop_turn(l, 1000000); /* a timer is due, so the loop does not wait */
    CHECK_STR(n.text, "bc");
    CHECK(loop_now_ms(l) == 1010);
    loop_timer_set(b, 100);
    loop_timer_set(b, -1);
    now += 1000;
    loop_turn(l, 0);
    CHECK_STR(n.text, "bca");
    loop_timer_destroy(b);
    loop_timer_destroy(c);
    n.again = loop_timer_create(l, note_again, &n);
    loop_timer_set(n.again, 0);
    loop_turn(l, 0); /* a timer that is set again for the present time fires once in each call of
                      * loop_turn */
    CHECK_STR(n.text, "bcar");
    loop_turn(l, 0);
    CHECK_STR(n.text, "bcarr");
    loop_timer_destroy(a);
    loop_timer_destroy(n.again);
    loop_timer_destroy(NULL);
    loop_destroy(l);
}

static void take_long(void *arg)
{
    *(int64_t *)arg += 300;
}

/* Checks that posts that were made before a call of loop_turn run before the timers that are due
 * in that call. */
static void test_mail_before_timers(void)
{
    int64_t now = 0;
    struct note n = {{0}};
    struct loop *l = loop_create(hand_clock, &now, NULL);
    struct loop_timer *t = loop_timer_create(l, note_a, &n);
    loop_timer_set(t, 10);
    now += 5000; /* the loop was not called for a long time */
    loop_post(l, note_b, &n);
    loop_turn(l, 0);
    CHECK_STR(n.text, "ba");
    /* the time in which the loop slept is not counted as busy time */
    CHECK(loop_busy_ms(l) == 0 && loop_clock_ms(l) == 5000);
    loop_post(l, take_long, &now);
    loop_turn(l, 0);
    CHECK(loop_busy_ms(l) == 300 && loop_now_ms(l) == 5000 && loop_clock_ms(l) == 5300);
    loop_timer_destroy(t);
    loop_destroy(l);
}

struct many {
    int64_t last, n_fired;
    int n_wrong;
};
struct one_of_many {
    struct many *all;
    int64_t due;
};

static void many_fire(void *arg)
{
    struct one_of_many *o = arg;
    if (o->due < o->all->last) o->all->n_wrong++;
    o->all->last = o->due;
    o->all->n_fired++;
}

static void test_many_timers(void)
{
    enum { N = 500 };
    int64_t now = 0;
    struct many all = {0};
    struct one_of_many one[N];
    struct loop_timer *t[N];
    struct loop *l = loop_create(hand_clock, &now, NULL);
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        one[i] = (struct one_of_many){&all, (x >> 8) % 1000};
        t[i] = loop_timer_create(l, many_fire, &one[i]);
        loop_timer_set(t[i], one[i].due);
    }
    int64_t n_left = N;
    for (int i = 0; i < N; i += 3, n_left--) loop_timer_set(t[i], -1);
    for (now = 0; now <= 1000; now += 50) loop_turn(l, 0);
    CHECK(all.n_fired == n_left);
    CHECK(all.n_wrong == 0);
    for (int i = 0; i < N; i++) loop_timer_destroy(t[i]);
    loop_destroy(l);
}

enum { THREADS = 4, POSTS = 2000 };
struct posts {
    struct loop *loop;
    int next[THREADS], n_wrong, n_seen;
};
struct post {
    struct posts *all;
    int thread, number;
};

static void post_seen(void *arg)
{
    struct post *p = arg;
    struct posts *all = p->all;
    if (all->next[p->thread]++ != p->number) all->n_wrong++;
    free(p);
    if (++all->n_seen == THREADS * POSTS) loop_stop(all->loop);
}

struct poster {
    struct posts *all;
    int thread;
};

static void *poster_run(void *arg)
{
    struct poster *me = arg;
    for (int i = 0; i < POSTS; i++) {
        struct post *p = malloc(sizeof *p);
        *p = (struct post){me->all, me->thread, i};
        loop_post(me->all->loop, post_seen, p);
    }
    return NULL;
}

static void test_mailbox(void)
{
    struct posts all = {.loop = loop_create(NULL, NULL, NULL)};
    struct poster me[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        me[i] = (struct poster){&all, i};
        pthread_create(&thread[i], NULL, poster_run, &me[i]);
    }
    loop_run(all.loop);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    CHECK(all.n_seen == THREADS * POSTS);
    CHECK(all.n_wrong == 0);
    struct note n = {{0}};
    loop_post(all.loop, note_a, &n);
    loop_destroy(all.loop); /* waiting posts are dropped and not run */
    CHECK_STR(n.text, "");
}

struct pipes {
    struct loop_fd *f[2];
    int fd[2][2], n_calls;
};

static void pipe_first(void *arg, uint32_t events)
{
    struct pipes *p = arg;
    p->n_calls++;
    /* Both descriptors are ready. The first callback removes both, so the second callback must not
     * be called. */
    loop_fd_remove(p->f[0]);
    loop_fd_remove(p->f[1]);
}

static void test_fds(void)
{
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct pipes p = {0};
    for (int i = 0; i < 2; i++) {
        CHECK(pipe(p.fd[i]) == 0);
        p.f[i] = loop_fd_add(l, p.fd[i][0], 0, pipe_first, &p, NULL);
        CHECK(write(p.fd[i][1], "x", 1) == 1);
    }
    loop_turn(l, 0);
    CHECK(p.n_calls == 0);
    for (int i = 0; i < 2; i++) {
        loop_fd_remove(p.f[i]);
        p.f[i] = loop_fd_add(l, p.fd[i][0], EPOLLIN, pipe_first, &p, NULL);
    }
    loop_turn(l, 1000);
    loop_turn(l, 0);
    CHECK(p.n_calls == 1);
    struct err e;
    CHECK(!loop_fd_add(l, -1, EPOLLIN, pipe_first, &p, &e));
    CHECK(e.code == ERR_IO);
    for (int i = 0; i < 2; i++) {
        close(p.fd[i][0]);
        close(p.fd[i][1]);
    }
    loop_destroy(l);
}

static void signal_seen(void *arg, int signo)
{
    note_add(arg, signo == SIGUSR1 ? '1' : '2');
}

static void test_signals(void)
{
    struct loop *l = loop_create(NULL, NULL, NULL);
    struct note n = {{0}};
    int signos[] = {SIGUSR1, SIGUSR2};
    CHECK(loop_signals(l, signos, 2, signal_seen, &n, NULL) == 0);
    raise(SIGUSR2);
    loop_turn(l, 1000);
    raise(SIGUSR1);
    loop_turn(l, 1000);
    CHECK_STR(n.text, "21");
    loop_destroy(l);
    loop_destroy(NULL);
}

int main(void)
{
    RUN(test_timers);
    RUN(test_many_timers);
    RUN(test_mail_before_timers);
    RUN(test_mailbox);
    RUN(test_fds);
    RUN(test_signals);
    return test_done("loop");
}
