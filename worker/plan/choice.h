/* choice.h: what "auto" becomes: strategy, degree, exchange and layout of a job, weighed once.
 *
 * Every alternative is the job itself with those fields set: job_check says whether it is legal and
 * can be run, plan_make what it holds and sends, machine_estimate what a step would take. So only
 * jobs that could be submitted are weighed, and no property of a strategy is known here. (Tensor
 * parallelism, which jobs do not run, is counted separately: compare.c.)
 *
 * The choice is the fastest alternative that fits; where no machine is known, what job_check makes
 * of "auto". It is a pure function of the spec and the machine: the daemon computes it once, at
 * submit, and writes it into the spec. */
#ifndef SEQD_PLAN_CHOICE_H
#define SEQD_PLAN_CHOICE_H

#include "api/core/jwrite.h"
#include "worker/plan/machine.h"

struct option {
    int32_t strategy, form, layout, exchange, sp, dp;
    bool fits;
    bool runs; /* as a job: else it is counted to be compared with */
    enum recompute_id recompute;
    int64_t mlp_chunk; /* struct plan's */
    int64_t size;      /* bytes per rank; 0: not counted */
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
    int n_compared; /* options after the first n: for comparison, at the best one's degree */
    bool asked;     /* the spec left nothing to choose */
    bool timed;     /* the machine is known */
    struct option option[CHOICE_OPTIONS];
    double alone_s; /* a step on one rank of the same machine; 0: not known, or it does not fit */
    /* What the memory allows; 0: no limit is known. */
    bool frames; /* a video's: lengths are frames of the asked size, and there is no max_batch */
    int64_t max_seq_len; /* the longest sequence with the chosen strategy and degree */
    int64_t max_batch;   /* sequences of data.seq_len at once: packed in one, times dp */
    int64_t longest;     /* the longest with all ranks in one ring */
    bool waits;          /* parallel.form is decided by the data (form.h) */
    char reason[640];
    char warning[384], rope_warning[384]; /* "" : none */
};

/* max_position_embeddings where none is given: a table is as long as the job needs. */
#define CHOICE_ANY_POSITIONS ((int64_t)1 << 20)

/* asked: as the user wrote it (not yet checked, "auto" not yet replaced), with its shape and
 * resources.ranks known and resources.memory_mib the limit of a rank. limits: also search the
 * limits, and weigh the alternatives that are for comparison only. */
void choice_make(const struct job_spec *asked, const struct machine *m, bool limits,
                 struct choice *out);
/* Writes the best option into the spec. */
void choice_apply(const struct choice *c, struct job_spec *s);
/* Members of an open object: choice, weighed, estimate, machine, limits, warnings. */
void choice_write(const struct choice *c, const struct machine *m, struct jwrite *w);

#endif
