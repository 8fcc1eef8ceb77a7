/* tied.h: sends the head's part of a tied embedding's gradient from the last stage of a pipeline
 * to the first stage. worker/train and worker/verify use it.
 *
 * Each part is copied to a buffer in the comm segment and sent. The buffer is used again when the
 * part has been received. There are pipe_lent() buffers; worker/plan/pipe.h explains why these are
 * enough. tested: tests/engine/test_tied.c */
#ifndef SEQD_MODEL_TIED_H
#define SEQD_MODEL_TIED_H

#include "worker/model/model.h"

struct tied_sends {
    char *at;       /* PLAN_TIED_SEND, with n buffers; NULL if this rank sends no part */
    int64_t stride; /* bytes from the start of one buffer to the start of the next buffer */
    int64_t n;
    /* sent: number of buffers that were sent in this step; the first stage may not have received
     * the last n of them yet */
    int64_t sent;
    struct comm_ticket ticket[JOB_MAX_RANKS];
};

/* Places the buffers. m must be a model that is trained. */
void tied_init(struct tied_sends *s, struct model *m);
/* Copies n floats and sends them, on the last stage. Waits only if no buffer is free. */
int tied_send(struct tied_sends *s, struct model *m, const float *x, int64_t n, struct err *e);
/* On the first stage, receives the n floats of the next part into room, and adds them to the n
 * floats at own. */
int tied_join(struct model *m, float *own, float *room, int64_t n, struct err *e);
/* Ends a step. Waits until all buffers have been received. Returns immediately if no buffer was
 * sent. */
int tied_settle(struct tied_sends *s, struct model *m, struct err *e);

#endif
