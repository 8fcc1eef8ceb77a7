/* agent.h: seqw, the agent of one node. It keeps a session with seqd, starts and adopts gangs, and
 * relays their records and logs. api/wire.h has the session's rules, api/core/gang_start.h the
 * files of an attempt's directory. */
#ifndef SEQD_AGENT_AGENT_H
#define SEQD_AGENT_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/rank.h"
#include "worker/agent/allocation.h"
#include "worker/agent/prepared.h"

struct agent_options {
    const char *connect;    /* seqd's address, as for rpc_dial or rpc_dial_tls */
    const char *token_file; /* token to join over TLS with; NULL: none */
    const char *name;       /* name of this node */
    const char *address;    /* address at which ranks of other nodes reach this node's; NULL: found
                             * by the route to seqd */
    const char *state;      /* directory */
    const char *bin;        /* directory of seqgang and seqrank */
    const char *roots[RANK_ROOTS];
    int n_roots;
    const char *writable[RANK_ROOTS]; /* roots for published results */
    int n_writable;
    int n_slots;                 /* -1, only with allocation: one for each GPU, or without GPUs for
                                  * each core */
    const char *nvml;            /* name of the NVML library; NULL: this node offers no GPUs */
    int look_ms;                 /* ms from one sample of the GPUs to the next */
    struct prepared_policy keep; /* limits on prepared data */
    const struct allocation *allocation; /* share of the machine that an engine gave; NULL: the
                                          * whole machine */
    const char *pins;  /* cores to bind ranks to, as for pins_open; NULL: ranks are not bound */
    bool emulated;     /* tests: takes jobs of the device "emulated" */
    int64_t orphan_ms; /* ms without a session until this agent stops all gangs and ends; a gang
                        * without an agent stops after this time, too; 0: never */
    int64_t end_s, margin_s; /* see LEAVING (api/wire.h); end_s 0: not known */
};

struct agent;
/* Adopts the attempts in the state directory, and dials. Signals must be blocked before the call
 * (loop_signals). */
struct agent *agent_create(struct loop *l, const struct agent_options *o, struct err *e);
/* Asks the jobs of this node to save and leave, and begins no more jobs. Stops the loop as soon as
 * no job is left. Calls agent_quit after grace_ms. Calls it at once if grace_ms is 0, if seqd's
 * version has no LEAVING, or if agent_leave is called again. */
void agent_leave(struct agent *a, int64_t grace_ms, const char *why);
/* Stops all gangs. The loop is stopped when they are gone and seqd has been told, or some seconds
 * later if seqd does not answer. */
void agent_quit(struct agent *a, const char *why);
void agent_reap(struct agent *a);                             /* called after SIGCHLD */
bool agent_connected(const struct agent *a, int *n_attempts); /* also sets *n_attempts */
/* Sets orphan_ms. A gang that runs keeps the value with which it started. */
void agent_set_orphan(struct agent *a, int64_t orphan_ms);
void agent_set_end(struct agent *a, int64_t end_s, int64_t margin_s);
void agent_destroy(struct agent *a); /* gangs that still run are left running */

#endif
