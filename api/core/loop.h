/* loop.h: one epoll loop with timers, signals and a mailbox.
 *
 * The loop thread owns all mutable state of its program. Other threads (HTTP, gRPC completion
 * queue, the SQLite writer) may call only loop_post. Posted calls run on the loop thread, in the
 * order in which they were posted. Tests pass a clock to loop_create, so that they can advance the
 * time themselves. */
#ifndef SEQD_CORE_LOOP_H
#define SEQD_CORE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

struct loop;
struct loop_timer;
struct loop_fd;

typedef void loop_call(void *arg);
typedef void loop_fd_call(void *arg, uint32_t epoll_events);
typedef void loop_signal_call(void *arg, int signo);
typedef int64_t loop_clock(void *arg); /* monotonic milliseconds */

/* Makes a loop. If `clock` is NULL, the loop uses CLOCK_BOOTTIME. */
struct loop *loop_create(loop_clock *clock, void *clock_arg, struct err *e);
void loop_destroy(struct loop *l); /* l may be NULL; posted calls that have not run yet are
                                    * dropped */

/* loop_run runs rounds until loop_stop is called. loop_turn is for tests; it runs one round, which
 * waits at most timeout_ms. */
void loop_run(struct loop *l);
void loop_turn(struct loop *l, int timeout_ms);
void loop_stop(struct loop *l); /* may be called only on the loop thread */
bool loop_stopped(const struct loop *l);

/* Returns the time at which this round ended its wait and began its calls. Descriptors and the
 * mailbox are handled before timers. So a timer that checks for silence runs only after all data
 * that had arrived by this time were handled. */
int64_t loop_now_ms(const struct loop *l);
int64_t loop_clock_ms(const struct loop *l); /* the present time of the clock, for measuring the
                                              * duration of a call */
int64_t loop_busy_ms(const struct loop *l);  /* time spent in calls, up to the last round */

/* Posts a call from any thread. loop_post never blocks, and no call is dropped. The entry of the
 * call is allocated with malloc. */
void loop_post(struct loop *l, loop_call *call, void *arg);

/* Makes a timer that fires once for each loop_timer_set. */
struct loop_timer *loop_timer_create(struct loop *l, loop_call *call, void *arg);
void loop_timer_set(struct loop_timer *t, int64_t in_ms); /* negative: disarm */
void loop_timer_destroy(struct loop_timer *t);

/* Watches fd, which the caller continues to own. */
struct loop_fd *loop_fd_add(struct loop *l, int fd, uint32_t epoll_events, loop_fd_call *call,
                            void *arg, struct err *e);
void loop_fd_remove(struct loop_fd *f); /* may be called inside the callback of f */

/* Blocks the signals in the calling thread and delivers them to `call` on the loop thread. Call
 * this function before any thread starts. */
int loop_signals(struct loop *l, const int *signos, int n, loop_signal_call *call, void *arg,
                 struct err *e);

#endif
