/* choice.h: chooses the values of "auto" for a job's axes, strategy, exchange and layout. They are
 * weighed once.
 *
 * Every alternative is the job itself with those fields set. family_check says whether it can run,
 * plan_make computes its memory and traffic, and machine_estimate the time of a step. So only jobs
 * that could be submitted are weighed, and no property of a strategy is known here. Alternatives
 * that run only when a job asks for them are weighed for comparison (compare.c).
 *
 * Fields that the job sets are kept. An alternative has a product of axes, dp x pp x sp x tp. The
 * product that job_check gives the job is weighed first. A training also weighs the other products
 * (product.h) if sp and dp are both open and the machine is known, or if the first product does
 * not fit. In the former case each product is weighed with all of its ranks as one group of ZeRO
 * and, across nodes, with groups within a node. For each product, plan_make uses the first memory
 * modes that fit.
 *
 * The choice is the fastest alternative that fits. An alternative that divides the model (pp, tp)
 * although the job does not ask for it must save the share CHOICE_GAIN of the time. If no machine
 * is known, the choice is the first alternative that fits.
 * The choice depends only on the spec and the machine, unless CHOICE_MS ends the search. The
 * daemon computes it once, at submit, and writes it into the spec. */
#ifndef SEQD_PLAN_CHOICE_H
#define SEQD_PLAN_CHOICE_H

#include "api/core/jwrite.h"
#include "worker/plan/machine.h"

struct option {
    int32_t strategy, form, layout, exchange, sp, dp;
    /* 0 in an option that is still to be weighed means the value that the job asks for */
    int32_t pp, tp;
    /* 0 means the value that the job asks for; if the job asks for none, it means all ranks that
     * share state */
    int32_t zero_group;
    int32_t ulysses; /* usp: number of ranks of a group; otherwise 0 */
    bool fits;
    enum recompute_id recompute;
    int64_t mlp_chunk; /* as in struct plan */
    bool offload;      /* offload.on of struct plan */
    int64_t size;      /* bytes per rank; 0 if they were not counted */
    int64_t bytes,
        /* Counts of rank 0 in a step. For each purpose, it is the count sent or the count
         * received, whichever is larger. */
        messages;
    struct estimate time; /* zero if the machine is not known */
    /* sort key: step_s, increased for an option that must save CHOICE_GAIN */
    double cost_s;
    const char *note; /* why the option is never chosen; NULL if it may be chosen */
};

/* CHOICE_PLANS is more than a job on 60 ranks needs, which has 160 products. A product has up to 4
 * strategies or exchanges, or 2 strategies and the groups of usp. Half of the products have two
 * sizes of ZeRO's groups. */
#define CHOICE_GAIN  0.1
#define CHOICE_PLANS 2000 /* most plans that are made in order to weigh */
/* milliseconds after which the search ends, if it has an option by then */
#define CHOICE_MS      2000
#define CHOICE_OPTIONS 96 /* options listed, the best ones */
/* room for options that are weighed only for comparison; 12 are in use */
#define CHOICE_COMPARED 16
#define CHOICE_STORED   16 /* options that a job keeps */
struct choice {
    int n;          /* number of options, the best first; 0 if none could be weighed */
    int n_compared; /* options that follow the first n, for comparison at the best one's degree */
    bool asked;     /* only one option was weighed, and the spec names its strategy */
    bool timed;     /* the machine is known */
    struct option option[CHOICE_OPTIONS + CHOICE_COMPARED];
    int n_plans, n_weighed, n_fit; /* plans that were tried, that were made, and that fit */
    /* products_weighed is less than n_products if a limit ended the search */
    int n_products, products_weighed;
    /* seconds of a step on one rank of the same machine; 0 if not known or if it does not fit */
    double alone_s;
    /* Limits that the memory sets; 0 means that no limit is known. frames is set for a video
     * model: its lengths are counts of frames of the size that the job asks for, and it has no
     * max_batch. */
    bool frames;
    int64_t max_seq_len; /* the longest sequence, with the chosen strategy and degree */
    /* most sequences of data.seq_len together: max_seq_len / data.seq_len * dp */
    int64_t max_batch;
    /* the same limit as max_seq_len, or the limit of the first product's ring if that is longer */
    int64_t longest;
    bool waits; /* parallel.form is decided later, from the data (form.h) */
    char reason[640];
    char warning[384], rope_warning[384], length_warning[384]; /* "" if there is none */
};

/* The value of max_position_embeddings for a job that gives none. The table of such a job is as
 * long as the job needs. */
#define CHOICE_ANY_POSITIONS ((int64_t)1 << 20)

struct choice_how {
    /* Also computes the limits and weighs the alternatives that are only for comparison. This
     * makes some 70 more plans, which most_plans does not limit. */
    bool limits;
    /* leaves out groups for which the job does not ask: "usp", and ZeRO's within a node */
    bool ungrouped;
    int most_plans; /* most plans to make; 0 means CHOICE_PLANS */
    /* a clock that does not go back; NULL if there is no limit of time */
    int64_t (*clock_ms)(void *arg);
    void *arg;
};

/* Weighs the alternatives of a job. asked is the job as the user wrote it (not yet checked, "auto"
 * not yet replaced), but its shape and resources.ranks must be known, and resources.memory_mib
 * must be the limit of a rank. */
void choice_make(const struct job_spec *asked, const struct machine *m,
                 const struct choice_how *how, struct choice *out);
/* Writes the best option into the spec. */
void choice_apply(const struct choice *c, struct job_spec *s);
/* Writes members of an object that is open: choice, weighed (at most n_options, and the options
 * for comparison), products, estimate, machine, limits and warnings. */
void choice_write(const struct choice *c, const struct machine *m, int n_options, struct jwrite *w);

#endif
