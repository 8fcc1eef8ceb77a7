/* prefer.h: learns which of two answers is better (direct preference optimization, 2305.18290).
 *
 * The log-probability of an answer is the sum over its targets, s = -(nll). A reference is the
 * log-probability r that the answer had before the training. The margin of a pair is
 * m = (s_chosen - r_chosen) - (s_rejected - r_rejected), and the loss of the pair is
 *
 *   sigmoid  -(1 - l) log sigmoid(beta m) - l log sigmoid(-beta m), l = objective.label_smoothing
 *   ipo      (m - 1 / (2 beta))^2, where s and r are divided by the answer's targets (2310.12036)
 *
 * plus objective.sft_weight times the mean nll of the chosen answer's targets. The loss of a step
 * is the mean over all pairs of its samples, however they are packed and divided among ranks.
 *
 * A sample needs two passes over the head. The first pass computes the losses of all rows. The
 * backward pass multiplies each row's gradient by the derivative of the pair's loss with respect to
 * the row's nll. That factor is the same for all rows of an answer. The ranks that hold the
 * sample sum the nll of its answers, in the order in which the loss of a step is summed. Then each
 * of them computes the factors of all pairs, in double. */
#ifndef SEQD_TRAIN_PREFER_H
#define SEQD_TRAIN_PREFER_H

#include "worker/data/data.h"
#include "worker/plan/plan.h"

struct job_spec;
struct model;
struct train_source;

/* Numbers that are summed over pairs and ranks. A reward is beta (s - r); under ipo, too, s and r
 * are the sums, which no length divides. */
enum prefer_value {
    PREFER_LOSS,
    PREFER_CHOSEN,   /* reward of the chosen answer */
    PREFER_REJECTED, /* reward of the rejected answer */
    PREFER_MARGIN,   /* the difference of the two */
    PREFER_RIGHT,    /* 1 if the chosen answer has the larger reward, otherwise 0 */
    PREFER_VALUES
};
_Static_assert(PREFER_VALUES == PLAN_PAIR_VALUES, "as many numbers as are counted");

/* The sums over the two answers of a pair; the chosen answer comes first. */
struct prefer_pair {
    double nll[2];
    double reference[2]; /* log-probabilities */
    int64_t targets[2];
};

/* Computes the loss and the rewards of a pair. factor[i] gets the derivative of the loss with
 * respect to each row's nll of answer i. */
void prefer_loss(const struct job_spec *s, const struct prefer_pair *pair,
                 double value[PREFER_VALUES], double factor[2]);

/* Learns the pairs of a source on one rank. */
struct prefer {
    const struct job_spec *spec; /* borrowed */
    struct model *model;         /* borrowed */
    /* borrowed; it has `pair`, and its `targets` counts pairs */
    const struct train_source *source;
    /* the reference of each document, by its index; borrowed. Set it before the first sample. */
    const double *reference;
    double sum[PREFER_VALUES]; /* sums over the pairs of the last sample, on its first rank */
    /* If it is not NULL, it is called with each pair of a sample, in order. */
    void (*seen)(void *arg, const struct prefer_pair *pair);
    void *seen_arg;
};

/* Makes p->model call this code between the passes (struct model_weigh). p must outlive the
 * calls. */
void prefer_init(struct prefer *p);

/* The code that prefer_each calls with each pair of a sample, in order. nll has the sums of its two
 * answers. */
struct prefer_visit {
    void (*pair)(void *arg, const struct data_answer a[2], const double nll[2]);
    void *arg;
};
/* Sums the nll of the answers of the sample in the model's batch, which is one of `source`, over
 * the ranks that hold them. m->nll must have the losses of the rows. Returns the number of pairs,
 * or -1 with the errors of the data and of comm. Collective over m->holders. */
int64_t prefer_each(struct prefer *p, const struct train_source *source,
                    const struct prefer_visit *v, struct err *e);

/* Sums the losses and the rewards of all pairs of the sample in the model's batch, which is one of
 * `source`. m->nll must have the losses of the rows. Every rank that holds the sample gets the same
 * sums. Collective over m->holders. */
int prefer_score(struct prefer *p, const struct train_source *source, double sum[PREFER_VALUES],
                 struct err *e);

#endif
