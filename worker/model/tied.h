/* tied.h: sends the head's part of a tied embedding's gradient from the last stage of a pipeline
 * to the first. worker/train and worker/verify use it.
 *
 * Each part is copied to a buffer in the comm segment and sent. The buffer is used again once the
 * part has been received. There are pipe_lent() buffers (worker/plan/pipe.h explains why that is
 * enough). tested: tests/engine/test_tied.c */
#ifndef SEQD_MODEL_TIED_H
#define SEQD_MODEL_TIED_H

#include "worker/model/model.h"

struct tied_sends {
    char *at;       /* PLAN_TIED_SEND, with n buffers; NULL if this rank sends none */
    int64_t stride; /* bytes from the start of a buffer to that of the next */
    int64_t n;
    int64_t sent; /* number of buffers sent in this step; the last n of them may be under way */
    struct comm_ticket ticket[JOB_MAX_RANKS];
};

/* Places the buffers. m must be a model that trains. */
void tied_init(struct tied_sends *s, struct model *m);
/* Copies n floats and sends them, on the last stage. Waits only while all buffers are under
 * way. */
int tied_send(struct tied_sends *s, struct model *m, const float *x, int64_t n, struct err *e);
/* On the first stage, receives the next part, n floats, into room, and adds it to the n floats at
 * own. */
int tied_join(struct model *m, float *own, float *room, int64_t n, struct err *e);
/* Ends a step by waiting until all buffers have been received. Returns immediately if none was
 * sent. */
int tied_settle(struct tied_sends *s, struct model *m, struct err *e);

#endif
