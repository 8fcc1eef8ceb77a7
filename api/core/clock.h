/* clock.h: the monotonic clock, for deadlines and durations within a process, and the processor
 * time of a thread. */
#ifndef SEQD_CORE_CLOCK_H
#define SEQD_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in microseconds. This clock stands still while the machine is
 * suspended. */
static inline int64_t clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static inline int64_t clock_ms(void)
{
    return clock_us() / 1000;
}

/* Returns the processor time that the calling thread has used, in microseconds. */
static inline int64_t clock_thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

#endif
