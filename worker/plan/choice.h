/* choice.h: the values of "auto": axes, strategy, exchange and layout of a job, weighed once.
 *
 * Every alternative is the job itself with those fields set: family_check says whether it can run,
 * plan_make counts its memory and traffic, machine_estimate the time of a step. So only jobs that
 * could be submitted are weighed, and no property of a strategy is known here. Alternatives that
 * run only when a job asks for them are weighed for comparison (compare.c).
 *
 * Fields that the job sets are kept. An alternative has a product of axes, dp x pp x sp x tp. The
 * product that job_check gives the job is weighed first. A training weighs the others
 * (product.h), too, if sp and dp are both open and the machine is known, or if the first one does
 * not fit. In the former case each product is weighed with all of its ranks as one group of ZeRO
 * and, across nodes, with groups within a node. plan_make finds the memory modes of each: the
 * first that fit.
 *
 * The choice is the fastest alternative that fits. An alternative that divides the model (pp, tp)
 * although the job does not ask for it must save CHOICE_GAIN. If no machine is known, the choice
 * is the first alternative that fits.
 * It depends on the spec and the machine alone, unless CHOICE_MS ends the search. The daemon
 * computes it once, at submit, and writes it into the spec. */
#ifndef SEQD_PLAN_CHOICE_H
#define SEQD_PLAN_CHOICE_H

#include "api/core/jwrite.h"
#include "worker/plan/machine.h"

struct option {
    int32_t strategy, form, layout, exchange, sp, dp;
    int32_t pp, tp;     /* 0 in an option to weigh: as asked */
    int32_t zero_group; /* 0: as asked, else all ranks that share state */
    int32_t ulysses;    /* usp: ranks of a group; else 0 */
    bool fits;
    enum recompute_id recompute;
    int64_t mlp_chunk; /* as in struct plan */
    bool offload;      /* offload.on of struct plan */
    int64_t size;      /* bytes per rank; 0: not counted */
    int64_t bytes,
        messages;         /* counts of rank 0 in a step: for each purpose the sent or received ones,
                           * whichever are more */
    struct estimate time; /* zero unless the machine is known */
    double cost_s;        /* sort key: step_s, longer for an option that must save CHOICE_GAIN */
    const char *note;     /* why the option is never chosen; NULL: no note */
};

/* CHOICE_PLANS is more than 60 ranks need, with 160 products. A product has up to 4 strategies or
 * exchanges, or 2 strategies and the groups of usp. Half of the products have two sizes of ZeRO's
 * groups. */
#define CHOICE_GAIN     0.1
#define CHOICE_PLANS    2000 /* plans made to weigh, at most */
#define CHOICE_MS       2000 /* milliseconds after which the search ends, once it has an option */
#define CHOICE_OPTIONS  96   /* options listed, the best ones */
#define CHOICE_COMPARED 16   /* room for options that are compared besides; 12 are in use */
#define CHOICE_STORED   16   /* options that a job keeps */
struct choice {
    int n;          /* options, the best first; 0: none could be weighed */
    int n_compared; /* options after the first n, for comparison at the best one's degree */
    bool asked;     /* only one option was weighed, and the spec names its strategy */
    bool timed;     /* the machine is known */
    struct option option[CHOICE_OPTIONS + CHOICE_COMPARED];
    int n_plans, n_weighed, n_fit;    /* plans tried; plans made; plans that fit */
    int n_products, products_weighed; /* products_weighed is less if a limit was met */
    double alone_s; /* a step on one rank of the same machine; 0: not known, or it does not fit */
    /* Limits by the memory; 0: no limit is known. */
    bool frames; /* a video model: lengths are frames of the asked size, without a max_batch */
    int64_t max_seq_len; /* the longest sequence with the chosen strategy and degree */
    int64_t max_batch;   /* sequences of data.seq_len at once: max_seq_len / data.seq_len * dp */
    int64_t longest;     /* max_seq_len, but in the first product's ring if that is larger */
    bool waits;          /* parallel.form is decided later, by the data (form.h) */
    char reason[640];
    char warning[384], rope_warning[384], length_warning[384]; /* "" : none */
};

/* max_position_embeddings where none is given: a table is as long as the job needs. */
#define CHOICE_ANY_POSITIONS ((int64_t)1 << 20)

struct choice_how {
    /* Asks for the limits, too, and for the alternatives that are only for comparison: some 70
     * plans that most_plans does not bound. */
    bool limits;
    bool ungrouped; /* leaves out groups that the job does not ask for: "usp", ZeRO's in a node */
    int most_plans; /* plans to make, at most; 0: CHOICE_PLANS */
    int64_t (*clock_ms)(void *arg); /* a clock that does not go back; NULL: no limit of time */
    void *arg;
};

/* Weighs the alternatives of a job. asked: the job as the user wrote it (not yet checked, "auto"
 * not yet replaced), with its shape and resources.ranks known, and resources.memory_mib the limit
 * of a rank. */
void choice_make(const struct job_spec *asked, const struct machine *m,
                 const struct choice_how *how, struct choice *out);
/* Writes the best option into the spec. */
void choice_apply(const struct choice *c, struct job_spec *s);
/* Writes members of an open object: choice, weighed (at most n_options, and the compared ones),
 * products, estimate, machine, limits, warnings. */
void choice_write(const struct choice *c, const struct machine *m, int n_options, struct jwrite *w);

#endif
