/* sim.h: a whole cluster in one thread, which is determined by one seed. seqd and its agents are
 * the product's code, and the layers beneath them are simulated.
 *
 *   world.c    the clock, the choice of the process that runs next, and that of the next fault
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
extern bool sim_tight; /* ranks take 1 to 3 times as much memory as a node has for each slot */
extern bool sim_calm;  /* the faults are over, so everything must come to its end */
extern bool sim_tls;   /* nodes join with tokens and have certificates */
uint64_t sim_random(void);
int sim_below(int n);             /* 0 .. n - 1 */
bool sim_chance(int per_million); /* never when calm */
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
void disk_reset(void);     /* an empty disk */
void disk_cut(bool power); /* closes every open file; power: unsynced writes may be lost */

/* ---- net.c ----------------------------------------------------------------------------------- */

void net_reset(void);
void net_turn(struct loop *l); /* delivers the messages that have arrived at the process of l */
/* Cuts a node off from seqd until until_ms: the messages from it (up), the messages to it (down),
 * or both. */
void net_cut(int node, bool up, bool down, int64_t until_ms);
void net_break(int node); /* breaks its session, which both ends notice later */
void net_mend(void);
int64_t net_opened(void); /* streams that were ever opened */

/* ---- seqd.c ---------------------------------------------------------------------------------- */

void seqd_reset(void);
bool seqd_up(void);
void seqd_turn(void);              /* also starts seqd when it is time */
void seqd_kill(bool power);        /* kill -9; power: the disk also loses unsynced writes */
void seqd_pause(int64_t until_ms); /* SIGSTOP */
int64_t seqd_paused(void);         /* time until which it is stopped, or 0 */
struct loop *seqd_loop(void);
struct routes *seqd_routes(void);
int32_t seqd_reserved(const char *node);
const char *seqd_reason(int64_t job); /* the reason that the job waits */
int64_t seqd_log_size(int64_t job, int64_t epoch, int rank);
int seqd_starts(void);
int64_t seqd_full_ms(void);   /* when its disk was last known to be full */
void seqd_quit(void);         /* an orderly end */
const char *seqd_token(void); /* the file with the join token of all nodes */

/* ---- node.c ---------------------------------------------------------------------------------- */

void nodes_reset(int n_gpus);
const char *node_name(int node);
int node_slots(int node);
int64_t node_memory(int node);
int nodes_gpus(void); /* GPUs of all nodes */
void nodes_turn(void);
void node_kill(int node); /* kill -9 of its agent */
/* SIGTERM to its agent, and a second one if the agent is leaving already */
void node_quit(int node);
void node_forget(int node); /* its agent loses its certificate, starts again and joins */
void node_pause(int node, int64_t until_ms);
/* its agent and gangs end at once, and come back at that time */
void node_leave(int node, int64_t until_ms);
void node_gpu(int node, int gpu, int health, int64_t until_ms);
bool node_runs(int node);
int64_t node_paused(int node);
struct loop *node_loop(int node);
void node_reap(int node); /* SIGCHLD */
int node_now(void);       /* the node whose turn it is, or -1 */
void node_enter(int node);
void nodes_end(void);

/* ---- gang.c ---------------------------------------------------------------------------------- */

void gangs_reset(void);
void gangs_turn(void);
void gangs_end(void);
void gang_kill_any(int node); /* kills one of its gangs, and thereby the gang's ranks */
void gang_kill_all(int node);
void gang_pause_any(int node, int64_t until_ms);
int gangs_alive(void);
/* Returns the bytes that the node's gangs take now. The callback of_rank returns the bytes of a
 * rank of a job. */
int64_t gang_memory(int node, int64_t of_rank(int64_t job));
int gang_ranks(int node); /* ranks that run there now and hold slots */
bool gang_uses_gpu(int node, const char *uuid);
/* The truth about attempts, for the checker. */
bool gang_done(int64_t job, int64_t epoch); /* every rank of the attempt exited with 0 */
bool gang_said(int64_t nonce, int64_t job, int64_t epoch, int type);
/* the next one, or 0 if there is none */
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
void clients_cut(void); /* seqd has gone, and with it the open requests */
int clients_jobs(void);
void clients_probe(int i); /* sends the i-th kind of request: submit, cancel, show, list, ... */

/* ---- check.c --------------------------------------------------------------------------------- */

void check_reset(void);
void check_rows(void);  /* takes the rows that were committed since the last look */
void check_again(void); /* checks, after a start of seqd, that earlier rows still exist */
void check_truth(void); /* compares slots and GPUs with running gangs */
bool check_ended(void); /* every job is final */
void check_at_end(void);
void check_tainted(int64_t job); /* the liar has, or had, a part of the job */
bool check_waits_for_liar(int64_t job);
/* Take the replies to clients. */
void check_submitted(const char *key, int64_t job);
void check_cancelled(int64_t job);
void check_cordoned(int node, bool is); /* is: cordoned; if false, not cordoned or not known */
void check_shown(const char *doc);
void check_page(int64_t job, const char *page, bool metrics);
/* Adds the jobs by their states to count, and returns the number of rows and of logs that a full
 * disk has cut. */
void check_report(int count[], int64_t *rows, int64_t *cut_logs);
void check_close(void);                /* call it before seqd opens or closes its files */
int64_t check_count(const char *rows); /* number of rows of a table */

/* ---- still.c --------------------------------------------------------------------------------- */

#define STILL_MS      130000 /* more than twice the longest wait between two tries ... */
#define STILL_JOIN_MS 20000  /* ... once every node has joined again */
void still_begin(void);      /* counts everything that may grow ... */
void still_end(void);        /* ... and checks that nothing has grown */

#endif
