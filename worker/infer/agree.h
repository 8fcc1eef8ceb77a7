/* agree.h: compares the tokens that ranks choose. Every rank chooses for itself, from logits that
 * must be the same bits. A rank that computes wrongly would continue with another text, and its
 * keys would corrupt the cache that all ranks share. */
#ifndef SEQD_INFER_AGREE_H
#define SEQD_INFER_AGREE_H

#include "api/core/err.h"
#include "worker/comm/comm.h"

#define AGREE_NOT_FINITE (-1) /* in place of a token: a logit is NaN or infinity */

struct agree_choice {
    int64_t token;    /* this rank's choice */
    const char *id;   /* borrowed: id of the prompt */
    int64_t position; /* number of tokens before the chosen one */
};
/* Compares the choices [n <= JOB_MAX_BATCH] of a step in one message. comm NULL: one rank. Returns
 * n, or the index of the first choice that is AGREE_NOT_FINITE on all ranks. fails, -1:
 * ERR_CORRUPT naming the prompt of the first choice that differs, a rank that differs, and a rank
 * with the most frequent choice; comm's errors. Collective. */
int agree_on(struct comm *comm, void *bounce, const struct agree_choice *choice, int n,
             struct err *e);

#endif
