/* evidence.h: numbers that the product itself gave, and how. The type is complete in evidence.c
 * alone, and every maker below runs product code or its planner: a row of kind counted or planned
 * takes its number and its kind from here, so neither can be written down by a section. */
#ifndef SEQD_PAPER_EVIDENCE_H
#define SEQD_PAPER_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

enum kind {
    COUNTED,  /* product code ran; its ledger or its memory was read */
    PLANNED,  /* the product's planner gave the number */
    ACCOUNT,  /* a formula of the report, or one with fitted constants */
    COMPARED, /* against another published description; theirs was not run */
    KIND_N
};

struct evidence;
struct ranks;
struct engine_run;
struct job_spec;
struct grid_data;
struct label_graph;
struct err;

enum { EVIDENCE_RANKS = 8, EVIDENCE_PHASES = 2 }; /* forward, backward */
enum { EVIDENCE_LEAST = 1024 };                   /* tokens: a rank of 64 has some */

/* COUNTED. Runs body(g, rank, arg) on P ranks (tests/lib/ranks.h) over the product's transport.
 * Each rank calls evidence_phase after its forward and, where it has one, after its backward: the
 * counts of the ledger since the phase before are that phase's. */
struct evidence *evidence_ledger(int P, int64_t segment_size,
                                 void (*body)(struct ranks *, int, void *), void *arg);
void evidence_phase(struct ranks *g, int rank);
/* COUNTED. A training: the steps, ranks and source of r. Its number: the bytes that the model's own
 * code placed on rank 0. It is not ok where a step's ledger differs from the plan, where the heap
 * grew after the first step, or where more pages were touched than planned. */
struct evidence *evidence_training(struct engine_run *r, struct job_spec *spec);

/* COUNTED. Bytes that all ranks of a training send in its first step for what its grid_way
 * exchanges (switches, rows to heads and back, rows gathered and scattered), by the ledger. It is
 * not ok where the ledger of a step differs from the plan. */
struct evidence *evidence_steps(struct grid_data *d, const struct job_spec *spec, int P);
/* COUNTED. Switches in such a step, forward and backward: a message of rank 0 to each other
 * rank. */
struct evidence *evidence_step_switches(struct grid_data *d, const struct job_spec *spec, int P);

/* PLANNED. Bytes that plan_make gives rank 0. NULL: the spec is refused, as *e says. */
struct evidence *evidence_plan(struct job_spec *spec, struct err *e);
/* PLANNED. The most tokens of a sequence of which plan_make gives rank 0 at most `limit` bytes, by
 * search from EVIDENCE_LEAST on. describe fills the spec of a job on S tokens. It is not ok where a
 * length is refused. */
struct evidence *evidence_longest(void (*describe)(struct job_spec *spec, int64_t S),
                                  int64_t limit);
/* PLANNED. The switches of the labelling that moves the least. */
struct evidence *evidence_switches(const struct label_graph *g);

void evidence_free(struct evidence *e);
enum kind evidence_kind(const struct evidence *e);
/* Returns the fault of the run; NULL: it was good. */
const char *evidence_fault(const struct evidence *e);
/* Returns the number; for a ledger it is the bytes that all ranks sent forward. */
int64_t evidence_value(const struct evidence *e);
/* For a ledger: return its ranks, and the bytes that a rank sent in a phase. */
int evidence_n_ranks(const struct evidence *e);
int64_t evidence_sent(const struct evidence *e, int rank, int phase);
/* For a training: return the plan's number for the same bytes, and further observations in
 * words. */
int64_t evidence_planned(const struct evidence *e);
const char *evidence_note(const struct evidence *e);

#endif
