/* dev.h: the one local node of `seqd --dev`. Its seqw runs in a session of its own, so that Ctrl-C
 * reaches seqd alone. seqd then sends seqw MSG_QUIT, at which seqw stops every gang and ends. seqd
 * sends SIGTERM, at which the jobs would save first, only to a seqw too old for MSG_QUIT. A seqw
 * that outlived a killed seqd is adopted. A seqw that dies is started again. The wait before that
 * doubles each time, up to a minute, and is short again after a seqw that ran for a minute.
 * Loop thread only. */
#ifndef SEQD_DAEMON_RUN_DEV_H
#define SEQD_DAEMON_RUN_DEV_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/option.h"

struct dev;

struct dev_options {
    const char *state_dir;    /* seqw's own directory is <state_dir>/node */
    const char *node_address; /* address that seqw dials */
    int n_slots;
    bool no_pin;              /* seqw leaves it to the system which cores ranks run on */
    const char *const *roots; /* directories jobs may read */
    int n_roots;
    const struct option_list *writable; /* directories beneath which jobs may publish */
    /* Tells the node of that name to quit. Returns the ABI of its session; 0: it has none now. */
    uint32_t (*quit)(void *arg, const char *node);
    /* The agent has ended by itself, and is started again. why: the cause. */
    void (*died)(void *arg, const char *why);
    void *arg; /* argument of quit and died */
};

/* Copies o. fails when seqw is not beside this program, or cannot be started. */
struct dev *dev_start(struct loop *l, const struct dev_options *o, struct err *e);
/* Asks seqw to stop all gangs and exit. gone is called after its exit, or at once
 * if it does not run. SIGKILL follows after DEV_STOP_MS. */
#define DEV_STOP_MS 20000
void dev_stop(struct dev *d, loop_call *gone, void *arg);
void dev_destroy(struct dev *d); /* NULL allowed */

#endif
