/* prefer_reference.h: computes the references of answers (prefer.h) before the first step, for the
 * samples that the steps or the evaluations draw. They are the log-probabilities of the answers
 * under the first weights. If the model has adapters, they are those of the model without its
 * adapters.
 *
 * Each sample is computed once, however often it is drawn. Among the samples that are drawn, ring d
 * computes the samples d, d + dp ... Then all ranks get all references. */
#ifndef SEQD_TRAIN_PREFER_REFERENCE_H
#define SEQD_TRAIN_PREFER_REFERENCE_H

#include "api/core/progress.h"
#include "worker/train/prefer.h"

struct prefer_reference {
    int rank; /* this rank's index in the job */
    /* the samples of the evaluations, borrowed; NULL means the source whose pairs are learnt */
    const struct train_source *source;
    /* tokens of a sample, at most the S of the plan; 0 means the length for which the model is
     * set */
    int64_t seq_len;
    int64_t n_drawn;     /* samples [0, n_drawn) are drawn */
    int64_t n_different; /* number of different samples of the order */
    /* The documents of the source are [first_document, first_document + n_documents). */
    int64_t first_document, n_documents;
    /* [first_document + n_documents] the references of the answers in the samples that are drawn,
     * on every rank; NaN for all other documents of the source. The references of other documents
     * are not written. */
    double *reference;
    struct progress *progress;  /* counts samples of all rings; may be NULL */
    bool (*stopped)(void *arg); /* whether the job was asked to stop; may be NULL */
    void *arg;
    int64_t *sample;   /* [n_samples] owned: the first draw of each sample that is drawn */
    int64_t n_samples; /* number of different samples that are drawn */
    bool ledger_equal; /* out: every rank's counts equalled the plan's; the same on all ranks */
    /* out: whether this rank's counts of CONTROL equalled the plan's. The message that shares
     * ledger_equal is one of them. */
    bool control_equal;
};

/* Lists the different samples that are drawn, without reading the data. The members above `sample`
 * must be set. Fails if there is no memory; prefer_reference_fini must be called all the same. */
int prefer_reference_init(struct prefer_reference *r, const struct prefer *f, struct err *e);
void prefer_reference_fini(struct prefer_reference *r);

/* Computes the references. Collective over the job. The model must have its first weights.
 * Afterwards the model is set for the length for which it was set before. Fails with ERR_ABORTED if
 * stopped returns true, and with the errors of the data, the device and comm. If a log-probability
 * is NaN or infinite, fails as finite_blame does. */
int prefer_reference_run(struct prefer *f, struct prefer_reference *r, struct err *e);

/* Tells whether each answer in a sample that is drawn has a reference. References that an earlier
 * job computed may be too few, if its steps or evaluations drew fewer samples. Returns 1 if none is
 * missing, 0 if one is, and -1 with the errors of the source. Local; the result is the same on all
 * ranks. */
int prefer_reference_complete(const struct prefer_reference *r, struct err *e);

#endif
