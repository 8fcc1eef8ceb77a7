/* pin.h: binds the threads of a bench to the cores that BENCH_CORES lists ("0 1"), which peers.py
 * sets. The first thread is bound to the first core. The threads that a thread starts are bound to
 * the next cores of the list, one after another. If a pool has as many threads as the list has
 * cores, each of its threads therefore has its own core. A rank that is a thread binds itself
 * (pin_rank), and its pool follows it. If BENCH_CORES is not set, no thread is bound. */
#ifndef SEQD_BENCH_PIN_H
#define SEQD_BENCH_PIN_H

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIN_MAX = 64 };

static int pin_cores[PIN_MAX], pin_n; /* if pin_n is 0, no thread is bound */
/* pin_at is this thread's index in the list, and pin_n_started is the number of threads that it
 * has started */
static _Thread_local int pin_at, pin_n_started;

static inline cpu_set_t pin_set(int at)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(pin_cores[at], &set);
    return set;
}

/* Binds this thread, which is rank `rank` of the ranks that share the cores. */
static inline void pin_rank(int rank)
{
    if (!pin_n) return;
    pin_at = rank % pin_n;
    pin_n_started = 0;
    const cpu_set_t set = pin_set(pin_at);
    if (!sched_setaffinity(0, sizeof set, &set)) return;
    fprintf(stderr, "BENCH_CORES: core %d cannot be used: ", pin_cores[pin_at]);
    perror(NULL);
    exit(1);
}

/* Reads BENCH_CORES and binds the first thread. Call it before any other thread is started. */
static inline void pin_open(void)
{
    const char *at = getenv("BENCH_CORES");
    while (at && *at && pin_n < PIN_MAX) {
        char *end;
        const long core = strtol(at, &end, 10);
        if (end == at || core < 0 || core >= CPU_SETSIZE) {
            fprintf(stderr, "BENCH_CORES: \"%s\" is not a list of cores\n", at);
            exit(1);
        }
        pin_cores[pin_n++] = (int)core;
        for (at = end; *at == ' '; at++) {
        }
    }
    pin_rank(0);
}

/* Replaces libc's function in a bench, so that it is called for the threads that libraries
 * start. */
int pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    int (*start)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&start = dlsym(RTLD_NEXT, "pthread_create");
    if (pin_n < 2 || attr) return start(id, attr, run, arg);
    const cpu_set_t set = pin_set((pin_at + 1 + pin_n_started++ % (pin_n - 1)) % pin_n);
    pthread_attr_t bound;
    pthread_attr_init(&bound);
    pthread_attr_setaffinity_np(&bound, sizeof set, &set);
    const int rc = start(id, &bound, run, arg);
    pthread_attr_destroy(&bound);
    return rc;
}

#endif
