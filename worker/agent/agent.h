/* agent.h: seqw, the agent of one node. It keeps a session with seqd, starts and adopts gangs, and
 * relays their records and logs. api/wire.h has the rules of the session. api/core/gang_start.h
 * describes the files of an attempt's directory. */
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
    const char *connect;    /* seqd's address, in the form that rpc_dial or rpc_dial_tls accepts */
    const char *token_file; /* file with a token to join over TLS; NULL if the options name no
                             * such file */
    const char *key_file;   /* file of --join-key, instead of token_file; NULL if there is none */
    const char *name;       /* name of this node */
    const char *address;    /* address at which ranks of other nodes reach the ranks of this node;
                             * if it is NULL, this machine's address on the route to seqd is
                             * used */
    const char *state;      /* directory */
    const char *shared;     /* directory that other nodes have, too (shared.h); NULL: none */
    const char *bin;        /* directory of seqgang and seqrank */
    const char *roots[RANK_ROOTS];
    int n_roots;
    const char *writable[RANK_ROOTS]; /* roots for published results */
    int n_writable;
    int n_slots;                 /* -1 means one slot for each GPU, or one for each core if there
                                  * are no GPUs; -1 is allowed only with an allocation */
    const char *nvml;            /* name of the NVML library; if it is NULL, this node offers
                                  * no GPUs */
    int still_ms;                /* limit of attempt_watch */
    int look_ms;                 /* time in ms from one sample of the GPUs to the next */
    struct prepared_policy keep; /* limits on prepared data */
    const struct allocation *allocation; /* share of the machine that an engine such as Slurm gave
                                          * to this agent; NULL means the whole machine */
    const char *pins;  /* argument `apart` of pins_open, which finds the cores for ranks; NULL
                        * means that ranks are not bound to cores */
    int sandbox;       /* enum sandbox_mode: for the ranks of this node */
    bool emulated;     /* for tests: accepts jobs of the device "emulated" */
    int64_t orphan_ms; /* time in ms. An agent without a session stops all gangs and ends after
                        * this time. A gang without an agent stops after this time. 0 means
                        * never */
    int64_t end_s, margin_s; /* values for the members of the message LEAVING (api/wire.h) that
                              * have the same names; end_s is 0 if the time of the end is not
                              * known */
};

struct agent;
/* Adopts the attempts in the state directory, and connects to seqd. Signals must be blocked before
 * the call (loop_signals). */
struct agent *agent_create(struct loop *l, const struct agent_options *o, struct err *e);
/* Asks the jobs of this node to save and leave, and begins no more jobs. Stops the loop as
 * soon as no job is left. If jobs are still running after grace_ms, calls agent_quit.
 * agent_quit is called immediately if grace_ms is 0, if seqd's version has no LEAVING, or if
 * agent_leave is called a second time. */
void agent_leave(struct agent *a, int64_t grace_ms, const char *why);
/* Stops all gangs. The loop stops when the gangs are gone and seqd has confirmed this. If seqd
 * does not answer, the loop stops some seconds after the gangs are gone. */
void agent_quit(struct agent *a, const char *why);
void agent_reap(struct agent *a);                             /* called after SIGCHLD */
bool agent_connected(const struct agent *a, int *n_attempts); /* returns true if a session is
                                                               * up; also sets *n_attempts to
                                                               * the number of attempts */
/* Sets orphan_ms. A gang that is running keeps the value with which it started. */
void agent_set_orphan(struct agent *a, int64_t orphan_ms);
void agent_set_end(struct agent *a, int64_t end_s, int64_t margin_s);
/* Returns the exit status: that of the QUIT that ended the agent, or 1 if an agent with a join key
 * was without seqd for orphan_ms, or 0. */
int agent_code(const struct agent *a);
void agent_destroy(struct agent *a); /* gangs that are still running continue to run */

#endif
