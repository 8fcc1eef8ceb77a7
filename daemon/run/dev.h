/* dev.h: the one local node of `seqd --dev`. Its seqw runs in a separate terminal session, so that
 * Ctrl-C signals only seqd. seqd then sends MSG_QUIT to seqw, which stops every gang and exits. If
 * seqw is too old for MSG_QUIT, seqd sends it SIGTERM instead, which makes the jobs save first. A
 * seqw that has outlived a killed seqd is adopted. A seqw that dies is started again. The wait
 * before each new start is twice as long as the wait before, and at most a minute. If a seqw has
 * run for a minute, the next wait is short again. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_RUN_DEV_H
#define SEQD_DAEMON_RUN_DEV_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/option.h"

struct dev;

struct dev_options {
    const char *state_dir;    /* seqw uses the directory <state_dir>/node */
    const char *node_address; /* address that seqw dials */
    int n_slots;
    bool no_pin;              /* seqw lets the system choose the cores of ranks */
    const char *sandbox;      /* seqw's --sandbox; "" is its default */
    const char *const *roots; /* directories that jobs may read */
    int n_roots;
    const struct option_list *writable; /* directories in which jobs may publish results */
    /* Tells the node of that name to quit. Returns the ABI of its session, or 0 if it has none
     * now. */
    uint32_t (*quit)(void *arg, const char *node);
    /* Called when seqw has ended by itself. seqw is then started again. `why` tells the cause. */
    void (*died)(void *arg, const char *why);
    void *arg; /* argument of quit and died */
};

/* Copies o. Fails if there is no seqw in the directory of this program, or if seqw cannot be
 * started. */
struct dev *dev_start(struct loop *l, const struct dev_options *o, struct err *e);
/* Asks seqw to stop all gangs and to exit. `gone` is called after seqw's exit, or at once if seqw
 * does not run. seqw is killed with SIGKILL after DEV_STOP_MS. */
#define DEV_STOP_MS 20000
void dev_stop(struct dev *d, loop_call *gone, void *arg);
void dev_destroy(struct dev *d); /* d may be NULL */

#endif
