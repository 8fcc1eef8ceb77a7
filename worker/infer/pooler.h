/* pooler.h: pools the hidden states of a text to a vector, by embed.pooling and embed.normalize
 * (embed.h). Embed jobs and serve jobs of an embedding model use it. */
#ifndef SEQD_INFER_POOLER_H
#define SEQD_INFER_POOLER_H

#include "worker/infer/infer.h"

struct pooler {
    const struct infer *in; /* borrowed */
    double *vector;         /* owned, [C]: the last vector */
    float *buf;             /* owned: rows that are downloaded together */
};

int pooler_open(struct pooler *p, const struct infer *in, struct err *e);
void pooler_close(struct pooler *p);
/* Pools positions [begin, end) of the states into p->vector. The bits of the result are the same
 * on every rank. Returns 1 if an element is not finite. Collective. */
int pooler_run(struct pooler *p, struct tensor states, int64_t begin, int64_t end, struct err *e);
/* Adds the counts that n vectors need. */
void pooler_expect(const struct model *m, int64_t n, struct comm_count *want);

#endif
