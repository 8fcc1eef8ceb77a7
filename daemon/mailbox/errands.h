/* errands.h: threads for work that would delay the loop. The loop hands over an errand and is
 * called back through its mailbox. Each thread runs one errand at a time.
 *
 * An errand waits in a line, which has a name, such as that of a user. Lines are served in turn.
 * A free thread takes the first errand of a line that has the fewest errands under way, and among
 * these lines of the line that has used the least processor time since the threads were last idle.
 * So a user with many errands delays another user by at most the errands that are under way.
 *
 * Errands that are `later` run after those that are not, of all lines, and leave one thread free
 * for them. While errands that are not later keep coming, one of ERRANDS_TURNS is nevertheless
 * later.
 *
 * All functions but errands_ending are called on the loop thread.
 * tested: tests/daemon/test_seqd_planner.c */
#ifndef SEQD_DAEMON_MAILBOX_ERRANDS_H
#define SEQD_DAEMON_MAILBOX_ERRANDS_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"
#include "api/core/loop.h"

#define ERRANDS_TURNS 32

struct errands;

/* An errand belongs to the caller and must exist until done is called. done is called once, on the
 * loop's thread. */
struct errand {
    void (*work)(void *arg); /* called on a thread; may use only arg's own data */
    /* `dropped` means that the threads are ending; `work` may or may not have been called */
    void (*done)(void *arg, bool dropped);
    void *arg;
    const char *line;    /* name of its line, borrowed until done is called; NULL stands for "" */
    bool later;          /* runs after errands that are not `later` */
    struct errand *next; /* used by the threads */
};

struct errands_options {
    size_t stack_size; /* bytes; 0 stands for the system's default */
    int n_threads;     /* 0 stands for 1 */
    int most;          /* largest number of unfinished errands, including those under way */
    int most_of_line;  /* largest number of unfinished errands of a line; 0 stands for `most` */
    /* names the errands in the error when too many wait, such as "requests of uploads" */
    const char *what;
};

struct errands *errands_create(struct loop *l, const struct errands_options *o);
/* Ends the threads and refuses errands from now on. If `finish` is set, waits until all errands are
 * done, and calls back for them inside this call. Otherwise drops the waiting errands. An errand
 * under way is dropped when its work has ended. errands_destroy always drops the waiting errands.
 * t may be NULL in both functions. */
void errands_end(struct errands *t, bool finish);
void errands_destroy(struct errands *t);

/* Hands over an errand. Fails with ERR_PEER if too many errands wait, or after errands_end. Fails
 * with ERR_TOO_LARGE if too many errands of its line wait. */
int errands_do(struct errands *t, struct errand *x, struct err *e);

/* Tells whether errands_end was called. If it was, the work under way should end soon. May be
 * called on any thread. */
bool errands_ending(const struct errands *t);

#endif
