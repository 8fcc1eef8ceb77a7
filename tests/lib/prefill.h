/* prefill.h: runs a prompt through a model without generating an answer. */
#ifndef SEQD_TESTS_PREFILL_H
#define SEQD_TESTS_PREFILL_H

#include "worker/infer/infer.h"

/* Runs the n prompt tokens in `tokens` through the model. On every rank, `logits`, which has V
 * elements, is set to the logits after the last token. */
static inline int prefill(const struct infer *in, const int32_t *tokens, int64_t n, float *logits,
                          struct err *e)
{
    if (infer_check_length(in, n, e) || infer_forward(in, tokens, n, e)) return -1;
    return infer_last_logits(in, n, logits, e);
}

#endif
