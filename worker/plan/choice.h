/* choice.h: what "auto" becomes: strategy, degree, exchange and layout of a job, weighed once.
 *
 * Every alternative is the job itself with those fields set: job_check says whether it is legal and
 * can be run, plan_make what it holds and sends, machine_estimate what a step would take. So
 * nothing is weighed here that could not be submitted in its place, and nothing about a strategy
 * is known here. (What jobs do not run, tensor parallelism, is counted beside them: compare.c.) Of those that fit, the fastest; where no machine is known, what job_check makes
 * of "auto". It is a pure function of the spec and the machine: the daemon asks once, at submit,
 * and writes the answer into the spec. */
#ifndef SEQD_PLAN_CHOICE_H
#define SEQD_PLAN_CHOICE_H

#include "api/core/jwrite.h"
#include "worker/plan/machine.h"

struct option {
    int32_t strategy, form, layout, exchange, sp, dp;
    bool fits;
    bool runs; /* as a job: else it is counted to be compared with */
    enum recompute_id recompute;
    int64_t size; /* bytes per rank; 0: not counted */
    int64_t bytes,
        messages;         /* of rank 0 in a step: for each purpose, what it sends or what it gets,
                              * whichever is more */
    struct estimate time; /* zero unless the machine is known */
    const char *note;     /* why it is not chosen whatever it takes; NULL: nothing to say */
};

/* 64 ranks have 7 degrees, 60 have 12, of up to 4 strategies or exchanges each; 12 compared. */
#define CHOICE_OPTIONS 96
struct choice {
    int n, best;    /* best: index; n 0: nothing could be weighed */
    int n_compared; /* options behind those n: only compared with, with the best one's degree */
    bool asked;     /* the spec left nothing to choose */
    bool timed;     /* the machine is known */
    struct option option[CHOICE_OPTIONS];
    double alone_s; /* a step on one rank of the same machine; 0: not known, or it does not fit */
    /* What the memory allows; 0: no limit is known. */
    bool frames; /* a video's: lengths are frames of the asked size, and there is no max_batch */
    int64_t max_seq_len;            /* the longest sequence with the chosen strategy and degree */
    int64_t max_batch;              /* sequences of data.seq_len at once: packed in one, times dp */
    int64_t longest;                /* the longest with all ranks in one ring */
    bool waits;                     /* parallel.form is decided by the data (form.h) */
    char reason[640], warning[384]; /* "" : none */
};

/* max_position_embeddings where nobody has said it: a table is as long as the job needs. */
#define CHOICE_ANY_POSITIONS ((int64_t)1 << 20)

/* asked: as a person wrote it (not yet checked; "auto" still stands there), its shape and
 * resources.ranks known, resources.memory_mib the limit of a rank. limits: also search them, and what is only
 * compared with. */
void choice_make(const struct job_spec *asked, const struct machine *m, bool limits,
                 struct choice *out);
/* Writes the best option into the spec. */
void choice_apply(const struct choice *c, struct job_spec *s);
/* Members of an open object: choice, weighed, estimate, machine, limits, warnings. */
void choice_write(const struct choice *c, const struct machine *m, struct jwrite *w);

#endif
