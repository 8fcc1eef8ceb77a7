/* agree.h: compares the tokens that ranks choose. Every rank chooses the token by itself, from
 * logits that must have the same bits on all ranks. A faulty rank would choose a token that
 * differs from the choice of the other ranks. Its keys would then corrupt the cache, because
 * the cache is spread over all ranks. */
#ifndef SEQD_INFER_AGREE_H
#define SEQD_INFER_AGREE_H

#include "api/core/err.h"
#include "worker/comm/comm.h"

/* Stored as the choice, instead of a token, if a logit is NaN or infinite. */
#define AGREE_NOT_FINITE (-1)
/* Stored as the choice if the grammar of a request allows no token. */
#define AGREE_NO_TOKEN (-2)

struct agree_choice {
    int64_t token;    /* this rank's choice */
    const char *id;   /* borrowed: the id of the prompt */
    int64_t position; /* number of tokens of the text before this token */
};
/* Compares the choices [n <= JOB_MAX_BATCH] of a step in one message. comm is NULL if there is
 * only one rank. Returns n if all ranks made the same choices and none is AGREE_NOT_FINITE.
 * Returns the index of the first choice that is AGREE_NOT_FINITE on all ranks. Returns -1 with
 * ERR_CORRUPT if a choice differs between ranks. In that case the error names the prompt of
 * the first choice that differs. The error also names two ranks: a rank that made the most
 * frequent choice, and a rank that made another choice. Also returns -1 with the errors of
 * comm. Collective. */
int agree_on(struct comm *comm, void *bounce, const struct agree_choice *choice, int n,
             struct err *e);

#endif
