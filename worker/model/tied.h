/* tied.h: the head's part of a tied embedding's gradient, on its way from the last stage of a
 * pipeline to the first. For worker/train and worker/verify.
 *
 * Each part is copied to a buffer in the comm segment and sent. The buffer is used again when the
 * part was received. There are pipe_lent() buffers (worker/plan/pipe.h says why that is enough).
 * tested: tests/engine/test_tied.c */
#ifndef SEQD_MODEL_TIED_H
#define SEQD_MODEL_TIED_H

#include "worker/model/model.h"

struct tied_sends {
    char *at;       /* PLAN_TIED_SEND: n buffers; NULL: this rank sends none */
    int64_t stride; /* bytes from one buffer to the next */
    int64_t n;
    int64_t sent; /* buffers sent in this step; the last n of them may be under way */
    struct comm_ticket ticket[JOB_MAX_RANKS];
};

/* Places the buffers. m: a model that trains. */
void tied_init(struct tied_sends *s, struct model *m);
/* Copies n floats and sends them, on the last stage. Waits only if all buffers are under way. */
int tied_send(struct tied_sends *s, struct model *m, const float *x, int64_t n, struct err *e);
/* Receives the next part into room, n floats, and adds it to n floats of its own, on the first
 * stage. */
int tied_join(struct model *m, float *own, float *room, int64_t n, struct err *e);
/* Ends a step: waits until all buffers have been received. Returns at once if none was sent. */
int tied_settle(struct tied_sends *s, struct model *m, struct err *e);

#endif
