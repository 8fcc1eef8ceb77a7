/* prefer_reference.h: computes the references of answers (prefer.h) before the first step, for the
 * samples that the steps draw. They are the log-probabilities of the answers under the first
 * weights. If the model has adapters, they are those of the model without its adapters.
 *
 * Each sample is computed once, however often the steps draw it. Among the samples that are drawn,
 * ring d computes the samples d, d + dp ... Then all ranks get all references. */
#ifndef SEQD_TRAIN_PREFER_REFERENCE_H
#define SEQD_TRAIN_PREFER_REFERENCE_H

#include "worker/train/prefer.h"

struct prefer_reference {
    int rank;            /* this rank's index in the job */
    int64_t n_drawn;     /* the steps draw samples [0, n_drawn) */
    int64_t n_different; /* number of different samples of the order */
    int64_t n_documents;
    /* [n_documents] the references of the answers in the samples that are drawn, on every rank; NaN
     * for all other documents */
    double *reference;
    bool (*stopped)(void *arg); /* whether the job was asked to stop; may be NULL */
    void *arg;
    bool ledger_equal; /* out: every rank's counts equalled the plan's; the same on all ranks */
    /* out: whether this rank's counts of CONTROL equalled the plan's. The message that shares
     * ledger_equal is one of them. */
    bool control_equal;
};

/* Collective over the job. The model must have its first weights. Fails with ERR_ABORTED if stopped
 * returns true, and with the errors of the data, the device and comm. If a log-probability is NaN
 * or infinite, fails as finite_blame does. */
int prefer_reference_run(struct prefer *f, struct prefer_reference *r, struct err *e);

/* Checks references that an earlier job computed: each answer in a sample that the steps draw must
 * have one. Fails with ERR_CONFLICT if an answer has none, which happens if the steps draw more
 * samples than those of the earlier job. Local; the result is the same on all ranks. */
int prefer_reference_check(struct prefer *f, struct prefer_reference *r, struct err *e);

#endif
