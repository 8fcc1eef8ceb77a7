/* report.h: makes build/paper/REPORT.md, which has claims of papers, our findings with their
 * kinds, and results. Also writes the numbers for the plots. A section states only the claims. The
 * functions below compare each claim with the finding and decide the result. */
#ifndef SEQD_PAPER_REPORT_H
#define SEQD_PAPER_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "tests/paper/evidence.h"

struct row {
    const char *what;
    const char *source; /* source of the claim; NULL for a promise of this engine */
    double claimed;     /* 0 if there is only `claimed_text`, or no number was published */
    double tolerance;   /* half a unit of the claim's last digit */
    bool above;         /* the claim is "more than `claimed`" */
    bool most;          /* the claim is "at most `claimed`" */
    const char *claimed_text;
    const char *differs; /* if our number is correct and differs from the paper's words, the reason
                          * why the words are wrong; otherwise NULL */
    const char *note;
};

void report_open(const char *dir);
void report_section(const char *title, const char *text);
/* Reports a case that this version refuses to run, in the words of its error, without a row and
 * without a number. */
void report_absent(const char *what, const char *why);
/* Reports a published claim for which this project has neither a run nor an account. */
void report_unmeasured(const char *what, const char *source, const char *claimed, const char *why);
/* Begins a table, whose rows are reported next. Between two rows of a table, no other function of
 * the report may be called. */
void report_table(void);

/* Reports a count: each rank must send exactly want[rank] bytes, forward and backward. */
void report_bytes(const struct row *, const struct evidence *e,
                  int64_t want[EVIDENCE_RANKS][EVIDENCE_PHASES]);
/* Reports a number that `of` computes from the values of n evidences, and compares it with
 * row.claimed. The evidences are all of kind COUNTED or all of kind PLANNED. If `of` is NULL, the
 * number is the value of the first evidence. */
void report_number(const struct row *, struct evidence *const e[], int n,
                   double (*of)(const int64_t v[], int n));
/* Reports an account. The parameter `fitted` names the constants of the account that were fitted
 * to published numbers, or is NULL. */
void report_account(const struct row *, double ours, const char *fitted);
/* Compares the value of e with the bytes that follow from a description of another system, and
 * reports the comparison. */
void report_compared(const struct row *, const struct evidence *e, int64_t theirs);

/* shows name.png, if it can be drawn */
void report_picture(const char *name, const char *caption);
FILE *report_data(const char *name); /* build/paper/name.dat */
/* Returns the number of broken rows. A row is broken if its count or its plan is wrong. */
int report_close(void);

/* The sections. */
void paper_rsa(void);    /* tables and claims of 2105.13120 */
void paper_ring(void);   /* counts the bytes of the ring */
void paper_memory(void); /* the plan equals the high-water mark of real trainings */
void paper_lasp(void);   /* 2404.02882 */
void paper_fits(void);   /* the longest sequences */
void paper_dsp(void);    /* 2403.10266 */
void paper_rest(void);   /* claims that are neither run nor accounted for */

/* Describes one attention layer of the product on P ranks, bidirectional, forward and backward
 * (ring.c). */
struct layer {
    int strategy, form; /* enum strategy_id, form_id */
    int P;
    int64_t T, H, Hk, D;
    int u; /* ranks of a group, for usp */
};
struct evidence *count_attention(const struct layer *l);
/* Counts the forward pass of two transformer blocks in tensor parallelism with sequence
 * parallelism (tensor.c), on S rows of H D columns. */
struct evidence *count_tensor_blocks(int P, int64_t S, int64_t H, int64_t D);

#endif
