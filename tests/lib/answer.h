/* answer.h: runs a single request until its answer is complete, and checks the ledger. */
#ifndef SEQD_TESTS_ANSWER_H
#define SEQD_TESTS_ANSWER_H

#include "tests/lib/test.h"
#include "worker/infer/infer.h"

/* Answers the request r in the slot w[0]. All ranks have to call this function together. If it
 * fails, *out holds no answer. */
static inline int answer_alone(const struct infer *in, struct infer_work *w,
                               const struct request *r, struct infer_answer *out, struct err *e)
{
    struct infer_steps steps = {0};
    infer_at(in, 1);
    int rc = infer_begin(in, w, r, out, e);
    while (!rc && !w->done) rc = infer_step(in, w, 1, &steps, e);
    if (!rc) CHECK(infer_settle(in, w, 1, &steps));
    w->out = NULL;
    if (rc) infer_answer_fini(out);
    return rc;
}

#endif
