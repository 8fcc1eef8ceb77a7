/* evidence.h: numbers that the product itself has produced, and how it produced them. The type is
 * complete only in evidence.c, and every maker below runs product code or its planner. A row of
 * the report whose kind is counted or planned gets its number and its kind from here, so that a
 * section of the report cannot set them itself. */
#ifndef SEQD_PAPER_EVIDENCE_H
#define SEQD_PAPER_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

enum kind {
    COUNTED,  /* product code was run, and its ledger or its memory was read */
    PLANNED,  /* the product's planner gave the number */
    ACCOUNT,  /* a formula of the report, or one with fitted constants */
    COMPARED, /* compared with the published description of a system that was not run */
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
enum { EVIDENCE_LEAST = 1024 };                   /* tokens, so that each of 64 ranks has some */

/* Makes evidence of kind COUNTED. Runs body(g, rank, arg) on P ranks (tests/lib/ranks.h) over the
 * product's transport. Each rank calls evidence_phase after its forward and, if it has one, after
 * its backward. The counts of the ledger since the previous phase belong to that phase. */
struct evidence *evidence_ledger(int P, int64_t segment_size,
                                 void (*body)(struct ranks *, int, void *), void *arg);
void evidence_phase(struct ranks *g, int rank);
/* Makes evidence of kind COUNTED from a training, with the steps, ranks and source of r. Its
 * number is the bytes that the model's code placed on rank 0. It has a fault if a step's ledger
 * differs from the plan, if the heap grew after the first step, or if more pages were touched than
 * planned. */
struct evidence *evidence_training(struct engine_run *r, struct job_spec *spec);

/* Makes evidence of kind COUNTED. Its number is read from the ledger. It is the bytes that all
 * ranks of a training send in its first step for the exchanges of its grid_way. These are
 * switches, exchanges of rows for heads and back, or all-gathers and reduce-scatters of rows. It
 * has a fault if the ledger of a step differs from the plan. */
struct evidence *evidence_steps(struct grid_data *d, const struct job_spec *spec, int P);
/* Makes evidence of kind COUNTED. Its number is the number of switches in a step of
 * evidence_steps, forward and backward. In a switch, rank 0 sends one message to each of the other
 * ranks. */
struct evidence *evidence_step_switches(struct grid_data *d, const struct job_spec *spec, int P);

/* Makes evidence of kind PLANNED. Its number is the bytes that plan_make gives rank 0. Returns
 * NULL, with the reason in *e, if the spec is refused. */
struct evidence *evidence_plan(struct job_spec *spec, struct err *e);
/* Makes evidence of kind PLANNED. Its number is the largest number of tokens of a sequence for
 * which plan_make gives rank 0 at most `limit` bytes. It is found by a search that begins at
 * EVIDENCE_LEAST. The function `describe` fills in the spec of a job on S tokens. The evidence has
 * a fault if a length is refused. */
struct evidence *evidence_longest(void (*describe)(struct job_spec *spec, int64_t S),
                                  int64_t limit);
/* Makes evidence of kind PLANNED. Its number is the number of switches in the labelling that sends
 * the smallest number of bytes. */
struct evidence *evidence_switches(const struct label_graph *g);

void evidence_free(struct evidence *e);
enum kind evidence_kind(const struct evidence *e);
/* Returns the fault of the run, or NULL if it has none. */
const char *evidence_fault(const struct evidence *e);
/* Returns the number. For a ledger it is the bytes that all ranks sent forward. */
int64_t evidence_value(const struct evidence *e);
/* For a ledger, return the number of its ranks, and the bytes that a rank sent in a phase. */
int evidence_n_ranks(const struct evidence *e);
int64_t evidence_sent(const struct evidence *e, int rank, int phase);
/* For a training, return the number of bytes that the plan has for rank 0, and further
 * observations in words. */
int64_t evidence_planned(const struct evidence *e);
const char *evidence_note(const struct evidence *e);

#endif
