/* report.h: build/paper/REPORT.md: claims, findings, their kinds, and the results; numbers for the
 * plots. The report itself decides each result: a section states only the claims. */
#ifndef SEQD_PAPER_REPORT_H
#define SEQD_PAPER_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "tests/paper/evidence.h"

struct row {
    const char *what;
    const char *source; /* source of the claim; NULL: a promise of this engine */
    double claimed;     /* 0: `claimed_text` alone, or no number was published */
    double tolerance;   /* from the precision of the claim: half a unit of its last digit */
    bool above;         /* the claim is "more than `claimed`" */
    bool most;          /* it is "at most `claimed`" */
    const char *claimed_text;
    const char *differs; /* why the paper's words are known not to hold although the number is as
                          * it must be; NULL: they hold */
    const char *note;
};

void report_open(const char *dir);
void report_section(const char *title, const char *text);
/* Reports a case that this version refuses to run, in its own words: no row, and no number in its
 * place. */
void report_absent(const char *what, const char *why);
/* A published claim for which there is neither a run nor an account. */
void report_unmeasured(const char *what, const char *source, const char *claimed, const char *why);
/* The rows of one table; between them nothing else. */
void report_table(void);

/* Counted: each rank must send want[rank] bytes, forward and backward, exactly. */
void report_bytes(const struct row *, const struct evidence *e,
                  int64_t want[EVIDENCE_RANKS][EVIDENCE_PHASES]);
/* Counted or planned, as the evidence is, which is of one kind: a number made of the values of n
 * evidences, against row.claimed. `of` NULL: the value of the first. */
void report_number(const struct row *, struct evidence *const e[], int n,
                   double (*of)(const int64_t v[], int n));
/* Account. fitted: the constants fitted to published numbers that are in it; NULL: none. */
void report_account(const struct row *, double ours, const char *fitted);
/* Compared: the value of e against bytes that a description of another system comes to. */
void report_compared(const struct row *, const struct evidence *e, int64_t theirs);

void report_picture(const char *name, const char *caption); /* name.png, if it can be drawn */
FILE *report_data(const char *name);                        /* build/paper/name.dat */
/* Returns how many rows are broken: a count or a plan is wrong. */
int report_close(void);

/* The sections. */
void paper_rsa(void);    /* tables and claims of 2105.13120 */
void paper_ring(void);   /* its bytes, counted */
void paper_memory(void); /* plan == high-water of real trainings */
void paper_lasp(void);   /* 2404.02882 */
void paper_fits(void);   /* the longest sequences */
void paper_dsp(void);    /* 2403.10266 */
void paper_rest(void);   /* claims that are neither run nor accounted for */

/* One attention layer of the product on P ranks, bidirectional, forward and backward (ring.c). */
struct layer {
    int strategy, form; /* enum strategy_id, form_id */
    int P;
    int64_t T, H, Hk, D;
    int u; /* usp: ranks of a group */
};
struct evidence *count_attention(const struct layer *l);
/* Two transformer blocks in tensor parallelism with sequence parallelism, forward (tensor.c): S
 * rows of H D columns. */
struct evidence *count_tensor_blocks(int P, int64_t S, int64_t H, int64_t D);

#endif
