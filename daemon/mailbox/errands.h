/* errands.h: a thread for work that would delay the loop. The loop hands over an errand and is
 * called back through its mailbox. The thread runs one errand at a time.
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

/* An errand belongs to the caller and must exist until done is called. done is called once, on the
 * loop's thread. */
struct errand {
    void (*work)(void *arg); /* called on the thread; may use only arg's own data */
    /* `dropped` means that the thread is ending; `work` may or may not have been called */
    void (*done)(void *arg, bool dropped);
    void *arg;
    struct errand *next; /* used by the thread */
};

struct errands_options {
    size_t stack_size; /* bytes; 0 stands for the system's default */
    int most;          /* largest number of unfinished errands, including the errand under way */
    /* names the errands in the error when too many wait, such as "requests of uploads" */
    const char *what;
};

struct errands *errands_create(struct loop *l, const struct errands_options *o);
/* Ends the thread and refuses errands from now on. If `finish` is set, waits until all errands are
 * done, and calls back for them inside this call. Otherwise drops the waiting errands. The errand
 * under way is dropped when its work has ended. errands_destroy always drops the waiting errands.
 * t may be NULL in both functions. */
void errands_end(struct errands *t, bool finish);
void errands_destroy(struct errands *t);

/* Hands over an errand. Fails with ERR_PEER if too many errands wait, or after errands_end. */
int errands_do(struct errands *t, struct errand *x, struct err *e);

/* Tells whether errands_end was called. If it was, the work under way should end soon. May be
 * called on any thread. */
bool errands_ending(const struct errands *t);

#endif
