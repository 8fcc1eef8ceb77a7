/* choice.h: chooses the values of "auto" for a job's axes, strategy, exchange and layout.
 *
 * Every alternative is a copy of the job in which these fields are set. family_check tells whether
 * it can run. plan_make computes its memory and traffic. machine_estimate computes the time of a
 * step. So only jobs that could be submitted are weighed, and the code of the choice knows no
 * property of a strategy. Some alternatives run only if a job asks for them; they are weighed only
 * for comparison (compare.c).
 *
 * Fields that the job sets are kept. An alternative has a product of axes, dp x pp x sp x tp. The
 * product that job_check gives the job is weighed first. For a training the other products
 * (product.h) are weighed as well in two cases. In the first case, sp and dp are both open and the
 * machine is known. Each product is then weighed with all of its ranks as one group of ZeRO and,
 * if there are several nodes, also with groups within a node. The second case is that the first
 * product does not fit. For each product, plan_make uses the first memory modes that fit.
 *
 * The choice is the fastest alternative that fits. If an alternative divides the model (pp, tp)
 * and the job does not ask for that, the alternative must save the share CHOICE_GAIN of the time.
 * If no machine is known, the choice is the first alternative that fits. The choice depends only
 * on the spec and the machine, unless CHOICE_MS ends the search. The daemon computes the choice
 * once, when the job is submitted, and writes it into the spec. */
#ifndef SEQD_PLAN_CHOICE_H
#define SEQD_PLAN_CHOICE_H

#include "api/core/jwrite.h"
#include "worker/plan/machine.h"

struct option {
    int32_t strategy, form, layout, exchange, sp, dp;
    /* in an option that has not been weighed yet, 0 means the value that the job asks for */
    int32_t pp, tp;
    /* 0 means the value that the job asks for. If the job asks for no value, 0 means all ranks
     * that share state. */
    int32_t zero_group;
    int32_t ulysses; /* usp: number of ranks of a group; 0 for other strategies */
    bool fits;
    enum recompute_id recompute;
    int64_t mlp_chunk; /* mlp_chunk of struct plan */
    int offload;       /* plan_offload_id */
    int64_t size;      /* bytes per rank; 0 if they are not known */
    /* Counts of rank 0 in a step, summed over all purposes. For each purpose, the larger of the
     * count sent and the count received is added. */
    int64_t bytes, messages;
    struct estimate time; /* all zeros if the machine is not known */
    /* Sort key of the option. It is step_s, or more than step_s if the option must save the share
     * CHOICE_GAIN of the time. */
    double cost_s;
    const char *note; /* reason why the option is never chosen; NULL if it may be chosen */
};

/* CHOICE_PLANS is more than a job on 60 ranks needs. A job on 60 ranks has 160 products. For each
 * product, 4 strategies or exchanges can be weighed, or 2 strategies and the groups of usp. For
 * half of the products, two sizes of ZeRO's groups can be weighed. */
#define CHOICE_GAIN  0.1
#define CHOICE_PLANS 2000 /* largest number of plans that are made for weighing */
/* The search ends after this number of milliseconds, if it has weighed an option by then. */
#define CHOICE_MS 2000
/* largest number of options that are listed; the best options are listed */
#define CHOICE_OPTIONS 96
/* room for options that are weighed only for comparison; 12 are in use */
#define CHOICE_COMPARED 16
#define CHOICE_STORED   16 /* largest number of options that are stored with a job */
struct choice {
    int n; /* number of weighed options, the best first; 0 if none could be weighed */
    /* number of options that follow the first n options; they are for comparison, at the degree of
     * the best option */
    int n_compared;
    bool asked; /* set if only one option was weighed and the spec names its strategy */
    bool timed; /* the machine is known */
    struct option option[CHOICE_OPTIONS + CHOICE_COMPARED];
    /* numbers of plans that were tried, that could be made, and that fit */
    int n_plans, n_weighed, n_fit;
    /* less than n_products if a limit ended the search */
    int n_products, products_weighed;
    /* seconds of a step on one rank of this machine; 0 if it is not known or if the job does not
     * fit on one rank */
    double alone_s;
    /* Limits that the memory sets; 0 means that no limit is known. frames is set for a video
     * model. The lengths are then numbers of frames of the size that the job asks for, and
     * max_batch is not used. */
    bool frames;
    /* length of the longest sequence that fits with the chosen strategy and degree */
    int64_t max_seq_len;
    /* largest number of sequences of data.seq_len: max_seq_len / data.seq_len * dp */
    int64_t max_batch;
    /* the larger of two lengths: max_seq_len, and the longest sequence that fits with the ring of
     * the first product */
    int64_t longest;
    bool waits; /* parallel.form is decided later, from the data (form.h) */
    char reason[640];
    char warning[384], rope_warning[384], length_warning[384]; /* "" if there is no warning */
};

/* The value of max_position_embeddings if a job does not give it. The table of positions of a job
 * without this value has as many rows as the job needs. */
#define CHOICE_ANY_POSITIONS ((int64_t)1 << 20)

struct choice_how {
    /* Also computes the limits, and weighs the alternatives that are only for comparison. This
     * makes about 30 more plans, which most_plans does not count. */
    bool limits;
    /* does not weigh groups that the job does not ask for: "usp", and groups of ZeRO within a
     * node */
    bool ungrouped;
    int most_plans; /* largest number of plans that are made; 0 means CHOICE_PLANS */
    /* a clock that never goes back; NULL if time is not limited */
    int64_t (*clock_ms)(void *arg);
    void *arg;
};

/* Weighs the alternatives of a job. asked is the job as the user wrote it: it has not been
 * checked, and "auto" has not been replaced. But its shape and resources.ranks must be known, and
 * resources.memory_mib must be the limit of a rank. */
void choice_make(const struct job_spec *asked, const struct machine *m,
                 const struct choice_how *how, struct choice *out);
/* Writes an option into the spec. */
void choice_set(const struct option *o, struct job_spec *s);
/* Writes the best option into the spec, if there is one. */
void choice_apply(const struct choice *c, struct job_spec *s);
/* Writes members of a JSON object that the caller has opened: choice, weighed, products, estimate,
 * machine, limits and warnings. The array `weighed` has at most n_options options, and then the
 * options for comparison. */
void choice_write(const struct choice *c, const struct machine *m, int n_options, struct jwrite *w);

#endif
