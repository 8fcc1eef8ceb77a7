/* acting.h: the state of control, shared by its two files, control.c and control_link.c. */
#ifndef SEQD_DAEMON_LOOP_ACTING_H
#define SEQD_DAEMON_LOOP_ACTING_H

#include <string.h>
#include "daemon/loop/afters.h"
#include "daemon/loop/attempts.h"
#include "daemon/loop/control.h"
#include "daemon/loop/images.h"
#include "daemon/loop/pass.h"
#include "daemon/loop/postponed.h"
#include "daemon/loop/session.h"
#include "daemon/loop/sweep.h"
#include "daemon/loop/tally.h"
#include "daemon/state/attempt.h"
#include "daemon/state/cluster.h"

struct control {
    struct control_options o;
    struct cluster cluster;
    struct commits commits;
    struct session session;
    struct attempts attempts;
    struct asks *asks;
    struct removals *removals;
    struct servings *servings;
    struct sweep *sweep; /* NULL if no data has a time to live */
    struct disk_tally *tally;
    struct sched_pass *pass;
    struct images images;
    struct afters afters;
    struct postponed postponed;
    int64_t next_expect_ms, next_forget_ms;
    bool paused, ticked;
    bool blocked; /* at this tick the store cannot write */
    int64_t n_passes;
    bool pass_wanted;
    /* no pass runs before this time, so that passes take at most a fifth of the loop's time */
    int64_t next_pass_ms;
    int64_t tick_due_ms, busy_ms; /* time of the next tick; loop_busy_ms at the last tick */
    /* bytes of logs were not kept, so the nodes must be asked for these bytes again */
    bool logs_deferred;
    struct loop_timer *tick, *sched;
};

/* Asks for a scheduling pass, as soon as one may run. */
static inline void want_pass(void *arg)
{
    struct control *c = arg;
    if (c->pass_wanted) return;
    c->pass_wanted = true;
    const int64_t in_ms = c->next_pass_ms - loop_clock_ms(c->o.loop);
    loop_timer_set(c->sched, in_ms > 0 ? in_ms : 0);
}

/* Applies the reports of the job that have waited, now that no order of the job waits for the
 * disk (control_link.c). */
void control_link_settled(void *arg, struct job *j);

/* Tells whether n is the instance of the node to which part p was assigned. If a part is stored
 * without an instance, only the names are compared. */
static inline bool is_holder(const struct node *n, const struct attempt_part *p)
{
    return !strcmp(p->place.node, n->name) &&
           (!*p->place.instance || !strcmp(p->place.instance, n->instance));
}

#endif
