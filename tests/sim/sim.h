/* sim.h: simulates a whole cluster in one thread. A seed determines the whole run. seqd and its
 * agents are the product's code, and the layers beneath them are simulated.
 *
 *   world.c    the clock, and the choice of the process that runs next and of the next fault
 *   fiber.c    the store's threads as fibers, and the system's clocks
 *   disk.c     the files of SQLite, with lost power, a full disk, errors and short writes (a VFS)
 *   net.c      api/rpc.h, with sessions that are slow, cut or half open
 *   http.c     daemon/http/http.h, with clients that submit, cancel, restart, read and give up
 *   seqd.c     a life of seqd, with control, link, store and routes as daemon/main.c joins them
 *   node.c     a life of an agent, which is worker/agent/agent.c with its GPUs
 *   gang.c     gangs and ranks, by the rules of api/core/gang_start.h and rank.h
 *   truth.c    the acts of gangs, and their live processes
 *   liar.c     a node that sends false reports
 *   oom.c      allocations that fail, one after the other
 *   still.c    a check that an idle cluster does not grow
 *   check.c    the rules, checked by a small model of jobs on committed rows and on replies
 *
 * A seed repeats its run exactly, because no real time, no thread and no real random number is
 * used. */
#ifndef SEQD_TESTS_SIM_SIM_H
#define SEQD_TESTS_SIM_SIM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/gpu.h"
#include "api/core/loop.h"
#include "api/wire.h"

enum {
    SIM_NODES = 5, /* the last one is the liar */
    SIM_LIAR = SIM_NODES - 1,
    SIM_GPUS = 4,
    SIM_JOBS = 512,  /* jobs of one seed */
    SIM_GANGS = 2048 /* gangs of one seed */
};

/* ---- world.c --------------------------------------------------------------------------------- */

extern int64_t sim_now, sim_utc; /* milliseconds; sim_utc is the wall clock */
extern bool sim_tight; /* the memory that a rank needs is 1 to 3 times the memory that its node has
                        * for each slot */
extern bool sim_calm;  /* no more faults occur, so all jobs must end */
extern bool sim_tls;   /* nodes join with tokens and have certificates */
uint64_t sim_random(void);
int sim_below(int n);             /* 0 .. n - 1 */
bool sim_chance(int per_million); /* always false when the faults are over */
/* Notes an event of the run. job is 0 if the event is of no job. The notes are shown after a
 * violation. */
void sim_note(int64_t job, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reports that a rule is broken. rule is its short name. */
void sim_broken(const char *rule, int64_t job, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool sim_is_broken(void);
const char *sim_dir(void); /* the seed's directory */

/* ---- fiber.c --------------------------------------------------------------------------------- */

void fibers_turn(bool all); /* runs the ready fibers, or some of them */
void fiber_yield(void);     /* lets other fibers run; has no effect outside of a fiber */
bool fiber_inside(void);
void fibers_drop(void);    /* forgets the fibers of seqd, whatever they are doing */
int fiber_exit_code(void); /* code of _exit in a fiber since the last drop, or -1 */

/* ---- disk.c ---------------------------------------------------------------------------------- */

extern struct disk_faults {
    int64_t room; /* bytes by which files may still grow, or -1 for no limit */
    int fail_in;  /* the n-th call from now on fails; 0 for none */
    bool no_sync; /* the next sync fails */
    bool shorter; /* the call that fails has written a part */
    bool aside;   /* the checker makes the calls, and none fails */
} disk;
void disk_install(void);
void disk_reset(void); /* an empty disk */
/* closes every open file; if power is set, unsynced writes may be lost */
void disk_cut(bool power);

/* ---- net.c ----------------------------------------------------------------------------------- */

void net_reset(void);
void net_turn(struct loop *l); /* delivers the messages that have arrived at the process of l */
/* Lets no message pass from the node to seqd (up), from seqd to the node (down), or both, until
 * the time until_ms. */
void net_cut(int node, bool up, bool down, int64_t until_ms);
void net_break(int node); /* breaks the node's session; both ends notice this later */
void net_mend(void);
int64_t net_opened(void); /* streams that were ever opened */

/* ---- seqd.c ---------------------------------------------------------------------------------- */

void seqd_reset(void);
bool seqd_up(void);
void seqd_turn(void); /* also starts seqd when it is time */
/* kill -9; if power is set, the disk also loses unsynced writes */
void seqd_kill(bool power);
void seqd_pause(int64_t until_ms); /* SIGSTOP */
int64_t seqd_paused(void);         /* time until which it is stopped, or 0 */
struct loop *seqd_loop(void);
struct routes *seqd_routes(void);
int32_t seqd_reserved(const char *node);
const char *seqd_reason(int64_t job); /* the reason that the job waits */
int64_t seqd_log_size(int64_t job, int64_t epoch, int rank);
int seqd_starts(void);
int64_t seqd_full_ms(void);   /* when its disk was last known to be full */
void seqd_quit(void);         /* ends seqd in an orderly way */
const char *seqd_token(void); /* the file with the join token of all nodes */

/* ---- node.c ---------------------------------------------------------------------------------- */

void nodes_reset(int n_gpus);
const char *node_name(int node);
int node_slots(int node);
int64_t node_memory(int node);
int nodes_gpus(void); /* GPUs of all nodes */
void nodes_turn(void);
void node_kill(int node); /* kill -9 of its agent */
/* sends SIGTERM to the node's agent, and a second SIGTERM if the agent is already leaving */
void node_quit(int node);
void node_forget(int node); /* the node's agent loses its certificate, starts again and joins */
void node_pause(int node, int64_t until_ms);
/* the node's agent and gangs end at once; the agent starts again at until_ms */
void node_leave(int node, int64_t until_ms);
void node_gpu(int node, int gpu, int health, int64_t until_ms);
bool node_runs(int node);
int64_t node_paused(int node);
struct loop *node_loop(int node);
void node_reap(int node); /* SIGCHLD */
int node_now(void);       /* the node whose code is running, or -1 */
void node_enter(int node);
void nodes_end(void);

/* ---- gang.c ---------------------------------------------------------------------------------- */

void gangs_reset(void);
void gangs_turn(void);
void gangs_end(void);
void gang_kill_any(int node); /* kills one of the node's gangs, and thereby the gang's ranks */
void gang_kill_all(int node);
void gang_pause_any(int node, int64_t until_ms);
int gangs_alive(void);
/* Returns the number of bytes that the node's gangs use now. The callback of_rank returns the
 * bytes of one rank of a job. */
int64_t gang_memory(int node, int64_t of_rank(int64_t job));
int gang_ranks(int node); /* the number of ranks that run on the node now and hold slots */
bool gang_uses_gpu(int node, const char *uuid);
/* The truth about attempts, for the checker. */
bool gang_done(int64_t job, int64_t epoch); /* every rank of the attempt exited with 0 */
bool gang_said(int64_t nonce, int64_t job, int64_t epoch, int type);
/* returns the next report of the gang, or 0 if there is none */
int64_t gang_next_said(int64_t nonce, int64_t job, int64_t epoch);
int64_t gang_log_size(int64_t job, int64_t epoch, int rank);
int gang_faults(int64_t job); /* failures that are the job's own */
bool gang_part_alive(int64_t job, int64_t epoch, const char *node);

/* ---- liar.c ---------------------------------------------------------------------------------- */

void liar_reset(void);
void liar_turn(void);
void liar_stop(void);

/* ---- http.c ---------------------------------------------------------------------------------- */

void clients_reset(void);
void clients_turn(bool submit);
void clients_cut(void); /* seqd has ended, so all open requests are lost */
int clients_jobs(void);
void clients_probe(int i); /* sends the i-th kind of request: submit, cancel, show, list, ... */

/* ---- check.c --------------------------------------------------------------------------------- */

void check_reset(void);
void check_rows(void);  /* reads the rows that were committed since the last call */
void check_again(void); /* checks, after a start of seqd, that earlier rows still exist */
void check_truth(void); /* compares slots and GPUs with running gangs */
bool check_ended(void); /* every job is final */
void check_at_end(void);
void check_tainted(int64_t job); /* notes that the node of liar.c has, or had, a part of the job */
bool check_waits_for_liar(int64_t job);
/* Check the replies that clients get. */
void check_submitted(const char *key, int64_t job);
void check_cancelled(int64_t job);
/* if `is` is true, the node is cordoned; if it is false, the node is not cordoned or its state is
 * unknown */
void check_cordoned(int node, bool is);
void check_shown(const char *doc);
void check_page(int64_t job, const char *page, bool metrics);
/* Adds the number of jobs in each state to count[]. *rows becomes the number of rows, and
 * *cut_logs the number of logs that a full disk has shortened. */
void check_report(int count[], int64_t *rows, int64_t *cut_logs);
void check_close(void);                /* call it before seqd opens or closes its files */
int64_t check_count(const char *rows); /* number of rows of a table */

/* ---- still.c --------------------------------------------------------------------------------- */

#define STILL_MS 130000 /* more than twice the longest wait between two tries */
/* this long after every node has joined again, still_begin is called */
#define STILL_JOIN_MS 20000
void still_begin(void); /* counts everything that may grow */
void still_end(void);   /* checks that nothing has grown since still_begin */

#endif
