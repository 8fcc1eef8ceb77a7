/* pairs.h: the proof of a job that learns preferences (worker/train/prefer.h). It is private to
 * worker/verify.
 *
 * The ranks compute references, losses and factors as a training does: by prefer_reference.c, by
 * prefer.c, and by the pairs that the packer describes. The one rank has its own list of the
 * documents that it has put into its batch. Document 2 i is the chosen answer of a pair, and
 * document 2 i + 1 the rejected answer. The one rank adds the losses of its rows itself, and shares
 * only the formula of the loss (prefer_loss).
 *
 * Both sides compute the references by the model without adapters. Without adapters the margins of
 * all pairs would then be 0 and all factors equal, which would hide faults. So a number that is
 * drawn from the seed and the document is added to each reference. It is between -1 / beta and
 * 1 / beta.
 *
 * All arrays are in the host's memory. The plan does not count them: 8 bytes for each document and,
 * on the ranks that compare, a few bytes for each token. */
#ifndef SEQD_VERIFY_PAIRS_H
#define SEQD_VERIFY_PAIRS_H

#include "api/core/job.h"
#include "worker/train/train.h"
#include "worker/verify/verify.h"

/* The ranks' side, on every rank. */
struct pairs_ranks {
    struct model *m;
    struct train_source source;
    struct prefer prefer;
    struct model_weigh weigh, before; /* callbacks of prefer.c, and of the model before */
    double *reference;                /* owned [documents] */
    double *sum;                      /* owned [room]: the nll of the last sample's answers */
    int64_t n, room;
    float *factor;           /* owned: the factors of all rows of the last sample */
    struct comm_count moved; /* expected counts, with purpose VERIFY */
    bool ledger_equal; /* whether this rank's counts were right while it computed references */
};

struct pairs_sums {
    double diff, norm;
    struct verify_answer worst; /* the answer whose difference is the largest */
};

/* The one rank's side. */
struct pairs_one {
    const struct job_spec *spec;
    struct model *m;
    struct data_answer *answer; /* owned [room]: the documents of the sample in the batch */
    double *sum, *reference;    /* owned [room]: nll; references */
    double *first[2];           /* owned [room]: sum and reference of the sample's first run */
    float *first_factor;        /* owned [rows]: factors of the rows in that run */
    int64_t n, room;
    double loss, first_loss; /* losses of the sample */
    /* differences between the ranks and the one rank, and between two runs of the one rank */
    struct pairs_sums part[VERIFY_PAIR_PARTS], again[VERIFY_PAIR_PARTS];
    double rounding[VERIFY_PAIR_PARTS]; /* largest relative difference of all runs */
};

/* Computes the references of the proof's samples, and makes the model learn pairs. Collective. Does
 * nothing if the plan has no pairs. */
int pairs_open(struct pairs_ranks *p, const struct verify_args *a, const struct data_order *order,
               struct err *e);
void pairs_close(struct pairs_ranks *p);

/* Makes m, the model of the one rank, learn the pairs of its own list. */
void pairs_one_init(struct pairs_one *o, const struct job_spec *spec, struct model *m);
void pairs_one_fini(struct pairs_one *o);
/* Appends the document in fragment f, whose rows begin at row pos, to the list. Set o->n to 0
 * before the first fragment of a sample. Fails with ERR_INTERNAL if the fragment is not a whole
 * document, or not the other half of its pair. */
int pairs_note(struct pairs_one *o, const struct data *d, const struct fragment *f, int64_t pos,
               int64_t targets, struct err *e);
/* Compares the list with the packer's description of sample i. Keeps the first difference. */
int pairs_match(const struct pairs_one *o, const struct data_order *order, int64_t i,
                struct verify_pairs *v, struct err *e);
/* Computes the references of the sample in the batch. Call it before the sample's pass. */
int pairs_base(struct pairs_one *o, struct err *e);

/* Gathers the sums and the factors of the sample that the ranks have just weighed, and compares
 * them with those of o. o is NULL on ranks that have no reference. Collective over rank 0's ring
 * or, if there are several stages, over rank 0 and the ranks of the last stage in its line. */
int pairs_compare(struct pairs_ranks *p, struct pairs_one *o, struct err *e);
void pairs_end(const struct pairs_one *o, struct verify_pairs *v);

bool pairs_equal(const struct verify_pairs *p);
/* Returns the bound of a part. Sums of losses and references are sums like the loss, and factors
 * multiply gradients. */
double pairs_usual(int part, struct job_tolerance usual);
/* Sets e to a sentence about the part in which the ranks and the one rank first differ although
 * the logits are equal; `worst` is about the gradients. Returns false if there is no such part. */
bool pairs_sentence(const struct verify *v, const char *worst, struct err *e);

/* Keep the results of a sample's first run; add the differences of a later run; end that run. */
int pairs_keep(struct pairs_one *o, struct err *e);
void pairs_again(struct pairs_one *o);
void pairs_again_end(struct pairs_one *o);

#endif
