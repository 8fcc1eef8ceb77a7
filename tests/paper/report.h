/* report.h: build/paper/REPORT.md: claims, what we get, and the verdict; numbers for the plots. */
#ifndef SEQD_PAPER_REPORT_H
#define SEQD_PAPER_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum verdict {
    REPRODUCED, /* a published claim, within what `why` says */
    DIFFERENT,  /* ours differs from the paper's: why */
    NOT_HERE,   /* needs what this machine is not */
    HOLDS,      /* nobody's claim but ours: counted == planned */
    COMPARED,   /* nobody's claim: a number worth having beside the others */
    BROKEN      /* counted differs from planned: the program then fails */
};

struct claim {
    const char *what, *source; /* source: of the number claimed */
    double claimed;            /* 0: none; with ours gives the ratio */
    const char *claimed_text;  /* instead of the number */
    double ours;               /* by the planner */
    const char *ours_text;
    char measured[96]; /* by a run here; "": nothing of it runs in this version */
    enum verdict verdict;
    const char *why;
};

void report_open(const char *dir);
void report_section(const char *title, const char *text);
void report_text(const char *text); /* a paragraph */
/* What this version refuses to run, in its own words: no row, and no number in its place. */
void report_absent(const char *what, const char *why);
/* The rows of one table; between them nothing else. */
void report_table(void);
void report_claim(const struct claim *c);
void report_picture(const char *name, const char *caption); /* name.png, if it can be drawn */
FILE *report_data(const char *name);                        /* build/paper/name.dat */
/* Returns how many claims are BROKEN. */
int report_close(void);

/* The sections. */
void paper_rsa(void);    /* tables and claims of 2105.13120 */
void paper_ring(void);   /* its bytes, counted */
void paper_memory(void); /* plan == high-water of real trainings */
void paper_lasp(void);   /* 2404.02882 */
void paper_dsp(void);    /* 2403.10266 */
void paper_rest(void);   /* what cannot be reproduced here */

/* ---- heap (heap.c) --------------------------------------------------------------------------- */

/* Every allocation of this process is counted: bytes that live now, and the most since a mark. */
int64_t heap_live(void);
void heap_mark(void);
int64_t heap_most(void);

#endif
