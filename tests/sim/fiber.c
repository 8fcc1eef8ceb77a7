/* fiber.c: the threads of seqd and of agents as fibers. Each fiber runs until it waits, or until
 * its disk lets other fibers run. The linker replaces the system's functions by the functions of
 * this file (--wrap). */
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include "tests/sim/oom.h"
#include "tests/sim/sim.h"

enum { FIBERS = 64, STACK_SIZE = 8 << 20 }; /* that of planner.c */

struct fiber {
    ucontext_t context;
    char *stack;
    void *(*main)(void *arg);
    void *arg;
    bool used, done, ready;
    int node; /* node of the fiber, or -1 for seqd */
    pthread_cond_t *waits;
    int64_t until_ms; /* -1 for no limit */
};

static struct fiber fibers[FIBERS];
static struct fiber *current;
static ucontext_t outside;
static int exit_code = -1;

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*main)(void *), void *arg);
int __wrap_pthread_join(pthread_t t, void **out);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
time_t __wrap_time(time_t *out);
void __wrap__exit(int code) __attribute__((noreturn));
void __real__exit(int code) __attribute__((noreturn));

static void leave(void)
{
    struct fiber *f = current;
    current = NULL;
    swapcontext(&f->context, &outside);
}

static void enter(struct fiber *f)
{
    const int before = node_now();
    f->ready = false;
    current = f;
    node_enter(f->node);
    swapcontext(&outside, &f->context);
    node_enter(before);
    current = NULL;
}

static void fiber_main(void)
{
    current->main(current->arg);
    current->done = true;
    leave();
}

bool fiber_inside(void)
{
    return current != NULL;
}

void fiber_yield(void)
{
    if (!current) return;
    current->ready = true;
    leave();
}

static bool is_ready(const struct fiber *f)
{
    return f->used && !f->done &&
           (f->ready || (f->waits && f->until_ms >= 0 && sim_now >= f->until_ms));
}

void fibers_turn(bool all)
{
    const int first = sim_below(FIBERS);
    for (int i = 0; i < FIBERS; i++) {
        struct fiber *f = &fibers[(first + i) % FIBERS];
        if (is_ready(f) && (all || sim_below(4))) enter(f);
    }
}

void fibers_drop(void)
{
    for (int i = 0; i < FIBERS; i++)
        if (fibers[i].node < 0) fibers[i].used = false;
    exit_code = -1;
}

int fiber_exit_code(void)
{
    return exit_code;
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*main)(void *), void *arg)
{
    for (int i = 0; i < FIBERS; i++) {
        struct fiber *f = &fibers[i];
        if (f->used) continue;
        if (!f->stack && !(f->stack = sim_malloc(STACK_SIZE))) abort();
        *f = (struct fiber){.stack = f->stack,
                            .main = main,
                            .arg = arg,
                            .used = true,
                            .ready = true,
                            .node = node_now()};
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack;
        f->context.uc_stack.ss_size = STACK_SIZE;
        makecontext(&f->context, fiber_main, 0);
        *t = (pthread_t)(i + 1);
        return 0;
    }
    return EAGAIN;
}

/* Joins a fiber. A fiber that has called _exit counts as ended. */
int __wrap_pthread_join(pthread_t t, void **out)
{
    struct fiber *f = &fibers[(size_t)t - 1];
    for (int i = 0; f->used && !f->done && i < 10000; i++) {
        if (is_ready(f))
            enter(f);
        else
            fibers_turn(true); /* the fiber may wait for a second fiber */
    }
    f->used = false;
    return 0;
}

static void await(pthread_cond_t *c, pthread_mutex_t *m, int64_t until_ms)
{
    if (!current) abort(); /* nothing would wake it */
    current->waits = c;
    current->until_ms = until_ms;
    pthread_mutex_unlock(m);
    struct fiber *f = current;
    leave();
    f->waits = NULL;
    pthread_mutex_lock(m);
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    await(c, m, -1);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
    await(c, m, (int64_t)t->tv_sec * 1000 + t->tv_nsec / 1000000);
    return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    for (int i = 0; i < FIBERS; i++)
        if (fibers[i].used && fibers[i].waits == c) fibers[i].ready = true;
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    return __wrap_pthread_cond_signal(c);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    const int64_t ms = id == CLOCK_REALTIME ? sim_utc : sim_now;
    *t = (struct timespec){ms / 1000, ms % 1000 * 1000000};
    return 0;
}

time_t __wrap_time(time_t *out)
{
    if (out) *out = sim_utc / 1000;
    return sim_utc / 1000;
}

/* Ends the fiber of a process that exits. world.c ends the rest of the process. */
void __wrap__exit(int code)
{
    if (!current) __real__exit(code);
    exit_code = code;
    current->done = true;
    for (;;) leave();
}
