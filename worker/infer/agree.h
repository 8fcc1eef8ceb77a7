/* agree.h: every rank chooses tokens for itself, from logits that have to be the same bits: a rank
 * that computes wrongly would continue with a text of its own, and its keys would spoil those of
 * all. So their choices are compared. */
#ifndef SEQD_INFER_AGREE_H
#define SEQD_INFER_AGREE_H

#include "api/core/err.h"
#include "worker/comm/comm.h"

#define AGREE_NOT_FINITE (-1) /* in place of a token: a logit is NaN or infinity */

struct agree_choice {
    int64_t token;    /* this rank's */
    const char *id;   /* borrowed: the prompt's */
    int64_t position; /* how many tokens there are before it */
};
/* Compares the choices [n <= JOB_MAX_BATCH] of a step in one message. comm NULL: one rank. Returns
 * n, or the first choice that is AGREE_NOT_FINITE on all ranks, to be blamed. fails, -1:
 * ERR_CORRUPT naming the prompt of the first choice that is not the same on all, and a rank that
 * chose as others did not. Collective. */
int agree_on(struct comm *comm, void *bounce, const struct agree_choice *choice, int n,
             struct err *e);

#endif
