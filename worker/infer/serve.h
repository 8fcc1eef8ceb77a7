/* serve.h: answers requests as they come, with a loaded model over the ring.
 *
 * Rank 0 gets the requests. All ranks run the same passes. Each pass begins with a broadcast from
 * rank 0: a struct serve_pass, and then the body of the request that begins in this pass, if there
 * is one. So all ranks have the same requests, as infer_begin wants. A pass computes the prompt of
 * the request that begins, and a token for each request at work. While there is no request, rank 0
 * leads an empty pass every SERVE_BEAT_US at least, so that an idle ring is no hang.
 *
 * A request is answered with the bits that the same line of a batch gets (generate.c). The answer
 * does not depend on other requests, on the order in which they come, or on those that are
 * dropped. */
#ifndef SEQD_INFER_SERVE_H
#define SEQD_INFER_SERVE_H

#include "worker/infer/infer.h"
#include "worker/infer/serve_asks.h"

#define SERVE_BEAT_US ((int64_t)5 * 1000000)

struct serve_result {
    int64_t n_requests; /* answered requests, also of tokenize and detokenize */
    int64_t n_refused;  /* requests that were answered with an error */
    int64_t n_dropped;
    /* tokens of prompts and of answers, also of requests that were dropped or cut after they
     * began */
    int64_t n_prompt_tokens, n_tokens;
    int64_t n_kept_tokens;         /* tokens of prompts that were not computed */
    int64_t n_pages, n_pages_used; /* pages of all ranks, and the most that requests had at once */
    int64_t n_passes;              /* broadcasts of rank 0, those of empty passes included */
    struct infer_pace prefill, decode;
    bool ledger_equal;
};

/* Serves until the job drains (door->draining), or until it had no request for serve.idle_s. door
 * is NULL on all ranks but rank 0. Fails as infer_begin and infer_step do. Collective. */
int serve_run(const struct infer *in, const struct serve_door *door, struct serve_result *out,
              struct err *e);

#endif
