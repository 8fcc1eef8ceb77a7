/* errands.h: a thread for work that would hold up the loop. The loop hands over an errand and is
 * called back through its mailbox. Errands run one after another.
 *
 * Loop thread, but for errands_ending. tested: tests/daemon/test_seqd_planner.c */
#ifndef SEQD_DAEMON_MAILBOX_ERRANDS_H
#define SEQD_DAEMON_MAILBOX_ERRANDS_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"
#include "api/core/loop.h"

struct errands;

/* An errand stays with the caller until done is called: once, on the loop's thread. */
struct errand {
    void (*work)(void *arg);               /* on the thread: touches only arg's own data */
    void (*done)(void *arg, bool dropped); /* dropped: the thread ends; perhaps work was called */
    void *arg;
    struct errand *next; /* used by the thread */
};

struct errands_options {
    size_t stack_size; /* bytes; 0: the system's */
    int most;          /* errands that wait at once, with the one under way */
    const char *what;  /* "requests of uploads": named when too many wait already */
};

struct errands *errands_create(struct loop *l, const struct errands_options *o);
/* Ends the thread and refuses errands from now on. finish: errands that wait are done and called
 * back here; otherwise they are dropped, as is the errand under way when it ends. NULL is allowed,
 * here and in errands_destroy, which drops. */
void errands_end(struct errands *t, bool finish);
void errands_destroy(struct errands *t);

/* Hands over an errand. fails: ERR_PEER when too many wait, or after errands_end. */
int errands_do(struct errands *t, struct errand *x, struct err *e);

/* Tells, on any thread, whether errands_end was called; the work under way should end soon
 * then. */
bool errands_ending(const struct errands *t);

#endif
