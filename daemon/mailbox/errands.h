/* errands.h: a thread for work that would delay the loop. The loop hands over an errand and is
 * called back through its mailbox. Errands run one after another.
 *
 * All functions but errands_ending are called on the loop thread.
 * tested: tests/daemon/test_seqd_planner.c */
#ifndef SEQD_DAEMON_MAILBOX_ERRANDS_H
#define SEQD_DAEMON_MAILBOX_ERRANDS_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"
#include "api/core/loop.h"

struct errands;

/* An errand belongs to the caller and must exist until done is called, which happens once, on the
 * loop's thread. */
struct errand {
    void (*work)(void *arg); /* called on the thread; may use only arg's own data */
    /* if dropped is set, the thread ends, and work may or may not have been called */
    void (*done)(void *arg, bool dropped);
    void *arg;
    struct errand *next; /* used by the thread */
};

struct errands_options {
    size_t stack_size; /* bytes; 0 stands for the system's default */
    int most;          /* errands that may wait at the same time, including the one under way */
    const char *what;  /* "requests of uploads", for the error when too many wait already */
};

struct errands *errands_create(struct loop *l, const struct errands_options *o);
/* Ends the thread and refuses errands from now on. If finish is set, the errands that wait are
 * done and called back inside this call. Otherwise they are dropped, and so is the errand under
 * way when it has ended. t may be NULL here and in errands_destroy. errands_destroy drops the
 * errands that wait. */
void errands_end(struct errands *t, bool finish);
void errands_destroy(struct errands *t);

/* Hands over an errand. Fails with ERR_PEER if too many wait, or after errands_end. */
int errands_do(struct errands *t, struct errand *x, struct err *e);

/* Tells whether errands_end was called, in which case the work under way should end soon. May be
 * called on any thread. */
bool errands_ending(const struct errands *t);

#endif
