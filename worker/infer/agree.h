/* agree.h: compares the tokens that ranks choose. Every rank chooses the token by itself, from
 * logits that must have the same bits on all ranks. If a rank computes wrongly, it continues with
 * another text, and its keys corrupt the cache that all ranks share. */
#ifndef SEQD_INFER_AGREE_H
#define SEQD_INFER_AGREE_H

#include "api/core/err.h"
#include "worker/comm/comm.h"

#define AGREE_NOT_FINITE (-1) /* stands in place of a token if a logit is NaN or infinity */

struct agree_choice {
    int64_t token;    /* this rank's choice */
    const char *id;   /* borrowed: id of the prompt */
    int64_t position; /* number of tokens of the text before the chosen one */
};
/* Compares the choices [n <= JOB_MAX_BATCH] of a step in one message. comm is NULL if there is
 * only one rank. Returns n, or the index of the first choice that is AGREE_NOT_FINITE on all
 * ranks. Returns -1 with ERR_CORRUPT if a choice differs between ranks. The error names the prompt
 * of the first such choice, a rank with another choice than most ranks, and a rank with the most
 * frequent choice. Also returns -1 with the errors of comm. Collective. */
int agree_on(struct comm *comm, void *bounce, const struct agree_choice *choice, int n,
             struct err *e);

#endif
